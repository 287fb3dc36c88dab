"""Learning from user queries, each evaluated on a search that was learned without it.

Cross-fitting has two kinds of folds: of random queries, as if users asked about the same documents
again, and of whole documents, as if they were new.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from contrasent.adapt.bench import Bench, Difference, Floats, Query, Values, difference
from contrasent.adapt.encoder import Trial
from contrasent.adapt.learner import AGAIN, NEW, NEW_COUNTS, TUNING, Learner, Tuning, Way, ways_of
from contrasent.adapt.work import Work
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.types import Log, Mask, Numbers

FOLDS, FEW_FOLDS = 5, 3
COUNTS = (50, 100, 200, 500)  # queries that teach, in the curve
FLIPS = 1000  # choices made among differences with random signs
SURE = 0.01  # p value to keep a gain on known documents: few queries show less than they seem to
OTHERS = 0.2  # share of the queries that must be left for judging
PROBED, FOLDS_SHARE = 8, 0.5  # queries that are timed; share of the time left that folds may take
NEW_VECTORS = 0.005  # gain over other ways that is worth encoding all rows again


@dataclass(frozen=True, slots=True)
class Tried:
    """Ways measured together, against the earlier search."""

    name: str
    way: str  # the best for all queries
    again: Difference
    new: Difference
    seconds: float
    milliseconds: float  # more for each query


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """Everything learned from queries, and its effect on queries that took no part in learning."""

    ranker: Ranker  # the prior if nothing is improved
    learned: Learned
    improved: bool
    again: Difference  # on known documents
    new: Difference  # on new documents
    before: float  # mean nDCG@10 by the prior, and afterwards, on known documents
    after: float
    reason: str
    values_before: Floats  # (q,) nDCG@10
    values_after: Floats
    teach_all: Callable[[], object] | None  # trains the encoder, if one is kept
    tried: list[Tried]
    curve: list[tuple[int, Difference]]  # number of training queries, and the gain of the others


Judge = Callable[[Learner, dict[str, Numbers], Values, Values], Trial | None]
"""Measures encoders that queries teach, as :meth:`EncoderLearner.judge` does."""


def teach(
    bench: Bench,
    prior: Ranker,
    *,
    seed: int,
    log: Log,
    work: Work,
    until: Callable[[], float],
    judge: Judge = lambda learner, folds, before, others: None,
    tuning: Tuning = TUNING,
) -> Lesson:
    """Learn from the queries of a bench; ``until`` gives the seconds that are left."""
    teacher = _Teacher(Learner(bench, prior, seed, tuning), work, log)
    everything, began = np.arange(len(bench.queries)), time.monotonic()
    few = teacher.kept("few", lambda: teacher.cost() > FOLDS_SHARE * until())
    ways = first_ways = teacher.ways(few=few)
    count = FEW_FOLDS if few else FOLDS
    folds = {kind: folds_of(bench, everything, kind, count, seed) for kind in (AGAIN, NEW)}
    values = teacher.values(everything, folds, ways)
    before, spent = values[AGAIN][0], time.monotonic() - began
    name = "queries: map, known queries, words"
    tried = [teacher.tried(name, ways, values, folds[NEW], everything, spent)]
    prior_values = {kind: v[0] for kind, v in values.items()}
    trial = judge(teacher.learner, folds, prior_values, cross_fitted(values, folds[NEW]))
    if trial is not None:
        judged = np.flatnonzero(trial.judged)
        alone = {k: np.concatenate([v[:1], trial.values[k]])[:, judged] for k, v in values.items()}
        name = "queries: an encoder" + ("" if len(judged) == len(before) else " (one half)")
        tested = [ways[0], *trial.ways], alone, folds[NEW][judged], judged, trial.seconds
        tried.append(teacher.tried(name, *tested))
        if len(judged) == len(before):
            values = {kind: np.concatenate([v, trial.values[kind]]) for kind, v in values.items()}
            ways = [*ways, *trial.ways]
    costs = _costs(ways)
    after = cross_fitted(values, folds[NEW], costs)
    again, new = (difference(bench.queries, after[k] - before, seed=seed) for k in (AGAIN, NEW))
    chance = luck(bench.queries, values, folds[NEW], seed, costs)
    again = replace(again, low=min(again.low, again.value - chance))
    way = ways[best_way(values, everything >= 0, costs)]
    improved = way != ways[0] and is_sure(again) and new.high >= 0
    learned = way.needs(teacher.learned(everything, way, "all")) if improved else bench.learned
    curve = []
    for size in teacher.kept("sizes", lambda: sizes(len(everything), spent, until())):
        gain = teacher.kept(f"{size}", partial(teacher.gain_of, size, first_ways))
        curve.append((size, Difference(**gain)))
    return Lesson(
        way.ranker if improved else prior,
        learned,
        improved,
        again,
        new,
        float(before.mean()),
        float(after[AGAIN].mean()),
        _reason(way, prior, again, new),
        before,
        after[AGAIN],
        trial.teach_all if trial is not None and improved and way.encoder else None,
        tried,
        [*curve, (len(everything), again)],
    )


def _costs(ways: Sequence[Way]) -> Floats:
    """The gain that each way must exceed."""
    return np.array([NEW_VECTORS if way.encoder else 0.0 for way in ways])


def is_sure(gain: Difference) -> bool:
    """Whether a gain is certain enough to be kept."""
    return gain.low > 0 and gain.p <= SURE


def folds_of(bench: Bench, numbers: Numbers, kind: str, count: int, seed: int) -> Numbers:
    """The fold of each query; in folds of documents, queries with one main answer share it."""
    of = np.arange(len(numbers))
    if kind == NEW:
        of = np.unique([bench.queries[at].document for at in numbers], return_inverse=True)[1]
    folds: Numbers = np.random.default_rng(seed).permutation(np.arange(of.max() + 1) % count)[of]
    return folds


def best_way(values: Values, among: Mask, costs: Floats | float = 0.0) -> int:
    """The way that gains most over the first on some queries, without loss on new documents."""
    again, new = (
        (values[kind][:, among] - values[kind][0, among]).mean(axis=1) for kind in (AGAIN, NEW)
    )
    scores = _scores(again, new) - costs
    best = int(scores.argmax())
    return best if scores[best] > 1e-9 else 0


def _scores(again: Floats, new: Floats) -> Floats:
    return np.where(new >= -1e-9, again + NEW_COUNTS * new, -np.inf)


def cross_fitted(values: Values, folds: Numbers, costs: Floats | float = 0.0) -> Values:
    """(q,) by kind: each fold of documents scored by the way that is best on the other folds."""
    scores = {kind: np.empty(by_way.shape[1]) for kind, by_way in values.items()}
    for fold in range(folds.max() + 1):
        judged = folds == fold
        way = best_way(values, ~judged, costs)
        for kind, by_way in values.items():
            scores[kind][judged] = by_way[way, judged]
    return scores


def luck(
    queries: Sequence[Query],
    values: Values,
    folds: Numbers,
    seed: int,
    costs: Floats | float = 0.0,
) -> float:
    """The gain on known documents that 2.5 % of choices among useless ways would show."""
    # The way for one fold follows from the others, whose ways follow from it: an interval of their
    # mean is too narrow. Random signs of what documents differ by from the mean show by how much;
    # ways that surely lose go on losing (Hansen, 2005, A Test for Superior Predictive Ability).
    documents, where = np.unique([query.document for query in queries], return_inverse=True)
    counts, fold_of = np.bincount(where), np.zeros(len(documents), dtype=np.int64)
    fold_of[where] = folds
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(FLIPS, len(documents)))
    apart, lost = {}, {}
    for kind, matrix in values.items():
        sums = np.zeros((len(documents), len(matrix)))
        np.add.at(sums, where, (matrix - matrix[0]).T)
        means = sums.sum(axis=0) / len(queries)
        apart[kind] = sums - counts[:, None] * means
        errors = np.sqrt(np.square(apart[kind]).sum(axis=0)) / len(queries)
        surely = means < -errors * np.sqrt(2 * np.log(np.log(max(3, len(documents)))))
        lost[kind] = np.where(surely, means, 0.0)
    whole, gains = {kind: signs @ matrix for kind, matrix in apart.items()}, np.zeros(FLIPS)
    for fold in range(folds.max() + 1):
        judged = fold_of == fold
        parts = {kind: signs[:, judged] @ matrix[judged] for kind, matrix in apart.items()}
        others = {
            kind: (whole[kind] - part) / counts[~judged].sum() + lost[kind]
            for kind, part in parts.items()
        }
        scores = _scores(others[AGAIN], others[NEW]) - costs
        best, every = scores.argmax(axis=1), np.arange(FLIPS)
        drawn = parts[AGAIN][every, best] + counts[judged].sum() * lost[AGAIN][best]
        gains += np.where(scores[every, best] > 1e-9, drawn, 0.0)
    return float(np.quantile(gains / len(queries), 0.975))


def sizes(total: int, spent: float, left: float) -> list[int]:
    """Sizes for the learning curve, as far as there is time, and queries left for judging."""
    chosen = []
    for size in COUNTS:
        left -= 1.5 * spent * size / total
        if size <= (1 - OTHERS) * total and left > 0:
            chosen.append(size)
    return chosen


class _Teacher:
    """A learner whose trials are stored."""

    def __init__(self, learner: Learner, work: Work, log: Log) -> None:
        self.learner, self.work, self.log = learner, work, log
        self.bench, self.prior = learner.bench, learner.prior

    def ways(self, *, few: bool) -> list[Way]:
        smooth, tuning = self.learner.neighbours is not None, self.learner.tuning
        return ways_of(self.prior, "few" if few else "all", smooth=smooth, tuning=tuning)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """The JSON result of a stage."""
        return self.work.stage(f"taught-{name}", make)

    def tried(
        self,
        name: str,
        ways: Sequence[Way],
        values: Values,
        folds: Numbers,
        part: Numbers,
        seconds: float,
    ) -> Tried:
        """Gains of some ways over the first, each fold by the way that is best for the others."""
        costs, queries = _costs(ways), [self.bench.queries[at] for at in part]
        after = cross_fitted(values, folds, costs)
        again, new = (
            difference(queries, after[kind] - of[0], seed=self.learner.seed)
            for kind, of in values.items()
        )
        way = ways[best_way(values, folds >= 0, costs)]
        matrix = np.eye(self.bench.vectors.shape[1], dtype=np.float32)
        learned, took = self.learner.learned(part, set(), matrix), []
        for ranker in (self.prior, way.ranker):
            self.bench.best_rows(0, ranker, learned)
            began = time.monotonic()
            for number in range(PROBED):
                self.bench.best_rows(number, ranker, learned)
            took.append((time.monotonic() - began) / PROBED)
        more = max(0.0, 1000 * (took[1] - took[0]))
        return Tried(name, way.ranker.summary, again, new, round(seconds, 1), round(more, 2))

    def cost(self) -> float:
        """Estimated seconds to measure all ways on all queries."""
        rankers = [way.ranker for way in self.ways(few=False)]
        few = [r for r in rankers if r.map_share == self.prior.map_share and not r.taught]
        began, probed = time.monotonic(), np.arange(len(self.bench.queries))[:PROBED]
        learned = Learned(self.bench.learned.matrix, self.learner.neighbours)
        self.bench.values(few, probed, learned)
        parts = len(rankers) / len(few) * len(self.bench.queries) / len(probed)
        return 2 * parts * (time.monotonic() - began)  # two kinds of folds

    def learned(
        self, teaching: Numbers, way: Way, name: str, absent: Set[int] = frozenset()
    ) -> Learned:
        """The lesson of some queries; the map is stored."""
        fit = partial(self.learner.fit, teaching, absent)
        matrix = self.work.vectors(f"taught-{name}", fit) if way.maps else None
        return self.learner.learned(teaching, absent, matrix)

    def values(
        self, numbers: Numbers, folds: Mapping[str, Numbers], ways: Sequence[Way], name: str = ""
    ) -> Values:
        """Values of some queries by all ways, each fold by ways learned from the others."""
        scores = {kind: np.empty((len(ways), len(numbers))) for kind in folds}
        for kind, of in folds.items():
            for fold in range(of.max() + 1):
                judged, teaching = numbers[of == fold], numbers[of != fold]
                absent = self.learner.documents_of(judged) if kind == NEW else set[int]()
                stage = f"{name}{kind}-{fold}"
                if not name:
                    label = "asked again" if kind == AGAIN else "new documents"
                    self.log(f"learning from queries, {label}, fold {fold + 1} of {of.max() + 1}")
                make = partial(self._fold, judged, teaching, absent, ways, stage)
                scores[kind][:, of == fold] = self.kept(stage, make)
        return scores

    def _fold(
        self, judged: Numbers, teaching: Numbers, absent: Set[int], ways: Sequence[Way], name: str
    ) -> list[list[float]]:
        ndcg = np.empty((len(ways), len(judged)))
        for maps in (False, True):
            ids = [number for number, way in enumerate(ways) if way.maps == maps]
            learned = self.learned(teaching, ways[ids[0]], name, absent)
            ndcg[ids] = self.bench.values([ways[number].ranker for number in ids], judged, learned)
        values: list[list[float]] = ndcg.tolist()
        return values

    def gain_of(self, size: int, ways: Sequence[Way]) -> dict[str, float]:
        """The gain on the others when learning from so many queries, kept or not."""
        self.log(f"learning from {size} of the queries")
        seed = self.learner.seed
        order = np.random.default_rng(seed).permutation(len(self.bench.queries))
        some, others = np.sort(order[:size]), np.sort(order[size:])
        folds = {kind: folds_of(self.bench, some, kind, FEW_FOLDS, seed) for kind in (AGAIN, NEW)}
        values = self.values(some, folds, ways, f"{size}-")
        way = ways[best_way(values, np.full(size, True))]
        learned = self.learned(some, way, f"{size}-all")
        (after,) = self.bench.values([way.ranker], others, learned)
        (before,) = self.bench.values([self.prior], others)
        queries = [self.bench.queries[number] for number in others]
        return asdict(difference(queries, after - before, seed=seed))


def _reason(way: Way, prior: Ranker, again: Difference, new: Difference) -> str:
    if way.ranker == prior and not way.encoder:
        return "nothing that the queries taught is better than the default search"
    by = "an encoder that queries taught, " if way.encoder else ""
    reason = (
        f"{by}{way.ranker.summary} changes nDCG@10 by {again} where documents are asked for again "
        f"and by {new} on new documents, compared with the default search"
    )
    if not is_sure(again):
        reason += "; the first may be nothing"
    elif new.high < 0:
        reason += "; it forgets how to find what nobody has asked for yet"
    return reason
