"""One file's bytes to its title and sections, by its suffix; run by the reading process."""

import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from email.utils import parseaddr
from importlib.util import find_spec
from io import BytesIO
from itertools import chain, pairwise
from pathlib import PurePosixPath
from typing import IO, Any

from contrasent.documents.archives import (
    Entry,
    Reason,
    Skip,
    check_members,
    expands,
    reason_to_skip,
)
from contrasent.documents.mail import Mail, day_of, messages, own_text, parse_mail
from contrasent.documents.sections import (
    Document,
    Parsed,
    Section,
    described,
    one_line,
    without_keys,
)
from contrasent.documents.table import read_rows, read_table
from contrasent.documents.text_formats import (
    SAMPLE,
    TEXT,
    decode,
    encoding_of,
    read_blocks,
    read_json,
    read_markdown,
    read_text,
    without_tags,
)
from contrasent.text.sources import Source

Part = tuple[list[Document], dict[str, Any]]  # documents, and facts of the file for the report


CONVERTED = {  # formats that kreuzberg reads, with their media types
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".rtf": "application/rtf",
    ".epub": "application/epub+zip",
    ".rst": "text/x-rst",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "text/html"),
    ".msg": "application/vnd.ms-outlook",
}
SHEETS = {  # formats with a document per row
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
}
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
LARGEST = 200_000_000  # bytes of a file that is one document; a larger one is a dump
TEXT_LIMIT = 5_000_000  # characters of a file that is one document (--max-file-text)
REPEATED, DENSE = 100_000, 50  # characters from which a text may not compress this much
ROW = 10  # fewest characters that a row of a table counts for
AT_ONCE = 200  # rows of a table that are handed over together
DEEPEST = 3  # nested mails
MUCH = 1_000_000  # characters of rows that are handed over, however few they are

# Of HTML, kreuzberg writes what the head says before the text.
_HEAD = re.compile(r"\A---\n(?>[\w.:-]+:[^\n]*\n)*(?:---\n|\n*## title:[^\n]*\n|\n)")
_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_GRID = re.compile(r"(?:^\|[^\n]*\n)+", re.MULTILINE)  # a table
_PROSE = re.compile(  # in names of files that are read whatever their suffix
    r"(?<![a-z])(?:readme|licen[cs]e|copying|notice|news|change(?:s|log)|authors|todo|faq)(?![a-z])",
    re.IGNORECASE,
)
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[a-zß-ÿ])")
_ROLE = re.compile(r":[a-zA-Z][\w:+-]{0,30}:`([^`<]{1,200}?)\s*(?:<[^`]{0,200})?`")


def documents(entry: Entry, columns: Sequence[str] | None, most: int) -> Iterator[Part]:
    """The documents of a file, some at a time; ``most``: characters of one."""
    if entry.size == 0:
        raise Skip(Reason.EMPTY)
    if entry.suffix == ".msg":
        yield from _outlook(entry, most)
    elif entry.suffix in MAILS:
        yield from _mails(entry, columns, most)
    elif entry.suffix in SHEETS:
        yield from _sheets(entry, columns, most)
    elif entry.suffix in TABLES and not _is_object(entry):
        yield from _table(entry, columns, most)
    else:
        facts: dict[str, Any] = {}
        read = _converted if entry.suffix in CONVERTED else _text
        parsed = read(entry, facts, most)
        if entry.suffix == ".pdf" and not parsed[1]:
            raise Skip(Reason.SCAN)
        yield _whole(entry.name, parsed, facts, most, code=TEXT.get(entry.suffix) is read_blocks)


def _whole(
    name: str, parsed: Parsed, facts: dict[str, Any], most: int, *, code: bool = False
) -> Part:
    """The document of a file that has one."""
    title, sections, metadata = parsed
    if not sections:
        raise Skip(Reason.EMPTY)
    sections, facts["keys"] = without_keys(sections, assigned=code)
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
    if len(text) > REPEATED:
        _check_repetition(text)
    if len(text) > 4 * most:  # parsing takes out mark-up, but not so much
        raise Skip(Reason.TOO_MUCH_TEXT)
    return text


def _check_repetition(text: str) -> None:
    if len(zlib.compress(text.encode("utf-8", "replace"), 1)) * DENSE < len(text):
        raise Skip(Reason.REPETITION)


