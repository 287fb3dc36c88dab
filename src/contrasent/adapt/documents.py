"""The documents of a folder, an archive or a file: text with its title, headings and order.

Formats whose names are in ``FORMATS`` are read; the parsers come with the extra ``documents``
where Python has none. A file that cannot be read does not end the work: it is passed over, and
:class:`ReadReport` counts it by its reason.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Protocol

from contrasent import progress
from contrasent.adapt.entries import Entry, entries, in_memory
from contrasent.adapt.formats.html import read_html
from contrasent.adapt.formats.markdown import read_markdown, read_notebook
from contrasent.adapt.formats.office import read_docx, read_epub, read_pptx
from contrasent.adapt.formats.pdf import read_pdf
from contrasent.adapt.formats.plain import decode, read_text, sniff
from contrasent.adapt.formats.python import read_python
from contrasent.adapt.formats.restructured import read_rst
from contrasent.adapt.formats.table import (
    NoSuchColumn,
    Row,
    as_row,
    csv_rows,
    jsonl_rows,
    parquet_rows,
    read_rows,
)
from contrasent.adapt.sections import Document as Document
from contrasent.adapt.sections import Section as Section
from contrasent.errors import InputError, MissingExtraError, OptionError
from contrasent.text.sources import LONGEST, missing

Parsed = tuple[str, tuple[Section, ...]]

_TEXT: dict[str, Callable[[str], Parsed]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), read_markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".txt", ".text", ""), read_text),
    ".rst": read_rst,
    ".ipynb": read_notebook,
    ".py": read_python,
}
_BINARY: dict[str, Callable[[IO[bytes]], Parsed]] = {
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".pptx": read_pptx,
    ".epub": read_epub,
}
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
FORMATS = (*(suffix for suffix in _TEXT if suffix), *_BINARY, *_TABLES)
"""Suffixes that are read; the text formats and tables but parquet also as gzip, all in a zip."""

LARGEST_TEXT = 100_000_000
"""Bytes of a file that is one document; a larger one is a dump, to be split or made a table."""

LARGEST_BINARY = 1_000_000_000
"""Bytes of a pdf or an office file."""

CHARACTERS = 1_000_000_000
"""Characters of all documents together; they are held in memory later."""

_REMEDIES = {
    "no text (a scan?)": "run scans through OCR first",
    "too large": f"split files of more than {LARGEST_TEXT // 10**6} MB (office files and pdf: "
    f"{LARGEST_BINARY // 10**6} MB), or write a csv or jsonl with a row a document",
    "broken": "see whether its own program opens what is broken, and save it anew",
    "broken archive": "pack or download the archive again",
    "secret": "rename what is no secret",
}

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[\w+/=\s:,-]{200}")
_BROKEN = (
    OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError, RecursionError, KeyError,
    AttributeError, TypeError, MemoryError,
)  # fmt: skip


@dataclass(slots=True)
class Skipped:
    """How many files were passed over for one reason, and the first five of them."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ReadReport:
    """What was read and what was not.

    Attributes:
        characters: characters of their text, titles and headings aside.
        encodings: how many text files are in each encoding.
        columns: for each table, which columns were read as what.
    """

    files: int = 0
    documents: int = 0
    characters: int = 0
    skipped: dict[str, Skipped] = field(default_factory=dict)
    encodings: dict[str, int] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)

    def skip(self, reason: str, name: str) -> None:
        """Count a file, or a row of a table, that was passed over."""
        found = self.skipped.setdefault(reason, Skipped())
        found.count += 1
        if len(found.examples) < 5 and name not in found.examples:
            found.examples.append(name)

    def lines(self) -> list[str]:
        """The report for a person, a line each."""
        shown = [
            f"{self.documents:,} documents of {self.files:,} files, {self.characters:,} characters"
        ]
        others = {name: n for name, n in self.encodings.items() if name != "utf-8"}
        if others:
            listed = ", ".join(f"{n:,} in {name}" for name, n in sorted(others.items()))
            shown.append(f"not in UTF-8: {listed}")
        shown += [f"{name}: {columns}" for name, columns in list(self.columns.items())[:5]]
        for reason, found in self.skipped.items():
            more = ", ..." if found.count > len(found.examples) else ""
            shown.append(f"skipped {found.count:,}, {reason}: {', '.join(found.examples)}{more}")
        return shown


class Documents(Protocol):
    """Documents that can be read anew, in the same order; ``str`` of them says where they are.

    Attributes:
        report: of the last iteration that ended, or of the one that is under way.
    """

    report: ReadReport

    def __iter__(self) -> Iterator[Document]:
        """Read all documents."""
        ...


