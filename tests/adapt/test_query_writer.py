"""Queries by a language model: a server that answers, and others that fail, stall and babble."""

import json
import re
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from contrasent.adapt import writer as module
from contrasent.adapt.writer import PROMPT, Writer, write_queries
from contrasent.datasets.beir import read_qrels, read_texts
from contrasent.datasets.official import data_folder
from contrasent.errors import InputError, OptionError
from contrasent.model import remote
from contrasent.search.words import words

TOOLS = ["pump", "ladder", "saw", "drill", "lathe", "anvil", "kiln", "loom", "plough", "winch"]
PASSAGES = [
    (f"The {tool} must be cleaned before it goes back to the shed. It is oiled once a year.", n)
    for n, tool in enumerate(TOOLS)
]


class Fake:
    """A server that answers by a function of the prompt: a text, or a status and a text."""

    def __init__(self, answer=None):
        self.answer = answer or (lambda prompt: f"where does the {tool_in(prompt)} go")
        self.asked, self.keys = [], []

    @contextmanager
    def running(self):
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(*fake.listed())

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][0]["content"]
                fake.asked.append(prompt)
                fake.keys.append(self.headers.get("Authorization"))
                found = fake.answer(prompt)
                status, text, *headers = found if isinstance(found, tuple) else (200, found)
                message = {"choices": [{"message": {"content": text}}]}
                usage = {"usage": {"total_tokens": 120}}
                self.reply(status, message | usage if status == 200 else {"error": text}, *headers)

            def reply(self, status, found, *headers):
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def listed(self):
        return 200, {"data": [{"id": "small"}]}


def tool_in(text):
    return next(tool for tool in TOOLS if f"The {tool} must" in text)


def finds(queries):
    """A search that finds the documents whose tool a query names, or none."""
    return [[n for n, tool in enumerate(TOOLS) if tool in words(query)] for query in queries]


def ask(url, kept, limit=60.0, passages=PASSAGES, finds=finds, prompt=None):
    said = []
    writer = Writer.of(f"{url}#small", prompt)
    options = {"kept": kept, "finds": finds, "limit": limit, "log": said.append}
    queries, facts = write_queries(passages, writer, **options)
    return queries, facts, said


@pytest.fixture
def pauses(monkeypatch):
    """The waits before a server is asked again, which are not waited."""
    found = []
    monkeypatch.setattr(remote.time, "sleep", found.append)
    return found


def test_queries_are_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    kept, fake = tmp_path / "written.jsonl", Fake()
    with fake.running() as url:
        queries, facts, said = ask(url, kept)
        assert sorted(queries) == sorted(
            (f"where does the {tool} go", {n: 1.0}) for n, tool in enumerate(TOOLS)
        )
        assert facts == {
            "model": "small", "url": url, "passages": 10, "answers": 10, "left_out": {},
        }  # fmt: skip
        assert said[0] == f"small writes 3 queries about each of 10 passages: {url}"
        estimate = r"the other answers cost about \d+ of \d\d s and 840 tokens"
        assert re.fullmatch(estimate, said[1])
        assert said[2:] == ["10 queries of 10 answers; left out: none"]
        assert set(fake.keys) == {"Bearer sk-secret"} and len(fake.asked) == 10
        assert "sk-secret" not in kept.read_text() + "".join(said)
        assert ask(url, kept)[0] == queries and len(fake.asked) == 10  # nothing is asked twice
    again, _, said = ask(url, kept)  # not even whether the server is there
    assert again == queries and len(said) == 2


def test_a_run_that_was_killed_loses_the_answer_under_way(tmp_path):
    kept, calls = tmp_path / "written.jsonl", []

    def stopped(prompt):
        calls.append(prompt)
        return f"where does the {tool_in(prompt)} go"

    class Stop(Exception):
        pass

    def write(self, prompt, until, answer=Writer.answer):
        if len(calls) == 4:
            raise Stop
        return answer(self, prompt, until)

    with Fake(stopped).running() as url:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
            patch.setattr(Writer, "answer", write)
            ask(url, kept)
        whole = kept.read_text()
        kept.write_text(whole[:-9])  # the last line is torn
        queries, _, _ = ask(url, kept)
    assert len(queries) == 10
    assert len(calls) == 4 + 7  # three of four answers were there