def _content(entry: Entry) -> bytes:
    data = b""
    if entry.size <= LARGEST:
        with entry.open() as stream:
            data = stream.read(LARGEST + 1)
    if max(entry.size, len(data)) > LARGEST:
        raise Skip(Reason.TOO_LARGE)
    return data


def _decoded(entry: Entry, facts: dict[str, Any], most: int) -> str:
    text, facts["encoding"] = decode(_content(entry))
    return _check(text, most)


def _text(entry: Entry, facts: dict[str, Any], most: int) -> Parsed:
    if (parse := TEXT.get(entry.suffix)) is None:
        _sniff(entry)
        if not _PROSE.search(entry.name.rpartition("/")[2]):
            raise Skip(Reason.UNKNOWN)
        parse = read_text
    title, sections, metadata = parse(_decoded(entry, facts, most))
    if not title and parse in (read_blocks, read_json):
        title = entry.name.rpartition("/")[2]
    return title, sections, metadata


def _converted(entry: Entry, facts: dict[str, Any], most: int) -> Parsed:
    """Title and sections by kreuzberg's Markdown; of a PDF without headings by its pages."""
    if CONVERTED[entry.suffix].startswith("text/"):
        text = _decoded(entry, facts, most)
        data = (_ROLE.sub(r"\1", text) if entry.suffix == ".rst" else text).encode()
    else:
        data = _content(entry)
    result = extract(data, entry.suffix)
    content = _check(result.content, most)
    pages = result.pages if entry.suffix == ".pdf" else ()  # those of a docx are guesses
    title, about = str(result.metadata.get("title") or ""), _properties(result.metadata)
    if pages:
        if not _HEADING.search(content):
            return _paged(pages, title, about)
        content = _as_printed(content, "\n".join(page["content"] for page in pages))
    title, sections, about = read_markdown(_HEAD.sub("", content), title, about)
    return title, tuple(_placed(sections, pages)) if pages else sections, about


def _properties(metadata: Any) -> dict[str, Any]:
    """Author, last change and subject of a document, by its own properties."""
    tags = metadata.get("meta_tags") or {}
    dates = [metadata.get(key) for key in ("created_at", "modified_at")]
    dates += [tags.get(key) for key in ("date", "article:published_time")]
    return {
        "author": metadata.get("authors"),
        "tags": metadata.get("keywords"),
        "subject": metadata.get("subject"),
        "date": max(filter(None, dates), default=None),
    }


def extract(data: bytes, suffix: str, form: str = "markdown") -> Any:
    """The text, metadata, pages and tables of a file by kreuzberg."""
    try:
        import kreuzberg
    except ImportError:
        raise Skip(Reason.NEEDS_DOCUMENTS) from None

    if zipfile.is_zipfile(BytesIO(data)):
        with zipfile.ZipFile(BytesIO(data)) as archive:
            if any(map(expands, check_members(archive, len(data)))):
                raise Skip(Reason.EXPANDS)
    # As a dict: the library's own types lag behind its options.
    options: dict[str, Any] = {
        "use_cache": False,
        "disable_ocr": True,
        "enable_quality_processing": False,
        "output_format": form,
        "html_options": {"preprocessing": {"enabled": True, "preset": "aggressive"}},
    }
    if suffix == ".pdf":
        options["pages"] = kreuzberg.PageConfig(extract_pages=True)
    try:
        config = kreuzberg.ExtractionConfig(**options)
        return kreuzberg.extract_bytes_sync(data, (CONVERTED | SHEETS)[suffix], config)
    except Exception as error:
        encrypted = re.search("password|encrypt", str(error), re.IGNORECASE)
        raise Skip(Reason.ENCRYPTED if encrypted else Reason.BROKEN) from error


def _as_printed(content: str, plain: str) -> str:
    """A PDF's Markdown with spaces where lines ended, and without tables that repeat its text."""
    known, spaced = {_letters(word) for word in plain.split()}, dict[str, str]()
    for line, following in pairwise(filter(None, map(str.split, plain.splitlines()))):
        word, other = line[-1], following[0]
        if _letters(word + other) not in known and not word.endswith("-"):
            spaced[word + other] = f"{word} {other}"
    content = re.sub(r"\S+", lambda match: spaced.get(match[0], match[0]), content)
    prose = _letters(_GRID.sub("", content))
    return _GRID.sub(lambda grid: "" if _letters(grid[0]) in prose else grid[0], content)


