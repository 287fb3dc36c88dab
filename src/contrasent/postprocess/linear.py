"""Whitening: a linear layer that is fitted to a fixed model's vectors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, OptionError
from contrasent.types import Vectors

Floats = NDArray[np.float64]

NO_VARIANCE = 1e-10
"""Variances below this share of the largest are noise; their directions cannot be stretched."""


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


def whiten(vectors: Vectors, *, dimensions: int | None = None) -> Whitening:
    """Stretch a space until its covariance is the identity (Su et al., 2021, Algorithm 1).

    ``vectors``: (n, d), more of them than dimensions.
    """
    x = np.asarray(vectors, dtype=np.float64)
    n, d = x.shape
    keep = d if dimensions is None else dimensions
    if not 1 <= keep <= d:
        raise OptionError("dimensions", keep, f"the vectors have {d}; choose 1 to {d}")
    if not np.isfinite(x).all():
        raise DataError("some of the vectors hold NaN or infinite numbers")
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
