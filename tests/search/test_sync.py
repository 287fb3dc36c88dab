"""An index that follows a folder: whose rows go, and whose stay."""

import os
import unicodedata
import zipfile

import pytest
from whole_states import WordEncoder, encoder, synchronize

from commands import another_user
from contrasent.documents import folder as folder_
from contrasent.documents.archives import Reason, Skip
from contrasent.documents.folder import DocumentSource
from contrasent.documents.worker import FileReader
from contrasent.errors import OptionError
from contrasent.indexing.changes import remove_rows
from contrasent.indexing.contents import list_documents
from contrasent.indexing.following import compare, document_rows, sync_index
from contrasent.search.index import Index
from contrasent.search.opening import create
from contrasent.search.store import Facts
from contrasent.search.writer import Writer

encode = encoder()


@pytest.fixture
def notes(tmp_path):
    """A folder of notes, and an index of it."""
    folder = tmp_path / "notes"
    for name in ("a.md", "a.md#b.md", "kept/c.md", "kept/d.md", "kept.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"The note on {name} is short.\n")
    source = DocumentSource(folder)
    rows = document_rows(source, source.files, WordEncoder(encode).count_tokens, 64)
    facts = Facts(origin=source.origin.to_json(), model="m")
    create(tmp_path / "index", encode, rows, facts, documents=source.files)
    return folder, tmp_path / "index"


def follow(source, index):
    """The outcome, and the ids of the rows that are left."""
    source = source if isinstance(source, DocumentSource) else DocumentSource(source)
    return synchronize(index, source, encode), {row.id for row in Index.open(index).every()}


def test_only_rows_of_a_document_are_removed_by_its_name(notes, tmp_path):
    _, index = notes
    assert remove_rows(index, ["a.md"]) == (1, 4, ("a.md",))
    assert "a.md#b.md#1" in {row.id for row in Index.open(index).every()}
    ids = ["issue#1", "issue#2", "t.xlsx#May#1#1", "t.xlsx#May#2#1", "t.xlsx#June#1#1"]
    about = [None, None, *({"document": name[:-2]} for name in ids[2:])]
    Index.build(encode, ids, ids=ids, metadata=about).save(tmp_path / "table")
    with Writer(tmp_path / "table") as writer:
        writer.put_files({"t.xlsx": {"rows": 3}})
    with pytest.raises(OptionError, match="'issue': is neither a row nor a document"):
        remove_rows(tmp_path / "table", ["issue"])
    with pytest.raises(OptionError, match="ids 'issue#1': is one string"):
        remove_rows(tmp_path / "table", "issue#1")
    assert remove_rows(tmp_path / "table", iter(["issue#1"])) == (1, 4, ())
    assert remove_rows(tmp_path / "table", ["t.xlsx#May", "issue#2"])[:2] == (3, 1)
    assert remove_rows(tmp_path / "table", ["t.xlsx"])[:2] == (1, 0)


def test_documents_are_listed_and_removed_by_a_name_in_either_form_of_unicode(tmp_path):
    forms = [unicodedata.normalize(form, "Übersicht.md") for form in ("NFC", "NFD")]
    for at, (typed, stored) in enumerate((forms, forms[::-1])):
        ids, index = [f"{stored}#1", "b.md#1"], tmp_path / str(at)
        about = [{"document": name} for name in (stored, "b.md")]
        Index.build(encode, ["It is open.", "Salt."], ids=ids, metadata=about).save(index)
        assert list_documents(index, f"{typed[:-3]}*") == [{"document": stored, "rows": 1}]
        assert remove_rows(index, [typed]) == (1, 1, ())
    both = tmp_path / "both"
    Index.build(encode, forms, ids=forms).save(both)
    assert (
        remove_rows(both, forms[1:]) == (1, 1, ())
        and [row.id for row in Index.open(both).every()] == forms[:1]
    )


def test_a_file_whose_rows_were_replaced_by_hand_is_read_again(notes):
    """A file whose name begins with its name keeps its rows."""
    folder, index = notes
    with Writer(index) as writer:  # as by --upsert, without metadata
        writer.update(["A corrected note.", "Another."], encode, ids=["a.md#1", "kept.md#1"])
    (folder / "a.md").write_text("The kettle is on the stove.\n")
    (folder / "kept.md").unlink()
    outcome, ids = follow(folder, index)
    assert (outcome.changed, outcome.deleted) == (1, 1)
    assert ids == {"a.md#1", "a.md#b.md#1", "kept/c.md#1", "kept/d.md#1"}


def test_rows_that_were_removed_of_a_large_file_stay_away_when_its_time_changes(notes, monkeypatch):
    folder, index = notes
    monkeypatch.setattr(folder_, "LARGEST", 50)
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f'{{"text": "Row {n} of a long table."}}\n' for n in range(5)))
    assert len(follow(folder, index)[1]) == 10
    assert remove_rows(index, ["rows.jsonl#2#1"]).files == ("rows.jsonl",)
    os.utime(rows, (1, 1))
    outcome, ids = follow(folder, index)
    assert (outcome.changed, outcome.removed, len(ids)) == (0, 1, 9)
    rows.write_text(rows.read_text().replace("long", "tall"))
    os.utime(rows, (1, 1))
    (changed,) = compare(Index.open(index).store, DocumentSource(folder), checksum=True).changed
    assert changed.name == "rows.jsonl"
    os.utime(rows, (2, 2))
    assert len(follow(folder, index)[1]) == 10


