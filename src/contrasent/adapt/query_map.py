"""A linear map of queries, learned from the rows that answer some of them: seconds, and numpy."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from contrasent.types import Vectors

WARM = 0.1  # share of the steps in which the rate rises; it falls linearly in the others
DECAYS, SMALL = (0.9, 0.999), 1e-8  # of Adam


def contrast(
    matrix: Vectors,
    queries: Vectors,
    rows: Vectors,
    right: NDArray[np.bool_],
    wrong: NDArray[np.bool_],
    temperature: float,
) -> tuple[float, Vectors]:
    """InfoNCE of mapped queries (b, d) and unit rows (c, d), and its gradient in the (d, d) map.

    ``right``, ``wrong``: (b, c), the rows that answer a query and those that do not. Each right one
    is compared with all wrong ones; a query counts by the mean over its right ones.
    """
    raw = queries @ matrix
    lengths = np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-12)
    unit = raw / lengths
    scores = unit @ rows.T / np.float32(temperature)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    others = np.maximum((powers * wrong).sum(axis=1, keepdims=True), 1e-30)
    shares = powers / (powers + others)
    weights = right / np.maximum(right.sum(axis=1, keepdims=True), 1).astype(np.float32)
    loss = -float((weights * np.log(np.maximum(shares, 1e-38))).sum(axis=1).mean())
    missing = weights * (1 - shares)
    slopes = wrong * powers / others * missing.sum(axis=1, keepdims=True) - missing
    moved = slopes @ rows / np.float32(temperature * len(queries))
    moved -= (moved * unit).sum(axis=1, keepdims=True) * unit
    return loss, queries.T @ (moved / lengths)


def descend(
    matrix: Vectors, slope_of: Callable[[Vectors], Vectors], *, rate: float, steps: int
) -> Vectors:
    """The matrix after some steps of Adam along a gradient."""
    found = np.array(matrix, dtype=np.float32)
    first, second = np.zeros_like(found), np.zeros_like(found)
    for step in range(1, steps + 1):
        slope = slope_of(found)
        first += np.float32(1 - DECAYS[0]) * (slope - first)
        second += np.float32(1 - DECAYS[1]) * (slope * slope - second)
        now = rate * min(1.0, step / max(1.0, WARM * steps)) * (1 - (step - 1) / steps)
        length = np.sqrt(second / np.float32(1 - DECAYS[1] ** step)) + np.float32(SMALL)
        found -= np.float32(now / (1 - DECAYS[0] ** step)) * first / length
    return found
