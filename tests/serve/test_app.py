"""The server, spoken to over HTTP: what it answers, what it refuses, what it logs."""

import asyncio
import gzip
import json
import logging
import math
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPResponse
from types import SimpleNamespace

import httpx
import numpy as np
import openai
import pytest
from serving import LINES, MINILM, Gate, counter, get_from, post_to, running

from commands import until
from contrasent.errors import InputError, ModelError, OptionError, OutputError
from contrasent.model.base import Prompts
from contrasent.progress import Deadline, deadline_passed, limited
from contrasent.search.index import Index
from contrasent.serve import app as server_app
from contrasent.serve.app import create_app
from contrasent.serve.batching import Batcher
from contrasent.serve.guard import ServerSettings
from contrasent.serve.library import Library, _repeat
from contrasent.text import tokens
from contrasent.types import Tokens


@pytest.fixture(scope="module")
def http(address):
    with httpx.Client(base_url=address, timeout=300) as client:
        yield client


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(http, path, body):
    return http.post(path, json=body)


def vectors_of(answer):
    return np.array([item["embedding"] for item in answer["data"]])


def embed(url, texts, **options):
    options = {"timeout": 300, **options}
    return post_to(f"{url}/v1/embeddings", json={"input": texts}, **options)


# ---------------------------------------------------------------------- embeddings

JSON = {"content-type": "application/json"}


def test_openai_client_gives_the_vectors_of_encode(client, encoder):
    wanted = encoder.encode(LINES)
    answer = client.embeddings.create(model=MINILM, input=LINES)  # base64, as the client asks
    assert [item.index for item in answer.data] == list(range(len(LINES)))
    got = np.array([item.embedding for item in answer.data], dtype=np.float32)
    assert got == pytest.approx(wanted, abs=1e-5)
    lengths = encoder.tokenize(LINES)[0].lengths
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == int(lengths.sum())
    as_floats = client.embeddings.create(model=MINILM, input=LINES[0], encoding_format="float")
    assert np.array(as_floats.data[0].embedding) == pytest.approx(wanted[0], abs=1e-5)


def test_openai_client_lists_models_and_reports_errors(client):
    (model,) = client.models.list().data
    assert model.id == MINILM
    assert client.models.retrieve(MINILM).id == MINILM
    with pytest.raises(openai.NotFoundError, match="unknown model 'gpt'"):
        client.embeddings.create(model="gpt", input="a")
    with pytest.raises(openai.BadRequestError, match="384 dimensions, not 385"):
        client.embeddings.create(model=MINILM, input="a", dimensions=385)
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model=MINILM, input=[])


def test_token_ids_give_the_vector_of_their_text_and_are_cut_like_it(http, encoder):
    def bare(text):
        return encoder.tokenizer.backend.encode(text, add_special_tokens=False).ids

    texts = [*LINES[:3], "word " * 500]
    rows = [*map(bare, texts[:3]), bare("word") * 500]
    answer = post(http, "/v1/embeddings", {"input": rows}).json()
    assert vectors_of(answer) == pytest.approx(encoder.encode(texts), abs=1e-5)
    lengths = encoder.tokenize(texts)[0].lengths
    assert answer["truncated"] == 1 and lengths.max() == encoder.max_seq_length
    assert answer["usage"]["prompt_tokens"] == lengths.sum()
    one = post(http, "/v1/embeddings", {"input": rows[1]}).json()
    assert vectors_of(one)[0] == pytest.approx(encoder.encode(texts[1]), abs=1e-5)
    many = post(http, "/v1/embeddings", {"input": ["word " * 999, "short", ""]}).json()
    assert many["truncated"] == 1


def test_dimensions_are_the_first_at_length_one(http, encoder):
    answer = post(http, "/v1/embeddings", {"input": LINES[:2], "dimensions": 10}).json()
    wanted = encoder.encode(LINES[:2])[:, :10].astype(float)
    wanted = [row / math.sqrt(sum(x * x for x in row)) for row in wanted]
    assert vectors_of(answer) == pytest.approx(np.array(wanted), abs=1e-5)


