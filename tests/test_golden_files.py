"""Files of earlier versions are read by this one (docs/formats.md)."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from contrasent.encoder.encoder import TorchEncoder
from contrasent.model.golden import compare_golden, read_golden
from contrasent.report import read_reports
from contrasent.search.doctor import examine
from contrasent.search.index import Index

VERSIONS = sorted((Path(__file__).parent / "golden").iterdir())


def test_there_are_some():
    assert [path.name for path in VERSIONS] == ["0.1"]


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def golden(request, tmp_path):
    """A copy: what reads an index may keep counts of words next to it."""
    return shutil.copytree(request.param, tmp_path / request.param.name)


def test_models_give_the_vectors_that_they_gave(golden):
    encoder = TorchEncoder.load(golden / "model")
    texts = (golden / "texts.txt").read_text("utf-8").splitlines()
    wanted = np.load(golden / "vectors.npy", allow_pickle=False)
    np.testing.assert_allclose(encoder.encode(texts), wanted, atol=1e-5)
    assert all(one.good for one in compare_golden(encoder.golden(), read_golden(golden / "model")))


def test_an_index_is_whole_and_finds_what_it_found(golden):
    """Where FORMAT was raised since then, it says to build it again instead."""
    encode = TorchEncoder.load(golden / "model").encode
    texts = (golden / "texts.txt").read_text("utf-8").splitlines()
    assert all(finding.good for finding in examine(golden / "index"))
    with closing(Index.open(golden / "index")) as index:
        assert [(row.text, row.metadata) for row in index.every()] == [
            (text, {"line": n}) for n, text in enumerate(texts)
        ]
        wanted = np.load(golden / "vectors.npy", allow_pickle=False)
        np.testing.assert_allclose(index.vectors[index.numbers()], wanted, atol=1e-5)
        for text, (hit,) in zip(texts, index.search(texts, encode=encode, k=1), strict=True):
            assert hit.text == text and hit.bm25 > 0
        assert index.add(["A boat."], encode) == 1
        assert index.count == 6


def test_reports_are_read(golden):
    (report,) = read_reports(golden / "report.json").values()
    assert report.rows[0].metric == "spearman"
    assert json.loads((golden / "made.json").read_text())["version"].startswith(golden.name)
