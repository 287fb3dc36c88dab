"""Is the difference over items real? A paired comparison by bootstrap."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError
from contrasent.evaluate.bootstrap import FEWEST, RankedPairs, draw_counts, interval
from contrasent.metrics import spearman

RESAMPLES = 10_000
BLOCK = 2_000_000

Floats = NDArray[np.float64]


class Difference(NamedTuple):
    """A paired difference, after minus before.

    Attributes:
        value: the difference.
        low: lower end of its 95 % bootstrap interval.
        high: upper end of it.
        p: two-sided p value of "there is no difference".
    """

    value: float
    low: float
    high: float
    p: float


def paired_spearman_difference(
    before: ArrayLike,
    after: ArrayLike,
    gold: ArrayLike,
    *,
    sizes: Sequence[int] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Difference of two Spearman correlations with the same gold scores.

    Both systems are measured on the same resamples of pairs. The p value is twice the share of
    resamples on the other side of zero (one added to both counts), so it agrees with the interval.

    Args:
        before: (n,) similarities given by one system.
        after: (n,) similarities given by the other to the same pairs.
        gold: (n,) gold scores of the pairs.
        sizes: sizes of the subsets, in order, if pairs are to be resampled inside each.
        resamples: bootstrap resamples.
        seed: of the bootstrap.

    Raises:
        DataError: lengths that differ, fewer than 20 pairs, values that are not finite, or a
            constant column.
    """
    a, b = _paired(before, after)
    a, g = _paired(a, gold)
    strata = list(sizes) if sizes is not None else [len(g)]
    if sum(strata) != len(g):
        raise DataError(f"the subsets hold {sum(strata):,} pairs, there are {len(g):,}")
    first, second = RankedPairs(a, g), RankedPairs(b, g)
    drawn = np.concatenate(
        [second.spearman(c) - first.spearman(c) for c in draw_counts(strata, resamples, seed)]
    )
    value = spearman(b, g) - spearman(a, g)
    if np.isnan(value):
        raise DataError("a column is constant; its correlation with anything is undefined")
    low, high = interval(drawn)
    return Difference(value, low, high, bootstrap_p(drawn))


def bootstrap_p(draws: ArrayLike) -> float:
    """Two-sided p value of a difference of zero, from bootstrap draws of the difference."""
    d = np.asarray(draws)
    d = d[np.isfinite(d)]
    other = min(np.count_nonzero(d <= 0), np.count_nonzero(d >= 0))
    return min(1.0, 2 * (other + 1) / (len(d) + 1))


def _paired(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise DataError(f"paired values of shapes {a.shape} and {b.shape}; both must be (n,)")
    if len(a) < FEWEST:
        raise DataError(f"{len(a)} items are too few for an interval; {FEWEST} are needed")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise DataError("the paired values hold NaN or infinite numbers")
    return a, b
