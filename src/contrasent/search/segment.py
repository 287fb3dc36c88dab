"""A segment: a block of rows of an index, in files that are written once and then mapped.

A segment is a folder. Vectors are one float32 ``.npy``; texts, ids and metadata are flat UTF-8
bytes with offsets, so that a million rows open in an instant and cost no memory until read::

    vectors.npy   (n, d) float32
    texts.bin     all texts, one after the other      texts.npy     (n + 1,) int64 offsets
    ids.bin       all ids                             ids.npy       (n + 1,) int64 offsets
    metadata.bin  one JSON value a row, empty: none   metadata.npy  (n + 1,) int64 offsets
    hashes.npy    (n,) uint64, a hash of each id, to find ids without reading them

Nothing in it is ever unpickled.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, UserError
from contrasent.files import encoded as encoded
from contrasent.types import Vectors

FLAT = ("texts", "ids", "metadata")


@dataclass(frozen=True, slots=True, eq=False)
class Strings:
    """Many strings as flat UTF-8 bytes.

    Attributes:
        data: (total,) uint8, the strings one after the other.
        offsets: (n + 1,) int64; string i is ``data[offsets[i]:offsets[i + 1]]``.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    name: str = "memory"

    @classmethod
    def pack(cls, strings: Iterable[str]) -> "Strings":
        """Flatten strings held in memory."""
        parts = [encoded(string) for string in strings]
        offsets = np.zeros(len(parts) + 1, dtype=np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return cls(np.frombuffer(b"".join(parts), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def raw(self, row: int) -> bytes:
        """The bytes of one string."""
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __getitem__(self, row: int) -> str:
        try:
            return self.raw(row).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                self.name, f"row {row} is not UTF-8: the file is damaged; build the index again"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def take(self, rows: NDArray[np.int64]) -> "Strings":
        """Copy strings into memory, without decoding them."""
        starts = np.asarray(self.offsets)[rows]
        lengths = np.asarray(self.offsets)[rows + 1] - starts
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Strings(np.asarray(self.data[places]), offsets, self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Rows of an index, in memory or mapped from a folder.

    Attributes:
        vectors: (n, d) float32, of length one where the index compares by cosine.
        metadata: n JSON texts, an empty one where a row has none.
        hashes: (n,) uint64, :func:`id_hash` of each id.
    """

    vectors: Vectors
    texts: Strings
    ids: Strings
    metadata: Strings
    hashes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.vectors)

    def metadata_of(self, row: int) -> Any:
        """The JSON value of a row, or None."""
        raw = self.metadata.raw(row)
        try:
            return json.loads(raw) if raw else None
        except ValueError as error:
            raise InputError(
                self.metadata.name,
                f"row {row} is not JSON: the file is damaged; build the index again",
            ) from error

    def take(self, rows: NDArray[np.int64]) -> "Segment":
        """Copy rows into memory."""
        return Segment(
            np.asarray(self.vectors[rows], dtype=np.float32),
            self.texts.take(rows),
            self.ids.take(rows),
            self.metadata.take(rows),
            np.asarray(self.hashes[rows]),
        )

    @classmethod
    def pack(
        cls,
        vectors: Vectors,
        texts: Sequence[str],
        ids: Sequence[str],
        metadata: Sequence[Any] | None,
    ) -> "Segment":
        """Put rows together in memory."""
        rows = metadata if metadata is not None else [None] * len(texts)
        return cls(
            vectors,
            Strings.pack(texts),
            Strings.pack(ids),
            Strings.pack(json_text(value) for value in rows),
            np.array([id_hash(identity) for identity in ids], dtype=np.uint64),
        )


def json_text(value: Any) -> str:
    """Compact JSON of a metadata value, "" for None; what JSON cannot represent is refused."""
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"metadata {str(value)[:60]!r} cannot be written as JSON: {error}"
        ) from error


def id_hash(identity: str) -> int:
    """64 bits of BLAKE2b of an id: equal ids have equal hashes, the rest is compared."""
    return int.from_bytes(hashlib.blake2b(encoded(identity), digest_size=8).digest(), "little")


def open_segment(folder: Path, rows: int, dimension: int, files: dict[str, Any]) -> Segment:
    """Map a segment's files; sizes and shapes are checked, contents are not read."""
    for name, facts in files.items():
        check_size(folder / name, int(facts["bytes"]))
    flat = {name: open_strings(folder, name, rows) for name in FLAT}
    return Segment(
        open_array(folder / "vectors.npy", "<f4", (rows, dimension)),
        flat["texts"],
        flat["ids"],
        flat["metadata"],
        open_array(folder / "hashes.npy", "<u8", (rows,)),
    )


def check_size(path: Path, size: int) -> None:
    """Reject a file that is missing or truncated."""
    try:
        found = path.stat().st_size
    except OSError as error:
        raise InputError(path, "is missing from the index; build the index again") from error
    if found != size:
        raise InputError(
            path, f"has {found:,} bytes and should have {size:,}; build the index again"
        )


def open_array(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Map an ``.npy`` file read-only."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy parses a header as Python, and raises whatever that raises
        raise InputError(path, "is not a readable .npy file; build the index again") from error
    if array.dtype != np.dtype(dtype) or array.shape != shape:
        raise InputError(
            path,
            f"holds {array.dtype} {array.shape}, not {np.dtype(dtype)} {shape}; "
            "build the index again",
        )
    return np.asarray(array)


def open_strings(folder: Path, name: str, rows: int) -> Strings:
    """Map the ``rows`` strings of NAME.bin and NAME.npy."""
    path = folder / f"{name}.bin"
    offsets = open_array(folder / f"{name}.npy", "<i8", (rows + 1,))
    size = int(offsets[-1])
    check_size(path, size)
    if int(offsets[0]) != 0:
        raise InputError(path, "does not fit its offsets; build the index again")
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r") if size else np.empty(0, dtype=np.uint8)
    except (OSError, ValueError) as error:
        raise InputError(path, "cannot be mapped; build the index again") from error
    return Strings(np.asarray(data), offsets, str(path))
