"""One file's bytes to its title and sections, by its suffix; run by the reading process."""

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import parseaddr
from functools import partial
from importlib.util import find_spec
from io import BufferedReader, BytesIO, RawIOBase, TextIOWrapper
from itertools import chain
from pathlib import PurePosixPath
from typing import IO, Any

from contrasent.documents.archives import Entry, Reason, Skip, reason_to_skip
from contrasent.documents.encodings import FOREIGN, SAMPLE, Encoding, decode, encoding_of
from contrasent.documents.html import read_html
from contrasent.documents.mail import Mail, day_of, messages, own_text, parse_mail
from contrasent.documents.office import extracted, read_epub, read_slides, read_word
from contrasent.documents.pdf import read_pdf
from contrasent.documents.sections import (
    Document,
    Parsed,
    Section,
    described,
    one_line,
    spelled,
    without_keys,
)
from contrasent.documents.sheets import SHEETS, form_of, read_book
from contrasent.documents.table import read_rows, read_table
from contrasent.documents.text_formats import (
    CODE,
    SETTINGS,
    TEXT,
    WIDEST,
    read_blocks,
    read_json,
    read_text,
)
from contrasent.text.sources import LONGEST, Source

Part = tuple[list[Document], dict[str, Any]]  # documents, and facts of the file for the report


HTML = (".html", ".htm", ".xhtml")
CONVERTED = (".pdf", ".docx", ".pptx", ".odt", ".rtf", ".epub", *HTML, ".msg")
MAILS = (".eml", ".mbox")
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
# Also as gzip, in a zip, attached to a mail.
FORMATS = (
    *(suffix for suffix in TEXT if suffix not in ("", ".json")),
    *CONVERTED,
    *SHEETS,
    *MAILS,
    *TABLES,
)
LITERAL = frozenset((*CODE, *SETTINGS, ".json", ".py", ".pyi", ".ipynb", ".xml"))
"""Suffixes of files in which what is assigned to the name of a password is one."""

LARGEST = 200_000_000  # bytes of a file that is one document; a larger one is a dump
TEXT_LIMIT = 5_000_000  # characters of a file that is one document (--max-file-text)
REPEATED, DENSE = 100_000, 50  # characters from which a text may not compress this much
ROW = 10  # fewest characters that a row of a table counts for
AT_ONCE = 200  # rows of a table that are handed over together
DEEPEST = 3  # nested mails
MUCH = 1_000_000  # characters of rows that are handed over, however few they are

_PROSE = re.compile(  # in names of files that are read whatever their suffix
    r"(?<![a-z])(?:readme|licen[cs]e|copying|notice|news|change(?:s|log)|authors|todo|faq)(?![a-z])",
    re.IGNORECASE,
)


