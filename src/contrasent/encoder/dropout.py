"""Dropout, under the library's control.

Masks are a function of torch's random state alone. On CPU four are cut from a 64-bit number of
SFC64: the probability is a multiple of 1/65536, and the scaling uses that exact value.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from contrasent.errors import ModelError, OptionError

ATTENTION = "contrasent"
HIDDEN_KEYS = (
    "hidden_dropout_prob", "hidden_dropout", "dropout", "dropout_rate", "embedding_dropout",
    "mlp_dropout", "resid_pdrop", "embd_pdrop",
)  # fmt: skip
ATTENTION_KEYS = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")


class Mask(NamedTuple):
    """A drawn dropout mask."""

    mask: Tensor | None  # ones and zeros, or None if everything is kept
    scale: float
    # draws the same mask again, so that a backward pass need not store it, which would take as many
    # bytes as the values
    again: Callable[[], Tensor | None] = lambda: None


def draw_mask(x: Tensor, p: float) -> Mask:
    """Draw a mask of the shape and type of x, zero with probability p; on CPU."""
    threshold = min(max(round(p * 65536), 0), 65535)
    if threshold == 0:
        return Mask(None, 1.0)
    seed = int(torch.randint(2**63 - 1, (), dtype=torch.int64, device="cpu"))
    draw = partial(_mask, seed, threshold, x.shape, x.dtype)
    return Mask(draw(), 65536 / (65536 - threshold), draw)


def _mask(seed: int, threshold: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    generator = np.random.Generator(np.random.SFC64(seed))
    count = shape.numel()
    draws = generator.integers(0, 2**64 - 1, (count + 3) // 4, np.uint64, endpoint=True)
    lanes = torch.from_numpy(draws.view(np.int16)[:count]).view(shape)
    return torch.ge(lanes, threshold - 32768, out=torch.empty(shape, dtype=dtype))


def drop(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p)."""
    if p <= 0:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, p, True)
    mask, scale, _ = draw_mask(x, p)
    return x if mask is None else x * mask.mul_(scale)


class Dropout(nn.Dropout):
    """``nn.Dropout`` with this module's masks."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same shape out."""
        return drop(x, self.p) if self.training else x


def take_over(backbone: nn.Module) -> None:
    """Replace every dropout of a backbone, attention included, by this module's."""
    for parent in list(backbone.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p).train(child.training))
    config: Any = backbone.config
    if getattr(config, "_attn_implementation", None) == "sdpa":
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

        AttentionInterface.register(ATTENTION, _attend)
        AttentionMaskInterface.register(ATTENTION, sdpa_mask)
        backbone.set_attn_implementation(ATTENTION)  # type: ignore[operator]


def configure(config: Any, hidden: float | None, attention: float | None) -> None:
    """Write dropout probabilities into a transformers configuration, before weights are loaded."""
    for option, value, keys in (
        ("dropout", hidden, HIDDEN_KEYS),
        ("attention_dropout", attention, ATTENTION_KEYS),
    ):
        if value is None:
            continue
        if not 0 <= value < 1:
            raise OptionError(option, value, "a probability in [0, 1) is needed")
        known = [key for key in keys if hasattr(config, key)]
        # Where an architecture has no hidden dropout, pooled states are dropped from, and where
        # it has none for attention, the hidden one may be all that is meant.
        if not known and option == "attention_dropout" and value != hidden:
            raise ModelError(f"{config.model_type}: no {option} can be set for this kind of model")
        for key in known:
            setattr(config, key, value)


def without_place(config: Any, hidden: float | None) -> float:
    """The part of the hidden dropout without a place in the architecture: 0, or all of it."""
    placed = hidden is None or any(hasattr(config, key) for key in HIDDEN_KEYS)
    return 0.0 if placed else float(hidden or 0)


@contextmanager
def off(module: nn.Module) -> Iterator[None]:
    """Switch off all dropout below a module, attention included, and restore it afterwards.

    Every sub-module's ``training`` is cleared: attention reads the flag of the attention module,
    not of an ``nn.Dropout``, so that switching the dropout modules alone would leave it on.
    """
    were = [(m, m.training) for m in module.modules()]
    for m, _ in were:
        m.training = False
    try:
        yield
    finally:
        for m, training in were:
            m.training = training


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention by torch's fused kernel; with dropout on CPU, by plain products and our masks."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    special = any(kwargs.get(name) is not None for name in ("position_bias", "softcap"))
    causal = kwargs.get("is_causal")  # a decoder's; its mask, where it is that alone, is left out
    causal = getattr(module, "is_causal", True) if causal is None else causal
    shared = getattr(module, "num_key_value_groups", 1) > 1
    if dropout <= 0 or query.device.type != "cpu" or special or causal or shared:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return output, None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    if attention_mask is not None:
        if attention_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + attention_mask
    weights = drop(scores.softmax(-1), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None
