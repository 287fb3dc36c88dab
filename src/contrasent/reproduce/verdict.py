"""Does our run agree with the document? The words, and how a table's comparisons are decided.

Every comparison that a table makes is decided together with all others, by Holm's method: in no
more than one of twenty tables is any difference or equivalence that is found a wrong one, however
many comparisons there are. ``benchmarks/verdicts.py`` counts that in simulated tables.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contrasent.reproduce.cells import between, number, p_value
from contrasent.reproduce.entries import OrderEntry, VerdictEntry
from contrasent.reproduce.items import BETTER, EQUAL, NO_BETTER, NO_WORSE
from contrasent.reproduce.sequential import Sequential
from contrasent.reproduce.spread import Gap

AGREES, DIFFERS, EQUIVALENT = "agrees", "differs", "equivalent"
OPEN, ABSENT = "cannot tell", "not run"
WORDS = (AGREES, DIFFERS, EQUIVALENT, OPEN, ABSENT)
RULE = (
    "All comparisons of a table are decided together by Holm's method: the chance that any of the "
    "differences and equivalences that it finds is wrong is at most 5 %, however many there are. p "
    "is adjusted for that; the 95 % intervals are each by itself."
)
SEQUENTIAL_RULE = (
    "Seeds were added where they decide most, until statements were decided or the time was used "
    "up. There, rows are compared seed by seed, each comparison by the spread of its own "
    "differences, and p values and intervals hold at all times at once, however often one looked."
)
DEFINITIONS = {
    "lab": {
        AGREES: "our difference from the reference row is shown to have the published sign; where "
        "the document prints no difference to speak of, to be smaller than the margin.",
        DIFFERS: "it is shown to have the other sign, or to be larger than the margin.",
        EQUIVALENT: "a difference is published, and ours is shown to be smaller than the margin.",
    },
    "paper": {
        AGREES: "the published value lies in the 95 % interval around ours that allows for the "
        "noise of both, as an exact replication does 95 times in 100; the interval reaches no "
        "further than ten tolerances.",
        DIFFERS: "ours is shown to be further from it than the tolerance.",
        EQUIVALENT: "there is a difference, and it is shown to be smaller than the tolerance.",
    },
    "": {
        OPEN: "none of these is shown.",
        "Statements": "better than another row: as a difference of that sign. No worse, no "
        "better, equal: shown not to be worse, better, or either, by the margin or more. A "
        "statement with several parts agrees where all do and differs where one does.",
        "Margin": "0.3 points (two one-sided tests) where an item says nothing else.",
        "Noise": "a standard deviation over seeds, pooled over the rows of a column; a row that "
        "varies more counts with its own. Rows that see the same sentences in the same order are "
        "compared seed by seed: what a seed does to all of them is taken off before. Where seeds "
        "were added as needed each comparison counts with its own. Two rows that no seed changes "
        "are compared over the test items that they share. Where a document prints no spread, its "
        "value is taken for a single run that varies as ours do.",
    },
}
"""What the words mean, at each scale and at both."""

VALUE = "value"
"""The kind of a comparison with a published value; other kinds are ``items.RELATIONS``."""

ALPHA = 0.05
WIDEST = 10.0
"""An interval that reaches further than so many tolerances to each side agrees with anything."""

POINTS = ".2f"
"""How numbers are written by default."""

Unit = tuple[str, str, str]
"""A column and two rows, in an order that does not depend on who is compared with whom."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What our runs say of a published value or statement.

    Attributes:
        why: the numbers behind it, in a few words.
        p: of the word being wrong, adjusted for all comparisons of the table; of an undecided one
            the smallest; None where there is none.
    """

    word: str
    why: str
    p: float | None = None

    def to_json(self) -> VerdictEntry:
        """A dictionary that ``json.dump`` writes."""
        p = None if self.p is None else float(f"{self.p:.3g}")
        return {"word": self.word, "why": self.why, "p": p}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A difference, and what the document says of it.

    Attributes:
        before: the row that it is compared with, "" for zero, "published" for a printed value.
        gap: the first less the second; None where one of them was not run.
        kind: of ``items.RELATIONS``, or "value" for a row and its published value.
        sign: 1 where a larger value is the better one, else -1.
        margin: a difference that does not matter, the tolerance of a value; None where there is
            none.
        awaited: whether both rows are to be run, so that it counts before they are.
    """

    column: str
    after: str
    before: str
    gap: Gap | Sequential | None
    kind: str = BETTER
    sign: float = 1.0
    margin: float | None = None
    form: str = POINTS
    awaited: bool = False

    @property
    def unit(self) -> Unit:
        """What it is about; a table that asks the same twice tests it once."""
        first, second = sorted((self.after, self.before))
        return self.column, first, second

    def tests(self) -> dict[Hashable, tuple[str, float]]:
        """Words that are possible, with the p value of each being wrong.

        Without an error there are none; of a comparison that is awaited they are all 1.
        """
        gap, margin = self.gap, self.margin
        if gap is None or gap.error is None:
            if not self.awaited:
                return {}
            wide = replace(self, gap=Gap(0.0, math.inf), awaited=False)
            return {test: (word, 1.0) for test, (word, _) in wide.tests().items()}
        if self.kind == BETTER:
            word = AGREES if gap.side() * self.sign > 0 else DIFFERS
            found: dict[Hashable, tuple[str, float]] = {0.0: (word, gap.p())}
            if margin:
                found["within", margin] = EQUIVALENT, gap.p_within(margin)
            return found
        assert margin is not None
        if self.kind in (NO_WORSE, NO_BETTER):
            side = -self.sign if self.kind == NO_WORSE else self.sign
            at = side * margin
            word = AGREES if gap.side(at) * side < 0 else DIFFERS
            return {at if self.after <= self.before else -at: (word, gap.p(at))}
        if self.kind == VALUE and not gap.error:
            return {}
        return {
            ("beyond", margin): (DIFFERS, gap.p_beyond(margin)),
            ("within", margin): (
                AGREES if self.kind == EQUAL else EQUIVALENT,
                gap.p_within(margin),
            ),
        }

    def verdict(self, adjusted: Mapping[tuple[Unit, Hashable], float]) -> Verdict:
        """The verdict, from the adjusted p values of all tests of the table."""
        if self.gap is None:
            return Verdict(ABSENT, "")
        tests = self.tests()
        found = [(word, adjusted[self.unit, test]) for test, (word, _) in tests.items()]
        decided: tuple[str, float | None] | None
        decided = next(((word, p) for word, p in found if p <= ALPHA), None)
        if self.kind == VALUE and (decided is None or decided[0] != DIFFERS):
            decided = self._compatible() or decided
        least = min((p for _, p in found), default=None)
        word, p = decided or (OPEN, least)
        return Verdict(word, self._why(p), p)

    def _compatible(self) -> tuple[str, float | None] | None:
        """Whether a published value lies where another run of ours would: in the interval."""
        assert self.gap is not None
        assert self.margin is not None
        bounds = self.gap.interval()
        if bounds is None:
            return None
        low, high = bounds
        near = abs(self.gap.mean) <= self.margin
        if not self.gap.error:
            return (AGREES if near else DIFFERS), None
        narrow = high - low <= 2 * WIDEST * self.margin
        return (AGREES, None) if low <= 0 <= high and narrow else None

    def _why(self, p: float | None) -> str:
        gap = self.gap
        assert gap is not None
        parts = [number(gap.mean, self.form, signed=True)]
        bounds = gap.interval()
        if bounds is None:
            parts[0] += ", no interval"
        elif gap.error:
            parts[0] += f" {between(*bounds, self.form, signed=True)}"
        if self.kind != BETTER:
            named = "tolerance" if self.kind == VALUE else "margin"
            parts.append(f"{named} {self.margin:g}")
        if p is not None:
            parts.append(p_value(p))
        return ", ".join(parts)


