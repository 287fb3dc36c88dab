"""One file to its documents, as the row of its suffix in ``READERS`` says."""

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import parseaddr
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from itertools import chain
from pathlib import PurePosixPath
from typing import IO, Any

from contrasent.documents import markup, office, text_formats
from contrasent.documents.archives import Entry, Reason, Report, Skip, reason_to_skip
from contrasent.documents.encodings import FOREIGN, Encoding, decode, encoding_of
from contrasent.documents.html import read_html
from contrasent.documents.mail import Mail, day_of, messages, own_text, parse_mail
from contrasent.documents.pdf import read_pdf
from contrasent.documents.sections import (
    Document,
    Parsed,
    Section,
    clean,
    described,
    holds_key,
    one_line,
    without_keys,
)
from contrasent.documents.tables import form_of, read_book, read_rows, read_table
from contrasent.documents.text_formats import CODE, SETTINGS, WIDEST, read_blocks, read_text
from contrasent.text.sources import SHEETS, Source

LITERAL = frozenset((*CODE, *SETTINGS, ".json", ".py", ".pyi", ".ipynb", ".xml"))
"""Suffixes of files in which what is assigned to the name of a password is one."""

LARGEST = 200_000_000  # bytes of a file that is one document; a larger one is a dump
TEXT_LIMIT = 5_000_000  # characters of a file that is one document (--max-file-text)
REPEATED, DENSE = 100_000, 50  # characters from which a text may not compress this much
ROW = 10  # fewest characters that a row of a table counts for
DEEPEST = 3  # nested mails

_PROSE = re.compile(  # in names of files that are read with any suffix
    r"(?<![a-z])(?:readme|licen[cs]e|copying|notice|news|change(?:s|log)|authors|todo|faq)(?![a-z])",
    re.IGNORECASE,
)

Tell = Callable[..., None]
"""Takes what a reader reports: "skip", "encoding", "columns" or "keys", with its values, or that it
is "alive", and what it found so far is handed over."""


@dataclass(slots=True)
class File:
    """A file that is being read, and how."""

    entry: Entry
    columns: Sequence[str] | None
    most: int  # characters of one document
    encoding: str  # of text that is not UTF-8 and declares none
    tell: Tell
    data: bytes | None = None  # of a file that is attached to another
    depth: int = 0
    tabular: bool = False  # its documents are rows
    skipped: set[Reason] = field(default_factory=set)  # why parts of it, or attached ones, are

    @property
    def name(self) -> str:
        """Its name within the source."""
        return self.entry.name

    def open(self) -> IO[bytes]:
        """Its bytes as a stream."""
        return self.entry.open() if self.data is None else BytesIO(self.data)

    def content(self) -> bytes:
        """Its bytes, unless it is a dump."""
        data = b""
        if self.entry.size <= LARGEST:
            with self.open() as stream:
                data = stream.read(LARGEST + 1)
        if max(self.entry.size, len(data)) > LARGEST:
            raise Skip(Reason.TOO_LARGE)
        return data

    def text(self, *, rows: bool = False) -> str:
        """Its text, in any encoding; unless it holds rows, it must be fit to be parsed."""
        text, encoding = decode(self.content(), self.encoding)
        self.note_encoding(encoding)
        return text if rows else self.check(text)

    def check(self, text: str) -> str:
        """A text, unless it is too long to parse, or repetitive."""
        _Repetition().add(text)
        if len(text) > 4 * self.most:  # parsing takes out mark-up, but not so much
            raise Skip(Reason.TOO_MUCH_TEXT)
        return text

    def sniff(self) -> Encoding:
        """Its encoding, by as much of it as tells."""
        with self.open() as stream:
            encoding = encoding_of(iter(partial(stream.read, 1 << 20), b""), self.encoding)
        self.note_encoding(encoding)
        return encoding

    def note_encoding(self, encoding: Encoding) -> None:
        """Have an encoding reported that was guessed."""
        if encoding.guessed:
            self.tell("encoding", encoding.name.replace("_", "-"))

    def skip(self, reason: Reason, part: str = "") -> None:
        """Have a part reported that is not read, such as ", page 3"."""
        self.skipped.add(reason)
        self.tell("skip", reason, f"{self.name}{part}")

    def document(self, parsed: Parsed, part: str = "") -> Document:
        """The document that it is, or that a part of it is."""
        return Document(f"{self.name}{clean(part)}", *parsed)

    @contextmanager
    def others_are_read(self, part: str) -> Iterator[None]:
        """Report a part that cannot be read, and continue."""
        try:
            yield
        except MemoryError:
            raise
        except Skip as skip:
            self.skip(skip.args[0], part)
        except Exception:  # whatever a parser raises for what is broken
            self.skip(Reason.BROKEN, part)


