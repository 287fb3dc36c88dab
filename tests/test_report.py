"""Reports: rows are found, averaged without rounding, printed and written."""

import json

import pytest

from contrasent.errors import DataError
from contrasent.report import Report, Row, shown

ROWS = (
    Row("STS12", "test", "spearman", "all", 0.72374, 3108, 0.70, 0.74),
    Row("STS12", "test", "pearson", "all", 0.81, 3108),
    Row("STS13", "test", "spearman", "all", 0.80607, 1500, 0.78, 0.82),
    Row("mine", "heldout", "mrr@10", "", 0.5, 40),
    Row("mine", "", "alignment", "", 0.21, 40),
    Row("mine", "", "perplexity", "", 12345.678, 40),
)
REPORT = Report(ROWS, {"form": "raw", "distinct_sentences": 21234, "cached": True})


def test_rows_are_found():
    assert len(REPORT) == 6
    assert [row.task for row in REPORT] == ["STS12", "STS12", "STS13", "mine", "mine", "mine"]
    assert REPORT.select(metric="spearman").rows == (ROWS[0], ROWS[2])
    assert REPORT.select(metric="spearman").notes == REPORT.notes
    assert REPORT.one(task="STS12", metric="pearson") is ROWS[1]
    for wanted, count in (({"task": "STS12"}, 2), ({"task": "STS99"}, 0)):
        with pytest.raises(DataError, match=f"the report has {count} rows for"):
            REPORT.one(**wanted)


def test_averages_are_of_unrounded_values_and_refuse_missing_tasks():
    average = REPORT.average(("STS12", "STS13"), metric="spearman")
    assert average == (0.72374 + 0.80607) / 2
    with pytest.raises(DataError, match=r"0 rows for {'task': 'STS14'"):
        REPORT.average(("STS12", "STS14"), metric="spearman")


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("spearman", 0.72374, "72.37"),
        ("pearson", -0.05, "-5.00"),
        ("accuracy", 1.0, "100.00"),
        ("mrr@10", 0.49, "49.00"),
        ("recall@1", 0.0, "0.00"),
        ("alignment", 0.21, "0.210"),
        ("uniformity", -2.5, "-2.500"),
        ("perplexity", 12345.678, "12,346"),
    ],
)
def test_values_as_they_are_read(metric, value, text):
    assert shown(metric, value) == text


def test_the_table():
    lines = REPORT.table().splitlines()
    assert lines[0].split() == ["task", "split", "metric", "value", "95", "%", "interval", "count"]
    assert lines[1].split() == [
        "STS12",
        "test",
        "spearman",
        "all",
        "72.37",
        "70.00",
        "to",
        "74.00",
        "3,108",
    ]
    assert lines[4].split() == ["mine", "heldout", "mrr@10", "50.00", "40"]
    assert lines[7:] == ["form: raw", "distinct_sentences: 21,234", "cached: True"]
    ends = {len(line) for line in lines[:7]}
    assert len(ends) == 1  # the last column is flush right
    assert len(Report(()).table().splitlines()) == 1


def test_json_and_back():
    data = json.loads(json.dumps(REPORT.to_json(), allow_nan=False))
    assert Report.from_json(data) == REPORT
    assert data["rows"][0] == {
        "task": "STS12",
        "split": "test",
        "metric": "spearman",
        "aggregate": "all",
        "value": 0.72374,
        "count": 3108,
        "low": 0.7,
        "high": 0.74,
    }
    assert Report.from_json({"rows": []}) == Report(())


def test_joining():
    other = Report((Row("SICKR", "test", "spearman", "all", 0.7, 4927),), {"form": "senteval"})
    joined = Report.join([REPORT, other])
    assert joined.rows == ROWS + other.rows
    assert joined.notes == {"form": "senteval", "distinct_sentences": 21234, "cached": True}
