"""Packed rows against padded ones, and with dropout against loops over rows and heads."""

import math
import weakref
from contextlib import contextmanager

import pytest
import torch
from torch.nn import functional

from contrasent.encoder import attention, dropout, products
from contrasent.encoder.attention import Group, Packing
from contrasent.encoder.backbone import PooledBackbone
from contrasent.encoder.encoder import TorchEncoder
from contrasent.model.pooling import POOLERS
from contrasent.types import Tokens

PLAIN = [name for name, kind in POOLERS.items() if kind.mode]  # the others: test_poolers
TEXTS = [
    "The gardener sold his violin.", "a map", "My neighbor hid two blue lamps before dawn.", "",
    "a lamp", "Nobody but the miller's daughter knew the way across the frozen lake in winter.",
]  # fmt: skip


def load(folder, **options):
    encoder = TorchEncoder.load(folder, **({"pooling": "mean"} | options)).double().train()
    return encoder, encoder.tokenize(TEXTS)[0]


def gradients(encoder, vectors):
    encoder.zero_grad()
    weights = torch.linspace(-1, 1, vectors.numel(), dtype=vectors.dtype).view_as(vectors)
    (vectors * weights.sin()).sum().backward()
    return {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}


def test_a_packing_holds_every_token_once():
    rows = [[5, 6, 7], [1, 2], [8, 9, 10], [3]]
    packing = Packing(Tokens.from_rows(rows))
    assert packing.order.tolist() == [3, 1, 0, 2]
    assert packing.ids.tolist() == [3, 1, 2, 5, 6, 7, 8, 9, 10]
    assert packing.places.tolist() == [0, 0, 1, 0, 1, 2, 0, 1, 2]
    assert packing.groups == (Group(1, 1), Group(1, 2), Group(2, 3))
    blocks = packing.split(packing.ids[:, None])
    assert [b[..., 0].tolist() for b in blocks] == [[[3]], [[1, 2]], [[5, 6, 7], [8, 9, 10]]]


def test_near_rows_lie_head_by_head():
    """Row 0 of 2 tokens beside row 1 of 3: a place is left where the shorter one has no token."""
    packing = Packing(Tokens.from_rows([[1, 2], [3, 4, 5]]))
    (group,) = packing.near
    assert (group.count, group.length) == (2, 3)
    assert group.shorter == ((0, 1, 2),)
    place, number, pads = packing.by_head(2)
    assert place.view(-1, 2).tolist() == [[0, 3], [1, 4], [6, 9], [7, 10], [8, 11]]
    assert number.tolist() == [0, 2, 0, 1, 3, 0, 4, 6, 8, 5, 7, 9]
    assert pads.tolist() == [2, 5]
    far = Packing(Tokens.from_rows([[1] * 2] * 300 + [[1] * 90]))
    assert far.near == (Group(300, 2), Group(1, 90))


