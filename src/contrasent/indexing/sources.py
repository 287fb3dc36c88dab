"""The rows of an index: passages of documents, or rows of tables; the choice is made here."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from contrasent.documents.folder import DocumentSource, file_of
from contrasent.documents.parsers import TEXT_LIMIT
from contrasent.documents.passages import CountTokens, cut
from contrasent.documents.sections import Document
from contrasent.errors import InputError
from contrasent.indexing.models import LONGEST, SAMPLE, sampled
from contrasent.search.records import EncodedRecords, IndexRow, Records, TableColumns
from contrasent.text.sources import find, form_of

FileFacts = dict[str, Any]
"""Facts of a file: size, modified and digest; its rows, or why it was skipped."""


def open_source(
    source: str | Path,
    table: TableColumns,
    *,
    max_file_text: int = TEXT_LIMIT,
    **given: Any,
) -> DocumentSource | Records | EncodedRecords:
    """Choose how to read a source: as documents, or as one text per row.

    Lines are rows, and so are tables, or files of a folder, whose column of texts, ids or metadata
    is named. Any other table has one document per row, like those in folders. ``given``: how
    documents are chosen and read, as :class:`DocumentSource` takes it.
    """
    if table._replace(columns=()) != TableColumns() or is_lines(source):
        return table.read(str(source))
    return DocumentSource(source, columns=table.columns or None, most=max_file_text, **given)


def is_lines(source: str | Path) -> bool:
    """True if a source has one text per line: documents have blank lines between paragraphs."""
    path = Path(source)
    if str(source) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
        return True
    if path.is_file() and form_of(path) == ".txt":
        with suppress(InputError):
            (file,) = find(path)
            lines = [line.isspace() for _, line in islice(file.lines(), 1000)]
            return sum(lines) < len(lines) / 10
    return False


def document_rows(
    documents: Iterable[Document],
    files: dict[str, FileFacts],
    count: CountTokens,
    max_seq_length: int,
) -> list[IndexRow]:
    """A row for each passage; their count goes into the facts of the files."""
    rows: list[IndexRow] = list(cut(documents, count, max_seq_length))
    count_rows(files, rows)
    return rows


def count_rows(files: dict[str, FileFacts], rows: Iterable[IndexRow]) -> None:
    """Record the number of rows of each file in its facts."""
    for facts in files.values():
        facts["rows"] = 0
    for _, _, about in rows:
        name = file_of(about["document"], files)
        if name in files:
            files[name]["rows"] += 1


def document_texts(documents: Sequence[Document]) -> tuple[Iterator[str], list[str]]:
    """Texts that show the language of each document, and one text of each of a thousand files."""
    of_files = {document.id.partition("#")[0]: document for document in reversed(documents)}
    return map(_opening, documents), [_opening(one) for one in sampled(of_files.values(), SAMPLE)]


def _opening(document: Document) -> str:
    texts = (text for section in document.sections[:5] for text in section.paragraphs[:5])
    return "\n".join(texts)[:LONGEST]
