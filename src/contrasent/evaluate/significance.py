"""Is a difference real? Over seeds by Student's t, over items by a paired bootstrap."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError
from contrasent.evaluate.bootstrap import FEWEST, RankedPairs, draw_counts, interval
from contrasent.metrics import spearman

RESAMPLES = 10_000
SMALLEST = math.log(1e-15)
"""Of the p values of intervals; its logarithm."""

Floats = NDArray[np.float64]


class TDifference(NamedTuple):
    """A difference of two means, second minus first, with a t interval.

    Attributes:
        df: degrees of freedom of its standard error.
        p: two-sided p value of "there is no difference".
    """

    difference: float
    low: float
    high: float
    df: float
    p: float


def t_difference(difference: float, error: float, df: float, level: float = 0.95) -> TDifference:
    """The t interval of a difference with a known standard error.

    The interval of ``-difference`` is the mirror image, to the bit. An error of zero (no value
    varies) gives a point, with p 1 at zero and 0 elsewhere.
    """
    if not error:
        return TDifference(difference, difference, difference, df, float(not difference))
    half = float(t_quantile((1 + level) / 2, df)) * error
    p = 2 * float(t_share(-abs(difference) / error, df))
    return TDifference(difference, difference - half, difference + half, df, p)


def t_quantile(share: ArrayLike, df: ArrayLike) -> Floats:
    """The points of Student's t below which shares of it lie.

    ``share``: any shape. ``df``: degrees of freedom of the same shape; where infinite, of the
    normal distribution.
    """
    from scipy.special import ndtri, stdtrit

    below, freedom = np.asarray(share, dtype=np.float64), np.asarray(df, dtype=np.float64)
    finite = np.isfinite(freedom)
    return np.where(finite, stdtrit(np.where(finite, freedom, 1.0), below), ndtri(below))


def t_share(point: ArrayLike, df: ArrayLike) -> Floats:
    """The shares of Student's t below points: the inverse of :func:`t_quantile`.

    ``point``: any shape. ``df``: degrees of freedom of the same shape.
    """
    from scipy.special import ndtr, stdtr

    at, freedom = np.asarray(point, dtype=np.float64), np.asarray(df, dtype=np.float64)
    finite = np.isfinite(freedom)
    return np.where(finite, stdtr(np.where(finite, freedom, 1.0), at), ndtr(at))


class Seeds(NamedTuple):
    """What is known of an arm's spread over seeds; arrays of one shape for many arms at once.

    Attributes:
        variance: of the runs' scores; anything for a single run.
        df: degrees of freedom of ``variance``: runs less one, or infinite where it is given and not
            estimated. With 0 the other arm's variance is taken for both.
    """

    variance: Floats | float
    runs: int
    df: float

    @classmethod
    def of(cls, scores: Floats) -> "Seeds":
        """Of runs with these scores."""
        variance = float(scores.var(ddof=1)) if len(scores) > 1 else 0.0
        return cls(variance, len(scores), len(scores) - 1)


def spread_error(before: Seeds, after: Seeds, level: float = 0.95) -> tuple[Floats, Floats]:
    """Standard error over seeds of the difference of two arms' means, and its degrees of freedom.

    Of a variance for each arm (Welch) and one for both (Student), whichever gives the wider
    interval.
    """
    found = [_welch(before, after)] if before.df and after.df else []
    # Of equal arms both have the same error, and Welch's has fewer degrees of freedom.
    if not math.isinf(before.df + after.df) and not (found and before.runs == after.runs):
        found.append(_pooled(before, after))
    if len(found) == 1:
        return found[0]
    (one, one_df), (two, two_df) = found
    share = (1 + level) / 2
    wider = one * t_quantile(share, one_df) >= two * t_quantile(share, two_df)
    return np.where(wider, one, two), np.where(wider, one_df, two_df)


def _welch(before: Seeds, after: Seeds) -> tuple[Floats, Floats]:
    """Standard error and its degrees of freedom, a variance for each arm."""
    return _satterthwaite(*((np.asarray(a.variance) / a.runs, a.df) for a in (before, after)))


def _pooled(before: Seeds, after: Seeds) -> tuple[Floats, Floats]:
    """Standard error and its degrees of freedom, one variance for both arms."""
    df = before.df + after.df
    parts = (np.asarray(a.variance) * (a.df / df) for a in (before, after))
    error = np.sqrt(sum(parts, start=np.zeros(())) * (1 / before.runs + 1 / after.runs))
    return error, np.full(error.shape, float(df))


def arm_scores(values: ArrayLike) -> Floats:
    """(n,) scores of an arm's runs; DataError for none, or one that is not finite."""
    found = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if found.ndim != 1 or not len(found):
        raise DataError("an arm has no runs; at least 1 is needed")
    if not np.isfinite(found).all():
        raise DataError("a run's score is NaN or infinite")
    return found


