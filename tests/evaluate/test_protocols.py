"""Published protocols give the rows that their papers print."""

import pytest

from contrasent.errors import OptionError
from contrasent.evaluate import protocols as module
from contrasent.evaluate.protocols import PROTOCOLS, sts_by_protocol
from contrasent.report import Report, Row
from contrasent.text.official import STS_TASKS


@pytest.fixture
def stand_ins(monkeypatch):
    asked = []

    def sts(encode, *, tasks, aggregate, **_):
        asked.append((tuple(tasks), aggregate))
        metrics = ("spearman", "pearson")
        rows = [Row(t, "test", m, aggregate, 0.5, 10) for t in tasks for m in metrics]
        return Report(tuple(rows), {"form": "raw"})

    def relatedness(encode, **_):
        splits = ("dev", "test")
        rows = [Row(t, s, "pearson", "regressor", 0.6, 10) for t in STS_TASKS[5:] for s in splits]
        return Report(tuple(rows))

    monkeypatch.setattr(module, "sts", sts)
    monkeypatch.setattr(module, "relatedness", relatedness)
    return asked


def test_there_are_the_ten_of_the_table():
    assert len(PROTOCOLS) == 10


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_gives_its_metrics_and_aggregation(stand_ins, name):
    protocol = PROTOCOLS[name]
    report = sts_by_protocol(None, name)
    assert {row.metric for row in report} == set(protocol.metrics)
    assert stand_ins[0][1] == protocol.aggregate
    assert {row.task for row in report} == set(STS_TASKS)
    trained = {row.task for row in report if row.aggregate == "regressor"}
    assert trained == ({"STSB", "SICKR"} if protocol.regressor else set())
    assert protocol.paper in report.notes["protocol"]


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(OptionError, match="did you mean 'bert-flow'"):
        sts_by_protocol(None, "bertflow")