def documents(
    entry: Entry, columns: Sequence[str] | None, most: int, encoding: str = ""
) -> Iterator[Part]:
    """The documents of a file, some at a time.

    ``most``: characters of one; ``encoding``: that of text that is not UTF-8 and declares none.
    """
    if entry.size == 0:
        raise Skip(Reason.EMPTY)
    reading, facts = _Reading(columns, most, encoding), dict[str, Any]()
    if entry.suffix in SEVERAL and not (entry.suffix == ".json" and _is_object(entry)):
        yield from SEVERAL[entry.suffix](entry, reading)
    else:
        read = _converted if entry.suffix in CONVERTED else _text
        parsed = read(entry, facts, reading)
        yield _whole(entry.name, parsed, facts, most, code=entry.suffix in LITERAL)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How files are read."""

    columns: Sequence[str] | None
    most: int
    encoding: str


def _whole(
    name: str, parsed: Parsed, facts: dict[str, Any], most: int, *, code: bool = False
) -> Part:
    """The document of a file that has one."""
    title, sections, metadata = parsed
    if not sections:
        raise Skip(Reason.EMPTY)
    _check("\n".join(text for section in sections for text in section.paragraphs), most)
    sections, facts["keys"] = without_keys(sections, literal=code)
    if not sections:
        raise Skip(Reason.SECRET)
    if size_of(sections) > most:
        raise Skip(Reason.TOO_MUCH_TEXT)
    return [Document(name, title, sections, metadata)], facts


def size_of(sections: Sequence[Section]) -> int:
    """The characters of their text."""
    return sum(len(text) for section in sections for text in section.paragraphs)


def _check(text: str, most: int) -> str:
    """The text, unless it is too long to parse, or repetitive."""
    _Repetition().add(text)
    if len(text) > 4 * most:  # parsing takes out mark-up, but not so much
        raise Skip(Reason.TOO_MUCH_TEXT)
    return text


class _Repetition:
    """Stops what says little more than one thing."""

    def __init__(self) -> None:
        self._texts, self._size = list[str](), 0  # since the last check

    def add(self, *texts: str) -> None:
        """Add texts of one kind, which count for ``ROW`` characters at least."""
        self._texts += texts
        self._size += max(sum(map(len, texts)), ROW)
        if self._size > REPEATED:
            text = "\n".join(self._texts)
            if len(zlib.compress(text.encode("utf-8", "replace"), 1)) * DENSE < len(text):
                raise Skip(Reason.REPETITION)
            self._texts, self._size = [], 0


def _content(entry: Entry) -> bytes:
    data = b""
    if entry.size <= LARGEST:
        with entry.open() as stream:
            data = stream.read(LARGEST + 1)
    if max(entry.size, len(data)) > LARGEST:
        raise Skip(Reason.TOO_LARGE)
    return data


def _decoded(entry: Entry, facts: dict[str, Any], reading: _Reading) -> str:
    text, encoding = decode(_content(entry), reading.encoding)
    facts |= {"encoding": encoding.shown, "guessed": encoding.guessed}
    return _check(text, reading.most)


def _text(entry: Entry, facts: dict[str, Any], reading: _Reading) -> Parsed:
    if (parse := TEXT.get(entry.suffix)) is None:
        _sniff(entry, reading)
        if not _PROSE.search(entry.name.rpartition("/")[2]):
            raise Skip(Reason.UNKNOWN)
        parse = read_text
    text = _decoded(entry, facts, reading)
    title, sections, metadata = parse(text)
    if parse is read_blocks and any(len(line) > WIDEST for line in text.splitlines()):
        if not sections:
            raise Skip(Reason.WIDE)
        facts["passed"] = [(Reason.WIDE, entry.name)]
    if not title and parse in (read_blocks, read_json):
        title = entry.name.rpartition("/")[2]
    return title, sections, metadata


def _converted(entry: Entry, facts: dict[str, Any], reading: _Reading) -> Parsed:
    """Title, sections and metadata of what is no plain text."""
    passed = list[Any]()
    if entry.suffix in HTML:
        parsed, menus = read_html(_decoded(entry, facts, reading))
        passed = [(Reason.MENUS, entry.name)] * menus
    elif entry.suffix == ".epub":
        parsed = read_epub(_content(entry))
    elif entry.suffix == ".pptx":
        parsed, passed = read_slides(_content(entry), entry.name)
    else:
        parsed, passed = read_word(_content(entry), entry.suffix, entry.name)
    facts["passed"] = passed
    return parsed


def _pdf(entry: Entry, reading: _Reading) -> Iterator[Part]:
    for found in read_pdf(_content(entry), entry.name, reading.most):
        if found is None:
            yield [], {}
            continue
        parsed, passed, attached = found
        if parsed[1] or not attached:
            yield _whole(entry.name, parsed, {"passed": passed}, reading.most)
        yield from _attached(entry, entry.name, attached.items(), reading)


def _table(entry: Entry, reading: _Reading) -> Iterator[Part]:
    facts: dict[str, Any] = {}
    facts["columns"], rows = read_table(_source(entry, facts, reading), reading.columns)
    if not facts["columns"]:
        raise Skip(Reason.NO_COLUMN)
    yield from _in_parts(rows, facts, reading.most)


def _sheets(entry: Entry, reading: _Reading) -> Iterator[Part]:
    """The rows of a workbook; a sheet without a header row is one document."""
    sheets, told, passed = read_book(_content(entry), entry.name)
    facts: dict[str, Any] = {"passed": passed}
    lacking, about, parts = list[Skip](), described(told), list[Iterable[Document]]()
    for sheet in sheets:
        shown = f"{entry.name}#{sheet.name}"
        if sheet.notes:
            notes = Section((sheet.name,), tuple(map(one_line, sheet.notes)))
            parts.append([Document(f"{shown}#notes", sheet.name, (notes,))])
        try:
            if reading.columns is None and (form := form_of(sheet.rows)):
                parts.append([Document(shown, sheet.name, (Section((), (form,)),))])
                continue
            chosen, documents = read_rows(sheet.rows, shown, sheet.name, reading.columns)
        except Skip as skip:
            lacking.append(skip)
            continue
        parts.append(documents)
        if chosen:
            facts["columns"] = f"{facts['columns']}; {chosen}" if "columns" in facts else chosen
    if lacking and not parts:
        raise lacking[0]
    rows = (replace(row, metadata=about | row.metadata) for part in parts for row in part)
    if not parts and passed:
        raise Skip(passed[0][0])
    yield from _in_parts(rows, facts, reading.most)


def _in_parts(found: Iterable[Document], facts: dict[str, Any], most: int) -> Iterator[Part]:
    """The documents of a table, some at a time, unless they are repetitive."""
    none = {"keys": 0, "skipped": 0}
    facts, batch, much, repetition = facts | none, list[Document](), 0, _Repetition()
    rows = iter(found)
    if (first := next(rows, None)) is None:
        raise Skip(Reason.EMPTY)
    for document in chain([first], rows):
        sections, keys = without_keys(document.sections, literal=True)
        facts["keys"] += keys
        if not sections or (size := size_of(sections)) > most:
            facts["skipped"] += 1
            continue
        batch.append(replace(document, sections=sections))
        much += size
        repetition.add(*(text for section in sections for text in section.paragraphs))
        if len(batch) == AT_ONCE or much > MUCH:
            yield batch, facts
            facts, batch, much = dict(none), [], 0
    yield batch, facts


def _is_object(entry: Entry) -> bool:
    """True if a JSON file holds one object, not rows: a list of them, or one a line."""
    with entry.open() as stream:
        start = stream.read(SAMPLE)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        start = start.replace(b"\0", b"")[2:]
    first, _, rest = start.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    more = False
    with suppress(ValueError):
        json.loads(first)
        more = bool(rest.strip())  # lines of JSON
    return first[:1] == b"{" and not more


@dataclass(frozen=True, slots=True)
class _Attached(Entry):
    """A file within a mail."""

    data: bytes = b""
    depth: int = 1

    def open(self) -> IO[bytes]:
        return BytesIO(self.data)


def _mails(entry: Entry, reading: _Reading) -> Iterator[Part]:
    """The mails of a file and what is attached to them."""
    if entry.suffix == ".eml":
        yield from _mail(entry, entry.name, parse_mail(_content(entry)), reading)
        return
    repetition = _Repetition()
    with entry.open() as stream:
        for number, data in enumerate(messages(stream), 1):
            name = f"{entry.name}#{number}"
            if data is None:
                yield [], {"passed": [(Reason.TOO_LARGE, name)]}
                continue
            try:
                mail = parse_mail(data)
            except MemoryError:
                raise
            except Exception:  # the others of the file are read
                yield [], {"passed": [(Reason.BROKEN, name)]}
                continue
            repetition.add(f"{mail.metadata} {mail.text}")
            yield from _mail(entry, name, mail, reading)


def _mail(entry: Entry, name: str, mail: Mail, reading: _Reading) -> Iterator[Part]:
    """A mail without what it quotes, and the documents that are attached to it."""
    subject = mail.metadata.get("subject", "")
    try:
        sections = read_text(own_text(_check(mail.text, reading.most), subject))[1]
        if not sections and subject:  # it says what is attached
            sections = (Section((), (subject,)),)
        sender, address = parseaddr(mail.metadata.get("from", ""))
        head = ", ".join(filter(None, (sender or address, mail.metadata.get("date"))))
        below = (replace(one, headings=(*[head] * bool(head), *one.headings)) for one in sections)
        parsed = subject, tuple(below), described(mail.metadata)
        yield _whole(name, parsed, {}, reading.most)
    except Skip as skip:
        yield [], {"passed": [(skip.args[0], name)]}
    yield from _attached(entry, name, mail.attachments, reading)


def _attached(
    entry: Entry, name: str, attachments: Iterable[tuple[str, bytes]], reading: _Reading
) -> Iterator[Part]:
    """The documents that are attached to one."""
    depth = entry.depth + 1 if isinstance(entry, _Attached) else 1
    for title, data in attachments:
        inner = f"{name}#{one_line(title).replace('/', '_')}"
        suffix = PurePosixPath(title).suffix.lower()
        reason = reason_to_skip(title)
        if suffix in (".gz", ".zip") or depth > DEEPEST:
            reason = reason or Reason.NESTED
        try:
            if reason is not None:
                raise Skip(reason)
            attached = _Attached(inner, suffix, len(data), "", 0, data=data, depth=depth)
            yield from documents(attached, reading.columns, reading.most, reading.encoding)
        except Skip as skip:
            yield [], {"passed": [(skip.args[0], inner)]}
        except MemoryError:
            raise
        except Exception:  # whatever a parser raises for a broken file
            yield [], {"passed": [(Reason.BROKEN, inner)]}


def _outlook(entry: Entry, reading: _Reading) -> Iterator[Part]:
    """A mail of Outlook and its attachments, by xberg."""
    result = extracted(_content(entry), ".msg")
    about, text = result.metadata, str(result.content).partition("\n\n")[2]
    mail = getattr(about.format, "email", None)
    if mail is not None and mail.attachments:  # which are listed, and then read, at the end
        text = text.rpartition("\n\nAttachments:\n\n")[0] or text
    name = f"{mail.from_name or ''} <{mail.from_email or ''}>" if mail else ""
    headers = {
        "from": name.strip().removesuffix("<>").strip(),
        "to": ", ".join(mail.to_emails) if mail else "",
        "date": day_of(about.created_at),
        "subject": about.subject or "",
    }
    metadata = {key: value.replace('"', "") for key, value in headers.items() if value}
    yield from _mail(entry, entry.name, Mail(metadata, text.replace("\r\n", "\n"), []), reading)
    for child in result.children or ():
        inner = f"{entry.name}#{one_line(str(child.path))}"
        parsed = read_text(_check(str(child.result.content), reading.most))
        yield (
            _whole(inner, parsed, {}, reading.most)
            if parsed[1]
            else ([], {"passed": [(Reason.EMPTY, inner)]})
        )


def _source(entry: Entry, facts: dict[str, Any], reading: _Reading) -> Source:
    if entry.suffix == ".parquet":
        if find_spec("pyarrow") is None:
            raise Skip(Reason.NEEDS_PARQUET)
        return Source(entry.open, ".parquet", entry.name)
    if entry.suffix == ".json":
        text, encoding = decode(_content(entry), reading.encoding)
        try:
            values = json.loads(text)
        except ValueError:  # rows of JSON, one a line
            values = text.rstrip().split("\n")
        else:
            if not isinstance(values, list):
                raise Skip(Reason.NO_LIST)
            values = list(map(json.dumps, values))
        rows: Callable[[], Iterator[str]] = partial(iter, values)
    else:
        encoding = _sniff(entry, reading)
        rows = partial(_lines, entry, encoding.name)
    facts |= {"encoding": encoding.shown, "guessed": encoding.guessed}
    form = entry.suffix if entry.suffix in (".csv", ".tsv") else ".jsonl"

    def opened() -> BufferedReader:
        return BufferedReader(_Utf8(map(_flat_line, rows()) if form == ".jsonl" else rows()))

    return Source(opened, form, entry.name, encoding="utf-8")


def _lines(entry: Entry, encoding: str) -> Iterator[str]:
    with entry.open() as raw, TextIOWrapper(raw, encoding, errors=FOREIGN) as stream:
        while line := stream.readline(LONGEST):
            yield line.rstrip("\r\n")


class _Utf8(RawIOBase):
    """Lines as a stream of bytes."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines, self._rest = lines, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest and (line := next(self._lines, None)) is not None:
            self._rest = f"{line}\n".encode("utf-8", "replace")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _flat_line(line: str) -> str:
    """A line of JSON whose object holds none: {"at.town": "Ulm"} for {"at": {"town": "Ulm"}}."""
    if line.count("{") > 1:
        with suppress(ValueError, RecursionError):  # reported where rows are read
            return json.dumps(_flat(json.loads(line)), ensure_ascii=False)
    return line