def _satterthwaite(*terms: tuple[Floats, float]) -> tuple[Floats, Floats]:
    """Standard error of a sum of estimates with these variances and degrees of freedom (1946)."""
    total = sum((v for v, _ in terms), start=np.zeros(()))
    # Shares of the whole, so that the squares of small variances do not vanish.
    shares = (np.divide(v, total, out=np.zeros_like(total), where=total > 0) for v, _ in terms)
    squares = sum((s**2 / df for s, (_, df) in zip(shares, terms, strict=True)), start=np.zeros(()))
    fewest = np.full(total.shape, float(sum(df for _, df in terms)))
    df = np.divide(1.0, squares, out=fewest, where=squares > 0)
    return np.sqrt(total), df


class TwoWay(NamedTuple):
    """Standard errors of a difference over test items and over seeds; arrays for many at once.

    Attributes:
        seeds: standard error over seeds, on the items at hand.
        shared: what both hold: how far other items move runs apart.
    """

    items: float
    items_df: float
    seeds: Floats | float
    seeds_df: Floats | float
    shared: Floats | float = 0.0

    def half_width(self, level: ArrayLike = 0.95) -> Floats:
        """Half of the interval's width.

        Each source has its own t quantile, and the half-widths add up as squares, less the normal
        one of what both hold. (One quantile for the whole, with Satterthwaite's degrees of
        freedom, finds up to 13 % false differences where few runs meet many items.)
        """
        share = (1 + np.asarray(level)) / 2
        items = (t_quantile(share, self.items_df) * self.items) ** 2
        seeds = (t_quantile(share, self.seeds_df) * self.seeds) ** 2
        both = (t_quantile(share, math.inf) * self.shared) ** 2
        total: Floats = np.sqrt(np.maximum(items + seeds - both, items))
        return total

    def p(self, difference: float) -> float:
        """Two-sided p of no difference: the interval of level 1 - p just touches zero."""
        from scipy.optimize import brentq

        if not self.half_width():
            return float(not difference)
        if not (self.items and self.seeds):
            error, df = (self.seeds, self.seeds_df) if self.seeds else (self.items, self.items_df)
            return t_difference(difference, float(error), float(df)).p

        def beyond(logarithm: float) -> float:
            # expm1: levels near 1 keep their digits.
            return float(self.half_width(-math.expm1(logarithm))) - abs(difference)

        if not difference or beyond(-1e-12) >= 0:
            return 1.0
        if beyond(SMALLEST) <= 0:
            return math.exp(SMALLEST)
        return math.exp(brentq(beyond, SMALLEST, -1e-12, xtol=1e-6))


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference, after minus before.

    Attributes:
        low: lower end of its 95 % bootstrap interval.
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
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Difference of two Spearman correlations with the same gold scores.

    Both systems are measured on the same resamples of pairs. The p value is twice the share of
    resamples on the other side of zero (one added to both counts), so it agrees with the interval.

    ``before``: (n,) similarities given by one system. ``after``: (n,) similarities given by the
    other to the same pairs. ``gold``: (n,) gold scores of the pairs.
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
