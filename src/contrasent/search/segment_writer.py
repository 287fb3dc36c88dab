"""Writing a segment, block by block, of vectors or of texts that are encoded on the way.

:mod:`contrasent.search.segment` says what is in its files.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.search.checks import check_vectors
from contrasent.search.encoded import EncodedRecords
from contrasent.search.manifest import Part
from contrasent.search.segment import FLAT, Segment, Strings, open_array, open_strings
from contrasent.types import EncodeFn, batched, for_task

ROWS_AT_ONCE = 4096

IndexRow = tuple[str, str | None, Any]
"""A text, its id (None: the number of the row), its metadata (None: none)."""

IndexRows = Iterable[IndexRow] | EncodedRecords
"""Rows to encode, or rows with their vectors."""


class NpyWriter:
    """An ``.npy`` file that grows block by block; its header is completed by :meth:`finish`."""

    def __init__(self, stream: IO[bytes], dtype: str, width: int | None = None) -> None:
        self.stream, self.dtype, self.width, self.rows = stream, np.dtype(dtype), width, 0
        self._header()

    def _header(self) -> None:
        shape = (self.rows,) if self.width is None else (self.rows, self.width)
        self.stream.seek(0)
        np.lib.format.write_array_header_1_0(
            self.stream, {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        )

    def append(self, block: NDArray[Any]) -> None:
        """Write rows behind those already there."""
        self.stream.write(np.ascontiguousarray(block, dtype=self.dtype).tobytes())
        self.rows += len(block)

    def finish(self) -> None:
        """Write the header again, now with the row count; numpy leaves room for its digits."""
        self._header()
        self.stream.seek(0, os.SEEK_END)


class SegmentWriter:
    """Write a segment folder in blocks of rows, with memory for one block.

    Use as a context manager; :attr:`files` describes what was written once it is left.
    """

    def __init__(self, folder: Path, dimension: int) -> None:
        self.folder, self.rows, self.opened = folder, 0, ExitStack()
        self.vectors = NpyWriter(self._file("vectors.npy"), "<f4", dimension)
        self.hashes = NpyWriter(self._file("hashes.npy"), "<u8")
        self.data = {name: self._file(f"{name}.bin") for name in FLAT}
        self.offsets = {name: NpyWriter(self._file(f"{name}.npy"), "<i8") for name in FLAT}
        self.ends = dict.fromkeys(FLAT, 0)
        for writer in self.offsets.values():
            writer.append(np.zeros(1, dtype=np.int64))
        self.files: dict[str, dict[str, Any]] = {}

    def _file(self, name: str) -> IO[bytes]:
        return self.opened.enter_context((self.folder / name).open("wb"))

    def append(self, block: Segment) -> None:
        """Write a block of rows."""
        self.vectors.append(block.vectors)
        self.hashes.append(block.hashes)
        for name in FLAT:
            strings: Strings = getattr(block, name)
            first, last = strings.offsets[0], strings.offsets[-1]
            self.data[name].write(strings.data[first:last].tobytes())
            self.offsets[name].append(strings.offsets[1:] - first + self.ends[name])
            self.ends[name] += int(last - first)
        self.rows += len(block)

    def __enter__(self) -> "SegmentWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.opened:
            for writer in (self.vectors, self.hashes, *self.offsets.values()):
                writer.finish()
        if kind is None:
            self.files = {path.name: describe(path) for path in sorted(self.folder.iterdir())}


def describe(path: Path) -> dict[str, Any]:
    """Size and sha256 of a file, as the manifest keeps them; the file is flushed to disk."""
    with path.open("r+b") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        os.fsync(stream.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}


def write_segment(
    place: Path,
    dimension: int,
    blocks: Iterable[Segment],
    advance: Callable[[int], None] = lambda rows: None,
) -> Part:
    """Write blocks of rows as one segment into a new folder."""
    place.mkdir()
    with SegmentWriter(place, dimension) as writer:
        for block in blocks:
            writer.append(block)
            advance(len(block))
    return Part(place.name, writer.rows, writer.files)


def encoded_blocks(
    encode: EncodeFn, rows: IndexRows, metric: str, batch: int, skip: int = 0
) -> Iterator[Segment]:
    """Rows with their vectors, a batch at a time; those without an id have their number."""
    if isinstance(rows, EncodedRecords):
        yield from rows.blocks(metric, batch, skip)
        return
    first, dimension = skip, None
    read = for_task(encode, "document")
    for block in batched(islice(rows, skip, None), batch):
        texts = [text for text, _, _ in block]
        vectors = check_vectors(read(texts), len(texts), dimension, metric)
        dimension = int(vectors.shape[1])
        names = [str(first + at) if name is None else name for at, (_, name, _) in enumerate(block)]
        yield Segment.pack(vectors, texts, names, [value for _, _, value in block])
        first += len(block)


def refuse_duplicate_ids(place: Path, rows: int) -> None:
    """Reject a segment in which an id is there twice; ids are read only where hashes are equal."""
    hashes = open_array(place / "hashes.npy", "<u8", (rows,))
    order = np.argsort(hashes, kind="stable")
    twins = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    if not len(twins):
        return
    ids = open_strings(place, "ids", len(hashes))
    for twin in twins:
        one, two = int(order[twin]), int(order[twin + 1])
        if ids.raw(one) == ids.raw(two):
            raise OptionError("ids", ids[one], f"is there twice, in rows {one} and {two}")
