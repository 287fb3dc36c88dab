"""Bucketed shapes and compilation: the same vectors and gradients, and names that stay."""

import torch

from contrasent.encoder.backbone import BUCKET
from contrasent.encoder.encoder import TorchEncoder
from contrasent.types import Tokens

TEXTS = ["The gardener sold his violin.", "a map", "", "My neighbor hid two blue lamps."] * 2


def load(folder):
    encoder = TorchEncoder.load(folder, pooling="mean", dropout=0.0, attention_dropout=0.0).train()
    return encoder, encoder.tokenize(TEXTS)[0]


def test_a_bucketed_block_is_one_of_a_round_length(bert):
    encoder, tokens = load(bert)
    plain = encoder(tokens)
    encoder.packed, encoder.bucketed = False, True
    shapes = []
    hook = encoder.backbone.register_forward_pre_hook(
        lambda module, given, named: shapes.append(named["input_ids"].shape), with_kwargs=True
    )
    assert torch.allclose(encoder(tokens), plain, atol=1e-5)
    hook.remove()
    assert len(shapes) == 1
    assert shapes[0][1] % BUCKET == 0
    assert 0 <= shapes[0][1] - tokens.lengths.max() < BUCKET


def test_the_room_ends_where_positions_do(bert):
    """60 of 64 positions: a multiple of 8 fits; and at 64 there is nothing to add."""
    encoder, _ = load(bert)
    encoder.bucketed = True
    for count, width in ((60, 64), (64, 64), (9, 16)):
        ids, mask = encoder.padded(Tokens.from_rows([range(2, 2 + count)]))
        assert ids.shape == mask.shape == (1, width)
        assert mask.sum() == count


def test_a_compiled_backbone_gives_the_same(bert, monkeypatch):
    """With a backend that traces alone: code for this machine is the compiler's business."""
    encoder, tokens = load(bert)
    plain = encoder(tokens)
    plain.sum().backward()
    wanted = {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}
    names = list(encoder.state_dict())
    compiled = encoder.backbone.compile
    calls = []

    def traced(**options):
        calls.append(options)
        compiled(backend="eager", dynamic=options["dynamic"])

    monkeypatch.setattr(encoder.backbone, "compile", traced)
    encoder.compile_backbone()
    assert calls == [{"dynamic": False, "mode": "default"}]
    assert not encoder.packed
    encoder.zero_grad()
    vectors = encoder(tokens)
    vectors.sum().backward()
    assert torch.allclose(vectors, plain, atol=1e-5)
    for name, gradient in wanted.items():
        found = dict(encoder.named_parameters())[name].grad
        assert torch.allclose(found, gradient, atol=1e-4), name
    assert list(encoder.state_dict()) == names
    torch._dynamo.reset()
