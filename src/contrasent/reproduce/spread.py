"""How far another seed moves a value: the noise of a table's rows, pooled, and of a difference."""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contrasent.reproduce.sequential import Sequential
from contrasent.stats.seeds import EffectEstimate, t_share

APART = 0.001
"""A row is not pooled whose variance is larger than the others' at this level, F test."""

OWN = 2.0
"""A row whose variance is so many times the pooled one rests on its own seeds alone."""

ITEMS = 1.959963984540054
"""Standard errors from a value to an end of its 95 % bootstrap interval over test items."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation over seeds.

    Attributes:
        freedom: degrees of freedom that it rests on.
        own: whether these are a row's own; else those of all rows of its column.
    """

    deviation: float
    freedom: float
    own: bool = False


def pooled(rows: Mapping[str, Sequence[float]]) -> Spread | None:
    """The spread over seeds that all rows of a column share; None where no row has two values.

    A seed moves similar methods about as far, and three seeds of a row alone hardly say how far. A
    row that varies far more than the others (F test at 0.1 %, times the number of rows, the largest
    first) is left out.
    """
    several = sorted((v for v in rows.values() if len(v) > 1), key=lambda v: _pool([v]).deviation)
    while len(several) > 1:
        widest, rest = _pool(several[-1:]), _pool(several[:-1])
        if not _apart(widest.deviation**2, widest.freedom, rest, len(several)):
            break
        several.pop()
    return _pool(several) if several else None


def _apart(variance: float, freedom: float, rest: Spread, rows: int) -> bool:
    """Whether the widest of so many rows varies more than the rest."""
    from scipy.special import fdtrc

    if not rest.deviation:
        return variance > 0
    return float(fdtrc(freedom, rest.freedom, variance / rest.deviation**2)) * rows < APART


def _pool(rows: Sequence[Sequence[float]], share: float = 1.0) -> Spread:
    """What samples have in common; of each of their degrees of freedom a share counts."""
    freedom = sum(len(values) - 1 for values in rows)
    return Spread(math.sqrt(sum(map(_squares, rows)) / freedom), share * freedom)


def _squares(values: Sequence[float]) -> float:
    """Sum of squared distances from the mean."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


@dataclass(frozen=True, slots=True)
class Arm:
    """A row's values in a column, in the document's units.

    Attributes:
        seeded: whether another seed would give another value.
        low: lower end of the bootstrap interval over test items, of a row without seeds.
        draws: of a row without seeds how far resamples of the test items move it, the same
            resamples for all rows; empty where that is not known.
        noise: how far a seed moves its values; None where that is not known.
        seeds: which they are, ascending; 0, 1, and so on if empty.
        sequential: whether seeds were added for as long as they were needed.
        order: what, besides the seed, the order of its training sentences depends on; None where
            that is not known.
        residual: how far a seed moves its values beyond what it does to all rows of that order.
    """

    values: tuple[float, ...]
    seeded: bool
    low: float | None = None
    high: float | None = None
    noise: Spread | None = None
    seeds: tuple[int, ...] = ()
    sequential: bool = False
    order: Hashable = None
    draws: tuple[float, ...] = ()
    residual: Spread | None = None

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return sum(self.values) / len(self.values)

    def spread(self) -> float | None:
        """Standard deviation over its own seeds; None with one seed, and without seeds."""
        if not self.seeded or len(self.values) < 2:
            return None
        return _pool([self.values]).deviation

    @property
    def by_seed(self) -> dict[int, float]:
        """The values."""
        return dict(zip(self.seeds or range(len(self.values)), self.values, strict=True))

    def gap(self) -> "Gap | Sequential":
        """The value itself, as a difference from zero."""
        if self.seeded and self.sequential:
            return _sequential(self.values)
        if self.seeded:
            return Gap(self.mean, *_error([self]))
        if self.low is None or self.high is None:
            return Gap(self.mean, None)
        return Gap(self.mean, max(self.high - self.mean, self.mean - self.low) / ITEMS)

    def bounds(self) -> tuple[float, float] | None:
        """95 % interval of the mean over seeds; of a row without seeds that over test items."""
        if self.seeded or self.low is None or self.high is None:
            return self.interval()
        return self.low, self.high

    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean over seeds, if there are any and their noise is known."""
        return self.gap().interval() if self.seeded else None


