"""Languages of mark-up to sections: Markdown, Org, AsciiDoc, TeX, reStructuredText, RTF."""

import json
import re
import tomllib
from functools import cache
from html import unescape
from itertools import islice
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import yaml

from contrasent.documents.archives import Reason, Report, Skip
from contrasent.documents.html import INLINE
from contrasent.documents.sections import Parsed, SectionBuilder, flat, spelled
from contrasent.text.roles import words_in

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

PROSE = 5  # words from which a value of front matter is text
FACTS = 200  # values of front matter
FENCE = "~" * 20  # of code in Markdown, longer than any that the code holds

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FRONT = re.compile(r"\A(---|\+\+\+)[ \t]*\n(.*?\n)?(?:\1|\.\.\.)[ \t]*\n", re.DOTALL)
_ENTRY = re.compile(r"([A-Za-z][\w .-]{0,40}):(?:[ \t]+(.*))?$")
_NO_TEXT = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.I)
_BREAKS = {"softbreak": "\n", "hardbreak": "\n"}
_TAG = re.compile(r"</?([a-zA-Z]+)[^<>]*>|<[!?][^<>]*>")


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def read_markdown(text: str) -> Parsed:
    """Title, sections and metadata of a file; the prose of its front matter is text too."""
    builder, title, metadata = SectionBuilder(), "", dict[str, Any]()
    if front := _FRONT.match(text):
        fields = _front_matter(front[2] or "", toml=front[1] == "+++")
        if fields is not None:
            title, text = str(fields.pop("title", None) or ""), text[front.end() :]
            for key, value in islice(flat(fields).items(), FACTS):
                if value == fields.get(key):
                    metadata[key] = value
                    if isinstance(value, str) and words_in([value]) >= PROSE:
                        builder.paragraph(value)
                else:  # it is from within another
                    told = ", ".join(map(str, value)) if isinstance(value, list) else value
                    builder.paragraph(spelled([(key, str(told))]))
    _add_markdown(builder, text)
    return builder.finish(title, metadata)


def _front_matter(text: str, *, toml: bool) -> dict[str, Any] | None:
    """The values of TOML or YAML by their names; None if it is neither."""
    try:
        fields = tomllib.loads(text) if toml else yaml.load(text, _YAML)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, RecursionError, ValueError):
        # "title: Part 2: the end" is not YAML, but is written often.
        fields, name = dict[str, Any](), ""
        for line in text.splitlines():
            if found := _ENTRY.fullmatch(line):
                name = found[1].casefold()
                fields[name] = (found[2] or "").strip("\"' ")
            elif name:
                fields[name] = f"{fields[name]} {line.strip()}".strip()
        return fields or None
    if not isinstance(fields, dict):
        return None if fields else {}  # text between two rules
    return {str(key).casefold(): value for key, value in fields.items()}


def _add_markdown(builder: SectionBuilder, text: str) -> None:
    """Add the blocks of a piece of Markdown."""
    level, rows, about = 0, list[list[str]](), dict[str, Any]()
    for token in _parser().parse(text, about):
        match token.type:
            case "heading_open":
                level = int(token.tag[1])
            case "tr_open":
                rows.append([])
            case "table_close":
                builder.table(rows)
                rows = []
            case "fence" | "code_block":
                builder.lines(token.content)
            case "html_block":
                builder.lines(without_tags(token.content))
            case "inline" if level:
                builder.heading(level, _plain(token))
                level = 0
            case "inline" if rows:
                rows[-1].append(_plain(token))
            case "inline":
                builder.paragraph(_plain(token))
            case _:
                pass
    for label, found in about.get("references", {}).items():
        if label.startswith("^"):  # a footnote that reads like the target of a link
            builder.notes.append("\n".join(text.split("\n")[slice(*found["map"])]))


def without_tags(html: str) -> str:
    """The text of HTML, roughly; only tags within a line do not part words."""
    text = _NO_TEXT.sub(" ", html)
    return unescape(_TAG.sub(lambda tag: " " * ((tag[1] or "").lower() not in INLINE), text))


def _plain(token: "Token") -> str:
    """Inline Markdown without its mark-up: links by their text, code and emphasis bare."""
    texts = ((one.type, _BREAKS.get(one.type, one.content)) for one in token.children or ())
    return "".join(without_tags(text) if kind == "html_inline" else text for kind, text in texts)


def read_notebook(text: str) -> Parsed:
    """Title and sections of a Jupyter notebook: its prose and code, not what the code printed."""
    builder = SectionBuilder()
    for cell in json.loads(text)["cells"]:
        source = cell.get("source", "")
        source = source if isinstance(source, str) else "".join(source)
        if cell.get("cell_type") == "markdown":
            _add_markdown(builder, source)
        else:
            builder.lines(source)
    return builder.finish()


