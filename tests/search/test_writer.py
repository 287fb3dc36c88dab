"""One writer, many readers: every change against a dictionary, crowds included."""

import errno
import math
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from whole_states import bm25_of, encoder

from contrasent import files
from contrasent.errors import ModelError, OptionError, OutputError, UserError
from contrasent.search.codes import BinaryCodes
from contrasent.search.folder import DATABASE
from contrasent.search.index import Index
from contrasent.search.store import Facts
from contrasent.search.writer import Writer

encode = encoder(1, 6)


class Other:
    """An encoder that is not the index's."""

    @property
    def identity(self):
        return "other"

    def encode(self, texts):
        return encode(texts)


class Task:
    """Such an encoder as a function."""

    encoder = Other()

    def __call__(self, texts):
        return encode(texts)


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


WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


def check_words(index):
    """BM25 of an index is that of its texts, whatever way it came to them."""
    texts = [row.text for row in index.every()]
    fresh = bm25_of(texts, index.facts.language)
    for query in ("alpha", "beta gamma", "gamma gamma delta", "nothing"):
        found = index.bm25.weigh(query).scores[index.numbers()]
        assert found == pytest.approx(fresh.weigh(query).scores, rel=1e-5)


class Machine(RuleBasedStateMachine):
    """Any order of changes and commits leaves what a dictionary would hold."""

    names = st.integers(0, 12).map(str)
    texts = st.text(max_size=4) | st.lists(st.sampled_from(WORDS)).map(" ".join)

    def __init__(self):
        super().__init__()
        import tempfile
        from pathlib import Path

        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "index"
        Index.build(encode, ["first"], ids=["0"]).save(self.folder)
        self.model = {"0": ("first", None)}

    def writer(self):
        """A writer of blocks of three rows, merged from two of a like size on."""
        writer = Writer(self.folder)
        writer.block, writer.small = 3, 2
        return writer

    def teardown(self):
        self.temporary.cleanup()

    @rule(rows=st.dictionaries(names, st.tuples(texts, st.none() | st.integers())))
    def update(self, rows):
        with self.writer() as writer:
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
            with pytest.raises(OptionError, match="already"), self.writer() as writer:
                writer.add(["lost"], encode)
                writer.add(["x"], encode, ids=[name])
        else:
            with self.writer() as writer:
                assert writer.add(["new"], encode, ids=[name]) == 1
            self.model[name] = ("new", None)

    @rule(some=st.lists(names, max_size=4))
    def delete(self, some):
        with self.writer() as writer:
            assert writer.delete([n for n in some if n in self.model]) == len(
                {*some} & {*self.model}
            )
        for name in some:
            self.model.pop(name, None)

    @rule()
    def compact(self):
        with self.writer() as writer:
            writer.rewrite()
        assert Index.open(self.folder).facts.dead == 0

    @rule(name=names)
    def several_changes_at_once(self, name):
        with self.writer() as writer:
            writer.update(["once"], encode, ids=[name])
            writer.update(["is repeated, for text 1"], encode, ids=[name])
            writer.delete([name])
            writer.update(["thrice"], encode, ids=[name], metadata=[[1]])
        self.model[name] = ("thrice", [1])

    @invariant()
    def same(self):
        index = Index.open(self.folder)
        assert contents(index) == self.model
        assert list(index.store.damaged_blocks()) == []
        if self.model:
            check_words(index)
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


@pytest.mark.parametrize("saved", [True, False])
def test_an_index_changes_itself(folder, saved):
    index = Index.open(folder)
    if not saved:
        index = Index.build(encode, [row.text for row in index.every()], ids=None, model="m")
    other = Index.open(folder)
    index.search("text 3", encode=encode)  # what it keeps for queries is of the rows before
    assert index.add(["a boat", "a ferry"], encode, metadata=[{"n": 1}, {"n": 77}]) == 2
    assert index.update(["text three", "new"], encode, ids=["3", "x"], model="m") == (1, 1)
    assert index.remove(["4", "5"], where={"n": {"$gte": 77}}) == 3
    # Changes that change nothing leave it as it is.
    assert index.remove(where={"n": 88}) == index.add([], encode) == index.remove() == 0
    left = {"10", "x", *map(str, (0, 1, 2, 3, 6, 7, 8, 9))}
    assert {*contents(index)} == left and contents(index)["3"] == ("text three", None)
    assert index.search("boat", encode=encode, k=1)[0][0].id == "10"
    with pytest.raises(OptionError, match="not in the index"):
        index.remove(["0", "4"])
    with pytest.raises(ModelError, match="cannot be compared"):
        index.add(["x"], encode, model="another")
    assert {*contents(index)} == left and len(other) == 10
    assert index.remove(sorted(left - {"x"})) == 9  # most are gone: all are written anew
    assert [*contents(index)] == ["x"] and index.facts.dead == 0
    if saved:
        assert contents(Index.open(folder)) == contents(index)
        assert {*contents(other)} == {*map(str, range(10))}