@pytest.mark.parametrize("trouble", [[500], [503, 500], [(429, "slow down", ("Retry-After", "7"))]])
def test_failures_that_pass_are_waited_out(tmp_path, pauses, trouble):
    left = list(trouble)

    def answer(prompt):
        if left:
            found = left.pop(0)
            return found if isinstance(found, tuple) else (found, "overloaded")
        return f"where does the {tool_in(prompt)} go"

    with Fake(answer).running() as url:
        queries, _, said = ask(url, tmp_path / "written.jsonl")
    assert len(queries) == 10 and len(said) == 3
    assert pauses == {500: [0.5], 503: [0.5, 1.0]}.get(trouble[0], [7.0])


def test_a_connection_is_kept_and_made_again_where_the_server_closed_it():
    places, closed = [], [False, False, True, False]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            places.append(self.client_address)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
            self.close_connection = closed[len(places) - 1]  # without telling the client

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        threading.Thread(target=http.serve_forever, args=(0.02,)).start()
        server = remote.JsonServer(f"http://127.0.0.1:{http.server_port}/v1", "NO_KEY")
        for _ in closed:
            assert server.ask("x", {"a": 1}, attempts=1) == {}
            time.sleep(0.05)
        http.shutdown()
    assert places[0] == places[1] == places[2] != places[3]