class DocumentSource:
    """The documents of a folder, an archive or a file, see :class:`Documents`.

    Attributes:
        report: of the last iteration that ended, or of the one that is under way.
    """

    def __init__(self, source: Path, columns: Sequence[str] | None, characters: int) -> None:
        self.source = source
        self.columns = columns
        self.report = ReadReport()
        self._characters = characters
        self._lacking: tuple[str, NoSuchColumn] | None = None
        self._missing: MissingExtraError | None = None

    def __str__(self) -> str:
        return str(self.source)

    def __iter__(self) -> Iterator[Document]:
        """Read all documents."""
        report = self.report = ReadReport()
        seen = set[str]()
        self._lacking = self._missing = None
        with progress.task("Reading documents", None, "files") as advance:
            for entry in entries(self.source, report.skip):
                if report.characters > self._characters:
                    limit = f"beyond {self._characters:,} characters; choose a smaller source"
                    report.skip(limit, entry.name)
                    continue
                before = report.documents
                for document in self._guarded(entry):
                    if document.id in seen:  # two names of bytes that are no text read alike
                        document = replace(document, id=f"{document.id}~{report.documents + 1}")
                    seen.add(document.id)
                    report.documents += 1
                    report.characters += sum(
                        len(text) for section in document.sections for text in section.paragraphs
                    )
                    yield document
                report.files += report.documents > before
                advance(documents=report.documents)
        lacking: tuple[str, NoSuchColumn] | None = self._lacking
        if lacking is not None and not report.columns:
            name, lack = lacking
            problem = f"no such column in {name}"
            raise OptionError("--columns", lack.args[0], problem, choices=lack.args[1])
        if report.documents == 0:
            raise self._missing or InputError(self.source, _nothing(report))

    def _guarded(self, entry: Entry) -> Iterator[Document]:
        """The documents of a file, as far as it can be read."""
        report = self.report
        try:
            yield from self._documents(entry)
        except MissingExtraError as error:
            self._missing = self._missing or error
            report.skip(f"unread: {error}", entry.name)
        except NoSuchColumn as error:
            self._lacking = self._lacking or (entry.name, error)
            report.skip("table without the chosen columns", entry.name)
        except PermissionError:
            report.skip("unreadable", entry.name)
        except _Skip as skip:
            report.skip(skip.args[0], entry.name)
        except (InputError, *_BROKEN):
            report.skip("broken", entry.name)

    def _documents(self, entry: Entry) -> Iterator[Document]:
        suffix = entry.suffix
        if entry.size == 0:
            raise _Skip("empty")
        if suffix in _TABLES:
            yield from self._rows(entry)
            return
        if suffix in _TEXT:
            title, sections = self._text(entry)
        elif suffix in _BINARY:
            content = in_memory(entry, LARGEST_BINARY)
            if content is None:
                raise _Skip("too large")
            title, sections = _BINARY[suffix](content)
        else:
            raise _Skip("unknown type")
        if not sections:
            raise _Skip("no text (a scan?)" if suffix == ".pdf" else "empty")
        yield Document(entry.name, title, sections, docstring=suffix == ".py")

    def _text(self, entry: Entry) -> Parsed:
        content = in_memory(entry, LARGEST_TEXT)
        if content is None:
            raise _Skip("too large")
        try:
            text, encoding = decode(content.getvalue())
        except ValueError:
            raise _Skip("unknown type" if not entry.suffix else "no text but binary") from None
        if _PRIVATE_KEY.search(text):
            raise _Skip("secret")
        self._count(encoding)
        return _TEXT[entry.suffix](text)

    def _count(self, encoding: str) -> None:
        self.report.encodings[encoding] = self.report.encodings.get(encoding, 0) + 1

    def _rows(self, entry: Entry) -> Iterator[Document]:
        with entry.open() as stream:
            rows = self._table(entry, stream)
            try:
                columns, found = read_rows(
                    rows, self.columns, lambda: self.report.skip("row without text", entry.name)
                )
            except ValueError:
                raise _Skip("table without a column of text") from None
            self.report.columns[entry.name] = str(columns)
            for identity, title, sections in found:
                yield Document(f"{entry.name}#{identity}", title, sections)
                if self.report.characters > self._characters:
                    raise _Skip(f"the rest, beyond {self._characters:,} characters")

    def _table(self, entry: Entry, stream: IO[bytes]) -> Iterator[Row | None]:
        if entry.suffix == ".parquet":
            return parquet_rows(stream, entry.name)
        if entry.suffix == ".json":
            content = in_memory(entry, LARGEST_TEXT)
            if content is None:
                raise _Skip("too large; write it as jsonl")
            value = json.loads(decode(content.getvalue())[0])
            if not isinstance(value, list):
                raise _Skip("JSON that is no list of rows")
            return iter([as_row(one) for one in value])
        try:
            encoding = sniff(stream)
        except ValueError:
            raise _Skip("no text but binary") from None
        self._count(encoding.replace("_", "-").removesuffix("-sig"))
        lines = _lines(stream, encoding)
        if entry.suffix in (".jsonl", ".ndjson"):
            return jsonl_rows(lines)
        return csv_rows(
            (line.replace("\0", "") for line in lines), "," if entry.suffix == ".csv" else "\t"
        )


def _lines(stream: IO[bytes], encoding: str) -> Iterator[str]:
    with TextIOWrapper(stream, encoding=encoding, errors="replace", newline="") as text:
        while line := text.readline(LONGEST):
            yield line


class _Skip(Exception):
    """A file is passed over; ``args`` are the reason."""


def _nothing(report: ReadReport) -> str:
    if not report.skipped:
        return f"the folder is empty; put documents there, such as {', '.join(FORMATS[:6])}"
    reasons = ", ".join(f"{found.count:,} {reason}" for reason, found in report.skipped.items())
    remedies = [remedy for reason, remedy in _REMEDIES.items() if reason in report.skipped]
    if not remedies or "unknown type" in report.skipped:
        remedies.append(f"read are {', '.join(FORMATS)}")
    return f"no text to read; skipped: {reasons}; {'; '.join(remedies)}"


def open_documents(
    source: str | Path, *, columns: Sequence[str] | None = None, characters: int = CHARACTERS
) -> DocumentSource:
    """Find the documents of a source; they are read when the result is iterated."""
    path = Path(source)
    if not path.exists():
        raise InputError(source, missing(path))
    if columns is not None and not columns:
        raise OptionError("--columns", list(columns), "choose at least one column")
    return DocumentSource(path, columns, characters)
