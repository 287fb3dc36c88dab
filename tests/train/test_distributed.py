"""Two processes with half the batch each are one process with the whole batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
EXACT = ("simcse", "chunked", "dot")


@pytest.fixture(scope="module")
def stated(bert, tmp_path_factory):
    """The findings of ``distributed_runs.py``."""
    home = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, str(HERE / "distributed_runs.py"), str(bert), str(home)]
    paths = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["codes"] == {"1": [0], "2": [0, 0]}, done.stderr
    return result["found"]


@pytest.mark.parametrize("case", EXACT)
def test_gradient_and_first_losses(stated, case):
    one, *two = (stated[name][case] for name in ("1-0", "2-0", "2-1"))
    assert len(set(one["losses"])) == len(one["losses"]) == 5
    gradient = np.array(one["gradient"])
    assert np.abs(gradient).max() > 1e-5
    for other in two:
        assert other["losses"] == pytest.approx(one["losses"], rel=1e-9)
        assert np.array(other["gradient"]) == pytest.approx(gradient, abs=1e-10)


def test_processes_agree_on_what_came_of_a_run(stated):
    assert [stated[name]["chosen"] for name in ("1-0", "2-0", "2-1")] == [
        [False, 0, 0.9, 0.3, 4]
    ] * 3


def test_accumulated_parts_have_negatives_of_their_own(stated):
    """Four parts of four rows: two in each of two processes, or four in one, are not the same."""
    whole, one = stated["1-0"]["simcse"]["losses"][0], stated["1-0"]["accumulated"]["losses"][0]
    assert one < whole - 0.1  # fewer candidates are easier
    # Two processes gather the candidates of both in each of their parts.
    two = stated["2-0"]["accumulated"]["losses"][0]
    assert two == pytest.approx(stated["2-1"]["accumulated"]["losses"][0], rel=1e-12)
