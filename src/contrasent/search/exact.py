"""Exact nearest neighbours: a scan in blocks that keeps the best k, by partial sort."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from contrasent.types import Vectors

QUERIES_AT_ONCE = 256
SCORES_AT_ONCE = 1 << 23  # 32 MB of float32 scores
ROWS_AT_ONCE = 1 << 18  # after the first block few rows are better than the best seen


class Best:
    """The k best rows seen so far for each of q queries.

    Equal scores are ordered by row, lower first, as a stable full sort would.

    Attributes:
        scores: (q, k) float32, falling, ``-inf`` where fewer than k rows were kept.
        rows: (q, k) int64, ``-1`` where fewer than k rows were kept.
    """

    def __init__(self, queries: int, k: int, threshold: float | None = None) -> None:
        self.k = k
        self.scores = np.full((queries, k), -np.inf, dtype=np.float32)
        self.rows = np.full((queries, k), -1, dtype=np.int64)
        self.low = just_below(threshold)

    def offer(self, scores: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        """Look at a block of rows, each block with higher row numbers than those before it.

        ``scores``: (q, b) of the block's rows, ``-inf`` for rows that do not count. ``rows``: (b,)
        their numbers, rising.
        """
        floor = np.maximum(self.scores[:, -1], self.low)
        wanted = scores > floor[:, None]
        for query in np.flatnonzero(wanted.any(axis=1)):
            columns = np.flatnonzero(wanted[query])
            values = scores[query, columns]
            if len(columns) > self.k:
                best = largest(values, self.k)
                columns, values = columns[best], values[best]
            self._merge(int(query), values, rows[columns])

    def offer_one(self, query: int, scores: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        """Look at some rows, in rising order, for one query."""
        wanted = scores > self.low
        self._merge(query, scores[wanted], rows[wanted])

    def _merge(self, query: int, scores: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        scores = np.concatenate([self.scores[query], scores])
        rows = np.concatenate([self.rows[query], rows])
        order = np.argsort(-scores, kind="stable")[: self.k]
        self.scores[query], self.rows[query] = scores[order], rows[order]


def just_below(threshold: float | None) -> np.float32:
    """The float32 that exactly the scores of at least the threshold are greater than."""
    most = float(np.finfo(np.float32).max)
    if threshold is None or threshold <= -most:
        return np.float32(-np.inf)
    if threshold > most:
        return np.float32(np.inf)
    near = np.float32(threshold)
    return np.nextafter(near, np.float32(-np.inf)) if float(near) >= threshold else near


def largest(values: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Positions of the k largest of more than k values, rising; of equals the first are taken."""
    cut = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > cut)
    equal = np.flatnonzero(values == cut)[: k - len(above)]
    return np.sort(np.concatenate([above, equal]))


def nearest_of(
    vectors: Vectors, blocks: Iterable[tuple[NDArray[np.int64], Vectors]]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The largest inner product of each vector with the rows of some blocks, and which row it is.

    ``vectors``: (n, d). ``blocks``: (numbers of the rows (m,), their vectors (m, d)), one after
    another; of equal products the first counts. Returns (n,) products, ``-inf`` where there are no
    rows; (n,) row numbers, -1 there.
    """
    best = np.full(len(vectors), -np.inf, dtype=np.float32)
    nearest = np.full(len(vectors), -1, dtype=np.int64)
    for rows, others in blocks:
        scores = vectors @ others.T
        at = scores.argmax(axis=1)
        found = scores[np.arange(len(vectors)), at]
        better = found > best
        best[better], nearest[better] = found[better], rows[at[better]]
    return best, nearest


def scan(
    queries: Vectors,
    blocks: Iterable[tuple[int, Vectors]],
    best: Best,
    *,
    allowed: NDArray[np.bool_] | None = None,
) -> None:
    """Find the rows with the largest inner product with each query.

    ``queries``: (q, d). ``blocks``: (number of the first row, (n, d) vectors), in rising order; may
    be memory mapped: at most 32 MB of scores are held at a time.
    """
    step = max(1, min(ROWS_AT_ONCE, SCORES_AT_ONCE // max(1, len(queries))))
    for first, vectors in blocks:
        for start in range(0, len(vectors), step):
            part = vectors[start : start + step]
            rows = np.arange(first + start, first + start + len(part), dtype=np.int64)
            if allowed is not None:
                keep = allowed[rows[0] : rows[-1] + 1]
                if not keep.any():
                    continue
                if not keep.all():
                    part, rows = part[keep], rows[keep]
            best.offer(queries @ part.T, rows)