Reader = Callable[[File], Iterator[Document]]


class _Repetition:
    """Stops what says little more than one thing."""

    def __init__(self) -> None:
        self._texts, self._size = list[str](), 0  # since the last check

    def add(self, *texts: str) -> None:
        """Add texts of one kind, which count for ``ROW`` characters at least."""
        self._texts += texts
        self._size += max(sum(map(len, texts)), ROW)
        if self._size > REPEATED:
            if _repeats(self._texts, 0):
                raise Skip(Reason.REPETITION)
            self._texts, self._size = [], 0


def _repeats(texts: Sequence[str], least: int = REPEATED) -> bool:
    """Whether texts of more than so many characters say little more than one thing."""
    text = "\n".join(texts)
    if len(text) <= least:
        return False
    return len(zlib.compress(text.encode("utf-8", "replace"), 1)) * DENSE < len(text)


def documents(
    entry: Entry, columns: Sequence[str] | None, most: int, encoding: str, tell: Tell
) -> Iterator[Document]:
    """The documents of a file.

    ``most``: characters of one; ``encoding``: that of text that is not UTF-8 and declares none.
    """
    file, found = File(entry, columns, most, encoding, tell), False
    for document in _read(file):
        found = True
        yield document
    if not (found or file.skipped):
        raise Skip(Reason.EMPTY)


def _read(file: File) -> Iterator[Document]:
    """The documents of a file that are fit to be indexed, without their keys."""
    if file.entry.size == 0:
        raise Skip(Reason.EMPTY)
    repetition = _Repetition()
    whole, found = None, False  # why the document that the file is cannot be read
    for document in READERS.get(file.entry.suffix, _unknown)(file):
        texts = [text for section in document.sections for text in section.paragraphs]
        reason = None if texts else Reason.EMPTY
        if document.size > file.most:
            reason = Reason.TOO_MUCH_TEXT
        elif _repeats(texts):
            reason = Reason.REPETITION
        else:
            repetition.add(*texts)
        if reason is None:
            literal = file.tabular or file.entry.suffix in LITERAL
            sections, keys = without_keys(document.sections, literal=literal)
            hidden = holds_key(document.title, literal=literal)
            if keys or hidden:
                file.tell("keys", keys + hidden)
            if sections:
                found = True
                title = "" if hidden else document.title
                yield replace(document, title=title, sections=sections)
                continue
            reason = Reason.SECRET
        if file.tabular:
            file.skip(Reason.ROW if reason == Reason.EMPTY else reason)
        elif document.id == file.name:
            whole = reason
        else:
            file.skip(reason, document.id.removeprefix(file.name))
    if whole and not found:
        raise Skip(whole)
    if whole:
        file.skip(whole)


# ---------------------------------------------------------------------- files of one document


def _text(parse: Callable[[str], Parsed], file: File) -> Iterator[Document]:
    """A file by the parser of its text."""
    yield file.document(parse(file.text()))


def _bytes(parse: Callable[[bytes, Report], Parsed], file: File) -> Iterator[Document]:
    """A file by the parser of its bytes, which reports what it passes over."""
    yield file.document(parse(file.content(), file.skip))


def _unknown(file: File) -> Iterator[Document]:
    """A file of another suffix, whose name says that it is prose."""
    file.sniff()  # it may be binary
    if not _PROSE.search(file.name.rpartition("/")[2]):
        raise Skip(Reason.UNKNOWN)
    yield file.document(read_text(file.text()))


