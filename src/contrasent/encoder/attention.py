"""Attention of transformers' models by this library's own function, over padded or packed rows.

transformers' ``AttentionInterface`` calls it in every layer of every model that has one. Packed,
the rows of a batch lie behind one another as a single row whose positions begin again: products and
norms see real tokens alone, and attention runs over groups of rows of like length.
"""

import inspect
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from contrasent.encoder import dropout as dropout_
from contrasent.encoder import products
from contrasent.types import Tokens

OVERHEAD = 192  # cost of one more group in tokens: the overhead of a forward pass
CALLS = 1024  # the same of attention in pairs of tokens: the overhead of its calls


def by_length(
    lengths: NDArray[np.int64], *, overhead: int = OVERHEAD, power: int = 1
) -> list[NDArray[np.int64]]:
    """Group rows of similar length, shortest first, so that padding and overhead are least.

    Args:
        lengths: (n,) int64, the number of tokens in each row.
        overhead: cost of a group, in tokens.
        power: 2 counts pairs of tokens instead, as in attention.
    """
    # Dynamic programming over the distinct lengths.
    if len(lengths) == 0:
        return []
    order = np.argsort(lengths, kind="stable")
    values, counts = np.unique(lengths, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(len(values) + 1)
    cut = np.zeros(len(values) + 1, dtype=np.int64)
    for end in range(1, len(values) + 1):
        padded = (before[end] - before[:end]) * values[end - 1] ** power + overhead
        total = best[:end] + padded
        cut[end] = int(np.argmin(total))
        best[end] = total[cut[end]]
    edges, end = [], len(values)
    while end > 0:
        edges.append((before[cut[end]], before[end]))
        end = int(cut[end])
    return [order[start:stop] for start, stop in reversed(edges)]


def cut(lengths: NDArray[np.int64], rows: int) -> list[NDArray[np.int64]]:
    """Cut rows, sorted by length, into chunks of about the same memory, for cached gradients.

    There are as many chunks as ``rows`` rows each would make; each has about the same number of
    tokens, so that a chunk of long rows has fewer of them.
    """
    order = np.argsort(lengths, kind="stable")
    count = -(-len(lengths) // rows)
    ends = np.cumsum(lengths[order])
    shares = ends[-1] * np.arange(1, count) / count
    places = np.searchsorted(ends, shares, side="right")
    return [part for part in np.split(order, places) if len(part)]


@dataclass(frozen=True, slots=True)
class Group:
    """Neighboring rows of one length, or padded to it."""

    count: int
    length: int
    # of its shorter rows: the first, the one behind the last, and their length
    shorter: tuple[tuple[int, int, int], ...] = ()


class Packing:
    """A block of rows, shortest first, without padding."""

    def __init__(self, tokens: Tokens) -> None:
        lengths = tokens.lengths
        # (n,) row numbers of the block in the order of the packing
        self.order = np.argsort(lengths, kind="stable")
        self.lengths = lengths[self.order]
        packed = tokens.select(self.order)
        starts = np.repeat(packed.offsets[:-1] - packed.offsets[0], self.lengths)
        self.ids = torch.from_numpy(packed.ids.astype(np.int64))  # (T,)
        # (T,) int64 place of each token in its row, from 0
        self.places = torch.from_numpy(np.arange(len(packed.ids)) - starts)
        pairs = zip(*np.unique(lengths, return_counts=True), strict=True)
        self.groups = tuple(Group(int(count), int(length)) for length, count in pairs)
        self._by_head: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def split(self, states: Tensor) -> list[Tensor]:
        """(T, d) states as one (count, length, d) block a group."""
        parts = torch.split(states, [group.count * group.length for group in self.groups])
        return [
            part.view(group.count, group.length, -1)
            for part, group in zip(parts, self.groups, strict=True)
        ]

    @cached_property
    def near(self) -> tuple[Group, ...]:
        """Rows of near lengths, padded to the longest: fewer groups, for attention alone."""
        groups = []
        for rows in by_length(self.lengths, overhead=CALLS, power=2):
            values, starts = np.unique(self.lengths[rows], return_index=True)
            edges = zip(
                starts[:-1].tolist(), starts[1:].tolist(), values[:-1].tolist(), strict=True
            )
            groups.append(Group(len(rows), int(values[-1]), tuple(edges)))
        return tuple(groups)

    @cached_property
    def slots(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
        """For each token, in ``near``: what lies before its row, its row's length, and all."""
        counts = [group.count for group in self.near]
        padded = np.repeat([group.length for group in self.near], counts)
        before = np.concatenate([[0], np.cumsum(padded)])
        rows = np.repeat(np.arange(len(padded)), self.lengths)
        return before[rows], padded[rows], self.places.numpy(), int(before[-1])

    def by_head(self, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Where each head of each token lies when the rows of a group do, head by head.

        Returns:
            The place (T * heads,) of each head of each token; the number (places,) of the head at
            each place, token by token; and the places (pads,) without one, whose number is 0.
        """
        if heads not in self._by_head:
            before, length, place, size = self.slots
            head = np.arange(heads)
            to = (before[:, None] * heads + head * length[:, None] + place[:, None]).ravel()
            number = np.full(size * heads, -1)
            number[to] = np.arange(len(to))
            pads = np.flatnonzero(number < 0)
            number[pads] = 0
            one, two, three = (torch.from_numpy(part) for part in (to, number, pads))
            self._by_head[heads] = one, two, three
        return self._by_head[heads]


NAME = "contrasent"
NEAR = 1e-4
"""How far a packed pass may be from a padded one, relative to the largest state, to be used."""
_packing: ContextVar[Packing | None] = ContextVar("packing", default=None)


def _current() -> Packing | None:
    """The packing of the pass that is being computed; a compiled one is padded."""
    return None if torch.compiler.is_compiling() else _packing.get()


def take_over(backbone: nn.Module) -> None:
    """Let a backbone's attention be computed here, if it uses transformers' interface."""
    config: Any = backbone.config
    if getattr(config, "_attn_implementation", None) == "sdpa":
        from transformers import AttentionInterface, AttentionMaskInterface

        AttentionInterface.register(NAME, _attend)
        AttentionMaskInterface.register(NAME, _mask)
        backbone.set_attn_implementation(NAME)  # type: ignore[operator]


def may_pack(backbone: nn.Module) -> bool:
    """Whether a backbone's attention is computed here and its positions can be given."""
    config: Any = backbone.config
    return config._attn_implementation == NAME and "position_ids" in _parameters(backbone)


def states(
    backbone: nn.Module, packing: Packing, first: int, *, all_layers: bool = False
) -> tuple[Tensor, ...]:
    """Hidden states (T, d) of packed rows, the last or the embeddings and all."""
    tokens = len(packing.ids)
    ids, places = packing.ids, packing.places
    if room := fill(tokens):
        ids, places = (functional.pad(x, (0, room)) for x in (ids, places))
    token = _packing.set(packing)
    try:
        output = backbone(
            input_ids=ids[None],
            position_ids=places[None] + first,
            output_hidden_states=all_layers,
            return_dict=True,
            **without_cache(backbone),
        )
    finally:
        _packing.reset(token)
    found = output.hidden_states if all_layers else (output.last_hidden_state,)
    states = (part.squeeze(0) for part in found)  # not [0], whose backward pass would copy
    return tuple(part[:tokens] if room else part for part in states)


def fill(tokens: int) -> int:
    """How many tokens to add to these in training, at most 1 in 32; none if oneDNN is off."""
    if not torch.is_grad_enabled() or not torch.backends.mkldnn.enabled:
        return 0
    # It keeps a kernel for each shape, of products and of GELU.
    step = 1 << max(tokens.bit_length() - 6, 0)
    return -tokens % step


def without_cache(backbone: nn.Module) -> dict[str, bool]:
    """What keeps a decoder from collecting keys and values for a next token."""
    return {"use_cache": False} if "use_cache" in _parameters(backbone) else {}


def _parameters(backbone: nn.Module) -> Any:
    return inspect.signature(type(backbone).forward).parameters


def _mask(**given: Any) -> Tensor | None:
    """The mask that a model asks for, as (1, 1, t, t) of the longest row where rows are packed."""
    from transformers.masking_utils import sdpa_mask

    packing = _current()
    if packing is None:
        mask: Tensor | None = sdpa_mask(**given)
        return mask
    # Masks say who sees whom by distance, so that a shorter row has a corner of the longest one's,
    # which is the last.
    longest = packing.groups[-1].length
    start = len(packing.ids) - longest
    given |= {"q_length": longest, "kv_length": longest, "q_offset": start, "kv_offset": start}
    mask = sdpa_mask(**given)
    return None if mask is None or bool(mask.all()) else mask


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
    packing = _current()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if packing is not None:
        if special:
            raise ValueError("a position bias cannot be packed")
        if attention_mask is None and causal and packing.groups[-1].length > 1:
            longest = packing.groups[-1].length
            attention_mask = torch.ones(longest, longest, dtype=torch.bool).tril()[None, None]
        tokens = len(packing.ids)
        room = query.shape[2] - tokens
        if room:  # a slice of all would be copied in the backward pass
            query, key, value = (x[:, :, :tokens] for x in (query, key, value))
        mixed = _packed(packing, query, key, value, attention_mask, dropout, scale)
        # What fills up attends to nothing.
        return functional.pad(mixed, (0, 0, 0, 0, 0, room)) if room else mixed, None
    shared = getattr(module, "num_key_value_groups", 1) > 1
    if dropout <= 0 or query.device.type != "cpu" or special or causal or shared:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return output, None
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    if attention_mask is not None:
        if attention_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + attention_mask
    weights = dropout_.drop(scores.softmax(-1), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None


def _packed(
    packing: Packing,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scale: float,
) -> Tensor:
    """Attention (1, T, h, d) of packed rows, each to its own tokens."""
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        query, key, value = (x.to(kind) for x in (query, key, value))
    if dropout > 0:
        mixed: Tensor = _Attend.apply(query, key, value, packing, mask, dropout, scale)  # type: ignore[no-untyped-call]
        return mixed
    parts, shared = [], query.shape[1] > key.shape[1]
    sizes = [group.count * group.length for group in packing.groups]
    split = zip(*(torch.split(x[0], sizes, dim=1) for x in (query, key, value)), strict=True)
    for group, columns in zip(packing.groups, split, strict=True):
        shape = group.count, group.length
        q, k, v = (x.unflatten(1, shape).transpose(0, 1) for x in columns)
        own = None if mask is None else mask[..., : group.length, : group.length]
        mixed = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=own, scale=scale, enable_gqa=shared
        )
        parts.append(mixed.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)[None]


class _Attend(torch.autograd.Function):
    """softmax(q k' scale + mask) v with dropout; rows of near lengths share their calls."""

    @staticmethod
    @torch.autocast("cpu", enabled=False)  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        packing: Packing,
        mask: Tensor | None,
        p: float,
        scale: float,
    ) -> Tensor:
        heads, shared = query.shape[1], key.shape[1]
        by_head = [_by_head(packing, x.transpose(1, 2)) for x in (query, key, value)]
        scores = query.new_empty(heads * sum(g.count * g.length**2 for g in packing.near))
        weights = torch.empty_like(scores)
        squares, shares = (list(_squares(packing, x, shared)) for x in (scores, weights))
        blocks = list(zip(*(_blocks(packing, x, shared) for x in by_head), strict=True))
        multiply = products.in_batches(query)
        for group, square, share, (q, k, _) in zip(
            packing.near, squares, shares, blocks, strict=True
        ):
            multiply(q, k.mT, scale, square)
            _forbid(square, group, mask)
            torch.softmax(square, -1, out=share)
        drawn = dropout_.draw_mask(weights, p)
        if drawn.mask is not None:
            torch.mul(weights, drawn.mask, out=scores)
        mixed = torch.empty_like(by_head[0])
        used = shares if drawn.mask is None else squares
        for square, (*_, v), out in zip(used, blocks, _blocks(packing, mixed, shared), strict=True):
            multiply(square, v, drawn.scale, out)
        ctx.attention = packing, scale, drawn.scale, drawn.again
        ctx.save_for_backward(*by_head, weights)
        return _by_token(packing, mixed, heads)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        packing, scale, kept, again = ctx.attention
        *by_head, weights = ctx.saved_tensors
        heads = grad.shape[-2]
        shared = len(by_head[1]) // (len(by_head[0]) // heads)
        outer = _by_head(packing, grad)
        outer[packing.by_head(heads)[2]] = 0
        inner = torch.empty_like(weights)
        columns = [list(_blocks(packing, x, shared)) for x in (*by_head, outer)]
        multiply = products.in_batches(grad)
        for square, v, g in zip(_squares(packing, inner, shared), *columns[2:], strict=True):
            multiply(g, v.mT, kept, square)
        mask, dropped = again(), weights
        if mask is not None:
            inner.mul_(mask)
            dropped = torch.mul(weights, mask, out=mask)
        results = [torch.empty_like(x) for x in by_head]
        targets = [_blocks(packing, x, shared) for x in results]
        given = (_squares(packing, x, shared) for x in (weights, dropped, inner))
        for share, use, square, q, k, _, g, to_q, to_k, to_v in zip(
            *given, *columns, *targets, strict=True
        ):
            slope = torch._softmax_backward_data(square, share, -1, share.dtype)
            multiply(slope, k, scale, to_q)
            multiply(slope.mT, q, scale, to_k)
            multiply(use.mT, g, kept, to_v)
        numbers = heads, shared, shared
        grads = (_by_token(packing, x, n) for x, n in zip(results, numbers, strict=True))
        return *(x.transpose(1, 2) for x in grads), None, None, None, None


def _by_head(packing: Packing, x: Tensor) -> Tensor:
    """(places, d) of (1, T, h, d), so that each group's heads lie together."""
    _, number, _ = packing.by_head(x.shape[2])
    return x.reshape(-1, x.shape[-1]).index_select(0, number)


def _by_token(packing: Packing, x: Tensor, heads: int) -> Tensor:
    """(1, T, h, d) of (places, d)."""
    to, _, _ = packing.by_head(heads)
    return x.index_select(0, to).view(1, -1, heads, x.shape[-1])


def _blocks(packing: Packing, x: Tensor, shared: int) -> Iterator[Tensor]:
    """(count * shared, heads of one key * length, d) of each group, views of (places, d)."""
    tokens = sum(group.count * group.length for group in packing.near)
    each = len(x) // tokens
    parts = torch.split(x, [each * group.count * group.length for group in packing.near])
    for part, group in zip(parts, packing.near, strict=True):
        yield part.view(group.count * shared, -1, x.shape[-1])


def _squares(packing: Packing, flat: Tensor, shared: int) -> Iterator[Tensor]:
    """(count * shared, heads of one key * length, length) of each group, views of a flat buffer."""
    pairs = [group.count * group.length**2 for group in packing.near]
    each = len(flat) // sum(pairs)
    for part, group in zip(torch.split(flat, [each * n for n in pairs]), packing.near, strict=True):
        yield part.view(group.count * shared, -1, group.length)


def _forbid(square: Tensor, group: Group, mask: Tensor | None) -> None:
    """Write the least number where a token may not look."""
    by_row = square.view(group.count, -1, group.length, group.length)
    # Not -inf: what padding sees, padding alone perhaps, must be numbers.
    least = torch.finfo(square.dtype).min
    for first, end, length in group.shorter:
        by_row[first:end, ..., length:] = least
    if mask is not None:
        by_row.masked_fill_(~mask[..., : group.length, : group.length], least)
