"""Paired tests over test items, and over clusters of items that rise and fall together."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from contrasent.errors import DataError
from contrasent.metrics import spearman
from contrasent.stats.bootstrap import FEWEST, RankedPairs, draw_counts, interval
from contrasent.stats.seeds import EffectEstimate, Floats

RESAMPLES = 10_000
CLUSTER_RESAMPLES = 2_000
AT_ONCE = 200_000
"""Counts of clusters in a block of resamples."""


def paired_spearman_difference(
    before: ArrayLike,
    after: ArrayLike,
    gold: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> EffectEstimate:
    """Difference of two systems' (n,) Spearman correlations with the same gold scores (n,)."""
    # Both systems are measured on the same resamples of pairs. The p value is twice the share of
    # resamples on the other side of zero (one added to both counts), so it agrees with the
    # interval.
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


def clustered_mean(
    sums: Floats, counts: Floats, *, resamples: int = CLUSTER_RESAMPLES, seed: int = 0
) -> EffectEstimate:
    """The mean over kinds of the mean of each kind's values, with its interval over clusters."""
    # Each end is the outer one of Student's t with the jackknife's error and the studentised
    # bootstrap: either alone finds too many false gains (benchmarks/clusters.py). `sums`, `counts`:
    # (c, k) of each kind in each cluster.
    number = len(sums)
    totals = counts.sum(axis=0)
    means = sums.sum(axis=0) / totals
    value = float(means.mean())
    with np.errstate(invalid="ignore"):  # a kind that one cluster alone has
        left = np.nanmean((sums.sum(axis=0) - sums) / (totals - counts), axis=1)
    error = math.sqrt((number - 1) / number * float(((left - value) ** 2).sum()))
    # As many clusters of one size would say as much (Kish, 1965).
    shares = (counts / totals).mean(axis=1)
    found = EffectEstimate.from_error(value, error, max(1 / float((shares**2).sum()) - 1, 1.0))
    linear = math.sqrt(float(((((sums - means * counts) / totals).mean(axis=1)) ** 2).sum()))
    drawn = _studentised(sums, counts, value, resamples, seed)
    if not linear or not len(drawn):
        return found
    few, many = interval(drawn)
    low, high = (value - point * linear for point in (many, few))
    t = value / linear
    p = bootstrap_p(drawn - t)
    return replace(found, low=min(found.low, low), high=max(found.high, high), p=max(found.p, p))


def _studentised(sums: Floats, counts: Floats, value: float, resamples: int, seed: int) -> Floats:
    """(r,) distances of resampled means from the value, in their own standard errors."""
    random = np.random.default_rng(seed)
    number = len(sums)
    even = np.full(number, 1.0 / number)
    step = max(1, AT_ONCE // number)
    blocks = []
    for start in range(0, resamples, step):
        weights = random.multinomial(number, even, min(step, resamples - start)).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            totals = weights @ counts
            means = (weights @ sums) / totals
            moved = np.zeros_like(weights)
            for kind in range(sums.shape[1]):
                own = sums[:, kind] - means[:, kind, None] * counts[:, kind]
                # A kind that a resample missed altogether says nothing in it.
                moved += np.where(totals[:, kind, None] > 0, own / totals[:, kind, None], 0.0)
            kinds = (totals > 0).sum(axis=1)
            errors = np.sqrt((weights * moved**2).sum(axis=1)) / kinds
            blocks.append((np.nanmean(means, axis=1) - value) / errors)
    drawn: Floats = np.concatenate(blocks)
    return np.asarray(drawn[np.isfinite(drawn)])


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
