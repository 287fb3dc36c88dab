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
from contrasent.evaluate.senteval_state import (
    FULL,
    Matrix,
    NumpyState,
    Procedure,
    State,
    TorchState,
)

SIDE_BY_SIDE = 10
"""Folds trained together: their batches fit the processor's cache."""

THREADS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """What one group of fits learns from and is checked on.

    Attributes:
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
    device: str | None = None,
    advance: Callable[[int], None] = lambda n: None,
) -> list[Fitted]:
    """Train every fit of every split.

    ``labels``: (n,) classes from 0.
    """
    start = linear_start(features.shape[1] - 1, classes, seed)
    width = len(splits[0].penalties)
    results: list[Fitted | None] = [None] * len(splits)

    given = (features, labels, start, width, procedure)

    def work(numbers: range) -> None:
        state = NumpyState(*given) if device is None else TorchState(device, *given)
        pool = _Pool(state, labels, procedure)
        waiting = list(numbers)[::-1]
        together = SIDE_BY_SIDE if device is None else len(splits)
        while waiting or pool.fits:
            while waiting and len(pool.fits) < together:
                number = waiting.pop()
                pool.enter(number, _Fit(splits[number], len(labels), seed, procedure.epoch_size))
            pool.epochs()
            for number, fitted in pool.leave():
                results[number] = fitted
                advance(1)

    threads = THREADS if device is None else 1
    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(work, (range(i, len(splits), threads) for i in range(threads))))
    return [fitted for fitted in results if fitted is not None]


def predict(features: Matrix, weights: Matrix) -> NDArray[np.int64]:
    """(n,) classes of rows with a bias column under weights (d + 1, c)."""
    classes: NDArray[np.int64] = np.argmax(features @ weights, axis=1)
    return classes


class _Fit:
    """A split's data, its stream of batches, and how its fits fare."""

    def __init__(self, split: Split, rows: int, seed: int, epoch_size: int) -> None:
        self.random = np.random.RandomState(seed)
        self.train = split.train
        if split.check is None:
            order = self.random.permutation(len(split.train))
            cut = int(0.05 * len(order))
            self.train, self.check = split.train[order[cut:]], split.train[order[:cut]]
        else:
            self.check = split.check
        self.penalties = np.array(split.penalties, dtype=np.float32)
        self.best = np.full(len(split.penalties), -1.0)
        self.misses = np.zeros(len(split.penalties), dtype=np.int64)
        self.going = np.ones(len(split.penalties), dtype=bool)
        self.epoch = 0

    def order(self) -> Rows:
        """The rows of the next epoch, in the order of its batches."""
        return self.train[self.random.permutation(len(self.train))]


class _Pool:
    """Folds in training."""

    def __init__(self, state: State, labels: NDArray[np.int64], procedure: Procedure) -> None:
        self.state, self.labels, self.procedure = state, labels, procedure
        self.fits: list[tuple[int, _Fit]] = []

    def enter(self, number: int, fit: _Fit) -> None:
        """Start a split in a new slot."""
        self.fits.append((number, fit))
        self.state.enter()

    def leave(self) -> list[tuple[int, Fitted]]:
        """Hand out the splits whose fits have all stopped, and free their slots."""
        done = [i for i, (_, fit) in enumerate(self.fits) if not fit.going.any()]
        found = []
        for i in done:
            number, fit = self.fits[i]
            found.append((number, Fitted(self.state.best(i), fit.best)))
        stay = [i for i in range(len(self.fits)) if i not in done]
        self.fits = [self.fits[i] for i in stay]
        self.state.stay(stay)
        return found

    def epochs(self) -> None:
        """Train every slot to its next check, and check it."""
        penalties = np.stack([fit.penalties for _, fit in self.fits])
        for _ in range(self.procedure.epoch_size):
            self._epoch(penalties)
        for slot, (_, fit) in enumerate(self.fits):
            fit.epoch += self.procedure.epoch_size
            self._check(slot, fit)

    def _epoch(self, penalties: Matrix) -> None:
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
            self.state.step(live, rows, share, penalties[live])

    def _check(self, slot: int, fit: _Fit) -> None:
        """Keep what improved; stop what has not for too long."""
        guess = self.state.guesses(slot, fit.check)
        accuracy = (guess == self.labels[fit.check][:, None]).mean(axis=0)
        better = fit.going & (accuracy > fit.best)
        self.state.keep(slot, better)
        fit.best[better] = accuracy[better]
        worse = fit.going & ~better
        stop = worse & (fit.misses >= self.procedure.tenacity)
        fit.misses[worse] += 1
        fit.going &= ~stop
        if fit.epoch > self.procedure.longest:
            fit.going[:] = False