def test_a_server_that_fails_is_given_up(tmp_path, pauses, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    fake = Fake(lambda prompt: (500, "no memory for sk-secret"))
    with fake.running() as url:
        queries, facts, said = ask(url, tmp_path / "written.jsonl")
    assert queries == [] and facts["answers"] == 0
    assert len(fake.asked) == 2 * module.ATTEMPTS
    assert said[1].startswith(f"no answer: {url}/chat/completions: answered 500:")
    assert "memory for ..." in said[1] and "sk-secret" not in "".join(said)
    assert said[3] == "small gives nothing of use, after 0 answers"
    fake = Fake(lambda prompt: (404, "no such model"))
    with fake.running() as url:
        assert ask(url, tmp_path / "written.jsonl")[0] == []
    assert len(fake.asked) == 2  # what does not pass is not tried again


def test_a_server_that_goes_away_leaves_its_answers(tmp_path, pauses):
    fake, kept = Fake(), tmp_path / "written.jsonl"
    with fake.running() as url:
        first, _, _ = ask(url, kept, passages=PASSAGES[:6])
    queries, facts, said = ask(url, kept)
    assert queries == first and facts["answers"] == 6
    assert "does not answer (" in said[1] and "small gives nothing of use" in said[3]


def test_a_server_that_stalls(tmp_path, monkeypatch, pauses):
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    over = threading.Event()

    def answer(prompt):
        if "The pump" in prompt:
            over.wait(20)
        return f"where does the {tool_in(prompt)} go"

    with Fake(answer).running() as url:
        began = time.monotonic()
        queries, facts, said = ask(url, tmp_path / "written.jsonl")
        assert time.monotonic() - began < 10
        assert len(queries) == 9 and facts["answers"] == 9
        assert sum("no answer" in line for line in said) == 1
        over.set()


def test_a_server_that_drips(tmp_path, monkeypatch, pauses):
    """Bytes come all the time, but no whole answer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        began = time.monotonic()
        found = ask(f"http://127.0.0.1:{server.server_port}/v1", tmp_path / "w.jsonl", limit=1.0)
        assert time.monotonic() - began < 5
        assert found[0] == [] and "no whole answer in 1 s" in found[2][1]
        Dripping.over.set()
        server.shutdown()
        thread.join()


class Dripping(BaseHTTPRequestHandler):
    """Sends a space now and then."""

    over = threading.Event()

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        try:
            while not self.over.wait(0.05):
                self.wfile.write(b" ")
                self.wfile.flush()
        except OSError:
            pass

    def log_message(self, *arguments):
        pass


def test_the_time_is_respected(tmp_path):
    def answer(prompt):
        time.sleep(0.1)
        return f"where does the {tool_in(prompt)} go"

    with Fake(answer).running() as url:
        queries, _, said = ask(url, tmp_path / "written.jsonl", limit=0.6)
        assert 2 <= len(queries) <= 6
        assert said[-2] == f"small has no time left, after {len(queries)} answers"
        assert ask(url, tmp_path / "written.jsonl", limit=0.0)[0] == queries


BABBLE = {
    "pump": "Sure! Here are the queries:\n\n1. **where to put the pump**\n2) 'pump oil'\n- pump",
    "ladder": "<think>The ladder must be\ncleaned.</think>\nhow to clean a ladder",
    "saw": "The user wants a saw ...\n</think>\n\n```\nhow to clean the saw\n```",
    "drill": "<think>The drill must be cleaned and I think",
    "lathe": "",
    "anvil": "the anvil " * 60,
    "kiln": "Wie oft reinigt man einen Ofen wie diesen?",
    "loom": "The loom must be cleaned before it goes back to the shed.",
    "plough": "Q1: how often is it oiled\nQuery: 3.5 mm of oil for the plough?",
    "winch": '["when to clean a winch",',
}


def test_babble_is_cleaned_and_counted(tmp_path):
    with Fake(lambda prompt: BABBLE[tool_in(prompt)]).running() as url:
        queries, facts, said = ask(url, tmp_path / "written.jsonl")
    assert {query: next(iter(gains)) for query, gains in queries} == {
        "where to put the pump": 0,
        "pump oil": 0,
        "how to clean a ladder": 1,
        "how to clean the saw": 2,
        "3.5 mm of oil for the plough?": 8,
        "when to clean a winch": 9,
    }
    assert facts["left_out"] == {
        "answers without a query": 2,
        "too long": 1,
        "in another language": 1,
        "copied from their passage": 1,
        "that do not find their passage": 1,
    }
    assert all(f"{count} {why}" in said[-1] for why, count in facts["left_out"].items())


def test_nothing_but_babble_is_given_up(tmp_path):
    passages = [(f"{text} It stands in row {n}.", n) for n, (text, _) in enumerate(9 * PASSAGES)]
    fake = Fake(lambda prompt: "<think>hm")
    with fake.running() as url:
        queries, _, said = ask(url, tmp_path / "written.jsonl", passages=passages)
    assert queries == [] and len(fake.asked) == module.MISSES
    assert said[2] == f"small gives nothing of use, after {module.MISSES} answers"


def test_passages_without_a_query_are_made_up_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WANTED", 4)
    fake = Fake(lambda prompt: "" if "The saw" in prompt else f"where is the {tool_in(prompt)}")
    with fake.running() as url:
        queries, facts, _ = ask(url, tmp_path / "written.jsonl")
        again, _, _ = ask(url, tmp_path / "written.jsonl")
    assert len(queries) == facts["passages"] == 4 and again == queries
    assert len(fake.asked) == facts["answers"] in (4, 5)


def test_the_first_twenty_rows_are_looked_at(tmp_path):
    with Fake().running() as url:
        for place, count in ((19, 10), (20, 0)):
            deep = [[*[99] * place, n] for n in range(len(TOOLS))]
            found = ask(
                url,
                tmp_path / "written.jsonl",
                finds=lambda queries, deep=deep: [deep[TOOLS.index(q.split()[3])] for q in queries],
            )
            assert len(found[0]) == count


def test_many_documents_come_before_many_passages():
    passages = [(f"passage {n} of the first", 0) for n in range(20)] + [("second", 1), ("third", 2)]
    order = module._sample(passages)
    assert sorted(order) == list(range(22)) and {passages[at][1] for at in order[:3]} == {0, 1, 2}
    more = module._sample([*passages[:5], ("fourth", 3), *passages[5:]])  # numbers have changed
    assert [at - (at > 5) for at in more if at != 5] == order


def test_addresses_and_prompts(tmp_path):
    assert Writer.of("http://localhost:8080#m") == Writer("http://localhost:8080/v1", "m", PROMPT)
    assert Writer.of("http://h/api/v2/#a/b").url == "http://h/api/v2"
    for address, problem in {
        "localhost:8080": "is no http",
        "http://localhost:8080/v1": "names no model: write http://HOST:PORT/v1#MODEL",
    }.items():
        with pytest.raises(OptionError, match=f"--writer '{address}': {problem}"):
            Writer.of(address if "/v1" in address else f"{address}#m")
    with pytest.raises(OptionError, match="OPENAI_API_KEY") as error:
        Writer.of("http://me:sk-secret@host/v1#m")
    assert "sk-secret" not in str(error.value)
    own = tmp_path / "prompt.txt"
    with pytest.raises(InputError, match=r"prompt\.txt: cannot be read"):
        Writer.of("http://h#m", own)
    own.write_text("Frage zu: {text}")
    with pytest.raises(InputError, match=r"must hold \{passage\}"):
        Writer.of("http://h#m", own)
    own.write_text("{count} times about {passage}!")
    fake = Fake()
    with fake.running() as url:
        ask(url, tmp_path / "written.jsonl", passages=PASSAGES[:1], prompt=own)
    assert fake.asked == [f"3 times about {PASSAGES[0][0]}!"]


def test_a_server_is_looked_for_before_any_work(monkeypatch):
    fake = Fake()
    with fake.running() as url:
        Writer.of(f"{url}#other").check()
        for status in (404, 503):
            monkeypatch.setattr(fake, "listed", lambda status=status: (status, {}))
            Writer.of(f"{url}#small").check()
        monkeypatch.setattr(fake, "listed", lambda: (401, {}))
        with pytest.raises(OptionError, match=r"answered 401: .*OPENAI_API_KEY"):
            Writer.of(f"{url}#small").check()
    with pytest.raises(OptionError, match=r"does not answer .*; start it"):
        Writer.of(f"{url}#small").check()


def test_the_page_shows_the_prompt():
    page = Path(__file__).parents[2] / "docs" / "adaptation.md"
    section = page.read_text("utf-8").partition("## A language model writes queries")[2]
    assert f"```text\n{PROMPT}```" in section.partition("\n## ")[0]


@pytest.mark.data
def test_held_apart_queries_of_people_stand_for_a_language_model(tmp_path):
    """The queries of cosqa's dev part are what its judged documents are asked for."""
    folder = data_folder() / "ir" / "cosqa"
    documents, queries = (read_texts(folder / f"{n}.jsonl") for n in ("corpus", "queries.dev"))
    asked = {}
    for query, gains in read_qrels(folder / "qrels" / "dev.tsv").items():
        asked.setdefault(next(iter(gains)), queries[query])
    chosen = sorted(asked)[:60]
    passages = [(documents[name], number) for number, name in enumerate(chosen)]

    def answer(prompt):
        return next(asked[name] for name in chosen if documents[name][:300] in prompt)

    def finds(queries):
        """By the words they share."""
        terms = [set(words(text)) for text, _ in passages]
        shared = [[len(one & set(words(query))) for one in terms] for query in queries]
        return [sorted(range(60), key=lambda n, row=row: -row[n]) for row in shared]

    with Fake(answer).running() as url:
        found, facts, _ = ask(url, tmp_path / "w.jsonl", passages=passages, finds=finds)
    assert facts["answers"] == 60 and len(found) >= 45
    for query, gains in found:
        assert words(query) == words(asked[chosen[next(iter(gains))]])
