"""BERT and RoBERTa without padding: the backbone's mathematics, forward and backward by hand.

Products and norms see real tokens alone; attention runs over groups of rows of one length.
"""

from collections.abc import Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from contrasent.encoder import dropout
from contrasent.encoder.packing import Group, Packing
from contrasent.types import Tokens

Groups = tuple[Group, ...]


def add_norm(y: Tensor, x: Tensor, out: Any) -> Tensor:
    """LN(x + dropout(y W' + b)) (T, d) of y (T, a) and x (T, d), by a block's output layer."""
    dense, norm, p = out.dense, out.LayerNorm, _p(out.dropout)
    weights = dense.weight, dense.bias, norm.weight, norm.bias
    result: Tensor = _AddNorm.apply(y, x, *weights, norm.eps, p)  # type: ignore[no-untyped-call]
    return result


def linear(x: Tensor, *parts: nn.Linear) -> tuple[Tensor, Tensor]:
    """Several layers of x, side by side, and x again for a later addition.

    The second output's gradient enters the product that gives the gradient of x. ``x``: (T, d).
    """
    weights = [part.weight for part in parts]
    biases = [part.bias for part in parts]
    y, same = _Linear.apply(x, len(parts), *weights, *biases)  # type: ignore[no-untyped-call]
    return y, same


def drop(x: Tensor, p: float) -> Tensor:
    """Dropout alone, any shape."""
    drawn = dropout.draw_mask(x, p)
    if drawn.mask is None:
        return x
    result: Tensor = _Drop.apply(x, *drawn)  # type: ignore[no-untyped-call]
    return result


def _as_stated(function: Any) -> Any:
    """A forward pass with fixed types: autocast affects only some calls."""

    @wraps(function)
    def forward(ctx: Any, *given: Any) -> Any:
        casts = torch.is_autocast_enabled("cpu")
        ctx.kind = torch.get_autocast_dtype("cpu") if casts else given[0].dtype
        with torch.autocast("cpu", enabled=False):
            return function(ctx, *given)

    return forward


