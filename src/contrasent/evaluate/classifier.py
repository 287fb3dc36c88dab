"""Linear classifiers on fixed features, and how their L2 weight is chosen.

:class:`Optimum` is logistic regression. :class:`SentEval` is what published scores used (Conneau
and Kiela, 2018): a linear layer trained by Adam, which a counter that is never reset stops early.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.types import Vectors

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]
Floats = NDArray[np.float64]
Advance = Callable[[int], None]

BLOCK = 3_000_000  # scores in memory at once: rows times fits times classes

ROUNDS = 500
TOLERANCE = 1e-6
"""A fit is done when the bound's estimate of its distance from the optimum is below this."""

TOGETHER = 10  # splits fitted in one call


class Logistic:
    """Logistic regressions on subsets of one feature matrix, at their optimum, many at once.

    Nesterov steps of the Hessian's upper bound (Böhning and Lindsay, 1988; restarts by O'Donoghue
    and Candès, 2015). Features are centered, and scaled by one number so that their mean variance
    is 1: an L2 weight then means the same for vectors of any length.
    """

    def __init__(self, features: NDArray[np.floating], labels: Rows, classes: int) -> None:
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

    def transformed(self, features: NDArray[np.floating]) -> Matrix:
        """(n, d + 1): any features (n, d) as :meth:`predict` takes them."""
        x = (np.asarray(features, dtype=np.float64) - self.mean) / self.scale
        return with_ones(x @ self.axes)

    def predict(self, weights: Matrix, transformed: Matrix) -> Rows:
        """(n,) classes of transformed features under one fit's weights (d + 1, c)."""
        scores = transformed @ weights
        if self.columns == 1:
            return (scores[:, 0] > 0).astype(np.int64)
        classes: Rows = scores.argmax(axis=1)
        return classes

    def _fit(self, subsets: Sequence[Rows], penalties: Floats) -> Matrix:
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


def sorted_pairs(first: Sequence[str], second: Sequence[str], last: NDArray[Any]) -> Rows:
    """(n,) pairs by their lengths and a number, as SentEval sorts them: batches depend on it."""
    pairs = zip(first, second, last.tolist(), strict=True)
    keys = [(len(a.split()), len(b.split()), number) for a, b, number in pairs]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def pair_features(u: Vectors, v: Vectors) -> Vectors:
    """(n, 2 d): |u - v| and u * v."""
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def linear_start(inputs: int, outputs: int, seed: int) -> Matrix:
    """(inputs + 1, outputs): ``torch.nn.Linear``'s first weights after ``torch.manual_seed``.

    PyTorch's generator is the Mersenne twister with the classic seeding, of which each uniform
    float32 takes the low 24 bits; weight and bias are uniform within 1/sqrt(inputs).
    """
    twister = np.random.RandomState(seed)
    raw = np.frombuffer(twister.bytes(4 * outputs * (inputs + 1)), dtype="<u4")
    uniform = (raw & np.uint32((1 << 24) - 1)).astype(np.float32) * np.float32(2.0**-24)
    bound = np.float32(1 / np.sqrt(inputs))
    drawn = uniform * (bound + bound) - bound
    weight = drawn[: outputs * inputs].reshape(outputs, inputs).T
    return np.concatenate([weight, drawn[None, outputs * inputs :]]).astype(np.float32)


def stratified_folds(labels: Rows, k: int, seed: int) -> list[tuple[Rows, Rows]]:
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
    labels: Rows
    train: int  # number of training rows; all if folds are tested
    dev: int  # number of dev rows; 0 if folds choose
    classes: int

    @property
    def test(self) -> Rows:
        """Rows of the test set; empty if folds are tested."""
        return np.arange(self.train + self.dev, len(self.labels))


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows to learn from, once for each L2 weight, and rows to check each fit on, if any."""

    train: Rows
    check: Rows | None
    penalties: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The fits of a split."""

    accuracy: Floats  # (r,) on the rows of the check; empty without them
    weights: Sequence[Matrix]  # of each L2 weight


