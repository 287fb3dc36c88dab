"""Indexes made and changed from Python, which are those that the command makes."""

import os
import subprocess
import sys

import numpy as np
import pytest
from index_states import assert_same, logged, state

from commands import run
from contrasent import (
    UserError,
    add_rows,
    change_model,
    index_folder,
    remove_rows,
    search_index,
    sync_index,
)
from contrasent.errors import InputError, OptionError, OutputError
from contrasent.indexing import remaining
from contrasent.search.index import Index
from contrasent.search.learned import Learned
from contrasent.search.ranking import Ranker
from contrasent.search.writer import Writer

NOTES = {
    "boats.md": "# Boats\n\nThe ferry leaves at noon.\n\nDogs travel for free.\n",
    "kitchen/soup.txt": "Boil the water first.\n\nThen add the carrots.\n",
    "faq.csv": "id,question,answer\n7,Who pays?,The borrower pays for a broken drill.\n",
}


@pytest.fixture
def notes(tmp_path):
    for name, text in NOTES.items():
        path = tmp_path / "notes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "notes"


@pytest.mark.parametrize("source", ["", "boats.md", "faq.csv"])
def test_python_and_the_command_make_the_same_index(notes, models, tmp_path, source):
    path, options = notes / source, ["--max-seq-length", 24, "--batch-size", 2]
    given = {"model": models / "mean", "max_seq_length": 24, "batch_size": 2}
    if source == "faq.csv":
        options += ["--id", "id", "--column", "answer", "--metadata", "*"]
        given |= {"column": "answer", "id_column": "id", "metadata": ["*"]}
    run("index", path, "-o", tmp_path / "a", "--model", models / "mean", *options)
    made = index_folder(path, tmp_path / "b", **given)
    made.index.close()
    assert_same(tmp_path / "a", state(tmp_path / "b"))
    assert made.model == str(models / "mean")


@pytest.mark.parametrize("form", ["documents", "lines"])
@pytest.mark.parametrize("first", ["arabic", "english"])
def test_the_language_is_that_of_all_texts_and_not_of_the_first(
    models, tmp_path, monkeypatch, form, first
):
    monkeypatch.setattr("contrasent.search.words.SAMPLE", 10)
    texts = {
        "arabic": [f"إصلاح السقف يكلف الكثير من المال {n}" for n in range(30)],
        "english": [
            f"The repair of the roof costs a lot, and it takes {n} weeks" for n in range(50)
        ],
    }
    for name, lines in sorted(texts.items(), key=lambda item: item[0] != first):
        if form == "lines":
            with (tmp_path / "notes.txt").open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
        else:
            (tmp_path / "notes" / str(name != first)).mkdir(parents=True)
            table = tmp_path / "notes" / str(name != first) / "rows.csv"
            table.write_text("\n".join(["text", *lines]), "utf-8")
    source = tmp_path / ("notes.txt" if form == "lines" else "notes")
    index = index_folder(source, tmp_path / "i", model=models / "mean").index
    assert len(index) == 80 and index.facts.language == "english"
    assert index.count_rows(["repair", "cost", "costs"]) == {"repair": 50, "cost": 50}


def test_an_index_follows_its_documents_from_python(notes, models, tmp_path):
    index_folder(notes, tmp_path / "i", model=models / "mean")
    assert str(sync_index(tmp_path / "i")) == "0 added, 0 changed, 0 deleted, 3 unchanged"
    (notes / "boats.md").unlink()
    (notes / "roses.md").write_text("Roses want sun and a deep soil.\n")
    done = sync_index(tmp_path / "i")
    assert (done.added, done.changed, done.deleted, done.unchanged, done.rows) == (1, 0, 1, 2, 3)


