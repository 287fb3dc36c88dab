"""Similarities of vectors: all pairs by one matrix product, or row by row."""

import math
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from contrasent.errors import OptionError, check_choice
from contrasent.losses._computing import full, full_precision

Similarity = Literal["cosine", "dot"]
SIMILARITIES = ("cosine", "dot")
EPSILON = 1e-8


def similarities(a: Tensor, b: Tensor, kind: Similarity = "cosine") -> Tensor:
    """Similarity of every row of ``a`` with every row of ``b``, by one matrix product.

    Args:
        a: (n, d).
        b: (m, d).
        kind: "cosine", in [-1, 1], or "dot".

    Returns:
        (n, m) float32, or float64 if the inputs are.

    Raises:
        OptionError: the kind is unknown.
    """
    with full_precision(a):
        return normalised(a, kind) @ normalised(b, kind).T


def mean_cosines(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine of row i of ``a`` with row i of ``b``, and of row i with the rows j != i.

    Args:
        a: (n, d).
        b: (n, d).

    Returns:
        Two scalars, float32 or float64; of one row alone the second is 0.
    """
    with full_precision(a):
        left, right = normalised(a, "cosine"), normalised(b, "cosine")
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
        return (normalised(a, "cosine") * normalised(b, "cosine")).sum(dim=1)


def normalised(vectors: Tensor, kind: Similarity) -> Tensor:
    """The vectors in full precision, divided by their length if the similarity is the cosine."""
    check_choice("similarity", kind, SIMILARITIES)
    vectors = full(vectors)
    return F.normalize(vectors, dim=-1, eps=EPSILON) if kind == "cosine" else vectors


def check_temperature(temperature: float, option: str = "temperature") -> None:
    """Reject a temperature that is not a positive number."""
    if not 0 < temperature < math.inf:
        raise OptionError(option, temperature, "must be greater than 0, such as 0.05")
