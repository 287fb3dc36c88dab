"""Indexes whose content is known, changes of them, and processes that make those; see test_kills.

Run as a program: each line of standard input is a change to make in a process of its own, and when
to kill it; or a writer of test_together.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
import zlib
from collections import Counter
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from contrasent import files
from contrasent.documents.folder import DocumentSource
from contrasent.documents.parsers import documents
from contrasent.documents.worker import FileReader
from contrasent.errors import UserError
from contrasent.indexing import following as following_
from contrasent.search import folder as folder_
from contrasent.search import learned as learned_
from contrasent.search import store as store_
from contrasent.search import words as words_
from contrasent.search import writer as writer_
from contrasent.search.index import Index
from contrasent.search.learned import KnownQueries, Learned, Neighbors
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts
from contrasent.search.words import Analyzer, Bm25, Postings
from contrasent.search.writer import Writer

# The modules that change an index.
WATCHED = tuple(
    str(module.__file__)
    for module in (files, folder_, learned_, store_, following_, words_, writer_)
)
QUERIES = ("row 17", "anew", "entry of the ledger", "added", "nowhere")
ALL_WORDS = ("row 17 added", "anew entry of the ledger")


def encoder(salt=1, dimension=8):
    """Vectors that depend on a text and a number alone."""

    @cache
    def one(text):
        return np.random.default_rng([salt, zlib.crc32(text.encode())]).normal(size=dimension)

    def encode(texts):
        return np.array([one(text) for text in texts], dtype=np.float32).reshape(-1, dimension)

    return encode


def bm25_of(texts, language):
    """BM25 over texts in memory."""
    analyzer = Analyzer(language)
    terms = [analyzer(text) for text in texts]
    lengths = np.array([len(some) for some in terms], dtype=np.float32)
    return Bm25(analyzer, dict(Postings(terms).by_term(0)).get, lengths)


MODELS = {"one": encoder(1), "two": encoder(2, 12)}


def text(n, word="entry"):
    return f"{word} of the ledger, row {n} in column {n % 7}"


def make(folder):
    """300 rows in three changes, some of them deleted."""
    ids = [f"r{n}" for n in range(300)]
    with Writer(folder, new=Facts(model="one")) as writer:
        writer.add([text(n) for n in range(200)], MODELS["one"], ids=ids[:200])
    with Writer(folder) as writer:
        writer.add([text(n) for n in range(200, 300)], MODELS["one"], ids=ids[200:])
    learn(folder, 3)
    with Writer(folder) as writer:
        writer.delete(ids[40:60])


def learn(folder, k=4):
    """A map, neighbors and taught queries."""
    with Writer(folder) as writer:
        matrix = np.random.default_rng(k).normal(size=(8, 8)).astype(np.float32)
        taught = KnownQueries(MODELS["one"](["row 17"]), ((f"r{k}", "boats.md"),))
        ranker = Ranker(map_share=0.5, smoothing=0.5, known=1.0, known_from=0.5)
        learned = Learned(matrix, Neighbors.of(writer.store.vectors, k), taught)
        writer.set(ranker=ranker, learned=learned)


OLD_NOTES = {"boats.md": "The boats are tarred in May.", "nets.md": "Nets are mended in winter."}
NEW_NOTES = {"boats.md": "The boats are tarred in June.", "sails.md": "Sails are dried at once."}


def _notes(folder, name, notes):
    place = folder.parent / name
    place.mkdir(exist_ok=True)
    for file, text in notes.items():
        (place / file).write_text(f"{text}\n")
    return place


class WordEncoder:
    """An encoder of documents whose tokens are words."""

    max_seq_length = 64

    def __init__(self, encode):
        self._encode, self.encoder = encode, self

    def __call__(self, texts):
        return self._encode(texts)

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]


def synchronize(folder, source, encode):
    """Apply the changes of documents; the outcome."""
    with Writer(folder) as writer:
        changes = following_.compare(writer.store, source, False)
        return following_.apply_changes(writer, source, changes, WordEncoder(encode))


class ReadHere(FileReader):
    """Reads files in the process that changes the index, where the real one starts another."""

    def read(self, entry):
        for one in documents(entry, self.columns, self.most, self.encoding, lambda *_: None):
            yield "document", one


def _synchronize(folder, name, notes):
    source = DocumentSource(_notes(folder, name, notes))
    source.reader = ReadHere
    synchronize(folder, source, MODELS["one"])


def add_documents(folder):
    """Make the rows of two documents known as theirs."""
    with Writer(folder) as writer:
        writer.set(origin=DocumentSource(_notes(folder, "notes", OLD_NOTES)).origin.to_json())
    _synchronize(folder, "notes", OLD_NOTES)


def sync(folder):
    """A document changed, one deleted, one added."""
    _synchronize(folder, "new-notes", NEW_NOTES)


def add(folder):
    with Writer(folder) as writer:
        numbers = range(300, 400)
        texts = [text(n, "added") for n in numbers]
        writer.add(texts[:50], MODELS["one"], ids=[f"r{n}" for n in numbers[:50]])
        writer.add(texts[50:], MODELS["one"], ids=[f"r{n}" for n in numbers[50:]])


def update(folder):
    with Writer(folder) as writer:
        numbers = range(280, 320)
        ids = [f"r{n}" for n in numbers]
        writer.update([text(n, "anew") for n in numbers], MODELS["one"], ids=ids)


def delete(folder):
    with Writer(folder) as writer:
        writer.delete([f"r{n}" for n in range(100, 130)])


def compact(folder):
    with Writer(folder) as writer:
        writer.rewrite()


def replace(folder):
    """Another model's vectors."""
    with Writer(folder) as writer:
        writer.rewrite(MODELS["two"])
        writer.set(model="two", ranker=Ranker(), learned=Learned())


