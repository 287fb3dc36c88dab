"""Where the heads of an encoder look: a plain loop, a collapsed head, and no side effects."""

import math

import pytest
import torch

from contrasent.encoder.attention_weights import attention_of
from contrasent.encoder.encoder import TorchEncoder
from tiny_models import collapse_head, write_backbone, write_tokenizer

TEXTS = [
    "A torn map.",
    "The night nurse forgot two blue lamps before dawn.",
    "Rain fell on the roof.",
]


@pytest.fixture
def encoder(bert):
    return TorchEncoder.load(bert, pooling="mean", dropout=0.1)


def test_entropy_and_first_weight_are_those_of_a_plain_loop(encoder):
    with torch.no_grad():
        for layer in encoder.backbone.encoder.layer:
            layer.attention.self.query.weight *= 20  # or all weights are alike
    found = attention_of(encoder.train(), TEXTS)
    encoder.eval()
    encoder.backbone.set_attn_implementation("eager")
    sums = [[[0.0, 0.0] for _ in row] for row in found.entropy]
    count = 0
    for text in TEXTS:
        ids = torch.from_numpy(encoder.tokenizer([text])[0].pad(0)[0])
        with torch.no_grad():
            layers = encoder.backbone(input_ids=ids, output_attentions=True).attentions
        count += ids.shape[1]
        for n, weights in enumerate(layers):
            for head, rows in enumerate(weights[0].double().tolist()):
                for row in rows:
                    sums[n][head][0] -= sum(w * math.log(w) for w in row if w > 0)
                    sums[n][head][1] += row[0]
    for n, heads in enumerate(sums):
        for head, (entropy, first) in enumerate(heads):
            assert found.entropy[n, head] == pytest.approx(entropy / count, rel=1e-4)
            assert found.first[n, head] == pytest.approx(first / count, rel=1e-4)
    assert found.entropy.std() > 1e-3


def test_a_measurement_leaves_no_trace(encoder):
    encoder.train()
    before = encoder.backbone.config._attn_implementation
    vectors = encoder.encode(TEXTS)
    assert attention_of(encoder, TEXTS).warning() == ""
    assert encoder.backbone.training
    assert encoder.backbone.config._attn_implementation == before
    assert (encoder.encode(TEXTS) == vectors).all()


def test_a_collapsed_head_and_layer_are_named(encoder):
    encoder.eval()
    collapse_head(encoder, 1, 0, TEXTS)
    found = attention_of(encoder, TEXTS)
    assert found.sinks == [(2, 1)]
    heads = found.first.size
    assert f"1 of {heads} heads give the first token more than 90 % of" in found.warning()
    assert "(layer 2: 1)" in found.warning()
    assert "less than" not in found.warning()
    for head in range(1, found.first.shape[1]):
        collapse_head(encoder, 1, head, TEXTS)
    warning = attention_of(encoder, TEXTS).warning()
    assert "layers with less than 0.5 nats of entropy: 2 (0." in warning


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "mpnet", "electra", "modernbert"])
def test_other_encoders(tiny, kind):
    encoder = TorchEncoder.load(tiny[kind], pooling="mean")
    found = attention_of(encoder, TEXTS)
    assert found is not None
    assert found.first.shape[0] == 2
    assert 0.5 < found.entropy.min() <= found.entropy.max() < math.log(30)


def test_decoders_have_a_sink_of_their_own(tmp_path):
    kind = "modernbert-decoder"
    write_backbone(kind, tmp_path, write_tokenizer(kind, tmp_path))
    for opened in (False, True):  # as after pre-training
        encoder = TorchEncoder.load(tmp_path, pooling="mean", bidirectional=opened)
        assert attention_of(encoder, TEXTS) is None
