"""The gate through the whole command: text without meaning, where nothing can be learnt."""

import pytest
from benchmarks.gate import run

from contrasent.model.encoder import Encoder

RUNS = 6


@pytest.mark.slow
def test_text_without_meaning_ships_next_to_nothing(tmp_path, bert, monkeypatch):
    """A small part of ``benchmarks/gate.py``."""
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    base = tmp_path / "base"
    Encoder.load(bert, pooler="mean", normalise=True).save(base)
    lines = []
    for seed in range(RUNS):
        (tmp_path / str(seed)).mkdir()
        lines.append(run(base, tmp_path / str(seed), seed))
    assert all(line["tried"] > 20 for line in lines)
    # A gate of one in twenty lets more than one of six through in 3 % of such tests.
    assert sum(line["improved"] for line in lines) <= 1
