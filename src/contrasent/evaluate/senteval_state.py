"""What SentEval's classifiers hold while they are trained, many of them side by side.

A slot belongs to a split. Its matrix is (d + 1, c * r): column k * r + i is class k of the fit with
L2 weight i, the bias is the last row. What differs between numpy and torch is the gradient, and how
arrays get there and back; the optimisers are written once for both.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.evaluate.folds import Rows

Matrix = NDArray[np.float32]
Array = Any
"""Of numpy or of torch."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """The settings of SentEval's classifier.

    Attributes:
        tenacity: checks without improvement that are tolerated; one more stops a fit.
        longest: no check begins after this many epochs.
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


class State(ABC):
    """Weights, moments and best weights of the splits in training, one slot behind the other.

    Attributes:
        weights: (f, d + 1, c * r) of f slots.
        mean: first moment of the gradient, of the same shape.
        steps: (f,) steps taken.

    ``labels``: (n,) classes.
    """

    def __init__(
        self,
        features: Matrix,
        labels: NDArray[np.int64],
        start: Matrix,
        width: int,
        procedure: Procedure,
    ) -> None:
        self.features, self.labels = self._moved(features), self._moved(labels)
        self.procedure, self.classes, self.width = procedure, start.shape[1], width
        self.first = self._moved(np.repeat(start, width, axis=1)[None])
        self.weights = self.mean = self.square = self.best_weights = self.first[:0]
        self.steps = np.empty(0, dtype=np.int64)

    @abstractmethod
    def _moved(self, array: NDArray[Any]) -> Array:
        """An array where it is computed with."""

    @abstractmethod
    def _read(self, array: Array) -> NDArray[Any]:
        """An array in numpy again."""

    @abstractmethod
    def _join(self, array: Array, row: Array) -> Array:
        """One more slot (1, ...) behind the others (f, ...)."""

    @abstractmethod
    def _slope(self, weights: Array, rows: Rows, share: Matrix) -> Array:
        """Gradient of the weighted cross-entropy; the rows and shares are those of a step."""

    def enter(self) -> None:
        """Add a slot that begins at the first weights."""
        self.weights, self.best_weights = (
            self._join(held, self.first) for held in (self.weights, self.best_weights)
        )
        self.mean, self.square = (
            self._join(held, self.first - self.first) for held in (self.mean, self.square)
        )
        self.steps = np.append(self.steps, 0)

    def stay(self, slots: list[int]) -> None:
        """Drop all slots but these."""
        self.weights, self.mean = self.weights[slots], self.mean[slots]
        self.square, self.best_weights = self.square[slots], self.best_weights[slots]
        self.steps = self.steps[slots]

    def step(self, slots: list[int], rows: Rows, share: Matrix, penalties: Matrix) -> None:
        """One step of the optimiser for f of the slots, on a batch each.

        ``rows``: (f, b) rows of the features. ``share``: (f, b, 1) weight of each in the mean; 0
        for rows that only fill a batch up. ``penalties``: (f, r) L2 weights.
        """
        # A view of all slots, where all take part, spares four copies.
        at: Any = slice(None) if len(slots) == len(self.steps) else slots
        weights, square = self.weights[at], self.square[at]
        gradient = self._slope(weights, rows, share)
        gradient += self._moved(np.tile(penalties, self.classes)[:, None, :]) * weights
        self.steps[at] += 1
        rate = self.procedure.rate
        if self.procedure.optimiser == "adam":
            mean = self.mean[at]
            mean *= 0.9
            mean += 0.1 * gradient
            square *= 0.999
            gradient *= gradient
            gradient *= 0.001
            square += gradient
            steps = self.steps[at][:, None, None]
            scale = self._moved(np.sqrt(1 - 0.999**steps).astype(np.float32))
            pace = self._moved((rate / (1 - 0.9**steps)).astype(np.float32))
            weights -= pace * mean / (square**0.5 / scale + 1e-8)
            self.mean[at] = mean
        else:
            square *= 0.99
            square += 0.01 * gradient * gradient
            weights -= rate * gradient / (square**0.5 + 1e-8)
        self.square[at], self.weights[at] = square, weights

    def guesses(self, slot: int, rows: Rows) -> NDArray[np.int64]:
        """(n, r) classes that the r fits of a slot give.

        ``rows``: (n,) of the features.
        """
        logits = self.features[rows] @ self.weights[slot]
        return self._read(logits.reshape(len(rows), self.classes, self.width).argmax(1))

    def keep(self, slot: int, fits: NDArray[np.bool_]) -> None:
        """Take the weights of some fits of a slot for their best.

        ``fits``: (r,) which of its fits.
        """
        columns = self._moved(np.tile(fits, self.classes))
        self.best_weights[slot][:, columns] = self.weights[slot][:, columns]

    def best(self, slot: int) -> Matrix:
        """(r, d + 1, c) the best weights."""
        found = self._read(self.best_weights[slot]).reshape(-1, self.classes, self.width)
        return np.moveaxis(found, 2, 0)


class NumpyState(State):
    """:class:`State` on the processor."""

    def _moved(self, array: NDArray[Any]) -> Array:
        return array

    _read = _moved

    def _join(self, array: Array, row: Array) -> Array:
        return np.concatenate([array, row])

    def _slope(self, weights: Array, rows: Rows, share: Matrix) -> Array:
        x, labels = self.features.take(rows, axis=0), self.labels[rows]
        logits = (x @ weights).reshape(*rows.shape, self.classes, self.width)
        # Softmax minus the true class.
        if self.classes == 2:
            gap = np.clip(logits[:, :, 0] - logits[:, :, 1], -80, 80)
            second = 1 / (1 + np.exp(gap))
            second -= (labels == 1)[:, :, None]
            logits = np.stack([-second, second], axis=2)
        else:
            logits -= logits.max(axis=2, keepdims=True)
            np.exp(logits, out=logits)
            logits /= logits.sum(axis=2, keepdims=True)
            logits -= (np.arange(self.classes) == labels[..., None])[..., None]
        logits *= share[..., None]
        return x.swapaxes(1, 2) @ logits.reshape(*rows.shape, -1)


class TorchState(State):
    """:class:`State` on a device of torch, for a GPU: a step sends row numbers there alone."""

    def __init__(self, device: str, *given: Any) -> None:
        self.device = device
        try:
            super().__init__(*given)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).split("\n")[0]
            raise OptionError("device", device, f"torch cannot use it ({reason})") from error

    def _moved(self, array: NDArray[Any]) -> Array:
        import torch

        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _read(self, array: Array) -> NDArray[Any]:
        return np.asarray(array.cpu().numpy())

    def _join(self, array: Array, row: Array) -> Array:
        import torch

        return torch.cat([array, row])

    def _slope(self, weights: Array, rows: Rows, share: Matrix) -> Array:
        from torch.nn.functional import one_hot

        place = self._moved(rows)
        x = self.features[place]
        error = (x @ weights).view(*rows.shape, self.classes, self.width).softmax(2)
        error -= one_hot(self.labels[place], self.classes)[..., None]
        error = (error * self._moved(share)[..., None]).flatten(2)
        return x.transpose(1, 2) @ error
