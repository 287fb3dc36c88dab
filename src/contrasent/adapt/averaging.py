"""Weights between a base and what was trained from it.

Halfway along the straight line between the two, a model often keeps what training taught it and
regains what training cost it (Wortsman et al., 2022, Robust fine-tuning of zero-shot models; Xiao
et al., 2023, LM-Cocktail). It takes no training, and no time at inference.
"""

import copy

import torch

from contrasent.errors import ModelError, OptionError
from contrasent.model.encoder import Encoder


def average(base: Encoder, trained: Encoder, share: float) -> Encoder:
    """A new encoder with weights (1 - share) * base + share * trained.

    Args:
        base: where training began.
        trained: where it ended; the pooler, the head and the settings are its own.
        share: of the trained model, 0 to 1.

    Raises:
        OptionError: a share outside [0, 1].
        ModelError: the two do not have the same weights.
    """
    if not 0.0 <= share <= 1.0:
        raise OptionError("share", share, "must be from 0 to 1")
    result = copy.deepcopy(trained)
    before, after = base.state_dict(), result.state_dict()
    if {k: v.shape for k, v in before.items()} != {k: v.shape for k, v in after.items()}:
        raise ModelError("the trained model has other weights than its base; they have no average")
    with torch.no_grad():
        for name, value in after.items():
            if value.is_floating_point():
                value.mul_(share).add_(before[name].to(value.device), alpha=1.0 - share)
    return result.eval()
