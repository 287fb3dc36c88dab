"""Compares two methods: the difference, its interval over items and seeds, its meaning.

Items are shared by both arms, so their influences are known; runs vary by seed, with Student's t of
few degrees of freedom. With one run in each arm a standard deviation over seeds is assumed
(SEED_SD). Swapping A and B mirrors the interval to the bit.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, OptionError
from contrasent.metrics import metric
from contrasent.report import Items, Report, Row, key_text, shown
from contrasent.stats import seeds
from contrasent.stats.bootstrap import MIN_ITEMS
from contrasent.stats.influence import item_error, item_moves

SEED_SD = 1.2
"""Points: the standard deviation over seeds that is assumed where each arm has one run.

The 50 seeds that were published of each of four unsupervised SimCSE recipes have 0.21, 0.50, 0.84
and 1.74 on the mean of seven STS sets. With 1.2, one null comparison in twenty is found different
over the four; of the last recipe alone it is 18 %.
"""

NO_SPREAD = "one run shows no spread over seeds, and no default is known for these scores"
SPREAD = "_seed_sd"  # rows that are spreads themselves are not compared

Floats = NDArray[np.float64]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MethodComparison:
    """Method B against method A on one row of their reports."""

    task: str
    metric: str
    before: float
    after: float
    difference: float
    low: float  # lower end of its 95 % interval: of the methods, over items (if known) and seeds
    high: float
    p: float  # two-sided p of no difference: the interval at level 1 - p touches zero
    runs: tuple[int, int]  # numbers of runs of A and B
    deviation: float | None  # pooled standard deviation over seeds; None with one run an arm
    count: int  # pairs or queries that the scores rest on
    split: str = ""
    aggregate: str = ""
    # lower end of the 95 % interval of these same runs on other items; None if the items are
    # unknown
    item_low: float | None = None
    item_high: float | None = None
    item_p: float | None = None
    # standard deviation over seeds assumed for an arm with one run; None if none was
    seed_sd: float | None = None

    @property
    def verdict(self) -> str:
        """The conclusion from the interval: "B is higher", "A is higher" or "undecided"."""
        return "B is higher" if self.low > 0 else "A is higher" if self.high < 0 else "undecided"

    @property
    def name(self) -> str:
        """The row's name in one line."""
        return key_text((self.task, self.split, self.metric, self.aggregate))

    def to_json(self) -> dict[str, Any]:
        """A dictionary that ``json.dump`` writes."""
        return {**asdict(self), "verdict": self.verdict}

    def line(self, width: int = 10) -> str:
        """One line for a terminal."""
        a, b = (shown(self.metric, v) for v in (self.before, self.after))
        d, low, high = (shown(self.metric, v, "+") for v in (self.difference, self.low, self.high))
        text = f"{self.name:<{width}} {a:>7} {b:>7} {d:>7}  [{low}, {high}]  p {self.p:.4f}"
        text = f"{text}  {self.verdict:<11}"
        if self.deviation is not None:
            text += f"  sd over seeds {shown(self.metric, self.deviation)}"
        if 1 in self.runs and self.item_low is not None and self.item_high is not None:
            low, high = (shown(self.metric, v, "+") for v in (self.item_low, self.item_high))
            text += f"  these models alone: [{low}, {high}] p {self.item_p:.4f}"
        return text


def compare_reports(
    before: Sequence[Report],
    after: Sequence[Report],
    *,
    names: Sequence[str] = (),
    seed_sd: float | None = None,
) -> list[MethodComparison]:
    """Compare two methods by the reports of their runs, on the rows that all of them share."""
    if not before or not after:
        raise DataError("give at least one model for A and for B")
    if seed_sd is not None and not (math.isfinite(seed_sd) and seed_sd >= 0):
        raise OptionError("seed_sd", seed_sd, "give a standard deviation in points, 0 or more")
    if seed_sd is not None and min(len(before), len(after)) > 1:
        problem = "is for a model with one run; A and B have several, which show their spread"
        raise OptionError("seed_sd", seed_sd, problem)
    reports = [*before, *after]
    names = names or [
        f"{a} {i + 1}" for a, n in (("A", before), ("B", after)) for i in range(len(n))
    ]
    _check_copies(before, names)
    _check_copies(after, names[len(before) :])
    tables = [{row.key: row for row in report} for report in reports]
    shared = [k for k in tables[0] if all(k in t for t in tables) and not k[2].endswith(SPREAD)]
    if not shared:
        raise DataError("the reports have no row in common")
    results = []
    few: list[str] = []
    for key in shared:
        rows = [table[key] for table in tables]
        moved = item_moves(rows, reports, names)
        if moved is not None and moved.shape[1] < MIN_ITEMS:
            # A handful can all move by the same, which would look certain.
            few.append(f"{key_text(key)} has {moved.shape[1]}")
            continue
        # The spread assumed for single runs applies to scores in hundredths.
        known = moved is not None and (seed_sd == 0 or metric(rows[0].metric).hundredths)
        if known or len(reports) > 2:
            results.append(_compare(rows, len(before), moved, seed_sd))
    if few:
        problem = f"too few distinct items to compare: {', '.join(few)}; {MIN_ITEMS} are needed"
        if not results:
            raise DataError(problem)
        log.warning("%s", problem)
    if not results and any(all(key in r.items for r in reports) for key in shared):
        raise DataError(
            f"{NO_SPREAD}; pass at least two runs each, or --seed-sd 0 if no seed changes a model"
        )
    if not results:
        raise DataError(
            "the reports contain no item scores, and one run shows no spread over seeds; "
            "repeat evaluate --json-file, or pass at least two runs each"
        )
    return results