def read_marked(mark: str, fence: str, text: str) -> Parsed:
    """Org mode ("*") and AsciiDoc ("=") as Markdown, by the marks of headings, code and tables."""
    lines, end, blocks = [""], "", set[str]()  # the end of code, and of what else is open
    for line in map(str.rstrip, text.split("\n")):
        above, marks = lines[-1], len(line) - len(line.lstrip(mark))
        # A line under a heading.
        titled = mark == "=" and above[:1].isalnum() and abs(len(above) - len(line)) < 2
        if end:
            line, end = (FENCE, "") if re.fullmatch(end, line, re.IGNORECASE) else (line, end)
        elif 0 < marks < 7 and line[marks : marks + 1] == " ":
            line = "#" * marks + line[marks:]
        elif re.fullmatch(fence, line, re.IGNORECASE) and not titled:
            line, end = FENCE, r"#\+end_.*" if mark == "*" else re.escape(line)
        elif re.fullmatch(r"[=*_+-]{4,}|--", line) and (line in blocks or not titled):
            blocks ^= {line}
            line = ""
        elif line.startswith("|-"):
            line = line.replace("+", "|")
        lines.append(line)
    return read_markdown("\n".join(lines[1:]))  # the first is what is above all


# ---------------------------------------------------------------------- TeX

_TEX_INLINE = re.compile(r"\\(?:emph|text\w{2}|underline|mbox|url|texttt|textsc)\{([^{}]{0,500})\}")
_ARGUMENT = r"(?:\[[^\]\n]{0,200}\])?\{((?:[^{}]|\{[^{}]{0,300}\}){0,500})\}"
_PART = re.compile(rf"\\(part|chapter|(?:sub){{0,2}}section|paragraph)\*?{_ARGUMENT}")
_PARTS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_TEX_ABOUT = re.compile(rf"\\(title|author|date){_ARGUMENT}")
_LISTING = re.compile(
    r"\\(begin|end)\{(?:verbatim|lstlisting|minted)\}(?:\[[^\]\n]{0,300}\])?(?:\{\w{1,30}\})?"
)
_ACCENTED = "'`^\"~=.cvuHr"
_ACCENTS = "\u0301\u0300\u0302\u0308\u0303\u0304\u0307\u0327\u030c\u0306\u030b\u030a"  # of each
_ACCENT = re.compile(r"\\([\"'`^~=.]|[cvuHr](?=[ {]))\s*\{?\s*\\?([A-Za-z])\}?")
_LETTERS = {"ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å", "AA": "Å", "o": "ø",
            "O": "Ø", "l": "ł", "L": "Ł", "i": "ı"}  # fmt: skip
_LETTER = re.compile(rf"\\({'|'.join(_LETTERS)})(?![A-Za-z])(?:\{{\}}| )?")
_TEX = [
    (re.compile(r"(?<!\\)%[^\n]*"), ""),
    (re.compile(r"\\(?:label|ref|eqref|cite\w?|includegraphics|usepackage|bibliography\w{0,5}"
                r"|documentclass)(?:\[[^\]\n]{0,200}\])?\{[^{}]{0,500}\}"), ""),
    (re.compile(r"\\(?:begin|end)\{[^{}]{0,50}\}(?:\[[^\]\n]{0,100}\])?|\\item\b|\\par\b"), "\n\n"),
    (re.compile(r"\\\\(?:\[[^\]\n]{0,20}\])?"), " "),
    (re.compile(r"\\([%&_#$])"), r"\1"),
    (re.compile(r"\\(?:footnote|thanks)\b|\}\{"), " "),
    (re.compile(r"\\[a-zA-Z]+\*?|[{}]"), ""),
    (re.compile(r"~"), " "),
    (re.compile(r" (?=[.,;:)])"), ""),
]  # fmt: skip


def read_tex(text: str) -> Parsed:
    """Title, author, parts, prose and code of TeX."""
    text = _ACCENT.sub(lambda found: found[2] + _ACCENTS[_ACCENTED.index(found[1])], text)
    text = _LETTER.sub(lambda found: _LETTERS[found[1]], text)
    for _ in range(2):  # for nested ones
        text = _TEX_INLINE.sub(r"\1", text)
    about = {name: without_tex(value) for name, value in _TEX_ABOUT.findall(text)}
    _, begins, body = text.partition("\\begin{document}")
    builder, pieces = SectionBuilder(), _LISTING.split(_TEX_ABOUT.sub("", body if begins else text))
    for kind, piece in zip(["end", *pieces[1::2]], pieces[::2], strict=True):
        if kind == "begin":
            builder.lines(piece)
        else:
            _add_tex(builder, piece)
    return builder.finish(about.pop("title", ""), about)


