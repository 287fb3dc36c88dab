"""Losses over tokens: masked language modelling and what DiffCSE's discriminator predicts."""

# Across processes a mean of means is not the mean over tokens: `count` is the number to divide by.

from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor

from contrasent.errors import check_choice
from contrasent.losses.similarity import full, full_precision

Normalisation = Literal["mean_with_padding", "mean_tokens", "sum"]
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
    normalisation: Normalisation = "mean_with_padding",
    count: Count | None = None,
) -> Tensor:
    r"""Two-way detection at every token: replaced, inserted, or preceded by a deletion.

    The replaced-token detection of DiffCSE (section 3): with p_t the probability of class y_t,

    .. math:: l = -\sum_{sentences} \sum_t \log p_t

    The normalisation decides what lambda means, so it has a name. "sum" is the paper's text.
    "mean_with_padding" is the released code, and what the published lambda of 0.005 belongs to: the
    mean over all n * L positions, where padding counts as class 0. "mean_tokens" is the mean over
    real tokens, which does not depend on how rows are padded. At 20 tokens a sentence and
    64 sentences, "sum" is about 1,300 times "mean_tokens".

    Args:
        logits: (n, L, 2), scores of class 0 (original) and 1 (changed).
        labels: (n, L) bool or int, 1 where changed; ignored on padding.
        mask: (n, L) bool, true on real tokens.
        normalisation: "mean_with_padding", "mean_tokens" or "sum".
        count: what the sum is divided by, instead of what the normalisation says.

    Returns:
        A scalar.

    Raises:
        OptionError: the normalisation is unknown.
    """
    check_choice("normalisation", normalisation, get_args(Normalisation))
    with full_precision(logits):
        targets = (labels.bool() & mask).long()
        each = F.cross_entropy(full(logits).flatten(0, 1), targets.flatten(), reduction="none")
        if normalisation == "mean_with_padding":
            return each.sum() / (each.numel() if count is None else count)
        total = each[mask.flatten()].sum()
        if count is None:
            count = 1 if normalisation == "sum" else mask.sum().clamp_min(1)
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
    r"""Corrective language modelling: recover the original of edited tokens (DiffCSE, Table 3).

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
        modelling = -language.logaddexp(keep).sum()
        divisor = max(len(scores), 1) if count is None else count
        return (modelling + copy_weight * copying) / divisor
