"""Dropout: statistics, seeds, probabilities that reach every module, and off where it must be."""

import math
from itertools import product

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from contrasent.encoder import attention
from contrasent.encoder import dropout as dropout_
from contrasent.encoder.dropout import Dropout, configure, drop, off
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError, OptionError
from tiny_models import KINDS, write_backbone

TEXTS = ["The gardener sold his violin.", "a map", "My neighbor hid two blue lamps before dawn."]


def train_mode(folder, **options):
    encoder = TorchEncoder.load(folder, pooling="mean", **options).train()
    tokens = encoder.tokenize(TEXTS)[0]
    return encoder, tokens


@pytest.mark.parametrize("p", [0.01, 0.1, 0.15, 0.5, 0.9])
def test_share_and_expectation(p):
    torch.manual_seed(0)
    n = 400_000
    dropped = drop(torch.ones(n), p)
    zeros = (dropped == 0).sum().item()
    assert abs(zeros - n * p) < 5 * math.sqrt(n * p * (1 - p))
    kept = dropped[dropped != 0]
    # What is kept is scaled by 1 / (1 - p), p being a multiple of 1/65536.
    assert kept.unique().tolist() == pytest.approx([1 / (1 - round(p * 65536) / 65536)], rel=1e-6)
    assert dropped.mean().item() == pytest.approx(1, abs=5 * math.sqrt(p / (1 - p) / n))


def test_neighbors_are_independent():
    torch.manual_seed(1)
    zero = (drop(torch.ones(200_000), 0.3) == 0).double()
    for distance in (1, 2, 3, 4, 5, 8, 64):  # four masks come of one random number
        both = (zero[distance:] * zero[:-distance]).mean().item()
        assert both == pytest.approx(0.09, abs=5 * math.sqrt(0.09 * 0.91 / 200_000))


def test_the_mask_is_a_function_of_the_seed():
    x = torch.randn(7, 33)
    torch.manual_seed(5)
    one, two = drop(x, 0.2), drop(x, 0.2)
    torch.manual_seed(5)
    assert torch.equal(drop(x, 0.2), one)
    assert not torch.equal(one, two)
    torch.manual_seed(6)
    assert not torch.equal(drop(x, 0.2), one)
    # It depends neither on values, nor on their type, nor on the number of threads.
    torch.manual_seed(5)
    assert torch.equal(drop(x.double(), 0.2) == 0, one == 0)
    torch.set_num_threads(2)
    torch.manual_seed(5)
    assert torch.equal(drop(x + 1, 0.2) == 0, one == 0)
    torch.set_num_threads(1)


def test_no_dropout_touches_neither_values_nor_random_state():
    x = torch.randn(5, 5)
    state = torch.random.get_rng_state()
    assert drop(x, 0.0) is x
    layer = Dropout(0.4).eval()
    assert layer(x) is x
    assert torch.equal(torch.random.get_rng_state(), state)
    assert drop(x, 1e-9).equal(x)
    assert torch.isfinite(drop(x, 0.99999)).all()
    assert drop(torch.empty(0, 4), 0.5).shape == (0, 4)


def test_gradients_pass_where_values_do():
    x = torch.ones(1000, requires_grad=True)
    y = drop(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [(0.2, 0.0), (0.0, 0.2)], ids=["hidden", "attention"])
def test_dropout_alone_makes_views_differ_and_off_stops_it(tiny, kind, options):
    hidden, attention = options
    encoder, tokens = train_mode(tiny[kind], dropout=hidden, attention_dropout=attention)
    with torch.no_grad():
        torch.manual_seed(0)
        one, two = encoder(tokens), encoder(tokens)
        assert not torch.allclose(one, two)
        torch.manual_seed(0)
        assert torch.equal(encoder(tokens), one)
        with encoder.dropout_off():
            still = encoder(tokens)
            assert torch.equal(encoder(tokens), still)
            assert not torch.allclose(still, one)
        assert not torch.allclose(encoder(tokens), still)
        assert still.numpy() == pytest.approx(encoder.encode(TEXTS), abs=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_reach_the_modules(tiny, kind):
    for hidden, weights, packed in product((0.25, 0.5, 0.0), (0.125, 0.0, 0.5), (False, True)):
        encoder, tokens = train_mode(tiny[kind], dropout=hidden, attention_dropout=weights)
        encoder.packed = packed
        assert not [m for m in encoder.modules() if type(m) is nn.Dropout]
        used = probabilities_used(encoder, tokens)
        assert used == {p for p in (hidden, weights) if p}


def probabilities_used(encoder, tokens):
    used, before = set(), dropout_.draw_mask

    def spy(x, p):
        used.add(p)
        return before(x, p)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dropout_, "draw_mask", spy)
        with torch.no_grad(), NoMaskOfTorch():
            encoder(tokens)
    return {p for p in used if p}


