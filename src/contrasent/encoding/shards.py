"""Vectors in files: shards of a job in parquet, and single files from a stream of texts."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, import_extra
from contrasent.files import atomic_file
from contrasent.types import Vectors


def write_vectors(
    target: Path, blocks: Iterable[tuple[Sequence[str], Vectors]], dimension: int
) -> int:
    """Write texts and their vectors (n, d) as .npy or .parquet, a block at a time; the rows."""
    rows = 0
    with atomic_file(target, "wb") as stream:
        if target.suffix == ".parquet":
            with TableWriter(stream, dimension, ids=False, texts=True) as writer:
                for texts, vectors in blocks:
                    writer.append(vectors, texts=texts)
                    rows += len(texts)
                writer.finish({"dimension": dimension})
            return rows
        _write_header(stream, 0, dimension)
        for texts, vectors in blocks:
            stream.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
            rows += len(texts)
        stream.seek(0)
        _write_header(stream, rows, dimension)  # as long as the first: numpy leaves room to grow
    return rows


def _write_header(stream: IO[bytes], rows: int, dimension: int) -> None:
    facts = {"descr": "<f4", "fortran_order": False, "shape": (rows, dimension)}
    np.lib.format.write_array_header_1_0(stream, facts)


# Columns of a table: id, text (on request), vector (float32, float16, int8, or uint8 with the signs
# as bits, the first dimension highest) and, of int8, scale. The footer has JSON under `contrasent`.

GROUP = 25_000  # rows a row group: some 40 MB of 384 dimensions, what a reader holds at least
KEY = "contrasent"


Pack = Callable[[Vectors], tuple[NDArray[Any], Vectors | None]]
"""From vectors (n, d) to the numbers (n, width) that are stored and, of some, scales (n,)."""


def to_int8(vectors: Vectors) -> tuple[NDArray[np.int8], Vectors]:
    """The nearest multiples (n, d) of a row's largest magnitude / 127, and that scale (n,)."""
    scales = np.abs(vectors).max(axis=1) / np.float32(127)
    safe = np.where(scales > 0, scales, np.float32(1))
    # The smallest floats are so coarse that a scale of theirs may be far too small.
    steps = np.clip(np.rint(vectors / safe[:, None]), -127, 127)
    return steps.astype(np.int8), scales.astype(np.float32)


TYPES: dict[str, tuple[str, Pack]] = {
    "float32": ("float", lambda v: (v, None)),
    "float16": ("halffloat", lambda v: (v.astype(np.float16), None)),
    "int8": ("int8", to_int8),
    "binary": ("uint8", lambda v: (np.packbits(v > 0, axis=1), None)),
}
"""By the name that ``--dtype`` takes: the numbers' type in Arrow, and how they are made."""


class TableWriter:
    """A context that writes one such file, a row group at a time, and releases the stream."""

    def __init__(
        self,
        stream: IO[bytes],
        dimension: int,
        dtype: str = "float32",
        *,
        ids: bool = True,
        texts: bool = False,
    ) -> None:
        pa = import_extra("pyarrow", "parquet", "writing parquet")
        import pyarrow.parquet as pq

        kind, self._pack = TYPES[dtype]
        width = -(-dimension // 8) if dtype == "binary" else dimension
        vector = pa.list_(pa.type_for_alias(kind), width)
        columns = [("id", pa.string())] * ids + [("text", pa.string())] * texts
        columns += [("vector", vector)] + [("scale", pa.float32())] * (dtype == "int8")
        self._schema = pa.schema(columns)
        strings = [name for name, kind in columns if kind == pa.string()]
        self._writer = pq.ParquetWriter(
            stream,
            self._schema,
            write_page_index=True,
            use_dictionary=False,
            # Numbers from a network do not compress.
            compression={name: "zstd" for name in strings} | {"vector.list.element": "none"},
        )

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def append(
        self, vectors: Vectors, *, ids: Sequence[str] = (), texts: Sequence[str] = ()
    ) -> None:
        """Write rows, as one row group if they are no more than fit."""
        import pyarrow as pa

        numbers, scales = self._pack(vectors)
        kind = self._schema.field("vector").type
        flat = pa.array(np.ascontiguousarray(numbers).reshape(-1), kind.value_type)
        columns = {"id": ids, "text": texts, "scale": scales}
        arrays = [
            pa.FixedSizeListArray.from_arrays(flat, type=kind)
            if field.name == "vector"
            else pa.array(columns[field.name], field.type)
            for field in self._schema
        ]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=GROUP)

    def finish(self, facts: dict[str, Any]) -> None:
        """End the file."""
        self._writer.add_key_value_metadata({KEY: json.dumps(facts, ensure_ascii=False)})
        self._writer.close()


def read_facts(stream: IO[bytes], source: str) -> tuple[dict[str, Any], int]:
    """The object in a file's footer, and its number of rows."""
    pa = import_extra("pyarrow", "parquet", f"reading {source}")
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(stream)
        facts = json.loads((footer.metadata or {})[KEY.encode()])
        if not isinstance(facts, dict):
            raise ValueError("its footer is not an object")
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise InputError(source, f"is not a complete file of vectors ({error})") from error
    return facts, int(footer.num_rows)
