"""Bootstrap intervals that are cheap enough to print with every number.

A resample of n items is a row of counts that sum to n. Means and correlations of a resample follow
from the counts: for Spearman the items are sorted once, and the ranks inside a resample are
cumulative sums of counts, so nothing is sorted again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.float32]

RESAMPLES = 1000
"""By default. The ends of an interval then move by about 0.1 of its half-width between seeds."""

FEWEST = 20
"""Items below which no interval is given: a percentile bootstrap is too narrow there."""

BLOCK = 400_000
"""Counts held at once: they stay in the processor's cache."""


def draw_counts(sizes: Sequence[int], number: int, seed: int | Sequence[int]) -> Iterator[Counts]:
    """Draw bootstrap resamples as counts.

    Args:
        sizes: sizes of the strata; items are drawn with replacement inside each of them.
        number: resamples in all.
        seed: of a generator of its own; several numbers give an independent stream each.

    Yields:
        (b, n) float32 counts, n being the sum of the sizes; b sums to ``number`` over the blocks.
    """
    random = np.random.Generator(np.random.SFC64(seed))
    total = sum(sizes)
    rows = max(1, BLOCK // max(total, 1))
    for start in range(0, number, rows):
        block = min(rows, number - start)
        counts = np.empty((block, total), dtype=np.float32)
        left = 0
        for size in sizes:
            counts[:, left : left + size] = _draw(random, block, size)
            left += size
        yield counts


def _draw(random: np.random.Generator, block: int, size: int) -> NDArray[np.int64]:
    items = random.integers(0, size, size=(block, size), dtype=np.int32)
    items += np.arange(block, dtype=np.int32)[:, None] * np.int32(size)
    return np.bincount(items.ravel(), minlength=block * size).reshape(block, size)


class RankedPairs:
    """Two columns, prepared so that Spearman's correlation of a resample needs no sorting.

    Args:
        x: (n,) numbers.
        y: (n,) numbers.
    """

    def __init__(self, x: ArrayLike, y: ArrayLike) -> None:
        a, b = np.asarray(x), np.asarray(y)
        self.order = np.argsort(a, kind="stable")
        group = _groups(a[self.order])
        self.distinct = int(group[-1]) + 1 == len(a)
        self.x_group = group
        self.x_ends = _ends(group)
        order = np.argsort(b[self.order], kind="stable")
        self.y_order = order
        group = _groups(b[self.order][order])
        self.y_ends = _ends(group)
        self.y_group = np.empty(len(b), dtype=np.int64)
        self.y_group[order] = group

    def spearman(self, counts: Counts) -> NDArray[np.float64]:
        """(b,) Spearman correlation of each resample; NaN where a column is constant in it."""
        weight = counts[:, self.order]
        middle = np.float32((weight[0].sum(dtype=np.float64) + 1) / 2)
        running = np.cumsum(weight, axis=1, dtype=np.float32)
        x = self._x_ranks(weight, running) - middle
        ends = np.cumsum(weight[:, self.y_order], axis=1, dtype=np.float32)[:, self.y_ends]
        y_ranks = _middle_ranks(ends) - middle
        y_weight = np.diff(ends, axis=1, prepend=np.float32(0))
        weighted = weight * x
        xy = np.einsum("ij,ij->i", weighted, y_ranks[:, self.y_group], dtype=np.float32)
        xx = np.einsum("ij,ij->i", weighted, x, dtype=np.float32)
        yy = np.einsum("ij,ij->i", y_weight * y_ranks, y_ranks, dtype=np.float32)
        return _ratio(xy, xx, yy)

    def _x_ranks(self, weight: Counts, running: Counts) -> Counts:
        if self.distinct:
            ranks: Counts = running - (weight - np.float32(1)) / np.float32(2)
            return ranks
        return _middle_ranks(running[:, self.x_ends])[:, self.x_group]


def weighted_pearson(x: ArrayLike, y: ArrayLike, counts: Counts) -> NDArray[np.float64]:
    """(b,) Pearson correlation of each resample; NaN where a column is constant in it."""
    a = np.asarray(x, dtype=np.float64)
    b = np.asarray(y, dtype=np.float64)
    # Standardised first, so that the differences of moments keep their digits in float32.
    a = (a - a.mean()) / max(a.std(), 1e-300)
    b = (b - b.mean()) / max(b.std(), 1e-300)
    columns = np.stack([a, b, a * a, b * b, a * b], axis=1).astype(np.float32)
    moments = (counts @ columns).astype(np.float64) / counts.sum(axis=1)[:, None]
    ma, mb, aa, bb, ab = moments.T
    return _ratio(ab - ma * mb, aa - ma * ma, bb - mb * mb)


def mean_interval(
    values: ArrayLike, number: int = RESAMPLES, seed: int | Sequence[int] = 0
) -> tuple[float, float] | tuple[None, None]:
    """95 % percentile interval of a mean of independent items; None for too few of them."""
    if len(np.asarray(values)) < FEWEST or not number:
        return None, None
    return interval(mean_draws(values, number, seed))


def mean_draws(
    values: ArrayLike, number: int = RESAMPLES, seed: int | Sequence[int] = 0
) -> NDArray[np.float64]:
    """(number,) the mean of independent items in each resample of them."""
    v = np.asarray(values, dtype=np.float64)
    blocks = [counts @ v / len(v) for counts in draw_counts([len(v)], number, seed)]
    return np.concatenate(blocks) if blocks else np.empty(0)


def interval(draws: ArrayLike) -> tuple[float, float]:
    """The 2.5 % and 97.5 % points of a statistic over resamples; undefined ones are left out."""
    low, high = np.nanpercentile(np.asarray(draws), [2.5, 97.5])
    return float(low), float(high)


def _groups(ordered: NDArray[np.generic]) -> NDArray[np.int64]:
    """Number the runs of equal values in a sorted column, from 0."""
    return np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])]).astype(np.int64)


def _ends(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last place of each run."""
    return np.flatnonzero(np.append(group[1:] != group[:-1], True))


def _middle_ranks(ends: Counts) -> Counts:
    """Mean rank of each run from the cumulative counts at the runs' ends."""
    before = np.concatenate([np.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
    return ((before + ends + 1) / 2).astype(np.float32, copy=False)


def _ratio(
    xy: NDArray[np.floating], xx: NDArray[np.floating], yy: NDArray[np.floating]
) -> NDArray[np.float64]:
    # Constant columns leave a rest of rounding, far below any true sum of squares.
    defined = (xx > 1e-6) & (yy > 1e-6)
    size = np.sqrt(np.where(defined, xx, 1).astype(np.float64) * np.where(defined, yy, 1))
    correlation: NDArray[np.float64] = np.where(defined, xy / size, np.nan)
    return correlation
