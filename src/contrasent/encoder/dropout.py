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
    # Four 16-bit draws of each number: p is a multiple of 1/65536, which the scale takes exactly.
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
    drawn = draw_mask(x, p)
    if drawn.mask is None:
        return x
    result: Tensor = _Drop.apply(x, *drawn)  # type: ignore[no-untyped-call]
    return result


class _Drop(torch.autograd.Function):
    """x * mask * scale, whose mask is drawn again for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float, again: Any) -> Tensor:
        ctx.scale, ctx.again = scale, again
        return torch.addcmul(x.new_zeros(()), x, mask, value=scale)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        mask = ctx.again()
        zero = grad.new_zeros(())
        return torch.addcmul(zero, grad, mask, value=ctx.scale, out=mask), None, None, None


class Dropout(nn.Dropout):
    """``nn.Dropout`` with this module's masks."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same shape out."""
        return drop(x, self.p) if self.training else x


def take_over(backbone: nn.Module) -> None:
    """Replace every dropout module of a backbone by this module's."""
    for parent in list(backbone.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p).train(child.training))


def configure(config: Any, hidden: float | None, attention: float | None) -> None:
    """Write dropout probabilities into a transformers configuration, before weights are loaded."""
    for option, value, keys in (
        ("dropout", hidden, HIDDEN_KEYS),
        ("attention_dropout", attention, ATTENTION_KEYS),
    ):
        if value is None:
            continue
        if not 0 <= value < 1:
            raise OptionError(option, value, "must be a probability in [0, 1)")
        known = [key for key in keys if hasattr(config, key)]
        # Where an architecture has no hidden dropout, pooled states are dropped from, and where
        # it has none for attention, the hidden one may be all that is meant.
        if not known and option == "attention_dropout" and value != hidden:
            raise ModelError(f"{config.model_type}: {option} cannot be set for this kind of model")
        for key in known:
            setattr(config, key, value)


def without_place(config: Any, hidden: float | None) -> float:
    """The part of the hidden dropout without a place in the architecture: 0, or all of it."""
    placed = hidden is None or any(hasattr(config, key) for key in HIDDEN_KEYS)
    return 0.0 if placed else float(hidden or 0)


@contextmanager
def off(module: nn.Module) -> Iterator[None]:
    """Switch off all dropout below a module, attention included, and restore it afterwards."""
    # In every sub-module: attention reads the flag of its own module, not of an ``nn.Dropout``.
    were = [(m, m.training) for m in module.modules()]
    for m, _ in were:
        m.training = False
    try:
        yield
    finally:
        for m, training in were:
            m.training = training
