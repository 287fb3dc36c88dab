"""Differences that may be looked at after every seed, and stay sure however often one looks.

Differences of two rows, seed by seed, are taken for independent draws of one normal distribution
whose mean and variance nobody knows. How much they speak against a mean is measured by a mixture
that does not depend on the variance (Lai, 1976; Wang and Ramdas, 2025, "Anytime-valid t-tests and
confidence sequences for Gaussian means with unknown variance"): the likelihood of their t statistic
where the true difference, in standard deviations, is itself a normal draw, over that where there is
none. If there is none, this ratio reaches 1/p at any time with a chance of at most p (Ville, 1939),
so that its inverse is a p value at all times at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

EFFECT = 2.0
"""Standard deviation of the true differences that are expected, in standard deviations of a seed's.
It decides how many seeds are needed, never how often a verdict is wrong."""


class Looks(NamedTuple):
    """What was known after each seed from the second on; the last axis is the looks.

    Attributes:
        seeds: (looks,) how many there were.
        squares: (..., looks) sum of their squared distances from it.
    """

    seeds: Floats
    mean: Floats
    squares: Floats

    @classmethod
    def of(cls, values: ArrayLike) -> "Looks":
        """Of differences, (..., seeds)."""
        found = np.asarray(values, dtype=np.float64)
        first, seeds = found[..., :1], np.arange(1, found.shape[-1] + 1, dtype=np.float64)
        away = found - first  # so that squares of large values are not subtracted
        mean = np.cumsum(away, axis=-1) / seeds
        squares = np.maximum(np.cumsum(away**2, axis=-1) - seeds * mean**2, 0.0)
        return cls(seeds[1:], (first + mean)[..., 1:], squares[..., 1:])


def evidence(looks: Looks, at: float, side: int = 0, fixed: float = 0.0) -> Floats:
    """The logarithm of the evidence against a mean, at each look."""
    from scipy.special import stdtr

    seeds, away = looks.seeds, looks.mean - at
    variance = 1 / seeds + fixed
    grown = 1 + EFFECT**2 / variance
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(away == 0, 0.0, away**2 / (variance * looks.squares))
        log1p = np.where(np.isinf(ratio), np.log(grown), np.log1p(ratio) - np.log1p(ratio / grown))
    found: Floats = seeds / 2 * log1p - np.log(grown) / 2
    if side:
        # The share of the mixture, after the data, whose difference lies on this side.
        shrunk = EFFECT**2 / (EFFECT**2 + variance)
        spread = (looks.squares + away**2 / (variance + EFFECT**2)) / seeds * shrunk * variance
        with np.errstate(divide="ignore", invalid="ignore"):
            point = np.where(away == 0, 0.0, side * shrunk * away / np.sqrt(spread))
            found = found + np.log(2 * stdtr(seeds, point))
    return found


def p_values(logarithms: ArrayLike) -> Floats:
    """(...) the least p value over all looks, from the evidence at each, (..., looks)."""
    most: Floats = np.max(logarithms, axis=-1)
    return np.exp(-np.maximum(most, 0.0))


@dataclass(frozen=True, slots=True)
class Sequential:
    """A difference that grows by a seed at a time; what :class:`spread.Gap` says, at all times.

    Attributes:
        looks: after each seed from the second on.
    """

    looks: Looks
    fixed: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float], fixed: float = 0.0) -> "Sequential":
        """Of differences."""
        return cls(Looks.of(values), fixed)

    @property
    def seeds(self) -> int:
        """How many there are."""
        return int(self.looks.seeds[-1])

    @property
    def mean(self) -> float:
        """Of all seeds."""
        return float(self.looks.mean[-1])

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        variance = float(self.looks.squares[-1]) / (self.seeds - 1)
        return math.sqrt(variance * (1 / self.seeds + self.fixed))

    def p(self, at: float = 0.0) -> float:
        """P of the difference being ``at``."""
        return float(p_values(self._against(at)))

    def side(self, at: float = 0.0) -> float:
        """On which side of ``at`` the difference was found, when that was surest."""
        return float(np.sign(self.looks.mean[np.argmax(self._against(at))] - at))

    def p_within(self, margin: float) -> float:
        """P of the difference being as large as a margin: two one-sided tests."""
        ends = (self._against(-margin, 1), self._against(margin, -1))
        return max(float(p_values(end)) for end in ends)

    def p_beyond(self, margin: float) -> float:
        """P of the difference being no larger than a margin."""
        outside = np.abs(self.looks.mean) > margin
        ends = (self._against(at)[outside & (self.looks.mean * at > 0)] for at in (margin, -margin))
        return min(float(p_values(np.append(end, 0.0))) for end in ends)

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """The means that no look spoke against; None where all are possible.

        With a chance of ``level`` the truth lies in it at all times.
        """
        seeds, variance = self.looks.seeds, 1 / self.looks.seeds + self.fixed
        grown = 1 + EFFECT**2 / variance
        bound = (np.sqrt(grown) / (1 - level)) ** (2 / seeds)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(bound < grown, (bound - 1) / (1 - bound / grown), np.inf)
            half = np.sqrt(np.where(np.isinf(ratio), np.inf, ratio * variance * self.looks.squares))
        low, high = float(np.max(self.looks.mean - half)), float(np.min(self.looks.mean + half))
        if low > high:  # the truth was left out once: what all seeds say is the better guess
            low, high = self.mean - float(half[-1]), self.mean + float(half[-1])
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None

    def after(self, seeds: int) -> "Sequential":
        """What so many seeds will have shown, if they go on as all have so far."""
        squares = float(self.looks.squares[-1]) / (self.seeds - 1) * (seeds - 1)
        looks = (float(seeds), self.mean, squares)
        return Sequential(Looks(*(np.array([value]) for value in looks)), self.fixed)

    def _against(self, at: float, side: int = 0) -> Floats:
        return evidence(self.looks, at, side, self.fixed)
