"""Reports on disk: items beside the JSON, earlier JSON without them, broken files."""

import json

import numpy as np
import pytest

from contrasent.errors import InputError
from contrasent.report import Items, Report, Row, read_reports, write_reports

ROW = Row("STSB", "test", "spearman", "all", 0.5, 3)
MEAN = Row("pairs", "test", "spearman", "mean", 0.5, 3)
KEYS = np.array([1, 2**63, 5], dtype=np.uint64)
ITEMS = Items("spearman", KEYS, np.array([[0.1, 0.2, 0.3], [1, 2, 3]]), (1, 2), "wmean", "c")


def report(value=0.5):
    return Report((ROW, MEAN), {"form": "raw"}, {ROW.key: ITEMS, MEAN.key: (ROW.key, ROW.key)})


def test_items_are_written_beside_the_json_and_read_again(tmp_path):
    write_reports(tmp_path / "a.json", {"m": report(), "n": Report((ROW,))})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text)["items"] == "a.items.safetensors"
    assert "0.2" not in text  # no item in the JSON
    found = read_reports(tmp_path / "a.json")
    assert found["m"] == report()
    assert found["n"].items == {}
    assert set(found["m"].items) == {ROW.key, MEAN.key}
    assert found["m"].items[MEAN.key] == (ROW.key, ROW.key)
    items = found["m"].items[ROW.key]
    np.testing.assert_array_equal(items.keys, KEYS)
    np.testing.assert_array_equal(items.columns, ITEMS.columns)
    rest = (items.statistic, items.sizes, items.aggregate, items.context)
    assert rest == ("spearman", (1, 2), "wmean", "c")


def test_earlier_json_is_read(tmp_path):
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"model": "m", **Report((ROW,), {"form": "raw"}).to_json()}))
    assert read_reports(path) == {"m": Report((ROW,), {"form": "raw"})}
    path.write_text(json.dumps({"models": [{"model": n, **report().to_json()} for n in "xy"]}))
    assert list(read_reports(path)) == ["x", "y"]
    write_reports(path, {"m": Report((ROW,))})
    assert "items" not in json.loads(path.read_text())
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"]


def test_what_cannot_be_read_is_said(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(InputError, match="cannot be read"):
        read_reports(path)
    for text in ("{", "[1]", '{"rows": [{"task": 1}]}'):
        path.write_text(text)
        with pytest.raises(InputError, match="no report; write one with evaluate --json"):
            read_reports(path)
    write_reports(path, {"m": report()})
    beside = tmp_path / "a.items.safetensors"
    beside.write_bytes(beside.read_bytes()[:-9])
    with pytest.raises(InputError, match="no items of a report"):
        read_reports(path)
    beside.unlink()
    with pytest.raises(InputError, match=r"its items, a\.items\.safetensors, are missing"):
        read_reports(path)
