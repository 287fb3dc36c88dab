"""Decides whether our runs agree with a document: differences of rows, verdicts on a table.

The unit of a verdict is a statement (or, in families of their own, a value that the document
prints). It agrees where all of its parts do, which needs the largest of their p values and no
allowance for their number (Berger, 1982); it differs where one part does, by the smallest times
their number. Holm's method decides the differences of all statements of a table together, and so
their equivalences.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal, NamedTuple, TypeVar, get_args

from contrasent.reproduce.tables import BETTER, EQUAL, NO_BETTER, NO_WORSE, Claim, Item, Row
from contrasent.stats.seeds import (
    ArmSpread,
    EffectEstimate,
    check_scores,
    holm,
    p_value,
    paired_t,
    tost,
    unpaired_error,
    unpaired_t,
)

AGREES, DIFFERS, EQUIVALENT = "agrees", "differs", "equivalent"
OPEN, INERT, CHOSEN, ABSENT = "cannot tell", "inert", "chosen", "not run"
WORDS = (AGREES, DIFFERS, EQUIVALENT, OPEN, INERT, CHOSEN, ABSENT)
INERT_SHARE = 0.01  # of the encoder's gradient: a term below it in all rows shows nothing
RULE = (
    "The statements of a table are decided together by Holm's method, and so are its values. The "
    "chance of any false difference is at most 5 %, and so is that of any false equivalence. p is "
    "adjusted for this; the 95 % intervals and the verdicts on parts of a statement are not."
)
VALUE = "value"  # a comparison with a published value; other kinds are `tables.RELATIONS`
RELATION_TEXTS = {
    BETTER: "against",
    NO_WORSE: "no worse than",
    NO_BETTER: "no better than",
    EQUAL: "equal to",
}
ALPHA = 0.05
WIDEST = 10.0  # an interval this many tolerances wide to each side agrees with anything
Z_95 = 1.959963984540054  # standard errors from a value to an end of its 95 % interval over items

# Tested hypotheses: no difference (from the margin), and a difference as large as that.
Family = Literal["difference", "equivalence"]
Tests = Mapping[Family, tuple[str, float]]  # the word that each test can show, and its p
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SeedScores:
    """A row's values in a column, in the document's units."""

    values: tuple[float, ...]
    seeded: bool = True  # whether another seed would give another value
    seeds: tuple[int, ...] = ()  # of the values, ascending; 0, 1, and so on if empty
    over_items: tuple[float, float] | None = None  # the interval of a row without seeds
    # moves of the mean by resamples of the test items, the same for all rows, if known
    draws: tuple[float, ...] = ()
    order: Hashable = None  # other determinants of the order of its training sentences, if known

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.values)

    def by_seed(self) -> dict[int, float]:
        """The values by their seeds."""
        return dict(zip(self.seeds or range(len(self.values)), self.values, strict=True))

    def deviation(self) -> float | None:
        """Standard deviation over seeds; None with one seed, and without seeds."""
        return stdev(self.values) if self.seeded and len(self.values) > 1 else None

    def estimate(self) -> EffectEstimate:
        """The mean, as a difference from zero."""
        if self.seeded and len(self.values) > 1:
            return paired_t(self.values)
        error = math.inf
        if not self.seeded and self.over_items is not None:
            low, high = self.over_items
            error = max(high - self.mean, self.mean - low) / Z_95
        return EffectEstimate.from_error(self.mean, error)

    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean over seeds, or over test items for a row without seeds."""
        over_items = None if self.seeded else self.over_items
        return over_items or bounds(self.estimate())


Scores = Mapping[str, Mapping[str, SeedScores]]  # by column and row


def bounds(effect: EffectEstimate) -> tuple[float, float] | None:
    """95 % interval; None if unknown."""
    return None if math.isinf(effect.error) else (effect.low, effect.high)


def difference(before: SeedScores, after: SeedScores) -> EffectEstimate:
    """The difference of two rows; its error is infinite if unknown."""
    mean = after.mean - before.mean
    if before.seeded and after.seeded:
        first, second = before.by_seed(), after.by_seed()
        shared = sorted(set(first) & set(second))
        if before.order is not None and before.order == after.order and len(shared) > 1:
            return paired_t([second[seed] - first[seed] for seed in shared])
        if len(first) == len(second) == 1:
            return EffectEstimate.from_error(mean, math.inf)
        return unpaired_t(before.values, after.values)
    if before.seeded or after.seeded:
        # The other row would give the same value again.
        estimate = (before if before.seeded else after).estimate()
        return EffectEstimate.from_error(mean, estimate.error, estimate.df)
    if (over_items := difference_over_items(before, after)) is not None:
        return over_items
    # Without shared resamples: certain only if the intervals do not overlap.
    return EffectEstimate.from_error(mean, before.estimate().error + after.estimate().error)


