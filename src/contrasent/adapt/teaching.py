"""Learning from user queries: what is learned from them is saved if cross-validation proves a gain.

Strategies rank, the default search first. Each query is ranked by what the queries of other folds
taught, in folds of two kinds: of random queries, as if users asked about the same
documents again, and of whole documents, as if they were new. Each fold of documents is scored by
the strategy that is best on the other folds. What is learned is kept if the mean gain over the
default search is proven, which is if its 99 % interval over documents lies above zero, and if new
documents are not proven to lose. All queries then train the strategy that is best on all of them.

The best strategy of many looks better than it is, also to other folds, so that a 95 % interval
would be too narrow: of choices among strategies that help nobody it keeps 9 %, that of 99 % keeps
4 % (``python -m benchmarks.teaching --false``, research/adaptation.md).
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from contrasent.adapt.bench import Bench, Difference, Floats, Values, difference
from contrasent.adapt.learner import (
    AGAIN,
    NEW,
    NEW_COUNTS,
    TUNING,
    Learner,
    Strategy,
    Tuning,
    candidate_strategies,
)
from contrasent.adapt.work import Work
from contrasent.progress import task
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.types import Mask, Numbers

FOLDS, FEW_FOLDS = 5, 3
LEVEL = 0.99  # of the intervals that decide
PROBED, FOLDS_SHARE = 8, 0.5  # queries that are timed; share of the time left that folds may take


@dataclass(frozen=True, slots=True, eq=False)
class TeachingResult:
    """Everything learned from queries, and its effect on queries that took no part in learning."""

    ranker: Ranker  # the default if nothing is improved
    learned: Learned
    improved: bool
    again: Difference  # on documents that other queries are about
    new: Difference  # on documents that no training query is about
    before: float  # mean nDCG@10 by the default search
    after: float  # by the chosen strategies, on documents that other queries are about
    best: Ranker  # the best strategy on all queries, kept or not
    values_before: Floats  # (q,) nDCG@10
    values_after: Floats

    @property
    def reason(self) -> str:
        """The verdict, and the figures that it rests on."""
        if self.improved:
            others = f"no measurable change ({self.new})"
            if self.new.low > 0:
                others = f"{self.before:.3f} to {self.before + self.new.value:.3f} ({self.new})"
            return (
                f"Improved and saved. Documents with training queries: nDCG@10 {self.before:.3f} "
                f"to {self.after:.3f} ({self.again}). Others: {others}."
            )
        if self.again.low > 0:
            return f"Not saved: documents without training queries got worse ({self.new})."
        gain = f"Your queries gave no reliable improvement ({self.again})."
        return f"{gain} The search stays as it was."


def learn_from_queries(
    bench: Bench,
    default: Ranker,
    *,
    seed: int,
    work: Work,
    until: Callable[[], float],
    start: Ranker | None = None,
    tuning: Tuning = TUNING,
) -> TeachingResult:
    """Learn from the queries of a bench, and compare with the default search.

    ``start`` is a strategy that needs no queries, with what it learned in the bench, and from which
    the queries train on; ``until`` gives the seconds that are left.
    """
    teacher = _Teacher(Learner(bench, start or default, seed, tuning), default, work)
    few = teacher.kept("few", lambda: teacher.cost() > FOLDS_SHARE * until())
    strategies, everything = teacher.strategies(few=few), np.arange(len(bench.queries))
    count = FEW_FOLDS if few else FOLDS
    folds = {kind: folds_of(bench, everything, kind, count, seed) for kind in (AGAIN, NEW)}
    values = teacher.values(folds, strategies)

    # The gain of held-out queries, each fold by the strategy that is best on the others.
    before, after = values[AGAIN][0], cross_fitted(values, folds[NEW])
    again, new = (
        difference(bench.queries, after[kind] - before, seed=seed, level=LEVEL)
        for kind in (AGAIN, NEW)
    )

    # The strategy that is best on all queries, and is kept if that gain is proven.
    strategy = strategies[best_strategy(values, everything >= 0)]
    improved = strategy != strategies[0] and again.low > 0 and new.high >= 0
    learned = teacher.learned(everything, strategy, "all") if improved else bench.learned
    kept = strategy if improved else strategies[0]
    return TeachingResult(
        kept.ranker,
        kept.needs(learned),
        improved,
        again,
        new,
        float(before.mean()),
        float(after[AGAIN].mean()),
        strategy.ranker,
        before,
        after[AGAIN],
    )


def folds_of(bench: Bench, numbers: Numbers, kind: str, count: int, seed: int) -> Numbers:
    """The fold of each query; in folds of documents, queries with one main answer share it."""
    of = np.arange(len(numbers))
    if kind == NEW:
        of = np.unique([bench.queries[at].document for at in numbers], return_inverse=True)[1]
    folds: Numbers = np.random.default_rng(seed).permutation(np.arange(of.max() + 1) % count)[of]
    return folds


def best_strategy(values: Values, among: Mask) -> int:
    """The strategy that gains most over the first on some queries and loses on no new documents."""
    again, new = (
        (values[kind][:, among] - values[kind][0, among]).mean(axis=1) for kind in (AGAIN, NEW)
    )
    scores = np.where(new >= -1e-9, again + NEW_COUNTS * new, -np.inf)
    best = int(scores.argmax())
    return best if scores[best] > 1e-9 else 0


def cross_fitted(values: Values, folds: Numbers) -> Values:
    """(q,) by kind: each fold of documents scored by the strategy that is best on the others."""
    scores = {kind: np.empty(by_strategy.shape[1]) for kind, by_strategy in values.items()}
    for fold in range(folds.max() + 1):
        tested = folds == fold
        strategy = best_strategy(values, ~tested)
        for kind, by_strategy in values.items():
            scores[kind][tested] = by_strategy[strategy, tested]
    return scores


class _Teacher:
    """A learner whose trials are stored."""

    def __init__(self, learner: Learner, default: Ranker, work: Work) -> None:
        self.learner, self.default, self.work = learner, default, work
        self.bench = learner.bench

    def strategies(self, *, few: bool) -> list[Strategy]:
        """The default search, vectors alone, and all else."""
        smooth, tuning = self.learner.neighbors is not None, self.learner.tuning
        own = candidate_strategies(
            self.learner.prior, "few" if few else "all", smooth=smooth, tuning=tuning
        )
        plain = [Strategy(ranker, False) for ranker in (self.default, self.default.without_words)]
        return list(dict.fromkeys([*plain, *own]))

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """The JSON result of a stage."""
        return self.work.stage(f"taught-{name}", make)

    def cost(self) -> float:
        """Estimated seconds to measure all strategies on all queries."""
        rankers, prior = (
            [strategy.ranker for strategy in self.strategies(few=False)],
            self.learner.prior,
        )
        few = [r for r in rankers if r.map_share == prior.map_share and not r.known]
        began, probed = time.monotonic(), np.arange(len(self.bench.queries))[:PROBED]
        learned = Learned(self.bench.learned.matrix, self.learner.neighbors)
        self.bench.values(few, probed, learned)
        parts = len(rankers) / len(few) * len(self.bench.queries) / len(probed)
        return 2 * parts * (time.monotonic() - began)  # two kinds of folds

    def learned(
        self, teaching: Numbers, strategy: Strategy, name: str, absent: Set[int] = frozenset()
    ) -> Learned:
        """The result of some queries; the map is stored."""
        fit = partial(self.learner.fit, teaching, absent)
        matrix = self.work.vectors(f"taught-{name}", fit) if strategy.maps else None
        return self.learner.learned(teaching, absent, matrix)

    def values(self, folds: Mapping[str, Numbers], strategies: Sequence[Strategy]) -> Values:
        """(strategies, q) by kind, each fold by strategies learned from the others."""
        scores = {kind: np.empty((len(strategies), len(of))) for kind, of in folds.items()}
        total = sum(int(of.max()) + 1 for of in folds.values())
        with task("Cross-validating", total, "folds") as advance:
            for kind, of in folds.items():
                for fold in range(of.max() + 1):
                    tested, teaching = np.flatnonzero(of == fold), np.flatnonzero(of != fold)
                    absent = self.learner.documents_of(tested) if kind == NEW else set[int]()
                    stage = f"{kind}-{fold}"
                    make = partial(self._fold, tested, teaching, absent, strategies, stage)
                    scores[kind][:, tested] = self.kept(stage, make)
                    advance()
        return scores

    def _fold(
        self,
        tested: Numbers,
        teaching: Numbers,
        absent: Set[int],
        strategies: Sequence[Strategy],
        name: str,
    ) -> list[list[float]]:
        ndcg = np.empty((len(strategies), len(tested)))
        for maps in (False, True):
            ids = [number for number, strategy in enumerate(strategies) if strategy.maps == maps]
            learned = self.learned(teaching, strategies[ids[0]], name, absent)
            ndcg[ids] = self.bench.values(
                [strategies[number].ranker for number in ids], tested, learned
            )
        values: list[list[float]] = ndcg.tolist()
        return values
