"""Exact nearest rows by inner product, in blocks of float32; equal scores in the order of rows."""

import numpy as np
from numpy.typing import NDArray

from contrasent.types import Vectors

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

QUERIES_AT_ONCE = 256
SCORES_AT_ONCE = 1 << 23  # 32 MB of float32 scores
ROWS_AT_ONCE = 1 << 18  # after the first block few rows are among the best


def best_rows(scores: Floats, k: int) -> Rows:
    """Places of the k largest scores, best first; of equal ones the first."""
    places = largest(scores, k) if len(scores) > k else np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")]


def largest(values: Floats, k: int) -> Rows:
    """Positions of the k largest of more than k values, rising; of equals the first are taken."""
    cut = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > cut)
    equal = np.flatnonzero(values == cut)[: k - len(above)]
    return np.sort(np.concatenate([above, equal]))


class Best:
    """The k best rows of each query so far, falling; -inf and row -1 where there are fewer."""

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.scores = np.full((queries, k), -np.inf, dtype=np.float32)
        self.rows = np.full((queries, k), -1, dtype=np.int64)

    def offer(self, scores: Floats, rows: Rows) -> None:
        """Merge a block of rows, with higher numbers (b,) than before; (q, b) scores."""
        better = scores > self.scores[:, -1:]
        for query in np.flatnonzero(better.any(axis=1)):
            columns = np.flatnonzero(better[query])
            values = scores[query, columns]
            if len(columns) > self.k:
                best = largest(values, self.k)
                columns, values = columns[best], values[best]
            self.merge(int(query), values, rows[columns])

    def merge(self, query: int, scores: Floats, rows: Rows) -> None:
        """Merge some rows, in ascending order, for one query."""
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
    """Offer the products of queries (q, d) and rows (n, d) from ``first`` on, some at a time."""
    step = max(1, min(ROWS_AT_ONCE, SCORES_AT_ONCE // max(1, len(queries))))
    for start in range(0, len(vectors), step):
        part = vectors[start : start + step]
        rows = np.arange(first + start, first + start + len(part), dtype=np.int64)
        keep = None if allowed is None else allowed[rows[0] : rows[-1] + 1]
        if keep is not None and not keep.all():
            part, rows = part[keep], rows[keep]
        if len(rows):
            best.offer(queries @ part.T, rows)


def nearest(
    queries: Vectors, vectors: Vectors, k: int, *, own: Rows | None = None
) -> tuple[Rows, Floats]:
    """Rows (q, k), best first, and their products; ``own``: (q,) rows that are not found, or -1."""
    rows = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k), dtype=np.float32)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        here = slice(start, start + QUERIES_AT_ONCE)
        best = Best(len(queries[here]), k + (own is not None))
        scan(queries[here], vectors, best)
        stays = np.ones(best.rows.shape, dtype=bool)
        if own is not None:
            stays = (best.rows != own[here, None]) | (best.rows < 0)
            stays[stays.all(axis=1), -1] = False
        rows[here] = best.rows[stays].reshape(-1, k)
        scores[here] = best.scores[stays].reshape(-1, k)
    return rows, scores
