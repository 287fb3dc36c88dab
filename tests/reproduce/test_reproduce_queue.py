"""The queue: killed at any instant it goes on, and nothing is computed twice."""

import signal
from pathlib import Path

import pytest

from commands import script

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
UNITS = 1 + 3 * 2
"""The base once, three trained rows with two seeds each."""


@pytest.fixture(scope="module")
def told(bert, tmp_path_factory):
    """What ``killed_reproductions.py`` found."""
    home = tmp_path_factory.mktemp("killed")
    return script(HERE / "killed_reproductions.py", bert, home, timeout=600)


def test_an_uninterrupted_run(told):
    (whole,) = told["whole"]
    assert (whole["status"], whole["asked"], whole["models"]) == ([0], UNITS, [])
    rows = {row["name"]: row for row in whole["items"][0]["rows"]}
    assert list(rows) == ["base", "plain", "crop 20", "crop 40"]
    assert [row["cells"]["made"]["seeds"] for row in rows.values()] == [0, 2, 2, 2]
    assert all(not row["skipped"] for row in rows.values())
    values = [value for row in rows.values() for value in row["cells"]["made"]["values"]]
    assert len(set(values)) == UNITS
    assert told["count"] > 100


def test_killed_three_times_it_gives_the_same_report(told):
    assert len(told["killed"]) == 2
    for killed in told["killed"]:
        assert killed["status"] == [-signal.SIGKILL] * 3 + [0], killed["points"]
        assert killed["items"] == told["whole"][0]["items"], killed["points"]
        # What was measured before a kill is not measured again, but for the one in hand.
        assert UNITS <= killed["asked"] <= UNITS + 3
        assert killed["models"] == []


def test_two_processes_share_one_queue(told):
    (shared,) = told["shared"]
    assert shared["status"] == [0, 0]
    assert (shared["items"], shared["asked"]) == (told["whole"][0]["items"], UNITS)


def test_items_share_what_they_have_in_common(told):
    other, both, more = told["later"]
    assert [step["status"] for step in told["later"]] == [0, 0, 0]
    # All of the second table is in the first one.
    assert (other["made"], both["made"]) == (0, 0)
    # A third seed of the three rows that are trained.
    assert more["made"] == 3
