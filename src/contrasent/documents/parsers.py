"""One file's bytes to its title and sections, by its suffix; run by the reading process."""

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from io import BytesIO
from itertools import pairwise
from typing import Any

from contrasent.documents.archives import Entry, Reason, Skip, check_members, expands
from contrasent.documents.sections import Document, Section, without_keys
from contrasent.documents.table import read_table
from contrasent.documents.text_formats import (
    SAMPLE,
    decode,
    encoding_of,
    read_markdown,
    read_notebook,
    read_python,
    read_text,
)
from contrasent.text.sources import Source

Parsed = tuple[str, tuple[Section, ...]]
Part = tuple[list[Document], dict[str, Any]]  # documents, and facts of the file for the report

TEXT: dict[str, Callable[[str], Parsed]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), read_markdown),
    **dict.fromkeys((".txt", ".text", ".log", ""), read_text),
    ".ipynb": read_notebook,
    ".py": read_python,
}
CONVERTED = {  # formats that kreuzberg reads, with their media types
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".rtf": "application/rtf",
    ".epub": "application/epub+zip",
    ".rst": "text/x-rst",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "text/html"),
}
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
FORMATS = (*(suffix for suffix in TEXT if suffix), *CONVERTED, *TABLES)  # also as gzip, in a zip
LARGEST = 200_000_000  # bytes of a file that is one document; a larger one is a dump
TEXT_LIMIT = 5_000_000  # characters of a file that is one document (--max-file-text)
REPEATED, DENSE = 100_000, 50  # characters from which on a text may not pack to so small a part
ROW = 10  # characters for which a row of a table counts at least
AT_ONCE = 200  # rows of a table that are handed over together
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
    if entry.suffix in TABLES:
        yield from _table(entry, columns, most)
        return
    facts: dict[str, Any] = {}
    read = _converted if entry.suffix in CONVERTED else _text
    title, sections = read(entry, facts, most)
    if not sections:
        raise Skip(Reason.SCAN if entry.suffix == ".pdf" else Reason.EMPTY)
    sections, facts["keys"] = without_keys(sections)
    if not sections:
        raise Skip(Reason.SECRET)
    if size_of(sections) > most:
        raise Skip(Reason.TOO_MUCH_TEXT)
    yield [Document(entry.name, title, sections)], facts


def size_of(sections: Sequence[Section]) -> int:
    """The characters of their text."""
    return sum(len(text) for section in sections for text in section.paragraphs)


def _check(text: str, most: int) -> str:
    """The text, unless it is too much to parse, or one thing again and again."""
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
    return parse(_decoded(entry, facts, most))


def _converted(entry: Entry, facts: dict[str, Any], most: int) -> Parsed:
    """Title and sections by kreuzberg's Markdown; of a PDF without headings by its pages."""
    try:
        import kreuzberg
    except ImportError:
        raise Skip(Reason.NEEDS_DOCUMENTS) from None

    if CONVERTED[entry.suffix].startswith("text/"):
        text = _decoded(entry, facts, most)
        data = (_ROLE.sub(r"\1", text) if entry.suffix == ".rst" else text).encode()
    else:
        data = _content(entry)
        if zipfile.is_zipfile(BytesIO(data)):
            with zipfile.ZipFile(BytesIO(data)) as archive:
                if any(map(expands, check_members(archive, len(data)))):
                    raise Skip(Reason.EXPANDS)
    # As a dict: the library's own types lag behind its options.
    options: dict[str, Any] = {
        "use_cache": False,
        "disable_ocr": True,
        "enable_quality_processing": False,
        "output_format": "markdown",
        "html_options": {"preprocessing": {"enabled": True, "preset": "aggressive"}},
    }
    if entry.suffix == ".pdf":
        options["pages"] = kreuzberg.PageConfig(extract_pages=True)
    try:
        config = kreuzberg.ExtractionConfig(**options)
        found = kreuzberg.extract_bytes_sync(data, CONVERTED[entry.suffix], config)
    except Exception as error:
        encrypted = re.search("password|encrypt", str(error), re.IGNORECASE)
        raise Skip(Reason.ENCRYPTED if encrypted else Reason.BROKEN) from error
    content = _check(found.content, most)
    pages = found.pages if entry.suffix == ".pdf" else ()  # those of a docx are guesses
    title = str(found.metadata.get("title") or "")
    if pages:
        if not _HEADING.search(content):
            return _paged(pages, title)
        content = _as_printed(content, "\n".join(page["content"] for page in pages))
    title, sections = read_markdown(_HEAD.sub("", content), title)
    return title, tuple(_placed(sections, pages)) if pages else sections


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


def _paged(pages: Sequence[Any], title: str) -> Parsed:
    """A section a page."""
    found = []
    for page in pages:
        content = _HYPHEN.sub("", page["content"].replace("\r", "")) + "\n\n"
        texts = [text for part in read_text(content)[1] for text in part.paragraphs]
        if texts:
            found.append(Section((), tuple(texts), page["page_number"]))
    return title, tuple(found)


def _placed(sections: Sequence[Section], pages: Sequence[Any]) -> Iterator[Section]:
    """Sections cut where a page begins, each with the page that its first words are on."""
    plain, at = [_letters(page["content"]) for page in pages], 0
    for section in sections:
        held: dict[int, list[str]] = {}
        for text in section.paragraphs:
            before = "" if held else "".join(section.headings[-1:])
            opening = _letters(before + text[:100])[: len(before) + 30]
            near = range(at, min(at + 3, len(plain)))
            at = next((number for number in near if opening in plain[number]), at)
            held.setdefault(at, []).append(text)
        for number, texts in held.items():
            yield Section(section.headings, tuple(texts), pages[number]["page_number"])


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _table(entry: Entry, columns: Sequence[str] | None, most: int) -> Iterator[Part]:
    facts: dict[str, Any] = {}
    facts["columns"], found = read_table(_source(entry, facts), columns)
    if not facts["columns"]:
        raise Skip(Reason.NO_COLUMN)
    none = {"keys": 0, "skipped": 0}
    facts, made, much = facts | none, list[Document](), 0
    texts, unchecked = list[str](), 0  # of the rows since the last look for repetition
    for document in found:
        kept, keys = without_keys(document.sections)
        facts["keys"] += keys
        if not kept or (size := size_of(kept)) > most:
            facts["skipped"] += 1
            continue
        made.append(replace(document, sections=kept))
        much += size
        texts += (text for section in kept for text in section.paragraphs)
        unchecked += max(size, ROW)
        if unchecked > REPEATED:
            _check_repetition("\n".join(texts))
            texts, unchecked = [], 0
        if len(made) == AT_ONCE or much > MUCH:
            yield made, facts
            facts, made, much = dict(none), [], 0
    yield made, facts


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
    with entry.open() as stream:
        sample = stream.read(SAMPLE)
    return encoding_of(sample, whole=len(sample) < SAMPLE)
