"""``contrasent doctor`` on a folder, on a server, and on what is neither."""

import json
import sys

import pytest

sys.path.insert(0, str(__import__("pathlib").Path(__file__).parents[1] / "serve"))
from serving import running

from commands import invoke
from contrasent.cli.serve import served
from contrasent.errors import ModelError, OptionError
from contrasent.model.encoder import Encoder
from contrasent.model.golden import NAME
from contrasent.search.writer import Writer
from contrasent.serve.app import create_app
from contrasent.serve.guard import Settings


def run(*arguments):
    result = invoke("doctor", *arguments)
    return result.exit_code, result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory, bert):
    folder = tmp_path_factory.mktemp("model") / "mini"
    Encoder.load(bert, pooler="mean").save(folder)
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
    assert said.splitlines()[-1] == "all is well"
    code, said = run(folder, "--json", "--pooler", "cls")
    assert code == 1
    report = json.loads(said)
    assert report["good"] is False
    assert [f["check"] for f in report["findings"] if not f["good"]] == ["pooling", "vectors"]


def test_index(folder, bert, tmp_path):
    (tmp_path / "t.txt").write_text("a map\nan old boat\n")
    for name, model in (("saved", folder), ("bare", bert)):
        options = ("--pooler", "mean") if name == "bare" else ()
        invoke("index", tmp_path / "t.txt", "--model", model, "-o", tmp_path / name, *options)
        code, said = run(tmp_path / name)
        assert (code, said.splitlines()[-1]) == (0, "all is well")
        assert "ok     index: 2 rows of this model" in said
    with Writer(tmp_path / "bare") as writer:
        writer.set(settings={**writer.facts.settings, "pooler": "cls"})
    code, said = run(tmp_path / "bare")
    assert code == 1
    assert "WRONG  index: 2 rows of another than" in said


def test_server(folder, monkeypatch):
    good = create_app(served(Encoder.load(folder), "mini"), settings=Settings(api_key="k"))
    with running(good) as url:
        with pytest.raises(ModelError, match="answered 401"):
            run(folder, "--url", url)
        monkeypatch.setenv("CONTRASENT_API_KEY", "k")
        code, said = run(folder, "--url", url)
        assert (code, said.splitlines()[-1]) == (0, "all is well")
        with pytest.raises(ModelError, match="no model 'other'"):
            run(folder, "--url", f"{url}/v1", "--name", "other")
    wrong = create_app(served(Encoder.load(folder, pooler="cls"), "mini"))
    with running(wrong) as url:
        code, said = run(folder, "--url", url)
    assert code == 1
    assert "WRONG  pooling: tokens are pooled by cls and not by mean" in said


def test_what_is_no_server(folder):
    silent = "http://127.0.0.1:1"
    wrong = ("file:///etc/passwd", "ftp://x", "localhost:80", "http://")
    for words, error, *arguments in (
        *(("no http", OptionError, url) for url in wrong),
        ("does not answer", ModelError, silent),
        ("--write", OptionError, silent, "--write"),
    ):
        with pytest.raises(error, match=words):
            run(folder, "--url", *arguments)


def test_redirects_are_not_followed(folder):
    from fastapi import FastAPI
    from fastapi.responses import RedirectResponse

    asked = []
    elsewhere = FastAPI()

    @elsewhere.get("/v1/models")
    def models():
        return RedirectResponse("/secret")

    @elsewhere.get("/secret")
    def secret():
        asked.append(1)
        return {}

    with running(elsewhere) as url, pytest.raises(ModelError, match="answered 307"):
        run(folder, "--url", url)
    assert asked == []
