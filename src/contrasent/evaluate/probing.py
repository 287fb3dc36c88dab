"""Choosing and testing a linear classifier on fixed features, by three named procedures.

``fast`` solves the convex problem and chooses its L2 weight by cross-validation; ``senteval`` and
``senteval_prototype`` are SentEval's procedure with its full and its quick settings. In all of them
the folds of a task without a test set are nested: an outer fold is never seen while its L2 weight
is chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.evaluate.convex import Logistic
from contrasent.evaluate.folds import Rows, stratified_folds
from contrasent.evaluate.senteval import Fitted, Split, fit_splits, predict, with_bias
from contrasent.evaluate.senteval_state import FULL, PROTOTYPE, Procedure

Advance = Callable[[int], None]

FOLD_SEED = 1111
"""SentEval draws the folds of tasks without a test set with this seed, whatever the run's is."""

GRID = (1e-4, 1e-3, 1e-2, 1e-1)
INNER = 5
OUTER = 10


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Features and classes; what is learnt from comes first, then a dev and a test set if any.

    Attributes:
        features: (n, d).
        labels: (n,) classes from 0.
        train: how many rows are for learning; all of them where folds are tested.
        dev: how many rows follow for choosing; 0 where folds choose.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    train: int
    dev: int
    classes: int

    @property
    def learn(self) -> Rows:
        """Rows to learn from."""
        return np.arange(self.train)

    @property
    def choose(self) -> Rows:
        """Rows of the dev set."""
        return np.arange(self.train, self.train + self.dev)

    @property
    def test(self) -> Rows:
        """Rows of the test set; none where folds are tested."""
        return np.arange(self.train + self.dev, len(self.labels))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a procedure found.

    Attributes:
        dev: the accuracy by which L2 weights were chosen.
        parts: rows that were tested together: the folds, or the test set.
        guesses: (n,) predicted classes; -1 for rows that were not tested.
    """

    dev: float
    parts: tuple[Rows, ...]
    guesses: NDArray[np.int64]


class Solver(Protocol):
    """A procedure: features and a seed in, predictions out."""

    def __call__(
        self, problem: Problem, seed: int, advance: Advance, *, device: str | None = None
    ) -> Outcome:
        """Choose, fit and predict."""
        ...


def _fast(problem: Problem, seed: int, advance: Advance, *, device: str | None = None) -> Outcome:
    """Convex logistic regression, its L2 weight by cross-validation; the seed draws the folds."""
    if device is not None:
        raise OptionError("device", device, "the solver 'fast' computes with numpy alone")
    model = Logistic(
        problem.features[: problem.train], problem.labels[: problem.train], problem.classes
    )
    if problem.dev:
        weights = model.fit([problem.learn] * len(GRID), GRID)
        truth = problem.labels[problem.choose]
        scores = [
            float((model.predict(w, problem.features[problem.choose]) == truth).mean())
            for w in weights
        ]
        chosen = weights[int(np.argmax(scores))]
        advance(len(GRID))
        return _tested(problem, max(scores), model.predict(chosen, problem.features[problem.test]))
    if len(problem.test):
        folds = stratified_folds(problem.labels[: problem.train], OUTER, seed)
        penalty, score = _choose_convex(model, problem.labels, [folds], advance)[0]
        (weights,) = model.fit([problem.learn], [penalty])
        return _tested(problem, score, model.predict(weights, problem.features[problem.test]))
    outer = stratified_folds(problem.labels, OUTER, seed)
    inner = [_inside(problem.labels, train, INNER, seed) for train, _ in outer]
    chosen_ones = _choose_convex(model, problem.labels, inner, advance)
    weights = model.fit([train for train, _ in outer], [penalty for penalty, _ in chosen_ones])
    guesses = np.full(len(problem.labels), -1)
    for (_, test), w in zip(outer, weights, strict=True):
        guesses[test] = model.predict_rows(w, test)
    advance(len(outer))
    dev = float(np.mean([score for _, score in chosen_ones]))
    return Outcome(dev, tuple(test for _, test in outer), guesses)


def _published(
    problem: Problem, seed: int, advance: Advance, *, device: str | None = None
) -> Outcome:
    """SentEval's procedure with the settings of published test scores."""
    return _senteval(problem, seed, advance, FULL, device)


def _prototype(
    problem: Problem, seed: int, advance: Advance, *, device: str | None = None
) -> Outcome:
    """SentEval's procedure with the quick settings that SimCSE's code uses during training."""
    return _senteval(problem, seed, advance, PROTOTYPE, device)


