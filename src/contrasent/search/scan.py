"""Looking at all vectors of an index: exact scans, binary codes, and pairs of near-duplicates.

The binary code of a vector is the sign of each component after the mean of all vectors is
subtracted: a thirty-second of its size. The rows with the smallest Hamming distance from the
query's code (Charikar 2002: the share of differing bits estimates the angle) are candidates; their
exact scores decide. Codes are stored column by column, so that counting differences is a few passes
over long arrays, which numpy does at the speed of memory.
"""

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import OptionError
from contrasent.files import writing
from contrasent.processes import threads
from contrasent.search.folder import VERIFIED, damaged
from contrasent.search.ranking import largest
from contrasent.search.store import Facts, Store
from contrasent.types import Vectors

SCORES_AT_ONCE = 1 << 23  # 32 MB of float32 scores
ROWS_AT_ONCE = 1 << 18  # after the first block few rows are better than the best seen
WORD, BLOCK = 64, 16_384
CANDIDATES, A_HIT = 2000, 200  # candidates of a query at least, and for each row wanted
NEVER = np.iinfo(np.uint16).max
PAIRED_ROWS, PAIRED_COLUMNS = 1024, 8192


class Best:
    """The k best rows seen so far for each of q queries; of equal scores the lower row comes first.

    ``scores``: (q, k) float32, falling, and ``rows``: (q, k) int64; -inf and -1 where there are
    fewer than k.
    """

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.scores = np.full((queries, k), -np.inf, dtype=np.float32)
        self.rows = np.full((queries, k), -1, dtype=np.int64)

    def offer(self, scores: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        """Look at a block of rows, with higher numbers (b,) than those before; (q, b) scores."""
        wanted = scores > self.scores[:, -1:]
        for query in np.flatnonzero(wanted.any(axis=1)):
            columns = np.flatnonzero(wanted[query])
            values = scores[query, columns]
            if len(columns) > self.k:
                best = largest(values, self.k)
                columns, values = columns[best], values[best]
            self.merge(int(query), values, rows[columns])

    def merge(self, query: int, scores: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        """Look at some rows, in rising order, for one query."""
        scores = np.concatenate([self.scores[query], scores])
        rows = np.concatenate([self.rows[query], rows])
        order = np.argsort(-scores, kind="stable")[: self.k]
        self.scores[query], self.rows[query] = scores[order], rows[order]


def scan(
    queries: Vectors,
    vectors: Vectors,
    best: Best,
    *,
    first: int = 0,
    allowed: NDArray[np.bool_] | None = None,
) -> None:
    """Find the rows with the largest inner product with each query.

    ``queries``: (q, d). ``vectors``: (n, d) of the rows from ``first`` on; may be memory mapped: at
    most 32 MB of scores are held at a time.
    """
    step = max(1, min(ROWS_AT_ONCE, SCORES_AT_ONCE // max(1, len(queries))))
    for start in range(0, len(vectors), step):
        part = vectors[start : start + step]
        rows = np.arange(first + start, first + start + len(part), dtype=np.int64)
        keep = None if allowed is None else allowed[rows[0] : rows[-1] + 1]
        if keep is not None and not keep.all():
            part, rows = part[keep], rows[keep]
        if len(rows):
            best.offer(queries @ part.T, rows)


class BinaryCodes:
    """Codes of the first rows of an index.

    ``columns``: (words, rows) uint64, 64 bits a word. ``centre``: (d,), subtracted from each
    vector.
    """

    def __init__(self, columns: NDArray[np.uint64], centre: Vectors) -> None:
        self.columns, self.centre = columns, centre
        self.rows = int(columns.shape[1])  # of the index, that it knows

    @classmethod
    def open(cls, folder: Path | None, facts: Facts, *, whole: bool = False) -> "BinaryCodes":
        """Map the codes that lie next to an index; large ones are verified if ``whole``."""
        assert folder is not None
        path = folder / Path(str(facts.codes["file"])).name
        shape = (-(-facts.dimension // WORD), int(facts.codes["rows"]))
        size = shape[0] * shape[1] * 8
        if not path.is_file() or path.stat().st_size != size:
            raise damaged(folder, f"{path.name} is missing or of another size")
        columns = np.memmap(path, dtype="<u8", mode="r", shape=shape)
        if (whole or size <= VERIFIED) and zlib.crc32(columns.data) != facts.codes["sum"]:
            raise damaged(folder, path.name)
        return cls(columns, np.array(facts.codes["centre"], dtype=np.float32))

    @classmethod
    def of(cls, vectors: Vectors) -> "BinaryCodes":
        """The codes of vectors (n, d), gone through twice."""
        rows, dimension = vectors.shape
        blocks = range(0, rows, BLOCK)
        sums = (vectors[at : at + BLOCK].sum(axis=0, dtype=np.float64) for at in blocks)
        centre = np.asarray(sum(sums, np.zeros(dimension)) / max(1, rows), dtype=np.float32)
        codes = cls(np.zeros((-(-dimension // WORD), rows), np.uint64), centre)
        with progress.task("binary codes", rows, "texts") as advance:
            for start in blocks:
                block = codes.words(vectors[start : start + BLOCK])
                codes.columns[:, start : start + len(block)] = block.T
                advance(len(block))
        return codes

    def words(self, vectors: Vectors) -> NDArray[np.uint64]:
        """(n, words) of vectors (n, d)."""
        bits = np.zeros((len(vectors), len(self.columns) * WORD), dtype=bool)
        bits[:, : vectors.shape[1]] = vectors > self.centre
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

    def candidates(
        self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None
    ) -> list[NDArray[np.int64]]:
        """For each query (d,), rows that are likely among its best k, rising."""
        wanted = min(max(CANDIDATES, A_HIT * k), self.rows)
        found = []
        for query in queries:
            distance = self.hamming(query)
            if allowed is not None:
                distance[~allowed[: self.rows]] = NEVER
            limit = int(np.searchsorted(np.cumsum(np.bincount(distance)), wanted))
            found.append(np.flatnonzero(distance <= min(limit, int(NEVER) - 1)))
        return found


def make_codes(folder: Path, vectors: Vectors) -> dict[str, Any]:
    """Write the codes of all rows into an index; the facts that it keeps of them."""
    codes = BinaryCodes.of(vectors)
    number = max((int(path.name[6:12]) for path in folder.glob("codes-*.u64")), default=0) + 1
    path, data = folder / f"codes-{number:06d}.u64", codes.columns.astype("<u8")
    with writing(folder), path.open("wb") as stream:
        stream.write(data.data)
        stream.flush()
        os.fsync(stream.fileno())
    facts = {"file": path.name, "rows": codes.rows, "sum": zlib.crc32(data.data)}
    return {**facts, "centre": [float(number) for number in codes.centre]}


class Pair(NamedTuple):
    """Two rows of an index, the kept one first."""

    first: int
    second: int
    score: float


def near_duplicates(index: Store, threshold: float) -> tuple[NDArray[np.int64], list[Pair]]:
    """Go through the rows in order and drop each that is close to one kept before it.

    A row is a near-duplicate if its score with a kept row is at least ``threshold``. No row is
    dropped for being close to a dropped one only. Time grows with the square of the rows. Returned
    are the rows that are kept (k,), and for each other one the kept row that it is nearest to.
    """
    if not np.isfinite(threshold) or (index.metric == "cosine" and not -1 <= threshold <= 1):
        raise OptionError("threshold", threshold, "must lie in -1 to 1")
    rows, kept = index.numbers(), np.empty(0, dtype=np.int64)
    pairs: list[Pair] = []
    with progress.task("dedupe", len(rows), "texts") as advance:
        for start in range(0, len(rows), PAIRED_ROWS):
            here = rows[start : start + PAIRED_ROWS]
            vectors = np.asarray(index.vectors[here])
            best = Best(len(here), 1)
            for at in range(0, len(kept), PAIRED_COLUMNS):
                some = kept[at : at + PAIRED_COLUMNS]
                best.offer(vectors @ np.asarray(index.vectors[some]).T, some)
            scores, partner = best.scores[:, 0], best.rows[:, 0]
            within, stays = vectors @ vectors.T, np.zeros(len(here), dtype=bool)
            for at in range(len(here)):
                before = np.flatnonzero(stays[:at])
                if len(before) and (most := within[at, before]).max() > scores[at]:
                    scores[at], partner[at] = most.max(), here[before[most.argmax()]]
                stays[at] = scores[at] < threshold
            pairs += [
                Pair(int(partner[at]), int(here[at]), float(scores[at]))
                for at in np.flatnonzero(~stays)
            ]
            kept = np.concatenate([kept, here[stays]])
            advance(len(here), kept=len(kept))
    return kept, pairs
