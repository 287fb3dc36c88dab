"""Poolers: from token vectors to one vector a sentence.

Each takes all hidden states (a tuple of layers + 1 tensors of shape (n, t, d), the embedding output
first) and the mask (n, t), true on real tokens, and gives (n, d). ``at_mask`` takes a mask that is
true on the mask token alone, as :func:`mask_token` finds it in the ids. "First-last" means two
things in the literature, so there are two names: SimCSE's paper table was computed with the
embedding output (here ``embeddings_last``), its later code and BERT-whitening average layer 1 and
the last layer (here ``first_last``).
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from contrasent.errors import ModelError, check_choice

Hidden = tuple[Tensor, ...]
Pooler = Callable[[Hidden, Tensor], Tensor]


AVERAGED = {"first_last": (1, -1), "embeddings_last": (0, -1), "last_two": (-2, -1)}
"""Of poolers that average two hidden states, and then their tokens, which: layer 1 and the last
(BERT-whitening, SimCSE's code); the embedding output and the last (SimCSE, Table 5); the last two
("avg_top2" in SimCSE's code)."""


def at_mask(hidden: Hidden, mask: Tensor) -> Tensor:
    """The last layer's vector at the mask token (PromptBERT, Jiang et al. 2022, section 3.2).

    ``hidden``: states (n, t, d) of the layers. ``mask``: (n, t), true on the mask token of each
    row.
    """
    return hidden[-1][mask]


def mask_token(ids: Tensor, mask: int | None) -> Tensor:
    """Which token ``at_mask`` takes, (n, t) bool: the last, if a sentence has mask tokens too.

    ``ids``: (n, t) token ids.
    """
    found = ids == (-1 if mask is None else mask)
    if not bool(found.any(1).all()):
        raise ModelError(
            "pooling at the mask token: a text has none; the model needs a template with [MASK] as "
            "its prompt, as objective promptbert saves it"
        )
    return found & (found.flip(1).cumsum(1).flip(1) == 1)


def _first(hidden: Hidden, mask: Tensor) -> Tensor:
    """The first token's vector in the last layer (SimCSE, section 6.1)."""
    return hidden[-1][:, 0]


def _maximum(hidden: Hidden, mask: Tensor) -> Tensor:
    """Maximum over the real tokens of the last layer, dimension by dimension."""
    return hidden[-1].masked_fill(~mask[..., None], torch.finfo(hidden[-1].dtype).min).amax(1)


def _mean(hidden: Hidden, mask: Tensor, layers: tuple[int, ...] = (-1,)) -> Tensor:
    """Mean over the real tokens of one hidden state, or of the mean of two."""
    states = [hidden[layer] for layer in layers]
    whole = states[0] if len(states) == 1 else (states[0] + states[1]) / 2
    weights = mask[..., None].to(whole.dtype)
    return (whole * weights).sum(1) / weights.sum(1)


POOLERS: dict[str, Pooler] = {
    "cls": _first,
    "mean": _mean,
    "max": _maximum,
    **{name: partial(_mean, layers=layers) for name, layers in AVERAGED.items()},
    "mask": at_mask,
}


def check_pooler(name: str) -> None:
    """Refuse a name that is none of a pooler."""
    check_choice("pooler", name, POOLERS)


def pooler(name: str) -> Pooler:
    """The pooler of that name."""
    check_pooler(name)
    return POOLERS[name]


def layer_weights(name: str, layers: int) -> list[float] | None:
    """Weights of the layers + 1 hidden states that a pooler averages, or None for the last alone.

    This is how a pooler over several layers is written into a model folder that others read.
    """
    if name not in AVERAGED:
        return None
    picked = {layer % (layers + 1) for layer in AVERAGED[name]}
    return [float(i in picked) for i in range(layers + 1)]