class _Attend(torch.autograd.Function):
    """Attention of every row to its own tokens: softmax(q k' / sqrt(d / h)) v, head by head."""

    @staticmethod
    @_as_stated
    def forward(ctx: Any, qkv: Tensor, groups: Groups, heads: int, p: float) -> Tensor:
        width = qkv.shape[1] // 3
        by_head = _by_heads(qkv, groups, heads, 3)
        split = _heads(by_head, groups, heads, 3)
        scores = qkv.new_empty(heads * sum(g.count * g.length**2 for g in groups))
        for square, (q, k, _) in zip(_squares(scores, groups, heads), split, strict=True):
            torch.baddbmm(square, q, k.mT, beta=0, alpha=(width // heads) ** -0.5, out=square)
        weights = torch.empty_like(scores)
        pairs = zip(_squares(scores, groups, heads), _squares(weights, groups, heads), strict=True)
        for square, share in pairs:
            torch.softmax(square, -1, out=share)
        drawn = dropout.draw_mask(weights, p)
        dropped = weights if drawn.mask is None else torch.mul(weights, drawn.mask, out=scores)
        mixed = qkv.new_empty(qkv.shape[0], width)
        blocks = _blocks(mixed, groups)
        for square, (_, _, v), block, group in zip(
            _squares(dropped, groups, heads), split, blocks, groups, strict=True
        ):
            out = torch.baddbmm(v, square, v, beta=0, alpha=drawn.scale)
            shape = (group.count, heads, group.length, -1)
            block.view(group.count, group.length, heads, -1).copy_(out.view(shape).transpose(1, 2))
        ctx.attention = groups, heads, drawn.scale, drawn.again
        ctx.save_for_backward(by_head, weights)
        return mixed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        groups, heads, scale, again = ctx.attention
        by_head, weights = ctx.saved_tensors
        mask = again()
        width = grad.shape[1]
        split = _heads(by_head, groups, heads, 3)
        grads = _heads(_by_heads(grad, groups, heads, 1), groups, heads, 1)
        inner = torch.empty_like(weights)
        for square, (_, _, v), (g,) in zip(
            _squares(inner, groups, heads), split, grads, strict=True
        ):
            torch.baddbmm(square, g, v.mT, beta=0, alpha=scale, out=square)
        dropped = weights
        if mask is not None:
            inner.mul_(mask)
            dropped = torch.mul(weights, mask, out=mask)
        result = grad.new_empty(len(grad), 3 * width)
        factor = (width // heads) ** -0.5
        for share, use, square, (q, k, _), (g,), block, group in zip(
            _squares(weights, groups, heads),
            _squares(dropped, groups, heads),
            _squares(inner, groups, heads),
            split,
            grads,
            _blocks(result, groups),
            groups,
            strict=True,
        ):
            slope = torch._softmax_backward_data(square, share, -1, share.dtype)
            out = grad.new_empty(3, *q.shape)
            torch.baddbmm(out[0], slope, k, beta=0, alpha=factor, out=out[0])
            torch.baddbmm(out[1], slope.mT, q, beta=0, alpha=factor, out=out[1])
            torch.baddbmm(out[2], use.mT, g, beta=0, alpha=scale, out=out[2])
            shape = (3, group.count, heads, group.length, -1)
            block.view(group.count, group.length, 3, heads, -1).copy_(
                out.view(shape).permute(1, 3, 0, 2, 4)
            )
        return result, None, None, None


class _AddNorm(torch.autograd.Function):
    @staticmethod
    @_as_stated
    def forward(
        ctx: Any,
        y: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        gain: Tensor,
        shift: Tensor,
        epsilon: float,
        p: float,
    ) -> Tensor:
        drawn = dropout.draw_mask(x, p)
        y, half = y.to(ctx.kind), weight.to(ctx.kind)
        total = torch.addmm(bias.to(ctx.kind), y, half.t(), beta=drawn.scale, alpha=drawn.scale)
        total = total.to(x.dtype)
        total = x + total if drawn.mask is None else torch.addcmul(x, total, drawn.mask)
        out, mean, deviation = torch.native_layer_norm(total, gain.shape, gain, shift, epsilon)
        ctx.scale, ctx.again = drawn.scale, drawn.again
        ctx.save_for_backward(y, half, gain, shift, total, mean, deviation)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, weight, gain, shift, total, mean, deviation = ctx.saved_tensors
        through, by_gain, by_shift = torch.ops.aten.native_layer_norm_backward(
            grad.contiguous(), total, gain.shape, mean, deviation, gain, shift, [True] * 3
        )
        mask = ctx.again()
        inner = through if mask is None else torch.mul(through, mask, out=mask)
        by_bias = inner.sum(0).mul_(ctx.scale)
        inner = inner.to(ctx.kind)
        by_y = torch.addmm(y, inner, weight, beta=0, alpha=ctx.scale)
        by_weight = torch.addmm(weight, inner.t(), y, beta=0, alpha=ctx.scale).to(gain.dtype)
        return by_y, through, by_weight, by_bias, by_gain, by_shift, None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    @_as_stated
    def forward(ctx: Any, x: Tensor, count: int, *given: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = (torch.cat(part).to(ctx.kind) for part in (given[:count], given[count:]))
        ctx.sizes, half = [len(part) for part in given[:count]], x.to(ctx.kind)
        ctx.save_for_backward(half, weight)
        return functional.linear(half, weight, bias), x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, residual: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        kind = residual.dtype
        by_weights = torch.split((grad.t() @ x).to(kind), ctx.sizes)
        by_biases = torch.split(grad.sum(0, dtype=kind), ctx.sizes)
        return _added(residual, grad, weight), None, *by_weights, *by_biases


class _GeluLinear(torch.autograd.Function):
    """GELU(x W' + b), exact, and x again, as in ``linear``."""

    @staticmethod
    @_as_stated
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        half, weight = x.to(ctx.kind), weight.to(ctx.kind)
        inner = functional.linear(half, weight, bias.to(ctx.kind))
        ctx.save_for_backward(half, weight, inner)
        return functional.gelu(inner), x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, inner = ctx.saved_tensors
        kind = residual.dtype
        slope = torch.ops.aten.gelu_backward(grad, inner)
        by_x = _added(residual, slope, weight)
        return by_x, (slope.t() @ x).to(kind), slope.sum(0, dtype=kind)


def _added(residual: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """Residual + grad W."""
    if residual.dtype == grad.dtype:
        return torch.addmm(residual, grad, weight)
    return residual + grad @ weight


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float, again: Any) -> Tensor:
        ctx.scale, ctx.again = scale, again
        return (x * mask).mul_(scale)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        mask = ctx.again()
        return torch.mul(grad, mask, out=mask).mul_(ctx.scale), None, None, None


def _by_heads(flat: Tensor, groups: Groups, heads: int, parts: int) -> Tensor:
    """(T, parts d) rearranged, so that each group's heads lie together; see ``_heads``."""
    result = torch.empty_like(flat)
    pairs = zip(_blocks(flat, groups), _blocks(result, groups), groups, strict=True)
    for block, target, group in pairs:
        view = block.view(group.count, group.length, parts, heads, -1).permute(2, 0, 3, 1, 4)
        target.view(view.shape).copy_(view)
    return result


def _heads(flat: Tensor, groups: Groups, heads: int, parts: int) -> list[tuple[Tensor, ...]]:
    """``parts`` tensors (count * heads, length, d / heads) of each group."""
    return [
        block.view(parts, group.count * heads, group.length, -1).unbind()
        for block, group in zip(_blocks(flat, groups), groups, strict=True)
    ]


def _blocks(flat: Tensor, groups: Groups) -> Iterator[Tensor]:
    """The tokens of each group, (count * length, ...)."""
    return iter(torch.split(flat, [group.count * group.length for group in groups]))


def _squares(flat: Tensor, groups: Groups, heads: int) -> Iterator[Tensor]:
    """Views of a flat buffer: the (count * heads, length, length) scores of each group."""
    parts = torch.split(flat, [heads * group.count * group.length**2 for group in groups])
    for part, group in zip(parts, groups, strict=True):
        yield part.view(group.count * heads, group.length, group.length)


KINDS = {"BertModel": 0, "RobertaModel": 1}
"""Backbones that are known here, and what their positions count from, in pad tokens + 1."""


def supports_backbone(backbone: nn.Module) -> bool:
    """Whether this module implements a backbone's forward pass."""
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
    """Whether this module can compute a batch: on CPU, without hooks or LoRA."""
    weight = next(backbone.parameters())
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    if torch.is_autocast_enabled("cpu"):
        kinds = weight.dtype, torch.get_autocast_dtype("cpu")
        if kinds != (torch.float32, torch.bfloat16):
            return False
    config: Any = backbone.config
    if KINDS[type(backbone).__name__] and bool((tokens.ids == config.pad_token_id).any()):
        return False  # RoBERTa's positions skip padding tokens inside a text
    return not any(
        m._forward_hooks or m._forward_pre_hooks or hasattr(m, "base_layer")
        for m in backbone.modules()
    )


def states(
    backbone: nn.Module, packing: Packing, *, all_layers: bool = False, firsts: bool = False
) -> tuple[Tensor, ...]:
    """Hidden states (T, d) of packed rows; the last one (n, d), in their order, with ``firsts``."""
    whole: Any = backbone
    x = _embed(whole, packing)
    states = [x]
    layers = list(whole.encoder.layer)
    for layer in layers[:-1] if firsts else layers:
        x = _layer(layer, x, packing)
        states.append(x)
    if firsts:
        states.append(_last_layer_of_firsts(layers[-1], x, packing))
    return tuple(states) if all_layers else (states[-1],)


def _embed(backbone: Any, packing: Packing) -> Tensor:
    parts = backbone.embeddings
    begin = KINDS[type(backbone).__name__] * (backbone.config.pad_token_id + 1)
    words = parts.word_embeddings(packing.ids)
    places = parts.position_embeddings(packing.places + begin)
    x: Tensor = parts.LayerNorm(words + parts.token_type_embeddings.weight[0] + places)
    return drop(x, _p(parts.dropout))


def _layer(layer: Any, x: Tensor, packing: Packing) -> Tensor:
    attention = layer.attention.self
    qkv, x = linear(x, attention.query, attention.key, attention.value)
    heads, p = int(attention.num_attention_heads), _p(attention.dropout)
    if torch.is_grad_enabled() or p:
        mixed = _Attend.apply(qkv, packing.groups, heads, p)  # type: ignore[no-untyped-call]
    else:
        mixed = _attend_without_gradient(qkv, packing, heads)
    return _feed_forward(layer, add_norm(mixed, x, layer.attention.output))


def _feed_forward(layer: Any, x: Tensor) -> Tensor:
    dense = layer.intermediate.dense
    inner, x = _GeluLinear.apply(x, dense.weight, dense.bias)  # type: ignore[no-untyped-call]
    return add_norm(inner, x, layer.output)


def _attend_without_gradient(qkv: Tensor, packing: Packing, heads: int) -> Tensor:
    """Attention by torch's fused kernel, which has no dropout on CPU."""
    parts = []
    for block in packing.split(qkv):
        q, k, v = block.view(*block.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        parts.append(mixed.transpose(1, 2).reshape(block.shape[0] * block.shape[1], -1))
    return torch.cat(parts)


def _last_layer_of_firsts(layer: Any, x: Tensor, packing: Packing) -> Tensor:
    """The layer's output at the first tokens, (n, d): queries of these, keys and values of all."""
    attention = layer.attention.self
    first = x[packing.firsts]
    both, _ = linear(x, attention.key, attention.value)
    heads: int = attention.num_attention_heads
    queries = attention.query(first).view(len(first), heads, 1, -1) * attention.scaling
    mixed = []
    counts = [group.count for group in packing.groups]
    for q, part in zip(queries.split(counts), packing.split(both), strict=True):
        k, v = part.view(*part.shape[:2], 2, heads, -1).permute(2, 0, 3, 1, 4)
        share = drop((q @ k.mT).softmax(-1), _p(attention.dropout))
        mixed.append((share @ v).view(len(q), -1))
    return _feed_forward(layer, add_norm(torch.cat(mixed), first, layer.attention.output))


def _p(part: nn.Dropout) -> float:
    return part.p if part.training else 0.0