class Optimum:
    """Logistic regression."""

    grid = (1e-4, 1e-3, 1e-2, 1e-1)
    outer = 10  # folds that are tested, or that choose for a test set
    inner = 5  # folds of the rest of each tested fold, which choose for it
    fold_seed: int | None = None  # of nested folds; None is the seed of the run

    def __init__(self, problem: ClassifierProblem) -> None:
        n = problem.train
        self.labels = problem.labels
        self.model = Logistic(problem.features[:n], problem.labels[:n], problem.classes)
        self.features = self.model.transformed(problem.features)

    def fit(self, splits: Sequence[Split]) -> list[Fitted]:
        """Fit all splits side by side."""
        each = [(split.train, penalty) for split in splits for penalty in split.penalties]
        weights = iter(self.model.fit(*zip(*each, strict=True)))
        fitted = []
        for split in splits:
            own = [next(weights) for _ in split.penalties]
            accuracy = []
            if split.check is not None:
                wanted = self.labels[split.check]
                accuracy = [(self.predict(w, split.check) == wanted).mean() for w in own]
            fitted.append(Fitted(np.array(accuracy), own))
        return fitted

    def predict(self, weights: Matrix, rows: Rows) -> Rows:
        """Classes of rows of the problem."""
        return self.model.predict(weights, self.features[rows])

    def best(self, accuracy: Floats) -> int:
        """The first best."""
        return int(accuracy.argmax())


def train_early_stopped(
    start: Matrix,
    rows: Rows,
    gradient: Callable[[Rows, Matrix], Matrix],
    score: Callable[[Matrix], Floats],
    random: np.random.RandomState,
    *,
    epochs: int,  # between two checks
    longest: int,  # epochs after which no check begins
    tenacity: int,  # checks without a new best that are tolerated; one more stops a fit
    rate: float = 1e-3,
    batch_size: int = 64,
    advance: Advance = lambda epochs: None,
) -> tuple[Floats, Matrix]:
    """SentEval's training by Adam: the best scores (r,) of r fits, and their weights (..., r)."""
    weights, best_weights = start, start.copy()
    mean, square = np.zeros_like(start), np.zeros_like(start)
    best = np.full(start.shape[-1], -1.0)
    misses = np.zeros(start.shape[-1], dtype=np.int64)
    going = np.ones(start.shape[-1], dtype=bool)
    step = epoch = 0
    while going.any() and epoch <= longest:
        for _ in range(epochs):
            order = rows[random.permutation(len(rows))]
            for left in range(0, len(order), batch_size):
                step += 1
                slope = gradient(order[left : left + batch_size], weights)
                mean = np.float32(0.9) * mean + np.float32(0.1) * slope
                square = np.float32(0.999) * square + np.float32(0.001) * slope**2
                pace = np.float32(rate / (1 - 0.9**step))
                scale = np.float32(np.sqrt(1 - 0.999**step))
                move = pace * mean / (np.sqrt(square) / scale + np.float32(1e-8))
                weights = (weights - move).astype(np.float32, copy=False)
            advance(1)
        epoch += epochs
        scores = score(weights)
        better = going & (scores > best)
        best[better] = scores[better]
        best_weights[..., better] = weights[..., better]
        worse = going & ~better
        going &= ~(worse & (misses >= tenacity))
        misses[worse] += 1
    return best, best_weights