@pytest.mark.parametrize("other", [Other().encode, Task()])
def test_the_encoder_of_an_index_is_known_by_its_identity(folder, other):
    index = Index.open(folder)
    for search in (index.search, index.query_vectors):
        with pytest.raises(ModelError, match="'m' and the encoder is 'other'"):
            search("text 3", encode=other)
    same = Index.build(other, ["a boat"], model="other")
    assert same.add(["a ferry"], other) == 1 and len(same.search("boat", encode=other)[0]) == 2
    unknown = Index.build(encode, ["a boat"])
    assert unknown.add(["a ferry"], other) == 1


def test_the_log_is_written_back_after_every_change_of_an_index(folder):
    with Index.open(folder) as index:
        for n in range(5):
            index.update([f"changing {n}"], encode, ids=["k"])
            assert (folder / f"{DATABASE}-wal").stat().st_size == 0
            assert contents(index)["k"] == (f"changing {n}", None)


def test_a_full_disk_is_named_and_lets_go_of_the_index(folder):
    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        close = flush = lambda self: self.write(b"")

    with pytest.raises(OutputError, match="free some space"), Writer(folder) as writer:
        writer._stream = Full()
        writer.add(["lost"], encode)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        writer.store.connection.execute("SELECT 1")
    assert len(Index.open(folder)) == 10


def test_the_text_of_a_row_that_was_deleted_is_nowhere_in_the_folder(folder, monkeypatch):
    """Also by a SQLite whose own default leaves it; its words go when the others are rewritten."""
    connect, secret = sqlite3.connect, b"mister zyxwolski complains"

    def careless(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    def found(what):
        return [path.name for path in folder.iterdir() if what in path.read_bytes()]

    monkeypatch.setattr(sqlite3, "connect", careless)
    with Writer(folder) as writer:
        writer.add([secret.decode()], encode, ids=["x"], metadata=[{"of": secret.decode()}])
    assert found(secret) == [DATABASE]
    with Writer(folder) as writer:
        writer.delete(["x"])
    assert not found(secret) and found(b"zyxwolski") == [DATABASE]
    with Writer(folder) as writer:
        writer.delete([str(n) for n in range(6)])
    assert writer.facts.dead == 0 and not found(b"zyxwolski")


def test_ids_that_are_not_given_are_new(folder):
    with Writer(folder) as writer:
        writer.add(["a", "b"], encode)
        writer.add(["c"], encode, ids=["12"])
        writer.add(["d"], encode)
    index = Index.open(folder)
    assert set(contents(index)) == {str(n) for n in range(14)}
    assert contents(index)["12"][0] == "c"


def test_everything_can_be_deleted_and_come_back(folder):
    with Writer(folder) as writer:
        writer.delete([str(n) for n in range(10)])
    empty = Index.open(folder)
    assert len(empty) == 0
    assert empty.search(encode(["x", "y"])) == [[], []]
    with Writer(folder) as writer:
        writer.add(["back"], encode)
    assert [text for text, _ in contents(Index.open(folder)).values()] == ["back"]


def test_many_small_adds_keep_few_blocks(folder):
    for n in range(30):
        with Writer(folder) as writer:
            writer.add([f"added {n}"], encode)
    index = Index.open(folder)
    assert len(index) == 40
    blocks = index.store.connection.execute("SELECT first, count FROM blocks").fetchall()
    assert len(blocks) <= 15 and sum(count for _, count in blocks) == 40
    assert index.search(encode(["added 23"]), k=1)[0][0].text == "added 23"


@pytest.mark.parametrize(("few", "language"), [(100, "english"), (2, "none")])
def test_the_first_rows_decide_the_language(monkeypatch, few, language):
    """Not the first one alone, though they are added one by one."""
    monkeypatch.setattr("contrasent.search.writer.DECIDING", few)
    index = Index.build(encode, ["Introduction", "Contents"], metadata=[{"document": "a.md"}, None])
    for text in ("The boats lie in the harbor of the town", "It is a map of the islands"):
        index.add([text], encode)
    assert index.facts.language == language
    assert (index.bm25.weigh("introductions").scores[0] > 0) == (language == "english")
    check_words(index)


@pytest.mark.parametrize(("change", "error", "words"), [
    (lambda w: w.add(["x"], encode, ids=["3"]), OptionError, "'3'.*in the index already"),
    (lambda w: w.add(["x"], np.ones((1, 7), np.float32)), ModelError, "7 dimensions"),
    (lambda w: w.add(["x"], np.full((1, 6), np.nan, np.float32)), ModelError, "NaN"),
    (lambda w: w.delete_where({"n": {"$like": 3}}), OptionError, "is not an operator"),
    (lambda w: w.delete("12"), OptionError, "ids '12': is one string"),
    (lambda w: w.add("ab", np.ones((2, 6))), OptionError, "texts 'ab': is one string"),
    (lambda w: w.delete(["\ud83d"]), OptionError, r"ids\[0\] .*lone surrogate"),
    (lambda w: w.add(["x"], Other().encode), ModelError, "'m' and the encoder is 'other'"),
    (lambda w: w.update(["x"], Task(), ids=["3"]), ModelError, "'m' and the encoder is 'other'"),
])  # fmt: skip
def test_a_failure_changes_nothing(folder, change, error, words):
    before = contents(Index.open(folder)), {path.name for path in folder.iterdir()}
    with pytest.raises(error, match=words), Writer(folder) as writer:
        writer.add(["fine"], encode)
        writer.delete(["1"])
        change(writer)
    assert contents(Index.open(folder)) == before[0]
    assert {path.name for path in folder.iterdir()} - {".lock"} == before[1]
    with Writer(folder) as writer:  # the lock was given back
        writer.delete(["1"])


def test_a_failure_that_is_caught_is_not_committed(folder):
    before = contents(Index.open(folder))
    with pytest.raises(OutputError, match="a change failed"), Writer(folder) as writer:
        with pytest.raises(UserError, match="lone surrogate"):
            writer.add(["x"], encode, metadata=["\ud800"])
        writer.add(["fine"], encode)
    assert contents(Index.open(folder)) == before


def test_what_is_bad_is_found_before_anything_is_encoded_or_changes(folder):
    """Numbers of numpy are numbers."""
    calls, frame = [], type("Frame", (list,), {"columns": ["n"]})([{"n": 1}])
    with Writer(folder) as writer:
        for metadata, words in (([{"n": math.nan}], "is not JSON"), (frame, r"frame\.to_dict")):
            for vectors in (calls.append, np.ones((1, 6), np.float32)):
                with pytest.raises(UserError, match=words):
                    writer.add(["x"], vectors, metadata=metadata)
        with pytest.raises(ModelError, match="NaN"):
            writer.update(["x"], np.full((1, 6), np.nan, np.float32), ids=["3"])
        writer.add(["fine"], encode, metadata=[{"n": np.int64(3), "m": np.float32(0.5)}])
    found = contents(Index.open(folder))
    assert not calls and {*found} == {*map(str, range(11))}
    assert found["10"] == ("fine", {"n": 3, "m": 0.5})


def test_a_writer_waits_for_no_longer_than_it_was_given(folder, monkeypatch):
    """Also where it is silent for exactly half of the time."""
    monkeypatch.setattr(files, "SILENT", 0.125)
    busy = pytest.raises(OutputError, match=r"process \d+ on .* is writing to this index")
    with Writer(folder), busy:
        Writer(folder, wait=0.25)


def test_facts_stay_and_the_generation_rises(folder):
    before = Index.open(folder).facts
    with Writer(folder) as writer:
        writer.delete(["0"])
    after = Index.open(folder).facts
    risen = {"generation": before.generation + 1, "change": after.change}
    assert after == replace(before, **risen, dead=1) and after.change != before.change
    with Writer(folder):
        pass
    assert Index.open(folder).facts == after


def test_a_new_index_by_a_writer_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ModelError, match="NaN"), Writer(tmp_path / "x", new=Facts()) as writer:
        writer.add(["fine"], encode)
        writer.add(["bad"], np.full((1, 6), np.nan, dtype=np.float32))
    assert [path.name for path in (tmp_path / "x").iterdir()] == [".lock"]
    with Writer(tmp_path / "x", new=Facts()) as writer:
        writer.add(["fine"], encode)
    with Writer(tmp_path / "x", new=Facts()) as writer:  # there is one now: it is changed
        writer.add(["again"], encode)
    assert len(Index.open(tmp_path / "x")) == 2