def _flat(value: Any) -> Any:
    """An object whose inner objects' values have the names that lead there."""
    if not isinstance(value, dict):
        return value
    flat = dict[str, Any]()
    for key, inner in value.items():
        several = isinstance(inner, list) and any(isinstance(one, dict) for one in inner)
        if isinstance(inner, dict):
            flat |= {f"{key}.{name}": one for name, one in _flat(inner).items()}
        elif several:
            parts = (_flat(one) for one in inner)
            flat[key] = [
                spelled((name, str(one)) for name, one in part.items())
                if isinstance(part, dict)
                else str(part)
                for part in parts
            ]
        else:
            flat[key] = inner
    return flat


def _sniff(entry: Entry, reading: _Reading) -> Encoding:
    """The encoding of a text, by as much of it as tells."""
    with entry.open() as stream:
        return encoding_of(iter(partial(stream.read, 1 << 20), b""), reading.encoding)


SEVERAL: dict[str, Callable[[Entry, _Reading], Iterator[Part]]] = {
    ".msg": _outlook,
    ".pdf": _pdf,
    **dict.fromkeys(MAILS, _mails),
    **dict.fromkeys(SHEETS, _sheets),
    **dict.fromkeys(TABLES, _table),
}
"""How files are read that may hold several documents."""
