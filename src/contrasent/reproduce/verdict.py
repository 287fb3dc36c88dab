"""Does our run agree with the document? Statistics are those of ``evaluate``; here are the rules.

At scale paper a value agrees when the 95 % interval of our mean over seeds lies within the
tolerance around the published one, and differs when it lies outside. At every scale a direction
agrees when the interval of a difference of two rows (over seeds, Welch) lies on the published side
of zero, and differs when it lies on the other. Everything else is not decidable with the seeds
that were run.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import stdev
from typing import Any

from contrasent.evaluate.compare import compare_reports
from contrasent.evaluate.power import seed_error
from contrasent.report import Report, Row
from contrasent.reproduce.cells import between, number

AGREES, DIFFERS, OPEN, ABSENT = "agrees", "differs", "not decidable", "not run"
POINTS = ".2f"
"""How numbers are told if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What our runs say of a published value or statement.

    Attributes:
        word: "agrees", "differs", "not decidable" or "not run".
        why: the numbers behind it, in a few words.
    """

    word: str
    why: str

    def to_json(self) -> dict[str, str]:
        """A dictionary that ``json.dump`` writes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Arm:
    """A row's values in a column, in the document's units.

    Attributes:
        values: one of each seed.
        seeded: whether another seed would give another value.
        low: lower end of the bootstrap interval over test items, of a row without seeds.
        high: upper end of it.
    """

    values: tuple[float, ...]
    seeded: bool
    low: float | None = None
    high: float | None = None

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return sum(self.values) / len(self.values)

    def spread(self) -> float | None:
        """Standard deviation over seeds; None with one seed, and without seeds."""
        return stdev(self.values) if self.seeded and len(self.values) > 1 else None

    def bounds(self) -> tuple[float, float] | None:
        """The interval over seeds; of a row without seeds that over test items."""
        if self.seeded or self.low is None or self.high is None:
            return self.interval()
        return self.low, self.high

    def interval(self) -> tuple[float, float] | None:
        """95 % t interval of the mean over seeds; None with one seed, and without seeds."""
        if not self.seeded or len(self.values) < 2:
            return None
        from scipy.stats import t

        error, freedom = seed_error([0.0], self.values)
        half = float(t.ppf(0.975, freedom)) * error if error else 0.0
        return self.mean - half, self.mean + half


def value(arm: Arm | None, published: float, tolerance: float, *, form: str = POINTS) -> Verdict:
    """Whether our mean lies within the tolerance around a published value."""
    if arm is None:
        return Verdict(ABSENT, "")
    bounds = arm.interval()
    gap = arm.mean - published
    told = number(gap, form, signed=True)
    if not arm.seeded:
        word = AGREES if abs(gap) <= tolerance else DIFFERS
        return Verdict(word, f"{told}, tolerance {tolerance:g}")
    if bounds is None:
        return Verdict(OPEN, f"{told} with one seed")
    low, high = bounds[0] - published, bounds[1] - published
    said = f"{told} {between(low, high, form, signed=True)}, tolerance {tolerance:g}"
    if -tolerance <= low and high <= tolerance:
        return Verdict(AGREES, said)
    if low > tolerance or high < -tolerance:
        return Verdict(DIFFERS, said)
    return Verdict(OPEN, said)


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference of two rows.

    Attributes:
        mean: after less before.
        low: lower end of its 95 % interval; None where there is none.
        high: upper end of it.
        needed: seeds that would find it four times in five, where that can be said.
    """

    mean: float
    low: float | None
    high: float | None
    needed: int | None = None

    def side(self) -> int:
        """1 or -1 where the interval lies on one side of zero, else 0."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def told(self, form: str) -> str:
        """The difference with its interval, in a form of ``cells.forms``."""
        mean = number(self.mean, form, signed=True)
        if self.low is None or self.high is None:
            return f"{mean}, no interval"
        more = f", {self.needed} seeds would decide" if self.needed and not self.side() else ""
        return f"{mean} {between(self.low, self.high, form, signed=True)}{more}"


def gap(before: Arm, after: Arm) -> Gap:
    """The difference of two rows, with its interval over seeds.

    Two rows without seeds are compared by their intervals over test items: where these do not
    overlap, the difference is real.
    """
    mean = after.mean - before.mean
    if not before.seeded and not after.seeded:
        if None in (before.low, before.high, after.low, after.high):
            return Gap(mean, None, None)
        low, high = (after.low or 0) - (before.high or 0), (after.high or 0) - (before.low or 0)
        return Gap(mean, low, high)
    runs = max(len(a.values) for a in (before, after) if a.seeded)
    if any(len(a.values) < 2 for a in (before, after) if a.seeded):
        return Gap(mean, None, None)
    # A row without seeds would give the same value again.
    arms = [a.values if a.seeded else a.values * runs for a in (before, after)]
    if len({value for arm in arms for value in arm}) == 1:
        return Gap(0.0, 0.0, 0.0)
    one, two = ([_report(v) for v in arm] for arm in arms)
    (found,) = compare_reports(one, two)
    return Gap(found.difference, found.low, found.high, found.needed)


def _report(value: float) -> Report:
    return Report((Row("", "", "", "", value, 1),))


def direction(found: Gap, published: float, *, form: str = POINTS) -> Verdict:
    """Whether a difference has the published sign."""
    side, told = found.side(), found.told(form)
    if math.isclose(published, 0.0, abs_tol=1e-9) or not side:
        return Verdict(OPEN, told)
    return Verdict(AGREES if side * published > 0 else DIFFERS, told)


def together(parts: Sequence[Verdict]) -> Verdict:
    """The verdict on a statement that has parts: one that differs decides, all must agree.

    A part that was not run leaves the whole open, however the others came out.
    """
    words = [part.word for part in parts]
    counts = ", ".join(
        f"{words.count(word)} {word}" for word in (AGREES, DIFFERS, OPEN, ABSENT) if word in words
    )
    if DIFFERS in words:
        return Verdict(DIFFERS, counts)
    if set(words) == {AGREES}:
        return Verdict(AGREES, counts)
    return Verdict(ABSENT if set(words) <= {ABSENT} else OPEN, counts)


def signed(arm: Arm | None, sign: str, *, form: str = POINTS) -> Verdict:
    """Whether a row's value has a sign."""
    if arm is None:
        return Verdict(ABSENT, "")
    bounds = arm.bounds()
    if bounds is None:
        return Verdict(OPEN, f"{number(arm.mean, form, signed=True)}, no interval")
    return direction(Gap(arm.mean, *bounds), 1.0 if sign == "positive" else -1.0, form=form)


def order(published: Sequence[float], ours: Sequence[float]) -> dict[str, Any] | None:
    """Spearman's correlation of the order of rows; None for fewer than three."""
    from contrasent.metrics import spearman

    if len(published) < 3 or len(set(published)) < 2 or len(set(ours)) < 2:
        return None
    return {"correlation": round(float(spearman(ours, published)), 4), "rows": len(published)}
