"""SentEval's own transfer classifier, many fits at a time.

SentEval (Conneau and Kiela, 2018; with its defaults, as SimCSE's Appendix E) trains a linear layer
by Adam for every fold and every L2 weight, one after the other: 1,727 fits for the seven tasks. All
begin with the same weights, and those of a split see the same batches, so they are trained side by
side here. What is computed for a fit is what SentEval computes for it: first weights, order of
batches, L2 on weight and bias, and an early stop by a counter that is never reset.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contrasent.evaluate.classifier import (
    Advance,
    ClassifierOutcome,
    ClassifierProblem,
    Matrix,
    Rows,
    stratified_folds,
    with_ones,
)

FOLD_SEED = 1111  # of the folds of a task without a test set, whatever the run's seed is
TOGETHER = 10  # splits trained side by side: their batches fit the processor's cache


@dataclass(frozen=True, slots=True)
class Procedure:
    """SentEval's settings, the defaults those of published test scores."""

    folds: int = 10
    rate: float = 1e-3
    batch_size: int = 64
    tenacity: int = 5  # checks without a new best that are tolerated; one more stops a fit
    epochs: int = 4  # between two checks
    longest: int = 200  # epochs after which no check begins
    grid: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """What fits with several L2 weights learn from, and the rows that stop them."""

    train: Rows
    check: Rows | None  # None draws 5 % of ``train``
    penalties: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The best weights of a split's fits, by their accuracy on the rows of the check."""

    accuracy: NDArray[np.float64]  # (r,)
    weights: Matrix  # (d + 1, c, r), the bias in the last row


@dataclass(slots=True, eq=False)
class _Progress:
    """How the fits of a split fare, and the order of their batches."""

    split: Split
    seed: int
    random: np.random.RandomState = field(init=False)
    train: Rows = field(init=False)
    check: Rows = field(init=False)
    best: NDArray[np.float64] = field(init=False)
    misses: Rows = field(init=False)
    going: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        split, width = self.split, len(self.split.penalties)
        self.random = np.random.RandomState(self.seed)
        if split.check is None:
            order = self.random.permutation(len(split.train))
            cut = int(0.05 * len(order))
            self.train, self.check = split.train[order[cut:]], split.train[order[:cut]]
        else:
            self.train, self.check = split.train, split.check
        self.best = np.full(width, -1.0)
        self.misses = np.zeros(width, dtype=np.int64)
        self.going = np.ones(width, dtype=bool)


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


class _Trainer:
    """Fits of several splits, one step of each at a time."""

    def __init__(
        self,
        x: Matrix,
        labels: NDArray[np.int64],
        start: Matrix,
        splits: Sequence[Split],
        how: Procedure,
        seed: int,
    ) -> None:
        self.x, self.labels, self.how = x, labels, how
        self.shown = (labels[:, None] == np.arange(start.shape[1])).astype(np.float32)
        self.fits = [_Progress(split, seed) for split in splits]
        self.penalties = np.array([split.penalties for split in splits], dtype=np.float32)
        width = self.penalties.shape[1]
        first = np.repeat(start[:, :, None], width, axis=2)  # (d + 1, c, r)
        self.weights = np.repeat(first[None], len(splits), axis=0)
        self.mean, self.square = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self.steps = np.zeros(len(splits), dtype=np.int64)
        self.best = self.weights.copy()

    def run(self) -> list[Fitted]:
        """Train until every fit has stopped."""
        going, epoch = list(range(len(self.fits))), 0
        while going and epoch <= self.how.longest:
            for _ in range(self.how.epochs):
                self._epoch(going)
            epoch += self.how.epochs
            for i in going:
                self._check(i)
            going = [i for i in going if self.fits[i].going.any()]
        return [Fitted(fit.best, best) for fit, best in zip(self.fits, self.best, strict=True)]

    def _epoch(self, going: list[int]) -> None:
        size = self.how.batch_size
        trains = {i: self.fits[i].train for i in going}
        orders = {i: rows[self.fits[i].random.permutation(len(rows))] for i, rows in trains.items()}
        for left in range(0, max(map(len, orders.values())), size):
            # Of a split that is shorter by a batch nothing is left.
            batches = {i: order[left : left + size] for i, order in orders.items()}
            live = [i for i, batch in batches.items() if len(batch)]
            rows = np.zeros((len(live), max(len(batches[i]) for i in live)), dtype=np.int64)
            share = np.zeros((*rows.shape, 1, 1), dtype=np.float32)
            for slot, i in enumerate(live):
                rows[slot, : len(batches[i])] = batches[i]
                share[slot, : len(batches[i])] = 1 / len(batches[i])
            self._step(live, rows, share)

    def _step(self, live: list[int], rows: Rows, share: Matrix) -> None:
        """Adam on the mean cross-entropy of a batch each, with L2 in the gradient."""
        # A view where all take part spares four copies.
        at = slice(None) if len(live) == len(self.fits) else live
        weights, mean, square = self.weights[at], self.mean[at], self.square[at]
        splits, width, classes, fits = weights.shape
        x = self.x[rows]
        scores = (x @ weights.reshape(splits, width, -1)).reshape(*rows.shape, classes, fits)
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        scores -= self.shown[rows][..., None]
        scores *= share
        gradient = x.transpose(0, 2, 1) @ scores.reshape(*rows.shape, -1)
        gradient = gradient.reshape(weights.shape)
        gradient += self.penalties[at][:, None, None] * weights
        self.steps[at] += 1
        steps = self.steps[at][:, None, None, None]
        mean *= 0.9
        mean += 0.1 * gradient
        square *= 0.999
        square += 0.001 * gradient * gradient
        scale = np.sqrt(1 - 0.999**steps).astype(np.float32)
        pace = (self.how.rate / (1 - 0.9**steps)).astype(np.float32)
        weights -= pace * mean / (np.sqrt(square) / scale + np.float32(1e-8))
        self.weights[at], self.mean[at], self.square[at] = weights, mean, square

    def _check(self, i: int) -> None:
        """Keep what improved; stop what has not for too long."""
        fit = self.fits[i]
        scores = self.x[fit.check] @ self.weights[i].reshape(self.x.shape[1], -1)
        guesses = scores.reshape(len(fit.check), *self.weights.shape[2:]).argmax(axis=1)
        accuracy = (guesses == self.labels[fit.check][:, None]).mean(axis=0)
        better = fit.going & (accuracy > fit.best)
        self.best[i][:, :, better] = self.weights[i][:, :, better]
        fit.best[better] = accuracy[better]
        worse = fit.going & ~better
        stop = worse & (fit.misses >= self.how.tenacity)
        fit.misses[worse] += 1
        fit.going &= ~stop