def test_a_change_sees_what_it_did_before(folder):
    with Writer(folder) as writer:
        writer.add(["mine"], encode, ids=["new"], metadata=[{"n": 99}])
        assert writer.delete_where({"n": {"$gt": 5}}) == 5
        writer.add(["again"], encode, ids=["new"])
    assert set(contents(Index.open(folder))) == {*map(str, range(6)), "new"}


def test_codes_are_made_from_the_size_on_where_they_win(folder):
    def change(texts=()):
        with Writer(folder) as writer:
            writer.coded_from = 50
            writer.add(list(texts), encode)
            if not texts:
                writer.rewrite()
        return Index.open(folder)

    first = change(f"more {n}" for n in range(45))
    assert first.facts.codes["rows"] == 55
    assert first.store.codes.columns.tolist() == BinaryCodes.of(first.vectors).columns.tolist()
    # Few new rows are looked at alongside the codes.
    assert change(["a few more"]).facts.codes == first.facts.codes
    last = change(f"many {n}" for n in range(30))
    assert last.facts.codes["rows"] == 86
    assert [path.name for path in folder.glob("codes-*")] == [last.facts.codes["file"]]
    assert change().facts.codes["rows"] == 86


def test_a_reader_keeps_the_codes_of_its_state(folder):
    def change(texts):
        with Writer(folder) as writer:
            writer.coded_from = 50
            writer.add(texts, encode)
        return Index.open(folder)

    first = change([f"more {n}" for n in range(45)])
    first.exact_up_to = 0
    assert change([f"many {n}" for n in range(30)]).facts.codes["file"] != first.facts.codes["file"]
    query = encode(["q"])
    assert first.search(query, k=3) == first.search(query, k=3, all_rows=True)
