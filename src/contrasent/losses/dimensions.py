"""Losses between the dimensions of two views: against feature corruption (SimCSE++, section 4)."""

# Across processes gather the rows first: the statistics are those of the whole batch.

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from contrasent.errors import OptionError, check_choice
from contrasent.losses.similarity import full, full_precision

Norm = Literal["batch", "none"]
Variance = Literal["biased", "unbiased"]
Reduction = Literal["mean", "sum"]
BarlowNorm = Literal["batch", "length"]
BATCH_NORM_EPSILON = 1e-5


def dimension_wise_contrast(
    first: Tensor,
    second: Tensor,
    *,
    temperature: float = 5.0,
    norm: Norm = "batch",
    variance: Variance = "biased",
    divide_by_rows: bool = True,
    reduction: Reduction = "mean",
    epsilon: float = BATCH_NORM_EPSILON,
) -> Tensor:
    r"""Dimension-wise contrastive learning, DCL (SimCSE++, section 4.3, equation 5).

    .. math::

        l = -\sum_c \log \frac{e^{s(z^1_{\cdot c}, z^2_{\cdot c})}}
            {\sum_d e^{s(z^1_{\cdot c}, z^2_{\cdot d})}}, \qquad
        s(z^1_{\cdot c}, z^2_{\cdot d}) = \sum_i \tilde z^1_{ic} \tilde z^2_{id} / \tau

    with each column standardised over the batch. The defaults are those of the released code:
    biased variance, the inner product divided by the number of rows, the mean over dimensions.
    The paper's text is ``variance="unbiased", divide_by_rows=False, reduction="sum"``; in that
    form the softmax over dimensions is nearly saturated and its gradient small.

    Args:
        first: (n, d), one view; n >= 2.
        second: (n, d), the other view of the same sentences.
        temperature: tau of this loss.
        norm: "batch" standardises every column of a view; "none" takes the vectors as they are.
        variance: "biased" divides by n, "unbiased" by n - 1.
        divide_by_rows: divide the inner product by n.
        reduction: "mean" or "sum" over the d dimensions.
        epsilon: added to the variance, as in batch normalisation.

    Returns:
        A scalar.

    Raises:
        OptionError: tau is not positive, or a name is unknown.
        ValueError: the shapes differ, or a column of one row is to be standardised.
    """
    if not 0 < temperature < math.inf:
        raise OptionError("temperature", temperature, "must be greater than 0, such as 5")
    check_choice("norm", norm, get_args(Norm))
    check_choice("variance", variance, get_args(Variance))
    check_choice("reduction", reduction, get_args(Reduction))
    _same_shape(first, second)
    with full_precision(first):
        columns = [full(first), full(second)]
        if norm == "batch":
            columns = [_standardised(view, variance, epsilon) for view in columns]
        logits = columns[0].T @ columns[1] / temperature
        if divide_by_rows:
            logits = logits / len(first)
        labels = torch.arange(len(logits), device=logits.device)
        return F.cross_entropy(logits, labels, reduction=reduction)


def barlow_twins(
    first: Tensor,
    second: Tensor,
    *,
    off_diagonal: float = 0.012,
    artificial: Tensor | None = None,
    norm: BarlowNorm = "batch",
    epsilon: float = BATCH_NORM_EPSILON,
) -> Tensor:
    r"""Barlow Twins, with artificial rows against its rank bottleneck (SimCSE++, 4.1 and 4.2).

    .. math::

        l = \sum_c (1 - C_{cc})^2 + \lambda \sum_c \sum_{d \ne c} C_{cd}^2

    C is the cross-correlation of the columns of the two views. The paper's equation 4 prints a
    minus sign before the first sum, which would drive the views apart; the code has none.

    Args:
        first: (n, d), one view.
        second: (n, d), the other view of the same sentences.
        off_diagonal: lambda; 0.012 in the released code.
        artificial: (M, d) rows of standard Gaussian noise, appended to both views (Table 2).
        norm: "batch" standardises the columns and divides by the number of rows (released code);
            "length" divides the columns by their length without centring them (equation 4).
        epsilon: added to the variance, as in batch normalisation.

    Returns:
        A scalar.

    Raises:
        OptionError: lambda is negative, or the norm is unknown.
        ValueError: the shapes do not fit together.
    """
    if not 0 <= off_diagonal < math.inf:
        raise OptionError("off_diagonal", off_diagonal, "must be 0 or more, such as 0.012")
    check_choice("norm", norm, get_args(BarlowNorm))
    _same_shape(first, second)
    with full_precision(first):
        views = [full(first), full(second)]
        if artificial is not None and len(artificial):
            views = [torch.cat([view, artificial.to(view)]) for view in views]
        if norm == "batch":
            left, right = (_standardised(view, "biased", epsilon) for view in views)
            correlation = left.T @ right / len(left)
        else:
            left, right = (F.normalize(view, dim=0, eps=1e-8) for view in views)
            correlation = left.T @ right
        diagonal = correlation.diagonal()
        on = (1 - diagonal).square().sum()
        off = correlation.square().sum() - diagonal.square().sum()
        return on + off_diagonal * off


def _standardised(view: Tensor, variance: Variance, epsilon: float) -> Tensor:
    """Every column with mean 0 and variance 1 over the rows."""
    if len(view) < 2:
        raise ValueError("a column of one row cannot be standardised; the batch needs two rows")
    centred = view - view.mean(dim=0)
    rows = len(view) - (variance == "unbiased")
    return centred / (centred.square().sum(dim=0) / rows + epsilon).sqrt()


def _same_shape(first: Tensor, second: Tensor) -> None:
    if first.shape != second.shape or first.dim() != 2:
        raise ValueError(f"two views of shapes {tuple(first.shape)} and {tuple(second.shape)}")
