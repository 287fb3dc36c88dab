"""The structure of a document: a title, and text below headings, in order, without keys."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, time
from typing import Any

from contrasent.errors import HALF
from contrasent.types import composed

BELOW = 99  # the level of a section that continues
PLACES = ("document", "title", "headings", "body", "page", "sections")  # of a passage's metadata
MOST, LONGEST = 50, 500  # facts of a document or values of one, and the characters of each
_SAME = {"authors": "author", "keywords": "tags", "tag": "tags", "categories": "tags"}
_DAY = re.compile(r"(?:D:)?((?:19|20)\d\d)-?([01]\d)-?([0-3]\d)(?=[T \d]|$)")

_MADE = re.compile(  # by programs, not by who wrote the document
    r"""\A(?:[(\[]?(?:untitled|unbenannt|sans[ ]titre|sin[ ]t[ií]tulo|senza[ ]titolo|naamloos
        |anonymous|unknown|unspecified|no[ ]title|title)[)\]]?
        (?:[ _-]?(?:document|dokument|presentation))?[ _-]?\d*
    | (?:document|dokument|documento?|presentation|präsentation|présentation|presentación|book
        |workbook|mappe|slide|folie|scan|image)[ _-]?\d*
    | powerpoint[ -](?:presentation|präsentation)|présentation[ ]powerpoint
    | presentación[ ]de[ ]powerpoint
    | microsoft[ ](?:word|powerpoint|excel|office[ ]\w+)[ ]-[ ].*
    | (?:file|https?)://.* | about:blank
    | [^\s/\\]+\.(?:docx?|dotx?|pptx?|xlsx?|odt|ods|rtf|pdf|indd|tex|dvi|qxd|pages|html?|txt|md)
    | .*[/\\][^/\\]+\.(?:docx?|pptx?|xlsx?|odt|rtf|pdf|indd|tex|dvi))\Z""",
    re.VERBOSE | re.IGNORECASE,
)

_WIDE = r"\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff"
# A line break within Chinese or Japanese, which stands for no space.
WRAPPED = re.compile(rf"\n(?<=[{_WIDE}]\n)[ \t]*(?=[{_WIDE}])")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\ufeff\ufffe]")

_KEY = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | \b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b                     # Amazon
    | \bsk-(?=[A-Za-z_-]{0,99}\d)[A-Za-z0-9_-]{20,}             # OpenAI, Anthropic and others
    | \b(?:sk|rk|pk)_(?:live|test)_[0-9A-Za-z]{16,}               # Stripe
    | \bgh[pousr]_[A-Za-z0-9]{36,}\b | \bgithub_pat_[A-Za-z0-9_]{40,}
    | \bglpat-[A-Za-z0-9_-]{20,}
    | \bxox[abposr]-[A-Za-z0-9-]{10,}                             # Slack
    | \bAIza[0-9A-Za-z_-]{35}\b | \bya29\.[0-9A-Za-z_-]{20,}      # Google
    | \bhf_[A-Za-z]{30,}\b                                        # Hugging Face
    | \bnpm_[A-Za-z0-9]{36}\b | \bpypi-[A-Za-z0-9_-]{50,}
    | \bSG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}              # SendGrid
    | \beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,}          # JSON Web Token
    # user:password of an address, unless it stands for one
    | \b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{1,99}:(?!pass|secret|[<{$*])[^\s/@]{6,99}@
    """,
    re.VERBOSE,
)
_NAME = (  # of what is secret
    r"(?:passw(?:or)?[dt]|passwd|pwd|passphrase|passcode|(?:client_?|app_?)?secret(?:_?key)?"
    r"|(?:api|access|private)[ _-]?key|(?:auth|access|refresh|bearer|api)[ _-]?token)"
)
_SECRET_NAME = re.compile(rf"(?:\w*[_.-])?{_NAME}", re.IGNORECASE)
# In code, configuration and tables: a literal, not what names or fetches one. In prose it has a
# digit: "Password: hunter22".
_VALUE = r"""(?:(["'])[^\s"'{$<]{6,99}\1|[^\s"'{$<(;]{6,99}(?=$|;))"""
_ASSIGNED = re.compile(rf"""{_NAME}["']?\s{{0,9}}[:=]\s{{0,9}}{_VALUE}""", re.IGNORECASE | re.M)
_TOLD = re.compile(
    rf"""(?<![^\W_]){_NAME}\s{{0,3}}[:=]\s{{0,3}}(?=[^\s;]{{0,98}}\d){_VALUE}""",
    re.IGNORECASE | re.M,
)
_HINTS = (  # every key contains one of these
    "-----BEGIN", "AKIA", "ASIA", "ABIA", "ACCA", "sk-", "k_live_", "k_test_", "ghp_", "gho_",
    "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AIza", "ya29.", "hf_", "npm_", "pypi-",
    "SG.", "eyJ", "://",
)  # fmt: skip
_NAME_HINTS = ("pass", "pwd", "secret", "key", "token")  # and every name one of these
_KEY_END = "-----END"
# In the lines of a private key: base 64, or a header.
_OF_KEY = re.compile(r"[A-Za-z0-9+/=]{30}|^[\w-]+: |^[A-Za-z0-9+/=]*$")
_CLOSING = "[\"'”’»)\\]」』）】》〉]*"
_END = re.compile(
    rf"(?P<spaced>[.!?…]{_CLOSING}\s+)(?=\S)"
    rf"|[。！？｡．]{_CLOSING}\s*"
    r"|[।॥؟۔።፧៕။྾།‼⁇⁈⁉]+\s*"
    # "zurückgewiesen.2. Der", "tragen.Tatbestand": full stops whose space was lost.
    r"|(?<=[^\W\d_][^\W\d_][^\W\d_]\.)(?=\d{1,3}[. ]*[A-ZÄÖÜ]|[A-ZÄÖÜ][a-zäöüß]{2,}[ ,\d])"
)
_ABBREVIATED = re.compile(
    r"""(?:^|[\s("'„“«/])(?:
      \w | \d{1,2} | [IVXLC]+ | (?:\w{1,4}\.)+\w{1,4}
    | mr|mrs|ms|dr|prof|st|sr|jr|inc|ltd|co|corp|vs|etc|al|cf|fig|figs|eq|eqs|sec|ref|refs|no|nos
    | vol|pp|ed|eds|approx|resp|dept|est|min|max|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec
    | abs|art|nr|rn|rz|rdnr|az|urt|beschl|bd|bl|buchst|gem|vgl|bzw|ca|ggf|sog|ziff|anm|aufl|hrsg
    | tz|kap|lit|verf|str|hs|halbs|nrn|ff|alt|evtl|inkl|insb|usw|st|mio|mrd|tel|entsch|bgbl|sen
    | mme|mlle|art|chap|env|ex|sra|srta|pág|núm|ud|uds|sig|dott
    )\.$""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of text below one heading path."""

    headings: tuple[str, ...]
    paragraphs: tuple[str, ...]  # one with line breaks is set out in lines: code, a table
    page: int = 0  # where it begins, from 1; 0 if there are none


@dataclass(frozen=True, slots=True)
class Document:
    """One document."""

    id: str  # path relative to the source, "#" and a table's row; unique
    title: str
    sections: tuple[Section, ...]
    metadata: dict[str, Any] = field(default_factory=dict)  # author, date, tags and the like

    @property
    def size(self) -> int:
        """The characters of its text."""
        return sum(len(text) for section in self.sections for text in section.paragraphs)


Parsed = tuple[str, tuple[Section, ...], dict[str, Any]]
"""Title, sections and metadata of a document."""


class SectionBuilder:
    """Collects headings and paragraphs in the order in which a parser meets them."""

    def __init__(self) -> None:
        self.page = self.quotes = 0  # of what is added: where, and how deep it is quoted
        self.notes = list[str]()  # apart from the text, which they follow
        self._open = list[tuple[int, str]]()
        # A level (0 before all headings), the headings, the paragraphs and the page of each.
        self._sections = list[tuple[int, tuple[str, ...], list[str], int]]()

    def heading(self, level: int, text: str) -> None:
        """Open a section; those of the same level or below end."""
        if text := one_line(text):
            self._open = [*(one for one in self._open if one[0] < level), (level, text)]
            names = tuple(name for _, name in self._open)
            self._sections.append((level, names, [], self.page))

    def paragraph(self, text: str) -> None:
        """Add prose: white space becomes single spaces."""
        self._add(one_line(text))

    def lines(self, text: str) -> None:
        """Add text whose line breaks and indents matter: code, a table."""
        lines = [line.rstrip() for line in clean(text).expandtabs(4).splitlines()]
        self._add("\n".join(line for line in lines if line))

    def table(self, rows: Iterable[Iterable[str]]) -> None:
        """Add the cells of a table that are filled, one line per row."""
        shown = (filter(None, map(one_line, cells)) for cells in rows)
        self.lines("\n".join(map(" | ".join, shown)))

    def block(self, text: str) -> None:
        """Add prose, or what seems to be code, a table or a list: not broken at a width."""
        lines = text.splitlines()
        indented = sum(line[:1].isspace() for line in lines)
        short = sum(len(line) < 45 for line in lines)
        if len(lines) > 1 and (indented > len(lines) / 4 or short > 0.7 * len(lines)):
            self.lines(text)
        else:
            self.paragraph(text)

    def _add(self, text: str) -> None:
        if text.strip():
            if not self._sections:
                self._sections.append((0, (), [], self.page))
            level, names, texts, page = self._sections[-1]
            if texts and page != self.page:  # the section continues
                self._sections.append((BELOW if level else 0, names, [], self.page))
            self._sections[-1][2].append(text)

    def finish(self, title: str = "", metadata: Mapping[str, Any] | None = None) -> Parsed:
        """Give the title, the sections and the metadata."""
        # A first heading, alone at the highest level before all text, is the title, unless one is
        # given; it is dropped if it repeats that.
        title, drop, sections = proper_title(title), 0, self._sections
        if sections and sections[0][0]:
            (level, (first,), text, _), *others = sections
            if all(other > level for other, *_ in others):
                given_title, heading = title.casefold(), first.casefold()
                if not given_title or given_title.startswith(heading):
                    title, drop = title if given_title == heading else first, 1
            elif not (title or text) and others[0][0] == level:
                # A title in a word processor is often a heading like all others.
                title, sections = first, others
        result = []
        for i, (_, headings, paragraphs, page) in enumerate(sections):
            # A heading without text below it is text, unless the next one is below it.
            shown = headings[drop:]
            after = sections[i + 1][1] if i + 1 < len(sections) else ()
            if paragraphs:
                result.append(Section(shown, tuple(paragraphs), page))
            elif shown and after[: len(headings)] != headings:
                result.append(Section(shown[:-1], (shown[-1],), page))
        if notes := list(dict.fromkeys(filter(None, map(one_line, self.notes)))):
            result.append(Section((), tuple(notes)))
        return title, tuple(result), described(metadata or {})


def proper_title(title: str) -> str:
    """A title, unless a program made it: "untitled", "Microsoft Word - draft3.docx"."""
    text = one_line(title)
    return "" if _MADE.match(text) else text


def described(given: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as rows keep it: plain names and short values, dates as YYYY-MM-DD, tags a list."""
    metadata = dict[str, Any]()
    for key, value in list(given.items())[:MOST]:
        name = clean(key).casefold()
        name = _SAME.get(name, name)
        several = value if isinstance(value, list | tuple) else [value]
        if name == "tags":
            several = [part for one in several if one for part in str(one).split(",")]
        plain = (_plain(one, day=name == "date") for one in several[:MOST])
        values = [one for one in plain if one not in ("", None)]
        secret = _SECRET_NAME.fullmatch(name) or any(holds_key(str(one)) for one in values)
        if name in metadata and name in _SAME.values():  # by another name
            known = metadata[name] if isinstance(metadata[name], list) else [metadata[name]]
            values = list(dict.fromkeys([*known, *values]))[:MOST]
        if values and name not in ("", *PLACES) and not secret:
            metadata[name] = values if name == "tags" or len(values) > 1 else values[0]
    return metadata


def _plain(value: Any, *, day: bool) -> Any:
    """A short text, a number that JSON keeps or a boolean; None for anything else."""
    if isinstance(value, date | time) or (isinstance(value, int) and abs(value) >= 1 << 53):
        value = str(value)
    if isinstance(value, str):
        text = one_line(value)[:LONGEST]
        return "-".join(found.groups()) if day and (found := _DAY.match(text)) else text
    return value if isinstance(value, int | float) and abs(value) < 1 << 53 else None


def spelled(pairs: Iterable[tuple[str, str]]) -> str:
    """The non-empty fields of a row or a record, with their names."""
    named = ((one_line(name), one_line(value)) for name, value in pairs)
    return "; ".join(f"{name}: {value}" if name else value for name, value in named if value)


def flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without objects in them: {"at.town": "Ulm"} for {"at": {"town": "Ulm"}}."""
    found = dict[str, Any]()
    for key, value in fields.items():
        if isinstance(value, dict):
            found |= {f"{key}.{name}": one for name, one in flat(value).items()}
        elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
            found[key] = [
                spelled((str(name), str(part)) for name, part in flat(one).items())
                if isinstance(one, dict)
                else str(one)
                for one in value
            ]
        else:
            found[key] = value
    return found


def one_line(text: str) -> str:
    """Prose without control characters, its white space single spaces, or none where it wraps."""
    return " ".join(WRAPPED.sub("", clean(text)).split())


def clean(text: str) -> str:
    """Text in Unicode's composed form, without control characters and lone surrogates."""
    if text.isascii() and text.isprintable():
        return text
    text = composed(text.replace("\u2011", "-"))  # a hyphen at which no line breaks
    return HALF.sub("", _CONTROL.sub("", text))


def holds_key(text: str, *, literal: bool = False) -> bool:
    """Whether a line holds a key."""
    assigned = _ASSIGNED if literal else _TOLD
    return _may_hold_key(text) and bool(_KEY.search(text) or assigned.search(text))


def _may_hold_key(text: str) -> bool:
    folded = text.casefold()
    named = any(hint in folded for hint in _NAME_HINTS)
    return named or any(hint in text for hint in _HINTS)


def without_keys(
    sections: Iterable[Section], *, literal: bool = False
) -> tuple[tuple[Section, ...], int]:
    """Sections without the lines (in prose, sentences) and headings that hold a key; their number.

    What is assigned to the name of a password is one; in prose it must have a digit. ``literal``:
    it is code, configuration or a table, where any literal is one.
    """
    cleaned, total, inside, hidden = [], 0, False, set[tuple[str, ...]]()
    for section in sections:
        paragraphs = []
        keyed = [holds_key(one, literal=literal) for one in section.headings]
        hidden |= {section.headings[:n] for n, key in enumerate(keyed, 1) if key}
        headings = tuple(one for one, key in zip(section.headings, keyed, strict=True) if not key)
        for text in section.paragraphs:
            if inside or _may_hold_key(text):
                text, count, inside = _clean(text, inside, literal)
                total += count
            if text:
                paragraphs.append(text)
        if paragraphs:
            cleaned.append(replace(section, headings=headings, paragraphs=tuple(paragraphs)))
    return tuple(cleaned), total + len(hidden)


def _clean(text: str, inside: bool, literal: bool) -> tuple[str, int, bool]:
    """A paragraph without what holds a key; ``inside``: a private key continues."""
    mark = "\n" if "\n" in text else " "
    lines, count = [], 0
    for line in text.split("\n") if mark == "\n" else re.split(r"(?<=[.!?]) ", text):
        if inside and (_KEY_END in line or _OF_KEY.search(line)):
            inside = _KEY_END not in line
            continue
        inside = False
        fields = line.split("; ") if literal else [line]  # of a row or a record
        kept = [one for one in fields if not holds_key(one, literal=literal)]
        lines += ["; ".join(kept)] * bool(kept)
        count += len(kept) < len(fields)
        inside = "PRIVATE KEY" in line and _KEY_END not in line
    return mark.join(lines).strip("\n"), count, inside


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph with the white space that follows each: joined, the text."""
    pieces, start = [], 0
    for match in _END.finditer(text):
        end = match.end()
        # " . " ends a sentence in text with spaces around its marks, in either case.
        apart = text[match.start() - 1 : match.start()].isspace()
        if match["spaced"] and not apart:
            # A sentence continues in lower case, or after an abbreviation.
            dot = match.start() + 1
            before = text[max(start, dot - 12) : dot]
            if text[end].islower() or (text[dot].isspace() and _ABBREVIATED.search(before)):
                continue
        if start < end < len(text):
            pieces.append(text[start:end])
            start = end
    pieces.append(text[start:])
    return pieces
