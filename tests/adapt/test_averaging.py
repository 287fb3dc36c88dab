"""Averages of weights, and the record of an adaptation that was killed."""

import numpy as np
import pytest
import torch

from contrasent.adapt.training import average
from contrasent.adapt.work import Work
from contrasent.errors import ModelError, OptionError, OutputError
from contrasent.model.encoder import Encoder


def moved(bert, seed):
    encoder = Encoder.load(bert, pooler="mean")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return encoder


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_every_weight_lies_between_the_two(bert, share):
    base, trained = Encoder.load(bert, pooler="mean"), moved(bert, 1)
    kept = {name: value.clone() for name, value in trained.state_dict().items()}
    middle = average(base, trained, share)
    before = base.state_dict()
    for name, value in middle.state_dict().items():
        wanted = (1 - share) * before[name].double() + share * kept[name].double()
        torch.testing.assert_close(value.double(), wanted, rtol=1e-6, atol=1e-7)
    for name, value in trained.state_dict().items():
        assert torch.equal(value, kept[name])


def test_what_has_no_average_is_refused(bert, tiny):
    base = Encoder.load(bert, pooler="mean")
    with pytest.raises(OptionError, match="0 to 1"):
        average(base, moved(bert, 1), 1.5)
    with pytest.raises(ModelError, match="no average"):
        average(base, Encoder.load(tiny["roberta"], pooler="mean"), 0.5)


def test_a_stage_is_done_once_and_another_run_does_not_go_on_with_it(tmp_path):
    folder = tmp_path / "model" / "work"
    work = Work(folder, {"seed": 0}, resume=False)
    calls = []

    def make():
        calls.append(1)
        return {"a": [1, 2]}

    assert work.stage("one", make) == work.stage("one", make) == {"a": [1, 2]}
    vectors = np.ones((2, 3), np.float32)
    work.vectors("v", lambda: vectors)
    again = Work(folder, {"seed": 0}, resume=True)
    assert again.stage("one", make) == {"a": [1, 2]}
    assert len(calls) == 1
    np.testing.assert_array_equal(again.vectors("v", lambda: 1 / 0), vectors)
    assert again.seconds() >= again.earlier > 0
    with pytest.raises(OutputError, match="--resume"):
        Work(folder, {"seed": 0}, resume=False)
    with pytest.raises(OutputError, match="seed 0, not 1"):
        Work(folder, {"seed": 1}, resume=True)
