"""Learning from user queries: what is learned from them is saved if cross-validation proves a gain.

Strategies rank, the default search first. Each query is ranked by what was learned from the queries
of other folds, in folds of two kinds: of random queries, as if users asked about the same
documents again, and of whole documents, as if they were new. Each fold of documents is scored by
the strategy that is best on the other folds. What is learned is kept if the mean gain over the
default search is proven, which is if its 99 % interval over documents lies above zero, if new
documents are not proven to lose, and if on all queries a strategy gains without a lower mean on new
documents. All queries then train the best of these.

The best strategy of many looks better than it is, also to other folds, so that a 95 % interval
would be too narrow: of choices among strategies that help nobody it keeps 9 %, that of 99 % keeps
4 % (research/adaptation.md).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from contrasent.adapt.bench import Bench, Difference, Floats, Values, difference
from contrasent.adapt.learner import Learner, Strategy, candidate_strategies
from contrasent.progress import task
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.types import Mask, Numbers

AGAIN, NEW = "again", "new"  # kinds of folds: of queries, and of whole documents
NEW_COUNTS = 0.5  # weight of a gain on new documents when choosing, relative to the other
FOLDS, FEW_FOLDS = 5, 3
LEVEL = 0.99  # of the intervals that decide
PROBED, FOLDS_SHARE = 8, 0.5  # queries that are timed; share of the time left that folds may take


@dataclass(frozen=True, slots=True, eq=False)
class LearningResult:
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
            others = "no strategy gained without a lower mean on documents without training queries"
            if self.new.high < 0:
                others = "documents without training queries got worse"
            return f"Not saved: {others} ({self.new})."
        gain = f"Your queries gave no reliable improvement ({self.again})."
        return f"{gain} The search stays as it was."


def learn_from_queries(
    bench: Bench,
    default: Ranker,
    *,
    seed: int,
    until: Callable[[], float],
    start: Ranker | None = None,
) -> LearningResult:
    """Learn from the queries of a bench, and compare with the default search.

    ``start`` is a strategy that needs no queries, with what it learned in the bench, and from which
    the queries train on; ``until`` gives the seconds that are left.
    """
    learner = Learner(bench, start or default, seed)
    smooth = learner.neighbors is not None
    strategies = candidate_strategies(default, learner.prior, few=False, smooth=smooth)
    few = _seconds(learner, strategies) > FOLDS_SHARE * until()
    if few:
        strategies = candidate_strategies(default, learner.prior, few=True, smooth=smooth)
    everything, count = np.arange(len(bench.queries)), FEW_FOLDS if few else FOLDS
    folds = {kind: folds_of(bench, everything, kind, count, seed) for kind in (AGAIN, NEW)}
    values = _cross_validated(learner, strategies, folds)

    # The gain of held-out queries, each fold by the strategy that is best on the others.
    before, after = values[AGAIN][0], cross_fitted(values, folds[NEW])
    again, new = (
        difference(bench.queries, after[kind] - before, seed=seed, level=LEVEL)
        for kind in (AGAIN, NEW)
    )

    # The strategy that is best on all queries, and is kept if that gain is proven.
    strategy = strategies[best_strategy(values, everything >= 0)]
    improved = strategy != strategies[0] and again.low > 0 and new.high >= 0
    kept, learned = strategies[0], bench.learned
    if improved:
        kept, learned = strategy, learner.learned(everything, set(), maps=strategy.maps)
    return LearningResult(
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


def _seconds(learner: Learner, strategies: Sequence[Strategy]) -> float:
    """Estimated seconds to measure strategies on all queries, in folds of both kinds."""
    bench, prior = learner.bench, learner.prior
    rankers = [strategy.ranker for strategy in strategies]
    few = [r for r in rankers if r.map_share == prior.map_share and not r.known]
    began, probed = time.monotonic(), np.arange(len(bench.queries))[:PROBED]
    bench.values(few, probed, Learned(bench.learned.matrix, learner.neighbors))
    parts = len(rankers) / len(few) * len(bench.queries) / len(probed)
    return 2 * parts * (time.monotonic() - began)


def _cross_validated(
    learner: Learner, strategies: Sequence[Strategy], folds: Mapping[str, Numbers]
) -> Values:
    """(strategies, q) by kind, each fold by what was learned from the queries of the others."""
    scores = {kind: np.empty((len(strategies), len(of))) for kind, of in folds.items()}
    total = sum(int(of.max()) + 1 for of in folds.values())
    with task("Cross-validating", total, "folds") as advance:
        for kind, of in folds.items():
            for fold in range(of.max() + 1):
                tested, training = np.flatnonzero(of == fold), np.flatnonzero(of != fold)
                # Tested documents are new: they were neither answers nor negatives in training.
                absent = learner.documents_of(tested) if kind == NEW else set[int]()
                for maps in (False, True):
                    ids = [at for at, one in enumerate(strategies) if one.maps == maps]
                    learned = learner.learned(training, absent, maps=maps)
                    rankers = [strategies[at].ranker for at in ids]
                    values = learner.bench.values(rankers, tested, learned)
                    scores[kind][np.ix_(np.array(ids, dtype=int), tested)] = values
                advance()
    return scores
