"""Two indexes side by side, and an index that gets another model while it is served."""

import time
import types

import httpx
import pytest
import typer
from serving import LINES, running
from typer.testing import CliRunner

from contrasent.cli.serve import serve
from contrasent.errors import ModelError, OptionError
from contrasent.metrics import rank_biased_overlap
from contrasent.search.building import reembed
from contrasent.search.index import Index
from contrasent.serve import connections, library
from contrasent.serve.app import create_app


def turned(encoder):
    """Vectors of another model: those of the texts read backwards."""
    return lambda texts: encoder.encode([text[::-1] for text in texts])


@pytest.fixture(scope="module")
def beside(encoder):
    """An index of most of the texts by the other model."""
    return Index.build(turned(encoder), LINES[:8], model="other", source="models/other")


@pytest.fixture(scope="module")
def both(model, index, beside, encoder):
    app = create_app(model, index=index, compare=beside, open_model=lambda _: turned(encoder))
    with running(app) as url:
        yield url


def test_compare(both, index, beside, encoder):
    query = "monetary policy"
    found = httpx.post(f"{both}/compare", timeout=60, json={"query": query, "k": 5}).json()
    (old,) = index.search(query, encode=encoder.encode, k=10)
    (new,) = beside.search(query, encode=turned(encoder), k=10)
    lists = {"old": [hit.text for hit in old], "new": [hit.text for hit in new]}
    for side, other in (("old", "new"), ("new", "old")):
        assert [hit["text"] for hit in found[side]] == lists[side][:5]
        for hit in found[side]:
            rank = lists[other].index(hit["text"]) + 1 if hit["text"] in lists[other] else None
            assert hit["other"] == rank
    common = set(lists["old"][:5]) & set(lists["new"][:5])
    assert found["overlap"] == len(common) / 5
    numbers = [[LINES.index(text) for text in lists[side][:8]] for side in ("old", "new")]
    expected = rank_biased_overlap([numbers[0]], [numbers[1]])[0]
    assert found["rank_biased_overlap"] == pytest.approx(expected)
    assert httpx.get(f"{both}/health", timeout=60).json()["compare"] == "other"


def test_what_compare_refuses(both, address):
    assert (
        httpx.post(f"{both}/compare", timeout=60, json={"query": "x", "k": 100_000}).status_code
        == 400
    )
    assert httpx.post(f"{both}/compare", timeout=60, json={"query": ["x"]}).status_code == 400
    assert httpx.post(f"{address}/compare", timeout=60, json={"query": "x"}).status_code == 404
    none = httpx.post(f"{both}/compare", timeout=60, json={"query": "x", "where": {"n": 1}}).json()
    assert none == {"old": [], "new": [], "overlap": 1.0, "rank_biased_overlap": 1.0}


def test_what_cannot_be_served(model, index, beside, tmp_path):
    with pytest.raises(ModelError, match="vectors of model 'other'"):
        create_app(model, index=index, compare=beside)  # nothing to load its model by
    app = typer.Typer()
    app.command()(serve)
    refused = CliRunner().invoke(app, ["all-MiniLM-L6-v2", "--compare", str(tmp_path)])
    assert isinstance(refused.exception, OptionError)
    assert "goes with --index INDEX" in str(refused.exception)


def test_an_index_is_served_with_its_model(index, encoder, tmp_path, monkeypatch):
    """As a folder, or inside one; there is no model in either."""
    apps = []
    nothing = types.SimpleNamespace(run=lambda sockets: [one.close() for one in sockets])
    index.save(tmp_path / "mine" / "index")
    app = typer.Typer()
    app.command()(serve)
    for place in (tmp_path / "mine", tmp_path / "mine" / "index"):
        with monkeypatch.context() as patch:
            patch.setattr(connections, "make_server", lambda app, _: apps.append(app) or nothing)
            done = CliRunner().invoke(app, [str(place), "--port", "0"])
        assert done.exit_code == 0, done.output
        with running(apps.pop()) as url:
            (wanted,) = index.search("monetary policy", encode=encoder.encode, k=3)
            assert search(url) == [hit.text for hit in wanted]


@pytest.fixture
def folder(tmp_path, index):
    index.save(tmp_path / "index")
    return tmp_path / "index"


def search(url):
    answer = httpx.post(f"{url}/search", timeout=60, json={"query": "monetary policy", "k": 3})
    assert answer.status_code == 200, answer.text
    return [hit["text"] for hit in answer.json()["results"][0]["hits"]]


@pytest.mark.parametrize("known", [True, False])
def test_a_served_index_gets_another_model(model, encoder, folder, monkeypatch, known):
    """The server takes the new model up; where it cannot be loaded, the old vectors answer on."""
    monkeypatch.setattr(library, "LOOK_EVERY", 0.05)
    made = Index.build(turned(encoder), LINES, model="other")
    expected = {
        False: [
            hit.text
            for hit in Index.open(folder).search("monetary policy", encode=encoder.encode, k=3)[0]
        ],
        True: [hit.text for hit in made.search("monetary policy", encode=turned(encoder), k=3)[0]],
    }
    assert expected[True] != expected[False]

    def open_model(of):
        if not known:
            raise ModelError("the model is not there")
        assert of.model == "other"
        return turned(encoder)

    with running(create_app(model, index=Index.open(folder), open_model=open_model)) as url:
        assert search(url) == expected[False]
        reembed(folder, turned(encoder), model="other")
        time.sleep(0.2)
        search(url)
        assert search(url) == expected[known]