TEXT, QUERY = {"input": "a"}, {"query": "a"}
MANY_NAMES = {"$or": [{"a": 1}] * 5000}
WRONG = {
    "/v1/embeddings": [
        ({}, "input: Field required"), ({"input": None}, ""), ({"input": {"text": "a"}}, ""),
        ({"input": 3}, "input: must be a valid string or a valid list"),
        ({"input": []}, "input: List should have at least 1 item"), ({"input": [[]]}, ""),
        ({"input": ["a", 3]}, "input.1: must be a valid string"), ({"input": [1, "a"]}, ""),
        ({"input": [[1], "a"]}, ""), ({"input": [True]}, ""), ({"input": [1.5]}, ""),
        ({"input": [[1], [-2]]}, "input.1.0: must be greater than or equal to 0"),
        *(({"input": [value]}, "") for value in (-1, 10**9, 10**30)),
        ({"input": "\ud800"}, "input: the text contains a lone surrogate"),
        *((TEXT | {"dimensions": value}, "") for value in (0, "3")), (TEXT | {"model": 3}, ""),
        (TEXT | {"encoding_format": "hex"}, ""), ({"input": ["a"] * 2049}, ""),
        (TEXT | {"dimension": 3}, "dimension: Extra inputs are not permitted"),
        ([], "the body: must be a valid dictionary"), ("a", ""),
        *((body, "") for body in (b"", b"{", b"\xff\xfe", b"null", b"\x00" * 100)),
        *((body, "") for body in (b'{"input": "\\ud800"}', b'{"\\ud800": 1}')),
        (b'{"input": ' + b"[" * 100_000, ""), (b'{"input": [' + b"9" * 5000 + b"]}", ""),
        (b'{"input": NaN}', ""),
    ],
    "/similarity": [({"a": ["a"], "b": {"a": 1}}, "b: must be a valid")],
    "/search": [
        ({"query": []}, ""), ({"q": "a"}, ""),
        *((QUERY | {"k": k}, "") for k in (0, 1001, True, 2.5)),
        *((QUERY | {"threshold": value}, "") for value in ("x", False, True, "0.5", [0.5])),
        *((QUERY | {"where": value}, "") for value in ([], {"x": {"$like": "a"}}, {"$or": []})),
        *((QUERY | {"where": value}, "lone surrogate, which is no")
          for value in ({"a": "\ud800"}, {"\ud800": 1})),
        (QUERY | {"where": {".".join("a" * 4000): 1}}, "16 names between dots"),
        (QUERY | {"where": MANY_NAMES}, "more than 1,024 names"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "message"), [(path, *one) for path in WRONG for one in WRONG[path]]
)
def test_bad_requests_are_answered_in_a_sentence(http, path, body, message):
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = http.post(path, content=content, headers=JSON)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert message in error["message"] and len(error["message"]) < 400
    assert not message or "[" not in error["message"].split(":")[0]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_only_json_is_taken(http, kind):
    """A page of a stranger's can send these without asking the browser's leave."""
    answer = http.post("/v1/embeddings", content=b'{"input": "a"}', headers={"content-type": kind})
    assert answer.status_code == 415


# ---------------------------------------------------------------------- similarity, search


def test_similarity(http, encoder):
    vectors = encoder.encode(LINES).astype(float)
    vectors /= np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    pair = post(http, "/similarity", {"a": LINES[0], "b": LINES[1]}).json()
    assert np.array(pair["scores"]) == pytest.approx(vectors[:1] @ vectors[1:2].T, abs=1e-5)
    some = post(http, "/similarity", {"a": LINES[:3], "b": LINES[3:5]}).json()
    assert np.array(some["scores"]) == pytest.approx(vectors[:3] @ vectors[3:5].T, abs=1e-5)
    all_pairs = post(http, "/similarity", {"a": LINES}).json()
    assert np.array(all_pairs["scores"]) == pytest.approx(vectors @ vectors.T, abs=1e-5)
    for sides, status in (((512, 512), 200), ((513, 1), 400), ((1, 513), 400)):
        body = {name: ["x"] * n for name, n in zip("ab", sides, strict=True)}
        assert post(http, "/similarity", body).status_code == status


MANY = {"$in": [*range(1200)]}


def test_search(http, encoder, index):
    answer = post(http, "/search", {"query": ["monetary policy", "a pet"], "k": 2}).json()
    wanted = index.search(["monetary policy", "a pet"], encode=encoder.encode, k=2)
    assert [
        [(hit["id"], hit["text"], hit["metadata"]) for hit in result["hits"]]
        for result in answer["results"]
    ] == [[(hit.id, hit.text, hit.metadata) for hit in hits] for hits in wanted]
    assert answer["results"][0]["hits"][0]["score"] == pytest.approx(wanted[0][0].score, abs=1e-5)
    assert answer["texts"] == len(LINES)
    filtered = post(http, "/search", {"query": "a", "where": {"line": {"$lt": 3}}}).json()
    assert {hit["id"] for hit in filtered["results"][0]["hits"]} == {"0", "1", "2"}
    for more in ({"threshold": 0}, {"where": {"line": 10**400}}, {"where": {"line": MANY}}):
        assert http.post("/search", content=json.dumps(QUERY | more), headers=JSON).is_success
    nothing = post(http, "/search", {"query": "a", "threshold": 1.5}).json()
    assert nothing["results"][0]["hits"] == []


@pytest.mark.parametrize(("options", "query", "new"), [
    ({}, "a pet", LINES[4]),
    # Words are counted anew of rows that come later.
    ({"bm25_weight": 1.0}, "kettle", "Kettle, kettle."),
], ids=["dense", "hybrid"])  # fmt: skip
def test_search_sees_what_a_writer_commits(app_of, encoder, tmp_path, options, query, new):
    from contrasent.search.writer import Writer

    Index.build(encoder.encode, LINES[:3], model=encoder.identity).save(tmp_path / "index")
    app = app_of(index=Index.open(tmp_path / "index"), **options)
    with running(app) as url:
        before = post_to(f"{url}/search", json={"query": query, "k": 1}).json()
        with Writer(tmp_path / "index") as writer:
            writer.add([new], encoder.encode, ids=["new"])

        def newest():
            return post_to(f"{url}/search", json={"query": query, "k": 1}).json()

        until(lambda: newest()["texts"] == 4)  # the server looks once a second
        after = newest()
    assert (before["texts"], after["texts"]) == (3, 4)
    hits = [answer["results"][0]["hits"][0] for answer in (before, after)]
    assert hits[1]["id"] == "new"
    assert hits[0]["text"] == LINES[0] or not options


def test_what_cannot_be_opened_is_looked_at_ever_less_often_and_said_once(caplog):
    pauses = []

    class Over:
        def wait(self, pause):
            pauses.append(pause)
            return len(pauses) > 13

    class Changed:
        def __init__(self):
            self.count = len(pauses)
            self.model = "m" if self.count in (0, 11) else "other"

        def refreshed(self):
            if len(pauses) == 2:
                raise OutputError("another process is writing to this index")
            return self if len(pauses) == 1 else Changed()

        def close(self):
            closed.append(len(pauses))

    def open_model(index):
        raise ModelError("the model is not there")

    closed, served = [], Library(Changed(), None, open_model=open_model)
    _repeat(served._look, Over(), "still searching the previous index")
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 1, 2, 4]
    assert closed == [3, 4, 5, 6, 7, 8, 9, 10, 12, 13]
    assert served.newest.index.count == 11  # what could be opened
    problems = [json.loads(record.message)["problem"] for record in caplog.records]
    said = ["another process is writing to this index", *["the model is not there"] * 2]
    assert problems == [f"still searching the previous index: {problem}" for problem in said]


