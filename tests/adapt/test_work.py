"""The stages of an adaptation on disk."""

import numpy as np
import pytest

from contrasent.adapt import work as module
from contrasent.adapt.work import Work
from contrasent.errors import OutputError


def test_a_stage_is_done_once_and_another_run_does_not_continue_it(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    folder = tmp_path / "out" / "work"
    work = Work(folder, {"seed": 0}, resume=False)
    calls = []

    def make():
        calls.append(1)
        now[0] += 7.0
        return {"a": [1, 2]}

    assert work.stage("one", make) == work.stage("one", make) == {"a": [1, 2]}
    vectors = np.ones((2, 3), np.float32)
    work.vectors("v", lambda: vectors)
    now[0] += 1000.0  # between the two runs
    again = Work(folder, {"seed": 0}, resume=True)
    assert (again.stage("one", make), len(calls)) == ({"a": [1, 2]}, 1)
    np.testing.assert_array_equal(again.vectors("v", lambda: 1 / 0), vectors)
    assert again.seconds() == 7.0  # what was computed, not what passed
    with pytest.raises(OutputError, match="--resume"):
        Work(folder, {"seed": 0}, resume=False)
    with pytest.raises(OutputError, match="seed 0, not 1"):
        Work(folder, {"seed": 1}, resume=True)
    update = tmp_path / "made" / "work"
    Work(update, {"update": True, "seed": 0}, resume=False)
    with pytest.raises(OutputError, match=r"seed 0, not 1; give the same$"):
        Work(update, {"update": True, "seed": 1}, resume=True)
    for resume in (False, True):
        with pytest.raises(OutputError, match="--update continues it, --overwrite"):
            Work(update, {"seed": 0}, resume=resume)
    with pytest.raises(OutputError, match=r"unfinished adaptation; --resume continues it$"):
        Work(folder, {"update": True, "seed": 0}, resume=True)
    again.forget("one")
    assert again.stage("one", make) and len(calls) == 2
    again.discard()
    assert not folder.exists()