def test_rows_and_the_model_are_changed_from_python(notes, models, tmp_path, monkeypatch):
    table, index = tmp_path / "more.csv", tmp_path / "i"
    (notes / "faq.csv").write_text("id,answer\n7,The borrower pays.\n8,\n9, \n")
    settings = {"model": models / "mean", "column": "answer", "id_column": "id"}
    first = index_folder(notes / "faq.csv", index, **settings)
    assert first.notes[-1] == f"2 rows skipped: no text (first: {notes / 'faq.csv'}:3)"
    rows = "8,The bus stops at the gate.,1999\n7,Nobody pays.,2004\n6,,2004\n"
    table.write_text(f"id,answer,year\n{rows}")
    given = {"column": "answer", "id_column": "id", "metadata": ["year"]}
    with pytest.raises(OptionError, match="is in the index already"):
        add_rows(index, table, **given)
    assert len(Index.open(index)) == 1
    made = add_rows(index, table, update=True, metadata=["year"])  # columns as they were
    assert made.notes == (f"1 rows skipped: no text (first: {table}:4)",)
    assert {row.id: row.text for row in made.index.every()} == {
        "7": "Nobody pays.", "8": "The bus stops at the gate.",
    }  # fmt: skip
    every = {"model": models / "mean", "id_column": "id", "metadata": ["*"]}
    index_folder(table, tmp_path / "every", **every)
    narrow = notes / "faq.csv"
    with pytest.raises(InputError, match=r"faq.csv: has no column 'year', which the index keeps"):
        add_rows(tmp_path / "every", narrow, update=True)
    add_rows(tmp_path / "every", narrow, update=True, column="answer", metadata=["id"])
    first = tmp_path / "first"
    index_folder(table, first, model=models / "mean", column=0).index.close()
    assert [row.text for row in add_rows(first, table).index.every()] == ["8", "7", "6"] * 2
    index_folder(notes / "boats.md", tmp_path / "plain", model=models / "mean")
    with pytest.raises(OptionError, match="needs --id"):
        add_rows(tmp_path / "plain", table, update=True)
    with pytest.raises(InputError, match="is a folder, and only rows of tables can be added"):
        add_rows(tmp_path / "plain", notes)
    lengths, quick = [], remaining.quick  # as a new index is encoded
    monkeypatch.setattr(remaining, "quick", lambda *of: (lengths.append(of[1]), quick(*of))[1])
    assert change_model(index, models / "cls").index.model != made.index.model
    assert lengths == [len("Nobody pays.The bus stops at the gate.")]
    with Writer(index) as writer:
        learned = Learned(np.eye(writer.facts.dimension, dtype=np.float32))
        writer.set(ranker=Ranker(map_share=1.0), learned=learned)
    assert "'contrasent adapt OUT --update' learns" in change_model(index, models / "cls").notes[-1]
    ((hit,),) = search_index(index, "where does the bus stop?", k=1, where={"year": "1999"})
    assert hit.id == "8"
    assert remove_rows(index, where={"year": "1999"}) == (1, 1, ())
    assert remove_rows(index, ["7"]) == (1, 0, ())


def test_rows_that_are_added_leave_no_log(notes, models, tmp_path):
    table, index = notes / "faq.csv", tmp_path / "i"
    index_folder(table, index, model=models / "mean", column="answer").index.close()
    add_rows(index, table).index.close()
    assert logged(index) == 0


def test_an_index_opens_its_model_in_a_program_of_its_own(notes, models, tmp_path):
    index_folder(notes / "boats.md", tmp_path / "i", model=models / "mean")
    code = """import sys
from contrasent.indexing.models import open_index
print(open_index(sys.argv[1]).search("a ferry", k=1)[0][0].metadata["document"])"""
    command = [sys.executable, "-c", code, tmp_path / "i"]
    assert subprocess.check_output(command, text=True) == "boats.md\n"


def test_documents_may_be_in_a_folder_of_any_name(notes, models, tmp_path):
    place = notes.rename(os.fsdecode(os.fsencode(notes) + b"\xe9"))
    index_folder(place, tmp_path / "i", model=models / "mean").index.close()
    assert str(sync_index(tmp_path / "i")) == "0 added, 0 changed, 0 deleted, 3 unchanged"
    assert Index.open(tmp_path / "i").facts.origin["path"] == str(place)


def test_what_cannot_be_indexed_is_one_line(notes, models, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    for given, match in (
        ({"output": tmp_path / "full"}, "exists"),
        ({"output": tmp_path / "full", "overwrite": True}, "not an index"),
        ({"metric": "cosin"}, "did you mean 'cosine'"),
        ({"source": tmp_path / "nowhere"}, "no such"),
        ({"model": tmp_path / "nowhere"}, "no such"),
        ({"id_column": "x"}, r"--id, --column and --metadata read a folder as tables; omit them"),
        ({"column": "answr", "source": notes / "faq.csv"}, "did you mean 'answer'"),
    ):
        with pytest.raises(UserError, match=match):
            index_folder(
                **{"source": notes, "output": tmp_path / "i", "model": models / "mean"} | given
            )
    with pytest.raises(OutputError, match="is in Milvus"):
        (tmp_path / "full" / "milvus.json").write_text("{}")
        change_model(tmp_path / "full", models / "mean")
    assert not (tmp_path / "i").exists()
