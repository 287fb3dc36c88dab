"""diff on the command line: models, exports and servers, in any mix."""

import json
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from commands import printed, run
from contrasent.errors import DataError, InputError, ModelError, OptionError
from contrasent.model import remote
from contrasent.search.index import Index
from hub_server import send, serving
from tiny_models import made_sentences


class Fake:
    """A server with OpenAI's interface: the vector of a text is drawn from its letters."""

    def __init__(self, noise=0.0, trouble=()):
        self.noise, self.trouble, self.asked, self.keys = noise, list(trouble), [], []
        self.paths = []

    def vector(self, text):
        own, other = (np.random.default_rng([s, *text.encode()]).normal(size=8) for s in (1, 2))
        return (own + self.noise * other).tolist()

    def answer(self, path, body):
        if path == "/v1/models":
            return 200, {"data": [{"id": "fake", "identity": "fake-1"}]}
        self.asked.append(body)
        if self.trouble and len(self.asked) > 1:
            return self.trouble.pop(0), {"error": "busy"}
        rows = [{"index": n, "embedding": self.vector(t)} for n, t in enumerate(body["input"])]
        return 200, {"data": rows[::-1]}  # in any order

    @contextmanager
    def running(self):
        def reply(handler):
            size = int(handler.headers.get("Content-Length") or 0)
            body = json.loads(handler.rfile.read(size) or "null")
            self.paths.append(handler.path)
            self.keys.append(handler.headers.get("Authorization"))
            status, data = self.answer(handler.path, body)
            headers = {"Retry-After": "0", "Location": "/v1/secret"}
            send(handler, status, headers, json.dumps(data).encode())

        with serving(reply) as address:
            yield f"{address}/v1"


@pytest.fixture(scope="module")
def texts():
    return list(dict.fromkeys(made_sentences()))[:150]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("corpus") / "notes.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def index(tmp_path, models, texts):
    from contrasent.encoder.encoder import TorchEncoder

    encoder = TorchEncoder.load(models / "mean")
    made = Index.build(
        encoder.encode, texts, model=encoder.identity, source=str((models / "mean").resolve())
    )
    made.save(tmp_path / "index")
    return tmp_path / "index"


def test_an_empty_prompt_is_named_to_a_server_that_has_a_default_one():
    class Prompted(Fake):
        def answer(self, path, body):
            status, data = super().answer(path, body)
            if path == "/v1/models":
                data["data"][0]["prompts"] = {"query": "query: ", "document": "", "odd": "x"}
            return status, data

    fake = Prompted()
    with fake.running() as url:
        model = remote.RemoteModel(url)
        for task in ("query", "document"):
            model.for_task(task)(["a"])
            assert fake.asked[-1]["prompt_name"] == task


def test_two_models_on_an_index(models, index, texts, tmp_path):
    arguments = (models / "mean", models / "cls", "--on", index, "--sample", 40, "--threshold", 0.9)
    found = printed("diff", *arguments, "--report", tmp_path / "page.html")
    assert found["stored_vectors"] is True
    assert (found["queries"], found["documents"], found["own"]) == (40, 150, True)
    assert found["old"]["dimension"] == found["new"]["dimension"] == 32
    assert found["old"]["parameters"] == found["new"]["parameters"] > 1000
    assert found["old"]["bytes"] > 4 * found["old"]["parameters"]
    at_ten = next(one for one in found["measures"] if one["name"] == "overlap@10")
    assert at_ten["low"] < at_ten["value"] < at_ten["high"] < 1
    assert found["change"]["high"] == pytest.approx(1 - at_ten["low"])
    said = run("diff", *arguments)
    for line in ("OLD: ", "NEW: ", "overlap@10 ", "rank-biased overlap ", "threshold 0.9000 -> "):
        assert f"\n{line}" in f"\n{said}", line
    assert "of the ten nearest changed [" in said.splitlines()[0]
    page = (tmp_path / "page.html").read_text()
    assert f"{at_ten['value']:.3f}" in page and "<h2>Queries that changed most</h2>" in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_exit_code(models, index):
    same = (models / "mean", models / "mean", "--on", index, "--sample", 40, "--fail-over", 0)
    assert "within --fail-over 0" in run("diff", *same)
    other = (models / "mean", models / "cls", "--on", index, "--sample", 40, "--json")
    change = json.loads(run("diff", *other))["change"]
    between = (change["value"] + change["high"]) / 2
    assert json.loads(run("diff", *other, "--fail-over", between, code=3))["passed"] is False
    assert json.loads(run("diff", *other, "--fail-over", change["high"]))["passed"] is True


