"""``contrasent doctor`` on a model and on an index."""

import json

import pytest

from commands import invoke
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError
from contrasent.model.golden import NAME, PROBES
from contrasent.search.writer import Writer
from tiny_models import collapse_head


def run(*arguments):
    result = invoke("doctor", *arguments)
    return result.exit_code, result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory, bert):
    folder = tmp_path_factory.mktemp("model") / "mini"
    TorchEncoder.load(bert, pooling="mean").save(folder)
    return folder


def test_write(folder, bert):
    with pytest.raises(ModelError, match="--write"):
        run(bert)
    saved = (folder / NAME).read_bytes()
    code, said = run(folder, "--write")
    assert code == 0
    assert "25 golden vectors" in said
    assert (folder / NAME).read_bytes() == saved


def test_folder(folder):
    code, said = run(folder)
    assert code == 0
    assert said.splitlines()[-1] == "no problems found"
    assert "attention" not in said + invoke("doctor", folder).stderr
    code, said = run(folder, "--json", "--pooling", "cls")
    assert code == 1
    report = json.loads(said)
    assert report["good"] is False
    assert [f["check"] for f in report["findings"] if not f["good"]] == ["pooling", "vectors"]


def test_a_collapsed_head_is_a_warning(tmp_path, bert, caplog):
    encoder = TorchEncoder.load(bert, pooling="mean")
    collapse_head(encoder.eval(), 0, 1, PROBES)
    encoder.save(tmp_path / "m")
    result = invoke("doctor", tmp_path / "m")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "no problems found")
    said = "heads give the first token more than 90 % of their weight (layer 1: 2)"
    assert said in result.stderr
    assert said in json.loads(run(tmp_path / "m", "--json")[1])["warning"]
    (tmp_path / "m" / NAME).unlink()
    with pytest.raises(ModelError, match="no golden vectors"):
        run(tmp_path / "m")
    assert said in caplog.text  # of a base that nobody wrote golden vectors for as well


def test_index(folder, bert, tmp_path):
    (tmp_path / "t.txt").write_text("a map\nan old boat\n")
    for name, model in (("saved", folder), ("bare", bert)):
        options = ("--pooling", "mean") if name == "bare" else ()
        invoke("index", tmp_path / "t.txt", "--model", model, "-o", tmp_path / name, *options)
        code, said = run(tmp_path / name)
        assert (code, said.splitlines()[-1]) == (0, "no problems found")
        assert "ok     index: 2 rows of this model" in said
    invoke("index", tmp_path / "t.txt", "--model", folder, "-o", tmp_path / "adapted" / "index")
    assert run(tmp_path / "adapted")[0] == 0  # as adapt leaves it
    with Writer(tmp_path / "bare") as writer:
        writer.set(settings={**writer.facts.settings, "pooling": "cls"})
    code, said = run(tmp_path / "bare")
    assert code == 1
    assert "WRONG  index: 2 rows of another than" in said
