"""Rows to index: of tables, texts to be encoded; or of parquet, with the vectors of ``encode``."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contrasent.encoding.shards import KEY
from contrasent.errors import InputError, ModelError, OptionError, UserError, see
from contrasent.search.filters import NUL
from contrasent.search.store import NewRows
from contrasent.text.columns import document_roles, spoken, text_column
from contrasent.text.sources import Source, find
from contrasent.text.tables import (
    ABSENT,
    Table,
    brief,
    column,
    id_cell,
    is_empty,
    open_tables,
    parquet_file,
    text_cell,
)
from contrasent.types import Vectors, batched

ALL = "*"
VECTOR, TEXT, ID, SCALE = "vector", "text", "id", "scale"
IndexRow = tuple[str, str | None, Any]
"""A text, its id (None: the number of the row), its metadata (None: none)."""


def blocks(rows: "Iterable[IndexRow] | EncodedRecords", size: int) -> Iterator[NewRows]:
    """Rows some at a time; those without an id have their number."""
    if isinstance(rows, EncodedRecords):
        yield from rows.blocks(size)
        return
    for block, part in enumerate(batched(rows, size)):
        texts, ids, metadata = map(list, zip(*part, strict=True))
        numbered = enumerate(ids, block * size)
        names = [str(n) if name is None else name for n, name in numbered]
        yield NewRows(texts, None, names, metadata)


class TableColumns(NamedTuple):
    """The columns of a table to index, by name or position."""

    text: str | None = None  # found by name or contents if None
    columns: Sequence[str] = ()  # several instead, the titles' first
    identity: str | None = None  # row numbers if None
    metadata: Sequence[str] = ()  # ("*",) for all others
    encoded: bool = False  # whether the rows are parquet with vectors

    def read(self, source: str) -> "Records | EncodedRecords":
        """The rows of a table, or of parquet with their vectors."""
        if self.encoded:
            return EncodedRecords(source, self)
        try:
            return Records(source, self)
        except UserError as error:
            if not Path(source).is_dir():
                raise
            problem = "--id, --column and --metadata read a folder as tables; omit them for"
            raise UserError(f"{error} ({problem} documents, or name a table)") from error


class Records:
    """Rows of files, reread at every iteration; ``skipped``: those without text in the last one."""

    def __init__(self, source: str, columns: TableColumns) -> None:
        self.skipped, self._first = 0, ""
        named = (*columns.columns, *([] if columns.text is None else [columns.text]))
        texts, metadata = ([column(one) for one in names] for names in (named, columns.metadata))
        identity = column(columns.identity)
        wanted = [*texts, identity, *(name for name in metadata if name != ALL)]
        # With metadata, since rows of jsonl may lack some.
        tables = open_tables(find(source), wanted, all_keys=bool(metadata), join=True)
        self.tables = [
            _columns(table, texts, identity, metadata)
            for table in tables
            if table.first is not None
        ]
        if not self.tables:
            raise InputError(source, "contains no text")

    @property
    def metadata(self) -> list[str]:
        """The columns that are kept as metadata."""
        names = (table.columns[at] for table, *_, places in self.tables for at in places)
        return list(dict.fromkeys(names))

    @property
    def roles(self) -> list[str]:
        """The role of every column, a line for each kind of table."""
        lines = []
        for table, texts, identity, metadata in self.tables:
            parts = [("title" if at in texts[:-1] else "text", at) for at in texts]
            parts += [] if identity is None else [("id", identity)]
            parts += [("metadata", at) for at in metadata]
            lines += [spoken(table.columns, parts)] if len(table.columns) > 1 else []
        return list(dict.fromkeys(lines))

    def notes(self) -> list[str]:
        """A line about the rows that the last iteration skipped, if there were some."""
        line = f"{self.skipped:,} rows skipped: no text (first: {self._first})"
        return [line] if self.skipped else []

    def __iter__(self) -> Iterator[IndexRow]:
        self.skipped, self._first, seen = 0, "", set[str | None]()
        for table, texts, identity, metadata in self.tables:
            names = [table.columns[column] for column in metadata]
            text_name = table.columns[texts[-1]] if table.names else ""
            chosen = (*texts, *(() if identity is None else (identity,)), *metadata)
            count = len(texts)
            for number, cells in table.rows(chosen):
                if not cells or is_empty(cells[count - 1]):
                    self.skipped += 1
                    self._first = self._first or f"{table.source}:{number}"
                    continue
                content = text_cell(cells[count - 1], text_name, table.source, number)
                above = [one.strip() for one in cells[: count - 1] if isinstance(one, str)]
                content = "\n".join(filter(None, (*above, content)))
                name = None if identity is None else id_cell(cells[count], table.source, number)
                if name in seen:
                    problem = f"id {name!r} is repeated; each row needs an id of its own"
                    raise InputError(table.source, problem, line=number)
                if name is not None:
                    seen.add(name)
                values = zip(names, cells[len(cells) - len(names) :], strict=True)
                extra = {name: value for name, value in values if value is not ABSENT}
                yield content, name, _plain(extra, table.source, number) if names else None


def _plain(value: Any, source: str, line: int | None = None) -> Any:
    """A value as JSON keeps it, of whole characters; other types, such as dates, become strings."""
    try:
        text = json.dumps(value, default=str, allow_nan=False, ensure_ascii=False)
        return json.loads(NUL.sub(r"\1", text).encode(errors="ignore"))
    except ValueError as error:
        problem = f"metadata {brief(value)} holds NaN or infinity, which is not JSON; make it null"
        raise InputError(source, problem, line=line) from error


def _columns(
    table: Table,
    texts: Sequence[str | int],
    identity: str | int | None,
    metadata: Sequence[str | int],
) -> tuple[Table, list[int], int | None, list[int]]:
    """Positions of title and texts, by default as in documents, and of id and metadata."""
    option = "--column" if len(texts) == 1 else "--columns"
    places = [table.position(text, option) for text in texts]
    if not texts:
        roles = [(role, at) for role, at in document_roles(table) if role in ("text", "title")]
        if any(role == "text" for role, _ in roles):
            main = next(at for role, at in roles if role == "text")
            places = [at for role, at in roles if role == "title"]
            places += [at for role, at in roles if role == "text" and at != main] + [main]
    places = places or [text_column(table)]
    name = None if identity is None else table.position(identity, "--id")
    if list(metadata) == [ALL]:
        others = [n for n in range(len(table.columns)) if n not in (*places, name)]
    else:
        others = [table.position(column, "--metadata") for column in metadata]
    return table, places, name, others


class EncodedRecords:
    """Rows of parquet files in the order of their names; ``vector`` holds lists of one length.

    Files without texts make an index that finds ids; without ids the rows are numbered.
    """

    def __init__(self, source: str, columns: TableColumns) -> None:
        if columns.columns:
            problem = "is for tables without vectors, whose texts have one column"
            raise OptionError("--columns", list(columns.columns), problem)
        text, identity, metadata = columns.text, columns.identity, list(columns.metadata)
        self.source, self.files = source, find(source)
        schemas = [_schema(file) for file in self.files]
        names = [*dict.fromkeys(name for schema in schemas for name in schema.names)]
        self.text = text or (TEXT if TEXT in names else None)
        self.identity = identity or (ID if ID in names else None)
        self.scale = SCALE if SCALE in names and SCALE not in metadata else None
        used = (VECTOR, self.text, self.identity, self.scale)
        all_others = metadata == [ALL]
        self.metadata = [name for name in names if name not in used] if all_others else metadata
        self._read = [*dict.fromkeys(name for name in (*used, *self.metadata) if name)]
        options = dict.fromkeys(() if all_others else metadata, "--metadata")
        options |= {name: "--id" for name in [identity] if name}
        options |= {name: "--column" for name in [text] if name}
        for file, schema in zip(self.files, schemas, strict=True):
            for name in self._read:
                if name in schema.names:
                    continue
                if name in options:
                    problem = f"unknown column of {file.shown}"
                    raise OptionError(options[name], name, problem, choices=schema.names)
                others = f"which other files of {source} have; index them separately, or add it"
                there = others if name in names else f"but {', '.join(schema.names)}"
                raise InputError(file.shown, f"has no column {name!r}, {there}")
        models = {_model_of(schema.metadata or {}) for schema in schemas}
        if len(models) > 1:
            listed = " and ".join(sorted(map(repr, models)))
            raise InputError(source, f"contains vectors of several models, {listed}")
        self.model = models.pop()  # its identity; None where the files name none

    def check(self, identity: str, model: str) -> None:
        """Reject vectors of another model."""
        if self.model not in (None, identity):
            raise ModelError(
                f"{self.source} holds vectors of model {self.model!r} and {model} is {identity!r}: "
                "vectors of different models cannot be compared; use the first, or encode the "
                "texts again"
                f"{see('another-model')}"
            )

    def blocks(self, size: int) -> Iterator[NewRows]:
        """The rows with their vectors."""
        first = 0
        for file in self.files:
            with _opened(file) as opened:
                for part in opened.iter_batches(size, columns=self._read):
                    where = f"{file.shown}, rows up to {first + len(part):,}"
                    texts, ids = [""] * len(part), [str(first + n) for n in range(len(part))]
                    extra: list[Any] = [None] * len(part)
                    if self.text is not None:
                        texts = _strings(part[self.text], "text", where)
                    if self.identity is not None:
                        ids = _strings(part[self.identity], "id", where)
                    if self.metadata:
                        metadata = part.select(self.metadata).to_pylist()
                        extra = [_plain(row, where) for row in metadata]
                    yield NewRows(texts, _vectors(part, where), ids, extra)
                    first += len(part)


@contextmanager
def _opened(file: Source) -> Iterator[Any]:
    if file.form != ".parquet":
        problem = "vectors are read from parquet, as contrasent encode writes it"
        raise InputError(file.shown, problem)
    with parquet_file(file) as opened:
        yield opened


def _schema(file: Source) -> Any:
    with _opened(file) as opened:
        return opened.schema_arrow


def _model_of(metadata: dict[bytes, bytes]) -> str | None:
    try:
        return str(json.loads(metadata[KEY.encode()])["model"])
    except (ValueError, KeyError, TypeError):
        return None


def _vectors(part: Any, where: str) -> Vectors:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = part[VECTOR]
    kind = column.type
    lists = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)
    if not lists or not (pa.types.is_floating(kind.value_type) or kind.value_type == pa.int8()):
        raise InputError(where, f"column {VECTOR!r} contains {kind}, not lists of float or int8")
    flat = column.flatten().to_numpy(zero_copy_only=False)
    if column.null_count or len(pc.unique(pc.list_value_length(column))) > 1:
        raise InputError(where, "a row has no vector, or one of the wrong length")
    vectors: Vectors = flat.reshape(len(part), -1).astype(np.float32)
    if kind.value_type == pa.int8() and SCALE in part.schema.names:
        vectors *= part[SCALE].to_numpy().astype(np.float32)[:, None]
    return vectors


def _strings(column: Any, what: str, where: str) -> list[str]:
    kinds = (str, int) if what == "id" else (str,)
    for value in (values := column.to_pylist()):
        if not isinstance(value, kinds):
            raise InputError(where, f"{what} {value!r} is not a text")
    return list(map(str, values))
