"""Linear layers that are fitted to a fixed model's vectors: whitening, dimension-wise contrast."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import DataError, OptionError
from contrasent.types import Vectors

Floats = NDArray[np.float64]

NO_VARIANCE = 1e-10
"""Variances below this share of the largest are noise; their directions cannot be stretched."""
NO_SPREAD = 1e-6
"""Columns whose deviation is below this share of the largest do not vary and are left as 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """x -> (x - mean) @ matrix."""

    mean: Floats  # (d,) the mean of the fitted vectors
    # (d, k) principal axes over the square root of their variance, largest variance first
    matrix: Floats

    def __call__(self, vectors: Vectors) -> Vectors:
        """(n, d) to (n, k) float32."""
        moved = np.asarray(vectors, dtype=np.float64) - self.mean
        return (moved @ self.matrix).astype(np.float32)

    @property
    def bias(self) -> Floats:
        """(k,) the bias of the same map as a linear layer: -mean @ matrix."""
        return -self.mean @ self.matrix


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """x -> x @ matrix (d, d) + bias (d,)."""

    matrix: Floats
    bias: Floats

    def __call__(self, vectors: Vectors) -> Vectors:
        """(n, d) to (n, d) float32."""
        x = np.asarray(vectors, dtype=np.float64)
        return (x @ self.matrix + self.bias).astype(np.float32)


def whiten(vectors: Vectors, *, dimensions: int | None = None) -> Whitening:
    """Stretch a space until its covariance is the identity (Su et al., 2021, Algorithm 1)."""
    # `vectors`: (n, d), more of them than dimensions.
    x = np.asarray(vectors, dtype=np.float64)
    n, d = x.shape
    keep = d if dimensions is None else dimensions
    if not 1 <= keep <= d:
        raise OptionError("dimensions", keep, f"the vectors have {d}; choose 1 to {d}")
    _check_finite(x)
    if n <= keep or not x.std():
        raise DataError(
            f"{n:,} vectors cannot show the covariance of {keep} dimensions; give more text"
        )
    mean = x.mean(axis=0)
    x = x - mean
    values, axes = np.linalg.eigh(x.T @ x / (n - 1))
    values, axes = values[::-1], axes[:, ::-1]
    real = int((values > NO_VARIANCE * values[0]).sum())
    if dimensions is not None and real < dimensions:
        raise DataError(
            f"the vectors vary in {real} directions only; keep at most that many dimensions"
        )
    keep = min(keep, real)
    return Whitening(mean, axes[:, :keep] / np.sqrt(values[:keep]))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSettings:
    """How a layer is learnt; temperature and a single epoch are the paper's."""

    temperature: float = 0.05
    lr: float = 1e-3
    batch: int = 512
    epochs: int = 1
    seed: int = 0


def contrast(
    first: Vectors,
    second: Vectors,
    settings: LayerSettings | None = None,
    *,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Layer:
    """Learn a layer from two views (n, d) of the same sentences (SimCSE++, 5.3, Table 4)."""
    # On a fixed encoder; the objective `dimension_wise` changes the encoder. The loss standardises
    # each dimension over the batch, so the scale of a dimension is free; the layer gives each the
    # mean 0 and the variance 1 over the vectors that it was fitted on.
    s = settings or LayerSettings()
    if first.shape != second.shape or first.ndim != 2:
        raise DataError(f"two views of shapes {first.shape} and {second.shape}; they must be equal")
    if len(first) < s.batch:
        raise DataError(f"{len(first):,} rows are fewer than a batch of {s.batch}; give more text")
    both = np.concatenate([first, second]).astype(np.float64)
    _check_finite(both)
    mean, spread = both.mean(0), both.std(0)
    varies = spread > NO_SPREAD * spread.max()
    start = np.where(varies, 1 / np.where(varies, spread, 1), 0)
    scaled = [((v - mean) * start).astype(np.float32) for v in (first, second)]
    # What the layer gives must not depend on where in a batch a row stood.
    matrix = start[:, None] * _learn(scaled[0], scaled[1], s, report).T
    out = (both - mean) @ matrix
    scale = out.std(0)
    matrix = matrix / np.where(scale > NO_SPREAD, scale, 1)
    return Layer(matrix, -(mean @ matrix) - (out.mean(0) / np.where(scale > NO_SPREAD, scale, 1)))


def _learn(
    one: Vectors, two: Vectors, s: LayerSettings, report: Callable[[int, float], None]
) -> Floats:
    """The weight (d, d) of a linear layer that begins as the identity."""
    import torch

    from contrasent.losses.auxiliary import dimension_wise_contrast

    first, second = torch.from_numpy(one), torch.from_numpy(two)
    n, d = first.shape
    weight = torch.eye(d, requires_grad=True)
    optimiser = torch.optim.Adam([weight], lr=s.lr)
    generator = torch.Generator().manual_seed(s.seed)
    total, step = s.epochs * (n // s.batch), 0
    with progress.task("dimension-wise", total, "steps") as advance:
        for _ in range(s.epochs):
            order = torch.randperm(n, generator=generator)
            for begin in range(0, n - s.batch + 1, s.batch):
                rows = order[begin : begin + s.batch]
                optimiser.param_groups[0]["lr"] = s.lr * (1 - step / total)
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


def _check_finite(vectors: Floats) -> None:
    if not np.isfinite(vectors).all():
        raise DataError("some of the vectors hold NaN or infinite numbers")