def _paged(pages: Sequence[Any], title: str, about: dict[str, Any]) -> Parsed:
    """One section per page."""
    sections = []
    for page in pages:
        content = _HYPHEN.sub("", page["content"].replace("\r", "")) + "\n\n"
        texts = [text for part in read_text(content)[1] for text in part.paragraphs]
        if texts:
            sections.append(Section((), tuple(texts), page["page_number"]))
    return one_line(title), tuple(sections), described(about)


def _placed(sections: Sequence[Section], pages: Sequence[Any]) -> Iterator[Section]:
    """Sections cut where a page begins, each with the page that its first words are on."""
    plain, current = [_letters(page["content"]) for page in pages], 0
    for section in sections:
        by_page: dict[int, list[str]] = {}
        for text in section.paragraphs:
            before = "" if by_page else "".join(section.headings[-1:])
            opening = _letters(before + text[:100])[: len(before) + 30]
            near = range(current, min(current + 3, len(plain)))
            current = next((number for number in near if opening in plain[number]), current)
            by_page.setdefault(current, []).append(text)
        for number, texts in by_page.items():
            yield Section(section.headings, tuple(texts), pages[number]["page_number"])


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _table(entry: Entry, columns: Sequence[str] | None, most: int) -> Iterator[Part]:
    facts: dict[str, Any] = {}
    facts["columns"], rows = read_table(_source(entry, facts), columns)
    if not facts["columns"]:
        raise Skip(Reason.NO_COLUMN)
    yield from _in_parts(rows, facts, most)


def _sheets(entry: Entry, columns: Sequence[str] | None, most: int) -> Iterator[Part]:
    """The rows of a workbook; a sheet without a header row is one document."""
    book, facts, lacking = extract(_content(entry), entry.suffix), dict[str, Any](), list[Skip]()
    names, about = book.metadata.get("sheet_names") or [], described(_properties(book.metadata))
    parts = list[Iterator[Document]]()
    for sheet in book.tables:
        name = names[sheet.page_number - 1] if sheet.page_number <= len(names) else "?"
        try:
            chosen, documents = read_rows(sheet.cells, f"{entry.name}#{name}", name, columns)
        except Skip as skip:
            lacking.append(skip)
            continue
        parts.append(documents)
        if chosen:
            facts["columns"] = f"{facts['columns']}; {chosen}" if "columns" in facts else chosen
    if lacking and not parts:
        raise lacking[0]
    rows = (replace(row, metadata=about | row.metadata) for part in parts for row in part)
    yield from _in_parts(rows, facts, most)


def _in_parts(found: Iterable[Document], facts: dict[str, Any], most: int) -> Iterator[Part]:
    """The documents of a table, some at a time, unless they are repetitive."""
    none = {"keys": 0, "skipped": 0}
    facts, batch, much = facts | none, list[Document](), 0
    texts, unchecked = list[str](), 0  # of the rows since the last check for repetition
    rows = iter(found)
    if (first := next(rows, None)) is None:
        raise Skip(Reason.EMPTY)
    for document in chain([first], rows):
        sections, keys = without_keys(document.sections)
        facts["keys"] += keys
        if not sections or (size := size_of(sections)) > most:
            facts["skipped"] += 1
            continue
        batch.append(replace(document, sections=sections))
        much += size
        texts += (text for section in sections for text in section.paragraphs)
        unchecked += max(size, ROW)
        if unchecked > REPEATED:
            _check_repetition("\n".join(texts))
            texts, unchecked = [], 0
        if len(batch) == AT_ONCE or much > MUCH:
            yield batch, facts
            facts, batch, much = dict(none), [], 0
    yield batch, facts


def _is_object(entry: Entry) -> bool:
    """True if a JSON file holds one object, not a list of rows."""
    return entry.suffix == ".json" and _start(entry).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"


@dataclass(frozen=True, slots=True)
class _Attached(Entry):
    """A file within a mail."""

    data: bytes = b""
    depth: int = 1

    def open(self) -> IO[bytes]:
        return BytesIO(self.data)


def _mails(entry: Entry, columns: Sequence[str] | None, most: int) -> Iterator[Part]:
    """The mails of a file and what is attached to them."""
    if entry.suffix == ".eml":
        yield from _mail(entry, entry.name, parse_mail(_content(entry)), columns, most)
        return
    texts, unchecked = list[str](), 0  # of the mails since the last check for repetition
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
            texts.append(f"{mail.metadata} {mail.text}")
            unchecked += len(texts[-1])
            if unchecked > REPEATED:
                _check_repetition("\n".join(texts))
                texts, unchecked = [], 0
            yield from _mail(entry, name, mail, columns, most)


