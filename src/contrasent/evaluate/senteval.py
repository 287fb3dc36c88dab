"""SentEval's classifier, exactly, but many fits at a time.

The published procedure (Conneau and Kiela, 2018; its settings in SimCSE's evaluation) trains one
linear layer with Adam for every fold and every L2 weight, one after the other: 1,727 fits for the
seven tasks. All fits start from the same weights, and the fits of a fold see the same batches
whatever their L2 weight, so they are trained side by side here: their weights are columns of one
matrix, folds are a further dimension, and each batch is read once. What is computed for a fit is
what SentEval computes for it: first weights, order of batches, coupled L2 on weight and bias, early
stopping on the held-out accuracy every few epochs with a counter that is never reset.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.evaluate.folds import Rows, linear_start

Matrix = NDArray[np.float32]

SIDE_BY_SIDE = 10
"""Folds trained together: their batches fit the processor's cache."""

THREADS = 2


@dataclass(frozen=True, slots=True)
class Procedure:
    """The settings of SentEval's classifier.

    Attributes:
        folds: of cross-validation.
        optimiser: "adam" or "rmsprop".
        rate: its learning rate.
        batch: rows a step.
        tenacity: checks without improvement that are borne; one more stops a fit.
        epoch_size: epochs between checks.
        longest: no check begins after this many epochs.
        grid: L2 weights to choose from.
    """

    folds: int = 10
    optimiser: str = "adam"
    rate: float = 1e-3
    batch: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    longest: int = 200
    grid: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2)


FULL = Procedure()
"""What published test scores use."""

PROTOTYPE = Procedure(folds=5, optimiser="rmsprop", rate=1e-2, batch=128, tenacity=3, epoch_size=2)
"""What SimCSE's code uses for scores during training."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """What one group of fits learns from and is checked on.

    Attributes:
        train: rows to learn from.
        check: rows whose accuracy decides when to stop; None draws 5 % of ``train`` for it.
        penalties: (r,) L2 weights, one fit for each.
    """

    train: Rows
    check: Rows | None
    penalties: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The best weights of a split's fits.

    Attributes:
        weights: (r, d + 1, c), the bias in the last row.
        accuracy: (r,) the best accuracy on the rows of the check.
    """

    weights: Matrix
    accuracy: NDArray[np.float64]


def with_bias(features: NDArray[np.floating]) -> Matrix:
    """(n, d + 1) float32: a column of ones joined on."""
    ones = np.ones((len(features), 1), dtype=np.float32)
    return np.concatenate([np.asarray(features, dtype=np.float32), ones], axis=1)


def fit_splits(
    features: Matrix,
    labels: NDArray[np.int64],
    splits: Sequence[Split],
    *,
    classes: int,
    procedure: Procedure = FULL,
    seed: int = 1111,
    advance: Callable[[int], None] = lambda n: None,
) -> list[Fitted]:
    """Train every fit of every split.

    Args:
        features: (n, d + 1) from :func:`with_bias`.
        labels: (n,) classes from 0.
        splits: all with the same number of penalties.
        classes: how many classes there are.
        procedure: the settings.
        seed: of first weights and batches, the same for each fit.
        advance: told of every split that is done.

    Returns:
        One entry a split, in order.
    """
    start = linear_start(features.shape[1] - 1, classes, seed)
    results: list[Fitted | None] = [None] * len(splits)

    def work(numbers: range) -> None:
        pool = _Pool(features, labels, start, procedure, len(splits[0].penalties))
        waiting = list(numbers)[::-1]
        while waiting or pool.fits:
            while waiting and len(pool.fits) < SIDE_BY_SIDE:
                number = waiting.pop()
                pool.enter(number, _Fit(splits[number], len(labels), seed, procedure.epoch_size))
            pool.epochs()
            for number, fitted in pool.leave():
                results[number] = fitted
                advance(1)

    with ThreadPoolExecutor(THREADS) as executor:
        list(executor.map(work, (range(i, len(splits), THREADS) for i in range(THREADS))))
    return [fitted for fitted in results if fitted is not None]


def predict(features: Matrix, weights: Matrix) -> NDArray[np.int64]:
    """(n,) classes of rows with a bias column under weights (d + 1, c)."""
    classes: NDArray[np.int64] = np.argmax(features @ weights, axis=1)
    return classes


class _Fit:
    """A split's data, its stream of batches, and how its fits fare."""

    def __init__(self, split: Split, rows: int, seed: int, epoch_size: int) -> None:
        self.random = np.random.RandomState(seed)
        self.train, self.check = split.train, split.check
        if self.check is None:
            order = self.random.permutation(len(split.train))
            cut = int(0.05 * len(order))
            self.train, self.check = split.train[order[cut:]], split.train[order[:cut]]
        self.penalties = np.array(split.penalties, dtype=np.float32)
        self.best = np.full(len(split.penalties), -1.0)
        self.misses = np.zeros(len(split.penalties), dtype=np.int64)
        self.going = np.ones(len(split.penalties), dtype=bool)
        self.epoch = 0

    def order(self) -> Rows:
        """The rows of the next epoch, in the order of its batches."""
        return self.train[self.random.permutation(len(self.train))]


