"""The stages of an adaptation on disk."""

import numpy as np
import pytest

from contrasent.adapt import work as module
from contrasent.adapt.work import Work
from contrasent.errors import OutputError

TEXTS = [f"a lantern and {n} keys" for n in range(23)]


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when they are added."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_killed_encoding_has_lost_one_block(tmp_path, monkeypatch, clock):
    monkeypatch.setattr("contrasent.adapt.candidates.BLOCK", 5)
    encoded = []

    def encode(texts):
        if len(encoded) == 3:
            clock[0] += 40.0
            encoded.append(None)
            raise KeyboardInterrupt
        clock[0] += 2.0
        encoded.append(texts)
        return np.array([[len(text), TEXTS.index(text)] for text in texts], dtype=np.float32)

    first = Work(tmp_path / "work", {"seed": 1}, resume=False)
    with pytest.raises(KeyboardInterrupt):
        first.encode("base", encode, TEXTS)
    assert len(list((tmp_path / "work").glob("base.block*.npy"))) == 3
    clock[0] += 1000.0  # between the two runs
    again = Work(tmp_path / "work", {"seed": 1}, resume=True)
    vectors = again.encode("base", encode, TEXTS)
    assert encoded == [*(TEXTS[at : at + 5] for at in (0, 5, 10)), None, TEXTS[15:20], TEXTS[20:]]
    assert vectors.tolist() == [[len(text), n] for n, text in enumerate(TEXTS)]
    assert again.encoding_seconds("base") == 10.0  # five blocks, of which nothing was lost
    assert again.seconds() == 10.0
    assert [p.name for p in (tmp_path / "work").glob("*.npy")] == ["base.npy"]
    assert again.encode("base", encode, TEXTS).tolist() == vectors.tolist()
    assert len(encoded) == 6


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
    assert (again.stage("one", make), len(calls)) == ({"a": [1, 2]}, 1)
    np.testing.assert_array_equal(again.vectors("v", lambda: 1 / 0), vectors)
    assert again.seconds() >= again.earlier > 0
    with pytest.raises(OutputError, match="--resume"):
        Work(folder, {"seed": 0}, resume=False)
    with pytest.raises(OutputError, match="seed 0, not 1"):
        Work(folder, {"seed": 1}, resume=True)