def difference_over_items(before: SeedScores, after: SeedScores) -> EffectEstimate | None:
    """The difference of two rows' means, of the runs at hand on other test items, if known."""
    if not before.draws or len(before.draws) != len(after.draws):
        return None
    pairs = zip(before.draws, after.draws, strict=True)
    error = math.sqrt(fmean((new - old) ** 2 for old, new in pairs))
    return EffectEstimate.from_error(after.mean - before.mean, error)


def tuned(rows: Sequence[SeedScores], higher: bool) -> SeedScores | None:
    """The row that is best at the first seed, by its other seeds; None where these are missing.

    What a choice gains by luck it gains at the seed that chose.
    """
    known = [row.by_seed() for row in rows]
    first = min(min(values) for values in known)
    if any(first not in values or len(values) < 2 for values in known):
        return None
    chosen = (max if higher else min)(range(len(rows)), key=lambda i: known[i][first])
    values = {seed: value for seed, value in known[chosen].items() if seed != first}
    return SeedScores(tuple(values.values()), True, tuple(values), order=rows[chosen].order)


def on_one_front(
    rows: Sequence[Sequence[Mapping[int, float]]], signs: Sequence[float]
) -> SeedScores | None:
    """How many rows no other beats in every column, by seed; None where no seed has all values.

    ``rows``: of each row the values of each column by seed; ``signs``: 1 where higher is better.
    """
    seeds = sorted(set.intersection(*(set(values) for row in rows for values in row)))
    counts = []
    for seed in seeds:
        points = [tuple(s * v[seed] for s, v in zip(signs, row, strict=True)) for row in rows]
        beaten = (
            any(
                other != own and all(o >= p for o, p in zip(other, own, strict=True))
                for other in points
            )
            for own in points
        )
        counts.append(float(len(points) - sum(beaten)))
    return SeedScores(tuple(counts), True, tuple(seeds)) if seeds else None


def from_published(scores: SeedScores, value: float) -> EffectEstimate:
    """A row minus the published value, that of one run that varies as ours do."""
    mean = scores.mean - value
    if not scores.seeded or len(scores.values) < 2:
        return EffectEstimate.from_error(mean, math.inf if scores.seeded else 0.0)
    ours = ArmSpread.of(check_scores(scores.values))
    error, df = unpaired_error(ArmSpread(ours.variance, 1, 0), ours)
    return EffectEstimate.from_error(mean, error, df)


@dataclass(frozen=True, slots=True)
class RowComparison:
    """A difference of two rows, and the document's statement about it."""

    column: str
    after: str
    before: str  # the row to compare with, "" for zero, "published" for a printed value
    effect: EffectEstimate | None  # the first minus the second; None if one was not run
    kind: str = BETTER
    sign: float = 1.0  # of a difference for the better
    margin: float | None = None  # a difference that does not matter, the tolerance of a value
    text: str = ""  # what it says, as a part of a statement
    over_items: EffectEstimate | None = None  # beside the one over seeds, which decides

    @property
    def favor(self) -> float:
        """The sign of a difference that supports the statement."""
        return -self.sign if self.kind == NO_BETTER else self.sign

    def tests(self) -> Tests:
        """None without a standard error. The differences' p is two-sided."""
        if self.effect is None or math.isinf(self.effect.error):
            return {}
        mean, margin = self.favor * self.effect.mean, self.margin or 0.0
        if self.kind in (EQUAL, VALUE):
            beyond = p_value(self.effect, math.copysign(margin, self.effect.mean))
            word = AGREES if self.kind == EQUAL else EQUIVALENT
            return {
                "difference": (DIFFERS, beyond if abs(mean) > margin else 1.0),
                "equivalence": (word, tost(self.effect, margin)),
            }
        edge = 0.0 if self.kind == BETTER else -margin
        p = p_value(self.effect, self.favor * edge)
        tests: Tests = {"difference": (AGREES if mean > edge else DIFFERS, p)}
        if self.kind == BETTER and margin:
            return {**tests, "equivalence": (EQUIVALENT, tost(self.effect, margin))}
        return tests

    def decide(self) -> tuple[str, float | None]:
        """Its own word, unadjusted, and the p of its being wrong, or the smallest."""
        if self.effect is None:
            return ABSENT, None
        tests = list(self.tests().values())
        least = OPEN, min((p for _, p in tests), default=None)
        return next(((word, p) for word, p in tests if p <= ALPHA), least)

    def is_compatible(self) -> bool:
        """Whether a published value lies in the interval for another run of ours."""
        interval = bounds(self.effect) if self.effect is not None else None
        if self.effect is None or self.margin is None or interval is None:
            return False
        if not self.effect.error:
            return abs(self.effect.mean) <= self.margin
        low, high = interval
        return low <= 0 <= high and high - low <= 2 * WIDEST * self.margin


