"""From names and settings to an objective."""

import torch

from contrasent.model.encoder import Encoder
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings


def test_settings_reach_the_encoder(bert):
    options = {"dropout": 0.3, "pooler": "last_two", "head": "tanh", "normalise": True}
    encoder = prepare(bert, "simcse", {}, Settings(**options)).encoder
    assert (encoder.pooling, encoder.normalise, encoder.dimension) == ("last_two", True, 32)
    config = encoder.backbone.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.3)
    encoder = prepare(bert, "simcse", {}, Settings(dropout=0.3, attention_dropout=0.0)).encoder
    assert encoder.backbone.config.attention_probs_dropout_prob == 0.0


def test_a_bare_encoder_is_pooled_by_cls_and_a_model_as_it_says(bert, tmp_path):
    assert prepare(bert, "simcse", {}, Settings()).encoder.pooling == "cls"
    Encoder.load(bert, pooler="max", max_tokens=20).save(tmp_path / "m")
    encoder = prepare(tmp_path / "m", "simcse", {}, Settings(max_tokens=10)).encoder
    # The length of training is not that of the model.
    assert (encoder.pooling, encoder.max_tokens) == ("max", 20)


def test_fresh_weights_come_of_the_seed_alone(bert):
    def heads(seed):
        torch.rand(seed + 3)
        learner = prepare(bert, "simcse", {}, Settings(seed=seed, head="tanh"))
        return learner.projector.linear.weight, learner.encoder.head.linear.weight

    (one, head), (two, again), (three, other) = heads(4), heads(4), heads(5)
    assert torch.equal(one, two)
    assert torch.equal(head, again)
    assert not torch.equal(one, three)
    assert not torch.equal(head, other)
    assert not torch.equal(one, head)