def test_an_index_that_is_live_is_looked_at(encoder, app_of):
    """One in Milvus, which has no snapshots; no answer waits until it counts its rows."""

    class Live(Index):
        @property
        def count(self):
            if len(self) == 1:
                raise InputError("milvus.db", "does not answer")
            return len(self)

        def refreshed(self):
            return self

    rows = [{"kind": kind} for kind in "aabc"]
    about = {"metadata": rows, "model": encoder.identity}
    live = Live(Index.build(encoder.encode, [*"some"], **about).store, encoder.encode)
    library = Library(live, encoder)
    for gone, left in (("0", ["a", "b", "c"]), ("3", ["a", "b"])):
        live.remove([gone])
        library.refresh()
        snapshot = library.newest
        assert (snapshot.texts, snapshot.facets()) == (len(live), {"kind": left})
    with running(app_of(index=live)) as url:
        assert get_from(f"{url}/facets").json() == {"facets": {"kind": ["a", "b"]}}
        live.remove(["1"])
        assert get_from(f"{url}/health").json()["texts"] == 2
        assert get_from(f"{url}/facets").status_code == 200


def test_index_of_another_model_is_refused(app_of):
    other = Index.build(lambda t: np.ones((len(t), 384), np.float32), ["a"], model="other")
    with pytest.raises(ModelError, match="cannot be compared"):
        app_of(index=other)


def test_search_gives_the_sentence_that_answers(app_of, encoder):
    texts = ["Bees. They sleep in the hive all winter. " + "Spring comes. " * 30, *LINES]
    facts = [{"document": "b.md", "kind": "ab"[n % 2]} for n in range(len(texts))]
    index = Index.build(encoder.encode, texts, metadata=facts, model=encoder.identity)
    with running(app_of(index=index)) as url:
        body = {"query": ["where do bees sleep?", "a pet"], "k": 3, "answers": True}
        found = post_to(f"{url}/search", json=body).json()["results"]
        plain = post_to(f"{url}/search", json=body | {"answers": False}).json()
        assert get_from(f"{url}/facets").json() == {"facets": {"kind": ["a", "b"]}}
    hit = found[0]["hits"][0]
    answer = hit.pop("answer")
    assert answer["text"] == hit["text"][answer["start"] : answer["end"]]
    assert answer["text"] == "Bees. They sleep in the hive all winter."
    assert [hit["text"][a:b] for a, b in answer["marks"]] == ["Bees", "sleep"]
    assert found[1]["hits"][0]["answer"]["text"] == LINES[4]
    assert "answer" not in plain["results"][0]["hits"][0]


def test_without_an_index():
    with serving() as url:
        answer = find(url, query="a")
        assert (answer.status_code, get_from(f"{url}/facets").status_code) == (404, 404)
        assert "--index" in answer.json()["error"]["message"]
        assert get_from(f"{url}/health").json()["texts"] is None


# ---------------------------------------------------------------------- guard


@pytest.mark.parametrize("root", ["", "/a/b"])
def test_key(root):
    """Also under the path of a proxy, whether the proxy takes its path away or not."""
    with serving(api_key="open sesame", root_path=root) as url:
        for place in {url, url + root}:
            assert embed(place, "a").status_code == 401
            for given, code in (
                *((wrong, 401) for wrong in ("Bearer open", "open sesame", "Basic open sesame")),
                *((f"{scheme} open sesame", 200) for scheme in ("Bearer", "bearer", "BEARER ")),
            ):
                assert embed(place, "a", headers={"Authorization": given}).status_code == code
            for path, code in (
                *((path, 401) for path in ("metrics", "facets", "v1/models", "search")),
                *((path, 200) for path in ("health", "")),
            ):
                assert get_from(f"{place}/{path}").status_code == code, path
            assert get_from(place, follow_redirects=True).status_code == 200
            with openai.OpenAI(base_url=f"{place}/v1", api_key="open sesame") as client:
                assert client.embeddings.create(model="held", input="a").data
        schema = get_from(f"{url}/openapi.json").json()
        assert schema.get("servers", [{"url": ""}]) == [{"url": root}]


