"""Poolers against loops over rows, tokens and dimensions."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from contrasent.errors import OptionError
from contrasent.model.encoder import Encoder
from contrasent.model.poolers import POOLERS, averaging, layer_weights, pooler_class

# The others need tokens or statistics: test_own_poolers.
PLAIN = [name for name in POOLERS if pooler_class(name).portable]
CONFIG = SimpleNamespace(hidden_size=6, num_hidden_layers=4, vocab_size=50)


def by_loops(name, hidden, lengths):
    """The pooled vectors, one number at a time."""
    layers = {
        "cls": [-1], "mean": [-1], "max": [-1], "first_last": [1, -1], "embeddings_last": [0, -1],
        "last_two": [-2, -1],
    }[name]  # fmt: skip
    out = []
    for row, length in enumerate(lengths):
        vector = []
        for d in range(hidden[0].shape[-1]):
            values = []
            for t in range(length):
                values.append(sum(float(hidden[k][row, t, d]) for k in layers) / len(layers))
            if name == "cls":
                vector.append(values[0])
            elif name == "max":
                vector.append(max(values))
            else:
                vector.append(sum(values) / length)
        out.append(vector)
    return out


@pytest.mark.parametrize("name", PLAIN)
def test_against_loops(name):
    torch.manual_seed(0)
    lengths = [5, 1, 3, 7]
    # Four layers beyond the embeddings, so that first, last and last but one are different ones.
    hidden = tuple(torch.randn(4, 7, 6, dtype=torch.float64) - 2 for _ in range(5))
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    pooler = pooler_class(name)(CONFIG, None)
    pooled = pooler(hidden, None, mask)
    assert pooled.numpy() == pytest.approx(np.array(by_loops(name, hidden, lengths)), abs=1e-12)
    # Padding is never looked at.
    for states in hidden:
        states[~mask] = 1e6
    assert torch.equal(pooler(hidden, None, mask), pooled)


@pytest.mark.parametrize("name", PLAIN)
def test_through_an_encoder(bert, name):
    encoder = Encoder.load(bert, pooler=name)
    texts = ["a map", "My neighbour forgot the copper kettle last week, she says."]
    tokens = encoder.tokenise(texts)[0]
    for i, text in enumerate(texts):
        ids = torch.tensor(tokens[i]).long()[None]
        with torch.inference_mode():
            output = encoder.backbone(input_ids=ids, output_hidden_states=True)
        expected = by_loops(name, output.hidden_states, [ids.shape[1]])
        assert encoder.encode([text])[0].tolist() == pytest.approx(expected[0], abs=1e-5)


def test_each_is_named_by_its_key():
    assert len(POOLERS) == 8 == 2 + len(PLAIN)
    assert [pooler_class(name).name for name in POOLERS] == list(POOLERS)
    assert all(pooler_class(name).card for name in set(POOLERS) - set(PLAIN))


def test_layer_weights_pick_the_layers():
    assert layer_weights((1, -1), 4) == [0, 1, 0, 0, 1]
    assert layer_weights((0, -1), 4) == [1, 0, 0, 0, 1]
    assert layer_weights((-2, -1), 4) == [0, 0, 0, 1, 1]
    assert layer_weights((-1,), 4) is None
    assert averaging([0, 0, 0, 1, 1]) == "last_two" and averaging([0, 1, 1, 0, 1]) is None


def test_an_unknown_pooler_or_head_is_refused_before_weights_are_read(bert, monkeypatch):
    monkeypatch.setattr("contrasent.model.encoder.load_backbone", None)
    with pytest.raises(OptionError, match="did you mean 'last_two'"):
        Encoder.load(bert, pooler="lasttwo")
    with pytest.raises(OptionError, match="head 'than': unknown; did you mean 'tanh'"):
        Encoder.load(bert, pooler="cls", head="than")
