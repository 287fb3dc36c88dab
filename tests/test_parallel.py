"""One process: everything is what it is. (Several: ``train/test_torchrun.py``.)"""

import pytest
import torch

from contrasent import parallel
from contrasent.errors import UserError


def test_alone():
    assert (parallel.rank(), parallel.world(), parallel.is_main()) == (0, 1, True)
    rows = torch.randn(3, 4, requires_grad=True)
    assert parallel.gather(rows) is rows
    assert parallel.first_row(7) == 0
    average = parallel.average(rows.sum())
    assert torch.equal(average, rows.sum())
    assert not average.requires_grad
    assert parallel.from_main({"a": 1}) == {"a": 1}
    assert (parallel.anywhere(True), parallel.anywhere(False)) == (True, False)
    parallel.barrier()
    module = torch.nn.Linear(2, 2)
    assert parallel.wrap(module) is module
    with parallel.processes():
        assert parallel.world() == 1


def test_the_device_is_known_before_the_processes_join(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    for there, device in ((True, "cuda:3"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert parallel.device() == device


@pytest.mark.parametrize("missing", ["RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_an_environment_that_torchrun_did_not_make(monkeypatch, missing):
    stated = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    for name in stated:
        monkeypatch.delenv(name, raising=False)
    for name in stated.keys() - {missing}:
        monkeypatch.setenv(name, stated[name])
    with (
        pytest.raises(UserError, match="several processes: start them with torchrun"),
        parallel.processes(),
    ):
        pass
    assert parallel.world() == 1
