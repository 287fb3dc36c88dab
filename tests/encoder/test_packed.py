"""Packed rows against the backbone's own forward, and with dropout against loops over rows."""

import math
import weakref

import pytest
import torch
from torch.nn import functional

from contrasent.encoder import dropout, packed
from contrasent.encoder.encoder import Encoder
from contrasent.encoder.packing import Group, Packing
from contrasent.encoder.poolers import pooler_class
from contrasent.model.pooling import POOLERS
from contrasent.types import Tokens

PLAIN = [name for name in POOLERS if pooler_class(name).portable]  # the others: test_poolers
TEXTS = [
    "The gardener sold his violin.", "a map", "My neighbour hid two blue lamps before dawn.", "",
    "a lamp", "Nobody but the miller's daughter knew the way across the frozen lake in winter.",
]  # fmt: skip


def load(folder, **options):
    encoder = Encoder.load(folder, **({"pooler": "mean"} | options)).double().train()
    return encoder, encoder.tokenise(TEXTS)[0]


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
    assert packing.firsts.tolist() == [0, 1, 3, 6]
    blocks = packing.split(packing.ids[:, None])
    assert [b[..., 0].tolist() for b in blocks] == [[[3]], [[1, 2]], [[5, 6, 7], [8, 9, 10]]]


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("pooling", PLAIN)
def test_vectors_and_gradients_are_those_of_the_backbone(tiny, kind, pooling):
    encoder, tokens = load(tiny[kind], pooler=pooling, dropout=0.0, attention_dropout=0.0)
    assert encoder.packed
    with counted() as calls:
        ours = encoder(tokens)
    assert calls == [pooling == "cls"]
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
        assert torch.allclose(fast[name], gradient, rtol=1e-7, atol=1e-10), name
        assert fast[name].is_contiguous()
    with torch.no_grad():
        encoder.packed = True
        assert torch.allclose(encoder(tokens), plain, rtol=0, atol=1e-10)
        assert torch.allclose(encoder.eval()(tokens), plain, rtol=0, atol=1e-10)


class counted:
    """Counts the packed passes of the block, by whether they want the first tokens alone."""

    def __enter__(self):
        self.patch, calls, before = pytest.MonkeyPatch(), [], packed.states

        def states(*args, **kwargs):
            calls.append(kwargs["firsts"])
            return before(*args, **kwargs)

        self.patch.setattr(packed, "states", states)
        return calls

    def __exit__(self, *error):
        self.patch.undo()


@pytest.fixture
def masks(monkeypatch):
    """Every mask drawn."""
    found, before = [], dropout.draw_mask

    def keep(x, p):
        found.append(before(x, p))
        return found[-1]

    monkeypatch.setattr(dropout, "draw_mask", keep)
    return found


def looped(encoder, packing, masks, *, firsts=False):
    """Token vectors by loops over rows and heads, with the masks given, in the packed order.

    With ``firsts`` the last layer is that of each row's first token alone, with the masks of it.
    """
    backbone = encoder.backbone
    parts, config = backbone.embeddings, backbone.config
    drawn = iter(masks)

    def norm(layer, x):
        centred = x - x.mean(-1, keepdim=True)
        spread = (centred**2).mean(-1, keepdim=True) + layer.eps
        return centred / spread.sqrt() * layer.weight + layer.bias

    def dense(layer, x):
        return x @ layer.weight.T + layer.bias

    def dropped(x):
        mask, scale, _ = next(drawn)
        return x * mask.view(x.shape) * scale

    x = parts.word_embeddings.weight[packing.ids] + parts.token_type_embeddings.weight[0]
    x = dropped(norm(parts.LayerNorm, x + parts.position_embeddings.weight[packing.places]))
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    for layer in backbone.encoder.layer:
        own, out = layer.attention.self, layer.attention.output
        last = firsts and layer is backbone.encoder.layer[-1]
        kept = [next(drawn) for _ in packing.groups] if last else [next(drawn)]
        mask, scale = torch.cat([k.mask.flatten() for k in kept]), kept[0].scale
        mixed, start, used = [], 0, 0
        for group in packing.groups:
            requested = 1 if last else group.length
            for _ in range(group.count):
                row = x[start : start + group.length]
                start += group.length
                columns = []
                for head in range(heads):
                    part = slice(head * size, (head + 1) * size)
                    q, k, v = (dense(m, row)[:, part] for m in (own.query, own.key, own.value))
                    share = (q[:requested] @ k.T / math.sqrt(size)).softmax(-1)
                    square = mask[used : used + requested * group.length].view(requested, -1)
                    used += requested * group.length
                    columns.append(share * square * scale @ v)
                mixed.append(torch.cat(columns, dim=1))
        assert used == len(mask)
        x = x[packing.firsts] if last else x
        x = norm(out.LayerNorm, x + dropped(dense(out.dense, torch.cat(mixed))))
        inner = functional.gelu(dense(layer.intermediate.dense, x))
        x = norm(layer.output.LayerNorm, x + dropped(dense(layer.output.dense, inner)))
    assert next(drawn, None) is None
    return x


