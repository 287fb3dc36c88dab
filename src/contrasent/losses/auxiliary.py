"""Losses beside the contrastive one: between the dimensions of two views, and over tokens.

Across processes gather the rows of dimensions first: the statistics are those of the whole batch.
For tokens, a mean of means is not the mean over tokens: `count` is the number to divide by.
"""

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from contrasent.errors import OptionError, check_choice
from contrasent.losses.similarity import full, full_precision

Norm = Literal["batch", "none"]  # whether columns are standardized over the batch
Variance = Literal["biased", "unbiased"]  # whether a variance divides by n or by n - 1
Reduction = Literal["mean", "sum"]  # how the losses of dimensions are combined
BarlowNorm = Literal["batch", "length"]
"""Whether columns are standardized over the batch, or divided by their length."""
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

    with each column standardized over the batch. The defaults are those of the released code:
    biased variance, the inner product divided by the number of rows, the mean over dimensions.
    The paper's text is ``variance="unbiased", divide_by_rows=False, reduction="sum"``, whose
    gradient is about 10,000 times as large (research/methods.md, "Terms without effect").

    Args:
        first: (n, d), one view; n >= 2.
        second: (n, d), the other view of the same sentences.
        temperature: tau of this loss.
        norm: "batch" standardizes every column of a view; "none" takes the vectors as they are.
        variance: "biased" divides by n, "unbiased" by n - 1.
        divide_by_rows: divide the inner product by n.
        reduction: "mean" or "sum" over the d dimensions.
        epsilon: added to the variance, as in batch normalization.

    Returns:
        A scalar.

    Raises:
        OptionError: tau is not positive, or a name is unknown.
        ValueError: the shapes differ, or a batch of one row cannot be standardized.
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
            columns = [_standardized(view, variance, epsilon) for view in columns]
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
        norm: "batch" standardizes the columns and divides by the number of rows (released code);
            "length" divides the columns by their length without centering them (equation 4).
        epsilon: added to the variance, as in batch normalization.

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
            left, right = (_standardized(view, "biased", epsilon) for view in views)
            correlation = left.T @ right / len(left)
        else:
            left, right = (F.normalize(view, dim=0, eps=1e-8) for view in views)
            correlation = left.T @ right
        diagonal = correlation.diagonal()
        on = (1 - diagonal).square().sum()
        off = correlation.square().sum() - diagonal.square().sum()
        return on + off_diagonal * off


def _standardized(view: Tensor, variance: Variance, epsilon: float) -> Tensor:
    """Every column with mean 0 and variance 1 over the rows."""
    if len(view) < 2:
        raise ValueError("standardization needs a batch of two rows or more")
    centered = view - view.mean(dim=0)
    rows = len(view) - (variance == "unbiased")
    return centered / (centered.square().sum(dim=0) / rows + epsilon).sqrt()


def _same_shape(first: Tensor, second: Tensor) -> None:
    if first.shape != second.shape or first.dim() != 2:
        raise ValueError(
            f"the two views have different shapes, {tuple(first.shape)} and {tuple(second.shape)}"
        )


Normalization = Literal["mean_with_padding", "mean_tokens", "sum"]
"""How the losses of tokens are combined, see ``token_detection``."""
Count = float | Tensor


def masked_lm(logits: Tensor, labels: Tensor, *, count: Count | None = None) -> Tensor:
    """Cross entropy of the original tokens at the masked positions (SimCSE, appendix A).

    Args:
        logits: (k, vocabulary), one row for each masked position.
        labels: (k,) the original ids.
        count: what the sum is divided by; k if not given. Without any masked position the loss
            is 0 and has a gradient of 0.

    Returns:
        A scalar.
    """
    with full_precision(logits):
        total = F.cross_entropy(full(logits), labels, reduction="sum")
        return total / (max(len(labels), 1) if count is None else count)


def token_detection(
    logits: Tensor,
    labels: Tensor,
    mask: Tensor,
    *,
    normalization: Normalization = "mean_with_padding",
    count: Count | None = None,
) -> Tensor:
    r"""Detect whether each token was replaced, inserted, or preceded by a deletion.

    The replaced-token detection of DiffCSE (section 3): with p_t the probability of class y_t,

    .. math:: l = -\sum_{sentences} \sum_t \log p_t

    The normalization determines the scale of lambda. "sum" is the paper's text.
    "mean_with_padding" is the released code, and what the published lambda of 0.005 belongs to: the
    mean over all n * L positions, where padding counts as class 0. "mean_tokens" is the mean over
    real tokens, which does not depend on how rows are padded. At 20 tokens a sentence and
    64 sentences, "sum" is about 1,300 times "mean_tokens".

    Args:
        logits: (n, L, 2), scores of class 0 (original) and 1 (changed).
        labels: (n, L) bool or int, 1 where changed; ignored on padding.
        mask: (n, L) bool, true on real tokens.
        normalization: "mean_with_padding", "mean_tokens" or "sum".
        count: what the sum is divided by, instead of what the normalization says.

    Returns:
        A scalar.

    Raises:
        OptionError: the normalization is unknown.
    """
    check_choice("normalization", normalization, get_args(Normalization))
    with full_precision(logits):
        targets = (labels.bool() & mask).long()
        each = F.cross_entropy(full(logits).flatten(0, 1), targets.flatten(), reduction="none")
        if normalization == "mean_with_padding":
            return each.sum() / (each.numel() if count is None else count)
        total = each[mask.flatten()].sum()
        if count is None:
            count = 1 if normalization == "sum" else mask.sum().clamp_min(1)
        return total / count


def corrective_lm(
    token_logits: Tensor,
    originals: Tensor,
    copied: Tensor,
    copy_logits: Tensor,
    unchanged: Tensor,
    masked: Tensor,
    *,
    copy_weight: float = 50.0,
    count: Count | None = None,
) -> Tensor:
    r"""Corrective language modeling: recover the original of edited tokens (DiffCSE, Table 3).

    The form of COCO-LM (Meng et al., 2021, section 3), which DiffCSE names without details: a copy
    probability p_copy decides whether the token seen is kept, trained on all tokens; the language
    model is trained at the masked positions through the mixture, p_copy held constant there.

    .. math::

        l = \frac{1}{K} \sum_{t \in masked} -\log\left(1(x_t = x''_t)\, p_{copy,t}
            + (1 - p_{copy,t})\, p_{LM}(x_t)\right)
            + \frac{w}{K} \sum_t BCE(p_{copy,t}, 1(x_t = x''_t))

    Args:
        token_logits: (k, vocabulary), at the masked positions.
        originals: (k,) ids of the original tokens there.
        copied: (k,) bool, true where the generator gave the original token.
        copy_logits: (t,), one for every real token of the batch.
        unchanged: (t,) bool, true where the token seen is the original.
        masked: (t,) bool, true at the k masked positions, in the order of ``token_logits``.
        copy_weight: w.
        count: K, what the sums are divided by; the number of real tokens t if not given.

    Returns:
        A scalar.
    """
    with full_precision(token_logits):
        scores = full(copy_logits)
        copying = F.binary_cross_entropy_with_logits(
            scores, unchanged.to(scores.dtype), reduction="sum"
        )
        copies = scores.detach()[masked]
        logs = F.log_softmax(full(token_logits), dim=-1)
        language = logs.gather(1, originals[:, None]).squeeze(1) + F.logsigmoid(-copies)
        keep = F.logsigmoid(copies).masked_fill(~copied, float("-inf"))
        modeling = -language.logaddexp(keep).sum()
        divisor = max(len(scores), 1) if count is None else count
        return (modeling + copy_weight * copying) / divisor
