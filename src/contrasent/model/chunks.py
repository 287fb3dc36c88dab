"""Cached gradients: a batch of any size in the memory of a small one.

The vectors of a batch are computed chunk by chunk and what the backward pass needs is thrown away;
when the loss has told each vector its gradient, the chunks are computed once more, one at a time,
with the same dropout masks, and carried backwards (Gao et al., 2021, "Scaling Deep Contrastive
Learning Batch Size under Memory Limited Setup", section 3.2). The gradient is the same; a step
costs one more forward pass.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contrasent.types import Tokens


def cut(lengths: NDArray[np.int64], rows: int) -> list[NDArray[np.int64]]:
    """Cut rows, sorted by length, into chunks that need about the same memory.

    There are as many chunks as ``rows`` rows each would make; each has about the same number of
    tokens, so that a chunk of long rows has fewer of them.

    Args:
        lengths: (n,) tokens of each row.
        rows: mean number of rows in a chunk.

    Returns:
        Row numbers of each chunk; together every row once.
    """
    order = np.argsort(lengths, kind="stable")
    count = -(-len(lengths) // rows)
    ends = np.cumsum(lengths[order])
    shares = ends[-1] * np.arange(1, count) / count
    places = np.searchsorted(ends, shares, side="right")
    return [part for part in np.split(order, places) if len(part)]


def replayed(work: Callable[[Tokens], Tensor], tokens: Tokens) -> Tensor:
    """``work(tokens)``, computed again in the backward pass with torch's random state as it was."""
    if not torch.is_grad_enabled():
        return work(tokens)
    result: Tensor = checkpoint(work, tokens, use_reentrant=False)
    return result
