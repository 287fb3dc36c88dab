"""Tests over seeds: Student's t, paired and unpaired, equivalence, Holm's method.

Without SciPy, which would be a third of what is installed.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError

Floats = NDArray[np.float64]

LEVEL = 0.95  # of an interval
UPPER = (1 + LEVEL) / 2  # the share of a distribution below its upper end

LOG_SMALLEST_P = math.log(1e-15)


@dataclass(frozen=True, slots=True)
class EffectEstimate:
    """A difference, second minus first."""

    mean: float
    low: float  # lower end of its interval, 95 % unless stated
    high: float
    error: float  # standard error; 0 if nothing varies
    df: float  # degrees of freedom of `error`; infinite if it is known
    p: float  # two-sided p value of no difference

    @classmethod
    def from_error(
        cls, mean: float, error: float, df: float = math.inf, level: float = LEVEL
    ) -> "EffectEstimate":
        """The t interval of a difference. That of ``-mean`` is the mirror image, to the bit."""
        half = t_quantile((1 + level) / 2, df) * error if error else 0.0
        return cls(mean, mean - half, mean + half, error, df, _two_sided(mean, error, df))


def paired_t(differences: ArrayLike) -> EffectEstimate:
    """Student's paired t test: differences of runs that share a seed, or of any pairs."""
    gaps = check_scores(differences)
    if len(gaps) < 2:
        raise DataError("one difference is too few; at least 2 are needed")
    error = math.sqrt(float(gaps.var(ddof=1)) / len(gaps))
    return EffectEstimate.from_error(float(gaps.mean()), error, len(gaps) - 1)


def unpaired_t(before: ArrayLike, after: ArrayLike) -> EffectEstimate:
    """The t test of two arms whose runs are independent; see :func:`unpaired_error`."""
    a, b = check_scores(before), check_scores(after)
    error, df = unpaired_error(ArmSpread.of(a), ArmSpread.of(b))
    return EffectEstimate.from_error(float(b.mean() - a.mean()), error, df)


def p_value(estimate: EffectEstimate, at: float = 0.0) -> float:
    """Two-sided p of the difference being ``at``."""
    return _two_sided(estimate.mean - at, estimate.error, estimate.df)


def tost(estimate: EffectEstimate, margin: float) -> float:
    """P of the difference being as large as a margin, up or down: two one-sided t tests."""
    return _beyond(margin - abs(estimate.mean), estimate.error, estimate.df)


def holm(p_values: ArrayLike) -> Floats:
    """(m,) p values adjusted for any false finding among m tests (Holm, 1979)."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def t_quantile(share: float, df: float) -> float:
    """The point of Student's t below which a share of it lies; of the normal for infinite df."""
    tail = min(share, 1 - share)
    if not 0 < tail < 0.5:
        return math.copysign(math.inf, share - 0.5) if tail <= 0 else 0.0
    point = -NormalDist().inv_cdf(tail)
    if math.isfinite(df):
        # Newton's method: the tail is convex, and that of the normal is the smaller one.
        scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
        for _ in range(100):
            density = scale * math.exp(-(df + 1) / 2 * math.log1p(point * point / df))
            step = (t_share(-point, df) - tail) / density
            point += step
            if abs(step) <= 1e-15 * point:
                break
    return math.copysign(point, share - 0.5)


def t_share(point: float, df: float) -> float:
    """The share of Student's t below a point: the inverse of :func:`t_quantile`."""
    if math.isinf(df):
        return math.erfc(-point / math.sqrt(2)) / 2
    if math.isinf(point):
        return float(point > 0)
    square = point * point
    a, x, y = df / 2, df / (df + square), square / (df + square)
    if x < (a + 1) / (a + 2.5):
        tail = _incomplete_beta(x, y, a, 0.5) / 2
    else:
        tail = (1 - _incomplete_beta(y, x, 0.5, a)) / 2
    return tail if point < 0 else 1 - tail


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularized incomplete beta function; ``rest`` is 1 - x."""
    # Its continued fraction (DLMF 8.17.22) by Lentz's method; it converges below the mean.
    if not x:
        return 0.0
    front = a * math.log(x) + b * math.log(rest) - math.log(a)
    front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    up, down = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = down
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a - 1 + 2 * m) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 1 + 2 * m))
        for term in (even, odd):
            down = 1 / (1 + term * down)
            up = 1 + term / up
            fraction *= up * down
        if abs(up * down - 1) < 1e-15:
            break
    return math.exp(front) * fraction


def _two_sided(mean: float, error: float, df: float) -> float:
    return min(1.0, 2 * _beyond(abs(mean), error, df)) if error else float(not mean)


def _beyond(distance: float, error: float, df: float) -> float:
    """The share of estimates that lie a distance or more from the truth, on one side."""
    return t_share(-distance / error, df) if error else float(distance <= 0)


def check_scores(values: ArrayLike) -> Floats:
    """(n,) scores of an arm's runs; DataError for none, or one that is not finite."""
    scores = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if scores.ndim != 1 or not len(scores):
        raise DataError("a model has no runs; at least 1 is needed")
    if not np.isfinite(scores).all():
        raise DataError("a run's score is NaN or infinite")
    return scores


