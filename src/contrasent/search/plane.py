"""A flat picture of an index: the principal components of its vectors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.search.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """Rows on a plane.

    Attributes:
        rows: (n,) which rows of the index.
        points: (n, 2) where they are, in [-1, 1].
        explained: share of the variance that the plane shows.
    """

    rows: NDArray[np.int64]
    points: NDArray[np.float64]
    explained: float


def plane(index: Rows, *, limit: int = 2000) -> Plane:
    """Place rows, evenly spread over the index, on their two principal components.

    The sign of each axis is fixed: the same index gives the same picture.
    """
    alive = np.flatnonzero(index.alive())
    sample = spread(alive, 100_000)
    total = np.zeros(index.dimension)
    product = np.zeros((index.dimension, index.dimension))
    for start in range(0, len(sample), 4096):
        block = index.vectors_of(sample[start : start + 4096]).astype(np.float64)
        total += block.sum(axis=0)
        product += block.T @ block
    count = max(len(sample), 1)
    mean = total / count
    values, axes = np.linalg.eigh(product / count - np.outer(mean, mean))
    values = np.clip(values, 0.0, None)
    best = axes[:, ::-1][:, :2]
    best = best * np.where(best[np.abs(best).argmax(axis=0), range(best.shape[1])] < 0, -1.0, 1.0)
    rows = spread(alive, limit)
    points = np.zeros((len(rows), 2))
    points[:, : best.shape[1]] = (index.vectors_of(rows).astype(np.float64) - mean) @ best
    widest = np.abs(points).max() if len(points) else 0.0
    spanned = values.sum()
    return Plane(
        rows,
        points / widest if widest > 0 else points,
        float(values[::-1][:2].sum() / spanned) if spanned > 0 else 1.0,
    )


def spread(rows: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """At most ``limit`` of the rows, evenly spread."""
    if len(rows) <= limit:
        return rows
    return rows[np.linspace(0, len(rows) - 1, limit).astype(np.int64)]