def with_noise(arms: Mapping[str, Arm]) -> dict[str, Arm]:
    """The rows of a column, each with the noise of its seeds.

    That is what all rows share. A row that varies more is not helped by the others,
    though: it counts with its own variance, and, where this is more than twice the pooled one, with
    its own degrees of freedom. The same holds for what is left of the noise when the effect of a
    seed on all rows that see the same sentences in the same order is taken off.
    """
    seeded = {name: arm for name, arm in arms.items() if arm.seeded}
    shared = pooled({name: arm.values for name, arm in seeded.items()})
    orders: dict[Hashable, dict[str, Arm]] = {}
    for name, arm in seeded.items():
        if arm.order is not None and len(arm.values) > 1:
            orders.setdefault(arm.order, {})[name] = arm
    left: dict[str, Spread] = {}
    for rows in orders.values():
        left |= _residuals({name: arm.by_seed for name, arm in rows.items()})
    return {
        name: replace(
            arm,
            noise=_noise(arm.values, shared) if arm.seeded and shared is not None else None,
            residual=left.get(name),
        )
        for name, arm in arms.items()
    }


def _residuals(rows: Mapping[str, Mapping[int, float]]) -> dict[str, Spread]:
    """The noise of rows beyond what a seed does to all: of rows and seeds, a table of two ways.

    As in :func:`pooled`, a row that varies far more than the others is left out; here it would also
    blur what they have in common.
    """
    seeds = sorted(set.intersection(*(set(values) for values in rows.values())))
    if len(seeds) < 2 or len(rows) < 2:
        return {}
    table = {name: [values[seed] for seed in seeds] for name, values in rows.items()}
    kept = list(table)
    while len(kept) > 2:
        own = {name: _pool([values]) for name, values in _less_common(table, kept).items()}
        widest = max(kept, key=lambda name: own[name].deviation)
        others = [name for name in kept if name != widest]
        # The row against the mean of the others is independent of what is left of these.
        rest = _shared(table, others)
        if not _apart(own[widest].deviation ** 2, own[widest].freedom, rest, len(kept)):
            break
        kept = others
    shared = _shared(table, kept)
    return {name: _noise(own, shared) for name, own in _less_common(table, kept).items()}


def _less_common(
    table: Mapping[str, Sequence[float]], kept: Collection[str]
) -> dict[str, list[float]]:
    """Rows less the mean of the kept other ones, at a scale that leaves a row's own variance."""
    found = {}
    for name, values in table.items():
        others = [table[other] for other in kept if other != name]
        scale = math.sqrt(len(others) / (len(others) + 1))
        means = (math.fsum(column) / len(others) for column in zip(*others, strict=True))
        found[name] = [scale * (v - mean) for v, mean in zip(values, means, strict=True)]
    return found


def _shared(table: Mapping[str, Sequence[float]], kept: Collection[str]) -> Spread:
    """The residual standard deviation of the kept rows and their seeds."""
    left = _less_common({name: table[name] for name in kept}, kept)
    return _pool(list(left.values()), (len(kept) - 1) / len(kept))


def _noise(values: Sequence[float], shared: Spread) -> Spread:
    """That of one row, beside the pooled one."""
    if len(values) < 2:
        return shared
    own = replace(_pool([values]), own=True)
    if own.deviation**2 > OWN * shared.deviation**2:
        return own
    return Spread(max(own.deviation, shared.deviation), shared.freedom)