def test_what_changes_nothing_waits_for_no_writer(notes):
    _, index = notes
    with Writer(index):
        assert sync_index(index).unchanged == 5


def test_a_file_that_is_written_while_it_is_read_is_read_again(notes):
    folder, index = notes

    class Late(DocumentSource):
        def listed(self):
            found = super().listed()
            (folder / "a.md").write_text("The kettle is on the stove.")
            return found

    (folder / "a.md").write_text("")  # as a program does that truncates a file to write it
    assert "a.md#1" not in follow(Late(folder), index)[1]
    assert "a.md#1" in follow(folder, index)[1]
    assert follow(folder, index)[0].unchanged == 5


@pytest.mark.parametrize("reason", [Reason.TIMED_OUT, Reason.ENDED, Reason.MEMORY])
def test_a_file_that_its_reader_fails_on_today_keeps_its_rows(notes, reason):
    folder, index = notes

    class Failing(FileReader):
        def read(self, entry):
            raise Skip(reason)

    (folder / "a.md").write_text("The kettle is on the stove.")
    source = DocumentSource(folder)
    source.reader = Failing
    before = Index.open(index).facts
    outcome, ids = follow(source, index)
    assert (outcome.deleted, "a.md#1" in ids) == (0, True)
    assert Index.open(index).facts == before  # servers need not open it again
    assert follow(folder, index)[0].changed == 1


def test_a_table_whose_end_fails_each_time_is_written_once(notes):
    folder, index = notes

    class Failing(FileReader):
        def read(self, entry):
            for found in super().read(entry):
                yield found
                if found[0] == "document":
                    raise Skip(Reason.MEMORY)

    source = DocumentSource(folder)
    source.reader = Failing
    (folder / "t.csv").write_text("id,text\n1,A short note.\n2,Another note.\n")
    assert follow(source, index)[0].added == 1
    before = Index.open(index).facts
    assert (before.rows, follow(source, index)[0].changed) == (6, 1)
    assert Index.open(index).facts == before
    assert follow(folder, index)[0].rows == 7


def test_a_folder_or_zip_that_cannot_be_read_now_keeps_its_rows(notes, tmp_path):
    folder, index = notes
    with zipfile.ZipFile(folder / "z.zip", "w") as archive:
        archive.writestr("e.md", "The note in the archive is short.\n")
    assert "z.zip/e.md#1" in follow(folder, index)[1]
    (folder / "a.md").unlink()
    (folder / "kept").chmod(0)
    (folder / "z.zip").chmod(0)
    for path in (index, *index.iterdir()):
        path.chmod(0o777)
    with another_user(tmp_path):  # chmod does not stop root
        outcome, ids = follow(folder, index)
    (folder / "kept").chmod(0o755)
    assert outcome.deleted == 1
    assert ids == {"a.md#b.md#1", "kept/c.md#1", "kept/d.md#1", "kept.md#1", "z.zip/e.md#1"}
    (folder / "kept" / "c.md").unlink()
    (folder / "z.zip").write_bytes(b"broken")
    assert follow(folder, index)[1] == {"a.md#b.md#1", "kept/d.md#1", "kept.md#1"}
