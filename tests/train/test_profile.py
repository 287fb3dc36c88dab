"""Where the time goes: the parts sum to the wall time, whatever happens inside them."""

import json
import time

import pytest

from contrasent.train import run as module
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.run import PARTS, Clock
from contrasent.train.settings import Settings


@pytest.fixture
def hand(monkeypatch):
    """A clock whose time is set by hand."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def test_every_moment_belongs_to_one_part(hand):
    clock = Clock()
    hand(1)
    with clock.part("evaluation"):
        hand(2)
        with clock.part("checkpoint"):
            hand(4)
        hand(8)
    hand(16)
    with pytest.raises(ValueError, match="stop"), clock.part("forward"):
        hand(32)
        raise ValueError("stop")
    hand(64)
    table = clock.table()
    known = {"evaluation": 10, "checkpoint": 4, "forward": 32, "other": 81, "wall": 127}
    assert table == dict.fromkeys(PARTS, 0.0) | known
    assert clock.table() == table


def test_work_elsewhere_is_waited_for_at_every_change(hand):
    clock = Clock()
    clock.settle = lambda: hand(0.5)
    with clock.part("forward"):
        hand(1)
    assert clock.table()["forward"] == 1.5
    assert clock.table()["wall"] == 1 + 4 * 0.5


def test_a_run_sums_to_the_wall_time(bert, sentences, tmp_path, monkeypatch):
    settings = Settings(batch=16, steps=6, evaluate_every=2, pooler="mean")

    def evaluate(encode):
        time.sleep(0.05)
        encode(sentences[:4])
        from contrasent.report import Report, Row

        return Report((Row("made", "dev", "spearman", "", 0.5, 10),))

    began = time.monotonic()
    clock = Clock()
    with clock.part("load"):
        learner = prepare(bert, "simcse", {}, settings)
    fit(learner, sentences, settings, folder=tmp_path / "m", evaluate=evaluate, clock=clock)
    wall = time.monotonic() - began
    table = json.loads((tmp_path / "m" / "run" / "profile.json").read_text())
    assert set(table) == {*PARTS, "wall"}
    assert table["wall"] == pytest.approx(wall, rel=0.01, abs=0.02)
    assert sum(table[name] for name in PARTS) == pytest.approx(table["wall"], rel=1e-9)
    assert all(table[name] > 0 for name in PARTS)
    assert 0.2 < table["evaluation"] < 0.9 * wall  # four of them sleep


def test_the_command_prints_the_table(bert, sentences, tmp_path):
    from typer.testing import CliRunner

    from contrasent.cli.app import app

    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences[:40]))
    command = ["train", str(text), "-o", str(tmp_path / "m"), "--base", str(bert), "--profile"]
    done = CliRunner().invoke(app, [*command, "--set", "steps=2", "--set", "batch=8", "--quiet"])
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()[-10:]]
    assert [line[0] for line in lines] == [*PARTS, "wall"]
    assert sum(float(line[1]) for line in lines[:-1]) == pytest.approx(float(lines[-1][1]), abs=0.1)
