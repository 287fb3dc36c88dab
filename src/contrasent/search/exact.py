"""Exact nearest neighbours: a scan in blocks that keeps the best k, by partial sort."""

import numpy as np
from numpy.typing import NDArray

from contrasent.types import Vectors

SCORES_AT_ONCE = 1 << 23  # 32 MB of float32 scores
ROWS_AT_ONCE = 1 << 18  # after the first block few rows are better than the best seen


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


def largest(values: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Positions of the k largest of more than k values, rising; of equals the first are taken."""
    cut = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > cut)
    equal = np.flatnonzero(values == cut)[: k - len(above)]
    return np.sort(np.concatenate([above, equal]))


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
