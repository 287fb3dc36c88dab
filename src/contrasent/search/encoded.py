"""Rows whose vectors are there already: parquet files as ``contrasent encode`` writes them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from contrasent.encoding.table import KEY
from contrasent.errors import InputError, ModelError, OptionError
from contrasent.search.records import ALL
from contrasent.text.sources import Source, find
from contrasent.text.tables import parquet_file
from contrasent.types import Vectors

VECTOR, TEXT, ID, SCALE = "vector", "text", "id", "scale"


class Block(NamedTuple):
    """Rows with their vectors (n, d)."""

    vectors: Vectors
    texts: list[str]
    ids: list[str]
    metadata: list[Any]


class EncodedRecords:
    """Rows of parquet files in the order of their names; ``vector`` holds lists of one length.

    Files without texts make an index that finds ids; without ids the rows are numbered. ``model``:
    identity of the model that made the vectors; None where the files name none.
    """

    def __init__(
        self,
        source: str,
        *,
        text: str | None = None,
        identity: str | None = None,
        metadata: Sequence[str] = (),
    ) -> None:
        self.source, self.skipped, self.files = source, 0, find(source)
        models, names = set(), list[str]()
        chosen = [] if list(metadata) == [ALL] else [("--metadata", name) for name in metadata]
        for file in self.files:
            with _opened(file) as opened:
                schema = opened.schema_arrow
            names = schema.names
            if VECTOR not in names:
                raise InputError(file.shown, f"has no column {VECTOR!r}, but {', '.join(names)}")
            for option, name in [("--column", text), ("--id", identity), *chosen]:
                if name not in (None, *names):
                    problem = f"no such column in {file.shown}"
                    raise OptionError(option, name, problem, choices=names)
            models.add(_model_of(schema.metadata or {}))
        if len(models) > 1:
            listed = " and ".join(sorted(map(repr, models)))
            raise InputError(source, f"holds vectors of several models, {listed}")
        self.model = models.pop()
        self.text = text or (TEXT if TEXT in names else None)
        self.identity = identity or (ID if ID in names else None)
        self.scale = SCALE if SCALE in names and SCALE not in metadata else None
        own = (VECTOR, self.text, self.identity, self.scale)
        others = [name for name in names if name not in own]
        self.metadata = others if list(metadata) == [ALL] else list(metadata)

    def check(self, identity: str, model: str) -> None:
        """Reject the files where they cannot make the index."""
        if self.model not in (None, identity):
            raise ModelError(
                f"{self.source} holds vectors of model {self.model!r} and {model} is {identity!r}: "
                "their vectors cannot be compared; use the first, or encode the texts again"
            )

    def blocks(self, batch: int) -> Iterator[Block]:
        """The rows with their vectors, read a batch at a time."""
        first = 0
        wanted = {VECTOR, self.text, self.identity, self.scale, *self.metadata} - {None}
        for file in self.files:
            with _opened(file) as opened:
                for part in opened.iter_batches(batch, columns=sorted(map(str, wanted))):
                    where = f"{file.shown}, rows up to {first + len(part):,}"
                    yield Block(_vectors(part, where), *self._columns(part, where, first))
                    first += len(part)

    def _columns(self, part: Any, where: str, first: int) -> tuple[list[str], list[str], list[Any]]:
        """Texts, ids and metadata of rows of a file, ``first`` the number of the first."""
        texts, ids = [""] * len(part), [str(first + at) for at in range(len(part))]
        extra: list[Any] = [None] * len(part)
        if self.text is not None:
            texts = [_string(value, "text", where) for value in part[self.text].to_pylist()]
        if self.identity is not None:
            ids = [_string(value, "id", where) for value in part[self.identity].to_pylist()]
        if self.metadata:  # values that JSON does not know, such as dates, become strings
            table = part.select(list(self.metadata)).to_pylist()
            extra = [json.loads(json.dumps(row, default=str)) for row in table]
        return texts, ids, extra


@contextmanager
def _opened(file: Source) -> Iterator[Any]:
    if file.form != ".parquet":
        problem = "vectors are read from parquet, as contrasent encode writes it"
        raise InputError(file.shown, problem)
    with parquet_file(file) as opened:
        yield opened


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
        raise InputError(where, f"column {VECTOR!r} holds {kind}, no lists of float or int8")
    flat = column.flatten().to_numpy(zero_copy_only=False)
    if column.null_count or len(pc.unique(pc.list_value_length(column))) > 1:
        raise InputError(where, "a row has no vector, or one of another length")
    vectors: Vectors = flat.reshape(len(part), -1).astype(np.float32)
    if kind.value_type == pa.int8() and SCALE in part.schema.names:
        vectors *= part[SCALE].to_numpy().astype(np.float32)[:, None]
    return vectors


def _string(value: Any, what: str, where: str) -> str:
    if isinstance(value, str) or (what == "id" and isinstance(value, int)):
        return str(value)
    raise InputError(where, f"{what} {value!r} is no text")
