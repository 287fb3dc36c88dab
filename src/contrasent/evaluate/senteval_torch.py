"""SentEval's classifiers in torch: all folds and L2 weights as one tensor, for a GPU."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasent.errors import OptionError
from contrasent.evaluate.folds import Rows
from contrasent.evaluate.senteval_state import Matrix, Procedure, State


class TorchState(State[Tensor]):
    """:class:`contrasent.evaluate.senteval_state.State` on a device of torch.

    Features, weights and moments stay on the device; a step sends row numbers there, a check
    brings classes back.

    Args:
        features: (n, d + 1), the last column 1.
        labels: (n,) classes.
        start: (d + 1, c) first weights.
        width: r, L2 weights side by side.
        procedure: the settings.
        device: such as "cuda" or "cpu".

    Raises:
        OptionError: torch has no such device.
    """

    def __init__(
        self,
        features: Matrix,
        labels: NDArray[np.int64],
        start: Matrix,
        width: int,
        procedure: Procedure,
        device: str,
    ) -> None:
        try:
            self.features = torch.from_numpy(features).to(device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).split("\n")[0]
            raise OptionError("device", device, f"torch cannot use it ({reason})") from error
        self.device, self.procedure = self.features.device, procedure
        self.labels = self._moved(labels)
        self.classes, self.width = start.shape[1], width
        super().__init__(self._moved(np.repeat(start, width, axis=1)), torch.cat)

    def step(self, slots: list[int], rows: Rows, share: Matrix, penalties: Matrix) -> None:
        """One step of the optimiser for some slots, on a batch each."""
        at = torch.tensor(slots, device=self.device)
        place, weight = self._moved(rows), self._moved(share)
        x, weights = self.features[place], self.weights[at]
        logits = (x @ weights).view(*rows.shape, self.classes, self.width)
        error = logits.softmax(2)
        error -= torch.nn.functional.one_hot(self.labels[place], self.classes)[..., None]
        error = (error * weight[..., None]).flatten(2)
        penalty = self._moved(np.tile(penalties, self.classes))[:, None, :]
        gradient = x.transpose(1, 2) @ error + penalty * weights
        self.steps[slots] += 1
        square = self.square[at]
        if self.procedure.optimiser == "adam":
            mean = torch.lerp(self.mean[at], gradient, 0.1)
            square = torch.lerp(square, gradient.square(), 0.001)
            steps = self.steps[slots][:, None, None]
            scale = self._moved(np.sqrt(1 - 0.999**steps).astype(np.float32))
            pace = self._moved((self.procedure.rate / (1 - 0.9**steps)).astype(np.float32))
            weights = weights - pace * mean / (square.sqrt() / scale + 1e-8)
            self.mean[at] = mean
        else:
            square = torch.lerp(square, gradient.square(), 0.01)
            weights = weights - self.procedure.rate * gradient / (square.sqrt() + 1e-8)
        self.square[at], self.weights[at] = square, weights

    def guesses(self, slot: int, rows: Rows) -> NDArray[np.int64]:
        """(n, r) classes that the slot's fits give to n rows."""
        logits = self.features[self._moved(rows)] @ self.weights[slot]
        found: NDArray[np.int64] = (
            logits.view(len(rows), self.classes, self.width).argmax(1).cpu().numpy()
        )
        return found

    def keep(self, slot: int, fits: NDArray[np.bool_]) -> None:
        """Take the weights of these of the r fits for their best."""
        columns = self._moved(np.tile(fits, self.classes))
        self.best_weights[slot] = torch.where(columns, self.weights[slot], self.best_weights[slot])

    def best(self, slot: int) -> Matrix:
        """(r, d + 1, c) the best weights."""
        found = self.best_weights[slot].view(-1, self.classes, self.width).movedim(2, 0)
        return np.asarray(found.cpu().numpy())

    def _moved(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)
