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
from contrasent.errors import OptionError, UserError
from contrasent.search.exact import nearest_of
from contrasent.search.rows import Rows
from contrasent.types import Vectors

ROWS = 1024
COLUMNS = 8192
FEWEST_ROWS = 20


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


def near_duplicates(index: Rows, threshold: float) -> Duplicates:
    """Go through the rows in order and drop each that is close to one kept before it.

    A row is a near-duplicate if its score with a kept row is at least ``threshold``. No row is
    dropped for being close to a dropped one only.
    """
    check_cosine(index, threshold)
    rows = np.flatnonzero(index.alive())
    kept: list[NDArray[np.int64]] = []
    pairs: list[Pair] = []
    with progress.task("dedupe", len(rows), "texts") as advance:
        for start in range(0, len(rows), ROWS):
            here = rows[start : start + ROWS]
            vectors = index.vectors_of(here)
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
    index: Rows, kept: list[NDArray[np.int64]]
) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
    """Rows kept before and their vectors, a block at a time."""
    every = np.concatenate(kept) if kept else np.empty(0, dtype=np.int64)
    for start in range(0, len(every), COLUMNS):
        rows = every[start : start + COLUMNS]
        yield rows, index.vectors_of(rows)


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


def random_scores(index: Rows, count: int = 100_000, seed: int = 0) -> NDArray[np.float32]:
    """(about ``count``,) scores of pairs of rows taken at random, of different texts."""
    rows = _enough(index)
    first, second = np.random.default_rng(seed).choice(rows, (2, count))
    scores = []
    for start in range(0, count, COLUMNS):
        part = slice(start, start + COLUMNS)
        a, b = index.vectors_of(first[part]), index.vectors_of(second[part])
        # The same vector is the same text, if not the same row.
        scores.append(np.einsum("ij,ij->i", a, b)[(a != b).any(axis=1)])
    return np.concatenate(scores)


def neighbour_scores(index: Rows, count: int = 1000, seed: int = 0) -> NDArray[np.float32]:
    """(count or all rows,) the score of rows taken at random with the nearest other row."""
    rows = _enough(index)
    chosen = np.random.default_rng(seed).choice(rows, min(count, len(rows)), replace=False)
    vectors = index.vectors_of(chosen)
    best = np.full(len(chosen), -np.inf, dtype=np.float32)
    for start in range(0, len(rows), COLUMNS):
        others = rows[start : start + COLUMNS]
        scores = vectors @ index.vectors_of(others).T
        scores[chosen[:, None] == others] = -np.inf
        best = np.maximum(best, scores.max(axis=1))
    return best


def following_scores(index: Rows, count: int = 10_000, seed: int = 0) -> NDArray[np.float32]:
    """(count or all but one,) the score of rows taken at random with the row behind each."""
    rows = _enough(index)
    places = np.arange(len(rows) - 1)
    if len(places) > count:
        places = np.random.default_rng(seed).choice(places, count, replace=False)
    a, b = index.vectors_of(rows[places]), index.vectors_of(rows[places + 1])
    found: NDArray[np.float32] = np.einsum("ij,ij->i", a, b)
    return found


def _enough(index: Rows) -> NDArray[np.int64]:
    rows = np.flatnonzero(index.alive())
    if len(rows) < FEWEST_ROWS:
        raise UserError(f"{len(rows)} rows are too few for a threshold; {FEWEST_ROWS} are needed")
    return rows


def check_cosine(index: Rows, threshold: float) -> None:
    """Refuse a threshold that cosines cannot reach."""
    if not np.isfinite(threshold) or (index.metric == "cosine" and not -1 <= threshold <= 1):
        raise OptionError("threshold", threshold, "must lie in -1 to 1")
