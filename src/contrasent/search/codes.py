"""Binary codes of the vectors of an index, and the rows that they propose.

The code of a vector is the sign of each component after the mean of all vectors is subtracted. Rows
with the smallest Hamming distance from the query's code (Charikar 2002: the share of differing bits
estimates the angle) are candidates; their exact scores decide.
"""

import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.files import flush, writing
from contrasent.processes import threads
from contrasent.search.folder import VERIFIED, damaged, wrap_os_errors
from contrasent.types import Mask, Numbers, Vectors

WORD, BLOCK = 64, 16_384
CANDIDATES, A_HIT = 2000, 200  # fewest candidates of a query, and those for each row wanted
NEVER = np.iinfo(np.uint16).max


class BinaryCodes:
    """Codes of the first rows of an index: columns (words, rows) of 64 bits, and a center (d,)."""

    def __init__(self, columns: NDArray[np.uint64], center: Vectors) -> None:
        self.columns, self.center = columns, center
        self.rows = int(columns.shape[1])  # rows of the index that have codes

    @classmethod
    def open(
        cls, folder: Path, about: dict[str, Any], dimension: int, *, whole: bool = False
    ) -> "BinaryCodes":
        """Map an index's codes by what it says ``about`` them; large ones verified if ``whole``."""
        path = folder / Path(str(about["file"])).name
        shape = (-(-dimension // WORD), int(about["rows"]))
        size = shape[0] * shape[1] * 8
        with wrap_os_errors(path):
            if (found := path.stat().st_size) != size:
                raise damaged(folder, f"{path.name} has {found:,} bytes instead of {size:,}")
            columns = np.memmap(path, dtype="<u8", mode="r", shape=shape)
        if (whole or size <= VERIFIED) and zlib.crc32(columns.data) != about["sum"]:
            raise damaged(folder, path.name)
        return cls(columns, np.array(about["center"], dtype=np.float32))

    @classmethod
    def of(cls, vectors: Vectors) -> "BinaryCodes":
        """The codes of vectors (n, d), which are read twice."""
        rows, dimension = vectors.shape
        blocks = range(0, rows, BLOCK)
        sums = (vectors[at : at + BLOCK].sum(axis=0, dtype=np.float64) for at in blocks)
        center = np.asarray(sum(sums, np.zeros(dimension)) / max(1, rows), dtype=np.float32)
        codes = cls(np.zeros((-(-dimension // WORD), rows), np.uint64), center)
        with progress.task("binary codes", rows, "texts") as advance:
            for start in blocks:
                block = codes.words(vectors[start : start + BLOCK])
                codes.columns[:, start : start + len(block)] = block.T
                advance(len(block))
        return codes

    def words(self, vectors: Vectors) -> NDArray[np.uint64]:
        """(n, words) codes of vectors (n, d)."""
        bits = np.zeros((len(vectors), len(self.columns) * WORD), dtype=bool)
        bits[:, : vectors.shape[1]] = vectors > self.center
        return np.packbits(bits, axis=1).view(np.uint64)

    def hamming(self, query: Vectors) -> NDArray[np.uint16]:
        """(rows,) the Hamming distance of each row's code from that of a query (d,)."""
        code = self.words(query[None])[0]
        out = np.zeros(self.rows, dtype=np.uint16)

        def run(start: int) -> None:
            part = out[start : start + BLOCK]
            for column, word in zip(self.columns, code, strict=True):
                part += np.bitwise_count(column[start : start + BLOCK] ^ word)

        with ThreadPoolExecutor(threads()) as pool:
            list(pool.map(run, range(0, self.rows, BLOCK)))
        return out

    def candidates(self, queries: Vectors, k: int, allowed: Mask | None) -> list[Numbers]:
        """For each query (d,), rows that are likely to be among its best k, rising."""
        wanted = min(max(CANDIDATES, A_HIT * k), self.rows)
        candidates = []
        for query in queries:
            distance = self.hamming(query)
            if allowed is not None:
                distance[~allowed[: self.rows]] = NEVER
            limit = int(np.searchsorted(np.cumsum(np.bincount(distance)), wanted))
            candidates.append(np.flatnonzero(distance <= min(limit, int(NEVER) - 1)))
        return candidates


def make_codes(folder: Path, vectors: Vectors) -> dict[str, Any]:
    """Write the codes of all rows into an index; returns the facts it keeps about them."""
    codes = BinaryCodes.of(vectors)
    number = max((int(path.name[6:12]) for path in folder.glob("codes-*.u64")), default=0) + 1
    path, data = folder / f"codes-{number:06d}.u64", codes.columns.astype("<u8")
    with writing(folder):
        path.write_bytes(data.data)
        flush(path)
        flush(folder)
    facts = {"file": path.name, "rows": codes.rows, "sum": zlib.crc32(data.data)}
    return {**facts, "center": [float(number) for number in codes.center]}
