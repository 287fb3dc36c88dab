"""contrasent index of a folder of documents, and keeping the index true to it."""

import zipfile

import pytest

from commands import invoke, printed, run
from contrasent.search.index import Index

NOTES = {
    "trains.md": "# Journeys\n\n## Tickets\n\nA ticket to Berlin costs forty euros.\n",
    "kitchen/soup.txt": "Boil the water first.\n\nThen add the carrots and some salt.\n",
    "kitchen/bread.html": "<h1>Bread</h1><p>The dough rests for two hours.</p>",
    "garden.rst": "Garden\n======\n\nRoses want sun and a deep soil.\n",
    "faq.csv": "id,question,answer\n7,Who pays?,The borrower pays for a broken drill.\n8,,\n",
}


@pytest.fixture
def folder(tmp_path):
    """Notes of several formats, and what is no document."""
    pytest.importorskip("kreuzberg")
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


def test_a_folder_of_documents(folder, tmp_path):
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
    known = index.store.documents()
    assert known["trains.md"].keys() == {"size", "modified", "digest", "rows"}
    assert (known["trains.md"]["rows"], known["faq.csv"]["rows"]) == (1, 1)
    assert known["broken.pdf"]["skipped"] == "broken"
    lines = result.stderr.splitlines()
    for reason in ("empty: empty.md", "broken: broken.pdf", "secret: passwords.txt"):
        assert f"skipped 1, {reason}" in lines
    assert {"skipped 1, hidden: .hidden.md", "skipped 1, unknown type: picture.png"} < {*lines}
    assert "skipped 1, row without text: faq.csv" in lines
    assert "trains.md" in run("search", tmp_path / "s", "the price of a ticket", "-k", 1)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("kitchen/soup.txt", 1),
        ("trains.md", 1),
        ("old.zip", 1),
        ("faq.csv", 0),
        ("lines.txt", 3),
    ],
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


def test_all_that_is_skipped_is_in_the_json(folder, tmp_path):
    for number in range(8):
        (folder / f"empty-{number}.md").touch()
    facts = printed("index", folder, "-o", tmp_path / "s")
    skipped = facts["documents"]["skipped"]
    assert skipped["empty"]["count"] == len(skipped["empty"]["names"]) == 9
    assert facts["documents"]["documents"] == 6
