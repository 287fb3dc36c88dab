"""One writer, many readers: every change against a dictionary, kills and crowds included."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contrasent.errors import InputError, ModelError, OptionError, OutputError
from contrasent.search.index import Index
from contrasent.search.writer import Writer


def encode(texts):
    rows = [np.random.default_rng(list(text.encode())).normal(size=6) for text in texts]
    return np.array(rows, dtype=np.float32).reshape(-1, 6)


@pytest.fixture
def folder(tmp_path):
    texts = [f"text {n}" for n in range(10)]
    index = Index.build(
        encode, texts, metadata=[{"n": n, "even": n % 2 == 0} for n in range(10)], model="m"
    )
    index.save(tmp_path / "index")
    return tmp_path / "index"


def contents(index):
    """{id: (text, metadata)} of an index, through a search that returns all of it."""
    (hits,) = index.search(np.ones(index.dimension, dtype=np.float32), k=10_000)
    assert len({hit.id for hit in hits}) == len(hits) == len(index)
    return {hit.id: (hit.text, hit.metadata) for hit in hits}


def exact(index, query):
    """Best first, by a loop over the contents in float64."""
    (q,) = encode([query]).astype(float)
    scored = []
    for name, (text, _) in contents(index).items():
        (v,) = encode([text]).astype(float)
        scored.append((-sum(q * v) / (sum(q * q) * sum(v * v)) ** 0.5, name))
    return [name for _, name in sorted(scored)]


class Machine(RuleBasedStateMachine):
    """Any order of changes and commits leaves what a dictionary would hold."""

    names = st.integers(0, 12).map(str)

    def __init__(self):
        super().__init__()
        import tempfile
        from pathlib import Path

        self.calm = mock.patch("os.fsync")  # what power failure does is not asked here
        self.calm.start()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "index"
        Index.build(encode, ["first"], ids=["0"]).save(self.folder)
        self.model = {"0": ("first", None)}

    def teardown(self):
        self.calm.stop()
        self.temporary.cleanup()

    @rule(rows=st.dictionaries(names, st.tuples(st.text(max_size=4), st.none() | st.integers())))
    def update(self, rows):
        with Writer(self.folder) as writer:
            replaced, added = writer.update(
                [text for text, _ in rows.values()],
                encode,
                ids=list(rows),
                metadata=[value for _, value in rows.values()],
            )
        assert replaced == len(rows.keys() & self.model.keys())
        assert added == len(rows) - replaced
        self.model.update(rows)

    @rule(name=names)
    def add(self, name):
        if name in self.model:
            with pytest.raises(OptionError, match="already"), Writer(self.folder) as writer:
                writer.add(["lost"], encode)
                writer.add(["x"], encode, ids=[name])
        else:
            with Writer(self.folder) as writer:
                assert writer.add(["new"], encode, ids=[name]) == 1
            self.model[name] = ("new", None)

    @rule(some=st.lists(names, max_size=4))
    def delete(self, some):
        with Writer(self.folder) as writer:
            assert writer.delete(some, missing="ignore") == len(set(some) & self.model.keys())
        for name in some:
            self.model.pop(name, None)

    @rule()
    def compact(self):
        with Writer(self.folder) as writer:
            writer.compact()
        assert len(Index.open(self.folder).segments) <= 1

    @rule(name=names)
    def several_changes_at_once(self, name):
        with Writer(self.folder) as writer:
            writer.update(["once"], encode, ids=[name])
            writer.update(["twice"], encode, ids=[name])
            writer.delete([name])
            writer.update(["thrice"], encode, ids=[name], metadata=[[1]])
        self.model[name] = ("thrice", [1])

    @invariant()
    def same(self):
        index = Index.open(self.folder)
        assert contents(index) == self.model
        if self.model:
            texts = {name: text for name, (text, _) in self.model.items()}
            best = index.search(encode(["q"]), k=3)[0]
            order = exact(index, "q")[:3]
            assert [texts[h.id] for h in best] == [texts[n] for n in order]


Machine.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestMachine = Machine.TestCase


def test_ids_that_are_not_given_are_new(folder):
    with Writer(folder) as writer:
        writer.add(["a", "b"], encode)
        writer.add(["c"], encode, ids=["12"])
        writer.add(["d"], encode)
    index = Index.open(folder)
    assert set(contents(index)) == {str(n) for n in range(14)}
    assert contents(index)["12"][0] == "c"


def test_delete_where(folder):
    with Writer(folder) as writer:
        assert writer.delete_where({"even": True}) == 5
    assert set(contents(Index.open(folder))) == {"1", "3", "5", "7", "9"}


def test_everything_can_be_deleted_and_come_back(folder):
    with Writer(folder) as writer:
        writer.delete([str(n) for n in range(10)])
    empty = Index.open(folder)
    assert len(empty) == 0
    assert empty.search(encode(["x", "y"])) == [[], []]
    with Writer(folder) as writer:
        writer.add(["back"], encode)
    assert [text for text, _ in contents(Index.open(folder)).values()] == ["back"]


def test_nothing_is_left_behind(folder):
    with Writer(folder) as writer:
        writer.add(["a"], encode)
        writer.delete(["3"])
        writer.compact()
    names = sorted(path.name for path in folder.iterdir())
    manifest = Index.open(folder).manifest
    assert names == sorted([".lock", "index.json", *manifest.names])
    assert len(manifest.names) == 1


def test_many_small_adds_keep_few_segments(folder, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for n in range(60):
        with Writer(folder) as writer:
            writer.add([f"added {n}"], encode)
    index = Index.open(folder)
    assert len(index) == 70
    assert len(index.segments) <= 8
    assert index.search(encode(["added 33"]), k=1)[0][0].text == "added 33"


def test_a_failure_changes_nothing(folder):
    before = contents(Index.open(folder)), sorted(p.name for p in folder.iterdir())
    with pytest.raises(ModelError, match="NaN"), Writer(folder) as writer:
        writer.add(["fine"], encode)
        writer.delete(["1"])
        writer.add(["bad"], np.full((1, 6), np.nan, dtype=np.float32))
    assert contents(Index.open(folder)) == before[0]
    assert sorted(p.name for p in folder.iterdir() if p.name != ".lock") == before[1]
    with Writer(folder) as writer:  # and the lock was given back
        writer.delete(["1"])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda w: w.add(["x"], encode, ids=["3"]), OptionError, "'3'.*in the index already"),
        (lambda w: w.add(["x", "y"], encode, ids=["a", "a"]), OptionError, "twice"),
        (lambda w: w.add(["x"], encode, model="other"), ModelError, "cannot be compared"),
        (lambda w: w.add(["x"], np.ones((1, 7), np.float32)), ModelError, "7 dimensions"),
        (lambda w: w.add(["x"], encode, metadata=[1, 2]), OptionError, "one value for 1"),
        (lambda w: w.update(["x"], encode, ids=["a", "b"]), OptionError, "one id for each"),
        (lambda w: w.delete(["no"]), OptionError, "'no'.*not in the index"),
        (lambda w: w.delete([], missing="forget"), OptionError, "unknown"),
        (lambda w: w.delete_where({"n": {"$like": 3}}), OptionError, "no operator"),
    ],
)
def test_refused(folder, change, error, words):
    before = contents(Index.open(folder))
    with pytest.raises(error, match=words), Writer(folder) as writer:
        change(writer)
    assert contents(Index.open(folder)) == before


def test_no_index_gets_no_lock(tmp_path):
    with pytest.raises(InputError, match="no index"):
        Writer(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_is_refused_or_waits(folder):
    with Writer(folder) as writer:
        writer.add(["x"], encode)
        with pytest.raises(OutputError, match="another process is writing"), Writer(folder):
            pass
    with Writer(folder, wait=5):
        pass


def test_a_reader_keeps_its_snapshot(folder):
    reader = Index.open(folder)
    before = contents(reader)
    with Writer(folder) as writer:
        writer.update(["changed"], encode, ids=["4"])
        writer.delete(["5"])
        writer.compact()
    assert contents(reader) == before
    assert reader.refreshed().search(encode(["changed"]), k=1)[0][0].id == "4"
    newest = reader.refreshed()
    assert newest.refreshed() is newest


def _read(folder, until, results):
    """Open and search without pause; every snapshot must be one that a commit left."""
    opened = 0
    while time.time() < until:
        index = Index.open(folder)
        found = contents(index)
        generation = {value for _, value in found.values()}
        if len(generation) != 1 or len(found) != 8:
            results.put(f"torn: {found}")
            return
        opened += 1
    results.put(opened)


def test_readers_never_see_half_a_commit(tmp_path):
    """Two processes read while this one rewrites every row again and again."""
    folder = tmp_path / "index"
    names = [str(n) for n in range(8)]
    Index.build(encode, names, ids=names, metadata=[0] * 8).save(folder)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    until = time.time() + 2.0
    readers = [context.Process(target=_read, args=(folder, until, results)) for _ in range(2)]
    for reader in readers:
        reader.start()
    commits = 0
    while time.time() < until:
        commits += 1
        with Writer(folder) as writer:
            writer.update(names, encode, ids=names, metadata=[commits] * 8)
    counts = [results.get(timeout=20) for _ in readers]
    for reader in readers:
        reader.join()
    assert all(isinstance(count, int) and count > 5 for count in counts), counts
    assert commits > 5


KILLED = """
import sys, time
import numpy as np
from contrasent.search.writer import Writer
rng = np.random.default_rng(0)
count = 0
while True:
    count += 1
    with Writer(sys.argv[1]) as writer:
        names = [str(n) for n in range(50)]
        vectors = rng.normal(size=(50, 6)).astype(np.float32)
        writer.update([f"{n} of {count}" for n in names], vectors, ids=names, metadata=[count] * 50)
        print(count, flush=True)