def _blocks(file: File) -> Iterator[Document]:
    """Code and configuration, without lines that are data."""
    text = file.text()
    title, sections, metadata = read_blocks(text)
    if any(len(line) > WIDEST for line in text.splitlines()):
        if not sections:
            raise Skip(Reason.WIDE)
        file.skip(Reason.WIDE)
    yield file.document((title or file.name.rpartition("/")[2], sections, metadata))


def _html(file: File) -> Iterator[Document]:
    parsed, menus = read_html(file.text())
    yield file.document(parsed)
    if menus:
        file.skip(Reason.MENUS)


# ---------------------------------------------------------------------- mail, and what is attached


def _pdf(file: File) -> Iterator[Document]:
    parsed, attached = read_pdf(file.content(), file.most, file.skip, partial(file.tell, "alive"))
    if parsed[1] or not attached:
        yield file.document(parsed)
    yield from _attached(file, "", attached.items())


def _mbox(file: File) -> Iterator[Document]:
    with file.open() as stream:
        for number, data in enumerate(messages(stream), 1):
            with file.others_are_read(part := f"#{number}"):
                if data is None:
                    raise Skip(Reason.TOO_LARGE)
                yield from _mail(file, part, parse_mail(data))
            file.tell("alive")


def _mail(file: File, part: str, mail: Mail) -> Iterator[Document]:
    """A mail without what it quotes, and the documents that are attached to it."""
    subject = mail.metadata.get("subject", "")
    with file.others_are_read(part):
        sections = read_text(own_text(file.check(mail.text), subject))[1]
        if not sections and subject:  # it says what is attached
            sections = (Section((), (subject,)),)
        sender, address = parseaddr(mail.metadata.get("from", ""))
        head = ", ".join(filter(None, (sender or address, mail.metadata.get("date"))))
        below = (replace(one, headings=(*[head] * bool(head), *one.headings)) for one in sections)
        parsed = subject, tuple(below), described(mail.metadata)
        if sections or not mail.attachments:
            yield file.document(parsed, part)
    yield from _attached(file, part, mail.attachments)


def _attached(
    file: File, part: str, attachments: Iterable[tuple[str, bytes]]
) -> Iterator[Document]:
    """The documents that are attached to one."""
    for title, data in attachments:
        file.tell("alive")  # whatever becomes of it
        inner = f"{part}#{one_line(title).replace('/', '_')}"
        with file.others_are_read(inner):
            suffix, reason = PurePosixPath(title).suffix.lower(), reason_to_skip(title)
            if suffix in (".gz", ".zip") or file.depth >= DEEPEST:
                reason = reason or Reason.NESTED
            if reason is not None:
                raise Skip(reason)
            entry = Entry(f"{file.name}{inner}", suffix, len(data), "", 0)
            yield from _read(replace(file, entry=entry, data=data, depth=file.depth + 1))


def _outlook(file: File) -> Iterator[Document]:
    """A mail of Outlook and its attachments, by xberg."""
    result = office.extracted(file.content(), ".msg")
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
    metadata = {key: one_line(value.replace('"', "")) for key, value in headers.items() if value}
    yield from _mail(file, "", Mail(metadata, text.replace("\r\n", "\n"), []))
    for child in result.children or ():
        part = f"#{one_line(str(child.path))}"
        with file.others_are_read(part):
            if reason := reason_to_skip(str(child.path)):
                raise Skip(reason)
            yield file.document(read_text(file.check(str(child.result.content))), part)


# ---------------------------------------------------------------------- rows


def _table(file: File) -> Iterator[Document]:
    """The rows of csv, tsv and lines of JSON."""
    form = file.entry.suffix if file.entry.suffix in (".csv", ".tsv") else ".jsonl"
    yield from _rows(file, Source(file.open, form, file.name, None, file.sniff().name, FOREIGN))


