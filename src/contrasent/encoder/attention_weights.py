"""Where the heads of an encoder look: entropy of attention, and the weight on the first token."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent.encoder.attention import by_length
from contrasent.encoder.backbone import PooledBackbone, is_causal

SINK = 0.9
"""A head that gives the first token more than this share of its weight ignores the text."""
LEAST = 0.5
"""Nats of entropy, the mean of a layer: below it attention has collapsed."""


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Means over all tokens of some texts, each (layers, heads) float64.

    Attributes:
        entropy: of the weights that a token gives, in nats.
        first: the weight on the first token, which is [CLS] in BERT.
    """

    entropy: NDArray[np.float64]
    first: NDArray[np.float64]

    def warning(self) -> str:
        """A line about heads and layers that do not look at the text; empty if there are none."""
        parts = []
        if sinks := self.sinks:
            layers = sorted({layer for layer, _ in sinks})
            named = "; ".join(
                f"layer {n}: {', '.join(str(head) for layer, head in sinks if layer == n)}"
                for n in layers
            )
            parts.append(
                f"{len(sinks)} of {self.first.size} heads give the first token more than "
                f"{100 * SINK:.0f} % of their weight ({named})"
            )
        means = self.entropy.mean(1)
        if low := [f"{n} ({m:.2f})" for n, m in enumerate(means, 1) if m < LEAST]:
            parts.append(f"layers with less than {LEAST} nats of entropy: {', '.join(low)}")
        if not parts:
            return ""
        meaning = "such a head adds the same vector for every text"
        advice = (
            "a whole layer of them is a pre-training defect; contrastive training then "
            "improves little (research/pretrain.md gives a remedy)"
        )
        return f"attention: {'; '.join(parts)}: {meaning}; {advice}"

    @property
    def sinks(self) -> list[tuple[int, int]]:
        """Heads that look at the first token alone, as (layer, head) from 1."""
        return [(int(layer) + 1, int(head) + 1) for layer, head in np.argwhere(self.first > SINK)]


def attention_of(encoder: PooledBackbone, texts: Sequence[str]) -> Attention | None:
    """The attention of an encoder on texts; None of a decoder, whose first token must be a sink."""
    config: Any = encoder.backbone.config
    if is_causal(encoder.backbone) or not getattr(config, "is_causal", True):
        return None  # it is one, or was in its pre-training
    tokens = encoder.tokenizer(texts)[0]
    blocks = (encoder.padded(tokens.select(rows)) for rows in by_length(tokens.lengths))
    return measured(encoder.backbone, blocks)


def measured(backbone: nn.Module, blocks: Iterator[tuple[Tensor, Tensor]]) -> Attention | None:
    """The same of padded blocks, ids (n, t) and mask; None where weights are not given."""
    # A copy: where weights of attention are asked for, transformers leaves hooks behind.
    probe: Any = copy.deepcopy(backbone).eval()
    try:
        probe.set_attn_implementation("eager")
    except ValueError:
        return None
    sums: Tensor | None = None
    count = 0
    for ids, mask in blocks:
        with torch.no_grad():
            output = probe(
                input_ids=ids, attention_mask=mask.long(), output_attentions=True, return_dict=True
            )
        layers = getattr(output, "attentions", None) or ()
        square = (*ids.shape, ids.shape[1])
        if not layers or any((w.shape[0], *w.shape[2:]) != square for w in layers):
            return None
        found = torch.stack([_sums(weights.float(), mask) for weights in layers], 1)
        sums = found if sums is None else sums + found
        count += int(mask.sum())
    if sums is None:
        return None
    entropy, first = (sums / count).double().cpu().numpy()
    return Attention(entropy, first)


def _sums(weights: Tensor, mask: Tensor) -> Tensor:
    """Entropy and first weight, (2, heads), summed over real tokens; weights (n, h, t, t)."""
    real = mask[:, None].to(weights.dtype)
    entropy = torch.special.entr(weights).sum(-1)
    return torch.stack([(part * real).sum((0, 2)) for part in (entropy, weights[..., 0])])