def test_host_header():
    with serving(hosts=("127.0.0.1", "box.local")) as url:
        assert get_from(f"{url}/health").status_code == 200
        assert get_from(f"{url}/health", headers={"Host": "box.local:1"}).status_code == 200
        for host in ("evil.example", "127.0.0.1.evil.example", ""):
            assert get_from(f"{url}/health", headers={"Host": host}).status_code == 400


def test_body_limit():
    with serving(max_body=2000) as url:
        assert embed(url, "a").status_code == 200
        big = embed(url, "a" * 3000)
        assert (big.status_code, big.json()["error"]["code"]) == (413, "body_too_large")
        parts = iter([b"a" * 100] * 40)
        assert post_to(f"{url}/v1/embeddings", content=parts, headers=JSON).status_code == 413


def held(gate=lambda: None, rows=None):
    """An encoder without a network that waits for a gate and remembers what it embedded."""

    def tokenize(texts, prompt=""):
        tokens = Tokens.from_rows([[ord(c) % 50 for c in text] or [0] for text in texts])
        return tokens, np.zeros(len(texts), dtype=bool)

    def embed(tokens):
        gate()
        if rows is not None:
            rows.append([tuple(tokens[n].tolist()) for n in range(len(tokens))])
        sums = [tokens[n].sum() for n in range(len(tokens))]
        return np.array([[s, 1.0] for s in sums], dtype=np.float32)

    none = np.empty(0, np.int32)
    tokenizer = SimpleNamespace(size=50, frame=(none, none), knows=lambda word: True)
    return SimpleNamespace(
        identity="id", dimension=2, max_seq_length=100, matryoshka_dims=(), prompts=Prompts(),
        tokenizer=tokenizer, tokenize=tokenize, embed=embed,
    )  # fmt: skip


def serving(gate=lambda: None, rows=None, index=None, **settings):
    """Serve a held encoder."""
    limits = ServerSettings(**settings)
    return running(create_app(held(gate, rows), "held", index=index, settings=limits), limits)


def asked_at_once(url, gate, bodies, refused):
    """Statuses and answers of requests, when so many are refused while the model is held."""
    answers = []
    with ThreadPoolExecutor(len(bodies)) as pool:
        for body in bodies:
            asked = pool.submit(post_to, f"{url}/v1/embeddings", json=body)
            asked.add_done_callback(lambda done: answers.append(done.result()))
        until(lambda: len(answers) == refused)
        assert get_from(f"{url}/health").status_code == 200
        gate.free.set()
    return [answer.status_code for answer in answers], answers[0]


def test_full_queue_and_too_many_requests():
    gate = Gate()
    with serving(gate, batch_tokens=64, queue_tokens=1024) as url:
        bodies = [{"input": ["x" * 60] * 10}] * 8
        statuses, refused = asked_at_once(url, gate, bodies, 7)
        assert statuses == [429] * 7 + [200]
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
        assert embed(url, "a").status_code == 200

    gate = Gate()
    with serving(gate, max_requests=1) as url:
        statuses, _ = asked_at_once(url, gate, [{"input": "x"}] * 3, 2)
        assert statuses == [429, 429, 200]


def test_timeout():
    gate = Gate()
    with serving(gate, timeout=1.0) as url:
        with connect(url, request("/v1/embeddings", input="x")) as line:
            status, headers, _ = answer_on(line)
        gate.free.set()
        assert status == 503 and headers["retry-after"]


def kettles(rows=40):
    """An index of rows without a model."""
    texts = [f"kettle number {n} " * 20 for n in range(rows)]
    return Index.build(
        lambda some: np.ones((len(some), 2), np.float32), texts, model="id",
        metadata=[{"n": n} for n in range(rows)],
    )  # fmt: skip


def find(url, **body):
    return post_to(f"{url}/search", json=body)


def at_gate(monkeypatch, name, gate):
    """Let a method of an index pass the gate first."""
    own = getattr(Index, name)

    def method(*given, **options):
        gate()
        return own(*given, **options)

    monkeypatch.setattr(Index, name, method)


def test_the_time_of_a_request_holds_within_a_batch_of_queries(monkeypatch):
    gate, asked = Gate(), []

    def found():
        asked.append(find(url, query="kettle").status_code)
        return asked[-1] == 200

    at_gate(monkeypatch, "find", gate)
    with serving(index=kettles(), timeout=1.0) as url:
        for body in ({"query": ["kettle number"] * 2000, "k": 16}, {"query": "a"}):
            with connect(url, request("/search", **body)) as line:
                status, _, answer = answer_on(line)
            assert (status, answer["error"]["code"]) == (503, "timeout")
        gate.free.set()
        until(found)
        assert gate.calls <= 2 + len(asked)  # one of the 2,000, one that waited, and these


def test_more_hits_than_a_request_may_have_are_refused():
    with serving(index=kettles()) as url:
        answer = find(url, query=["a"] * 2000, k=1000)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_hits")