def adjust(tests: Mapping[Unit, Mapping[Hashable, float]]) -> dict[tuple[Unit, Hashable], float]:
    """P values adjusted for their number by Holm's method (1979), with Shaffer's count (1986).

    The smallest is multiplied by how many hypotheses there are, the next by how many are left, and
    so on. Of "there is no difference" and "it is as large as the margin" one at most is true, so
    that a pair of rows that is tested for both counts as one hypothesis, for as long as one of them
    is not rejected.
    """
    most = {unit: capacity(own) for unit, own in tests.items()}
    left = {unit: len(own) for unit, own in tests.items()}
    true = sum(most.values())
    found: dict[tuple[Unit, Hashable], float] = {}
    worst = 0.0
    every = [(p, unit, test) for unit, own in tests.items() for test, p in own.items()]
    for p, unit, test in sorted(every, key=lambda one: one[0]):
        worst = max(worst, min(1.0, p * true))
        found[unit, test] = worst
        left[unit] -= 1
        true -= left[unit] < most[unit]
    return found


def capacity(tests: Mapping[Hashable, Any]) -> int:
    """How many of a unit's hypotheses can be true at once."""
    both = 0.0 in tests and any(isinstance(t, tuple) and t[0] == "within" for t in tests)
    return len(tests) - both


def together(parts: Sequence[Verdict]) -> Verdict:
    """The verdict on a statement that has parts.

    It agrees where all parts do (each was tested, so that no further allowance is needed: Berger,
    1982), and differs where one part does, which Holm's method allows for. Where the parts agree
    but for some that are equivalent, so is the whole. A part that was not run leaves it open.
    """
    words = [part.word for part in parts]
    why = ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)
    ps = {w: [v.p for v in parts if v.word == w and v.p is not None] for w in words}
    if DIFFERS in words:
        return Verdict(DIFFERS, why, min(ps[DIFFERS], default=None))
    if set(words) <= {AGREES, EQUIVALENT}:
        word = EQUIVALENT if EQUIVALENT in words else AGREES
        return Verdict(word, why, max((p for own in ps.values() for p in own), default=None))
    return Verdict(ABSENT if set(words) <= {ABSENT} else OPEN, why)


def order(published: Sequence[float], ours: Sequence[float]) -> OrderEntry | None:
    """Spearman's correlation of the order of rows; None for fewer than three."""
    from contrasent.metrics import spearman

    if len(published) < 3 or len(set(published)) < 2 or len(set(ours)) < 2:
        return None
    return {"correlation": round(float(spearman(ours, published)), 4), "rows": len(published)}
