"""Poolers: from token vectors to one vector a sentence.

Each takes all hidden states (a tuple of layers + 1 tensors of shape (n, t, d), the embedding output
first) and the mask (n, t), true on real tokens, and gives (n, d). ``at_mask`` takes a mask that is
true on the mask token alone, as :func:`mask_token` finds it in the ids. "First-last" means two
things in the literature, so there are two names: SimCSE's paper table was computed with the
embedding output (here ``embeddings_last``), its later code and BERT-whitening average layer 1 and
the last layer (here ``first_last``).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from contrasent.errors import ModelError, check_choice

Hidden = tuple[Tensor, ...]
Pooler = Callable[[Hidden, Tensor], Tensor]


def cls(hidden: Hidden, mask: Tensor) -> Tensor:
    """The first token's vector in the last layer (SimCSE, section 6.1)."""
    return hidden[-1][:, 0]


def mean(hidden: Hidden, mask: Tensor) -> Tensor:
    """Mean over the real tokens of the last layer."""
    return _mean(hidden[-1], mask)


def maximum(hidden: Hidden, mask: Tensor) -> Tensor:
    """Maximum over the real tokens of the last layer, dimension by dimension."""
    return hidden[-1].masked_fill(~mask[..., None], torch.finfo(hidden[-1].dtype).min).amax(1)


def first_last(hidden: Hidden, mask: Tensor) -> Tensor:
    """Token mean of layer 1 and of the last layer, averaged (BERT-whitening, SimCSE's code)."""
    return _mean((hidden[1] + hidden[-1]) / 2, mask)


def embeddings_last(hidden: Hidden, mask: Tensor) -> Tensor:
    """Token mean of the embedding output and of the last layer, averaged (SimCSE, Table 5)."""
    return _mean((hidden[0] + hidden[-1]) / 2, mask)


def last_two(hidden: Hidden, mask: Tensor) -> Tensor:
    """Token mean of the last two layers, averaged ("avg_top2" in SimCSE's code)."""
    return _mean((hidden[-2] + hidden[-1]) / 2, mask)


def at_mask(hidden: Hidden, mask: Tensor) -> Tensor:
    """The last layer's vector at the mask token (PromptBERT, Jiang et al. 2022, section 3.2)."""
    return hidden[-1][mask]


def mask_token(ids: Tensor, mask: int | None) -> Tensor:
    """Which token ``at_mask`` takes, (n, t) bool: the last, if a sentence has mask tokens too.

    Args:
        ids: (n, t) token ids.
        mask: id of the mask token, None if the vocabulary has none.

    Raises:
        ModelError: a row has no mask token.
    """
    found = ids == (-1 if mask is None else mask)
    if not bool(found.any(1).all()):
        raise ModelError(
            "pooling at the mask token: a text has none; the model needs a template with [MASK] as "
            "its prompt, as objective promptbert saves it"
        )
    return found & (found.flip(1).cumsum(1).flip(1) == 1)


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    weights = mask[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


POOLERS: dict[str, Pooler] = {
    "cls": cls,
    "mean": mean,
    "max": maximum,
    "first_last": first_last,
    "embeddings_last": embeddings_last,
    "last_two": last_two,
    "mask": at_mask,
}


def check_pooler(name: str) -> None:
    """Refuse a name that is none of a pooler.

    Raises:
        OptionError: there is none; the nearest name is suggested.
    """
    check_choice("pooler", name, POOLERS)


def pooler(name: str) -> Pooler:
    """The pooler of that name.

    Raises:
        OptionError: there is none; the nearest name is suggested.
    """
    check_pooler(name)
    return POOLERS[name]


def layer_weights(name: str, layers: int) -> list[float] | None:
    """Weights of the layers + 1 hidden states that a pooler averages, or None for the last alone.

    This is how a pooler over several layers is written into a model folder that others read.
    """
    picked = {"first_last": (1, layers), "embeddings_last": (0, layers)}
    picked["last_two"] = (layers - 1, layers)
    if name not in picked:
        return None
    return [float(i in picked[name]) for i in range(layers + 1)]