def _json(file: File) -> Iterator[Document]:
    """One object, or rows: a list of them, or one per line."""
    text = file.text(rows=True)
    try:
        values = json.loads(text)
    except ValueError:
        lines = text.strip()
        json.loads(lines.partition("\n")[0])  # else it is broken
        data = lines.encode("utf-8", "replace")
        yield from _rows(file, Source(lambda: BytesIO(data), ".jsonl", file.name))
        return
    if isinstance(values, dict):
        file.check(text)
        yield file.document((file.name.rpartition("/")[2], *text_formats.read_object(values)[1:]))
    elif isinstance(values, list):
        yield from _rows(file, Source(file.open, ".jsonl", file.name), values)
    else:
        raise Skip(Reason.NO_LIST)


def _parquet(file: File) -> Iterator[Document]:
    if find_spec("pyarrow") is None:
        raise Skip(Reason.NEEDS_PARQUET)
    yield from _rows(file, Source(file.open, ".parquet", file.name))


def _rows(file: File, source: Source, rows: list[Any] | None = None) -> Iterator[Document]:
    """The rows of a table by its columns."""
    file.tabular = True
    columns, documents = read_table(source, file.columns, file.skip, rows)
    if not columns:
        raise Skip(Reason.NO_COLUMN)
    file.tell("columns", columns)
    yield from documents


def _sheets(file: File) -> Iterator[Document]:
    """The rows of a workbook; a sheet without a header row is one document."""
    sheets, told = read_book(file.content(), file.skip)
    file.tabular = True
    lacking, about, rows = dict[str, Skip](), described(told), list[Iterable[Document]]()
    read = False  # a sheet, not only what is noted on one
    for sheet in sheets:
        shown = f"{file.name}#{sheet.name}"
        if sheet.notes:
            notes = Section((sheet.name,), tuple(map(one_line, sheet.notes)))
            rows.append([Document(f"{shown}#notes", sheet.name, (notes,))])
        if file.columns is None and (form := form_of(sheet.rows)):
            rows.append([Document(shown, sheet.name, (Section((), (form,)),))])
            continue
        try:
            chosen, found = read_rows(sheet.rows, shown, sheet.name, file.columns)
        except Skip as skip:
            if any(map(any, sheet.rows)):
                lacking[f"#{sheet.name}"] = skip
            continue
        rows.append(found)
        read = True
        if chosen:
            file.tell("columns", chosen)
    if lacking and not read:
        raise next(iter(lacking.values()))
    for part, lack in lacking.items():
        file.skip(lack.args[0], part)
    for row in chain.from_iterable(rows):
        yield replace(row, metadata=about | row.metadata)


READERS: dict[str, Reader] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), partial(_text, markup.read_markdown)),
    **dict.fromkeys((".txt", ".text", ".log", ""), partial(_text, read_text)),
    ".pdf": _pdf,
    ".docx": partial(_bytes, partial(office.read_word, ".docx")),
    ".odt": partial(_bytes, partial(office.read_word, ".odt")),
    ".rtf": partial(_bytes, markup.read_rtf),
    ".pptx": partial(_bytes, office.read_slides),
    ".epub": partial(_bytes, office.read_epub),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    **dict.fromkeys(SHEETS, _sheets),
    **dict.fromkeys((".csv", ".tsv", ".jsonl", ".ndjson"), _table),
    ".json": _json,
    ".parquet": _parquet,
    ".eml": lambda file: _mail(file, "", parse_mail(file.content())),
    ".mbox": _mbox,
    ".msg": _outlook,
    ".ipynb": partial(_text, markup.read_notebook),
    **dict.fromkeys((".py", ".pyi"), partial(_text, text_formats.read_python)),
    ".tex": partial(_text, markup.read_tex),
    ".rst": partial(_text, markup.read_rst),
    ".org": partial(_text, partial(markup.read_marked, "*", r"#\+begin_.*")),
    ".adoc": partial(_text, partial(markup.read_marked, "=", r"-{4,}|\.{4,}|\|={3,}")),
    ".xml": partial(_text, text_formats.read_xml),
    **dict.fromkeys((".ics", ".vcf"), partial(_text, text_formats.read_calendar)),
    **dict.fromkeys((".srt", ".vtt"), partial(_text, text_formats.read_captions)),
    **dict.fromkeys((*CODE, *SETTINGS), _blocks),
}
"""How a file of each suffix is read; also as gzip, in a zip, or attached to a mail."""

FORMATS = tuple(filter(None, READERS))
