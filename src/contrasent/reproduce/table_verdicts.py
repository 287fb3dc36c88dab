"""Do our runs agree with the document? The words, and how a table's statements are decided.

The unit of a verdict is a statement (or, in families of their own, a value that the document
prints). It agrees where all of its parts do, which needs the largest of their p values and no
allowance for their number (Berger, 1982); it differs where one part does, by the smallest times
their number. Holm's method decides the differences of all statements of a table together, and so
their equivalences. ``benchmarks/verdicts.py`` counts wrong verdicts in simulated tables.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from contrasent.reproduce.effects import SeedScores, bounds, difference, from_published
from contrasent.reproduce.items import Item, TableRow
from contrasent.reproduce.tables import BETTER, EQUAL, NO_BETTER, NO_WORSE, Claim
from contrasent.stats.seeds import EffectEstimate, holm, p_value, tost

AGREES, DIFFERS, EQUIVALENT = "agrees", "differs", "equivalent"
OPEN, ABSENT = "cannot tell", "not run"
WORDS = (AGREES, DIFFERS, EQUIVALENT, OPEN, ABSENT)
RULE = (
    "The statements of a table are decided together by Holm's method, and so are its values: the "
    "chance that any difference that is found is wrong is at most 5 %, however many there are, and "
    "so is that of any equivalence. p is adjusted for that; the 95 % intervals, and the words on "
    "the parts of a statement, are each by itself."
)
VALUE = "value"
"""The kind of a comparison with a published value; other kinds are ``items.RELATIONS``."""

SAID = {
    BETTER: "against",
    NO_WORSE: "no worse than",
    NO_BETTER: "no better than",
    EQUAL: "equal to",
}
ALPHA = 0.05
WIDEST = 10.0
"""An interval that reaches further than so many tolerances to each side agrees with anything."""

Scores = Mapping[str, Mapping[str, SeedScores]]
"""Of each column and row."""

Family = Literal["difference", "equivalence"]
"""What is tested: that there is no difference (from the margin), that it is as large as that."""

FAMILIES: tuple[Family, Family] = ("difference", "equivalence")
Tests = Mapping[Family, tuple[str, float]]
"""The word that each test could show, and its p."""

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A difference of two rows, and what the document says of it.

    Attributes:
        before: the row that it is compared with, "" for zero, "published" for a printed value.
        effect: the first less the second; None where one of them was not run.
        kind: of ``items.RELATIONS``, or "value" for a row and its published value.
        sign: 1 where a larger value is the better one, else -1.
        margin: a difference that does not matter, the tolerance of a value; None without one.
    """

    column: str
    after: str
    before: str
    effect: EffectEstimate | None
    kind: str = BETTER
    sign: float = 1.0
    margin: float | None = None

    @property
    def favour(self) -> float:
        """The sign of a difference that speaks for the statement."""
        return -self.sign if self.kind == NO_BETTER else self.sign

    def tests(self) -> Tests:
        """None without a standard error. The differences' p is two-sided."""
        if self.effect is None or math.isinf(self.effect.error):
            return {}
        mean, margin = self.favour * self.effect.mean, self.margin or 0.0
        if self.kind in (EQUAL, VALUE):
            beyond = p_value(self.effect, math.copysign(margin, self.effect.mean))
            word = AGREES if self.kind == EQUAL else EQUIVALENT
            return {
                "difference": (DIFFERS, beyond if abs(mean) > margin else 1.0),
                "equivalence": (word, tost(self.effect, margin)),
            }
        edge = 0.0 if self.kind == BETTER else -margin
        p = p_value(self.effect, self.favour * edge)
        found: dict[Family, tuple[str, float]]
        found = {"difference": (AGREES if mean > edge else DIFFERS, p)}
        if self.kind == BETTER and margin:
            found["equivalence"] = EQUIVALENT, tost(self.effect, margin)
        return found

    def is_compatible(self) -> bool:
        """Whether a published value lies where another run of ours would: in the interval."""
        interval = bounds(self.effect) if self.effect is not None else None
        if self.effect is None or self.margin is None or interval is None:
            return False
        if not self.effect.error:
            return abs(self.effect.mean) <= self.margin
        low, high = interval
        return low <= 0 <= high and high - low <= 2 * WIDEST * self.margin


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a statement: its text, its own word, and what it compares."""

    text: str
    word: str
    compared: Comparison | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What our runs say of a statement or a published value.

    Attributes:
        p: of the word being wrong, adjusted for all of the table; of an undecided one the
            smallest; None where nothing was tested.
        raw: tests whose p is not adjusted.
    """

    word: str
    p: float | None = None
    parts: tuple[Part, ...] = ()
    raw: Tests = field(default_factory=dict)

    @property
    def counts(self) -> str:
        """The words of the parts, counted."""
        words = [part.word for part in self.parts]
        return ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)