def _add_tex(builder: SectionBuilder, text: str) -> None:
    """Add the parts and the prose of a piece of TeX."""
    start = 0
    for part in [*_PART.finditer(text), None]:
        end = len(text) if part is None else part.start()
        for block in re.split(r"\n[ \t]*\n", without_tex(text[start:end])):
            builder.paragraph(block)
        if part is not None:
            builder.heading(_PARTS.index(part[1]) + 1, without_tex(part[2]))
            start = part.end()


def without_tex(text: str) -> str:
    """TeX without comments, references, environments and the names of commands."""
    for pattern, replacement in _TEX:
        text = pattern.sub(replacement, text)
    return text


# ---------------------------------------------------------------------- reStructuredText

_RULE = re.compile(r"([=~^\"'`#*+.:_-])\1{2,}")
_GRID = re.compile(r"\s*(?:=+(?: +=+)+|\+[-=+]+\+|-+(?: +-+)+)")
_EXPLICIT = re.compile(
    r" *\.\.(?: +(?:\|[^|]+\| +)?(?P<name>[\w:.-]+)::| +(?P<note>\[[^\]]+\])(?= ))?"
    r"(?:$| +)(?P<text>.*)"
)
_OPTION = re.compile(r"\s+:([\w-]+):(?:\s+(.*))?$")
_BULLET = re.compile(r"^ *[*+-] +", re.MULTILINE)
_UNSEEN = {  # without text of their own
    "toctree", "contents", "include", "raw", "index", "highlight", "default-role", "meta", "role",
    "currentmodule", "automodule", "autoclass", "autofunction", "unicode", "sectnum", "module",
}  # fmt: skip
_LITERAL = {"code-block", "code", "sourcecode", "math", "parsed-literal"}
# What follows names a file, a language or a class.
_NAMING = {*_LITERAL, "image", "figure", "literalinclude", "container", "class", "only"}
_RST_INLINE = re.compile(
    r"``(.+?)``|:[a-zA-Z][\w:+-]{0,30}:`(?:~(?:[\w.]*\.)?|[!.])?([^`<]{1,200}?)\s*(?:<[^`]{0,200})?`"
    r"|(?<![\w`])`([^`<]+?)(?:\s*<[^>`]*>)?`_{0,2}"
    r"|(?<![\w*])\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])|\[(?:#?\w*|\*)\]_|\\([^\w\s])",
    re.DOTALL,
)


def read_rst(text: str) -> Parsed:
    """Title and sections of a file, by the marks under and over its headings."""
    builder, marks, at = SectionBuilder(), list[str](), 0
    lines = [*map(str.rstrip, text.expandtabs(4).split("\n")), "", ""]
    while at < len(lines) - 2:
        line, below, third = lines[at : at + 3]
        over = _RULE.fullmatch(line) and third == line and below
        under = _RULE.fullmatch(below) and len(below) >= len(line) > 0
        if over or (under and not line[0].isspace()):
            mark = line[0] * 2 if over else below[0]
            marks += [mark] * (mark not in marks)
            builder.heading(marks.index(mark) + 1, without_rst(below if over else line))
            at += 3 if over else 2
        elif found := _EXPLICIT.fullmatch(line):
            end = _end(lines, at)
            lines[at:end] = _explicit(builder, found, lines[at + 1 : end])
        elif not line or _RULE.fullmatch(line):
            at += 1
        else:
            start, at = at, lines.index("", at)
            if _add(builder, lines[start:at]):
                start, at = at, _end(lines, at - 1)
                builder.lines(dedent("\n".join(lines[start:at])))
    return builder.finish()


def _end(lines: list[str], start: int) -> int:
    """Where the lines end that are indented deeper than one."""
    margin, at = len(lines[start]) - len(lines[start].lstrip()), start + 1
    while at < len(lines) and not lines[at][: margin + 1].strip():
        at += 1
    while at > start + 1 and not lines[at - 1]:
        at -= 1
    return at


def _add(builder: SectionBuilder, block: list[str]) -> bool:
    """Add a paragraph, a list or a table; True if what follows is literal."""
    rows = [re.sub(r"^\s*\| ?|\s*\|$", "", one) for one in block if not _GRID.fullmatch(one)]
    text = without_rst("\n".join(rows))
    shown = text.removesuffix("::").rstrip()
    if len(rows) < len(block):
        builder.lines(shown)
    elif _BULLET.match(text):
        for item in _BULLET.split(shown):
            builder.paragraph(item)
    else:
        builder.block(shown)
    return text.endswith("::")


