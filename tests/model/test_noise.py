"""A view by dropout: a function of its seed, unlike the plain vectors, that disturbs nobody."""

import numpy as np
import torch

from contrasent.model.base import dropout_view
from contrasent.model.encoder import Encoder


def test_a_view_is_a_function_of_its_seed(bert, sentences):
    encoder = Encoder.load(bert, pooler="mean", dropout=0.2)
    state = torch.get_rng_state()
    one, again, other = (dropout_view(encoder, sentences[:9], seed=s, batch=4) for s in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert not encoder.training
    assert np.array_equal(one, again)
    plain = encoder.encode(sentences[:9])
    for row in range(9):
        assert not np.allclose(one[row], other[row])
        assert not np.allclose(one[row], plain[row])
    assert one.dtype == np.float32
    assert one.shape == plain.shape


def test_without_dropout_a_view_is_the_plain_vector(bert, sentences):
    encoder = Encoder.load(bert, pooler="mean", dropout=0.0, attention_dropout=0.0)
    view = dropout_view(encoder, sentences[:9], seed=1, batch=4)
    np.testing.assert_allclose(view, encoder.encode(sentences[:9]), atol=1e-6)
