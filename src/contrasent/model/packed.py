"""BERT and RoBERTa without padding: the same weights and mathematics as the backbone's forward."""

# Products and norms see real tokens alone; attention runs over groups of rows of one length.

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from contrasent.model import dropout
from contrasent.model.packed_layers import add_norm, attend, drop, gelu_linear, linear
from contrasent.model.packing import Group, Packing
from contrasent.types import Tokens

KINDS = {"BertModel": 0, "RobertaModel": 1}
"""Backbones that are known here, and what their positions count from, in pad tokens + 1."""


def supports_backbone(backbone: nn.Module) -> bool:
    """Whether a backbone's forward is the one written out here."""
    config: Any = backbone.config
    layers = backbone.modules()
    return (
        type(backbone).__name__ in KINDS
        and type(backbone).__module__.startswith("transformers.")
        and config.hidden_act == "gelu"
        and getattr(config, "position_embedding_type", "absolute") in ("absolute", None)
        and not config.is_decoder
        and not config.add_cross_attention
        and config._attn_implementation == dropout.ATTENTION
        and all(type(m) is nn.Linear for m in layers if isinstance(m, nn.Linear))
    )


def supports_batch(backbone: nn.Module, tokens: Tokens) -> bool:
    """Whether this module can compute a batch: on CPU, without hooks."""
    weight = next(backbone.parameters())
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    if torch.is_autocast_enabled("cpu"):
        kinds = weight.dtype, torch.get_autocast_dtype("cpu")
        if kinds != (torch.float32, torch.bfloat16):
            return False
    config: Any = backbone.config
    if KINDS[type(backbone).__name__] and bool((tokens.ids == config.pad_token_id).any()):
        return False  # RoBERTa's positions do not count padding that is written in the text
    return not any(m._forward_hooks or m._forward_pre_hooks for m in backbone.modules())


def states(
    backbone: nn.Module, packing: Packing, *, all_layers: bool = False, firsts: bool = False
) -> tuple[Tensor, ...]:
    """Hidden states of packed rows."""
    # Returns hidden states, each (T, d); the last one (n, d) with `firsts`, rows in packed order.
    whole: Any = backbone
    x = _embed(whole, packing)
    found = [x]
    layers = list(whole.encoder.layer)
    for layer in layers[:-1] if firsts else layers:
        x = _layer(layer, x, packing.groups)
        found.append(x)
    if firsts:
        found.append(_last_layer_of_firsts(layers[-1], x, packing))
    return tuple(found) if all_layers else (found[-1],)


def _embed(backbone: Any, packing: Packing) -> Tensor:
    parts = backbone.embeddings
    begin = KINDS[type(backbone).__name__] * (backbone.config.pad_token_id + 1)
    words = parts.word_embeddings(packing.ids)
    places = parts.position_embeddings(packing.places + begin)
    x: Tensor = parts.LayerNorm(words + parts.token_type_embeddings.weight[0] + places)
    return drop(x, _p(parts.dropout))


def _layer(layer: Any, x: Tensor, groups: tuple[Group, ...]) -> Tensor:
    own, out = layer.attention.self, layer.attention.output
    qkv, x = linear(x, own.query, own.key, own.value)
    heads: int = own.num_attention_heads
    if torch.is_grad_enabled() or _p(own.dropout):
        mixed = attend(qkv, groups, heads, _p(own.dropout))
    else:
        mixed = _attend_without_gradient(qkv, groups, heads)
    return _feed_forward(layer, add_norm(mixed, x, out.dense, out.LayerNorm, _p(out.dropout)))


def _feed_forward(layer: Any, x: Tensor) -> Tensor:
    inner, x = gelu_linear(x, layer.intermediate.dense)
    out = layer.output
    return add_norm(inner, x, out.dense, out.LayerNorm, _p(out.dropout))


def _attend_without_gradient(qkv: Tensor, groups: tuple[Group, ...], heads: int) -> Tensor:
    """Attention by torch's fused kernel, which has no dropout on CPU."""
    parts = []
    for block, group in zip(
        torch.split(qkv, [g.count * g.length for g in groups]), groups, strict=True
    ):
        q, k, v = block.view(group.count, group.length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        parts.append(mixed.transpose(1, 2).reshape(group.count * group.length, -1))
    return torch.cat(parts)


def _last_layer_of_firsts(layer: Any, x: Tensor, packing: Packing) -> Tensor:
    """The layer's output at the first tokens, (n, d): queries of these, keys and values of all."""
    own = layer.attention.self
    first = x[packing.firsts]
    both, _ = linear(x, own.key, own.value)
    heads: int = own.num_attention_heads
    queries = own.query(first).view(len(first), heads, 1, -1) * own.scaling
    mixed = []
    counts = [group.count for group in packing.groups]
    for q, part in zip(queries.split(counts), packing.split(both), strict=True):
        k, v = part.view(*part.shape[:2], 2, heads, -1).permute(2, 0, 3, 1, 4)
        share = drop((q @ k.mT).softmax(-1), _p(own.dropout))
        mixed.append((share @ v).view(len(q), -1))
    out = layer.attention.output
    x = add_norm(torch.cat(mixed), first, out.dense, out.LayerNorm, _p(out.dropout))
    return _feed_forward(layer, x)


def _p(part: nn.Dropout) -> float:
    return part.p if part.training else 0.0