class Verdict(NamedTuple):
    """The verdict of our runs on a statement or a published value."""

    word: str
    # of the word being wrong, adjusted for all of the table; of an undecided one the smallest; None
    # where nothing was tested
    p: float | None = None
    parts: tuple[RowComparison, ...] = ()  # those of a statement, or the only one of a value
    # the largest share of the statement's term in the encoder's gradient, None if not measured
    share: float | None = None


def counted(words: Sequence[str]) -> str:
    """Verdicts and their counts."""
    return ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)


class TableVerdicts(NamedTuple):
    """The verdicts of an item, by row and column and by statement."""

    cells: dict[tuple[str, str], Verdict]
    claims: dict[str, Verdict]


def decide(
    item: Item,
    scale: str,
    scores: Scores,
    shares: Mapping[str, float | None] | None = None,
) -> TableVerdicts:
    """Decide all statements of a table, and all of its values.

    ``shares``: by statement, the largest share of its term in a row's gradient; None if not
    measured.
    """
    compared = dict(_cells(item, scale, scores))
    adjusted = _adjusted({place: one.tests() for place, one in compared.items()})
    cells = {place: _decided((one,), adjusted[place]) for place, one in compared.items()}
    parts = {claim.name: tuple(_compared(item, claim, scores)) for claim in item.claims}
    # Data that chose the rows of a statement cannot test it.
    tests = {c.name: {} if c.chosen else joined(parts[c.name]) for c in item.claims}
    among = _adjusted(tests)
    claims = {}
    for claim in item.claims:
        verdict = _decided(parts[claim.name], among[claim.name], claim.level)
        share = (shares or {}).get(claim.name)
        if claim.chosen and verdict.word == OPEN:
            verdict = verdict._replace(word=CHOSEN)
        if share is not None and share < INERT_SHARE and verdict.word != ABSENT:
            verdict = verdict._replace(word=INERT)
        claims[claim.name] = verdict._replace(share=share)
    return TableVerdicts(cells, claims)


def joined(parts: Iterable[RowComparison]) -> Tests:
    """The tests of a statement from those of its parts."""
    every = [part.tests() for part in parts]
    differences = [tests["difference"] for tests in every if tests]
    whole: dict[Family, tuple[str, float]] = {}
    if differing := [p for word, p in differences if word == DIFFERS]:
        whole["difference"] = DIFFERS, min(1.0, len(differences) * min(differing))
    if not differences or len(differences) < len(every):
        return whole
    if not differing:
        whole["difference"] = AGREES, max(p for _, p in differences)
    # Each part is better or equivalent, and at least one is more certainly equivalent.
    better = [p if word == AGREES else 1.0 for word, p in differences]
    equal = [tests.get("equivalence", (EQUIVALENT, 1.0)) for tests in every]
    pairs = list(zip(better, (p for _, p in equal), strict=True))
    if any(within < above for above, within in pairs):
        whole["equivalence"] = equal[0][0], max(map(min, pairs))
    return whole


def _adjusted(tests: Mapping[Name, Tests]) -> dict[Name, dict[Family, tuple[str, float]]]:
    """Tests by what they are about, each family adjusted by Holm's method."""
    adjusted: dict[Name, dict[Family, tuple[str, float]]] = {name: {} for name in tests}
    for family in get_args(Family):
        tested = {name: own[family] for name, own in tests.items() if family in own}
        for name, p in zip(tested, holm([p for _, p in tested.values()]), strict=True):
            adjusted[name][family] = tested[name][0], float(p)
    return adjusted


