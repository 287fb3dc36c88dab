"""The rows of an index: passages of documents, or rows of tables; the choice is made here."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from contrasent.documents.folder import DocumentSource, file_of
from contrasent.documents.parsers import TEXT_LIMIT
from contrasent.documents.passages import CountTokens, cut
from contrasent.documents.sections import Document
from contrasent.errors import InputError
from contrasent.search.records import EncodedRecords, IndexRow, Records
from contrasent.text.sources import find, form_of
from contrasent.text.tables import column as by_position

FileFacts = dict[str, Any]
"""Facts of a file: size, modified and digest; its rows, or why it was skipped."""


class TableColumns(NamedTuple):
    """The columns of a table to index.

    Attributes:
        text: column of the texts, by name or position; by its name or contents if None.
        identity: column of the ids; row numbers if None.
        metadata: columns to keep as metadata; ("*",) for all others.
        encoded: the rows are parquet with vectors, as ``contrasent encode`` writes it.
    """

    text: str | None = None
    identity: str | None = None
    metadata: Sequence[str] = ()
    encoded: bool = False

    def read(self, source: str) -> Records | EncodedRecords:
        """The rows of a table, or of parquet with their vectors."""
        if self.encoded:
            given = {"text": self.text, "identity": self.identity}
            return EncodedRecords(source, **given, metadata=self.metadata)
        text, identity, others = by_position(self.text), by_position(self.identity), self.metadata
        return Records(
            source, text=text, identity=identity, metadata=[by_position(name) for name in others]
        )


def open_source(
    source: str | Path, table: TableColumns, *, max_file_text: int = TEXT_LIMIT
) -> DocumentSource | Records | EncodedRecords:
    """Choose how to read a source: as a table, a text a row, or as documents.

    A table is one by its suffix or by its lines; if any of its columns is chosen, the files of a
    folder are tables too. The tables among documents have a document a row.
    """
    if table != TableColumns() or is_table(source):
        return table.read(str(source))
    return DocumentSource(source, most=max_file_text)


def is_table(source: str | Path) -> bool:
    """Whether a source is a table or lines: a document has paragraphs between blank lines."""
    path = Path(source)
    if str(source) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
        return True
    form = form_of(path) if path.is_file() else None
    if form != ".txt":
        return form is not None
    with suppress(InputError):
        (file,) = find(path)
        lines = [line.isspace() for _, line in islice(file.lines(), 1000)]
        return sum(lines) < len(lines) / 10
    return False


def document_rows(
    documents: Iterable[Document], files: dict[str, FileFacts], count: CountTokens, max_tokens: int
) -> list[IndexRow]:
    """A row for each passage; their numbers are put into the facts of the files."""
    rows: list[IndexRow] = list(cut(documents, count, max_tokens))
    count_rows(files, rows)
    return rows


def count_rows(files: dict[str, FileFacts], rows: Iterable[IndexRow]) -> None:
    """Put the number of rows of each file into its facts."""
    for facts in files.values():
        facts["rows"] = 0
    for _, _, about in rows:
        name = file_of(about["document"], files)
        if name in files:
            files[name]["rows"] += 1


def first_paragraphs(documents: Sequence[Document]) -> Iterator[str]:
    """Some text of each document, by which its language is known, first of one in each file."""
    seen = Counter[str]()
    numbered: list[tuple[int, Document]] = []
    for document in documents:
        file = document.id.partition("#")[0]
        numbered.append((seen[file], document))
        seen[file] += 1
    random.Random(0).shuffle(numbered)  # a folder in another language is not all there is
    for _, document in sorted(numbered, key=itemgetter(0)):
        for section in document.sections[:2]:
            yield from section.paragraphs[:2]