SOLVERS: dict[str, Solver] = {
    "fast": _fast,
    "senteval": _published,
    "senteval_prototype": _prototype,
}


def fits(problem: Problem, solver: str) -> int:
    """How many fits (splits, for SentEval's) a solver makes on a problem, for progress.

    Args:
        problem: features and classes.
        solver: a key of ``SOLVERS``.
    """
    if solver == "fast":
        if problem.dev:
            return len(GRID)
        folds = OUTER * len(GRID)
        return folds if len(problem.test) else folds * INNER + OUTER
    k = (FULL if solver == "senteval" else PROTOTYPE).folds
    return 2 if problem.dev else k + 1 if len(problem.test) else k * k + k


def _inside(labels: NDArray[np.int64], rows: Rows, k: int, seed: int) -> list[tuple[Rows, Rows]]:
    return [(rows[a], rows[b]) for a, b in stratified_folds(labels[rows], k, seed)]


def _choose_convex(
    model: Logistic,
    labels: NDArray[np.int64],
    groups: Sequence[Sequence[tuple[Rows, Rows]]],
    advance: Advance,
) -> list[tuple[float, float]]:
    """Of each group of folds, the best L2 weight and its mean accuracy."""
    found = []
    # A few groups at a time, so that progress shows.
    for group in groups:
        subsets = [train for train, _ in group for _ in GRID]
        weights = model.fit(subsets, GRID * len(group))
        scores = np.empty((len(group), len(GRID)))
        for i, (_, held) in enumerate(group):
            for j in range(len(GRID)):
                guess = model.predict_rows(weights[i * len(GRID) + j], held)
                scores[i, j] = (guess == labels[held]).mean()
        means = scores.mean(axis=0)
        found.append((GRID[int(means.argmax())], float(means.max())))
        advance(len(subsets))
    return found


def _senteval(
    problem: Problem, seed: int, advance: Advance, procedure: Procedure, device: str | None
) -> Outcome:
    features = with_bias(problem.features)

    def run(splits: list[Split]) -> list[Fitted]:
        return fit_splits(
            features,
            problem.labels,
            splits,
            classes=problem.classes,
            procedure=procedure,
            seed=seed,
            device=device,
            advance=advance,
        )

    grid = procedure.grid
    if problem.dev:
        (found,) = run([Split(problem.learn, problem.choose, grid)])
        best, score = _best(found.accuracy)
        (final,) = run([Split(problem.learn, problem.choose, (grid[best],))])
        return _tested(problem, score, predict(features[problem.test], final.weights[0]))
    if len(problem.test):
        folds = stratified_folds(problem.labels[: problem.train], procedure.folds, seed)
        scores = np.mean([f.accuracy for f in run([Split(a, b, grid) for a, b in folds])], axis=0)
        best, score = _best(scores)
        (final,) = run([Split(problem.learn, None, (grid[best],))])
        return _tested(problem, score, predict(features[problem.test], final.weights[0]))
    k = procedure.folds
    outer = stratified_folds(problem.labels, k, FOLD_SEED)
    inner = [_inside(problem.labels, train, k, FOLD_SEED) for train, _ in outer]
    searched = run([Split(a, b, grid) for group in inner for a, b in group])
    chosen = [
        _best(np.mean([f.accuracy for f in searched[i * k : (i + 1) * k]], axis=0))
        for i in range(k)
    ]
    finals = run(
        [Split(o[0], None, (grid[best],)) for o, (best, _) in zip(outer, chosen, strict=True)]
    )
    guesses = np.full(len(problem.labels), -1)
    for (_, test), final in zip(outer, finals, strict=True):
        guesses[test] = predict(features[test], final.weights[0])
    dev = float(np.mean([score for _, score in chosen]))
    return Outcome(dev, tuple(test for _, test in outer), guesses)


def _best(scores: NDArray[np.float64]) -> tuple[int, float]:
    """The first best of accuracies that SentEval rounds to hundredths of a per cent."""
    rounded = [round(100 * float(s), 2) for s in scores]
    best = int(np.argmax(rounded))
    return best, float(scores[best])


def _tested(problem: Problem, dev: float, found: NDArray[np.int64]) -> Outcome:
    guesses = np.full(len(problem.labels), -1)
    guesses[problem.test] = found
    return Outcome(dev, (problem.test,), guesses)