def _mail(
    entry: Entry, name: str, mail: Mail, columns: Sequence[str] | None, most: int
) -> Iterator[Part]:
    """A mail without what it quotes, and the documents that are attached to it."""
    subject = mail.metadata.get("subject", "")
    try:
        text = _check(mail.text, most)
        text, read = (_shown(text), read_markdown) if mail.html else (text, read_text)
        sections = _sent(read(own_text(_check(text, most), subject))[1], mail)
        yield _whole(name, (subject, sections, described(mail.metadata)), {}, most)
    except Skip as skip:
        yield [], {"passed": [(skip.args[0], name)]}
    depth = entry.depth + 1 if isinstance(entry, _Attached) else 1
    for title, data in mail.attachments:
        inner = f"{name}#{one_line(title).replace('/', '_')}"
        suffix = PurePosixPath(title).suffix.lower()
        reason = reason_to_skip(title)
        if suffix in (".gz", ".zip") or depth > DEEPEST:
            reason = reason or Reason.NESTED
        try:
            if reason is not None:
                raise Skip(reason)
            attached = _Attached(inner, suffix, len(data), "", 0, data=data, depth=depth)
            yield from documents(attached, columns, most)
        except Skip as skip:
            yield [], {"passed": [(skip.args[0], inner)]}
        except MemoryError:
            raise
        except Exception:  # whatever a parser raises for a broken file
            yield [], {"passed": [(Reason.BROKEN, inner)]}


def _sent(sections: Sequence[Section], mail: Mail) -> tuple[Section, ...]:
    """The text of a mail below a heading with its sender and date."""
    sender, address = parseaddr(mail.metadata.get("from", ""))
    head = ", ".join(filter(None, (sender or address, mail.metadata.get("date"))))
    return tuple(replace(one, headings=(*[head] * bool(head), *one.headings)) for one in sections)


def _shown(html: str) -> str:
    """The HTML of a mail as Markdown, or as bare text if that fails."""
    try:
        return _HEAD.sub("", str(extract(html.encode(), ".html").content))
    except Skip:
        return without_tags(html)


def _outlook(entry: Entry, most: int) -> Iterator[Part]:
    """A mail of Outlook and its attachments, by kreuzberg."""
    result = extract(_content(entry), ".msg", "plain")
    about, text = result.metadata, str(result.content).partition("\n\n")[2]
    headers = {
        "from": about.get("from_email"),
        "to": ", ".join(about.get("to_emails") or ()),
        "date": day_of(about.get("created_at")),
        "subject": about.get("subject"),
    }
    metadata = {key: str(value).replace('"', "") for key, value in headers.items() if value}
    mail = Mail(metadata, text.replace("\r\n", "\n"), False, [])
    yield from _mail(entry, entry.name, mail, None, most)
    for child in result.children or ():
        name = f"{entry.name}#{one_line(str(child['path']))}"
        parsed = read_text(_check(str(child["result"].content), most))
        yield (
            _whole(name, parsed, {}, most)
            if parsed[1]
            else ([], {"passed": [(Reason.EMPTY, name)]})
        )


def _source(entry: Entry, facts: dict[str, Any]) -> Source:
    if entry.suffix == ".parquet":
        if find_spec("pyarrow") is None:
            raise Skip(Reason.NEEDS_PARQUET)
        return Source(entry.open, ".parquet", entry.name)
    if entry.suffix == ".json":
        values = json.loads(decode(_content(entry))[0])
        if not isinstance(values, list):
            raise Skip(Reason.NO_LIST)
        lines = "\n".join(map(json.dumps, values)).encode()
        return Source(lambda: BytesIO(lines), ".jsonl", entry.name)
    encoding = _sniff(entry)
    facts["encoding"] = encoding.replace("_", "-").removesuffix("-sig")
    form = {".ndjson": ".jsonl"}.get(entry.suffix, entry.suffix)
    return Source(entry.open, form, entry.name, encoding=encoding)


def _sniff(entry: Entry) -> str:
    """The encoding of a text by its start."""
    sample = _start(entry)
    return encoding_of(sample, whole=len(sample) < SAMPLE)


def _start(entry: Entry) -> bytes:
    with entry.open() as stream:
        return stream.read(SAMPLE)
