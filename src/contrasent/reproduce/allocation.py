"""Where another seed decides most, and how many more would decide a statement."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from contrasent.reproduce.deciding import Decided
from contrasent.reproduce.items import Item
from contrasent.reproduce.plan import Planner, SeededRow
from contrasent.reproduce.results import Found, ItemResults, verdicts_on
from contrasent.reproduce.run import Outcome, Say, run
from contrasent.reproduce.sequential import Sequential
from contrasent.reproduce.verdict import ABSENT, ALPHA, DIFFERS, OPEN, Comparison, Verdict, together

MOST = 500
"""Seeds of a row beyond which nothing is promised."""

Rows = dict[str, int]
"""Seeds by row: of them all, or more of them."""


def run_until_decided(
    planner: Planner,
    items: Sequence[Item],
    seeds: int | None,
    *,
    jobs: int,
    budget: float,
    keep: bool,
    say: Say,
) -> Outcome:
    """Run the first seeds of all rows, then the next where they decide most, as the time allows.

    ``budget``: seconds after which nothing is begun.
    """
    began, made = time.monotonic(), 0
    added: dict[SeededRow, int] = {}
    failed: set[str] = set()
    store, scale = planner.store, planner.scale.name
    while True:
        plan = planner.plan(items, seeds, added)
        plan.jobs = [job for job in plan.jobs if job.model.key not in failed]
        left = budget - (time.monotonic() - began)
        outcome = run(plan, store, planner.place.data, jobs=jobs, budget=left, keep=keep, say=say)
        made += outcome.made
        failed |= {key for job in plan.jobs if store.skipped(key := job.model.key) is not None}
        found = verdicts_on(items, store.home, scale)
        stuck = bool(added) and not outcome.made  # such as data that are gone
        names, added = next_seeds(found, jobs)
        seconds = time.monotonic() - began
        expected = [found[item][0].seconds(row) for item, row in added]
        if outcome.left or stuck or not added or seconds + min(expected) > budget:
            return Outcome(made, outcome.left, seconds)
        say(f"{len(added)} more runs for {'; '.join(names)}")


def needed(found: ItemResults, decided: Decided, target: str | tuple[str, str]) -> Rows | None:
    """Seeds more of each row that would decide a statement, or a cell.

    All differences and their spreads are taken to stay as they are now, which is the best guess,
    and may be a bad one; each test is taken to meet the strictest level that is left.
    """
    parts = list(zip(decided.compared[target], _verdicts(decided, target), strict=True))
    words = {verdict.word for _, verdict in parts}
    if ABSENT in words or together([verdict for _, verdict in parts]).word != OPEN:
        return None
    level = ALPHA / max(1, decided.left)
    expected = [_expected(one, level) for one, verdict in parts if verdict.word == OPEN]
    least = [own for own in expected if own is not None and own[0] == DIFFERS]
    # One part that differs decides the whole; otherwise all parts must be decided.
    wanted = [min(least, key=lambda own: own[1])] if least else expected
    total: Rows = {}
    for own in wanted:
        if own is None:
            return None
        _, seeds, one = own
        for row in (one.after, one.before):
            arm = found.arms[one.column].get(row)
            if arm is not None and arm.seeded:
                total[row] = max(total.get(row, 0), seeds - len(arm.values))
    return {row: count for row, count in total.items() if count > 0}


def _expected(one: Comparison, level: float) -> tuple[str, int, Comparison] | None:
    """The word that a comparison is likely to get, and with how many seeds."""
    gap = one.gap
    if not isinstance(gap, Sequential):
        return None
    count = gap.seeds + 1
    while count <= MOST:
        tests = replace(one, gap=gap.after(count)).tests().values()
        word = next((word for word, p in tests if p <= level), None)
        if word is not None:
            return word, count, one
        count += 1 + count // 20
    return None


def _verdicts(decided: Decided, target: str | tuple[str, str]) -> list[Verdict]:
    if isinstance(target, tuple):
        return [decided.cells[target]]
    # Statements of other items that one rests on stand behind its own parts.
    return [verdict for _, verdict in decided.claims[target]][: len(decided.compared[target])]


def next_seeds(found: Mapping[str, Found], jobs: int) -> tuple[list[str], dict[SeededRow, int]]:
    """The statements that the fewest further runs would decide, and the next seeds of their rows.

    Where an item makes no statements its cells stand for them. Rows of other items that have the
    same model, and that an undecided statement needs as well, are measured with it: a model is
    dropped when it is done, and would have to be trained again. The choice depends on the results
    alone, so that a run that was stopped goes on as if it had not been.
    """
    wanted: dict[SeededRow, None] = {}
    names = []
    undecided = sorted(_open(found), key=lambda own: own[:2])
    for _, _, name, target, more in undecided:
        if len(wanted) >= jobs:
            break
        results, _ = found[name]
        names.append(f"{name} {target if isinstance(target, str) else ', '.join(target)}")
        fewest = min(results.counts[row] for row in more)
        for row in more:
            if results.counts[row] == fewest:
                wanted[name, row] = None
    counts = {(name, row): found[name][0].counts[row] + 1 for name, row in wanted}
    seeds = {(found[name][0].model(row), count) for (name, row), count in counts.items()}
    for name, row in ((name, row) for _, _, name, _, more in undecided for row in more):
        results = found[name][0]
        if (results.model(row), results.counts[row] + 1) in seeds:
            counts[name, row] = results.counts[row] + 1
    return names, counts


def _open(
    found: Mapping[str, Found],
) -> Iterator[tuple[int, int, str, str | tuple[str, str], Rows]]:
    """What is not decided, with the runs that it needs and its place."""
    place = 0
    for name, (results, decided) in found.items():
        statements = [claim.name for claim in results.item.claims]
        targets: list[str | tuple[str, str]] = [*statements] or [*decided.cells]
        for target in targets:
            place += 1
            more = needed(results, decided, target)
            if more:
                yield sum(more.values()), place, name, target, more