@pytest.mark.parametrize("firsts", [False, True])
def test_with_dropout_it_is_the_loop_with_the_same_masks(bert, masks, firsts):
    encoder, tokens = load(bert, dropout=0.3, attention_dropout=0.2)
    packing = Packing(tokens)
    (ours,) = packed.states(encoder.backbone, packing, firsts=firsts)
    last = len(packing.groups) + 2 if firsts else 3
    assert len(masks) == 1 + 3 * (encoder.layers - 1) + last
    if not firsts:
        assert {round(m.mask.mean().item(), 1) for m in masks} == {0.7, 0.8}
    theirs = looped(encoder, packing, masks, firsts=firsts)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)
    fast, slow = gradients(encoder, ours), gradients(encoder, theirs)
    # The loop leaves whole tables of embeddings a gradient too.
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
    (ours,) = packed.states(encoder.backbone, Packing(tokens))
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


@pytest.mark.parametrize("kind", ["distilbert", "mpnet", "electra", "modernbert"])
def test_other_kinds_take_their_own_way(tiny, kind):
    assert not Encoder.load(tiny[kind], pooler="mean").packed


def test_what_changes_the_layers_takes_the_plain_way(bert, tiny):
    encoder, tokens = load(bert)
    able = packed.supports_batch
    assert able(encoder.backbone, tokens)
    for kind in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", kind):
            assert not able(encoder.backbone, tokens)
            assert able(encoder.float().backbone, tokens) == (kind == torch.bfloat16)
        encoder.double()
    hook = encoder.backbone.encoder.layer[0].register_forward_hook(lambda *a: None)
    assert not able(encoder.backbone, tokens)
    hook.remove()
    assert able(encoder.backbone, tokens)
    assert not able(encoder.bfloat16().backbone, tokens)
    encoder.backbone.config.hidden_act = "gelu_new"
    assert not packed.supports_backbone(encoder.backbone)
    encoder.backbone.config.hidden_act = "gelu"
    assert packed.supports_backbone(encoder.backbone)
    output = encoder.backbone.encoder.layer[1].output
    adapted = type("Adapted", (torch.nn.Linear,), {})
    output.dense = adapted(output.dense.in_features, output.dense.out_features)
    assert not packed.supports_backbone(encoder.backbone)
    # RoBERTa counts positions by what is no padding.
    roberta = Encoder.load(tiny["roberta"], pooler="mean")
    pad = roberta.tokenizer.specials.pad
    rows = Tokens.from_rows([[0, 5, pad, 6, 2]])
    assert not able(roberta.backbone, rows)
    assert able(roberta.backbone, Tokens.from_rows([[0, 5, 6, 2]]))


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "first_last"])
def test_in_bf16_it_is_as_near_to_the_truth_as_the_backbone(tiny, kind, pooling):
    encoder, tokens = load(tiny[kind], pooler=pooling, dropout=0.0, attention_dropout=0.0)
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
