"""The linear classifier on fixed features, and how its L2 weight is chosen.

Logistic regression at its optimum, many subsets and weights at once: Nesterov steps of the
Hessian's upper bound (Böhning and Lindsay, 1988; restarts by O'Donoghue and Candès, 2015).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]
Advance = Callable[[int], None]

BLOCK = 3_000_000  # scores in memory at once: rows times fits times classes

ROUNDS = 500
TOLERANCE = 1e-6
"""A fit is done when the bound's estimate of its distance from the optimum is below this."""

GRID = (1e-4, 1e-3, 1e-2, 1e-1)
INNER = 5
OUTER = 10


class Logistic:
    """Fits on subsets of one feature matrix.

    Features are centered, and scaled by one number so that their mean variance is 1: an L2 weight
    then means the same for vectors of any length.
    """

    def __init__(
        self, features: NDArray[np.floating], labels: NDArray[np.int64], classes: int
    ) -> None:
        x = np.asarray(features, dtype=np.float64)
        self.mean = x.mean(axis=0)
        x = x - self.mean
        self.scale = float(np.sqrt((x**2).mean())) or 1.0
        x /= self.scale
        values, self.axes = np.linalg.eigh(x.T @ x / len(x))
        self.curvature = np.append(np.maximum(values, 0.0), 1.0)
        self.rows = with_ones(x @ self.axes)
        # Two classes need one column.
        self.columns = 1 if classes == 2 else classes
        shown = labels[:, None] if self.columns == 1 else labels[:, None] == np.arange(classes)
        self.target: Matrix = shown.astype(np.float32)

    def fit(self, subsets: Sequence[Rows], penalties: Sequence[float]) -> Matrix:
        """Minimize mean cross-entropy + penalty / 2 * ||weights||^2, the bias free of penalty."""
        size = max(1, BLOCK // (len(self.rows) * self.columns))
        parts = [slice(i, i + size) for i in range(0, len(subsets), size)]
        return np.concatenate([self._fit(subsets[p], np.asarray(penalties[p])) for p in parts])

    def predict(self, weights: Matrix, features: NDArray[np.floating]) -> NDArray[np.int64]:
        """(n,) classes of any (n, d) features under one fit's weights (d + 1, c)."""
        x = (np.asarray(features, dtype=np.float64) - self.mean) / self.scale
        return _decide(with_ones(x @ self.axes) @ weights)

    def predict_rows(self, weights: Matrix, rows: Rows) -> NDArray[np.int64]:
        """(m,) classes of rows (m,) of the feature matrix under one fit's weights."""
        return _decide(self.rows[rows] @ weights)

    def _fit(self, subsets: Sequence[Rows], penalties: NDArray[np.float64]) -> Matrix:
        n, width = self.rows.shape
        share = np.zeros((n, len(subsets)), dtype=np.float32)
        for i, subset in enumerate(subsets):
            share[subset, i] = 1 / len(subset)
        ridge = np.tile(penalties[:, None], width)
        ridge[:, -1] = 0  # the bias
        bound = (0.25 if self.columns == 1 else 0.5) * n * share.max(axis=0)[:, None]
        pace = (1 / (bound * self.curvature + ridge + 1e-12)).astype(np.float32)[:, :, None]
        l2 = ridge.astype(np.float32)[:, :, None]
        result = np.zeros((len(subsets), width, self.columns), dtype=np.float32)
        active = np.arange(len(subsets))
        here = ahead = result.copy()
        momentum = np.ones(len(subsets))
        for _ in range(ROUNDS):
            gradient = self._gradient(ahead, share[:, active]) + l2[active] * ahead
            step = pace[active] * gradient
            new = ahead - step
            left = np.einsum("fdc,fdc->f", step, gradient)
            moved = new - here
            uphill = np.einsum("fdc,fdc->f", gradient, moved) > 0
            following = np.where(uphill, 1.0, (1 + np.sqrt(1 + 4 * momentum**2)) / 2)
            push = np.where(uphill, 0.0, (momentum - 1) / following).astype(np.float32)
            ahead, here, momentum = new + push[:, None, None] * moved, new, following
            done = left < TOLERANCE
            if done.any():
                result[active[done]] = here[done]
                stay = ~done
                active, here, ahead = active[stay], here[stay], ahead[stay]
                momentum = momentum[stay]
                if not len(active):
                    return result
        result[active] = here
        return result

    def _gradient(self, weights: Matrix, share: Matrix) -> Matrix:
        fits, width, columns = weights.shape
        scores = self.rows @ weights.transpose(1, 0, 2).reshape(width, -1)
        scores = scores.reshape(len(self.rows), fits, columns)
        if columns == 1:
            np.clip(scores, -60, 60, out=scores)
            scores = 1 / (1 + np.exp(-scores))
        else:
            scores -= scores.max(axis=2, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=2, keepdims=True)
        scores -= self.target[:, None, :]
        scores *= share[:, :, None]
        gradient: Matrix = self.rows.T @ scores.reshape(len(self.rows), -1)
        return gradient.reshape(width, fits, columns).transpose(1, 0, 2)


def with_ones(x: NDArray[np.floating]) -> Matrix:
    """(n, d + 1) float32: features (n, d) and a column of ones."""
    return np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(np.float32)


def _decide(scores: Matrix) -> NDArray[np.int64]:
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0).astype(np.int64)
    classes: NDArray[np.int64] = np.argmax(scores, axis=1)
    return classes


