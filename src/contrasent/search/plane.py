"""A flat picture of an index: its vectors on the two axes along which they vary most."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrasent.search.index import Index

MOST = 20_000
"""Rows that the axes are found by."""


class Plane(NamedTuple):
    """Rows of an index (n,), where they are (n, 2) in [-1, 1], and the share of variance shown."""

    rows: NDArray[np.int64]
    points: NDArray[np.float64]
    explained: float


def plane(index: Index, *, limit: int = 2000) -> Plane:
    """Place rows, evenly spread over the index, on a plane; the same index, the same picture."""
    if not len(index):
        return Plane(index.numbers(), np.zeros((0, 2)), 1.0)
    sample = index.vectors[spread(index.numbers(), MOST)].astype(np.float64)
    mean = sample.mean(axis=0)
    values, axes = np.linalg.eigh(sample.T @ sample / len(sample) - np.outer(mean, mean))
    values = np.clip(values, 0.0, None)
    best = axes[:, ::-1][:, :2]
    best = best * np.where(best[np.abs(best).argmax(axis=0), range(best.shape[1])] < 0, -1.0, 1.0)
    rows = spread(index.numbers(), limit)
    points = np.zeros((len(rows), 2))
    points[:, : best.shape[1]] = (index.vectors[rows].astype(np.float64) - mean) @ best
    widest, spanned = np.abs(points).max(initial=0.0), values.sum()
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
