"""Similarities of vectors, in full precision and in memory that grows with the rows alone."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contrasent.errors import OptionError, check_choice

LOGITS = 1 << 21
"""Comparisons that are held at once (8 MiB in float32); batches up to 1,448 are one block."""


def mean_of_rows(block: Callable[[slice], Tensor], rows: int, columns: int) -> Tensor:
    """Mean over rows of a loss that compares each row with ``columns`` others.

    Above ``LOGITS`` comparisons it is made of blocks of rows, each of which is computed once more
    in the backward pass, so that one block at a time is in memory.
    """
    height = max(1, LOGITS // max(columns, 1))
    if rows <= height:
        return block(slice(0, rows))
    parts = [slice(start, min(start + height, rows)) for start in range(0, rows, height)]
    # Nothing here is random, so torch's generator need not be reset.
    how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    sums = [checkpoint(block, part, **how) * (part.stop - part.start) for part in parts]
    return torch.stack(sums).sum() / rows


def full(vectors: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it came so."""
    return vectors if vectors.dtype == torch.float64 else vectors.float()


@contextmanager
def full_precision(like: Tensor) -> Iterator[None]:
    """Switch autocast off: it would turn matrix products of float32 into half precision again."""
    with torch.autocast(device_type=like.device.type, enabled=False):
        yield


Similarity = Literal["cosine", "dot"]
"""How two vectors are compared: by cosine, or by inner product."""
EPSILON = 1e-8


def mean_cosines(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine of row i of ``a`` with row i of ``b``, and of row i with the rows j != i.

    Args:
        a: (n, d).
        b: (n, d).

    Returns:
        Two scalars, float32 or float64; of one row alone the second is 0.
    """
    with full_precision(a):
        left, right = normalized(a, "cosine"), normalized(b, "cosine")
        pairs = (left * right).sum(dim=1)
        # All cosines together are the product of the sums: no matrix of them is needed.
        others = left.sum(dim=0) @ right.sum(dim=0) - pairs.sum()
    return pairs.mean(), others / max(len(pairs) * (len(pairs) - 1), 1)


def pair_cosines(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of row i of ``a`` with row i of ``b``.

    Args:
        a: (n, d).
        b: (n, d).

    Returns:
        (n,) float32 or float64, in [-1, 1].
    """
    with full_precision(a):
        return (normalized(a, "cosine") * normalized(b, "cosine")).sum(dim=1)


def normalized(vectors: Tensor, kind: Similarity) -> Tensor:
    """The vectors in full precision, divided by their length if the similarity is the cosine."""
    check_choice("similarity", kind, get_args(Similarity))
    vectors = full(vectors)
    return F.normalize(vectors, dim=-1, eps=EPSILON) if kind == "cosine" else vectors


def check_temperature(temperature: float, option: str = "temperature") -> None:
    """Reject a temperature that is not a positive number."""
    if not 0 < temperature < math.inf:
        raise OptionError(option, temperature, "must be greater than 0, such as 0.05")
