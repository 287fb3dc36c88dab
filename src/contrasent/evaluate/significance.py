"""Is the difference real? Comparisons with intervals and p values.

Over items, paired: bootstrap and permutations. Over seeds: Student's t with exact quantiles, from
two arms of scores, or from a difference whose standard error is known already.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError
from contrasent.evaluate.bootstrap import FEWEST, RankedPairs, draw_counts, interval
from contrasent.metrics import spearman

RESAMPLES = 10_000
BLOCK = 2_000_000
SMALLEST = math.log(1e-15)
"""Of the p values of intervals; its logarithm."""

SINGLE = "one run in each arm says nothing about seeds; run more of one at least"

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


def paired_difference(
    before: ArrayLike, after: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> Difference:
    """Difference of two means over the same items, such as reciprocal ranks of the same queries.

    The interval is the percentile bootstrap over items. The p value is that of the permutation test
    that swaps the two systems item by item (signs of the differences), with one added to both
    counts so that it is never zero (Phipson and Smyth, 2010).

    Args:
        before: (n,) values of one system.
        after: (n,) values of the other on the same items, in the same order.
        resamples: bootstrap resamples, and random permutations.
        seed: of both.

    Raises:
        DataError: lengths that differ, fewer than 20 items, or values that are not finite.
    """
    a, b = _paired(before, after)
    gaps = b - a
    low, high = interval(
        np.concatenate([c @ gaps / len(gaps) for c in draw_counts([len(gaps)], resamples, seed)])
    )
    return Difference(float(gaps.mean()), low, high, _sign_flip(gaps, resamples, seed))


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


class TDifference(NamedTuple):
    """A difference of two means, second minus first, with a t interval.

    Attributes:
        difference: the difference.
        low: lower end of its interval.
        high: upper end of it.
        df: degrees of freedom of its standard error.
        p: two-sided p value of "there is no difference".
    """

    difference: float
    low: float
    high: float
    df: float
    p: float


class Equivalence(NamedTuple):
    """Two one-sided tests of a difference against a margin.

    Attributes:
        difference: the difference, second minus first.
        low: lower end of the interval whose both ends the tests look at (90 % at alpha 0.05).
        high: upper end of it.
        p_worse: p value of "the second is worse by the margin or more"; a small one says that
            the second is not inferior.
        p_better: p value of "the second is better by the margin or more".
        p: of "they differ by the margin or more", the larger of the two; a small one says that
            they are equivalent.
    """

    difference: float
    low: float
    high: float
    p_worse: float
    p_better: float
    p: float


def t_difference(difference: float, error: float, df: float, level: float = 0.95) -> TDifference:
    """The t interval of a difference with a known standard error.

    The interval of ``-difference`` is the mirror image, to the bit. An error of zero (no value
    varies) gives a point, with p 1 at zero and 0 elsewhere.

    Args:
        difference: second mean minus first.
        error: its standard error.
        df: the error's degrees of freedom; infinite for the normal distribution.
        level: confidence level of the interval.
    """
    if not error:
        return TDifference(difference, difference, difference, df, float(not difference))
    half = float(t_quantile((1 + level) / 2, df)) * error
    p = 2 * float(t_share(-abs(difference) / error, df))
    return TDifference(difference, difference - half, difference + half, df, p)


def t_quantile(share: ArrayLike, df: ArrayLike) -> Floats:
    """The points of Student's t below which shares of it lie; normal where df is infinite."""
    from scipy.special import ndtri, stdtrit

    below, freedom = np.asarray(share, dtype=np.float64), np.asarray(df, dtype=np.float64)
    finite = np.isfinite(freedom)
    return np.where(finite, stdtrit(np.where(finite, freedom, 1.0), below), ndtri(below))


def t_share(point: ArrayLike, df: ArrayLike) -> Floats:
    """The shares of Student's t below points: the inverse of :func:`t_quantile`."""
    from scipy.special import ndtr, stdtr

    at, freedom = np.asarray(point, dtype=np.float64), np.asarray(df, dtype=np.float64)
    finite = np.isfinite(freedom)
    return np.where(finite, stdtr(np.where(finite, freedom, 1.0), at), ndtr(at))


def welch(before: ArrayLike, after: ArrayLike, level: float = 0.95) -> TDifference:
    """Difference of two arms' means; variances may differ (Welch, 1947).

    Degrees of freedom are Satterthwaite's. Very small arms of unequal size make it find false
    differences too often (2 runs against 5: 6.4 %, against 20: 12 %): see :func:`seed_difference`.

    Args:
        before: (n,) scores of one arm's runs, at least 2.
        after: (m,) scores of the other's, at least 2.
        level: confidence level of the interval.

    Raises:
        DataError: an arm with fewer than two runs, or a score that is not finite.
    """
    a, b = _arm(before), _arm(after)
    return t_difference(float(b.mean() - a.mean()), *_welch_error(a, b), level)


def student(before: ArrayLike, after: ArrayLike, level: float = 0.95) -> TDifference:
    """Difference of two arms' means by one variance for both, pooled (Student, 1908).

    An arm may have a single run: its variance is then that of the other.

    Raises:
        DataError: no arm with two runs, or a score that is not finite.
    """
    a, b = _arm(before, 1), _arm(after, 1)
    return t_difference(float(b.mean() - a.mean()), *_pooled_error(a, b), level)


