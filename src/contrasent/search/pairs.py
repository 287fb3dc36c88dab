"""Near-duplicates among an index's rows.

All pairs are compared, exactly, a square of 1,024 x 8,192 similarities at a time: memory does not
grow with the index, time grows with its square (minutes for a hundred thousand rows of 384
dimensions on two cores, hours for a million).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import OptionError
from contrasent.search.exact import nearest_of
from contrasent.search.index import Index
from contrasent.types import Vectors

ROWS = 1024
COLUMNS = 8192


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows of an index."""

    first: int
    second: int
    score: float


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The rows that :func:`near_duplicates` keeps and drops.

    Attributes:
        kept: (k,) rows of which each is far from every other.
        pairs: for every other row the kept one it is nearest to, in the order of rows.
    """

    kept: NDArray[np.int64]
    pairs: tuple[Pair, ...]


def near_duplicates(index: Index, threshold: float) -> Duplicates:
    """Go through the rows in order and drop each that is close to one kept before it.

    A row is a near-duplicate if its score with a kept row is at least ``threshold``. No row is
    dropped for being close to a dropped one only.
    """
    check_cosine(index, threshold)
    rows = index.numbers()
    kept: list[NDArray[np.int64]] = []
    pairs: list[Pair] = []
    with progress.task("dedupe", len(rows), "texts") as advance:
        for start in range(0, len(rows), ROWS):
            here = rows[start : start + ROWS]
            vectors = np.asarray(index.vectors[here])
            best, partner = nearest_of(vectors, _row_blocks(index, kept))
            fresh = np.flatnonzero(best < threshold)
            stay = _greedy(vectors[fresh], threshold)
            chosen = fresh[stay]
            best, partner = _with_block(vectors, here, chosen, best, partner)
            dropped = np.ones(len(here), dtype=bool)
            dropped[chosen] = False
            pairs += [
                Pair(int(partner[at]), int(here[at]), float(best[at]))
                for at in np.flatnonzero(dropped)
            ]
            kept.append(here[chosen])
            advance(len(here), kept=sum(map(len, kept)))
    return Duplicates(np.concatenate(kept) if kept else rows, tuple(pairs))


def _row_blocks(
    index: Index, kept: list[NDArray[np.int64]]
) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
    """Rows kept before and their vectors, a block at a time."""
    every = np.concatenate(kept) if kept else np.empty(0, dtype=np.int64)
    for start in range(0, len(every), COLUMNS):
        rows = every[start : start + COLUMNS]
        yield rows, np.asarray(index.vectors[rows])


def _greedy(vectors: Vectors, threshold: float) -> NDArray[np.int64]:
    """Positions of the vectors that are far from every one kept before them."""
    close = vectors @ vectors.T >= threshold
    stays = np.zeros(len(vectors), dtype=bool)
    for at in range(len(vectors)):
        stays[at] = not (close[at, :at] & stays[:at]).any()
    return np.flatnonzero(stays)


def _with_block(
    vectors: Vectors,
    here: NDArray[np.int64],
    chosen: NDArray[np.int64],
    best: NDArray[np.float32],
    partner: NDArray[np.int64],
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Let rows find a better partner among those kept of their own block, before themselves."""
    if not len(chosen):
        return best, partner
    scores = vectors @ vectors[chosen].T
    scores[chosen[None, :] >= np.arange(len(vectors))[:, None]] = -np.inf
    at = scores.argmax(axis=1)
    found = scores[np.arange(len(vectors)), at]
    better = found > best
    return np.where(better, found, best), np.where(better, here[chosen[at]], partner)


def check_cosine(index: Index, threshold: float) -> None:
    """Reject a threshold that cosines cannot reach."""
    if not np.isfinite(threshold) or (index.metric == "cosine" and not -1 <= threshold <= 1):
        raise OptionError("threshold", threshold, "must lie in -1 to 1")