def test_few_numbers_of_tokens_are_computed_and_the_fill_changes_nothing(bert):
    sizes = {n + attention.fill(n) for n in range(2048, 4096)}
    assert len(sizes) == 33 and all(0 <= attention.fill(n) <= n / 32 for n in range(1, 5000))
    encoder, _ = load(bert, dropout=0.0, attention_dropout=0.0)
    rows = Tokens.from_rows([[2, 5 + n % 9, 7, 3][: 3 + n % 2] for n in range(120)])
    assert attention.fill(len(rows.ids)) > 0
    seen = []
    encoder.backbone.register_forward_pre_hook(
        lambda _, __, named: seen.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    assert encoder.packs(rows)
    filled = encoder(rows)
    by_filled = gradients(encoder, filled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "fill", lambda tokens: 0)
        exact = encoder(rows)
    assert seen[-1] == len(rows.ids) < seen[-2]
    assert torch.allclose(filled, exact, rtol=0, atol=1e-12)
    for name, gradient in gradients(encoder, exact).items():
        assert torch.allclose(by_filled[name], gradient, rtol=1e-9, atol=1e-12), name


def test_nothing_is_filled_up_where_onednn_is_off(monkeypatch):
    assert attention.fill(2049) > 0
    with torch.no_grad():
        assert attention.fill(2049) == 0
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert attention.fill(2049) == 0


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("pooling", PLAIN)
@pytest.mark.parametrize("near", [False, True])
def test_vectors_and_gradients_are_those_of_padded_rows(tiny, kind, pooling, near, monkeypatch):
    """Both ways of attention: torch's over rows of one length, ours over rows of near ones."""
    encoder, tokens = load(tiny[kind], pooling=pooling, dropout=0.0, attention_dropout=0.0)
    assert any(group.shorter for group in Packing(tokens).near)
    if near:
        attend = attention._packed
        monkeypatch.setattr(attention, "_packed", lambda *given: attend(*given[:5], 1e-9, given[6]))
    with counted() as calls:
        ours = encoder(tokens)
    assert calls == [len(tokens)]
    fast = gradients(encoder, ours)
    encoder.packed = False
    with counted() as calls:
        plain = encoder(tokens)
    assert calls == []
    slow = gradients(encoder, plain)
    assert torch.allclose(ours, plain, rtol=0, atol=1e-10)
    assert fast.keys() == slow.keys()
    assert len(slow) > 30
    for name, gradient in slow.items():
        assert torch.allclose(fast[name], gradient, rtol=1e-7, atol=1e-7), name
    with torch.no_grad():
        encoder.packed = True
        assert torch.allclose(encoder(tokens), plain, rtol=0, atol=1e-10)


def test_products_in_bfloat16_are_widened_in_the_backward_too(bert, monkeypatch):
    """No naive product of bfloat16 in attention: six of each layer's groups go by float32."""
    encoder, tokens = load(bert)
    encoder.float()
    monkeypatch.setattr(products, "instructions", lambda: {"avx2"})
    plain, sizes = torch.baddbmm, []

    def seen(start, one, two, **named):
        sizes.append(one.dtype)
        return plain(start, one, two, **named)

    monkeypatch.setattr(torch, "baddbmm", seen)
    with torch.autocast("cpu", torch.bfloat16), products.Widened():
        vectors = encoder(tokens)
        forward = len(sizes)
        vectors.sum().backward()
    assert forward and len(sizes) == 3 * forward
    assert set(sizes) == {torch.float32}


@contextmanager
def counted():
    """Counts the rows of the packed passes of the block, but for the trial of a new encoder."""
    calls, before = [], PooledBackbone._pool_packed
    pooled = lambda self, tokens: calls.append(len(tokens)) or before(self, tokens)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PooledBackbone, "_pool_packed", pooled)
        yield calls


@pytest.fixture
def masks(monkeypatch):
    """Every mask drawn."""
    found, before = [], dropout.draw_mask

    def keep(x, p):
        found.append(before(x, p))
        return found[-1]

    monkeypatch.setattr(dropout, "draw_mask", keep)
    return found


def looped(encoder, packing, masks):
    """Token vectors by loops over rows and heads, with the masks given, in the packed order."""
    backbone = encoder.backbone
    parts, config = backbone.embeddings, backbone.config
    drawn = iter(masks)

    def norm(layer, x):
        centered = x - x.mean(-1, keepdim=True)
        spread = (centered**2).mean(-1, keepdim=True) + layer.eps
        return centered / spread.sqrt() * layer.weight + layer.bias

    def dense(layer, x):
        return x @ layer.weight.T + layer.bias

    def dropped(x):
        mask, scale, _ = next(drawn)
        return x * mask[0, : len(x)] * scale

    x = parts.word_embeddings.weight[packing.ids] + parts.token_type_embeddings.weight[0]
    x = dropped(norm(parts.LayerNorm, x + parts.position_embeddings.weight[packing.places]))
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    padded = [group.length for group in packing.near for _ in range(group.count)]
    for layer in backbone.encoder.layer:
        own, out = layer.attention.self, layer.attention.output
        mask, scale, _ = next(drawn)
        mixed, start, used = [], 0, 0
        for length, room in zip(packing.lengths.tolist(), padded, strict=True):
            row = x[start : start + length]
            start += length
            columns = []
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                q, k, v = (dense(m, row)[:, part] for m in (own.query, own.key, own.value))
                share = (q @ k.T / math.sqrt(size)).softmax(-1)
                square = mask[used : used + room * room].view(room, room)[:length, :length]
                used += room * room
                columns.append(share * square * scale @ v)
            mixed.append(torch.cat(columns, dim=1))
        assert used == len(mask)
        x = norm(out.LayerNorm, x + dropped(dense(out.dense, torch.cat(mixed))))
        inner = functional.gelu(dense(layer.intermediate.dense, x))
        x = norm(layer.output.LayerNorm, x + dropped(dense(layer.output.dense, inner)))
    assert next(drawn, None) is None
    return x


def test_with_dropout_it_is_the_loop_with_the_same_masks(bert, masks):
    encoder, tokens = load(bert, dropout=0.3, attention_dropout=0.2)
    packing = Packing(tokens)
    (ours,) = encoder.states(packing)
    assert len(masks) == 1 + 3 * encoder.layers
    assert {round(m.mask.mean().item(), 1) for m in masks} == {0.7, 0.8}
    theirs = looped(encoder, packing, masks)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)
    fast, slow = gradients(encoder, ours), gradients(encoder, theirs)
    assert fast.keys() == slow.keys()
    for name, gradient in slow.items():
        assert torch.allclose(fast[name], gradient, rtol=1e-7, atol=1e-10), name