class NoMaskOfTorch(TorchFunctionMode):
    """Neither torch's dropout nor its fused attention may draw a mask of its own."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        assert function not in (nn.functional.dropout, torch.dropout)
        if function is nn.functional.scaled_dot_product_attention:
            assert len(args) < 5 and not kwargs.get("dropout_p")
        return function(*args, **kwargs)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_with_dropout_is_attention(tiny, kind, monkeypatch):
    """With masks that keep everything, the plain products give what the fused kernel gives."""
    encoder, tokens = train_mode(tiny[kind], dropout=0.0, attention_dropout=0.3)
    calls = []
    keep = lambda x, p: (calls.append(p), dropout_.Mask(None, 1.0))[1]  # noqa: E731
    monkeypatch.setattr(dropout_, "draw_mask", keep)
    for packed in (True, False):
        encoder.packed = packed
        with torch.no_grad():
            vectors = encoder(tokens).numpy()
        assert 0.3 in calls
        calls.clear()
        assert vectors == pytest.approx(encoder.encode(TEXTS), abs=3e-6)
        assert 0.3 not in calls


DECODERS = {  # Llama's has one head of keys for two of queries
    "opt": {"attention_dropout": 0.3, "dropout": 0.0},
    "gpt2": {"attn_pdrop": 0.3, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "llama": {"attention_dropout": 0.3},
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_sees_nothing_of_later_tokens_in_training(kind, padded, tmp_path):
    torch.manual_seed(2)
    model = write_backbone(kind, tmp_path, 50, **DECODERS[kind]).train()
    dropout_.take_over(model)
    attention.take_over(model)
    assert model.config._attn_implementation == attention.NAME
    ids = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 6, 0]])
    mask = (ids > 0).long() if padded else None
    changed = ids.clone()
    changed[:, 2:4] = torch.tensor([[30, 31], [32, 33]])
    states = []
    for rows in (ids, changed):
        torch.manual_seed(6)
        states.append(model(input_ids=rows, attention_mask=mask).last_hidden_state)
    one, two = states
    assert torch.equal(one[:, :2], two[:, :2])
    assert (one[:, 2:4] - two[:, 2:4]).abs().amax((1, 2)).min() > 0.1
    torch.manual_seed(7)
    again = model(input_ids=ids, attention_mask=mask).last_hidden_state
    assert not torch.allclose(again[:, 1:], one[:, 1:], atol=1e-3), "no dropout at all"


def test_off_restores_every_flag_even_after_an_error():
    network = nn.Sequential(Dropout(0.5), nn.Sequential(Dropout(0.5), nn.BatchNorm1d(3)))
    network[1].eval()
    network[1][0].train()
    flags = [m.training for m in network.modules()]
    assert len(set(flags)) == 2
    with pytest.raises(ValueError, match="stop"), off(network):
        assert not any(m.training for m in network.modules())
        raise ValueError("stop")
    assert [m.training for m in network.modules()] == flags


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.0, 3, math.nan])
def test_impossible_probabilities(bert, name, value):
    with pytest.raises(OptionError, match=f"^{name} .*a probability in"):
        TorchEncoder.load(bert, pooling="mean", **{name: value})


def test_a_kind_without_the_setting_is_named():
    class Config:
        model_type = "strange"
        hidden_dropout_prob = 0.1

    config = Config()
    configure(config, 0.3, None)
    assert config.hidden_dropout_prob == 0.3
    with pytest.raises(ModelError, match="strange: attention_dropout cannot be set"):
        configure(config, None, 0.3)