"""


@pytest.mark.parametrize("delay", [0.001, 0.004, 0.009, 0.017, 0.03])
def test_a_killed_writer_leaves_a_whole_index(tmp_path, delay):
    folder = tmp_path / "index"
    names = [str(n) for n in range(50)]
    Index.build(encode, names, ids=names, metadata=[0] * 50).save(folder)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    time.sleep(delay)
    os.kill(process.pid, signal.SIGKILL)
    rest, _ = process.communicate()
    last = int(rest.split()[-1]) if rest.split() else 3
    found = contents(Index.open(folder))
    assert len(found) == 50
    (generation,) = {value for _, value in found.values()}
    assert last - 1 <= generation <= last
    with Writer(folder) as writer:  # the lock died with its owner, and what it left is swept
        writer.delete(["0"])
    kept = Index.open(folder).manifest.names
    assert {path.name for path in folder.iterdir()} == {".lock", "index.json", *kept}


def test_manifest_keeps_what_its_maker_wrote(folder):
    before = json.loads((folder / "index.json").read_text())
    with Writer(folder) as writer:
        writer.delete(["0"])
    after = json.loads((folder / "index.json").read_text())
    assert after["generation"] == before["generation"] + 1
    assert {k: after[k] for k in ("model", "source", "metric", "dimension", "settings")} == {
        k: before[k] for k in ("model", "source", "metric", "dimension", "settings")
    }
    with Writer(folder):
        pass
    assert json.loads((folder / "index.json").read_text()) == after
