"""The rows of documents, and an index that follows its documents: only what changed is encoded."""

from collections.abc import Iterable
from typing import Any

from contrasent.documents.folder import file_of
from contrasent.documents.passages import CountTokens, cut
from contrasent.documents.sections import Document
from contrasent.search.writer import IndexRow

FileFacts = dict[str, Any]
"""Facts of a file: size, modified and digest; rows, or why it was skipped."""


def document_rows(
    documents: Iterable[Document], files: dict[str, FileFacts], count: CountTokens, max_tokens: int
) -> list[IndexRow]:
    """A row a passage; their numbers are put into the facts of the files that were read."""
    rows = [passage.row for passage in cut(documents, count, max_tokens)]
    count_rows(files, rows)
    return list(rows)


def count_rows(files: dict[str, FileFacts], rows: Iterable[IndexRow]) -> None:
    """Put the number of rows of each file into its facts."""
    for facts in files.values():
        facts["rows"] = 0
    for _, _, about in rows:
        name = file_of(about["document"], files)
        if name in files:
            files[name]["rows"] += 1
