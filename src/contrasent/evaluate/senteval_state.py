"""What SentEval's classifiers hold while they are trained, many of them side by side.

A slot belongs to a split. Its matrix is (d + 1, c * r): column k * r + i is class k of the fit with
L2 weight i, the bias is the last row.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from contrasent.evaluate.folds import Rows

Matrix = NDArray[np.float32]
Array = TypeVar("Array", bound=Any)
"""Of numpy or of torch."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """The settings of SentEval's classifier.

    Attributes:
        folds: of cross-validation.
        optimiser: "adam" or "rmsprop".
        rate: its learning rate.
        batch: rows a step.
        tenacity: checks without improvement that are tolerated; one more stops a fit.
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


class State(ABC, Generic[Array]):
    """Weights, moments and best weights of the splits in training, one slot behind the other.

    Args:
        start: (d + 1, c * r) first weights.
        join: puts arrays together along the first axis.

    Attributes:
        weights: (f, d + 1, c * r) of f slots.
        mean: first moment of the gradient, of the same shape.
        square: its second moment.
        best_weights: the best weights so far.
        steps: (f,) steps taken.
    """

    def __init__(self, start: Array, join: Callable[[list[Array]], Array]) -> None:
        self.first, self.join = start[None], join
        self.zero = self.first - self.first
        self.weights = self.mean = self.square = self.best_weights = self.first[:0]
        self.steps = np.empty(0, dtype=np.int64)

    def enter(self) -> None:
        """Add a slot that begins at the first weights."""
        self.weights = self.join([self.weights, self.first])
        self.best_weights = self.join([self.best_weights, self.first])
        self.mean = self.join([self.mean, self.zero])
        self.square = self.join([self.square, self.zero])
        self.steps = np.append(self.steps, 0)

    def stay(self, slots: list[int]) -> None:
        """Drop all slots but these."""
        self.weights, self.mean = self.weights[slots], self.mean[slots]
        self.square, self.best_weights = self.square[slots], self.best_weights[slots]
        self.steps = self.steps[slots]

    @abstractmethod
    def step(self, slots: list[int], rows: Rows, share: Matrix, penalties: Matrix) -> None:
        """One step of the optimiser for f of the slots, on a batch each.

        Args:
            slots: f slots, in order.
            rows: (f, b) rows of the features.
            share: (f, b, 1) weight of each in the mean; 0 for rows that only fill a batch up.
            penalties: (f, r) L2 weights.
        """

    @abstractmethod
    def guesses(self, slot: int, rows: Rows) -> NDArray[np.int64]:
        """(n, r) classes that the slot's fits give to n rows."""

    @abstractmethod
    def keep(self, slot: int, fits: NDArray[np.bool_]) -> None:
        """Take the weights of these of the r fits for their best."""

    @abstractmethod
    def best(self, slot: int) -> Matrix:
        """(r, d + 1, c) the best weights."""


class NumpyState(State[Matrix]):
    """:class:`State` on the processor.

    Args:
        features: (n, d + 1), the last column 1.
        labels: (n,) classes.
        start: (d + 1, c) first weights.
        width: r, L2 weights side by side.
        procedure: the settings.
    """

    def __init__(
        self,
        features: Matrix,
        labels: NDArray[np.int64],
        start: Matrix,
        width: int,
        procedure: Procedure,
    ) -> None:
        self.features, self.labels, self.procedure = features, labels, procedure
        self.classes, self.width = start.shape[1], width
        super().__init__(np.repeat(start, width, axis=1), np.concatenate)

    def step(self, slots: list[int], rows: Rows, share: Matrix, penalties: Matrix) -> None:
        """See :class:`State`."""
        # A view of all slots, where all take part, spares four copies.
        at = slice(None) if len(slots) == len(self.steps) else np.array(slots)
        x = self.features.take(rows, axis=0)
        weights = self.weights[at]
        logits = (x @ weights).reshape(*rows.shape, self.classes, self.width)
        error = _error(logits, self.labels[rows])
        error *= share[..., None]
        gradient = x.swapaxes(1, 2) @ error.reshape(*rows.shape, -1)
        gradient += np.tile(penalties, self.classes)[:, None, :] * weights
        self.steps[at] += 1
        square = self.square[at]
        rate = np.float32(self.procedure.rate)
        if self.procedure.optimiser == "adam":
            mean = self.mean[at]
            mean *= np.float32(0.9)
            mean += np.float32(0.1) * gradient
            square *= np.float32(0.999)
            gradient *= gradient
            gradient *= np.float32(0.001)
            square += gradient
            steps = self.steps[at][:, None, None]
            scale = np.sqrt(1 - 0.999**steps).astype(np.float32)
            pace = (self.procedure.rate / (1 - 0.9**steps)).astype(np.float32)
            weights -= pace * mean / (np.sqrt(square) / scale + np.float32(1e-8))
            self.mean[at] = mean
        else:
            square *= np.float32(0.99)
            square += np.float32(0.01) * gradient * gradient
            weights -= rate * gradient / (np.sqrt(square) + np.float32(1e-8))
        self.square[at], self.weights[at] = square, weights

    def guesses(self, slot: int, rows: Rows) -> NDArray[np.int64]:
        """See :class:`State`."""
        logits = self.features[rows] @ self.weights[slot]
        found: NDArray[np.int64] = logits.reshape(-1, self.classes, self.width).argmax(axis=1)
        return found

    def keep(self, slot: int, fits: NDArray[np.bool_]) -> None:
        """See :class:`State`."""
        columns = np.tile(fits, self.classes)
        self.best_weights[slot][:, columns] = self.weights[slot][:, columns]

    def best(self, slot: int) -> Matrix:
        """See :class:`State`."""
        return np.moveaxis(self.best_weights[slot].reshape(-1, self.classes, self.width), 2, 0)


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
