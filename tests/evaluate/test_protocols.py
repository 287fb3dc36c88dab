"""Published protocols give the rows that their papers print."""

import numpy as np
import pytest

from contrasent.errors import OptionError
from contrasent.evaluate import protocols as module
from contrasent.evaluate.protocols import PROTOCOLS, every_protocol
from contrasent.evaluate.sts import sts
from contrasent.report import Report, Row
from contrasent.text.official import STS_TASKS


def test_there_are_the_ten_of_the_table():
    assert len(PROTOCOLS) == 10


@pytest.mark.slow
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
        protocol = PROTOCOLS[name]
        own = sts(encode, aggregate=protocol.aggregate, resamples=0)
        values = [own.one(task=t, metric=row.metric).value for t in STS_TASKS]
        if protocol.regressor:
            values[5:] = 0.31, 0.53
        assert row.value == pytest.approx(sum(values) / 7, abs=1e-12)
    assert len({round(row.value, 6) for row in found}) >= 5
    dev = [row.task for row in report if row.split == "dev" and row.metric == "spearman"]
    assert dev == ["STSB", "SICKR"]
    for task, count in {"SICKR-all": 9927, "STSB-de": 1379, "STSB-es": 1379}.items():
        assert report.one(task=task, metric="spearman").count == count
    with pytest.raises(OptionError, match="did you mean 'declutr'"):
        every_protocol(encode, ["declutter"])