def classify(
    problem: ClassifierProblem, seed: int, advance: Advance, how: Procedure = Procedure()
) -> ClassifierOutcome:
    """Choose an L2 weight, fit and predict; the seed draws first weights and batches."""
    x, labels = with_ones(problem.features), problem.labels
    start = linear_start(x.shape[1] - 1, problem.classes, seed)
    guesses = np.full(len(labels), -1)

    def fitted(splits: list[Split]) -> list[Fitted]:
        found: list[Fitted] = []
        for first in range(0, len(splits), TOGETHER):
            part = splits[first : first + TOGETHER]
            found += _Trainer(x, labels, start, part, how, seed).run()
            advance(len(part))
        return found

    def choose(found: Sequence[Fitted]) -> tuple[float, float]:
        """The first best L2 weight, by accuracies rounded to hundredths of a per cent."""
        scores = np.mean([one.accuracy for one in found], axis=0)
        best = int(np.argmax([round(100 * float(score), 2) for score in scores]))
        return how.grid[best], float(scores[best])

    def tested(rows: Rows, final: Fitted) -> Rows:
        guesses[rows] = (x[rows] @ final.weights[:, :, 0]).argmax(axis=1)
        return rows

    learn = np.arange(problem.train)
    if len(problem.test):
        if problem.dev:
            check: Rows | None = np.arange(problem.train, problem.train + problem.dev)
            penalty, score = choose(fitted([Split(learn, check, how.grid)]))
        else:
            check, folds = None, stratified_folds(labels[: problem.train], how.folds, seed)
            penalty, score = choose(fitted([Split(*fold, how.grid) for fold in folds]))
        (final,) = fitted([Split(learn, check, (penalty,))])
        return ClassifierOutcome(score, (tested(problem.test, final),), guesses)
    outer = stratified_folds(labels, how.folds, FOLD_SEED)
    chosen = []
    for rows, _ in outer:
        inner = stratified_folds(labels[rows], how.folds, FOLD_SEED)
        chosen.append(choose(fitted([Split(rows[a], rows[b], how.grid) for a, b in inner])))
    finals = fitted(
        [
            Split(rows, None, (penalty,))
            for (rows, _), (penalty, _) in zip(outer, chosen, strict=True)
        ]
    )
    parts = tuple(tested(test, final) for (_, test), final in zip(outer, finals, strict=True))
    return ClassifierOutcome(float(np.mean([score for _, score in chosen])), parts, guesses)


def count_of_fits(problem: ClassifierProblem, how: Procedure = Procedure()) -> int:
    """Number of splits in :func:`classify`, for progress."""
    if problem.dev:
        return 2
    return how.folds + 1 if len(problem.test) else how.folds**2 + how.folds
