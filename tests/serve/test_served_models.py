"""An index that is served with its model, and one that gets another model while it is served."""

import copy
import json
import logging
import socket
import types

import pytest
import typer
from serving import LINES, get_from, post_to, running
from typer.testing import CliRunner

from commands import until
from contrasent import progress
from contrasent.cli.serve import serve
from contrasent.errors import InputError, ModelError, OptionError, OutputError
from contrasent.model.base import Prompts
from contrasent.search.index import Index
from contrasent.search.opening import reembed
from contrasent.search.writer import Writer
from contrasent.serve import app as server_app
from contrasent.serve.library import Library
from contrasent.serve.run import _allowed_hosts, _listen, serve_model


def turned(encoder):
    """Another model, whose vectors are those of the texts read backwards."""
    other = copy.copy(encoder)
    other.tokenize = lambda texts, *more: encoder.tokenize([text[::-1] for text in texts], *more)
    other.prompts = Prompts({"query": "", "backwards": "read backwards: "})
    return other


@pytest.fixture
def apps():
    """The applications that were to be served."""
    return []


@pytest.fixture
def begin(apps, index, tmp_path, monkeypatch):
    """Run ``contrasent serve`` up to where it would answer; gives its outcome."""
    nothing = types.SimpleNamespace(run=lambda sockets: [one.close() for one in sockets])

    def begin(*options, place="."):
        with monkeypatch.context() as patch:
            patch.setattr(server_app, "make_server", lambda app, _: apps.append(app) or nothing)
            return CliRunner().invoke(command, [place, "--port=0", *options])

    log = logging.getLogger("contrasent.serve")  # the command takes it over
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", True)
    monkeypatch.setattr(log, "level", log.level)
    index.save(tmp_path / "mine" / "index")
    monkeypatch.chdir(tmp_path / "mine")
    command = typer.Typer()
    command.command()(serve)
    return begin


@pytest.mark.parametrize(("place", "name"), [(".", "mine"), ("index", "index")])
def test_an_index_is_served_with_its_model(begin, apps, index, encoder, place, name):
    """As a folder, or inside one; there is no model in either."""
    done = begin(place=place)
    assert done.exit_code == 0, done.output
    assert f"{name} at http" in done.output
    with running(apps.pop()) as url:
        (wanted,) = index.search("monetary policy", encode=encoder.encode, k=3)
        assert search(url) == [hit.text for hit in wanted]


@pytest.mark.parametrize(("options", "lines"), [
    ([], 0), (["--host=0.0.0.0"], 1), (["--host=0.0.0.0", "--allow-host=a.example"], 0),
])  # fmt: skip
def test_a_server_says_whether_it_takes_any_host(begin, options, lines):
    done = begin(*options)
    assert (done.exit_code, done.output.count("any Host header")) == (0, lines)


def test_no_bar_of_progress_is_among_the_lines_of_the_log(begin):
    progress.show("auto")
    assert begin().exit_code == 0
    assert progress.silent() and logging.getLogger("contrasent.serve").isEnabledFor(logging.INFO)


@pytest.mark.parametrize("key", ["", " ", "k\u00e9y"])
def test_an_empty_key_in_the_environment_is_an_error(begin, key, monkeypatch):
    monkeypatch.setenv("CONTRASENT_API_KEY", key)
    assert str(begin().exception).startswith("CONTRASENT_API_KEY: must contain a key")


def test_the_address_of_another_machine_is_a_wrong_host(index, tmp_path):
    index.save(tmp_path / "mine")
    with pytest.raises(OptionError, match=r"--host '203.0.113.7': is not an address of this"):
        serve_model(str(tmp_path / "mine"), host="203.0.113.7", port=0)


def test_an_empty_host_is_not_every_address():
    with pytest.raises(OptionError, match="--host '': is empty"):
        _listen("", 0).close()


def test_a_port_that_another_server_is_about_to_use_is_taken():
    with _listen("127.0.0.1", 0) as first:
        with pytest.raises(OutputError, match=r"cannot listen there \(Address already in use"):
            _listen(*first.getsockname())
        with socket.create_connection(first.getsockname()):  # it waits for the model
            pass


@pytest.mark.parametrize("given", [
    ("fd00::5", ["b.example"]), ("0.0.0.0", ["fd00::5"]), ("0.0.0.0", "fd00::5"),
])  # fmt: skip
def test_an_address_is_allowed_as_it_is_in_a_header(given):
    assert "[fd00::5]" in _allowed_hosts(*given)


@pytest.fixture
def folder(tmp_path, index):
    index.save(tmp_path / "index")
    return tmp_path / "index"


def search(url):
    answer = post_to(f"{url}/search", json={"query": "monetary policy", "k": 3})
    assert answer.status_code == 200, answer.text
    return [hit["text"] for hit in answer.json()["results"][0]["hits"]]


@pytest.mark.parametrize("known", [True, False])
def test_a_served_index_gets_another_model(app_of, encoder, folder, known, caplog):
    """The server takes the new model up; where it cannot be loaded, the old vectors answer on."""
    other = turned(encoder)
    made = Index.build(other.encode, LINES)
    expected = {
        False: [
            hit.text
            for hit in Index.open(folder).search("monetary policy", encode=encoder.encode, k=3)[0]
        ],
        True: [hit.text for hit in made.search("monetary policy", encode=other.encode, k=3)[0]],
    }
    assert expected[True] != expected[False]

    def open_model(of):
        if not known:
            raise ModelError("the model is not there")
        assert of.model == other.identity
        return other

    caplog.set_level(logging.INFO)
    with running(app_of(index=Index.open(folder), open_model=open_model)) as url:
        assert search(url) == expected[False]
        reembed(folder, other.encode, model=other.identity)
        if known:
            until(lambda: search(url) == expected[True])  # the server looks once a second
            assert json.dumps({"event": "index", "model": other.identity}) in caplog.messages
        else:
            until(lambda: search(url) and "the model is not there" in caplog.text)
            assert search(url) == expected[False]
        # So do the routes that ask the model alone.
        model = other if known else encoder
        answer = post_to(f"{url}/v1/embeddings", json={"input": "a boat"}).json()
        assert answer["data"][0]["embedding"] == pytest.approx(model.encode("a boat"), abs=1e-6)
        body = {"a": "a boat", "b": "taob a"}
        scores = post_to(f"{url}/similarity", json=body).json()["scores"]
        assert scores[0] == pytest.approx(model.similarity("a boat", ["taob a"]), abs=1e-5)
        (about,) = get_from(f"{url}/v1/models").json()["data"]
        assert (about["identity"], about["prompts"]) == (model.identity, model.prompts.texts)


def test_a_served_index_does_not_hold_the_log_of_its_writers(encoder, folder):
    """Nor does anything done to its database reach what is searched."""
    library = Library(Index.open(folder), encoder)
    for n in range(3):
        with Writer(folder) as writer:
            writer.add([f"A line more, the {n}."], encoder.encode)
        library.refresh()
    assert library.newest.index.count == len(LINES) + 3
    log = folder / "index.db-wal"
    assert not log.exists() or not log.stat().st_size
    (folder / "index.db").open("wb").close()
    with pytest.raises(InputError):
        library.refresh()
    vectors = encoder.encode(["The second"])
    assert library.search(library.newest, ["The second"], vectors, k=1, where={})[0]
