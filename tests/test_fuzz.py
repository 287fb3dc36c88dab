"""A moment of random damage for every reader of strangers' files and requests."""

import random

import pytest

import fuzz_targets

ROUNDS = {"requests": 150, "golden_and_weights": 60}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_damage_is_told_in_a_line(name):
    rng = random.Random(name)
    for _ in range(ROUNDS.get(name, 200)):
        data = rng.randbytes(rng.choice([4, 16, 64]))
        try:
            fuzz_targets.feed(name, data)
        except Exception as error:
            raise AssertionError(f"{name} fails on bytes.fromhex({data.hex()!r})") from error


def test_a_fault_is_found(monkeypatch):
    """The harness would see one."""
    monkeypatch.setitem(fuzz_targets.TARGETS, "filters", lambda data: {}["missing"])
    with pytest.raises(KeyError):
        fuzz_targets.feed("filters", b"")
    assert len(fuzz_targets.TARGETS) == 7