@dataclass(frozen=True, slots=True)
class Gap:
    """A difference, and how sure it is.

    Attributes:
        mean: of what is compared, less what it is compared with.
        error: its standard error; None where nothing is known about that.
    """

    mean: float
    error: float | None
    freedom: float = math.inf

    def side(self, at: float = 0.0) -> float:
        """On which side of ``at`` the difference lies: 1, -1, or 0."""
        return float((self.mean > at) - (self.mean < at))

    def interval(self) -> tuple[float, float] | None:
        """95 % interval, of this difference alone."""
        if self.error is None:
            return None
        found = EffectEstimate.from_error(self.mean, self.error, self.freedom)
        return found.low, found.high

    def p(self, at: float = 0.0) -> float:
        """Two-sided p of the difference being ``at``."""
        return min(1.0, 2 * self._beyond(abs(self.mean - at)))

    def p_within(self, margin: float) -> float:
        """P of the difference being as large as a margin: two one-sided tests."""
        return self._beyond(margin - abs(self.mean))

    def _beyond(self, distance: float) -> float:
        """The share of estimates that lie a distance or more from the truth, to one side."""
        if not self.error:
            return float(distance <= 0)
        return t_share(-distance / self.error, self.freedom)

    def p_beyond(self, margin: float) -> float:
        """P of the difference being no larger than a margin."""
        return self.p(math.copysign(margin, self.mean)) if abs(self.mean) > margin else 1.0


def difference(before: Arm, after: Arm) -> Gap | Sequential:
    """The difference of two rows.

    Rows that see the same sentences in the same order are compared seed by seed, and so are all
    where seeds were added as needed. A row without seeds would give the same value again, so only
    the other one's seeds count. Two such rows are compared over the test items that they share; if
    these are not known, by their intervals, whose lengths are added up: the difference is sure
    where they do not overlap.
    """
    mean = after.mean - before.mean
    if (before.seeded and before.sequential) or (after.seeded and after.sequential):
        return _sequential(paired(before, after))
    if before.residual is not None and after.residual is not None and before.order == after.order:
        apart = paired(before, after)
        left = ((arm.residual, 1 / len(apart)) for arm in (before, after))
        return Gap(math.fsum(apart) / len(apart), *_error((), *left))
    if before.seeded or after.seeded:
        return Gap(mean, *_error([before, after]))
    if before.draws and len(before.draws) == len(after.draws):
        pairs = zip(before.draws, after.draws, strict=True)
        squares = [(two - one) ** 2 for one, two in pairs]
        return Gap(mean, math.sqrt(math.fsum(squares) / len(squares)), len(squares))
    errors = [arm.gap().error for arm in (before, after)]
    return Gap(mean, None if None in errors else sum(e or 0.0 for e in errors))


def paired(before: Arm, after: Arm) -> list[float]:
    """Differences of two rows that have the same seed; a row without seeds has the same for all."""
    seeds = [set(arm.by_seed) for arm in (before, after) if arm.seeded]
    one, two = (
        arm.by_seed if arm.seeded else dict.fromkeys(seeds[0], arm.mean) for arm in (before, after)
    )
    return [two[seed] - one[seed] for seed in sorted(set.intersection(*seeds))]


def _sequential(differences: Sequence[float]) -> "Gap | Sequential":
    if len(differences) > 1:
        return Sequential.of(differences)
    return Gap(differences[0] if differences else 0.0, None)


def from_published(arm: Arm, value: float, spread: float | None, seeds: int) -> Gap | Sequential:
    """A row less the published value."""
    mean = arm.mean - value
    if not arm.seeded:
        return Gap(mean, 0.0)
    if arm.sequential and len(arm.values) > 1:
        return Sequential.of([own - value for own in arm.values], 1 / seeds)
    theirs = arm.noise
    if spread is not None:
        theirs = Spread(spread, seeds - 1 if seeds > 1 else math.inf, own=True)
    return Gap(mean, *_error([arm], (theirs, 1 / seeds)))


def _error(arms: Iterable[Arm], *more: tuple[Spread | None, float]) -> tuple[float | None, float]:
    """Standard error of a sum or difference of means, and its degrees of freedom.

    Variances that rest on the same seeds share their degrees of freedom; others are joined after
    Satterthwaite (1946).
    """
    variances: dict[Spread | None, float] = {}
    freedoms: dict[Spread | None, float] = {}
    for spread, share in (*((a.noise, 1 / len(a.values)) for a in arms if a.seeded), *more):
        if spread is None:
            return None, math.inf
        source = spread if spread.own else None
        variances[source] = variances.get(source, 0.0) + spread.deviation**2 * share
        freedoms[source] = spread.freedom
    total = sum(variances.values())
    unsure = sum((v / total) ** 2 / freedoms[s] for s, v in variances.items()) if total else 0.0
    return math.sqrt(total), 1 / unsure if unsure else math.inf
