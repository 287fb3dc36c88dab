"""A damaged file of an index: the answer is the right one, or one line says what is wrong."""

import os
import random
import re
import shutil
import sqlite3
from contextlib import closing, nullcontext, suppress

import numpy as np
import pytest
from whole_states import MODELS, QUERIES, make, text

from commands import another_user, invoke, mounted
from contrasent.errors import InputError, OutputError, UserError
from contrasent.search import store
from contrasent.search.doctor import examine
from contrasent.search.folder import wrap_sqlite_errors
from contrasent.search.index import Index
from contrasent.search.store import Facts, Store
from contrasent.search.writer import Writer

DAMAGES = 20
encode = MODELS["one"]
FOLDERS = ("whole", "logged")
FILES = ["index.db", "index.sum", "vectors-000001.f32", "codes-000001.u64"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An index with codes, deleted rows and documents; one whose last change is in its log."""
    place = tmp_path_factory.mktemp("damage")
    make(place / "whole")
    with Writer(place / "whole") as writer:
        writer.coded_from = 100
        writer.put_files({"a.txt": {"rows": 7}, "b.txt": {"rows": 3}})
    shutil.copytree(place / "whole", place / "busy")
    reader = Index.open(place / "busy")
    with Writer(place / "busy") as writer:
        writer.add([text(n, "added") for n in range(5)], encode, metadata=[{"n": 1}] * 5)
        writer.delete(["r7"])
    logged = place / "logged"
    shutil.copytree(place / "busy", logged, ignore=shutil.ignore_patterns("*-shm"))
    reader.close()
    (logged / "index.db-wal").stat()
    return place


ADDED = {"n": {"$exists": True}}


def answers(folder):
    """All that is found: by words and vectors, by vectors, in some rows, and row by row."""
    index = Index.open(folder)
    index.exact_up_to = 0  # a search by codes
    try:
        given = encode(QUERIES)
        return [
            index.search(QUERIES, encode=encode, k=8),
            index.search(given, k=8),
            index.search(given, k=8, all_rows=True),
            index.search(QUERIES, encode=encode, k=8, where=ADDED),
            [(row.id, row.text, row.metadata) for row in index.every()],
            index.store.files(),
            index.facts.generation,
        ]
    finally:
        index.close()


def flipped(data, draw):
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def truncated(data, draw):
    return data[: draw.randrange(len(data))]


@pytest.mark.parametrize("damage", [flipped, truncated])
@pytest.mark.parametrize(
    ("state", "name"),
    [("whole", name) for name in FILES] + [("logged", n) for n in [*FILES, "index.db-wal"]],
)
def test_an_answer_or_one_line(made, tmp_path, state, name, damage):
    right = answers(copied(made / state, tmp_path / "right"))
    draw, rejected = random.Random(f"{state} {name} {damage.__name__}"), 0
    for number in range(DAMAGES):
        folder = copied(made / state, tmp_path / str(number))
        path = folder / name
        path.write_bytes(damage(path.read_bytes(), draw))
        try:
            assert answers(folder) == right, f"another answer, damage {number}"
        except UserError as error:
            rejected += 1
            assert "\n" not in str(error) and str(folder) in str(error)
            if name != "index.sum":
                check_named(folder)
    assert rejected > DAMAGES // 4 or name == "index.sum"


def check_named(folder):
    try:
        findings = examine(folder)
    except UserError as error:  # not even a database
        assert "\n" not in str(error)
        return
    assert not all(finding.good for finding in findings)
    assert not any("\n" in finding.message for finding in findings)


def copied(folder, target):
    shutil.copytree(folder, target)
    return target


@pytest.mark.parametrize(("name", "read"), [(FILES[2], Index.open), (FILES[3], answers)])
def test_a_file_that_is_too_short_is_named_with_its_bytes(made, tmp_path, name, read):
    path = copied(made / "whole", tmp_path / "index") / name
    size = path.stat().st_size
    os.truncate(path, size - 1)
    said = f"is damaged ({name} has {size - 1:,} bytes instead of {size:,}); 'contrasent doctor "
    with pytest.raises(InputError, match=re.escape(said)):
        read(path.parent)


def test_the_log_is_part_of_what_is_read(made, tmp_path):
    whole, logged = (answers(copied(made / name, tmp_path / name)) for name in FOLDERS)
    assert len(logged[4]) == len(whole[4]) + 4 and logged[6] == whole[6] + 1


@pytest.mark.parametrize("state", FOLDERS)
@pytest.mark.parametrize("gone", ["index.sum", "index.db-wal", "vectors-000001.f32"])
def test_a_missing_file(made, tmp_path, state, gone):
    folder = copied(made / state, tmp_path / "index")
    right = answers(copied(made / state, tmp_path / "right"))
    (folder / gone).unlink(missing_ok=True)
    try:
        assert answers(folder) == right
    except UserError as error:
        assert "is damaged" in str(error)
    else:
        assert gone == "index.sum" or (gone, state) == ("index.db-wal", "whole")


def test_doctor_reads_everything(made, tmp_path):
    """What SQLite finds sound may still be wrong; without a checksum of the whole it is found."""
    changes = [
        "UPDATE rows SET text = 'another' WHERE row = 5",
        "UPDATE rows SET metadata = '{}' WHERE row = 5",
        "UPDATE rows SET id = 'another' WHERE row = 5",
        "DELETE FROM rows WHERE row = 5",
        "UPDATE dead SET row = 5 WHERE row = 45",
        "DELETE FROM dead WHERE row = 45",
        "UPDATE postings SET term = 'another' WHERE term = 'ledger'",
        "DELETE FROM postings WHERE term = 'ledger'",
        "UPDATE postings SET counts = 7 WHERE term = 'ledger'",
        "UPDATE blocks SET lengths = zeroblob(800) WHERE first = 0",
        "DELETE FROM blocks WHERE first = 0",
        "UPDATE facts SET json = replace(json, 'cosine', 'dot')",
        "UPDATE documents SET facts = 'x'",
        "DELETE FROM learned WHERE name = 'matrix'",
        "UPDATE learned SET shape = '[300, 4]' WHERE name = 'neighbors'",
        "UPDATE learned SET data = replace(data, 'boats', 'goats') WHERE name = 'documents'",
    ]
    for number, change in enumerate(changes):
        folder = copied(made / "whole", tmp_path / str(number))
        (folder / "index.sum").unlink()
        answers(folder)
        connection = sqlite3.connect(folder / "index.db")
        assert connection.execute(change).rowcount > 0
        connection.commit()
        connection.close()
        assert not all(finding.good for finding in examine(folder)), change


def test_doctor_names_what_is_damaged_and_counts_what_is_left(made, tmp_path):
    folder = copied(made / "whole", tmp_path / "index")
    assert [(f.check, f.good) for f in examine(folder)] == [("content", True)]
    assert examine(folder)[0].message == "280 of 280 rows are intact"
    vectors = np.memmap(folder / "vectors-000001.f32", dtype="<f4", mode="r+").reshape(-1, 8)
    vectors[[3, 250]] += 1  # of rows that are there
    vectors[45] += 1  # of one that was deleted
    vectors.flush()
    connection = sqlite3.connect(folder / "index.db")
    connection.execute("UPDATE rows SET text = 'another' WHERE row = 9")
    connection.commit()
    connection.close()
    found = {finding.check: finding.message for finding in examine(folder)}
    assert found["rows"] == "3 are damaged: 3, 9, 250"
    assert found["content"] == "277 of 280 rows are intact"
    assert "index.db" in found["database"] and "vectors-000001.f32" in found["vectors"]
    printed = invoke("doctor", folder)
    assert printed.exit_code == 1
    assert "WRONG  rows: 3 are damaged: 3, 9, 250\n" in printed.stdout
    assert "WRONG  content: 277 of 280 rows are intact\n" in printed.stdout


@pytest.mark.parametrize("change", ["rewrite", "save"])
def test_damage_gets_no_new_checksum(made, tmp_path, monkeypatch, change):
    """Files that are too large to be verified whole when they are opened."""
    index = copied(made / "whole", tmp_path / "index")
    monkeypatch.setattr(store, "VERIFIED", 0)
    vectors = np.memmap(index / "vectors-000001.f32", dtype="<f4", mode="r+").reshape(-1, 8)
    vectors[3] += 1
    vectors.flush()
    damage = pytest.raises(InputError, match="the vector of row 3")
    if change == "save":
        with damage, closing(Index.open(index)) as opened:
            opened.save(tmp_path / "copy")
    else:
        with pytest.raises(OutputError, match="a change failed"), Writer(index) as writer, damage:
            writer.rewrite()
    assert not (tmp_path / "copy").exists()
    with Writer(index) as writer:  # the rest is kept without it
        writer.delete_rows(np.array([3]))
        writer.rewrite()
    assert all(finding.good for finding in examine(index))


@pytest.mark.parametrize(("said", "remedy"), [
    ("database or disk is full", "free some space"), ("disk I/O error", "free some space"),
    ("attempt to write a readonly database", "choose another target, or change its permissions"),
])  # fmt: skip
def test_what_sqlite_cannot_write_is_no_full_disk_unless_it_is(tmp_path, said, remedy):
    match = rf"cannot write \({said}\); {remedy}"
    with pytest.raises(OutputError, match=match), wrap_sqlite_errors(tmp_path):
        raise sqlite3.OperationalError(said)


def test_a_folder_that_may_only_be_read(made, tmp_path):
    """Nothing is written; the log is read where somebody who may write has it open."""
    for state in FOLDERS:
        right = answers(copied(made / state, tmp_path / f"{state} right"))
        folder = copied(made / state, tmp_path / state)
        with closing(Index.open(folder)) if state == "logged" else nullcontext():
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            folder.chmod(0o555)  # for its owner too, who runs these tests unless that is root
            with another_user(tmp_path):
                assert answers(folder) == right
            folder.chmod(0o755)
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_full_disk_is_searched(made, tmp_path):
    right = answers(copied(made / "whole", tmp_path / "right"))
    with mounted(tmp_path / "disk", "size=4m") as disk:
        folder = copied(made / "whole", disk / "index")
        with suppress(OSError), (disk / "rest").open("wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        assert answers(folder) == right
        assert all(finding.good for finding in examine(folder))


def test_a_copy_is_in_memory_where_there_is_no_place_for_temporary_files(made, monkeypatch):
    connect = sqlite3.connect

    def full(place, **given):
        connection = connect(place, **given)
        connection.execute("PRAGMA max_page_count = 1") if place == "" else None
        return connection

    with closing(Index.open(made / "whole")) as index:
        right = index.search(QUERIES, encode=encode, k=8)
        monkeypatch.setattr(sqlite3, "connect", full)
        index.store.detach()
        assert index.search(QUERIES, encode=encode, k=8) == right


def test_an_index_in_use_is_not_a_damaged_one(made, monkeypatch):
    def locked(*_, **__):
        raise OutputError("another process is writing to this index")

    monkeypatch.setattr(Store, "open", locked)
    with pytest.raises(OutputError, match="another process"):
        examine(made / "whole")


def test_a_metric_of_dot(tmp_path):
    """Vectors are verified as they were given."""
    with Writer(tmp_path / "x", new=Facts(model="one", metric="dot")) as writer:
        writer.add(["a", "b"], 7 * encode(["a", "b"]))
    assert examine(tmp_path / "x")[0].good


@pytest.mark.parametrize("name", [*FILES, "index.db-wal", "."])
def test_what_cannot_be_read_is_no_damage(made, tmp_path, name):
    state = "logged" if name.endswith("-wal") else "whole"
    folder = copied(made / state, tmp_path / "index")
    path = folder / name
    path.chmod(0)
    with another_user(tmp_path):
        for read in (answers, examine):
            with pytest.raises(UserError, match=r"cannot be read \(Permission denied\)") as caught:
                for finding in read(folder):
                    if not getattr(finding, "good", True):
                        raise UserError(finding.message)
            assert path.name in str(caught.value)
    path.chmod(0o755)


def test_a_log_in_a_folder_that_cannot_be_written(made, tmp_path):
    folder = copied(made / "logged", tmp_path / "index")
    with another_user(tmp_path), pytest.raises(UserError, match="needs a writable folder"):
        Index.open(folder)
