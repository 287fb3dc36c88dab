"""Cut a batch into groups of similar length, so that little padding is computed."""

import numpy as np
from numpy.typing import NDArray

OVERHEAD = 192
"""What one more group costs, in tokens: launching a forward pass is not free."""


def by_length(lengths: NDArray[np.int64], *, overhead: int = OVERHEAD) -> list[NDArray[np.int64]]:
    """Partition rows so that padded tokens plus ``overhead`` a group are fewest.

    Groups are runs of rows sorted by length; the best cuts are found by dynamic programming over
    the distinct lengths.

    Args:
        lengths: (n,) tokens of each row.
        overhead: cost of one group in tokens.

    Returns:
        Row numbers of each group, shortest group first; together every row once.
    """
    if len(lengths) == 0:
        return []
    order = np.argsort(lengths, kind="stable")
    values, counts = np.unique(lengths, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(len(values) + 1)
    cut = np.zeros(len(values) + 1, dtype=np.int64)
    for end in range(1, len(values) + 1):
        padded = (before[end] - before[:end]) * values[end - 1] + overhead
        total = best[:end] + padded
        cut[end] = int(np.argmin(total))
        best[end] = total[cut[end]]
    edges, end = [], len(values)
    while end > 0:
        edges.append((before[cut[end]], before[end]))
        end = int(cut[end])
    return [order[start:stop] for start, stop in reversed(edges)]
