"""Several processes at one index: writers wait for each other, readers see whole states."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import whole_states
from whole_states import MODELS, ROWS, check_versions, content, make, text

from contrasent.errors import InputError, OutputError
from contrasent.search import folder as folder_
from contrasent.search.folder import DATABASE
from contrasent.search.index import Index
from contrasent.search.opening import open_index
from contrasent.search.store import Facts, Store
from contrasent.search.writer import Writer

encode = MODELS["one"]


@pytest.mark.parametrize("count", [20, pytest.param(80, marks=pytest.mark.slow)])
def test_two_writers_and_a_reader(tmp_path, count):
    """The reader sees whole states only, and one that it keeps stays as it was."""
    folder, enough = tmp_path / "index", tmp_path / "enough"
    with Writer(folder, new=Facts(model="one")) as writer:
        for name in "12":
            texts = [whole_states.version_text(name, 0, row) for row in range(ROWS)]
            writer.add(texts, encode, ids=[f"{name}-{row}" for row in range(ROWS)])
    index = kept = Index.open(folder)
    before, states = check_versions(kept), 0
    command = [sys.executable, whole_states.__file__, str(folder)]
    writers = [
        subprocess.Popen([*command, name, str(enough)], stdout=subprocess.PIPE, text=True)
        for name in "12"
    ]
    while None in [one.poll() for one in writers]:
        newest = index.refreshed()
        if newest is not index:
            states += 1
            check_versions(newest)
            if index is not kept:
                index.close()
            index = newest
        if states >= count:
            enough.touch()
    vars(kept).pop("bm25")  # read it again
    vars(kept.store).pop("alive")
    assert check_versions(kept) == before
    last = check_versions(index.refreshed())
    assert last == {
        name: int(one.communicate()[0]) for name, one in zip("12", writers, strict=True)
    }
    assert [one.returncode for one in writers] == [0, 0] and min(last.values()) >= 2
    assert states >= count


def test_the_second_writer_waits_and_says_for_whom(tmp_path, caplog):
    folder = tmp_path / "index"
    make(folder)

    def second():
        with Writer(folder, wait=600) as writer:
            writer.add(["of the second"], encode, ids=["second"])

    with Writer(folder) as writer:
        other = threading.Thread(target=second)
        other.start()
        writer.add(["of the first"], encode, ids=["first"])
        while not caplog.messages and other.is_alive():
            other.join(0.1)
        assert other.is_alive()
    other.join()
    assert [*content(folder)[1]][-2:] == ["first", "second"]
    (line,) = caplog.messages
    assert line == f"{folder}: process {os.getpid()} on {socket.gethostname()} is writing to " + (
        "this index; waiting"
    )


def test_a_reader_does_not_keep_a_writer_waiting(tmp_path, monkeypatch):
    """The log is written back by a later writer; what is in it is read meanwhile."""
    folder = tmp_path / "index"
    make(folder)
    reader = Index.open(folder)
    before = whole_states.whole(reader)
    monkeypatch.setattr("contrasent.search.writer.BUSY", 3600)  # a writer that waits never ends

    def write():
        for n in range(3):
            with Writer(folder) as writer:
                writer.add([text(n)], encode, ids=[f"new {n}"])

    other = threading.Thread(target=write, daemon=True)
    other.start()
    other.join(300)
    assert not other.is_alive()
    assert whole_states.whole(reader) == before
    newest = reader.refreshed()
    assert len(newest) == len(reader) + 3
    newest.store.verify_database()
    reader.close()
    newest.close()


def other_index(folder):
    with Writer(folder, new=Facts(model="one")) as writer:
        writer.add(
            [text(n, "another") for n in range(30)], encode, ids=[f"o{n}" for n in range(30)]
        )


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_an_index_that_replaced_another(tmp_path, how):
    """Both are of generation 1; the identity tells them apart."""
    folder = tmp_path / "index"
    whole_states.build(folder)
    reader = Index.open(folder)
    before = whole_states.whole(reader)
    assert reader.refreshed() is reader
    if how == "removed":
        shutil.rmtree(folder)
        with pytest.raises(InputError, match="no such folder"):
            reader.refreshed()
        folder.mkdir()
        with pytest.raises(InputError, match="is not an index"):
            reader.refreshed()
        other_index(folder)
    else:
        other_index(tmp_path / "new")
        folder.rename(tmp_path / "old")
        (tmp_path / "new").rename(folder)
        shutil.rmtree(tmp_path / "old")
    newest = reader.refreshed()
    assert newest.facts.generation == reader.facts.generation == 1
    assert len(newest) == 30 and newest.refreshed() is newest
    assert whole_states.whole(newest)[1] == content(folder)[1]
    assert whole_states.whole(reader) == before  # its own files are there as long as it is
    reader.close()
    newest.close()


def test_a_copy_that_was_restored_and_changed_is_another_state(tmp_path):
    """Its identity and generation are those of what a reader has, its history is not."""
    folder, backup = tmp_path / "index", tmp_path / "backup"
    make(folder)
    shutil.copytree(folder, backup)

    def corrected(by):
        with Writer(folder) as writer:
            writer.update([by], encode, ids=["r7"])
        return Index.open(folder)

    reader = corrected("mistaken")
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    fresh, newest = corrected("right"), reader.refreshed()
    for key in ("identity", "generation", "rows", "dead"):
        assert getattr(newest.facts, key) == getattr(reader.facts, key)
    assert whole_states.whole(newest) == whole_states.whole(fresh)
    assert newest.refreshed() is newest
    for index in (reader, fresh, newest):
        index.close()


@pytest.mark.parametrize("exchange", [True, False])
def test_readers_meet_an_index_at_every_moment_of_its_replacement(tmp_path, monkeypatch, exchange):
    """Without an exchange they wait between the two renames, and undo a first one."""
    folder = tmp_path / "index"
    made = [Index.build(MODELS["one"], [text(n, name) for n in range(60)]) for name in "ab"]
    made[0].save(folder)
    whole = [[row.text for row in one.every()] for one in made]
    if not exchange:
        monkeypatch.setattr("contrasent.files._exchange", lambda one, other: False)
        rename = Path.rename
        slow = lambda self, other: (rename(self, other), time.sleep(0.005))  # noqa: E731
        monkeypatch.setattr(Path, "rename", slow)

    def replace():
        for turn in range(2000):
            for one in made:
                one.save(folder, overwrite=True)
            if turn >= 20 and min(seen) > 2:
                break

    seen, reader = [0, 0], Index.open(folder)
    other = threading.Thread(target=replace)
    other.start()
    while other.is_alive():
        opened, reader = Index(Store.open(folder, verify=False)), reader.refreshed()
        for one in (opened, reader):
            (vector,) = one.query_vectors([text(3, "a")], MODELS["one"])
            assert [row.text for row in one.every()] in whole
            (hit,) = one.search([text(3, "a")], vectors=vector[None], k=1)[0]
            assert hit.text in whole[0] + whole[1]
        seen[whole.index([row.text for row in opened.every()])] += 1
        opened.close()
    other.join()
    assert min(seen) > 2, seen
    if not exchange:
        folder.rename(tmp_path / ".index.contrasent-old")
        assert [row.text for row in Index.open(folder).every()] == whole[1]
        folder.rename(tmp_path / ".index.contrasent-old")
        assert len(reader.refreshed()) == 60
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_opening_waits_for_who_is_between_the_two_renames_of_a_replacement(tmp_path, monkeypatch):
    folder, new, waits = tmp_path / "index", tmp_path / "new", []
    make(folder)
    other_index(new)
    expected = content(new)[1]
    folder.rename(tmp_path / ".index.contrasent-old")

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            new.rename(folder)

    clock = SimpleNamespace(monotonic=lambda: sum(waits), sleep=sleep)
    monkeypatch.setattr("contrasent.files.time", clock)
    with closing(open_index(folder)) as index:
        assert {row.id: row.text for row in index.every()}.keys() == expected.keys()
    assert len(waits) == 3


def test_a_writer_whose_index_was_replaced_says_so(tmp_path):
    folder = tmp_path / "index"
    make(folder)
    with pytest.raises(OutputError, match="was replaced or removed"), Writer(folder) as writer:
        writer.add([text(1)], encode, ids=["lost"])
        folder.rename(tmp_path / "old")
        other_index(folder)
    assert len(content(folder)[1]) == 30
    assert len(content(tmp_path / "old")[1]) == 280


@pytest.fixture
def not_ours(monkeypatch):
    """Folders of indexes look as if another user owned them."""
    monkeypatch.setattr(folder_.os, "access", lambda *_, **__: False)


def test_who_may_not_write_reads_one_state(tmp_path, not_ours):
    folder, names = tmp_path / "index", [*map(str, range(200))]
    texts = [text(n) for n in range(200)]
    make(folder)
    with closing(Index.open(folder)) as index:
        before = [row.text for row in index.every()]
        for turn in range(3):
            with Writer(folder) as writer:
                writer.update([f"{one} {turn}" for one in texts], encode, ids=names)
            assert not (folder / f"{DATABASE}-wal").exists()
            index.store.connection.execute("PRAGMA shrink_memory")
            assert [row.text for row in index.every()] == before
        assert len(index.refreshed()) == len(before) + 200


@pytest.mark.parametrize("times", [1, 99])
def test_a_change_while_it_is_opened_without_a_lock(tmp_path, not_ours, monkeypatch, times):
    folder, turns, verify = tmp_path / "index", iter(range(times)), Store.verify_database
    make(folder)

    def changed(store):
        verify(store)
        if (turn := next(turns, None)) is not None:
            monkeypatch.setattr(Store, "verify_database", verify)  # of the writer
            with Writer(folder) as writer:
                writer.update([f"changed {turn}"], encode, ids=["new"])
            monkeypatch.setattr(Store, "verify_database", changed)

    monkeypatch.setattr(Store, "verify_database", changed)
    if times > 1:
        with pytest.raises(InputError, match="changed while it was read; open it again"):
            Index.open(folder)
        return
    with closing(Index.open(folder)) as index:
        assert "changed 0" in [row.text for row in index.every()]