class ArmSpread(NamedTuple):
    """The variance of an arm's scores over seeds."""

    variance: float  # anything for a single run
    runs: int
    # degrees of freedom of `variance`: runs minus one, or infinite if it is given and not
    # estimated. With 0 the other arm's variance is taken for both
    df: float

    @classmethod
    def of(cls, scores: Floats) -> "ArmSpread":
        """The spread of runs with these scores."""
        variance = float(scores.var(ddof=1)) if len(scores) > 1 else 0.0
        return cls(variance, len(scores), len(scores) - 1)


def unpaired_error(before: ArmSpread, after: ArmSpread) -> tuple[float, float]:
    """Standard error over seeds of a difference of two means, and its degrees of freedom."""
    # A variance for each arm (Welch) or one for both (Student), whichever gives the wider
    # interval: of 2 runs against 5, Welch alone finds more than 5.5 % false differences.
    errors = [_welch(before, after)] if before.df and after.df else []
    # For equal arms the errors are the same, and Welch's has fewer degrees of freedom.
    if not math.isinf(before.df + after.df) and not (errors and before.runs == after.runs):
        df = before.df + after.df
        variance = sum(arm.variance * (arm.df / df) for arm in (before, after))
        errors.append((math.sqrt(variance * (1 / before.runs + 1 / after.runs)), df))
    return max(errors, key=lambda own: own[0] * t_quantile(UPPER, own[1]))


def _welch(before: ArmSpread, after: ArmSpread) -> tuple[float, float]:
    """A variance for each arm, and Satterthwaite's degrees of freedom (1946)."""
    terms = [(arm.variance / arm.runs, arm.df) for arm in (before, after)]
    total = sum(variance for variance, _ in terms)
    if not total:
        return 0.0, sum(df for _, df in terms)
    # Shares of the whole, so that the squares of small variances do not vanish.
    squares = sum((v / total) * (v / total) / df for v, df in terms)
    return math.sqrt(total), 1 / squares if squares else math.inf


class TwoWay(NamedTuple):
    """Standard errors of a difference over test items and over seeds."""

    items: float
    items_df: float
    seeds: float  # standard error over seeds, on the items at hand
    seeds_df: float
    shared: float = 0.0  # the shared part: how far other items move runs apart

    def half_width(self, level: float = 0.95) -> float:
        """Half of the interval's width."""
        # Each source has its own t quantile; one for the whole, with Satterthwaite's degrees of
        # freedom, finds up to 13 % false differences where few runs meet many items.
        share = (1 + level) / 2
        items = t_quantile(share, self.items_df) * self.items
        seeds = t_quantile(share, self.seeds_df) * self.seeds
        both = t_quantile(share, math.inf) * self.shared
        return math.sqrt(max(items * items + seeds * seeds - both * both, items * items))

    def p(self, difference: float) -> float:
        """Two-sided p of no difference: the interval of level 1 - p just touches zero."""
        if not (self.items and self.seeds):
            error, df = (self.seeds, self.seeds_df) if self.seeds else (self.items, self.items_df)
            return _two_sided(difference, error, df)

        def beyond(logarithm: float) -> float:
            # expm1: levels near 1 keep their digits.
            return self.half_width(-math.expm1(logarithm)) - abs(difference)

        if not difference or beyond(-1e-12) >= 0:
            return 1.0
        if beyond(LOG_SMALLEST_P) <= 0:
            return math.exp(LOG_SMALLEST_P)
        low, high = LOG_SMALLEST_P, -1e-12
        while high - low > 1e-12 and low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if beyond(middle) > 0 else (low, middle)
        return math.exp(low)


def pooled_deviation(before: ArrayLike, after: ArrayLike) -> float | None:
    """Standard deviation over seeds, pooled over both arms; None without two runs in an arm."""
    arms = [ArmSpread.of(check_scores(scores)) for scores in (before, after)]
    df = sum(arm.df for arm in arms)
    return math.sqrt(sum(arm.variance * arm.df for arm in arms) / df) if df else None
