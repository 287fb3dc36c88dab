"""Suites: every sentence once, notes by suite, names that do not exist."""

import shutil

import numpy as np
import pytest

from contrasent.errors import DataError, OptionError
from contrasent.evaluate import suite
from contrasent.evaluate.suite import SUITES, Options, check_data, evaluate, suite_names
from contrasent.report import Report, Row


def test_all_means_every_suite_in_order():
    assert suite_names(["all"]) == SUITES
    assert suite_names(["geometry", "sts"]) == ("sts", "geometry")
    with pytest.raises(OptionError, match="did you mean 'geometry'"):
        suite_names(["geometri"])
    with pytest.raises(OptionError, match="at least one"):
        suite_names([])
    assert set(suite._RUN) == set(SUITES)


def test_sentences_that_suites_share_are_encoded_once(monkeypatch):
    calls = []

    def encode(sentences):
        calls.append(list(sentences))
        return np.ones((len(sentences), 2), dtype=np.float32)

    def run(name, texts):
        def measured(model, options):
            model(texts)
            return Report((Row(name, "test", "m", "", 1.0, len(texts)),), {"asked": len(texts)})

        return measured

    monkeypatch.setitem(suite._RUN, "sts", run("sts", ["a", "b"]))
    monkeypatch.setitem(suite._RUN, "geometry", run("geometry", ["b", "c", "c"]))
    report = evaluate(encode, ("sts", "geometry"), Options())
    assert calls == [["a", "b"], ["c"]]
    assert [row.task for row in report] == ["sts", "geometry"]
    assert report.notes["geometry"] == {"asked": 3}
    assert report.notes["distinct_sentences"] == 3
    assert set(report.notes["seconds"]) == {"encoding", "measuring"}


@pytest.mark.data
def test_data_are_looked_at_before_any_encoding(data_folder, tmp_path):
    check_data(SUITES, Options(folder=data_folder))
    for link in data_folder.iterdir():
        if link.name not in ("flickr30k", "SentEval"):
            (tmp_path / link.name).symlink_to(link)
    shutil.copytree(data_folder / "SentEval", tmp_path / "SentEval")
    (tmp_path / "SentEval" / "downstream").chmod(0o755)
    (tmp_path / "SentEval" / "downstream" / "CR").chmod(0o755)
    check_data(("sts", "protocols", "transfer", "geometry"), Options(folder=tmp_path))
    check_data(("paraphrase", "triplets", "clustering", "few-shot"), Options(folder=tmp_path))
    with pytest.raises(DataError, match="flickr30k"):
        check_data(("retrieval",), Options(folder=tmp_path))
    (tmp_path / "nli").unlink()
    with pytest.raises(DataError, match="NLI triples: not found"):
        check_data(("triplets",), Options(folder=tmp_path))
    (tmp_path / "SentEval" / "downstream" / "CR" / "custrev.neg").unlink()
    check_data(("sts",), Options(folder=tmp_path))
    with pytest.raises(DataError, match=r"CR: not found.*custrev|CR: not found"):
        check_data(("transfer",), Options(folder=tmp_path))
