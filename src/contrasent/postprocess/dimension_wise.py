"""Dimension-wise contrast as post-processing: a linear layer learnt on a fixed model's vectors."""

# SimCSE++, section 5.3, Table 4, on a fixed encoder; the objective `dimension_wise` changes the
# encoder.

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import DataError
from contrasent.losses.auxiliary import dimension_wise_contrast
from contrasent.types import Vectors

SMALLEST = 1e-6
"""Columns whose deviation is below this share of the largest do not vary and are left as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSettings:
    """How the layer is learnt; temperature and a single epoch are the paper's."""

    temperature: float = 0.05
    lr: float = 1e-3
    batch: int = 512
    epochs: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """x -> x @ matrix (d, d) + bias (d,)."""

    matrix: NDArray[np.float64]
    bias: NDArray[np.float64]

    def __call__(self, vectors: Vectors) -> Vectors:
        """(n, d) to (n, d) float32."""
        x = np.asarray(vectors, dtype=np.float64)
        return (x @ self.matrix + self.bias).astype(np.float32)


def fit(
    first: Vectors,
    second: Vectors,
    settings: LayerSettings | None = None,
    *,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Layer:
    """Learn the layer from two views (n, d) of the same sentences, such as dropout makes."""
    # The loss standardises each dimension over the batch, so the scale of a dimension is free; the
    # layer gives each the mean 0 and the variance 1 over the vectors that it was fitted on.
    s = settings or LayerSettings()
    if first.shape != second.shape or first.ndim != 2:
        raise DataError(f"two views of shapes {first.shape} and {second.shape}; they must be equal")
    if len(first) < s.batch:
        raise DataError(f"{len(first):,} rows are fewer than a batch of {s.batch}; give more text")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise DataError("some of the vectors hold NaN or infinite numbers")
    both = np.concatenate([first, second]).astype(np.float64)
    mean, spread = both.mean(0), both.std(0)
    varies = spread > SMALLEST * spread.max()
    start = np.where(varies, 1 / np.where(varies, spread, 1), 0)
    views = [torch.from_numpy(((v - mean) * start).astype(np.float32)) for v in (first, second)]
    weight = _learn(views, s, report)
    # What the layer gives must not depend on where in a batch a row stood.
    matrix = start[:, None] * weight.T
    out = (both - mean) @ matrix
    scale = out.std(0)
    matrix = matrix / np.where(scale > SMALLEST, scale, 1)
    return Layer(matrix, -(mean @ matrix) - (out.mean(0) / np.where(scale > SMALLEST, scale, 1)))


def _learn(
    views: list[torch.Tensor], s: LayerSettings, report: Callable[[int, float], None]
) -> NDArray[np.float64]:
    """The weight (d, d) of a linear layer that begins as the identity."""
    first, second = views
    n, d = first.shape
    weight = torch.eye(d, requires_grad=True)
    optimiser = torch.optim.Adam([weight], lr=s.lr)
    generator = torch.Generator().manual_seed(s.seed)
    total = s.epochs * (n // s.batch)
    step = 0
    with progress.task("dimension-wise", total, "steps") as advance:
        for _ in range(s.epochs):
            order = torch.randperm(n, generator=generator)
            for begin in range(0, n - s.batch + 1, s.batch):
                rows = order[begin : begin + s.batch]
                for group in optimiser.param_groups:
                    group["lr"] = s.lr * (1 - step / total)
                loss = dimension_wise_contrast(
                    first[rows] @ weight.T, second[rows] @ weight.T, temperature=s.temperature
                )
                value = float(loss.detach())
                if not math.isfinite(value):
                    raise DataError(f"the loss is {value} at step {step}; lower the lr")
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                report(step, value)
                advance(1, loss=value)
                step += 1
    return weight.detach().double().numpy()