def _decided(parts: tuple[RowComparison, ...], adjusted: Tests, level: float = ALPHA) -> Verdict:
    """The verdict on what has these parts, from its adjusted tests."""
    if all(part.effect is None for part in parts):
        return Verdict(ABSENT, parts=parts)
    shown = [(word, p) for word, p in adjusted.values() if p <= level]
    comparison = parts[0]
    if comparison.kind == VALUE and DIFFERS not in dict(shown):
        if comparison.is_compatible():
            return Verdict(AGREES, parts=parts)
        if comparison.effect is not None and not comparison.effect.error:
            return Verdict(DIFFERS, parts=parts)
    if shown:
        return Verdict(*shown[0], parts)
    return Verdict(OPEN, min((p for _, p in adjusted.values()), default=None), parts)


def _compared(item: Item, claim: Claim, scores: Scores) -> Iterator[RowComparison]:
    """The parts of a statement."""
    for name in claim.column:
        column, column_scores = item.columns[name], scores.get(name, {})
        where = f", {column.title}" if len(claim.column) > 1 else ""
        if claim.sign:
            effect = column_scores[claim.row].estimate() if claim.row in column_scores else None
            if effect is not None and claim.beyond:
                less = effect.mean - claim.beyond
                effect = EffectEstimate.from_error(less, effect.error, effect.df)
            less_text = f" less {claim.beyond:g}" if claim.beyond else ""
            text = f"{claim.row}{less_text} is {claim.sign}{where}"
            sign = 1.0 if claim.sign == "positive" else -1.0
            yield RowComparison(name, claim.row, "", effect, sign=sign, text=text)
        margin = column.margin if claim.margin is None else claim.margin
        row, kind = claim.subject, claim.relation
        for other in claim.than:
            effect = _between(column_scores, other, row)
            text = f"{row} {RELATION_TEXTS[kind]} {other}{where}"
            items = None
            if effect is not None and _of_runs(column_scores[other], column_scores[row]):
                items = difference_over_items(column_scores[other], column_scores[row])
            yield RowComparison(name, row, other, effect, kind, column.sign, margin, text, items)


def _of_runs(before: SeedScores, after: SeedScores) -> bool:
    """Whether the means of two rows, of which one is trained, are over the same seeds."""
    both = before.seeded and after.seeded
    return before.seeds == after.seeds if both else before.seeded or after.seeded


def _cells(
    item: Item, scale: str, scores: Scores
) -> Iterator[tuple[tuple[str, str], RowComparison]]:
    """Every published value comparable to ours, by row and column."""
    rows = [row for row in item.rows if row.kind in ("train", "encoder", "derived", "blocked")]
    for row, column in ((r, c) for r in rows for c in item.columns.values()):
        place, column_scores = (row.name, column.name), scores.get(column.name, {})
        published, ours = row.expected.get(column.name), column_scores.get(row.name)
        if published is None:
            continue
        if scale == "paper":
            effect = from_published(ours, published.value) if ours else None
            comparison = RowComparison(column.name, row.name, "published", effect, VALUE)
            yield place, replace(comparison, margin=published.tolerance)
            continue
        # A row and the reference: a printed difference, or a negligible one.
        apart = published_difference(item, row, column.name)
        if ours is not None and (apart is None or item.reference not in column_scores):
            continue
        effect = _between(column_scores, item.reference, row.name)
        comparison = RowComparison(column.name, row.name, item.reference, effect)
        if apart is not None and column.margin and abs(apart) <= column.margin:
            yield place, replace(comparison, kind=EQUAL, margin=column.margin)
        elif apart:
            yield place, replace(comparison, sign=math.copysign(1.0, apart), margin=column.margin)
        elif ours is None:  # otherwise neither a direction nor a margin is known
            yield place, comparison


def _between(scores: Mapping[str, SeedScores], before: str, after: str) -> EffectEstimate | None:
    known = before in scores and after in scores
    return difference(scores[before], scores[after]) if known else None


def published_difference(item: Item, row: Row, column: str) -> float | None:
    """The published difference of a row from the reference row."""
    if not item.reference or row.name == item.reference:
        return None
    here, there = (r.expected.get(column) for r in (row, item.row(item.reference)))
    return round(here.value - there.value, 9) if here is not None and there is not None else None
