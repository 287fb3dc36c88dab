"""Seeds: is a gain more than their noise, how small a gain could be seen, how many are needed?

Two arms of independently seeded runs are compared by Student's t test with Welch's correction
(1947) and by a permutation test; both ask about the method, not about one pair of models.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError

ALPHA = 0.05
POWER = 0.8
EXACT = 20_000
"""Regroupings up to which all of them are tried."""

MOST_SEEDS = 100_000


def seed_error(before: ArrayLike, after: ArrayLike) -> tuple[float, float]:
    """Standard error of the difference of two arms' means, and its degrees of freedom (Welch).

    Returns:
        (0, infinity) where neither arm has more than one run: then nothing is known about seeds.
    """
    terms = [(v.var(ddof=1) / len(v), len(v) - 1) for v in _arms(before, after) if len(v) > 1]
    total = float(sum(t for t, _ in terms))
    if not total:
        return 0.0, math.inf
    return math.sqrt(total), total**2 / sum(t**2 / df for t, df in terms)


def permutation_p(
    before: ArrayLike, after: ArrayLike, *, tries: int = 10_000, seed: int = 0
) -> float:
    """Two-sided p of the difference of two arms' means when runs are dealt to the arms anew.

    All regroupings are tried where there are few; else ``tries`` random ones, with one added to
    both counts. Three runs against three cannot go below 0.1, four against four below 0.03.

    Args:
        before: (n,) scores of one arm's runs.
        after: (m,) scores of the other's.
        tries: random regroupings.
        seed: of the random ones.
    """
    a, b = _arms(before, after)
    values = np.concatenate([a, b])
    observed = abs(b.mean() - a.mean()) * (1 - 1e-9) - 1e-15

    def extreme(chosen: NDArray[np.int64]) -> bool:
        taken = values[chosen].sum()
        rest = values.sum() - taken
        return bool(abs(taken / len(b) - rest / len(a)) >= observed)

    if math.comb(len(values), len(b)) <= EXACT:
        groups = list(itertools.combinations(range(len(values)), len(b)))
        return sum(extreme(np.array(g)) for g in groups) / len(groups)
    random = np.random.default_rng(seed)
    hits = sum(extreme(random.permutation(len(values))[: len(b)]) for _ in range(tries))
    return (hits + 1) / (tries + 1)


def power(effect: float, deviation: float, seeds: int, *, alpha: float = ALPHA) -> float:
    """Chance that a two-sided t test with so many seeds an arm finds an effect.

    Args:
        effect: true difference of the two methods.
        deviation: standard deviation of scores over seeds, the same in both arms.
        seeds: runs an arm, at least 2.
        alpha: accepted rate of false findings.
    """
    from scipy.stats import nct, t

    df = 2 * (seeds - 1)
    shift = abs(effect) / (deviation * math.sqrt(2 / seeds))
    edge = float(t.ppf(1 - alpha / 2, df))
    return float(nct.sf(edge, df, shift) + nct.cdf(-edge, df, shift))


def minimum_detectable_effect(
    deviation: float, seeds: int, *, alpha: float = ALPHA, wanted: float = POWER
) -> float:
    """The smallest true difference that so many seeds an arm find with the wanted power.

    Raises:
        DataError: fewer than two seeds an arm.
    """
    from scipy.optimize import brentq

    if seeds < 2:
        raise DataError(f"{seeds} seed an arm says nothing about the spread; run at least 2")
    if deviation == 0:
        return 0.0
    high = deviation
    while power(high, deviation, seeds, alpha=alpha) < wanted:
        high *= 2
    return float(
        brentq(lambda e: power(e, deviation, seeds, alpha=alpha) - wanted, 1e-9 * deviation, high)
    )


def seeds_needed(
    effect: float, deviation: float, *, alpha: float = ALPHA, wanted: float = POWER
) -> int:
    """Runs an arm that find a true difference with the wanted power, at least 2.

    Raises:
        DataError: the effect is zero, or so small that 100,000 seeds would not do.
    """
    if deviation == 0:
        return 2
    low, high = 1, 2
    while effect and high <= MOST_SEEDS and power(effect, deviation, high, alpha=alpha) < wanted:
        low, high = high, 2 * high
    if not effect or high > MOST_SEEDS:
        raise DataError(f"an effect of {effect:g} with a spread of {deviation:g} cannot be found")
    while high - low > 1:
        middle = (low + high) // 2
        enough = power(effect, deviation, middle, alpha=alpha) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high


def pooled_deviation(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Standard deviation over seeds, pooled over both arms; None without two runs in an arm."""
    squares, freedom = 0.0, 0
    for v in _arms(before, after):
        if len(v) > 1:
            squares += float(v.var(ddof=1)) * (len(v) - 1)
            freedom += len(v) - 1
    return math.sqrt(squares / freedom) if freedom else None


def _arms(before: ArrayLike, after: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a = np.atleast_1d(np.asarray(before, dtype=np.float64))
    b = np.atleast_1d(np.asarray(after, dtype=np.float64))
    if not len(a) or not len(b) or not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise DataError("each arm needs at least one run with a finite score")
    return a, b