def _explicit(builder: SectionBuilder, found: re.Match[str], inner: list[str]) -> list[str]:
    """The lines that a directive or a note stands for; none of a comment or a target."""
    name = found["name"]
    if name in _UNSEEN or not (name or found["note"]):
        return []
    options = [option for one in inner if (option := _OPTION.match(one))]
    told = [one[2] or "" for one in options if one[1] in ("alt", "caption", "header")]
    body = dedent("\n".join(one for one in inner if not _OPTION.match(one)))
    if name in _LITERAL:
        builder.lines(body)
        body = ""
    text = "" if name in _NAMING else found["text"]
    return "\n".join([*(f"{one}\n" for one in told), text, body, ""]).split("\n")


def without_rst(text: str) -> str:
    """Text of reStructuredText without inline mark-up; what is literal stays as it is."""
    return _RST_INLINE.sub(lambda found: found[found.lastindex] if found.lastindex else "", text)


# ---------------------------------------------------------------------- Rich Text Format

MARK, HEADING = "\x1e", "\x1d"  # between groups that are read together; before a heading's level
_BRACE = re.compile(r"\\[\\{}]|([{}])")
_APART = re.compile(
    r"(?<!\\)\{(?:\\\*)?\s*\\"
    r"(footnote|annotation|shptxt|(?:header|footer)[lrf]?|title|author|keywords|subject)(?![a-z])"
)
_RTF_ABOUT = {"title": "title", "author": "author", "keywords": "tags", "subject": "subject"}
_STYLE = re.compile(
    r"\{[^{}]*\\s(\d+)[^{}]*?(?:heading|überschrift|titre|título) (\d)", re.IGNORECASE
)
_STYLED = re.compile(r"\\s(\d+)(?![\da-z]) ?")
_PICTURE = re.compile(r"(?:[0-9a-fA-F]{32,}\s*){4,}")
_CELL = re.compile(r"\\(?:nest)?cell(?![a-z]) ?")


def read_rtf(data: bytes, skip: Report) -> Parsed:
    """Title, sections and metadata of a file; headers, footers and notes follow its text."""
    if not data.lstrip()[:5].startswith(b"{\\rtf"):
        raise Skip(Reason.BROKEN)
    try:
        from striprtf.striprtf import rtf_to_text
    except ImportError:
        raise Skip(Reason.NEEDS_DOCUMENTS) from None
    groups, raw = list[tuple[str, str]](), _PICTURE.sub("", data.decode("cp1252", "replace"))
    raw = _CELL.sub(" | ", raw)
    levels = {style: f"{HEADING}{level}" for style, level in _STYLE.findall(raw)}
    raw = _STYLED.sub(lambda found: found[0] + levels.get(found[1], ""), raw)
    body = _without_groups(raw, groups)
    for at, (name, inner) in enumerate(groups):  # which may hold others
        groups[at] = name, _without_groups(inner, groups)
    parts = [body.rstrip().removesuffix("}"), *(inner for _, inner in groups), "}"]
    text: str = rtf_to_text(MARK.join(parts), errors="replace")  # type: ignore[no-untyped-call]
    shown, *others = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").split(MARK)
    builder, about = SectionBuilder(), dict[str, str]()
    for (name, _), other in zip(groups, others, strict=False):
        if name in _RTF_ABOUT:
            about[_RTF_ABOUT[name]] = other
        else:
            builder.notes.append(other)
    for row in shown.split("\n"):
        before, mark, after = row.partition(HEADING)
        if mark:
            builder.heading(int(after[0]), before + after[1:])
        else:
            builder.paragraph(row.strip().removesuffix("|"))
    return builder.finish(about.pop("title", ""), about)


def _without_groups(text: str, groups: list[tuple[str, str]]) -> str:
    """The text without groups to read apart, which are added to ``groups`` by name."""
    kept, at = list[str](), 0
    for begin in _APART.finditer(text):
        if begin.start() >= at:
            kept.append(text[at : begin.start()])
            depth, at = 0, len(text)
            for brace in _BRACE.finditer(text, begin.start()):
                depth += {"{": 1, "}": -1}.get(brace[1], 0)
                if not depth:
                    at = brace.end()
                    break
            groups.append((begin[1], "{" + text[begin.end() : at]))
    return "".join([*kept, text[at:]])