def seed_difference(before: ArrayLike, after: ArrayLike, level: float = 0.95) -> TDifference:
    """Difference of two methods by their runs: the wider of Welch's and Student's intervals.

    For equal arms this is Welch's. For unequal ones Welch's t is too sure when the small arm is
    tight by chance, and Student's when the small arm varies more; the wider of both finds 2 to 4 %
    false differences where the variances are equal. With a single run in an arm it is Student's.

    Raises:
        DataError: no arm with two runs, or a score that is not finite.
    """
    a, b = _arm(before, 1), _arm(after, 1)
    if len(a) == len(b) == 1:
        raise DataError(SINGLE)
    error, df = spread_error(Seeds.of(a), Seeds.of(b), level)
    return t_difference(float(b.mean() - a.mean()), float(error), float(df), level)


class Seeds(NamedTuple):
    """What is known of an arm's spread over seeds; arrays of one shape for many arms at once.

    Attributes:
        variance: of the runs' scores; anything for a single run.
        runs: how many runs the arm has.
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
    interval at ``level``.
    """
    arms = (before, after)
    found = []
    if before.df and after.df:
        found.append(_satterthwaite(*((np.asarray(a.variance) / a.runs, a.df) for a in arms)))
    # Of equal arms both have the same error, and Welch's has fewer degrees of freedom.
    if not math.isinf(df := before.df + after.df) and not (found and before.runs == after.runs):
        parts = (np.asarray(a.variance) * (a.df / df) for a in arms)
        error = np.sqrt(sum(parts, start=np.zeros(())) * (1 / before.runs + 1 / after.runs))
        found.append((error, np.full(error.shape, float(df))))
    if len(found) == 1:
        return found[0]
    (one, one_df), (two, two_df) = found
    share = (1 + level) / 2
    wider = one * t_quantile(share, one_df) >= two * t_quantile(share, two_df)
    return np.where(wider, one, two), np.where(wider, one_df, two_df)


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
        items: standard error over items.
        items_df: its degrees of freedom.
        seeds: standard error over seeds, on the items at hand.
        seeds_df: its degrees of freedom.
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


def equivalence(
    difference: float, error: float, df: float, margin: float, alpha: float = 0.05
) -> Equivalence:
    """Two one-sided t tests of a difference with a known standard error (Schuirmann, 1987).

    Args:
        difference: second mean minus first.
        error: its standard error.
        df: the error's degrees of freedom.
        margin: the smallest difference that matters, above 0.
        alpha: level of each test.

    Raises:
        DataError: a margin that is not above 0.
    """
    if not margin > 0:
        raise DataError(f"an equivalence margin of {margin:g}; it must be above 0")
    if error:
        worse = float(t_share(-(difference + margin) / error, df))
        better = float(t_share((difference - margin) / error, df))
    else:
        worse, better = float(difference <= -margin), float(difference >= margin)
    _, low, high, *_ = t_difference(difference, error, df, 1 - 2 * alpha)
    return Equivalence(difference, low, high, worse, better, max(worse, better))


def tost(before: ArrayLike, after: ArrayLike, margin: float, alpha: float = 0.05) -> Equivalence:
    """Are two arms of runs equivalent, but for a margin? By Welch's standard error.

    Args:
        before: (n,) scores of one arm's runs, at least 2.
        after: (m,) scores of the other's, at least 2.
        margin: the smallest difference that matters, above 0, in the scores' unit.
        alpha: level of each test.

    Raises:
        DataError: an arm with fewer than two runs, a score that is not finite, or a margin that is
            not above 0.
    """
    a, b = _arm(before), _arm(after)
    return equivalence(float(b.mean() - a.mean()), *_welch_error(a, b), margin, alpha)


def _arm(values: ArrayLike, fewest: int = 2) -> Floats:
    found = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if found.ndim != 1 or len(found) < fewest:
        raise DataError(f"{len(found)} runs in an arm; at least {fewest} are needed")
    if not np.isfinite(found).all():
        raise DataError("a run's score is NaN or infinite")
    return found


def _welch_error(a: Floats, b: Floats) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom."""
    terms = [(np.asarray(v.var(ddof=1)) / len(v), len(v) - 1.0) for v in (a, b)]
    error, df = _satterthwaite(*terms)
    return float(error), float(df)


def _pooled_error(a: Floats, b: Floats) -> tuple[float, float]:
    df = len(a) + len(b) - 2
    if not df:
        raise DataError(SINGLE)
    squares = sum(float(((v - v.mean()) ** 2).sum()) for v in (a, b))
    return math.sqrt(squares / df * (1 / len(a) + 1 / len(b))), df


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


def _sign_flip(gaps: Floats, permutations: int, seed: int) -> float:
    """Two-sided p of the mean of paired differences under random swaps of each pair."""
    moved = gaps[gaps != 0]
    if not len(moved):
        return 1.0
    random = np.random.default_rng((seed, 1))
    observed = abs(moved.sum())
    rows = max(1, BLOCK // len(moved))
    extreme = 0
    for start in range(0, permutations, rows):
        block = min(rows, permutations - start)
        bits = random.integers(0, 2, size=(block, len(moved)), dtype=np.int8)
        sums = moved.sum() - 2 * (bits.astype(np.float32) @ moved)
        # A hair of slack: the identity permutation must count as extreme despite rounding.
        extreme += int(np.count_nonzero(np.abs(sums) >= observed * (1 - 1e-9) - 1e-12))
    return (extreme + 1) / (permutations + 1)
