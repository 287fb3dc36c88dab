"""Layouts of a batch: groups of equal length, chunks of bounded memory, or packed.

Chunks are cached gradients (Gao et al., 2021, section 3.2): vectors first, then each chunk
again with the same dropout masks, and backwards. The gradient is the same.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasent.types import Tokens

OVERHEAD = 192  # cost of one more group in tokens: the overhead of a forward pass


def by_length(lengths: NDArray[np.int64], *, overhead: int = OVERHEAD) -> list[NDArray[np.int64]]:
    """Partition rows, the shortest group first, so that padded tokens and overheads are fewest.

    Groups are runs of rows sorted by length, the shortest first; the best cuts are found by dynamic
    programming over the distinct lengths.

    Args:
        lengths: (n,) tokens of each row.
        overhead: cost of one group in tokens.
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


def cut(lengths: NDArray[np.int64], rows: int) -> list[NDArray[np.int64]]:
    """Cut rows, sorted by length, into chunks that need about the same memory.

    There are as many chunks as ``rows`` rows each would make; each has about the same number of
    tokens, so that a chunk of long rows has fewer of them.
    """
    order = np.argsort(lengths, kind="stable")
    count = -(-len(lengths) // rows)
    ends = np.cumsum(lengths[order])
    shares = ends[-1] * np.arange(1, count) / count
    places = np.searchsorted(ends, shares, side="right")
    return [part for part in np.split(order, places) if len(part)]


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring rows of one length."""

    count: int
    length: int


class Packing:
    """A block of rows, shortest first, without padding."""

    def __init__(self, tokens: Tokens) -> None:
        lengths = tokens.lengths
        # (n,) row numbers of the block in the order of the packing
        self.order = np.argsort(lengths, kind="stable")
        packed = tokens.select(self.order)
        starts = np.repeat(packed.offsets[:-1] - packed.offsets[0], lengths[self.order])
        self.ids = torch.from_numpy(packed.ids.astype(np.int64))  # (T,)
        # (T,) int64 place of each token in its row, from 0
        self.places = torch.from_numpy(np.arange(len(packed.ids)) - starts)
        pairs = zip(*np.unique(lengths, return_counts=True), strict=True)
        self.groups = tuple(Group(int(count), int(length)) for length, count in pairs)

    @property
    def firsts(self) -> Tensor:
        """(n,) position of each row's first token among all tokens."""
        return torch.nonzero(self.places == 0)[:, 0]

    def split(self, states: Tensor) -> list[Tensor]:
        """(T, d) states as one (count, length, d) block a group."""
        parts = torch.split(states, [group.count * group.length for group in self.groups])
        return [
            part.view(group.count, group.length, -1)
            for part, group in zip(parts, self.groups, strict=True)
        ]