@dataclass(slots=True)
class TableVerdicts:
    """The verdicts of an item, by row and column and by statement."""

    cells: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    claims: dict[str, Verdict] = field(default_factory=dict)


def decide(
    item: Item, scale: str, scores: Scores, resting: Mapping[str, tuple[str, Verdict]]
) -> TableVerdicts:
    """Decide all statements of a table, and all of its values.

    ``resting``: text and verdict of statements of other items, by "paper:item#name". They are
    decided once more, among all that this item's statements rest on.
    """
    cells = {
        place: Verdict(OPEN, parts=(_part("", one),), raw=one.tests())
        for place, one in _cells(item, scale, scores)
    }
    adjusted = _adjusted(cells)
    cells = {place: _decided(own, adjusted[place]) for place, own in cells.items()}
    claims = {}
    for claim in item.claims:
        parts = tuple(_part(text, one) for text, one in _compared(item, claim, scores))
        claims[claim.name] = Verdict(OPEN, parts=parts, raw=joined(parts))
    others = {name: verdict for name, (_, verdict) in resting.items()}
    among = _adjusted({**claims, **others})
    for claim in item.claims:
        verdict = _decided(claims[claim.name], among[claim.name])
        claims[claim.name] = _rested(claim, resting, among) if claim.rests_on else verdict
    return TableVerdicts(cells, claims)


def joined(parts: Iterable[Part]) -> Tests:
    """The tests of a statement from those of its parts."""
    every = [one.compared.tests() if one.compared else {} for one in parts]
    own = [tests["difference"] for tests in every if tests]
    whole: dict[Family, tuple[str, float]] = {}
    if differing := [p for word, p in own if word == DIFFERS]:
        whole["difference"] = DIFFERS, min(1.0, len(own) * min(differing))
    if not own or len(own) < len(every):
        return whole
    if not differing:
        whole["difference"] = AGREES, max(p for _, p in own)
    # Each part is better or does not matter, and one at least is surer not to matter.
    better = [p if word == AGREES else 1.0 for word, p in own]
    equal = [tests.get("equivalence", (EQUIVALENT, 1.0)) for tests in every]
    pairs = list(zip(better, (p for _, p in equal), strict=True))
    if any(within < above for above, within in pairs):
        whole["equivalence"] = equal[0][0], max(map(min, pairs))
    return whole


def _adjusted(verdicts: Mapping[Name, Verdict]) -> dict[Name, dict[Family, tuple[str, float]]]:
    """The tests of every verdict, each family adjusted by Holm's method."""
    found: dict[Name, dict[Family, tuple[str, float]]] = {name: {} for name in verdicts}
    for family in FAMILIES:
        tested = {name: own.raw[family] for name, own in verdicts.items() if family in own.raw}
        for name, p in zip(tested, holm([p for _, p in tested.values()]), strict=True):
            found[name][family] = tested[name][0], float(p)
    return found


def _decided(verdict: Verdict, adjusted: Tests) -> Verdict:
    """The verdict, from the adjusted tests."""
    if all(part.word == ABSENT for part in verdict.parts):
        return replace(verdict, word=ABSENT)
    shown = [(word, p) for word, p in adjusted.values() if p <= ALPHA]
    one = verdict.parts[0].compared
    if one is not None and one.kind == VALUE and DIFFERS not in dict(shown):
        if one.is_compatible():
            return replace(verdict, word=AGREES)
        if one.effect is not None and not one.effect.error:
            return replace(verdict, word=DIFFERS)
    if shown:
        return replace(verdict, word=shown[0][0], p=shown[0][1])
    return replace(verdict, p=min((p for _, p in adjusted.values()), default=None))


