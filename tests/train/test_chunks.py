"""Cached gradients: the gradient of the whole batch, with its dropout masks, chunk by chunk."""

import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contrasent.encoder import attention, backbone, products
from contrasent.encoder.backbone import PooledBackbone
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import OptionError
from contrasent.train.prepare import configure, prepare
from contrasent.train.settings import Settings
from contrasent.types import Batch, Tokens

LEARN = {"batch_size": 12, "pooling": "mean", "dropout": 0.2, "seed": 2, "learning_rate": 1e-3}
CASES = {
    "simcse": ("simcse", {}, 2),
    "batch statistics": ("simcse", {"projector": "batchnorm"}, 2),
    "symmetric, two encoders": ("simcse", {"symmetric": True, "encoders": 2}, 2),
    "supervised, hard negatives": ("simcse_supervised", {}, 3),
    "queue": ("esimcse", {"queue_size": 24}, 2),
    "mean of draws": ("simcse_noise", {"passes": 2}, 2),
}

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=80).map(lambda x: np.array(x, np.int64))


@given(lengths, st.integers(1, 30))
def test_every_row_once_in_chunks_of_about_equal_tokens(rows, size):
    parts = attention.cut(rows, size)
    assert sorted(np.concatenate(parts).tolist()) == [*range(len(rows))]
    count = -(-len(rows) // size)
    assert 1 <= len(parts) <= count
    tokens = [rows[part].sum() for part in parts]
    assert max(tokens) <= rows.sum() / count + rows.max()


def made(bert, case, sentences, padding="none"):
    name, parameters, width = CASES[case]
    settings = Settings(**(LEARN | {"mini_batch_size": 5, "padding": padding}))
    objective = prepare(bert, name, parameters, settings).double().train()
    configure(objective, settings)
    assert objective.encoder.mini_batch_size == 5
    assert objective.encoder.packed == (padding == "none")
    columns = [objective.encoder.tokenize(sentences[12 * i : 12 * i + 12])[0] for i in range(width)]
    return objective, Batch(tuple(columns), np.arange(12), 0, 2)


def gradient(objective, batch):
    """Loss and gradient of the second of two steps, so that a queue has something in it."""
    torch.manual_seed(5)
    objective(batch)
    objective.after_step()
    objective.zero_grad()
    terms = objective(batch)
    loss = objective.loss(terms)
    loss.backward()
    found = {n: p.grad.clone() for n, p in objective.named_parameters() if p.grad is not None}
    return loss.item(), found, torch.rand(3)


@pytest.mark.parametrize("padding", ["none", "groups"])
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_all_chunks_kept(bert, sentences, monkeypatch, case, padding):
    loss, found, after = gradient(*made(bert, case, sentences, padding))
    direct = []

    def once(module, work, tokens):
        direct.append(len(tokens))
        return work(tokens)

    monkeypatch.setattr(backbone, "recomputed", once)
    expected, wanted, then = gradient(*made(bert, case, sentences, padding))
    assert len(direct) >= 8
    assert max(direct) < 12
    assert loss == expected
    assert torch.equal(after, then)  # what is drawn later is not disturbed
    assert found.keys() == wanted.keys()
    assert len(found) > 30
    for name, gradient_ in wanted.items():
        assert torch.allclose(found[name], gradient_, rtol=1e-7, atol=1e-11), name


def test_a_chunk_leaves_no_states_and_no_graph(bert):
    """Its small parts would outlive the large ones of other chunks, and tear the heap."""
    encoder = TorchEncoder.load(bert, pooling="mean").train()
    encoder.mini_batch_size = 2
    rows, states = Tokens.from_rows([[2, 7, 8, 9, 3]] * 40), []
    assert encoder.packs(rows)
    layers = [part for part in encoder.backbone.modules() if isinstance(part, torch.nn.Linear)]
    for layer in layers:  # whose gradient needs what goes into it
        layer.register_forward_hook(lambda _, given, __: states.append(weakref.ref(given[0])))
    vectors = encoder.pool(rows)
    assert len(states) == 20 * len(layers) > 0
    assert not [state for state in states if state() is not None]
    found, ahead = set(), [vectors.grad_fn]
    while ahead:
        node = ahead.pop()
        found.add(node)
        ahead += [after for after, _ in node.next_functions if after and after not in found]
    weights = sum(1 for weight in encoder.parameters() if weight.requires_grad)
    assert len(found) <= 20 + weights + 2  # a node for each chunk, and those that join them


def test_chunks_are_computed_again_as_at_first(bert, monkeypatch):
    """With a graph, so that kernels are the same, and in the same precision."""
    encoder = TorchEncoder.load(bert, pooling="mean").train()
    encoder.mini_batch_size = 2
    seen, widened = [], []
    computed, enter = PooledBackbone._pool_block, products.Widened.__enter__

    def block(self, tokens):
        kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        seen.append((torch.is_grad_enabled(), kind))
        return computed(self, tokens)

    monkeypatch.setattr(PooledBackbone, "_pool_block", block)
    rows = Tokens.from_rows([[2, 7, 8, 9, 3]] * 4)
    monkeypatch.setattr(products, "widens", lambda: True)
    widen = lambda mode: widened.append(len(seen)) or enter(mode)  # noqa: E731
    monkeypatch.setattr(products.Widened, "__enter__", widen)
    with products.autocast("cpu", torch.bfloat16):
        loss = encoder.pool(rows).sum()
    assert seen == [(True, torch.bfloat16)] * 2
    loss.backward()
    assert seen == [(True, torch.bfloat16)] * 4
    assert widened == [0, 2, 3]
    with torch.autocast("cpu", enabled=False):
        encoder.pool(rows).sum().backward()
    assert seen[4:] == [(True, None)] * 4


def test_nothing_is_computed_again_for_a_frozen_backbone(bert):
    encoder = TorchEncoder.load(bert, pooling="mean", dropout=0.0, attention_dropout=0.0).train()
    encoder.backbone.requires_grad_(False)
    rows = Tokens.from_rows([[2, 7, 8, 9, 3]] * 4)
    whole = encoder.pool(rows)
    encoder.mini_batch_size = 2
    vectors = encoder.pool(rows)
    assert not vectors.requires_grad
    assert torch.allclose(vectors, whole, rtol=0, atol=1e-6)
    scale = torch.ones((), requires_grad=True)  # of what learns behind it
    (scale * vectors).sum().backward()
    assert scale.grad == pytest.approx(float(whole.sum()), rel=1e-4)


def test_what_works_on_tokens_is_rejected(bert):
    settings = Settings(**LEARN, mini_batch_size=4)
    learner = prepare(bert, "simcse", {}, settings)
    learner.terms["difference"] = torch.nn.Identity()
    with pytest.raises(OptionError, match=r"mini_batch_size .*'difference' works on tokens.*use 0"):
        configure(learner, settings)
    configure(learner, Settings(**LEARN))


def test_an_encoder_that_encodes_is_not_disturbed(bert, sentences):
    objective, _ = made(bert, "simcse", sentences)
    vectors = objective.encoder.eval().encode(sentences[:20])
    objective.encoder.mini_batch_size = 0
    assert vectors == pytest.approx(objective.encoder.encode(sentences[:20]), abs=1e-6)
    assert objective.encoder.pool(Tokens.from_rows([])).shape == (0, 32)


def test_a_chunk_with_first_tokens_alone_does_not_hold_its_states(bert, monkeypatch):
    encoder = TorchEncoder.load(bert, pooling="cls").train()
    encoder.mini_batch_size = 4
    held, chunks = [], PooledBackbone._in_order

    def seen(self, parts, order):
        held.extend(part.untyped_storage().nbytes() for part in parts if len(order) > 1)
        return chunks(self, parts, order)

    monkeypatch.setattr(PooledBackbone, "_in_order", seen)
    rows = np.tile(np.array([2, 7, 8, 9, 10, 11, 3]), (12, 1))  # of one length
    vectors = encoder.pool(Tokens.from_rows(list(rows)))
    assert sum(held) == vectors.untyped_storage().nbytes()
