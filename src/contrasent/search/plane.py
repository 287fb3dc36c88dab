"""A flat picture of an index: principal components of its vectors, or UMAP from there."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import check_choice, import_extra

if TYPE_CHECKING:
    from contrasent.search.rows import Rows


METHODS = ("pca", "umap")


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """Rows on a plane.

    Attributes:
        rows: (n,) which rows of the index.
        points: (n, 2) where they are, in [-1, 1].
        explained: share of the variance that the plane shows; None for UMAP, which shows no share.
    """

    rows: NDArray[np.int64]
    points: NDArray[np.float64]
    explained: float | None


def plane(index: "Rows", *, limit: int = 2000, method: str = "pca") -> Plane:
    """Place rows, evenly spread over the index, on a plane; the same index, the same picture."""
    check_choice("method", method, METHODS)
    flat = _principal(index, limit)
    return _neighbourly(index, flat) if method == "umap" and len(flat.rows) > 3 else flat


def _neighbourly(index: "Rows", flat: Plane) -> Plane:
    """UMAP of the placed rows, started from their principal components."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that UMAP could use as well
        umap = import_extra("umap", "map", "a map by UMAP", package="umap-learn")
        model = umap.UMAP(
            n_neighbors=min(15, len(flat.rows) - 1),
            metric="cosine" if index.metric == "cosine" else "euclidean",
            init=10 * flat.points.astype(np.float32),
            random_state=0,
            n_jobs=1,  # as a fixed random state needs
        )
        points = np.asarray(model.fit_transform(index.vectors_of(flat.rows)), dtype=np.float64)
    points -= (points.max(axis=0) + points.min(axis=0)) / 2
    return Plane(flat.rows, points / max(float(np.abs(points).max()), 1e-9), None)


def _principal(index: "Rows", limit: int) -> Plane:
    """The rows on the two axes; the sign of each axis is fixed."""
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
    """At most ``limit`` of the rows, evenly spread.

    ``rows``: (n,) numbers.
    """
    if len(rows) <= limit:
        return rows
    return rows[np.linspace(0, len(rows) - 1, limit).astype(np.int64)]
