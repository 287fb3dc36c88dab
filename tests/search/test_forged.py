"""Indexes that strangers forged: the end is an answer or one line, and comes soon."""

import json
import shutil
import signal
from contextlib import closing
from dataclasses import asdict

import numpy as np
import pytest
from whole_states import MODELS

from contrasent.errors import UserError
from contrasent.indexing.contents import describe
from contrasent.search.answers import answers, path_of, place_of
from contrasent.search.doctor import examine
from contrasent.search.index import Index
from contrasent.search.store import Facts
from contrasent.search.writer import Writer
from forged_indexes import FORGERIES, forge

encode = MODELS["one"]
SECONDS = 20


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An index of notes with a deleted row and facts of files."""
    folder = tmp_path_factory.mktemp("made") / "index"
    with Writer(folder, new=Facts(model="m", origin={
        "kind": "documents", "path": "/notes", "root": "/notes", "columns": None,
        "max_file_text": 9,
    })) as writer:  # fmt: skip
        texts = [f"The kettle of row {n} is copper. It was sold." for n in range(12)]
        metadata = [{"document": f"note{n}.md", "headings": ["A"], "page": 1} for n in range(12)]
        writer.add(texts, encode, ids=[f"note{n}.md#1" for n in range(12)], metadata=metadata)
        writer.put_files(
            {f"note{n}.md": {"rows": 1, "size": 5, "modified": 7.5} for n in range(12)}
        )
    with Writer(folder) as writer:
        writer.delete(["note11.md#1"])
    return folder


def use(folder):
    """Everything that reads an index."""
    with closing(Index.open(folder)) as index:
        queries = ["copper kettle", "sold"]
        for by in (index.search, index.search_documents):
            hits = by(queries, vectors=encode(queries), k=20)
            json.dumps([[asdict(hit) for hit in some] for some in hits], allow_nan=False).encode()
        index.search(encode(queries), k=3, where={"page": {"$gte": 1}, "document": {"$ne": ""}})
        found = answers(queries, encode(queries), hits, encode, index.analyzer)
        for hit, answer in zip(hits[0], found[0], strict=True):
            path_of(hit, str(index.facts.origin.get("root"))), place_of(hit, answer.start)
            path_of(hit, str(folder))  # it exists, so that a name in it is looked up
        list(index.every())
        index.files()
    describe(folder)
    with Writer(folder) as writer:
        writer.delete(["note5.md#1"])
        writer.update(["A new row."], encode, ids=["note3.md#1"])


@pytest.mark.parametrize("name", FORGERIES)
def test_an_answer_or_one_line(made, tmp_path, name):
    folder = shutil.copytree(made, tmp_path / "index")
    forge(folder, name)

    def hang(*_):
        raise AssertionError("hangs")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            for read in (examine, use):
                try:
                    read(folder)
                except UserError as error:
                    assert len(str(error).splitlines()) == 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_the_forger_keeps_an_index_whole(made, tmp_path):
    """Damage is found by what is read, not by a checksum that was left as it was."""
    folder = shutil.copytree(made, tmp_path / "index")
    forge(folder, "text is ''")
    (hits,) = Index.open(folder).search(["kettle"], vectors=encode(["kettle"]), k=20)
    assert "" in [hit.text for hit in hits] and len(FORGERIES) >= 200


def test_facts_of_a_file_that_cannot_be_read_name_the_file(made, tmp_path):
    names = [name for name in FORGERIES if name.startswith("file facts ") and "{}" not in name]
    assert len(names) == 5
    for number, name in enumerate(names):
        folder = shutil.copytree(made, tmp_path / str(number))
        forge(folder, name)
        with closing(Index.open(folder)) as index, pytest.raises(UserError, match="the file 'x'"):
            index.files()
