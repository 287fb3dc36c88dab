"""Changes to an existing index: another model, rows added, replaced or removed."""

import time
from collections import Counter
from collections.abc import Container, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contrasent import progress
from contrasent.documents.folder import file_of
from contrasent.errors import InputError, OptionError, texts_of
from contrasent.files import check_writable
from contrasent.indexing.build import IndexResult
from contrasent.indexing.following import FileFacts, own_folder
from contrasent.indexing.models import open_index_model
from contrasent.indexing.remaining import rest_encoder
from contrasent.model.base import TaskEncoder
from contrasent.model.opening import absolute_name, find_model, open_encoder
from contrasent.search.filters import Where, check_where
from contrasent.search.index import Index, document_of
from contrasent.search.opening import open_index, open_writer, reembed, resolve_index
from contrasent.search.records import ALL, Records, TableColumns, blocks
from contrasent.search.store import ROWS_AT_ONCE, Row
from contrasent.search.writer import Writer
from contrasent.types import forms_of, several


def change_model(
    index: str | Path,
    model: str | Path,
    *,
    pooling: str | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 64,
) -> IndexResult:
    """Encode an index again by another model, in place; texts, ids and metadata stay.

    Readers see the old vectors until the new ones are complete. What the index learned from queries
    and text is dropped. A call that was killed resumes when it is repeated.

    Args:
        index: folder of an index, or the output of ``adapt``.
        model: folder or name of the model.
        pooling: pooling of a plain encoder, whose folder does not name one.
        max_seq_length: cut texts at this many tokens; the model's own limit if None.
        batch_size: sentences in a forward pass.

    Raises:
        ModelError: the model cannot be opened.
        OutputError: the index is in Milvus, or cannot be written.
    """
    folder, began = own_folder(index), time.monotonic()
    with closing(Index.open(folder)) as before:
        rows, learned = len(before), before.ranker.uses_learned
        encoder = open_encoder(
            find_model(model), pooling=pooling, max_seq_length=max_seq_length, light=True
        )
        encode = rest_encoder(before, TaskEncoder(encoder, batch_size=batch_size))
        check_writable(folder, 8 * encoder.dimension * rows)
    updated = reembed(
        folder,
        encode,
        model=encoder.identity,
        source=absolute_name(str(model)),
        settings={"pooling": pooling, "max_seq_length": max_seq_length},
    )
    seconds = time.monotonic() - began
    # Passages are as long as the model can read that the documents were indexed by.
    again = "; index the source again to cut passages to fit" if updated.facts.origin else ""
    notes = tuple(f"{note}{again}" for note in encode.notes)
    if learned:
        notes += ("what was learned is dropped; 'contrasent adapt OUT --update' learns it again",)
    return IndexResult(folder, updated, str(model), encode.truncated, seconds, notes=notes)


