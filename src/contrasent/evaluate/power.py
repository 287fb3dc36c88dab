"""Seeds: is a gain more than their noise, how small a gain could be seen, how many are needed?

Two arms of independently seeded runs are compared by Student's t test with Welch's correction
(1947), the wider of both where arms are unequal, and by a permutation test; all are about the
method, not about one pair of models. Power is that of the test which ``compare`` makes: its t has
a noncentral distribution whose critical value depends on the variances that are found, so the
distribution is integrated over them (a plain noncentral t, as for Student's test, would promise 80
% where Welch's has 73 to 78).
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError
from contrasent.evaluate.significance import Seeds, TwoWay, arm_scores, spread_error

POWER = 0.8
EXACT = 20_000
"""Regroupings up to which all of them are tried; of more, so many random ones:"""
TRIES = 10_000

MOST_SEEDS = 100_000
NODES, FEW, MANY = 12, 5, 30
"""Of the quadrature over a variance: points; points from so many degrees of freedom on."""

Floats = NDArray[np.float64]
Runs = int | tuple[int, int]


def permutation_p(before: ArrayLike, after: ArrayLike) -> float:
    """Two-sided p of the difference of two arms' means under random reassignment of runs to arms.

    All regroupings are tried where there are few; else random ones, with one added to both
    counts. Three runs against three cannot go below 0.1, four against four below 0.03.

    ``before``: (n,) scores of one arm's runs. ``after``: (m,) scores of the other's.
    """
    a, b = arm_scores(before), arm_scores(after)
    values = np.concatenate([a, b])
    observed = abs(b.mean() - a.mean()) * (1 - 1e-9) - 1e-15

    def extreme(chosen: NDArray[np.int64]) -> bool:
        taken = values[chosen].sum()
        rest = values.sum() - taken
        return bool(abs(taken / len(b) - rest / len(a)) >= observed)

    if math.comb(len(values), len(b)) <= EXACT:
        groups = list(itertools.combinations(range(len(values)), len(b)))
        return sum(extreme(np.array(g)) for g in groups) / len(groups)
    random = np.random.default_rng(0)
    hits = sum(extreme(random.permutation(len(values))[: len(b)]) for _ in range(TRIES))
    return (hits + 1) / (TRIES + 1)


def minimum_detectable_effect(
    deviation: float,
    seeds: Runs,
    *,
    items: float = 0.0,
    shared: float = 0.0,
    freedom: float = math.inf,
) -> float:
    """The smallest true difference that so many seeds an arm find four times in five."""
    from scipy.optimize import brentq

    if not items and max(_pair(seeds)) < 2:
        raise DataError(f"{seeds} seed an arm has no spread to estimate; run at least 2")
    scale = math.hypot(deviation, items)
    if not scale:
        return 0.0
    chance = power_curve(deviation, seeds, items=items, shared=shared, freedom=freedom)
    high = scale
    while chance(high) < POWER:
        high *= 2
    return float(brentq(lambda e: chance(e) - POWER, 1e-9 * scale, high, rtol=1e-6))


def seeds_needed(
    effect: float,
    deviation: float,
    *,
    items: float = 0.0,
    shared: float = 0.0,
    freedom: float = math.inf,
) -> int:
    """Runs an arm that find a true difference four times in five, at least 2."""
    if deviation == 0 and not items:
        return 2

    def enough(n: int) -> bool:
        error = math.hypot(items, shared * math.sqrt(2 / n))
        chance = power_curve(deviation, n, items=error, shared=shared, freedom=freedom)
        return chance(effect) >= POWER

    if not effect or not enough(MOST_SEEDS):
        raise DataError(f"an effect of {effect:g} with a spread of {deviation:g} cannot be found")
    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def plan(
    difference: float,
    arms: Sequence[Seeds],
    deviation: float | None,
    items: float,
    both: float,
    shared: Sequence[float],
) -> tuple[float | None, int | None]:
    """The detectable effect and the runs that are needed; None where a spread is half assumed."""
    freedom = sum(arm.df for arm in arms)
    if deviation is None:
        deviation, part = math.sqrt(float(arms[0].variance)), 0.0
    elif math.isinf(freedom):
        return None, None
    else:
        part = math.sqrt(sum(s * arm.df for s, arm in zip(shared, arms, strict=True)) / freedom)
    if not deviation and not items:
        return None, None
    found = minimum_detectable_effect(
        deviation, (arms[0].runs, arms[1].runs), items=items, shared=part, freedom=freedom
    )
    rest = math.sqrt(max(items**2 - both, 0.0))
    try:
        needed = seeds_needed(difference, deviation, items=rest, shared=part, freedom=freedom)
    except DataError:
        return found, None
    return found, needed


def pooled_deviation(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Standard deviation over seeds, pooled over both arms; None without two runs in an arm."""
    arms = [Seeds.of(arm_scores(scores)) for scores in (before, after)]
    freedom = sum(arm.df for arm in arms)
    return math.sqrt(sum(a.variance * a.df for a in arms) / freedom) if freedom else None


def _pair(seeds: Runs) -> tuple[int, int]:
    return (seeds, seeds) if isinstance(seeds, int) else seeds


def power_curve(
    deviation: float,
    seeds: Runs,
    *,
    items: float = 0.0,
    shared: float = 0.0,
    freedom: float = math.inf,
) -> Callable[[float], float]:
    """The power of the two-sided test of :mod:`contrasent.evaluate.compare`, by true effect.

    Given the variances that the runs show, a difference is found if it exceeds the critical value
    that they give; it is normal and independent of them. So the power is a mean of normal shares
    over quantiles of chi-squared variances (Gauss and Legendre's).
    """
    from scipy.special import ndtr

    runs = _pair(seeds)
    scale = 1 / runs[0] + 1 / runs[1]
    truths, weights = _variances(deviation**2, freedom)
    truths, weights = truths[:, None, None], weights[:, None, None]
    arms = []
    for axis, n in enumerate(runs):
        if max(runs) == 1:
            arms.append(Seeds(truths, 1, math.inf))
            continue
        ratio, own = _variances(1.0, n - 1, inverse=False)
        shape = (1, -1, 1) if axis else (1, 1, -1)
        arms.append(Seeds(truths * ratio.reshape(shape), n, n - 1))
        weights = weights * own.reshape(shape)
    error, df = spread_error(arms[0], arms[1])
    both = 0.0 if max(runs) == 1 else np.minimum(shared**2, truths) * scale
    edges = TwoWay(items, math.inf, error, df, np.sqrt(both)).half_width()
    true = np.sqrt(items**2 + truths * scale - both)

    def chance(effect: float) -> float:
        found = ndtr((effect - edges) / true) + ndtr((-effect - edges) / true)
        return float((found * weights).sum())

    return chance


def _variances(variance: float, df: float, inverse: bool = True) -> tuple[Floats, Floats]:
    """Values that a variance may have, and their weights.

    With ``inverse`` what it may truly be where ``variance`` is an estimate with ``df`` degrees of
    freedom, else what an estimate of it may be.
    """
    if not df or math.isinf(df) or not variance:
        return np.array([variance]), np.ones(1)
    from scipy.special import gammaincinv

    # A variance with many degrees of freedom hardly varies.
    points, parts = np.polynomial.legendre.leggauss(NODES if df < MANY else FEW)
    weights = np.array(parts, dtype=np.float64) / 2
    shares = (np.array(points, dtype=np.float64) + 1) / 2
    ratio = np.array(gammaincinv(df / 2, shares), dtype=np.float64) * 2 / df
    return variance / ratio if inverse else variance * ratio, weights
