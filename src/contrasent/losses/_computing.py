"""How losses are computed: in full precision, and in memory that grows with the rows alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGITS = 1 << 21
"""Comparisons that are held at once (8 MiB in float32); batches up to 1,448 are one block."""


def mean_of_rows(block: Callable[[slice], Tensor], rows: int, columns: int) -> Tensor:
    """Mean over rows of a loss that compares each row with ``columns`` others."""
    # Above `LOGITS` comparisons it is made of blocks of rows, each of which is computed once more
    # in the backward pass, so that one block at a time is in memory.
    height = max(1, LOGITS // max(columns, 1))
    if rows <= height:
        return block(slice(0, rows))
    parts = [slice(start, min(start + height, rows)) for start in range(0, rows, height)]
    sums = [_again(block, part) * (part.stop - part.start) for part in parts]
    return torch.stack(sums).sum() / rows


def _again(block: Callable[[slice], Tensor], part: slice) -> Tensor:
    """A block of which only the result is kept for the backward pass."""
    if not torch.is_grad_enabled():
        return block(part)
    # Nothing random happens here, so torch's generator need not be set back.
    result: Tensor = checkpoint(block, part, use_reentrant=False, preserve_rng_state=False)
    return result


def full(vectors: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it came so."""
    return vectors if vectors.dtype == torch.float64 else vectors.float()


@contextmanager
def full_precision(like: Tensor) -> Iterator[None]:
    """Switch autocast off: it would turn matrix products of float32 into half precision again."""
    with torch.autocast(device_type=like.device.type, enabled=False):
        yield