def add_rows(
    index: str | Path,
    source: str | Path,
    *,
    update: bool = False,
    model: str | Path | None = None,
    column: str | None = None,
    columns: Sequence[str] = (),
    id_column: str | None = None,
    metadata: Sequence[str] = (),
    batch_size: int = 64,
) -> IndexResult:
    """Add the rows of a table to an index, or replace those with the same ids, in one transaction.

    Args:
        index: folder of an index. In Milvus, rows are written a block at a time.
        source: a table or a file of lines.
        update: replace rows whose ids are in the index; by default they are an error.
        model: folder or name of the index's model, if it has moved.
        column: column of the texts; see :func:`contrasent.index_folder`. Columns that are not
            given are those of the table that the index was made of.
        columns: several columns instead, the title first.
        id_column: column of the ids, required for ``update``; numbers if None.
        metadata: columns to keep as metadata.
        batch_size: sentences in a forward pass.

    Raises:
        OptionError: an id is in the index already, or ``update`` is without ids.
        ModelError: the model is not that of the index.
    """
    folder, began = resolve_index(index), time.monotonic()
    before = open_index(folder)
    if before.facts.origin and Path(source).is_dir():
        problem = "is a folder, and only rows of tables can be added; use --sync for documents"
        raise InputError(source, problem)
    known = before.facts.settings.get("table", {})
    columns = several(columns)
    if column is None and not columns:
        column, columns = known.get("column"), known.get("columns", ())
    id_column = known.get("id") if id_column is None else id_column
    metadata = several(metadata) or known.get("metadata", ())
    if update and id_column is None:
        raise OptionError("--upsert", True, "needs --id COLUMN, to identify the rows to replace")
    name = None if model is None else str(model)
    table = TableColumns(column, columns, id_column, metadata).read(str(source))
    assert isinstance(table, Records)
    lacking = [one for one in known.get("all", ()) if one not in table.metadata]
    if lacking and list(metadata) == [ALL]:
        problem = f"has no column {lacking[0]!r}, which the index keeps as metadata; add it, or "
        raise InputError(str(source), f"{problem}name the columns to keep by --metadata")
    encode = open_index_model(before, name, batch_size=batch_size)
    before.close()  # a reader would keep the log of the change
    with open_writer(folder) as writer, progress.task("index", unit="texts") as advance:
        for block in blocks(table, ROWS_AT_ONCE):
            ids = None if id_column is None else block.ids  # numbers that are free
            writer.write_rows(block._replace(vectors=encode, ids=ids), replace=update)
            advance(len(block.texts))
    seconds, notes = time.monotonic() - began, (*encode.notes, *table.notes())
    updated, blank = open_index(folder), table.skipped
    name = name or updated.facts.source
    return IndexResult(folder, updated, name, encode.truncated, seconds, blank, notes=notes)


class RemoveResult(NamedTuple):
    """The outcome of removing rows: how many were removed, and how many are left.

    Attributes:
        files: files whose rows were removed; a synchronization restores them only if the file
            changes.
    """

    removed: int
    left: int
    files: tuple[str, ...] = ()


def remove_rows(
    index: str | Path, ids: Sequence[str] = (), where: Where | None = None
) -> RemoveResult:
    """Remove rows of an index by ids, by documents and by metadata, in one transaction.

    Args:
        index: folder of an index.
        ids: rows to remove, or documents by their paths (not in Milvus).
        where: remove the rows whose metadata matches, such as ``{"year": {"$lt": 2024}}``.

    Raises:
        OptionError: an id is not in the index.
    """
    ids = texts_of("ids", ids)
    with open_writer(index) as writer:
        if isinstance(writer, Writer):
            return _remove(writer, ids, where)
        count = writer.delete(ids) if ids else 0
        if where is not None:
            count += writer.delete_where(where)
        return RemoveResult(count, len(writer))


def _is_part(row: Row, name: str, files: Container[str]) -> bool:
    """True if a row whose id begins with a name is a part of the document or table so called."""
    document = document_of(row.id, row.metadata)
    file = file_of(document, files)
    return document == name or (file in files and f"{name}#".startswith(f"{file}#"))


def _remove(writer: Writer, names: Sequence[str], where: Where | None) -> RemoveResult:
    """Remove rows, and note their files for the next synchronization."""
    numbers, files = set[int](), writer.store.files()

    def called(name: str) -> list[int]:
        (row,) = writer.store.numbers_of([name]).tolist()
        parts = (one.row for one in writer.store.rows_of(name) if _is_part(one, name, files))
        return [*parts] if row < 0 else [row]

    for name in names:
        found = next(filter(None, map(called, forms_of(name))), None)
        if found is None:
            problem = "is neither a row nor a document of the index"
            raise OptionError("ids", name, problem, choices=list(files))
        numbers.update(found)
    if where is not None:
        numbers.update(np.flatnonzero(writer.store.filtered(check_where(where))).tolist())
    rows = writer.store.rows(sorted(numbers))
    gone = Counter(file_of(document_of(row.id, row.metadata), files) for row in rows)
    changed: dict[str, FileFacts | None] = {
        name: files[name]
        | {"rows": files[name]["rows"] - count, "removed": files[name].get("removed", 0) + count}
        for name, count in gone.items()
        if name in files
    }
    writer.delete_rows(np.array(sorted(numbers), np.int64))
    if changed:
        writer.put_files(changed)
    return RemoveResult(len(numbers), len(writer.store), tuple(changed))