class SentEval:
    """SentEval's own classifier; the seed draws first weights and batches."""

    grid = (1e-5, 1e-4, 1e-3, 1e-2)
    outer = inner = 10
    fold_seed = 1111
    training: Mapping[str, Any] = {"epochs": 4, "longest": 200, "tenacity": 5}

    def __init__(self, problem: ClassifierProblem, seed: int) -> None:
        self.x, self.labels, self.seed = with_ones(problem.features), problem.labels, seed
        self.start = linear_start(self.x.shape[1] - 1, problem.classes, seed)
        self.shown = (self.labels[:, None] == np.arange(problem.classes)).astype(np.float32)

    def fit(self, splits: Sequence[Split]) -> list[Fitted]:
        """Train the fits of each split side by side: they see the same batches."""
        return [self._fit(split) for split in splits]

    def _fit(self, split: Split) -> Fitted:
        random = np.random.RandomState(self.seed)
        if split.check is None:  # 5 % of the rows
            order = random.permutation(len(split.train))
            cut = int(0.05 * len(order))
            rows, check = split.train[order[cut:]], split.train[order[:cut]]
        else:
            rows, check = split.train, split.check
        penalties = np.array(split.penalties, dtype=np.float32)

        def scores(rows: Rows, weights: Matrix) -> Matrix:
            flat: Matrix = self.x[rows] @ weights.reshape(len(weights), -1)
            return flat.reshape(len(rows), *weights.shape[1:])

        def gradient(rows: Rows, weights: Matrix) -> Matrix:
            """The gradient of the mean cross-entropy, and of L2 on weights and bias."""
            share = scores(rows, weights)
            share -= share.max(axis=1, keepdims=True)
            np.exp(share, out=share)
            share /= share.sum(axis=1, keepdims=True)
            share -= self.shown[rows][..., None]
            share *= np.float32(1 / len(rows))
            slope: Matrix = self.x[rows].T @ share.reshape(len(rows), -1)
            return slope.reshape(weights.shape) + penalties * weights

        def accuracy(weights: Matrix) -> Floats:
            right = scores(check, weights).argmax(axis=1) == self.labels[check][:, None]
            return np.asarray(right.mean(axis=0))

        start = np.repeat(self.start[..., None], len(penalties), axis=-1)  # (d + 1, c, r)
        best, weights = train_early_stopped(
            start, rows, gradient, accuracy, random, **self.training
        )
        return Fitted(best, list(np.moveaxis(weights, -1, 0)))

    def predict(self, weights: Matrix, rows: Rows) -> Rows:
        """Classes of rows of the problem."""
        classes: Rows = (self.x[rows] @ weights).argmax(axis=1)
        return classes

    def best(self, accuracy: Floats) -> int:
        """The first best L2 weight, by accuracies rounded to hundredths of a per cent."""
        return int(np.argmax([round(100 * float(score), 2) for score in accuracy]))


@dataclass(frozen=True, slots=True, eq=False)
class ClassifierOutcome:
    """Predictions of a classifier."""

    dev: float  # the accuracy by which L2 weights were chosen
    parts: tuple[Rows, ...]  # rows tested together: the folds, or the test set
    guesses: Rows  # (n,) predicted classes; -1 for rows that were not tested


Solver = Optimum | SentEval


def count_of_splits(problem: ClassifierProblem, solver: Solver) -> int:
    """Number of splits in :func:`classify`, for progress."""
    if problem.dev:
        return 1
    return solver.outer + (1 if len(problem.test) else solver.outer * solver.inner)


def classify(
    problem: ClassifierProblem, solver: Solver, seed: int, advance: Advance
) -> ClassifierOutcome:
    """Choose an L2 weight, fit and predict; the seed draws the folds."""
    labels = problem.labels
    learn, test = np.arange(problem.train), problem.test

    def fitted(splits: Sequence[Split]) -> list[Fitted]:
        found: list[Fitted] = []
        for first in range(0, len(splits), TOGETHER):
            found += solver.fit(splits[first : first + TOGETHER])
            advance(len(found) - first)
        return found

    def chosen(rows: Rows, folds: int, fold_seed: int) -> tuple[float, float]:
        """The best L2 weight over folds of some rows, and its mean accuracy."""
        splits = [
            Split(rows[train], rows[check], solver.grid)
            for train, check in stratified_folds(labels[rows], folds, fold_seed)
        ]
        accuracy = np.mean([one.accuracy for one in fitted(splits)], axis=0)
        best = solver.best(accuracy)
        return solver.grid[best], float(accuracy[best])

    if problem.dev:
        check = np.arange(problem.train, problem.train + problem.dev)
        (fits,) = fitted([Split(learn, check, solver.grid)])
        best = solver.best(fits.accuracy)
        parts, scores, finals = [test], [float(fits.accuracy[best])], [fits.weights[best]]
    elif len(test):
        penalty, score = chosen(learn, solver.outer, seed)
        (final,) = fitted([Split(learn, None, (penalty,))])
        parts, scores, finals = [test], [score], [final.weights[0]]
    else:
        fold_seed = seed if solver.fold_seed is None else solver.fold_seed
        folds = stratified_folds(labels, solver.outer, fold_seed)
        choices = [chosen(rows, solver.inner, fold_seed) for rows, _ in folds]
        splits = [
            Split(rows, None, (penalty,))
            for (rows, _), (penalty, _) in zip(folds, choices, strict=True)
        ]
        parts, scores = [tested for _, tested in folds], [score for _, score in choices]
        finals = [final.weights[0] for final in fitted(splits)]
    guesses = np.full(len(labels), -1)
    for tested, weights in zip(parts, finals, strict=True):
        guesses[tested] = solver.predict(weights, tested)
    return ClassifierOutcome(float(np.mean(scores)), tuple(parts), guesses)
