"""Paired tests over test items, by bootstrap."""

import math

import numpy as np
from numpy.typing import ArrayLike

from contrasent.errors import DataError
from contrasent.metrics import spearman
from contrasent.stats.bootstrap import FEWEST, RankedPairs, draw_counts, interval
from contrasent.stats.seeds import EffectEstimate, Floats

RESAMPLES = 10_000


def paired_spearman_difference(
    before: ArrayLike,
    after: ArrayLike,
    gold: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> EffectEstimate:
    """Difference of the Spearman correlations of two systems (n,) with the same gold scores (n,).

    Both systems are measured on the same resamples of pairs. The p value is twice the share of
    resamples on the other side of zero (one added to both counts), so it agrees with the interval.
    """
    a, b = _paired(before, after)
    a, g = _paired(a, gold)
    first, second = RankedPairs(a, g), RankedPairs(b, g)
    drawn = np.concatenate(
        [second.spearman(c) - first.spearman(c) for c in draw_counts([len(g)], resamples, seed)]
    )
    value = spearman(b, g) - spearman(a, g)
    if np.isnan(value):
        raise DataError("a column is constant; its correlation with anything is undefined")
    return from_draws(value, drawn)


def from_draws(value: float, draws: Floats) -> EffectEstimate:
    """A difference with the percentile interval of its bootstrap draws (r,)."""
    low, high = interval(draws)
    return EffectEstimate(value, low, high, float(np.nanstd(draws)), math.inf, bootstrap_p(draws))


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
