"""All verdicts of a table, decided together."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from contrasent.evaluate.significance import t_quantile
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
from contrasent.reproduce.spread import Arm, difference, from_published, pooled
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

Arms = Mapping[str, Mapping[str, Arm]]
"""Of each column and row."""

POWER = 0.8
MOST_SEEDS = 100_000


@dataclass(slots=True)
class Decided:
    """The verdicts of an item.

    Attributes:
        cells: by row and column.
        claims: the parts of each statement, with what they say.
        tests: how many hypotheses were tested, of which so many could be true.
        columns: what the seeds of each column can show.
    """

    cells: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    claims: dict[str, list[tuple[str, Verdict]]] = field(default_factory=dict)
    tests: int = 0
    columns: dict[str, Resolution] = field(default_factory=dict)


def decide(
    item: Item,
    scale: str,
    arms: Arms,
    forms: Mapping[str, Forms],
    rested: Mapping[str, tuple[str, Verdict]],
) -> Decided:
    """Compare all that a table compares, and decide it together.

    Args:
        item: which.
        scale: at "paper" values are compared with the document's, at "lab" rows with the reference.
        arms: what was measured.
        forms: of each column's numbers.
        rested: statements of other items that statements of this one rest on, with their text; they
            were decided with their own table, and count here as one test each.
    """
    cells = dict(_cells(item, scale, arms, forms))
    parts = {claim.name: list(_parts(item, claim, arms, forms)) for claim in item.claims}
    tests: dict[Unit, dict[Hashable, float]] = {}
    for one in (*cells.values(), *(part for own in parts.values() for _, part in own)):
        for test, (_, p) in one.tests().items():
            tests.setdefault(one.unit, {})[test] = p
    for name, (_, verdict) in rested.items():
        if verdict.word != ABSENT:
            tests[_resting(name)] = {"": 1.0 if verdict.word == OPEN else verdict.p or 0.0}
    adjusted = adjust(tests)
    decided = Decided(tests=sum(map(capacity, tests.values())))
    for place, one in cells.items():
        verdict = one.verdict(adjusted)
        apart = published_difference(item, item.row(place[0]), place[1])
        if scale == "lab" and one.gap is not None and apart is not None:
            published = number(apart, forms[place[1]]["paper"], signed=True)
            verdict = replace(verdict, why=f"{verdict.why}; published {published}")
        decided.cells[place] = verdict
    for claim in item.claims:
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


def _cells(
    item: Item, scale: str, arms: Arms, forms: Mapping[str, Forms]
) -> Iterator[tuple[tuple[str, str], Comparison]]:
    compare = _value if scale == "paper" else _direction
    for row in item.rows:
        for column in item.columns if row.kind in ("train", "encoder", "blocked") else ():
            form = forms[column]["ours"]
            found = compare(item, row, column, arms.get(column, {}), form)
            if found is not None:
                yield (row.name, column), found


def _value(
    item: Item, row: TableRow, column: str, arms: Mapping[str, Arm], form: str
) -> Comparison | None:
    """A row and its published value."""
    expected, arm = row.expected.get(column), arms.get(row.name)
    if expected is None:
        return None
    found = None
    if arm is not None:
        found = from_published(arm, expected.value, expected.sd, expected.seeds)
    return Comparison(
        column, row.name, "published", found, VALUE, margin=expected.tolerance, form=form
    )


def _direction(
    item: Item, row: TableRow, column: str, arms: Mapping[str, Arm], form: str
) -> Comparison | None:
    """A row and the reference: a difference that the document prints, or none to speak of."""
    if row.expected.get(column) is None:
        return None
    before, after = item.reference, row.name
    if after not in arms:
        return Comparison(column, after, before, None)
    apart = published_difference(item, row, column)
    if before not in arms or apart is None:
        return None
    found, margin = difference(arms[before], arms[after]), item.columns[column].margin
    if margin and abs(apart) <= margin:
        return Comparison(column, after, before, found, EQUAL, margin=margin, form=form)
    if not apart:
        # There is no direction to agree with, and no margin to be equal by.
        return None
    sign = 1.0 if apart > 0 else -1.0
    return Comparison(column, after, before, found, sign=sign, margin=margin, form=form)


def published_difference(item: Item, row: TableRow, column: str) -> float | None:
    """The published difference of a row from the reference row.

    Args:
        item: which.
        row: of it.
        column: its name.
    """
    if not item.reference or row.name == item.reference:
        return None
    here, there = (r.expected.get(column) for r in (row, item.row(item.reference)))
    return round(here.value - there.value, 9) if here is not None and there is not None else None


def _parts(
    item: Item, claim: Claim, arms: Arms, forms: Mapping[str, Forms]
) -> Iterator[tuple[str, Comparison]]:
    """What a statement consists of: a text and a comparison each."""
    for name in claim.columns:
        column, own = item.columns[name], arms.get(name, {})
        where = f", {column.title}" if len(claim.columns) > 1 else ""
        form = forms[name]["ours"]
        margin = column.margin if claim.margin is None else claim.margin
        if claim.sign:
            arm, sign = own.get(claim.row), 1.0 if claim.sign == "positive" else -1.0
            found = arm.gap() if arm is not None else None
            about = Comparison(name, claim.row, "", found, sign=sign, form=form)
            yield f"{claim.row} is {claim.sign}{where}", about
        sign = 1.0 if column.better == "higher" else -1.0
        for other in claim.than:
            after, kind = claim.subject, claim.relation
            found = difference(own[other], own[after]) if after in own and other in own else None
            about = Comparison(name, after, other, found, kind, sign, margin, form)
            yield f"{after} {SAID[kind]} {other}{where}", about


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
    least = float(t_quantile(level, shared.freedom)) * shared.deviation * math.sqrt(2 / seeds)
    needed = None
    if margin and shared.deviation:
        # The deviation may be larger than it looks: its upper limit, four times in five.
        limit = float(chdtri(shared.freedom, POWER))
        most = shared.deviation * math.sqrt(shared.freedom / limit)

        def enough(count: int) -> bool:
            """Whether every difference leaves out zero, or stays within the margin."""
            edge = float(t_quantile(level, len(seeded) * (count - 1)))
            return edge * most * math.sqrt(2 / count) <= margin / 2

        first = bisect_left(range(MOST_SEEDS), True, lo=2, key=enough)
        needed = first if first < MOST_SEEDS else None
    return {
        "deviation": round(shared.deviation, 4),
        "freedom": shared.freedom,
        "apart": apart,
        "seeds": seeds,
        "least": round(least, 4),
        "needed": needed,
    }
