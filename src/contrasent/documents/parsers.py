"""One file's bytes to its title and sections, by the format that its suffix names.

Office files, PDF, EPUB, HTML, reStructuredText and notebooks become Markdown by the library
kreuzberg, and Markdown becomes sections here. What runs in this module runs in a process of its
own, see :mod:`contrasent.documents.worker`.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from io import TextIOWrapper
from typing import IO, Any

from contrasent.documents.archives import Entry
from contrasent.documents.markdown import read_markdown, read_notebook
from contrasent.documents.plain import decode, read_text, sniff
from contrasent.documents.python import read_python
from contrasent.documents.secrets import without_keys
from contrasent.documents.sections import Document, Section
from contrasent.documents.table import (
    NoSuchColumn,
    Row,
    as_row,
    csv_rows,
    jsonl_rows,
    parquet_rows,
    read_rows,
)
from contrasent.text.sources import LONGEST

Parsed = tuple[str, tuple[Section, ...]]

TEXT: dict[str, Callable[[str], Parsed]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), read_markdown),
    **dict.fromkeys((".txt", ".text", ".log", ""), read_text),
    ".ipynb": read_notebook,
    ".py": read_python,
}
CONVERTED = {
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".rtf": "application/rtf",
    ".epub": "application/epub+zip",
    ".rst": "text/x-rst",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "text/html"),
}
"""Formats that kreuzberg reads, with their media types."""
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
FORMATS = (*(suffix for suffix in TEXT if suffix), *CONVERTED, *TABLES)
"""Suffixes that are read; each also as gzip, and in a zip."""
LARGEST = 200_000_000
"""Bytes of a file that is one document; a larger one is a dump, to be split or made a table."""
TEXT_LIMIT = 5_000_000
"""Characters of a file that is one document, unless ``--max-file-text`` says otherwise."""
AT_ONCE = 200
"""Rows of a table that are handed over together."""


_HEAD = re.compile(r"\A---\n(?:[\w.:-]+:[^\n]*\n)*(?:---\n|\n*## title:[^\n]*\n|\n)")
"""Metadata of a page that kreuzberg writes before its text."""


class Skip(Exception):
    """A file is passed over; ``args`` are the reason."""


def documents(
    entry: Entry, columns: Sequence[str] | None, most: int
) -> Iterator[tuple[list[Document], dict[str, Any]]]:
    """The documents of a file, some at a time, with facts about the file for the report.

    ``most``: characters of a document.

    Raises:
        Skip: the file is not read; with the reason.
    """
    if entry.size == 0:
        raise Skip("empty")
    if entry.suffix in TABLES:
        yield from _table(entry, columns, most)
        return
    facts: dict[str, Any] = {}
    if entry.suffix in TEXT:
        title, sections = _text(entry, facts, most)
    elif entry.suffix in CONVERTED:
        title, sections = _converted(entry, most)
    else:
        raise Skip("unknown type")
    sections, keys = without_keys(sections)
    if keys:
        facts["keys"] = keys
    characters = sum(len(text) for section in sections for text in section.paragraphs)
    if characters > most:
        raise Skip(f"more than {most:,} characters (--max-file-text)")
    if not sections:
        raise Skip("no text (a scan?)" if entry.suffix == ".pdf" else "empty")
    yield [Document(entry.name, title, sections, docstring=entry.suffix == ".py")], facts


def _content(entry: Entry) -> bytes:
    if entry.size > LARGEST:
        raise Skip("too large")
    with entry.open() as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise Skip("too large")
    return data


def _text(entry: Entry, facts: dict[str, Any], most: int) -> Parsed:
    try:
        text, facts["encoding"] = decode(_content(entry))
    except ValueError:
        raise Skip("unknown type" if not entry.suffix else "no text but binary") from None
    if len(text) > 4 * most:  # parsing takes out mark-up, but not so much
        raise Skip(f"more than {most:,} characters (--max-file-text)")
    return TEXT[entry.suffix](text)


def _converted(entry: Entry, most: int) -> Parsed:
    """Markdown by kreuzberg, with the number of the page before each page of a PDF."""
    try:
        import kreuzberg
    except ImportError:
        raise Skip("unread: pip install 'contrasent[documents]'") from None

    data = _content(entry)
    if entry.suffix in (".html", ".htm", ".xhtml", ".rst"):
        data = decode(data)[0].encode("utf-8", "replace")
    # As a dict: the library's own types lag behind its options.
    options: dict[str, Any] = {
        "use_cache": False,
        "disable_ocr": True,
        "enable_quality_processing": False,
        "output_format": "markdown",
        "html_options": {"preprocessing": {"enabled": True, "preset": "aggressive"}},
    }
    if entry.suffix == ".pdf":
        options["pages"] = kreuzberg.PageConfig(insert_page_markers=True)
    config = kreuzberg.ExtractionConfig(**options)
    try:
        found = kreuzberg.extract_bytes_sync(data, CONVERTED[entry.suffix], config)
    except Exception as error:
        raise Skip(_reason(str(error))) from error
    if len(found.content) > 4 * most:
        raise Skip(f"more than {most:,} characters (--max-file-text)")
    title = found.metadata.get("title") if isinstance(found.metadata, dict) else None
    return read_markdown(_HEAD.sub("", found.content), title=str(title or ""))


def _reason(message: str) -> str:
    lower = message.lower()
    if "password" in lower or "encrypt" in lower:
        return "encrypted"
    return "broken"


def _table(
    entry: Entry, columns: Sequence[str] | None, most: int
) -> Iterator[tuple[list[Document], dict[str, Any]]]:
    facts: dict[str, Any] = {"skipped": 0}

    def skip() -> None:
        facts["skipped"] += 1

    with entry.open() as stream:
        rows = _rows(entry, stream, facts)
        try:
            chosen, found = read_rows(rows, columns, skip)
        except NoSuchColumn:
            raise
        except ValueError:
            raise Skip("table without a column of text") from None
        facts["columns"] = str(chosen)
        made: list[Document] = []
        for identity, title, sections in found:
            kept, keys = without_keys(sections)
            facts["keys"] = facts.get("keys", 0) + keys
            if sum(len(text) for section in kept for text in section.paragraphs) > most:
                skip()
            elif kept:
                made.append(Document(f"{entry.name}#{identity}", title, kept))
            if len(made) == AT_ONCE:
                yield made, facts
                made, facts = [], {"skipped": 0, "columns": str(chosen)}
        yield made, facts


def _rows(entry: Entry, stream: IO[bytes], facts: dict[str, Any]) -> Iterator[Row | None]:
    if entry.suffix == ".parquet":
        return parquet_rows(stream, entry.name)
    if entry.suffix == ".json":
        value = json.loads(decode(_content(entry))[0])
        if not isinstance(value, list):
            raise Skip("JSON that is no list of rows")
        return iter([as_row(one) for one in value])
    try:
        encoding = sniff(stream)
    except ValueError:
        raise Skip("no text but binary") from None
    facts["encoding"] = encoding.replace("_", "-").removesuffix("-sig")
    lines = _lines(stream, encoding)
    if entry.suffix in (".jsonl", ".ndjson"):
        return jsonl_rows(lines)
    plain = (line.replace("\0", "") for line in lines)
    return csv_rows(plain, "," if entry.suffix == ".csv" else "\t")


def _lines(stream: IO[bytes], encoding: str) -> Iterator[str]:
    with TextIOWrapper(stream, encoding=encoding, errors="replace", newline="") as text:
        while line := text.readline(LONGEST):
            yield line
