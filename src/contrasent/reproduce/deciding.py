"""All verdicts of a table, decided together."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import variance

from contrasent.reproduce.cells import number
from contrasent.reproduce.entries import Forms, Resolution
from contrasent.reproduce.items import (
    BETTER,
    EQUAL,
    NO_BETTER,
    NO_WORSE,
    Claim,
    Item,
    TableRow,
)
from contrasent.reproduce.sequential import Sequential
from contrasent.reproduce.spread import (
    Arm,
    Gap,
    Spread,
    difference,
    from_published,
    paired,
    pooled,
)
from contrasent.reproduce.verdict import (
    ABSENT,
    ALPHA,
    OPEN,
    VALUE,
    Comparison,
    Unit,
    Verdict,
    adjust,
    capacity,
)
from contrasent.stats.seeds import t_quantile

Arms = Mapping[str, Mapping[str, Arm]]
"""Of each column and row."""

POWER = 0.8
MOST_SEEDS = 100_000


@dataclass(slots=True)
class Decided:
    """The verdicts of an item.

    Attributes:
        claims: the parts of each statement, with what they say.
        tests: how many hypotheses were tested, of which so many could be true.
        columns: what the seeds of each column can show.
        compared: of each statement's parts, and of each cell.
    """

    cells: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    claims: dict[str, list[tuple[str, Verdict]]] = field(default_factory=dict)
    tests: int = 0
    left: int = 0
    columns: dict[str, Resolution] = field(default_factory=dict)
    compared: dict[str | tuple[str, str], list[Comparison]] = field(default_factory=dict)


def decide(
    item: Item,
    scale: str,
    arms: Arms,
    forms: Mapping[str, Forms],
    rested: Mapping[str, tuple[str, Verdict]],
    awaited: Collection[tuple[str, str]] = (),
) -> Decided:
    """Compare all that a table compares, and decide it together."""
    table = _Table(item, arms, forms, awaited)
    cells = dict(table.cells(scale))
    parts = {claim.name: list(table.parts(claim)) for claim in item.claims}
    tests: dict[Unit, dict[Hashable, float]] = {}
    for one in (*cells.values(), *(part for own in parts.values() for _, part in own)):
        for test, (_, p) in one.tests().items():
            tests.setdefault(one.unit, {})[test] = p
    for name, (_, verdict) in rested.items():
        if verdict.word != ABSENT:
            tests[_resting(name)] = {"": 1.0 if verdict.word == OPEN else verdict.p or 0.0}
    adjusted = adjust(tests)
    rejected = {place for place, p in adjusted.items() if p <= ALPHA}
    kept = {u: {t: p for t, p in own.items() if (u, t) not in rejected} for u, own in tests.items()}
    decided = Decided(
        tests=sum(map(capacity, tests.values())),
        left=sum(map(capacity, kept.values())),
        compared={place: [one] for place, one in cells.items()},
    )
    for place, one in cells.items():
        verdict = one.verdict(adjusted)
        apart = published_difference(item, item.row(place[0]), place[1])
        if scale == "lab" and one.gap is not None and apart is not None:
            published = number(apart, forms[place[1]]["paper"], signed=True)
            verdict = replace(verdict, why=f"{verdict.why}; published {published}")
        decided.cells[place] = verdict
    for claim in item.claims:
        decided.compared[claim.name] = [part for _, part in parts[claim.name]]
        own = [(text, part.verdict(adjusted)) for text, part in parts[claim.name]]
        for name in claim.rests_on:
            text, verdict = rested[name]
            own_p = adjusted.get((_resting(name), ""), verdict.p)
            word = OPEN if own_p is not None and own_p > ALPHA else verdict.word
            own.append((text, replace(verdict, word=word, p=own_p)))
        decided.claims[claim.name] = own
    for name, column in item.columns.items():
        shown = _resolution(arms.get(name, {}), column.margin, max(1, decided.tests))
        if shown is not None:
            decided.columns[name] = shown
    return decided


def _resting(name: str) -> Unit:
    """What stands for a statement of another item."""
    return "", "", name


@dataclass(frozen=True, slots=True)
class _Table:
    """What a table compares.

    Attributes:
        awaited: columns and rows that are to be run.
    """

    item: Item
    arms: Arms
    forms: Mapping[str, Forms]
    awaited: Collection[tuple[str, str]]

    def cells(self, scale: str) -> Iterator[tuple[tuple[str, str], Comparison]]:
        """Every cell that a published value stands in, by row and column."""
        compare = self._value if scale == "paper" else self._direction
        for row in self.item.rows:
            for column in self.item.columns if row.kind in ("train", "encoder", "blocked") else ():
                found = compare(row, column) if column in row.expected else None
                if found is not None:
                    yield (row.name, column), found

    def _value(self, row: TableRow, column: str) -> Comparison:
        """A row and its published value."""
        expected, arm = row.expected[column], self._arm(column, row.name)
        found = None
        if arm is not None:
            found = from_published(arm, expected.value, expected.sd, expected.seeds)
        one = self._compared(column, row.name, "published", found)
        return replace(one, kind=VALUE, margin=expected.tolerance)

    def _direction(self, row: TableRow, column: str) -> Comparison | None:
        """A row and the reference: a difference that is printed, or none to speak of."""
        before, after = self.item.reference, row.name
        there = self._arm(column, after) is not None
        apart = published_difference(self.item, row, column)
        if there and (apart is None or self._arm(column, before) is None):
            return None
        one = self._compared(column, after, before, self._gap(column, after, before))
        margin = self.item.columns[column].margin
        if apart is not None and margin and abs(apart) <= margin:
            return replace(one, kind=EQUAL, margin=margin)
        if apart:
            return replace(one, sign=1.0 if apart > 0 else -1.0, margin=margin)
        # There is no direction to agree with, and no margin to be equal by.
        return None if there else replace(one, awaited=False)

    def parts(self, claim: Claim) -> Iterator[tuple[str, Comparison]]:
        """What a statement consists of: a text and a comparison each."""
        for name in claim.columns:
            column = self.item.columns[name]
            where = f", {column.title}" if len(claim.columns) > 1 else ""
            if claim.sign:
                arm, sign = self._arm(name, claim.row), 1.0 if claim.sign == "positive" else -1.0
                one = self._compared(name, claim.row, "", arm.gap() if arm is not None else None)
                yield f"{claim.row} is {claim.sign}{where}", replace(one, sign=sign)
            after, kind, sign = claim.subject, claim.relation, -1.0
            if column.better == "higher":
                sign = 1.0
            for other in claim.than:
                one = self._compared(name, after, other, self._gap(name, after, other))
                margin = column.margin if claim.margin is None else claim.margin
                text = f"{after} {SAID[kind]} {other}{where}"
                yield text, replace(one, kind=kind, sign=sign, margin=margin)

    def _compared(
        self, column: str, after: str, before: str, gap: Gap | Sequential | None
    ) -> Comparison:
        rows = [row for row in (after, before) if row not in ("", "published")]
        awaited = all((column, row) in self.awaited for row in rows)
        form = self.forms[column]["ours"]
        return Comparison(column, after, before, gap, form=form, awaited=awaited)

    def _gap(self, column: str, after: str, before: str) -> Gap | Sequential | None:
        one, two = self._arm(column, before), self._arm(column, after)
        return difference(one, two) if one is not None and two is not None else None

    def _arm(self, column: str, row: str) -> Arm | None:
        return self.arms.get(column, {}).get(row)


def published_difference(item: Item, row: TableRow, column: str) -> float | None:
    """The published difference of a row from the reference row."""
    if not item.reference or row.name == item.reference:
        return None
    here, there = (r.expected.get(column) for r in (row, item.row(item.reference)))
    return round(here.value - there.value, 9) if here is not None and there is not None else None


SAID = {
    BETTER: "against",
    NO_WORSE: "no worse than",
    NO_BETTER: "no better than",
    EQUAL: "equal to",
}


def _resolution(arms: Mapping[str, Arm], margin: float | None, tests: int) -> Resolution | None:
    """What a column's seeds can show, at the strictest level that a test of the table meets."""
    from scipy.special import chdtri

    seeded = {name: arm for name, arm in arms.items() if arm.seeded}
    shared = pooled({name: arm.values for name, arm in seeded.items()})
    if shared is None:
        return None
    apart = [name for name, arm in seeded.items() if arm.noise and arm.noise.own]
    seeds = Counter(len(arm.values) for arm in seeded.values()).most_common(1)[0][0]
    level = 1 - ALPHA / tests / 2
    typical, rows = _typical(list(seeded.values()), shared)
    least: float | None
    least = t_quantile(level, typical.freedom) * typical.deviation / math.sqrt(seeds)
    needed = None
    sequential = any(arm.sequential for arm in seeded.values())
    if sequential:
        expected = Sequential.of([-shared.deviation, shared.deviation]).after(max(2, seeds))
        bounds = expected.interval(1 - ALPHA / tests)
        least = bounds[1] if bounds is not None else None
    elif margin and typical.deviation:
        # The deviation may be larger than it looks: its upper limit, four times in five.
        limit = float(chdtri(typical.freedom, POWER))
        most = typical.deviation * math.sqrt(typical.freedom / limit)

        def enough(count: int) -> bool:
            """Whether every difference leaves out zero, or stays within the margin."""
            edge = t_quantile(level, rows * (count - 1))
            return edge * most / math.sqrt(count) <= margin / 2

        first = bisect_left(range(MOST_SEEDS), True, lo=2, key=enough)
        needed = first if first < MOST_SEEDS else None
    return {
        "deviation": round(shared.deviation, 4),
        "freedom": shared.freedom,
        "apart": apart,
        "seeds": seeds,
        "least": round(least, 4) if least is not None else None,
        "needed": needed,
        "paired": _paired(list(seeded.values())),
    }


def _typical(arms: Sequence[Arm], shared: Spread) -> tuple[Spread, float]:
    """How far a seed moves the difference of two rows; degrees of freedom of each seed more."""
    left = [(arm.residual, len(arm.values)) for arm in arms if arm.residual is not None]
    noise, per_seed = shared, float(len(arms))
    if left:
        noise, seeds = sorted(left, key=lambda own: own[0].deviation)[len(left) // 2]
        per_seed = noise.freedom / (seeds - 1)
    return replace(noise, deviation=math.sqrt(2) * noise.deviation), per_seed


def _paired(arms: Sequence[Arm]) -> float | None:
    """How far differences of two rows vary, seed by seed, against those of unpaired runs."""
    both, each = 0.0, 0.0
    for one, two in combinations(arms, 2):
        shared = sorted(set(one.by_seed) & set(two.by_seed))
        if len(shared) > 1:
            both += variance(paired(one, two))
            each += sum(variance(arm.by_seed[seed] for seed in shared) for arm in (one, two))
    return round(math.sqrt(both / each), 3) if each else None