def test_long_filters_end_and_others_go_on(monkeypatch):
    """More of them than there are threads: what has no filter does not wait for them."""
    gate, ended = Gate(), []
    own = Index.matching

    def matching(*given):
        gate()
        ended.append(deadline_passed())
        return own(*given)

    monkeypatch.setattr(Index, "matching", matching)
    monkeypatch.setattr(server_app, "FILTERS", 4)
    sent = request("/search", query="a", where={"n": 1})
    with serving(index=kettles(), timeout=300.0) as url, ThreadPoolExecutor(40) as pool:
        with connect(url, sent):
            assert gate.begun.wait(300)
        until(lambda: not counter(url, "active_requests"))  # the client has gone
        asked = [pool.submit(find, url, query="a", where={"n": 3}) for _ in range(40)]
        until(lambda: counter(url, "active_requests") == 40 and gate.calls == 4)
        try:
            assert find(url, query="kettle", k=1).status_code == 200
            assert embed(url, "a").status_code == 200
        finally:
            gate.free.set()
        assert {answer.result().status_code for answer in asked} == {200}
    assert sorted(ended) == [False] * 40 + [True]


def test_a_filter_looks_at_the_time_within_a_statement(monkeypatch):
    monkeypatch.setattr("contrasent.search.store.STEPS", 10)
    index, deadline = kettles(), Deadline(300)
    with limited(deadline):
        assert index.matching({"n": 3}).sum() == 1
        deadline.cancel()
        with pytest.raises(TimeoutError):
            index.matching({"n": {"$gt": 3}})


def test_work_for_a_client_that_has_gone_ends(monkeypatch):
    gate = Gate()
    at_gate(monkeypatch, "find", gate)
    with serving(index=kettles(), max_requests=2) as url:
        for _ in range(3):
            with connect(url, request("/search", query=["kettle number"] * 2000, k=16)):
                until(lambda: counter(url, "active_requests") == 1 and gate.begun.is_set())
            until(lambda: not counter(url, "active_requests"))
        gate.free.set()
        before = gate.calls
        assert find(url, query="kettle").status_code == 200
        assert gate.calls <= before + 3  # those that waited for a thread have no turn


def test_a_stopping_server_answers_what_is_left_with_503(monkeypatch):
    monkeypatch.setattr(server_app, "GRACE", 1)
    answers, gate = [], Gate()

    def ask():
        answers.append(embed(url, ["x" * 60] * 20, timeout=300))
        if len(answers) == 5:
            gate.free.set()

    with serving(gate, batch_tokens=64) as url:
        asked = [threading.Thread(target=ask) for _ in range(5)]
        for thread in asked:
            thread.start()
        until(lambda: counter(url, "queue_tokens") >= 5 * 20 * 60 - 64)
    for thread in asked:
        thread.join()
    assert [answer.json()["error"]["code"] for answer in answers] == ["stopping"] * 5
    assert {answer.status_code for answer in answers} == {503}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_cannot_finish_is_ended(number, app_of, monkeypatch):
    codes, waits = [], []

    class Alarm(threading.Timer):
        def start(self):
            waits.append((self.interval, self.daemon))
            self.function(*self.args)

    monkeypatch.setattr(server_app, "threading", SimpleNamespace(Timer=Alarm))
    monkeypatch.setattr(os, "_exit", codes.append)
    server = server_app.make_server(app_of(), ServerSettings())
    assert not codes
    server.handle_exit(number, None)
    assert codes == [128 + number] and server.should_exit
    # Whoever waits has an answer by then.
    assert waits == [(server_app.END, True)]
    assert server.config.timeout_graceful_shutdown == server_app.GRACE < server_app.END


def test_a_program_that_continues_after_its_server_is_not_ended(app_of, monkeypatch):
    said = []

    class Alarm:
        def __init__(self, *_):
            self.start, self.cancel = partial(said.append, "set"), partial(said.append, "cancelled")

    monkeypatch.setattr(server_app, "threading", SimpleNamespace(Timer=Alarm))
    server = server_app.make_server(app_of(), ServerSettings(), port=0)
    for _ in range(2):
        server.handle_exit(signal.SIGINT, None)
    with ThreadPoolExecutor(1) as pool:  # where uvicorn does not raise the signal again
        pool.submit(server.run).result(300)
    assert said == ["set", "cancelled"]


LONG = "a map " * 400


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/embeddings", {"input": [LONG] * 2048}), ("/search", {"query": [LONG] * 2048, "k": 16}),
    ("/similarity", {"a": [LONG] * 512}), ("/similarity", {"a": "a", "b": [LONG] * 512}),
    ("/search", {"query": "字" * 360_000}),
])  # fmt: skip
def test_more_text_than_a_request_may_have_is_answered_at_once(http, path, body):
    answer = http.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (413, "too_much_text")
    assert "limit per request is 1,048,576" in error["message"]


def test_tokenising_ends_with_the_time_of_the_request(encoder, monkeypatch):
    gate, ended = Gate(), []
    monkeypatch.setattr("contrasent.text.tokens.CHUNK", 1)
    own, tokenize = tokens.check_deadline, encoder.tokenize
    monkeypatch.setattr(tokens, "check_deadline", lambda: (gate(), own()))

    def counted(texts, prompt=""):
        try:
            return tokenize(texts, prompt)
        finally:
            ended.append(gate.calls)

    monkeypatch.setattr(encoder, "tokenize", counted)
    app = create_app(encoder, MINILM, settings=ServerSettings(timeout=1.0))
    with running(app) as url:
        with connect(url, request("/v1/embeddings", input=[LONG] * 40)) as line:
            assert answer_on(line)[2]["error"]["code"] == "timeout"
        gate.free.set()
        assert until(lambda: ended) == [1]


