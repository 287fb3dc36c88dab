"""User queries teach how to search, and are judged by what they did not teach."""

from collections.abc import Callable
from dataclasses import dataclass

from contrasent.adapt.bench import Bench, Difference, Floats, difference
from contrasent.adapt.work import Work
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What queries taught, and how much better it finds their answers."""

    ranker: Ranker
    learned: Learned
    improved: bool
    again: Difference  # where documents are asked for again
    new: Difference  # on documents that nothing was taught about
    before: float
    after: float
    reason: str
    values_before: Floats  # (q,) nDCG@10
    values_after: Floats
    curve: list[tuple[int, Difference]]


def teach(
    bench: Bench,
    prior: Ranker,
    *,
    seed: int,
    log: Callable[[str], None],
    work: Work | None,
    until: Callable[[], float],
) -> Lesson:
    """Learn from the queries of a bench; ``until`` gives the seconds that are left."""
    (before,) = bench.values([prior])
    none = difference(bench.queries, before - before, seed=seed)
    mean, why = float(before.mean()), "nothing was tried"
    return Lesson(prior, bench.learned, False, none, none, mean, mean, why, before, before, [])
