"""Numbers as people read them."""

import pytest

from contrasent.progress import duration
from contrasent.reproduce.console import between, cell_texts, forms, number, p_value
from contrasent.reproduce.results import times


@pytest.mark.parametrize(("published", "ours", "points", "expected"), [
    # One decimal in the document, two of ours.
    ([82.5, 71.0], [77.4712], True, {"paper": ".1f", "ours": ".2f"}),
    ([82.45, 84.4], [77.4712], True, {"paper": ".2f", "ours": ".2f"}),
    ([], [0.0871, -1.39], False, {"paper": ".0f", "ours": ".3f"}),
    ([0.172, 0.18], [0.2], False, {"paper": ".3f", "ours": ".3f"}),
    ([64.0, 512.0], [], False, {"paper": ".0f", "ours": ".1f"}),
    ([], [123456.0], False, {"paper": ".0f", "ours": ".0f"}),
    # Learning rates are written as they are.
    ([3e-5, 1e-5], [], False, {"paper": "g", "ours": "g"}),
])  # fmt: skip
def test_decimals_of_a_column(published, ours, points, expected):
    assert forms(published, ours, points=points) == expected


def test_numbers():
    assert number(71.0, ".1f") == "71.0"
    assert number(-0.0004, ".2f", signed=True) == "0.00"
    assert number(0.0904, ".2f", signed=True) == "+0.09"
    assert number(3e-5, "g") == "3e-5"
    assert between(-0.5, 2.0, ".1f", signed=True) == "[-0.5, +2.0]"
    assert [p_value(p) for p in (0.0004, 0.0123, 0.5)] == ["p < 0.001", "p 0.012", "p 0.50"]
    times = [duration(seconds) for seconds in (5, 89, 90, 3600, 8000)]
    assert times == ["5 s", "89 s", "2 min", "60 min", "2 h 13 min"]


def test_a_cell():
    column = {"forms": {"paper": ".1f", "ours": ".2f"}}
    assert set(cell_texts({}, column).values()) == {""}
    cell = {
        "paper": 71.0, "ours": 77.4712, "sd": 0.5, "seeds": 3, "low": 76.229, "high": 78.713,
        "difference": {"ours": -0.8, "low": -2.0, "high": 0.4, "paper": -11.5},
        "verdict": {"word": "cannot tell", "why": "...", "p": 0.2345},
    }  # fmt: skip
    assert cell_texts(cell, column) == {
        "paper": "71.0", "ours": "77.47", "spread": "0.50",
        "interval": "[76.23, 78.71]", "seeds": "3", "published": "-11.5",
        "difference": "-0.80 [-2.00, +0.40]", "verdict": "cannot tell (p 0.23)",
    }  # fmt: skip
    one = cell_texts({"ours": 1.0, "seeds": 0}, column)
    assert (one["seeds"], one["verdict"], one["difference"]) == ("-", "", "")


def test_time_is_counted_once():
    """A run has its own time, and a measurement that without the run's."""
    machine = {"machine": "a processor, 2 cores, 1 thread"}
    train = {"steps": 80, "seconds": 70.0, "precision": "fp32", **machine}
    units = {"a": {"model": "m", "measured_in": 5.0}, "c": {"model": "n", "measured_in": 2.0}}
    found = times({"m": train, **units})
    assert (found["seconds"], found["trained"], found["precisions"]) == (77.0, 1, ["fp32"])
    assert found["machines"] == [machine["machine"]]