def test_slow_body_times_out():
    sent = (
        b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{"
    )
    with serving(timeout=2.0, head_timeout=1.0) as url:

        def answer():  # none where a second went by before anything was sent
            with connect(url, sent) as line, suppress(ConnectionResetError):
                return b" 408 " in line.recv(1000)

        assert any(answer() for _ in range(5))


def test_rows_of_an_aborted_request_are_not_computed():
    rows, gate = [], Gate()
    with serving(gate, rows, batch_tokens=64) as url:
        with connect(url, request("/v1/embeddings", input=["y" * 60] * 50)):
            assert gate.begun.wait(300)
        until(lambda: not counter(url, "active_requests"))
        assert counter(url, "queue_tokens") == 0
        gate.free.set()
        assert embed(url, "z").status_code == 200
    assert len(rows) == 2


def test_a_short_request_overtakes_a_long_one():
    rows, gate = [], Gate()
    with serving(gate, rows, batch_tokens=64) as url, ThreadPoolExecutor(2) as pool:
        long = pool.submit(embed, url, ["y" * 30] * 100)
        assert gate.begun.wait(300)
        waiting = counter(url, "queue_tokens")
        short = pool.submit(embed, url, ["z"])
        until(lambda: counter(url, "queue_tokens") == waiting + 1)
        gate.free.set()
        assert [asked.result().status_code for asked in (long, short)] == [200] * 2
        assert counter(url, "queue_tokens") == 0
    assert [1 for batch in rows if (ord("z") % 50,) in batch] == [1]
    assert (ord("z") % 50,) in rows[1] and len(rows) > 40


def test_requests_have_turns_and_a_dropped_one_has_none():
    rows, gate = [], Gate()

    async def ask():
        batcher, encoder = Batcher(ServerSettings(batch_tokens=100)), held(gate, rows)
        batcher.start()

        def start(token, count):
            return asyncio.ensure_future(batcher.ids(encoder, [[token] * 10] * count))

        first = start(1, 30)
        await asyncio.to_thread(gate.begun.wait, 300)  # alone, it fills a batch
        second, third = start(2, 50), start(3, 12)
        while batcher.waiting < 10 * (20 + 50 + 12):
            await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.wait([second])
        left = batcher.waiting
        gate.free.set()
        answers = [await first, await third]
        await batcher.stop()
        return left, batcher.waiting, answers

    before, after, answers = asyncio.run(ask())
    assert (before, after) == (10 * (20 + 12), 0)
    for (vectors, total, _), (token, count) in zip(answers, [(1, 30), (3, 12)], strict=True):
        assert vectors[:, 0].tolist() == [10 * token] * count and total == 10 * count
    assert ["".join(str(row[0]) for row in batch) for batch in rows] == [
        "1" * 10, "1" * 8 + "33", "1" * 8 + "33", "1111" + "3" * 6, "33",
    ]  # fmt: skip


def test_no_batch_has_rows_of_two_models():
    """While an index gets another model, requests of both wait; all rows would fit one batch."""
    rows = {1: [], 2: []}

    async def ask():
        batcher, encoders = Batcher(ServerSettings()), {n: held(rows=rows[n]) for n in rows}
        asked = [batcher.ids(encoders[n], [[n] * 10] * 12) for n in (1, 2, 1)]
        tasks = [asyncio.ensure_future(one) for one in asked]
        while batcher.waiting < 3 * 120:
            await asyncio.sleep(0.01)
        batcher.start()
        await asyncio.gather(*tasks)
        await batcher.stop()

    asyncio.run(ask())
    for n, batches in rows.items():
        assert {row for batch in batches for row in batch} == {(n,) * 10}
    assert [sum(map(len, rows[n])) for n in rows] == [24, 12]


def test_many_requests_share_batches_and_each_gets_its_own():
    """A batch that fails is an error of its requests, and not the end."""
    rows, gate = [], Gate()

    def once_wrong():
        gate()
        if gate.calls == 1:
            raise RuntimeError("out of memory")

    with serving(once_wrong, rows) as url:
        bodies = [{"input": [chr(97 + n % 26) * (n + 1), "b"]} for n in range(40)]
        total = sum(n + 2 for n in range(40))
        with ThreadPoolExecutor(40) as pool:
            ask = partial(pool.submit, post_to, f"{url}/v1/embeddings")
            first = ask(json=bodies[0])
            assert gate.begun.wait(300)
            asked = [first, *(ask(json=body) for body in bodies[1:])]
            until(lambda: counter(url, "queue_tokens") == total - 2)
            gate.free.set()
        answers = [one.result() for one in asked]
    assert answers[0].status_code == 500
    assert answers[0].json()["error"]["type"] == "server_error"
    for body, answer in zip(bodies[1:], answers[1:], strict=True):
        wanted = [float(sum(ord(c) % 50 for c in text)) for text in body["input"]]
        assert [item["embedding"][0] for item in answer.json()["data"]] == wanted
    assert [len(batch) for batch in rows] == [78]


def test_stopping_finishes_what_was_accepted(monkeypatch):
    gate, answers, wait = Gate(), [], server_app.Server._wait_tasks_to_complete

    async def waiting(self):
        gate.free.set()  # the server waits for what is left
        await wait(self)

    monkeypatch.setattr(server_app.Server, "_wait_tasks_to_complete", waiting)
    monkeypatch.setattr(server_app, "GRACE", 300)
    with serving(gate) as url:
        asked = threading.Thread(target=lambda: answers.append(embed(url, "x")))
        asked.start()
        assert gate.begun.wait(300)
    asked.join()
    assert answers[0].status_code == 200


def request(path, **body):
    """A request as one piece, so that no pause of the sender lies within it."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
    return head + b"Content-Length: %d\r\n\r\n" % len(content) + content


def connect(url, sent=b""):
    host, port = url.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)), timeout=300)
    line.sendall(sent)
    return line


def answer_on(line):
    """Status, headers and JSON of the answer that comes on a connection."""
    answer = HTTPResponse(line)
    answer.begin()
    return answer.status, answer.headers, json.loads(answer.read())


def healthy(url):
    """Whether the server answers; it may have closed a connection that was slow to send."""
    with suppress(httpx.TransportError):
        return get_from(f"{url}/health").status_code == 200


HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("body", [b"zz\r\n{}", b"2\r\n{}zz", b"-1\r\n"])
def test_a_body_cut_into_no_pieces_ends_in_a_line(caplog, body):
    """The server says so before the app can; what the app says then goes nowhere."""
    head = b"POST /search HTTP/1.1\r\nHost: localhost\r\n"
    with serving() as url:
        with connect(url, head + b"Transfer-Encoding: chunked\r\n\r\n" + body) as line:
            assert line.recv(1000).startswith(b"HTTP/1.1 400")
        assert get_from(f"{url}/health").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_half_open_connections_end(caplog):
    """300 that never finish their headers, some of which send on: others are answered."""
    with serving(head_timeout=1.0) as url, ExitStack() as stack:
        starts = (b"", b"G", HEAD, HEAD + b"\r\n" + HEAD)
        lines = [stack.enter_context(connect(url, starts[n % 4])) for n in range(300)]
        until(lambda: healthy(url))

        def closed():  # whatever it is sent
            try:
                lines[2].sendall(b"x: y\r\n")
            except OSError:
                return True

        until(closed)
        until(lambda: healthy(url))
        for line in lines:
            with suppress(ConnectionResetError):
                while line.recv(65536):
                    pass
    assert [r for r in caplog.records if not r.name.startswith(("httpx", "contrasent"))] == []


LARGE = 40_000_000


async def large(scope, receive, send):
    """An application whose answers fill no buffer of the system."""
    if scope["type"] == "lifespan":
        for what in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{what}.complete"})
    else:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": bytes(LARGE)})


def test_a_client_that_reads_nothing_more_of_an_answer_is_not_waited_for():
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    with running(large, ServerSettings(head_timeout=0.5)) as url, connect(url, request) as line:

        def ended():
            try:
                line.sendall(b"G")
            except OSError:
                return True

        until(ended)


def test_a_client_that_goes_on_sending_after_its_answer_is_not_waited_for():
    head = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    with serving(api_key="k", head_timeout=0.5) as url, connect(url, head) as line:
        assert answer_on(line)[0] == 401
        line.sendall(b"{")
        with suppress(ConnectionResetError):
            assert line.recv(1) == b""


def test_a_client_that_still_reads_an_answer_is_waited_for():
    unsent, waits, ends = iter([40, 30, 10, 10]), [], []
    transport = SimpleNamespace(
        get_write_buffer_size=lambda: next(unsent), abort=lambda: ends.append("aborted")
    )
    loop = SimpleNamespace(call_later=lambda seconds, *call: waits.append((seconds, *call)))
    line = SimpleNamespace(transport=transport, loop=loop, head_timeout=7.0)
    line._late = partial(server_app._Connection._late, line)
    line._late()
    for looks in (1, 2, 3):
        assert len(waits) == looks and not ends
        seconds, call, *given = waits[-1]
        assert seconds == 7.0
        call(*given)
    assert len(waits) == 3 and ends == ["aborted"]


def test_beyond_the_limit_of_connections_requests_are_refused():
    with serving(max_connections=20, head_timeout=600.0) as url:
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(connect(url, b"GET"))
            assert get_from(f"{url}/health").status_code == 503
        until(lambda: get_from(f"{url}/health").status_code == 200)


def test_what_is_no_http_is_answered_and_not_logged(caplog):
    with serving() as url:
        for sent in (b"\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"x" * 200_000):
            with connect(url, sent) as line, suppress(ConnectionResetError):
                assert line.recv(1000).startswith(b"HTTP/1.1 400")
    assert caplog.records == []


def test_logs_and_metrics_hold_no_text(app_of, index, caplog):
    with caplog.at_level(logging.INFO), running(app_of(index=index)) as url:
        secret = "xylophone"
        embed(url, [secret, "b"])
        post_to(f"{url}/search?q={secret}", json={"query": secret})
        post_to(f"{url}/search", json={secret: 1})
        get_from(f"{url}/{secret}")
        get_from(f"{url}/v1/models/{secret}")
        metrics = get_from(f"{url}/metrics").text
    entries = [
        json.loads(record.message) for record in caplog.records if record.name == "contrasent.serve"
    ]
    assert [(e["route"], e["status"]) for e in entries] == [
        ("/v1/embeddings", 200), ("/search", 200), ("/search", 400), ("other", 404),
        ("/v1/models/{name:path}", 404), ("/metrics", 200),
    ]  # fmt: skip
    assert entries[0]["inputs"] == 2
    assert entries[0]["ms"] > 0
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith("httpx")]
    assert not any(secret in line for line in [*ours, metrics])
    assert 'contrasent_requests_total{method="POST",route="/v1/embeddings",status="200"} 1.0' in (
        metrics
    )
    assert "contrasent_inputs_total 3.0" in metrics


def test_security_headers(http):
    page = http.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["x-request-id"]
    assert "access-control-allow-origin" not in page.headers


@pytest.mark.parametrize(("path", "code"), [
    *((path, 404) for path in ("/../etc/passwd", "/page/..%2f..%2fapp.py", "/docs/x")),
    *(("/%2e%2e/settings.py", 404), ("/v1/embeddings", 405)),
])  # fmt: skip
def test_no_path_leads_to_a_file(http, path, code):
    answer = http.get(path)
    assert answer.status_code == code
    assert "error" in answer.json()


def test_an_index_that_cannot_be_read_is_the_servers_fault(app_of, encoder, tmp_path, caplog):
    """503 without a path in it; the path is in the log, for the operator."""
    extra = [{"n": 1} for _ in LINES]
    index = Index.build(encoder.encode, LINES, metadata=extra, model=encoder.identity)
    index.save(tmp_path / "index")
    with running(app_of(index=Index.open(tmp_path / "index"))) as url:
        flat = tmp_path / "index" / "vectors-000001.f32"
        flat.write_bytes(b"\1" * flat.stat().st_size)
        with caplog.at_level(logging.ERROR, logger="contrasent.serve"):
            answer = post_to(f"{url}/search", json={"query": "x", "where": {"n": 1}})
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "index_unavailable"
        assert str(tmp_path) not in answer.text
        assert "is damaged" in caplog.text
        assert get_from(f"{url}/health").status_code == 200


# ---------------------------------------------------------------------- proxies, browsers, clients


@pytest.mark.parametrize(("change", "status"), [
    (lambda body: body, 200), (lambda body: body[:-4], 400), (lambda body: b"{}", 400),
    (lambda body: body + body, 400),
    (lambda body: gzip.compress(b'{"input": "%s"}' % (b"a" * 9000)), 413),
])  # fmt: skip
def test_bodies_may_be_compressed(change, status):
    body = change(gzip.compress(b'{"input": "a map"}'))
    with serving(max_body=5000) as url:
        for coding, wanted in (("gzip", status), ("br", 415)):
            headers = JSON | {"content-encoding": coding}
            answer = post_to(f"{url}/v1/embeddings", content=body, headers=headers)
            assert answer.status_code == wanted, answer.text
            assert status != 200 or wanted == 415 or len(answer.json()["data"]) == 1


def test_nulls_of_the_schema_are_defaults(http):
    nulls = dict.fromkeys(("encoding_format", "dimensions", "user", "model"))
    plain, given = (post(http, "/v1/embeddings", {"input": "a", **some}) for some in ({}, nulls))
    assert given.status_code == 200 and given.json()["data"] == plain.json()["data"]


def test_a_head_is_that_of_the_answer(http):
    for path in ("/health", "/metrics", "/v1/models", "/"):
        answer = http.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
    assert http.head("/search").status_code == 405


def test_browsers_are_told_whose_pages_may_call():
    ask = {"origin": "https://app.example", "access-control-request-method": "POST",
           "access-control-request-headers": "authorization,content-type,x-stainless-os",
           "access-control-request-private-network": "true",
    }  # fmt: skip
    allowed = "access-control-allow-origin"
    for origins, answers in (((), None), (("https://app.example",), ask["origin"]), (("*",), "*")):
        with serving(origins=origins, api_key="k") as url:
            path = f"{url}/v1/embeddings"
            may = httpx.options(path, headers=ask, timeout=60)
            assert (may.status_code == 200, may.headers.get(allowed)) == (bool(answers), answers)
            refused = post_to(path, json={}, headers={"origin": ask["origin"]})
            assert (refused.status_code, refused.headers.get(allowed)) == (401, answers)
            other = get_from(f"{url}/health", headers={"origin": "https://b.example"})
            assert other.headers.get(allowed) == ("*" if answers == "*" else None)


@pytest.mark.parametrize("wrong", [
    {"origins": ("app.example",)}, {"origins": ("https://a.example/x",)}, {"root_path": "a"},
    {"root_path": "/a/"}, {"hosts": ("a.example:80",)}, {"hosts": ("https://a.example",)},
])  # fmt: skip
def test_origins_hosts_and_paths_that_are_none(wrong):
    with pytest.raises(OptionError, match=r"is not an origin|is not a host|start with a slash"):
        ServerSettings(**wrong)
