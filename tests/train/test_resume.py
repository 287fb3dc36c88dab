"""Killed with SIGKILL at any instant and resumed, a run ends in the same bits."""

import signal
from pathlib import Path

import pytest

from commands import script

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def stated(bert, tmp_path_factory):
    """The findings of ``killed_runs.py``."""
    home = tmp_path_factory.mktemp("killed")
    return script(HERE / "killed_runs.py", bert, home, timeout=900)


@pytest.mark.parametrize(
    ("kind", "kills"), [("views", 4), ("pairs", 2), ("queue", 2)], ids=["views", "pairs", "queue"]
)
def test_the_same_bits(stated, kind, kills):
    whole, *killed = stated[kind]
    assert whole["status"] == [0]
    assert len(killed) == kills
    assert {len(run["kills"]) for run in killed} == {1, 2}
    for run in killed:
        assert run["status"] == [-signal.SIGKILL] * len(run["kills"]) + [0]
        # Model, best, last, checkpoint, log and card; and no temporary file is left behind.
        assert run["files"] == whole["files"], run["kills"]


def test_killed_at_its_very_end_a_run_leaves_nothing_behind(stated):
    *different, last = stated["ends"]
    assert last["statuses"] == [0, *[[-signal.SIGKILL, 0]] * 9]
    assert different == []


def test_what_is_compared(stated):
    files = stated["views"][0]["files"]
    wanted = {"README.md", "model.safetensors", "run/log.jsonl", "run/settings.json"}
    kept = {f"run/{name}/model.safetensors" for name in ("base", "best", "last")}
    assert wanted | kept | {"run/checkpoint.safetensors"} <= files.keys()
    # The best is not the last, or there would be nothing to see.
    assert files["run/best/model.safetensors"] != files["run/last/model.safetensors"]
    assert files["model.safetensors"] == files["run/best/model.safetensors"]
    assert "run/best/model.safetensors" not in stated["pairs"][0]["files"]
    # There are many instants to choose from, and they are spread over the run.
    assert stated["views"][0]["count"] > 120
    count = stated["views"][0]["count"]
    points = [run["kills"][0] for run in stated["views"][1:]]
    assert min(points) <= count / 4
    assert max(points) > 3 * count / 4