def stratified_folds(labels: NDArray[np.int64], k: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Split into k folds with equal shares of each class, shuffled.

    The assignment is that of scikit-learn's ``StratifiedKFold(k, shuffle=True,
    random_state=seed)``, drawn by a generator of our own: the caller's random state is not touched.
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    # Classes are numbered by their first appearance.
    code = np.argsort(np.argsort(first))[inverse]
    ordered = np.sort(code)
    counts = np.stack([np.bincount(ordered[i::k], minlength=len(first)) for i in range(k)])
    random = np.random.RandomState(seed)
    fold = np.empty(len(labels), dtype=np.int64)
    for c in range(len(first)):
        members = np.repeat(np.arange(k), counts[:, c])
        random.shuffle(members)
        fold[code == c] = members
    return [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(k)]


@dataclass(frozen=True, slots=True, eq=False)
class ClassifierProblem:
    """Features (n, d) and classes; training rows come first, then dev and test rows if any."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    train: int  # number of training rows; all if folds are tested
    dev: int  # number of dev rows; 0 if folds choose
    classes: int

    @property
    def test(self) -> Rows:
        """Rows of the test set; empty if folds are tested."""
        return np.arange(self.train + self.dev, len(self.labels))

    @property
    def fits(self) -> int:
        """Number of fits in :func:`classify`, for progress."""
        if self.dev:
            return len(GRID)
        folds = OUTER * len(GRID)
        return folds if len(self.test) else folds * INNER + OUTER


@dataclass(frozen=True, slots=True, eq=False)
class ClassifierOutcome:
    """Predictions of a classifier."""

    dev: float  # the accuracy by which L2 weights were chosen
    parts: tuple[Rows, ...]  # rows tested together: the folds, or the test set
    guesses: NDArray[np.int64]  # (n,) predicted classes; -1 for rows that were not tested


def classify(problem: ClassifierProblem, seed: int, advance: Advance) -> ClassifierOutcome:
    """Choose an L2 weight, fit and predict; the seed draws the folds."""
    n, labels = problem.train, problem.labels
    model = Logistic(problem.features[:n], labels[:n], problem.classes)
    if problem.dev:
        weights = model.fit([np.arange(n)] * len(GRID), GRID)
        choose = np.arange(n, n + problem.dev)
        guesses = [model.predict(w, problem.features[choose]) for w in weights]
        scores = [float((guess == labels[choose]).mean()) for guess in guesses]
        advance(len(GRID))
        return _tested(problem, max(scores), model, weights[int(np.argmax(scores))])
    if len(problem.test):
        folds = stratified_folds(labels[:n], OUTER, seed)
        penalty, score = _choose(model, labels, folds, advance)
        (weights,) = model.fit([np.arange(n)], [penalty])
        return _tested(problem, score, model, weights)
    outer = stratified_folds(labels, OUTER, seed)
    chosen = []
    for rows, _ in outer:
        inner = [(rows[a], rows[b]) for a, b in stratified_folds(labels[rows], INNER, seed)]
        chosen.append(_choose(model, labels, inner, advance))
    weights = model.fit([rows for rows, _ in outer], [penalty for penalty, _ in chosen])
    predicted = np.full(len(labels), -1)
    for (_, test), w in zip(outer, weights, strict=True):
        predicted[test] = model.predict_rows(w, test)
    advance(len(outer))
    dev = float(np.mean([score for _, score in chosen]))
    return ClassifierOutcome(dev, tuple(test for _, test in outer), predicted)


def _choose(
    model: Logistic, labels: NDArray[np.int64], folds: Sequence[tuple[Rows, Rows]], advance: Advance
) -> tuple[float, float]:
    """The best L2 weight over some folds, and its mean accuracy."""
    subsets = [train for train, _ in folds for _ in GRID]
    weights = iter(model.fit(subsets, GRID * len(folds)))
    scores = [
        [(model.predict_rows(next(weights), test) == labels[test]).mean() for _ in GRID]
        for _, test in folds
    ]
    means = np.mean(scores, axis=0)
    advance(len(subsets))
    return GRID[int(means.argmax())], float(means.max())


def _tested(
    problem: ClassifierProblem, dev: float, model: Logistic, weights: Matrix
) -> ClassifierOutcome:
    guesses = np.full(len(problem.labels), -1)
    guesses[problem.test] = model.predict(weights, problem.features[problem.test])
    return ClassifierOutcome(dev, (problem.test,), guesses)
