"""One bit a dimension, so that a million rows are looked at in milliseconds.

Of each vector, less the mean of all, the signs are kept: a thirty-second of its size. Rows whose
signs differ from the query's in the fewest places (Charikar 2002: the share that differs estimates
the angle) are candidates; their exact scores decide. Signs lie column by column, so that counting
differences is a few passes over long arrays, which numpy does at the speed of memory.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import UserError
from contrasent.search.index import Index
from contrasent.types import Vectors

WORD = 64
BLOCK = 16_384
CANDIDATES = 2000
A_HIT = 200
"""Candidates for each row wanted, and at least 2,000 of them."""


class Signs:
    """The signs of an index's vectors, in memory.

    Args:
        index: a snapshot; rows added later are not found.

    Raises:
        UserError: the index compares by inner product, of which signs say little, or numpy is
            older than 2.
    """

    def __init__(self, index: Index) -> None:
        if index.metric != "cosine":
            raise UserError("signs say what the cosine is, and this index compares by dot product")
        if not hasattr(np, "bitwise_count"):
            raise UserError("counting bits needs numpy 2 or newer: pip install 'numpy>=2'")
        self.index = index
        count = int(index.firsts[-1])
        self.centre = _mean(segment.vectors for segment in index.segments)
        words = -(-index.dimension // WORD)
        self.columns = np.zeros((words, count), dtype=np.uint64)
        for first, segment in zip(index.firsts, index.segments, strict=False):
            for start in range(0, len(segment), BLOCK):
                block = self._signs(segment.vectors[start : start + BLOCK])
                at = int(first) + start
                self.columns[:, at : at + len(block)] = block.T

    def _signs(self, vectors: Vectors) -> NDArray[np.uint64]:
        bits = np.zeros((len(vectors), len(self.columns) * WORD), dtype=bool)
        bits[:, : vectors.shape[1]] = vectors > self.centre
        return np.packbits(bits, axis=1).view(np.uint64)

    def differing(self, query: Vectors, *, threads: int = 2) -> NDArray[np.uint16]:
        """(rows,) in how many signs each row differs from a query (d,)."""
        signs = self._signs(query[None])[0]
        count = self.columns.shape[1]
        out = np.empty(count, dtype=np.uint16)

        def run(start: int) -> None:
            part = out[start : start + BLOCK]
            part[:] = 0
            for column, sign in zip(self.columns, signs, strict=True):
                part += np.bitwise_count(column[start : start + BLOCK] ^ sign)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(0, count, BLOCK)))
        return out

    def nearest(
        self, query: Vectors, k: int, *, candidates: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Exact scores and numbers of the best rows among the candidates, best first.

        Args:
            query: (d,), of length one.
            k: rows to find.
            candidates: how many rows to score; 200 for each one wanted and at least 2,000 if None.
        """
        wanted = candidates or max(CANDIDATES, A_HIT * k)
        differing = self.differing(query)
        differing[self.index.deleted] = np.iinfo(np.uint16).max
        below = np.cumsum(np.bincount(differing))
        limit = int(np.searchsorted(below, min(wanted, len(self.index))))
        rows = np.flatnonzero(differing <= limit)
        rows = rows[differing[rows] < np.iinfo(np.uint16).max]
        scores = self.index.vectors_of(rows) @ query
        best = np.argsort(-scores, kind="stable")[:k]
        return scores[best], rows[best]


def _mean(parts: Iterable[Vectors]) -> Vectors:
    total, count = np.zeros(1), 0
    for part in parts:
        for start in range(0, len(part), BLOCK):
            total = total + part[start : start + BLOCK].sum(axis=0, dtype=np.float64)
        count += len(part)
    return np.asarray(total / max(1, count), dtype=np.float32)
