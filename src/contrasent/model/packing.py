"""Rows of tokens laid out one after the other, so that no padding is computed at all."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasent.types import Tokens


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring rows of one length."""

    count: int
    length: int


@dataclass(frozen=True, slots=True)
class Packing:
    """A block of rows, shortest first, without padding.

    Attributes:
        order: (n,) row numbers of the block in the order of the packing.
        ids: (T,) int64 token ids.
        places: (T,) int64 place of each token in its row, from 0.
        groups: the rows by length; together they are the whole packing.
    """

    order: NDArray[np.int64]
    ids: Tensor
    places: Tensor
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, tokens: Tokens) -> "Packing":
        """Pack the rows of a block."""
        lengths = tokens.lengths
        order = np.argsort(lengths, kind="stable")
        packed = tokens.select(order)
        starts = np.repeat(packed.offsets[:-1] - packed.offsets[0], lengths[order])
        values, counts = np.unique(lengths, return_counts=True)
        return cls(
            order,
            torch.from_numpy(packed.ids.astype(np.int64)),
            torch.from_numpy(np.arange(len(packed.ids)) - starts),
            tuple(Group(int(c), int(v)) for c, v in zip(counts, values, strict=True)),
        )

    @property
    def tokens(self) -> list[int]:
        """Tokens of each group."""
        return [group.count * group.length for group in self.groups]

    @property
    def firsts(self) -> Tensor:
        """(n,) place of each row's first token among all tokens."""
        return torch.nonzero(self.places == 0)[:, 0]

    def split(self, states: Tensor) -> list[Tensor]:
        """(T, d) states as one (count, length, d) block a group."""
        parts = torch.split(states, self.tokens)
        return [
            part.view(group.count, group.length, -1)
            for part, group in zip(parts, self.groups, strict=True)
        ]
