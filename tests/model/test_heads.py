"""Heads: what they compute, how they begin, and what a folder can hold of them."""

import math

import pytest
import torch
from torch import nn

from contrasent.errors import OptionError
from contrasent.model.heads import HEADS, BatchNormProjector, Dense, as_dense, make_head


def test_they_begin_as_stated():
    torch.manual_seed(0)
    assert make_head("none", 300) is None
    tanh = make_head("tanh", 300)
    assert tanh.linear.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert tanh.linear.bias.abs().max() == 0
    projector = make_head("batchnorm", 100)
    shapes = [tuple(p.shape) for p in projector.parameters()]
    assert shapes == [(200, 100), (200,), (200,), (100, 200)]
    assert projector[0].weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert len(HEADS) == 3
    with pytest.raises(OptionError, match=r"head 'tahn': unknown; did you mean 'tanh'\?"):
        make_head("tahn", 8)


def test_the_projector_against_loops():
    torch.manual_seed(1)
    projector = make_head("batchnorm", 3).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    first, second = projector[0].weight.tolist(), projector[3].weight.tolist()

    def linear(rows, weight):
        return [
            [sum(w * v for w, v in zip(line, row, strict=True)) for line in weight] for row in rows
        ]

    def normalised(rows):
        columns = list(zip(*rows, strict=True))
        out = []
        for column in columns:
            mean = sum(column) / len(column)
            variance = sum((v - mean) ** 2 for v in column) / len(column)
            out.append([(v - mean) / math.sqrt(variance + 1e-5) for v in column])
        return [list(row) for row in zip(*out, strict=True)]

    hidden = [[max(v, 0) for v in row] for row in normalised(linear(x.tolist(), first))]
    expected = normalised(linear(hidden, second))
    found = projector(x).tolist()
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-10)


def test_folding_draws_no_random_numbers_and_changes_nothing():
    torch.manual_seed(2)
    projector = make_head("batchnorm", 6)
    for _ in range(5):
        projector(torch.randn(16, 6) * 3 + 1)
    projector.eval()
    state = torch.random.get_rng_state()
    layers = as_dense(projector)
    assert torch.equal(torch.random.get_rng_state(), state)
    x = torch.randn(9, 6)
    folded = nn.Sequential(*layers)(x)
    assert folded.detach().numpy() == pytest.approx(projector(x).detach().numpy(), abs=1e-5)
    assert isinstance(projector, BatchNormProjector)  # it is left as it was


def test_dense_layers_are_themselves():
    one, two = Dense(4, 6, nn.Tanh()), Dense(6, 2, nn.Identity(), bias=False)
    assert as_dense(one) == [one]
    assert as_dense(nn.Sequential(one, two)) == [one, two]
    assert two.linear.bias is None
    with pytest.raises(TypeError, match="Linear cannot be written"):
        as_dense(nn.Linear(2, 2))