def _rested(
    claim: Claim,
    resting: Mapping[str, tuple[str, Verdict]],
    adjusted: Mapping[str, Tests],
) -> Verdict:
    """A statement that rests on others: it agrees where all do, differs where one does."""
    parts = []
    for name in claim.rests_on:
        text, verdict = resting[name]
        known = [p for word, p in adjusted[name].values() if word == verdict.word]
        p = min(known, default=verdict.p)
        word = OPEN if p is not None and p > ALPHA else verdict.word
        parts.append(Part(text, word, p=p))
    word = together([part.word for part in parts])
    ps = [part.p for part in parts if part.p is not None and part.word in (word, AGREES)]
    p = (min if word == DIFFERS else max)(ps, default=None)
    return Verdict(word, None if word in (OPEN, ABSENT) else p, tuple(parts))


def together(words: Sequence[str]) -> str:
    """The word on a whole; a part that was not run leaves it open."""
    if DIFFERS in words:
        return DIFFERS
    if set(words) <= {AGREES, EQUIVALENT}:
        return EQUIVALENT if EQUIVALENT in words else AGREES
    return ABSENT if set(words) <= {ABSENT} else OPEN


def _part(text: str, one: Comparison) -> Part:
    """A part with its own word, which is not adjusted."""
    if one.effect is None:
        return Part(text, ABSENT, one)
    tests = list(one.tests().values())
    shown = [(word, p) for word, p in tests if p <= ALPHA]
    least = min((p for _, p in tests), default=None)
    word, p = shown[0] if shown else (OPEN, least)
    return Part(text, word, one, p)


def _compared(item: Item, claim: Claim, scores: Scores) -> Iterator[tuple[str, Comparison]]:
    """The parts of a statement: a text and a comparison each."""
    for name in claim.columns:
        column, own = item.columns[name], scores.get(name, {})
        where = f", {column.title}" if len(claim.columns) > 1 else ""
        if claim.sign:
            effect = own[claim.row].estimate() if claim.row in own else None
            sign = 1.0 if claim.sign == "positive" else -1.0
            text = f"{claim.row} is {claim.sign}{where}"
            yield text, Comparison(name, claim.row, "", effect, sign=sign)
        sign = 1.0 if column.better == "higher" else -1.0
        margin = column.margin if claim.margin is None else claim.margin
        for other in claim.than:
            effect = _between(own, other, claim.subject)
            text = f"{claim.subject} {SAID[claim.relation]} {other}{where}"
            yield (
                text,
                Comparison(name, claim.subject, other, effect, claim.relation, sign, margin),
            )


def _cells(item: Item, scale: str, scores: Scores) -> Iterator[tuple[tuple[str, str], Comparison]]:
    """Every cell that a published value stands in, by row and column."""
    compare: Callable[[Item, TableRow, str, Mapping[str, SeedScores]], Comparison | None]
    compare = _value if scale == "paper" else _direction
    for row in item.rows:
        for column in item.columns if row.kind in ("train", "encoder", "blocked") else ():
            if column in row.expected:
                found = compare(item, row, column, scores.get(column, {}))
                if found is not None:
                    yield (row.name, column), found


def _value(item: Item, row: TableRow, column: str, scores: Mapping[str, SeedScores]) -> Comparison:
    """A row and its published value."""
    expected, own = row.expected[column], scores.get(row.name)
    effect = None
    if own is not None:
        effect = from_published(own, expected.value, expected.sd, expected.seeds)
    return Comparison(column, row.name, "published", effect, VALUE, margin=expected.tolerance)


def _direction(
    item: Item, row: TableRow, column: str, scores: Mapping[str, SeedScores]
) -> Comparison | None:
    """A row and the reference: a difference that is printed, or none to speak of."""
    apart = published_difference(item, row, column)
    if row.name in scores and (apart is None or item.reference not in scores):
        return None
    effect = _between(scores, item.reference, row.name)
    one = Comparison(column, row.name, item.reference, effect)
    margin = item.columns[column].margin
    if apart is not None and margin and abs(apart) <= margin:
        return replace(one, kind=EQUAL, margin=margin)
    if apart:
        return replace(one, sign=1.0 if apart > 0 else -1.0, margin=margin)
    # There is no direction to agree with, and no margin to be equal by.
    return None if row.name in scores else one


def _between(scores: Mapping[str, SeedScores], before: str, after: str) -> EffectEstimate | None:
    if before not in scores or after not in scores:
        return None
    return difference(scores[before], scores[after])


def published_difference(item: Item, row: TableRow, column: str) -> float | None:
    """The published difference of a row from the reference row."""
    if not item.reference or row.name == item.reference:
        return None
    here, there = (r.expected.get(column) for r in (row, item.row(item.reference)))
    return round(here.value - there.value, 9) if here is not None and there is not None else None
