"""Published protocols give the rows that their papers print."""

import numpy as np
import pytest

from contrasent.errors import OptionError
from contrasent.evaluate import protocols as module
from contrasent.evaluate.protocols import PROTOCOLS, every_protocol, sts_by_protocol
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


@pytest.mark.data
def test_every_protocol_is_the_mean_of_its_own_seven_values(data_folder, monkeypatch):
    def encode(sentences):
        vectors = np.zeros((len(sentences), 26), dtype=np.float32)
        for i, sentence in enumerate(sentences):
            for letter in sentence.lower():
                if "a" <= letter <= "z":
                    vectors[i, ord(letter) - 97] += 1
        return vectors

    def relatedness(encode, **_):
        values = {"STSB": 0.31, "SICKR": 0.53}
        rows = [Row(t, "test", "pearson", "regressor", v, 9) for t, v in values.items()]
        return Report(tuple(rows), {"relatedness": "stand-in"})

    monkeypatch.setattr(module, "relatedness", relatedness)
    report = every_protocol(encode, resamples=0)
    found = [row for row in report if row.task.startswith("protocol ")]
    assert len(found) == 11  # hill2016 gives two metrics
    for row in found:
        name = row.task.split()[1]
        own = sts_by_protocol(encode, name, resamples=0)
        values = [own.one(task=t, metric=row.metric).value for t in STS_TASKS]
        assert row.value == pytest.approx(sum(values) / 7, abs=1e-12)
    assert len({round(row.value, 6) for row in found}) >= 5
    dev = [row.task for row in report if row.split == "dev" and row.metric == "spearman"]
    assert dev == ["STSB", "SICKR"]
    for task, count in {"SICKR-all": 9927, "STSB-de": 1379, "STSB-es": 1379}.items():
        assert report.one(task=task, metric="spearman").count == count
    with pytest.raises(OptionError, match="did you mean 'declutr'"):
        every_protocol(encode, ["declutter"])