def _check_copies(reports: Sequence[Report], names: Sequence[str]) -> None:
    """Reject runs of one arm that have the same scores; right or wrong alone may be by chance."""
    known: dict[frozenset[bytes], str] = {}
    for report, name in zip(reports, names, strict=False):
        columns = [items.columns for items in report.items.values() if isinstance(items, Items)]
        if any(len(np.unique(column[0])) > MIN_ITEMS for column in columns):
            other = known.setdefault(frozenset(column.tobytes() for column in columns), name)
            if other != name:
                problem = "have the same score on every item; copies of a model are not other seeds"
                raise DataError(f"{other} and {name} {problem}: name each run once")


def _compare(
    rows: Sequence[Row], first: int, moved: Floats | None, seed_sd: float | None
) -> MethodComparison:
    """One row's comparison: the first runs are A's, the others B's."""
    row = rows[0]
    scores = np.array([r.value for r in rows])
    a, b = scores[:first], scores[first:]
    difference = float(b.mean() - a.mean())
    arms, assumed = [seeds.ArmSpread.of(scores) for scores in (a, b)], None
    # Single runs have the spread that is stated, or the other arm's, or the default.
    if 1 in (len(a), len(b)) and (seed_sd is not None or len(rows) == 2):
        points = SEED_SD if seed_sd is None else seed_sd
        if not points or metric(row.metric).hundredths:
            assumed = points / 100
            single = seeds.ArmSpread(assumed**2, 1, math.inf)
            arms = [single if arm.runs == 1 else arm for arm in arms]
    items, items_df, parts = item_error(moved, first)
    error, df = seeds.unpaired_error(*arms)
    # The shared part; a single run uses that of the arm whose spread it borrows.
    shared = [parts[i] if arms[i].df else parts[1 - i] for i in (0, 1)]
    both = sum(part / arm.runs for part, arm in zip(shared, arms, strict=True))
    whole = seeds.TwoWay(items, items_df, error, df, math.sqrt(both))
    alone = seeds.TwoWay(items, items_df, 0.0, math.inf)
    half, margin = whole.half_width(), alone.half_width()
    return MethodComparison(
        task=row.task,
        metric=row.metric,
        before=float(a.mean()),
        after=float(b.mean()),
        difference=difference,
        low=difference - half,
        high=difference + half,
        p=whole.p(difference),
        runs=(len(a), len(b)),
        deviation=seeds.pooled_deviation(a, b),
        count=row.count,
        split=row.split,
        aggregate=row.aggregate,
        item_low=None if moved is None else difference - margin,
        item_high=None if moved is None else difference + margin,
        item_p=None if moved is None else alone.p(difference),
        seed_sd=assumed,
    )


def comparison_table(
    before: Sequence[str],
    after: Sequence[str],
    reports: Sequence[Report],
    comparisons: Sequence[MethodComparison],
    seed_sd: float | None,
) -> str:
    """The comparison of the named runs for a terminal, and what its intervals mean."""
    width = max(len(comparison.name) for comparison in comparisons)
    lines = [
        f"A: {', '.join(before)}\nB: {', '.join(after)}",
        f"{'':<{width}} {'A':>7} {'B':>7} {'B - A':>7}  [95 % interval]",
        *(comparison.line(width) for comparison in comparisons),
        _meaning(len(before), len(after), seed_sd, comparisons),
    ]
    # Of few distinct items a warning has told.
    every = [{row.metric for row in report if not _few(report, row)} for report in reports]
    left = set.intersection(*every) - {comparison.metric for comparison in comparisons}
    left = {metric for metric in left if not metric.endswith(SPREAD)}
    if left:
        why = f"{NO_SPREAD}; pass several runs each, or --seed-sd 0 if no seed changes a model"
        if seed_sd == 0:
            why = "the reports contain no item scores; pass several runs each"
        lines.append(f"not compared: {', '.join(sorted(left))}: {why}")
    return "\n".join(lines)


def _few(report: Report, row: Row) -> bool:
    """Whether a row rests on too few distinct items to be compared."""
    items = report.items.get(row.key)
    return isinstance(items, Items) and len(np.unique(items.keys)) < MIN_ITEMS


def _meaning(
    before: int, after: int, seed_sd: float | None, comparisons: Sequence[MethodComparison]
) -> str:
    """The meaning of the intervals, in one line."""
    known = [comparison.item_p is not None for comparison in comparisons]
    items = "" if any(known) else " They are for these items only: no item scores in the reports."
    if any(known) and not all(known):
        items = " Rows without item scores are for these items only."
    if min(before, after) > 1:
        return f"Intervals cover other seeds and other items.{items}"
    if seed_sd == 0:
        return f"Intervals cover other items, and no spread over seeds.{items}"
    if max(before, after) > 1 and seed_sd is None:
        return f"Intervals assume the other model's spread over seeds for the single run.{items}"
    others = any(comparison.seed_sd is None for comparison in comparisons)
    points = f"{SEED_SD if seed_sd is None else seed_sd:g} points (--seed-sd)"
    points += ", or the other model's for scores not in points" if others else ""
    return (
        f"Intervals assume a seed standard deviation of {points}; pass several seeds (a1,a2,a3) to "
        f"measure it.{items}"
    )
