"""Values over seeds, and differences of two rows."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from statistics import fmean, stdev

from contrasent.stats.seeds import (
    ArmSpread,
    EffectEstimate,
    check_scores,
    paired_t,
    unpaired_error,
    unpaired_t,
)

_from_error = EffectEstimate.from_error
Z_95 = 1.959963984540054
"""Standard errors from a value to an end of its 95 % bootstrap interval over test items."""


@dataclass(frozen=True, slots=True)
class SeedScores:
    """A row's values in a column, in the document's units.

    Attributes:
        seeded: whether another seed would give another value.
        seeds: of the values, ascending; 0, 1, and so on if empty.
        low: lower end of the bootstrap interval over test items, of a row without seeds.
        draws: of a row without seeds how far resamples of the test items move it, the same
            resamples for all rows; empty where that is not known.
        order: what, besides the seed, the order of its training sentences depends on; None where
            that is not known.
    """

    values: tuple[float, ...]
    seeded: bool = True
    seeds: tuple[int, ...] = ()
    low: float | None = None
    high: float | None = None
    draws: tuple[float, ...] = ()
    order: Hashable = None

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.values)

    @property
    def by_seed(self) -> dict[int, float]:
        """The values."""
        return dict(zip(self.seeds or range(len(self.values)), self.values, strict=True))

    def deviation(self) -> float | None:
        """Standard deviation over seeds; None with one seed, and without seeds."""
        return stdev(self.values) if self.seeded and len(self.values) > 1 else None

    def estimate(self) -> EffectEstimate:
        """The mean, as a difference from zero."""
        if self.seeded and len(self.values) > 1:
            return paired_t(self.values)
        if self.seeded or self.low is None or self.high is None:
            return _from_error(self.mean, math.inf)
        return _from_error(self.mean, max(self.high - self.mean, self.mean - self.low) / Z_95)

    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean over seeds; of a row without seeds that over test items."""
        if not self.seeded and self.low is not None and self.high is not None:
            return self.low, self.high
        return bounds(self.estimate())


def bounds(effect: EffectEstimate) -> tuple[float, float] | None:
    """95 % interval; None where nothing is known of it."""
    return None if math.isinf(effect.error) else (effect.low, effect.high)


def difference(before: SeedScores, after: SeedScores) -> EffectEstimate:
    """The difference of two rows; of unknown error (infinite) where nothing says how sure it is."""
    mean = after.mean - before.mean
    one, two = before.by_seed, after.by_seed
    if before.seeded and after.seeded:
        shared = sorted(set(one) & set(two))
        if before.order is not None and before.order == after.order and len(shared) > 1:
            return paired_t([two[seed] - one[seed] for seed in shared])
        if len(one) == len(two) == 1:
            return _from_error(mean, math.inf)
        return unpaired_t(before.values, after.values)
    if before.seeded or after.seeded:
        # The other row would give the same value again.
        found = (before if before.seeded else after).estimate()
        return _from_error(mean, found.error, found.df)
    if before.draws and len(before.draws) == len(after.draws):
        pairs = zip(before.draws, after.draws, strict=True)
        return _from_error(mean, math.sqrt(fmean((new - old) ** 2 for old, new in pairs)))
    # Without shared resamples: sure only where the intervals do not overlap.
    return _from_error(mean, before.estimate().error + after.estimate().error)


def from_published(
    scores: SeedScores, value: float, deviation: float | None, seeds: int
) -> EffectEstimate:
    """A row less the published value, which is the mean of so many runs that vary as ours do."""
    mean = scores.mean - value
    if not scores.seeded or len(scores.values) < 2:
        return _from_error(mean, math.inf if scores.seeded else 0.0)
    own = ArmSpread.of(check_scores(scores.values))
    theirs = ArmSpread(own.variance, seeds, 0)
    if deviation is not None:
        theirs = ArmSpread(deviation**2, seeds, seeds - 1 or math.inf)
    return _from_error(mean, *unpaired_error(theirs, own))
