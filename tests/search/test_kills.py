"""A writer killed at any moment leaves the state before its change or the one after, whole."""

import json
import random
import shutil
import time

import pytest
from whole_states import CHANGES, MODELS, Changer, add_documents, build, content, make

from contrasent.errors import UserError
from contrasent.search.doctor import examine
from contrasent.search.index import Index
from contrasent.search.store import Facts
from contrasent.search.writer import Writer

FILES = {"index.db", "index.db-wal", "index.db-shm", "index.sum", ".lock"}


@pytest.fixture(scope="module")
def changer():
    with Changer() as made:
        yield made


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "index"
    make(folder)
    add_documents(folder)
    return folder


class Case:
    """A change, its index before it, and both states."""

    def __init__(self, name, base, place, changer):
        self.name, self.base, self.place, self.changer = name, base, place, changer
        self.number = 0
        folder = self.fresh()
        self.before = content(folder)
        assert changer.change(name, folder) == 0
        self.after = content(folder)
        if name == "compact":
            index = Index.open(folder)
            assert index.facts.dead == 0 and self.after == self.before
            index.close()
        else:
            assert self.after != self.before

    def seconds(self):
        """The time that the change takes."""
        folder, start = self.fresh(), time.monotonic()
        assert self.changer.change(self.name, folder) == 0
        return time.monotonic() - start

    def lines(self):
        """The lines that the change reaches, as (file, number) in their order."""
        record = self.place / "lines.json"
        assert self.changer.change(self.name, self.fresh(), record=str(record)) == 0
        return json.loads(record.read_text())

    def fresh(self):
        self.number += 1
        folder = self.place / str(self.number)
        if self.name == "build":
            folder.mkdir()
        else:
            shutil.copytree(self.base, folder)
        return folder

    def kill(self, **when):
        """Whether the change was killed before it ended."""
        folder = self.fresh()
        status = self.changer.change(self.name, folder, **when)
        assert status in (0, -9)
        found = content(folder)
        assert found in (self.before, self.after)
        if found is not None:
            assert [some for some in examine(folder) if not some.good] == []
        with Writer(folder, new=Facts(model="one") if found is None else None) as writer:
            encode = MODELS[found[0] if found else "one"]
            writer.add(["the next writer was here"], encode, ids=["next"])
        model, rows, near = found or ("one", {}, 0)
        assert content(folder) == (model, {**rows, "next": "the next writer was here"}, near)
        index = Index.open(folder)
        assert {path.name for path in folder.iterdir()} <= FILES | {index.facts.vectors}
        index.close()
        shutil.rmtree(folder)
        return status != 0


@pytest.fixture
def case(request, base, tmp_path, changer):
    return Case(request.param, base, tmp_path, changer)


each = pytest.mark.parametrize("case", CHANGES, indirect=True)


@pytest.mark.slow
@each
def test_moments(case):
    draw, most = random.Random(case.name), min(case.seconds() for _ in range(3))
    killed = [case.kill(seconds=draw.uniform(0, most)) for _ in range(8)]
    assert any(killed) or any(case.kill(seconds=0.0) for _ in range(50))


@pytest.mark.parametrize(("first", "step"), [(5, 23), pytest.param(16, 23, marks=pytest.mark.slow)])
@each
def test_lines(case, first, step):
    lines = case.lines()
    assert len(lines) > 200
    assert all([case.kill(line=line) for line in lines[first::step]])


def test_a_database_that_sqlite_had_begun(tmp_path):
    """A kill while SQLite makes the file leaves its journal, which only a writer may roll back."""
    for name in ("index.db", "index.db-journal"):
        (tmp_path / name).write_bytes(b"")
    assert content(tmp_path) is None
    with pytest.raises(UserError, match="unfinished"), Writer(tmp_path):
        pass
    build(tmp_path)
    assert len(content(tmp_path)[1]) == 200 and not (tmp_path / "index.db-journal").exists()