class _Pool:
    """Folds in training: a slot each in the stacked weights and moments."""

    def __init__(
        self,
        features: Matrix,
        labels: NDArray[np.int64],
        start: Matrix,
        procedure: Procedure,
        penalties: int,
    ) -> None:
        self.features, self.labels, self.procedure = features, labels, procedure
        self.inputs, self.classes = start.shape
        self.width = penalties
        # Column c * penalties + r belongs to class c of fit r.
        self.start = np.repeat(start, penalties, axis=1)
        empty = np.empty((0, *self.start.shape), dtype=np.float32)
        self.weights, self.mean, self.square, self.kept = empty, empty, empty, empty
        self.steps = np.empty(0, dtype=np.int64)
        self.fits: list[tuple[int, _Fit]] = []

    def enter(self, number: int, fit: _Fit) -> None:
        """Start a split in a new slot."""
        self.fits.append((number, fit))
        zero = np.zeros_like(self.start)[None]
        self.weights = np.concatenate([self.weights, self.start[None]])
        self.kept = np.concatenate([self.kept, self.start[None]])
        self.mean = np.concatenate([self.mean, zero])
        self.square = np.concatenate([self.square, zero])
        self.steps = np.append(self.steps, 0)

    def leave(self) -> list[tuple[int, Fitted]]:
        """Hand out the splits whose fits have all stopped, and free their slots."""
        done = [i for i, (_, fit) in enumerate(self.fits) if not fit.going.any()]
        found = []
        for i in done:
            number, fit = self.fits[i]
            shape = (self.inputs, self.classes, self.width)
            best = np.moveaxis(self.kept[i].reshape(shape), 2, 0)
            found.append((number, Fitted(best, fit.best)))
        stay = [i for i in range(len(self.fits)) if i not in done]
        self.fits = [self.fits[i] for i in stay]
        self.weights, self.mean = self.weights[stay], self.mean[stay]
        self.square, self.kept = self.square[stay], self.kept[stay]
        self.steps = self.steps[stay]
        return found

    def epochs(self) -> None:
        """Train every slot to its next check, and check it."""
        penalty = np.stack([np.tile(fit.penalties, self.classes) for _, fit in self.fits])
        for _ in range(self.procedure.epoch_size):
            self._epoch(penalty[:, None, :])
        for slot, (_, fit) in enumerate(self.fits):
            fit.epoch += self.procedure.epoch_size
            self._check(slot, fit)

    def _epoch(self, penalty: Matrix) -> None:
        size = self.procedure.batch
        orders = [fit.order() for _, fit in self.fits]
        for left in range(0, max(map(len, orders)), size):
            batches = [order[left : left + size] for order in orders]
            longest = max(map(len, batches))
            live = [i for i, batch in enumerate(batches) if len(batch)]
            rows = np.zeros((len(live), longest), dtype=np.int64)
            share = np.zeros((len(live), longest, 1), dtype=np.float32)
            for slot, i in enumerate(live):
                rows[slot, : len(batches[i])] = batches[i]
                share[slot, : len(batches[i])] = 1 / len(batches[i])
            if len(live) == len(batches):
                self._step(slice(None), rows, share, penalty)
            else:
                self._step(np.array(live), rows, share, penalty[live])

    def _step(
        self, slots: slice | NDArray[np.int64], rows: Rows, share: Matrix, penalty: Matrix
    ) -> None:
        """One step of the optimiser for the slots, on a batch each (rows, weighted by share)."""
        x = self.features.take(rows, axis=0)
        weights = self.weights[slots]
        logits = (x @ weights).reshape(*rows.shape, self.classes, self.width)
        error = _error(logits, self.labels[rows])
        error *= share[..., None]
        gradient = x.swapaxes(1, 2) @ error.reshape(*rows.shape, -1)
        gradient += penalty * weights
        self.steps[slots] += 1
        square = self.square[slots]
        rate = np.float32(self.procedure.rate)
        if self.procedure.optimiser == "adam":
            mean = self.mean[slots]
            mean *= np.float32(0.9)
            mean += np.float32(0.1) * gradient
            square *= np.float32(0.999)
            gradient *= gradient
            gradient *= np.float32(0.001)
            square += gradient
            steps = self.steps[slots][:, None, None]
            scale = np.sqrt(1 - 0.999**steps).astype(np.float32)
            pace = (self.procedure.rate / (1 - 0.9**steps)).astype(np.float32)
            weights -= pace * mean / (np.sqrt(square) / scale + np.float32(1e-8))
            self.mean[slots] = mean
        else:
            square *= np.float32(0.99)
            square += np.float32(0.01) * gradient * gradient
            weights -= rate * gradient / (np.sqrt(square) + np.float32(1e-8))
        self.square[slots], self.weights[slots] = square, weights

    def _check(self, slot: int, fit: _Fit) -> None:
        """Keep what improved; stop what has not for too long."""
        logits = self.features[fit.check] @ self.weights[slot]
        guess = logits.reshape(-1, self.classes, self.width).argmax(axis=1)
        accuracy = (guess == self.labels[fit.check][:, None]).mean(axis=0)
        better = fit.going & (accuracy > fit.best)
        columns = np.tile(better, self.classes)
        self.kept[slot][:, columns] = self.weights[slot][:, columns]
        fit.best[better] = accuracy[better]
        worse = fit.going & ~better
        stop = worse & (fit.misses >= self.procedure.tenacity)
        fit.misses[worse] += 1
        fit.going &= ~stop
        if fit.epoch > self.procedure.longest:
            fit.going[:] = False


def _error(logits: Matrix, labels: NDArray[np.int64]) -> Matrix:
    """Softmax minus the true class: the gradient of cross-entropy.

    Args:
        logits: (f, b, c, r), r models side by side.
        labels: (f, b) true classes.
    """
    classes = logits.shape[2]
    if classes == 2:
        gap = np.clip(logits[:, :, 0] - logits[:, :, 1], -80, 80)
        second = 1 / (1 + np.exp(gap))
        second -= (labels == 1)[:, :, None]
        return np.stack([-second, second], axis=2)
    logits -= logits.max(axis=2, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=2, keepdims=True)
    logits -= (np.arange(classes) == labels[..., None])[..., None]
    return logits
