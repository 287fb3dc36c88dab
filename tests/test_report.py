"""Reports: rows are found and printed; files of reports and items."""

import json

import numpy as np
import pytest

from contrasent.errors import DataError, InputError
from contrasent.report import Items, Report, Row, read_reports, shown, write_reports

ROWS = (
    Row("STS12", "test", "spearman", "all", 0.72374, 3108, 0.70, 0.74),
    Row("STS12", "test", "pearson", "all", 0.81, 3108),
    Row("STS13", "test", "spearman", "all", 0.80607, 1500, 0.78, 0.82),
    Row("mine", "heldout", "mrr@10", "", 0.5, 40),
    Row("mine", "", "alignment", "", 0.21, 40),
    Row("mine", "", "perplexity", "", 12345.678, 40),
)
REPORT = Report(ROWS, {"form": "raw", "distinct_sentences": 21234, "cached": True})


def test_rows_are_found_if_there_is_one():
    assert len(REPORT) == 6
    assert [row.task for row in REPORT] == ["STS12", "STS12", "STS13", "mine", "mine", "mine"]
    assert REPORT.select(metric="spearman").rows == (ROWS[0], ROWS[2])
    assert REPORT.select(metric="spearman").notes == REPORT.notes
    assert REPORT.one(task="STS12", metric="pearson") is ROWS[1]
    for wanted, count in (({"task": "STS12"}, 2), ({"task": "STS99"}, 0)):
        with pytest.raises(DataError, match=f"the report has {count} rows for"):
            REPORT.one(**wanted)


def test_the_table_has_values_as_they_are_read():
    for metric, value, text in (
        ("pearson", -0.05, "-5.00"), ("accuracy", 1.0, "100.00"), ("recall@1", 0.0, "0.000"),
        ("uniformity", -2.5, "-2.500"), ("perplexity", 12345.678, "12,346"),
    ):  # fmt: skip
        assert shown(metric, value) == text
    lines = REPORT.table().splitlines()
    first, second = (" ".join(line.split()) for line in lines[:2])
    assert first == "task split metric value 95 % CI count"
    assert second == "STS12 test spearman all 72.37 70.00 to 74.00 3,108"
    assert lines[4].split() == ["mine", "heldout", "mrr@10", "0.500", "40"]
    assert lines[7:] == ["form: raw", "distinct_sentences: 21,234", "cached: True"]
    ends = {len(line) for line in lines[:7]}
    assert len(ends) == 1  # the last column is flush right
    assert len(Report(()).table().splitlines()) == 1


def test_json_and_back_and_joining():
    data = json.loads(json.dumps(REPORT.to_json(), allow_nan=False))
    assert Report.from_json(data) == REPORT
    names = ["task", "split", "metric", "aggregate", "value", "count", "low", "high"]
    stored = ["STS12", "test", "spearman", "all", 0.72374, 3108, 0.7, 0.74]
    assert data["rows"][0] == dict(zip(names, stored, strict=True))
    assert Report.from_json({"rows": []}) == Report(())
    other = Report((Row("SICKR", "test", "spearman", "all", 0.7, 4927),), {"form": "senteval"})
    joined = Report.join([REPORT, other])
    assert joined.rows == ROWS + other.rows
    assert joined.notes == {"form": "senteval", "distinct_sentences": 21234, "cached": True}


ROW = Row("STSB", "test", "spearman", "all", 0.5, 3)
MEAN = Row("pairs", "test", "spearman", "mean", 0.5, 3)
KEYS = np.array([1, 2**63, 5], dtype=np.uint64)
ITEMS = Items("spearman", KEYS, np.array([[0.1, 0.2, 0.3], [1, 2, 3]]), (1, 2), "wmean", "c")


def report(value=0.5):
    return Report((ROW, MEAN), {"form": "raw"}, {ROW.key: ITEMS, MEAN.key: (ROW.key, ROW.key)})


def test_items_are_written_with_the_json_and_read_again(tmp_path):
    write_reports(tmp_path / "a.json", {"m": report(), "n": Report((ROW,))})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text)["items"] == "a.items.safetensors"
    assert "0.2" not in text  # no item in the JSON
    found = read_reports(tmp_path / "a.json")
    assert (found["m"], found["n"].items) == (report(), {})
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
        with pytest.raises(InputError, match="not a report; create one with evaluate --json-file"):
            read_reports(path)
    write_reports(path, {"m": report()})
    second = tmp_path / "a.items.safetensors"
    second.write_bytes(second.read_bytes()[:-9])
    with pytest.raises(InputError, match="not the items of a report"):
        read_reports(path)
    second.unlink()
    with pytest.raises(InputError, match=r"its items, a\.items\.safetensors, are missing"):
        read_reports(path)


def test_a_notebook_shows_a_table_of_html():
    row = Row("a <b>", "test", "accuracy", "", 0.5, 10, 0.25, 0.75)
    shown_as = Report((row,))._repr_html_()
    assert shown_as.startswith("<table><tr><th>task</th>")
    assert "<td>a &lt;b&gt;</td><td>test</td><td>accuracy</td>" in shown_as
    assert "<td>50.00</td><td>25.00 to 75.00</td><td>10</td></tr></table>" in shown_as
