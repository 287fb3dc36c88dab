"""Layouts of a batch: groups of equal length, chunks of bounded memory, or packed.

Chunks are cached gradients (Gao et al., 2021, section 3.2): vectors first, then each chunk
again with the same dropout masks, and backwards. The gradient is the same.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasent.types import Tokens

OVERHEAD = 192  # cost of one more group in tokens: the overhead of a forward pass
CALLS = 1024  # the same of attention in pairs of tokens: the overhead of its calls


def by_length(
    lengths: NDArray[np.int64], *, overhead: int = OVERHEAD, power: int = 1
) -> list[NDArray[np.int64]]:
    """Group rows of similar length, shortest first, so that padding and overhead are least.

    Args:
        lengths: (n,) int64, the number of tokens in each row.
        overhead: cost of a group, in tokens.
        power: 2 counts pairs of tokens instead, as in attention.
    """
    # Dynamic programming over the distinct lengths.
    if len(lengths) == 0:
        return []
    order = np.argsort(lengths, kind="stable")
    values, counts = np.unique(lengths, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(len(values) + 1)
    cut = np.zeros(len(values) + 1, dtype=np.int64)
    for end in range(1, len(values) + 1):
        padded = (before[end] - before[:end]) * values[end - 1] ** power + overhead
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
    """Neighboring rows of one length, or padded to it."""

    count: int
    length: int
    # (count, 1, 1, length) whether a place has a token; None if all have
    mask: Tensor | None = None


class Packing:
    """A block of rows, shortest first, without padding."""

    def __init__(self, tokens: Tokens) -> None:
        lengths = tokens.lengths
        # (n,) row numbers of the block in the order of the packing
        self.order = np.argsort(lengths, kind="stable")
        self.lengths = lengths[self.order]
        packed = tokens.select(self.order)
        starts = np.repeat(packed.offsets[:-1] - packed.offsets[0], self.lengths)
        self.ids = torch.from_numpy(packed.ids.astype(np.int64))  # (T,)
        # (T,) int64 place of each token in its row, from 0
        self.places = torch.from_numpy(np.arange(len(packed.ids)) - starts)
        pairs = zip(*np.unique(lengths, return_counts=True), strict=True)
        self.groups = tuple(Group(int(count), int(length)) for length, count in pairs)
        self._by_head: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def split(self, states: Tensor) -> list[Tensor]:
        """(T, d) states as one (count, length, d) block a group."""
        parts = torch.split(states, [group.count * group.length for group in self.groups])
        return [
            part.view(group.count, group.length, -1)
            for part, group in zip(parts, self.groups, strict=True)
        ]

    @cached_property
    def near(self) -> tuple[Group, ...]:
        """Rows of near lengths, padded to the longest: fewer groups, for attention alone."""
        groups = []
        for rows in by_length(self.lengths, overhead=CALLS, power=2):
            lengths = self.lengths[rows]
            longest = int(lengths[-1])
            mask = torch.from_numpy(np.arange(longest) < lengths[:, None, None, None])
            whole = lengths[0] == longest
            groups.append(Group(len(rows), longest, None if whole else mask))
        return tuple(groups)

    @cached_property
    def slots(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
        """Of each token, in ``near``: what lies before its row, its row's length, and all."""
        counts = [group.count for group in self.near]
        padded = np.repeat([group.length for group in self.near], counts)
        before = np.concatenate([[0], np.cumsum(padded)])
        rows = np.repeat(np.arange(len(padded)), self.lengths)
        return before[rows], padded[rows], self.places.numpy(), int(before[-1])

    def by_head(self, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Where each head of each token lies when the rows of a group do, head by head.

        Returns:
            The place (T * heads,) of each head of each token; the number (places,) of the head at
            each place, token by token; and the places (pads,) without one, whose number is 0.
        """
        if heads not in self._by_head:
            before, length, place, size = self.slots
            head = np.arange(heads)
            to = (before[:, None] * heads + head * length[:, None] + place[:, None]).ravel()
            number = np.full(size * heads, -1)
            number[to] = np.arange(len(to))
            pads = np.flatnonzero(number < 0)
            number[pads] = 0
            one, two, three = (torch.from_numpy(part) for part in (to, number, pads))
            self._by_head[heads] = one, two, three
        return self._by_head[heads]