def build(folder):
    with Writer(folder, new=Facts(model="one")) as writer:
        writer.add([text(n) for n in range(200)], MODELS["one"], ids=[f"r{n}" for n in range(200)])


CHANGES = {
    "add": add, "update": update, "delete": delete, "compact": compact, "replace": replace,
    "build": build, "sync": sync, "learn": learn,
}  # fmt: skip


def content(folder):
    """Model and rows of an index, {id: text}, in the order of the rows, and how many neighbors.

    All of it is checked: vectors against their texts, words against an index made of these texts.
    None where there is no index yet.
    """
    if not (folder / "index.db").exists():
        return None
    try:
        index = Index.open(folder)
    except UserError as error:
        assert "unfinished index" in str(error), error
        return None
    try:
        return whole(index)
    finally:
        index.close()


def whole(index):
    numbers = np.flatnonzero(index.alive)
    found = index.rows(numbers)
    files = {name: facts["rows"] for name, facts in index.store.files().items()}
    assert files == Counter(row.metadata["document"] for row in found if row.metadata)
    rows = tuple((row.id, row.text) for row in found)
    vectors, scores = expected(index.model, rows)
    assert np.array_equal(index.vectors[numbers], vectors)
    for found, right in zip(scores_of(index, len(rows)), scores, strict=True):
        assert found.keys() == right.keys()
        np.testing.assert_allclose([found[name] for name in right], [*right.values()], atol=1e-4)
    return index.model, dict(rows), check_learned(index)


def check_learned(index):
    """Neighbors are there and have the vectors that they had; how many a row has."""
    learned, needed = index.learned, index.ranker.uses_learned
    assert [part is not None for part in (learned.matrix, learned.neighbors)] == [needed] * 2
    if not needed:
        return 0
    near = learned.neighbors
    smooth = np.flatnonzero((near.rows >= 0).all(axis=1) & index.alive[: len(near.rows)])
    assert index.alive[near.rows[smooth]].all() and len(smooth) > 30
    means = index.vectors[near.rows[smooth]].mean(axis=1)
    products = (index.vectors[smooth] * means).sum(axis=1)
    np.testing.assert_allclose(near.products[smooth, 0], products, atol=1e-5)
    return near.rows.shape[1]


@lru_cache(maxsize=8)
def expected(model, rows):
    """The vectors of rows, and what searching finds in an index made of them alone."""
    ids, texts = zip(*rows, strict=True)
    index = Index.build(MODELS[model], texts, ids=ids, model=model)
    return index.vectors, scores_of(index, len(rows))


def scores_of(index, k):
    found = index.search(ALL_WORDS, encode=MODELS[index.model], k=k, ranker=Ranker())
    return [{hit.id: hit.score for hit in hits} for hits in found]


class Changer:
    """A process that makes changes in children of its own, which are killed."""

    def __enter__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, __file__, "change"], **pipes)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def change(self, name, folder, **how):
        """Make a change, killed after some ``seconds`` or before a ``line``; the exit status.

        ``record`` names a file for the lines of the watched modules, in the order of reaching them.
        """
        job = {"name": name, "folder": str(folder), **how}
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


def _kill_before(file, number):
    """Kill this process before a line of a module."""

    def trace(frame, event, _):
        if frame.f_code.co_filename != file or number not in _lines_of(frame.f_code):
            return None
        if event == "line" and frame.f_lineno == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


@cache
def _lines_of(code):
    return {line for *_, line in code.co_lines()}


def _reached():
    """The lines of the watched modules that are reached from now on, each once."""
    seen = {}

    def trace(frame, event, _):
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            seen.setdefault((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    return seen


def _changes():
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            status = 1
            try:
                if "line" in job:
                    _kill_before(*job["line"])
                seen = _reached() if "record" in job else {}
                CHANGES[job["name"]](Path(job["folder"]))
                sys.settrace(None)
                if "record" in job:
                    Path(job["record"]).write_text(json.dumps([*seen]))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        if "seconds" in job:
            time.sleep(job["seconds"])
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


ROWS = 12
"""Of each of the writers that work at once."""


def version_text(writer, version, row):
    return f"writer{writer} version{version} row {row}"


def _write(folder, writer, enough):
    """Put all rows of a writer into new versions until a file says enough; print the last."""
    draw, version, end = np.random.default_rng(int(writer)), 0, time.monotonic() + 600
    ids = [f"{writer}-{row}" for row in range(ROWS)]
    while version < 2 or (not Path(enough).exists() and time.monotonic() < end):
        version += 1
        texts = [version_text(writer, version, row) for row in range(ROWS)]
        with Writer(folder) as change:
            if draw.random() < 0.3:
                change.rewrite()
            change.update(texts, MODELS["one"], ids=ids)
        time.sleep(draw.uniform(0.03, 0.1))  # who waits looks every 50 ms
    print(version)


def check_versions(index):
    """Each writer's rows are all there, all of one version; the versions."""
    _, rows, _ = whole(index)
    found = {}
    for name, text in rows.items():
        writer, row = name.split("-")
        version = int(text.split()[1].removeprefix("version"))
        assert text == version_text(writer, version, row), (name, text)
        found.setdefault(writer, []).append(version)
    assert all(len(some) == ROWS and len(set(some)) == 1 for some in found.values()), found
    return {writer: some[0] for writer, some in found.items()}


if __name__ == "__main__":
    if sys.argv[1] == "change":
        _changes()
    else:
        _write(Path(sys.argv[1]), *sys.argv[2:])