@pytest.mark.parametrize("key", [" ", "k\u00e9y", "two\nlines"])
def test_a_key_that_no_header_holds_is_not_sent(key, monkeypatch):
    monkeypatch.setenv("CONTRASENT_API_KEY", key)
    with pytest.raises(InputError, match="CONTRASENT_API_KEY: must contain a key of printable"):
        remote.RemoteModel("http://127.0.0.1:9/v1#m")


def test_a_server_and_a_model(models, corpus, tmp_path, texts, monkeypatch):
    monkeypatch.setenv("CONTRASENT_API_KEY", "secret")
    queries = tmp_path / "queries.txt"
    queries.write_text("\n".join(texts[:25]) + "\n")
    fake = Fake()
    with fake.running() as url:
        found = json.loads(
            run(
                *("diff", f"{url}#fake", models / "cls", "--on", corpus, "--json"),
                *("--query-file", queries, "--batch-size", 50),
            )
        )
        assert found["old"] == {
            "name": f"{url}#fake", "runtime": "server", "dimension": 8, "parameters": None,
            "bytes": None,
        }  # fmt: skip
        assert (found["queries"], found["own"]) == (25, False)
        assert [len(body["input"]) for body in fake.asked[:3]] == [50, 50, 50]
        assert {body["model"] for body in fake.asked} == {"fake"}
        assert set(fake.keys) == {"Bearer secret"}
        run("diff", url, url, "--on", corpus, "--sample", 30, "--fail-over", 0)


def test_a_busy_server_is_asked_again(corpus, monkeypatch):
    pauses = []
    clock = SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)
    monkeypatch.setattr(remote, "time", clock)
    with Fake(trouble=[503, 429]).running() as url:
        run("diff", url, url, "--on", corpus, "--sample", 30, "--fail-over", 0)
    assert pauses == [0.5, 1.0]
    with Fake(trouble=[503] * 9).running() as url, pytest.raises(ModelError, match="answered 503"):
        run("diff", url, url, "--on", corpus, "--sample", 30)


def test_what_a_server_gets_wrong(corpus, nobody):
    uneven = {"vector": lambda self, text: [1.0] * (len(text) % 2 + 2)}
    empty = {"answer": lambda self, path, body: (200, {"data": []})}
    number = {"answer": lambda self, path, body: (200, {"data": 5})}
    for changes, trouble, words in (
        ({}, [400], "answered 400"),
        (uneven, [], "did not answer with vectors"),
        (empty, [], "lists no model"),
        (number, [], "lists no model"),
    ):
        server = type("Wrong", (Fake,), changes)(trouble=trouble)
        with server.running() as url, pytest.raises(ModelError, match=words):
            run("diff", url, url, "--on", corpus)
    with pytest.raises(ModelError, match="is not responding"):
        run("diff", f"{nobody}/v1", "x", "--on", corpus)
    for wrong in ("file:///etc/passwd", "ftp://x", "http://"):
        with pytest.raises(OptionError, match=f"OLD '{wrong}': is not an http"):
            run("diff", wrong, "x", "--on", corpus)


def test_redirects_are_not_followed(corpus):
    moved = {"answer": lambda self, path, body: (307, {})}
    server = type("Moved", (Fake,), moved)()
    with server.running() as url, pytest.raises(ModelError, match="answered 307"):
        run("diff", f"{url}#fake", f"{url}#fake", "--on", corpus)
    assert "/v1/models" in server.paths and "/v1/secret" not in server.paths


def test_an_answer_that_does_not_come_is_given_up():
    over = threading.Event()
    silent = {"answer": lambda self, path, body: (200, {"waited": over.wait(300)})}
    with type("Silent", (Fake,), silent)().running() as url:
        with pytest.raises(ModelError, match="is not responding"):
            remote.JsonServer(url, 1.0).ask("x", {"a": 1}, attempts=1)
        over.set()


def test_a_sample_of_documents(models, tmp_path):
    with (tmp_path / "many.txt").open("w") as stream:
        stream.writelines(f"the number {n} is not the number {n * n}\n" for n in range(300))
    arguments = (models / "mean", models / "cls", "--on", tmp_path / "many.txt", "--documents", 200)
    found = printed("diff", *arguments, "--sample", 25)
    assert (found["documents"], found["of"]) == (200, 300)
    assert "a sample of 300. Ten nearest" in run("diff", *arguments)


def test_bad_input(models, index, corpus, tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    for arguments, error, words in (
        ((), OptionError, "--on"),
        (("--on", tmp_path / "nowhere"), InputError, "nowhere"),
        (("--on", index, "--column", "text"), OptionError, "is an index, which"),
        (("--on", corpus, "--query-file", tmp_path / "empty.txt"), InputError, "contains no query"),
        (
            ("--on", corpus, "--query-file", tmp_path / "few.txt"),
            DataError,
            "2 different queries are",
        ),
    ):
        with pytest.raises(error, match=words):
            run("diff", models / "mean", models / "mean", *arguments)