def test_masks_are_drawn_again_rather_than_held(bert, monkeypatch):
    encoder, tokens = load(bert, dropout=0.3, attention_dropout=0.2)
    drawn, before = [], dropout.draw_mask

    def keep(x, p):
        kept = before(x, p)
        drawn.append((weakref.ref(kept.mask), kept.mask.clone(), kept.again))
        return kept

    monkeypatch.setattr(dropout, "draw_mask", keep)
    (ours,) = encoder.states(Packing(tokens))
    assert len(drawn) == 1 + 3 * encoder.layers
    assert ours.requires_grad
    for held, mask, again in drawn:
        assert held() is None
        assert torch.equal(again(), mask)


def test_seeds_decide_and_the_rows_of_a_batch_differ(bert):
    encoder, tokens = load(bert, dropout=0.1, attention_dropout=0.1)
    twice = Tokens.concatenate([tokens, tokens])
    with torch.no_grad():
        torch.manual_seed(4)
        one = encoder(twice)
        torch.manual_seed(4)
        assert torch.equal(encoder(twice), one)
        assert not torch.equal(encoder(twice), one)
    assert (one[: len(tokens)] - one[len(tokens) :]).abs().amax(1).min() > 1e-3


def test_a_pass_that_would_be_wrong_is_padded(bert, tiny, monkeypatch):
    encoder, tokens = load(bert)
    assert encoder.packs(tokens)
    # RoBERTa counts positions by what is no padding.
    roberta = TorchEncoder.load(tiny["roberta"], pooling="mean")
    pad = roberta.tokenizer.specials.pad
    assert not roberta.packs(Tokens.from_rows([[0, 5, pad, 6, 2]]))
    assert roberta.packs(Tokens.from_rows([[0, 5, 6, 2]]))
    # A backbone that places tokens in its own way, or looks at other rows.
    numbered, _ = load(bert)
    forward = numbered.backbone.embeddings.forward
    numbered.backbone.embeddings.forward = lambda **given: forward(**given | {"position_ids": None})
    assert not numbered.packs(tokens)
    assert not TorchEncoder.load(tiny["mpnet"], pooling="mean").packs(tokens)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "first_last"])
def test_in_bf16_it_is_as_near_to_the_truth_as_the_backbone(tiny, kind, pooling):
    encoder, tokens = load(tiny[kind], pooling=pooling, dropout=0.0, attention_dropout=0.0)
    vectors = encoder(tokens)
    truth = {"vectors": vectors.detach(), **gradients(encoder, vectors)}
    encoder.float()

    # The keys' biases change no softmax: their gradient is nothing but rounding.
    largest = max(float(value.norm()) for name, value in truth.items() if name != "vectors")
    sizes = {name: max(float(value.norm()), largest / 100) for name, value in truth.items()}

    def errors():
        """Error of each tensor relative to its size."""
        with torch.autocast("cpu", torch.bfloat16):
            vectors = encoder(tokens)
        found = {"vectors": vectors.detach(), **gradients(encoder, vectors.float())}
        assert found.keys() == truth.keys()
        assert {value.dtype for name, value in found.items() if name != "vectors"} == {
            torch.float32
        }
        return {name: float((found[name] - truth[name]).norm()) / sizes[name] for name in truth}

    with counted() as calls:
        ours = errors()
        assert len(calls) == 1
        encoder.packed = False
        theirs = errors()
        assert len(calls) == 1
    assert len(ours) > 20
    # bf16 has 8 bits: one rounding is 0.4 %, and a dozen of them lie between a weight and the sum.
    assert max(theirs.values()) < 0.1
    assert max(ours.values()) < 0.1
    assert sum(ours.values()) < 1.25 * sum(theirs.values())


def test_dropout_in_bf16_is_that_of_float32(bert):
    encoder, tokens = load(bert, dropout=0.3, attention_dropout=0.3)
    encoder.float()
    found = []
    for enabled in (False, True):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            vectors = encoder(tokens)
        found.append((vectors.detach().float(), gradients(encoder, vectors.float())))
    (one, by_one), (two, by_two) = found
    assert torch.nn.functional.cosine_similarity(one, two).min() > 0.999
    assert not torch.equal(one, two)
    for name, value in by_one.items():
        assert (value - by_two[name]).norm() < 0.05 * value.norm() + 1e-3, name
