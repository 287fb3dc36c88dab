"""Suites: every sentence once, notes by suite; their data, and ``evaluate --list``."""

import json
from collections import Counter

import numpy as np
import pytest

from commands import invoke
from contrasent.cli.app import run
from contrasent.datasets import official
from contrasent.datasets.official import STS_TASKS, data_sets
from contrasent.errors import DataError, OptionError, UserError
from contrasent.evaluate import suite
from contrasent.evaluate.suite import SUITES, Options, Suite, read_data, suite_names
from contrasent.report import Report, Row

SETS = {one.name: one for one in data_sets()}


def test_all_means_every_suite_in_order():
    assert suite_names(["all"]) == tuple(SUITES)
    assert suite_names(["geometry", "sts"]) == ("sts", "geometry")
    with pytest.raises(OptionError, match="did you mean 'geometry'"):
        suite_names(["geometri"])
    with pytest.raises(OptionError, match="at least one"):
        suite_names([])


def test_sentences_that_suites_share_are_encoded_once(monkeypatch):
    calls = []

    def encode(sentences):
        calls.append(list(sentences))
        return np.ones((len(sentences), 2), dtype=np.float32)

    def run(name, texts):
        def measured(model, options):
            model(texts)
            return Report((Row(name, "test", "m", "", 1.0, len(texts)),), {"requested": len(texts)})

        return measured

    monkeypatch.setitem(SUITES, "sts", Suite(run("sts", ["a", "b"])))
    monkeypatch.setitem(SUITES, "geometry", Suite(run("geometry", ["b", "c", "c"])))
    report = suite.evaluate_model(encode, ("sts", "geometry"), Options())
    assert calls == [["a", "b"], ["c"]]
    assert [row.task for row in report] == ["sts", "geometry"]
    assert report.notes["geometry"] == {"requested": 3}
    assert report.notes["distinct_sentences"] == 3
    assert set(report.notes["seconds"]) == {"encoding", "measuring"}


@pytest.mark.data
def test_data_are_looked_at_before_any_encoding(data_folder, monkeypatch):
    gone, find, here = ["flickr30k"], official.find, Options(folder=data_folder)

    def found(places, folder):
        return None if any(name in places[0] for name in gone) else find(places, folder)

    monkeypatch.setattr(official, "find", found)
    read_data(tuple(set(SUITES) - {"retrieval", "bias"}), here)
    gone += ["nli/", "custrev.neg"]
    read_data(("sts",), here)
    for name, missing in (
        ("retrieval", "flickr30k"),
        ("triplets", "NLI triples"),
        ("transfer", "CR"),
    ):
        with pytest.raises(DataError, match=f"{missing}.*not found"):
            read_data((name,), here)


def test_every_set_is_listed_once_with_its_official_rows():
    kinds = {"similarity": 10, "transfer": 7, "pairs": 1, "triples": 1, "captions": 1}
    assert Counter(one.kind for one in data_sets()) == kinds
    assert set(STS_TASKS) | {n for one in SUITES.values() for n in one.data} <= set(SETS)
    assert SETS["STS12"].rows == {"test": 750 + 750 + 459 + 750 + 399}
    assert SETS["SICKR-all"].rows == {"test": 9927}
    assert SETS["MR"].rows == {"all": 10662}
    assert SETS["SST2"].rows == {"train": 67349, "dev": 872, "test": 1821}
    assert SETS["STSB"].hub.startswith("mteb/stsbenchmark-sts@")


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
    requested = ("evaluate", "--list", "--data", tmp_path, "--form", "raw")
    out = invoke(*requested, "--json-file", tmp_path / "list.json").stdout
    found = json.loads((tmp_path / "list.json").read_text())
    assert len(found["data"]) == 20
    missing = {one["name"]: one["missing"] for one in found["suites"]}
    assert missing["sts"] == ["SICKR"]  # the hub has the raw form of the others
    assert missing["protocols"] == ["SICKR"]
    with pytest.raises(UserError, match=r"--data: .*nowhere' does not exist"):
        run(["evaluate", "--list", "--data", str(tmp_path / "nowhere")])
