"""The named data sets, and ``evaluate --list``."""

import json
from collections import Counter

import pytest

from commands import invoke
from contrasent.errors import OptionError
from contrasent.evaluate.suite import SUITE_DATA
from contrasent.text.catalogue import data_sets
from contrasent.text.official import STS_TASKS

SETS = {one.name: one for one in data_sets()}


def test_every_set_is_listed_once_with_its_official_rows():
    kinds = {"similarity": 10, "transfer": 7, "pairs": 1, "triples": 1, "captions": 1}
    assert Counter(one.kind for one in data_sets()) == kinds
    assert len(SETS) == sum(kinds.values())
    assert set(STS_TASKS) | {n for names in SUITE_DATA.values() for n in names} <= set(SETS)
    assert SETS["STS12"].rows == {"test": 750 + 750 + 459 + 750 + 399}
    assert SETS["SICKR-all"].rows == {"test": 9927}
    assert SETS["MR"].rows == {"all": 10662}
    assert SETS["SST2"].rows == {"train": 67349, "dev": 872, "test": 1821}
    assert SETS["STSB"].hub.startswith("mteb/stsbenchmark-sts@")


def test_where_a_set_is_read_from(tmp_path, monkeypatch):
    monkeypatch.delenv("CONTRASENT_DATA", raising=False)
    assert SETS["MR"].locate(tmp_path) == {"": ""}
    path = tmp_path / "downstream" / "MR" / "rt-polarity.pos"
    path.parent.mkdir(parents=True)
    path.touch()
    assert SETS["MR"].locate(tmp_path) == {"": str(path)}
    assert SETS["STSB"].locate(tmp_path) == {"senteval": "", "raw": SETS["STSB"].hub}
    assert SETS["SICKR"].locate(tmp_path) == {"senteval": "", "raw": ""}


def test_the_list_says_which_suites_run_and_what_to_put_where(tmp_path):
    path = tmp_path / "nli" / "nli_triples.csv"
    path.parent.mkdir(parents=True)
    path.touch()
    out = invoke("evaluate", "--list", "--data", tmp_path).stdout
    assert "STSB        similarity  train 5,749, dev 1,500, test 1,379" in out
    assert "missing; put it at SentEval/downstream/TREC/train_5500.label" in out
    assert "--suite triplets: ready" in out
    assert "--suite clustering: missing TREC, SUBJ" in out
    assert "--suite geometry: missing STSB" in out
    asked = ("evaluate", "--list", "--data", tmp_path, "--form", "raw")
    out = invoke(*asked, "--json", tmp_path / "list.json").stdout
    found = json.loads((tmp_path / "list.json").read_text())
    assert len(found["data"]) == 20
    missing = {one["name"]: one["missing"] for one in found["suites"]}
    assert missing["sts"] == ["SICKR"]  # the hub has the raw form of the others
    assert missing["protocols"] == ["SICKR"]
    with pytest.raises(OptionError, match="no such folder"):
        invoke("evaluate", "--list", "--data", tmp_path / "nowhere")
    with pytest.raises(OptionError, match="did you mean 'raw'"):
        invoke("evaluate", "--list", "--form", "rw")


@pytest.mark.data
def test_every_suite_runs_where_all_data_are_there(data_folder):
    out = invoke("evaluate", "--list", "--data", data_folder).stdout
    assert "missing" not in out
    assert out.count(": ready") == len(SUITE_DATA)
