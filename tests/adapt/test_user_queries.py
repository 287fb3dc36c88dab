"""Queries that users asked: formats, what is left out and counted, and what goes on."""

import json
import unicodedata

import pytest

from contrasent.adapt.user_queries import read_user_queries, too_few
from contrasent.errors import DataError, InputError

DOCUMENTS = [f"notes/page{n}.md" for n in range(50)]
MANY = [(f"how to mend pump {n}", f"page{n}") for n in range(45)]


def read(queries=None, collection=None, clicks=None, documents=DOCUMENTS, **options):
    said = []
    found, _ = read_user_queries(queries, collection, clicks, documents, said.append, **options)
    return found, said


def written(path, rows, columns=("query", "document", "gain")):
    """A table of rows, shorter ones without the last columns, in the format of the suffix."""
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=False))) for row in rows]
    else:
        width = max(len(row) for row in rows)
        mark = "," if path.suffix == ".csv" else "\t"
        cells = [columns[:width], *((*row, *[""] * (width - len(row))) for row in rows)]
        lines = [mark.join(map(str, row)) for row in cells]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.parametrize("before", ["/srv/hand book/", "../hand book/", ""])
def test_a_document_may_be_named_by_the_path_that_search_shows(tmp_path, monkeypatch, before):
    root = "/srv/hand book"
    monkeypatch.setattr("os.getcwd", lambda: "/srv/work")
    asked = written(tmp_path / "asked.csv", [("oil", f"{before}notes/page3.md")])
    assert read(asked, root=root) == ([("oil", {3: 1.0})], [])


def test_a_document_is_known_by_its_name_in_either_form_of_unicode(tmp_path):
    forms = [unicodedata.normalize(form, "Räume/Übersicht.md") for form in ("NFC", "NFD")]
    for typed, stored in (forms, forms[::-1]):
        asked = written(tmp_path / "asked.csv", [("when is it open", typed)])
        assert read(asked, documents=["b.md", stored]) == ([("when is it open", {1: 1.0})], [])


def test_what_cannot_be_used_yet_is_kept(tmp_path):
    asked = written(tmp_path / "asked.csv", [*MANY[:30], ("oil", "later.md", 2), ("oil", "page3")])
    found, rows = read_user_queries(asked, None, None, DOCUMENTS, list)
    assert too_few(found) and len(rows) == 32
    kept = tmp_path / "kept.jsonl"
    kept.write_text("\n".join(map(json.dumps, rows)))
    more = written(tmp_path / "more.csv", MANY[30:])
    found, rows = read_user_queries(more, None, None, [*DOCUMENTS, "later.md"], list, earlier=kept)
    assert dict(found)["oil"] == {50: 2.0, 3: 1.0} and len(found) == 46 and len(rows) == 47
    assert read_user_queries(None, None, None, ["another"], list, earlier=kept)[0] == []


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_formats_and_names_of_documents(tmp_path, form):
    rows = [*MANY, ("two answers", "page1.md", 3), ("two answers", "notes/page2.md", 1)]
    found, said = read(written(tmp_path / f"asked.{form}", rows))
    assert found == [
        *((query, {n: 1.0}) for n, (query, _) in enumerate(MANY)),
        ("two answers", {1: 3.0, 2: 1.0}),
    ]
    assert said == []


def test_several_files_are_put_together(tmp_path):
    one = written(tmp_path / "one.csv", MANY)
    two = written(tmp_path / "two.tsv", [("How to mend  PUMP 3", "page7"), ("oil", "page8")])
    found, said = read([one, two])
    assert dict(found)["how to mend pump 3"] == {3: 1.0, 7: 1.0}
    assert len(found) == 46 and said == []


def test_clicks_become_gains_that_saturate(tmp_path):
    rows = [*MANY, ("often", "page1", 9), ("often", "page2", 1), ("often", "page2", 2)]
    rows += [("always", "page3", 1_000_000)]
    log = written(tmp_path / "log.csv", rows, ("query", "document", "count"))
    asked = written(tmp_path / "asked.csv", [("often", "page2", 5)])
    found, said = read(clicks=log)
    gains = dict(found)
    assert gains["how to mend pump 0"] == {0: 1.0}
    assert gains["often"] == {1: 3.0, 2: 2.0}  # of nine clicks, and of one and two
    assert 3.9 < gains["always"][3] < 4.0
    assert said == []
    more = written(tmp_path / "more.csv", [("OFTEN", "page2", 6)], ("query", "document", "count"))
    assert dict(read(clicks=[log, more])[0])["often"] == {1: 3.0, 2: 3.0}  # three and six
    both, _ = read(asked, clicks=log)
    assert dict(both)["often"] == {1: 3.0, 2: 5.0}


def collection(folder, splits):
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"q{n}", "text": query} for n, (query, _) in enumerate(MANY)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for split, numbers in splits.items():
        lines = [f"q{n}\tpage{n}\t{gain}" for n, gain in numbers]
        head = "query-id\tcorpus-id\tscore"
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join([head, *lines]))
    return folder


def test_judged_collections(tmp_path):
    every = [(n, 1 + n % 2) for n in range(45)]
    found, said = read(collection=collection(tmp_path / "a", {"test": every}))
    assert found == [(query, {n: 1.0 + n % 2}) for n, (query, _) in enumerate(MANY)]
    assert said == []
    folder = collection(tmp_path / "b", {"train": every[:42], "test": every[42:]})
    found, said = read(collection=folder)
    assert len(found) == 42
    assert said == [f"{folder}: uses the splits train; test is reserved for evaluation"]
    (folder / "queries.jsonl").rename(folder / "queries.train.jsonl")
    (folder / "queries.jsonl").write_text('{"_id": "q44", "text": "of the test split"}\n')
    assert read(collection=folder) == (found, said)  # a file of queries for each split
    with pytest.raises(DataError, match=r"queries\.jsonl: no such file"):
        read(collection=tmp_path)


def test_rows_that_cannot_be_used_are_counted(tmp_path):
    path = tmp_path / "asked.jsonl"
    bad = [
        ("what is gone", "gone.md"),
        ("and this", "lost.md"),
        ("   ", "page1"),
        ("no answer", None),
        ("weighed", "page1", "nan"),
        ("heavy", "page1", "much"),
        ("judged wrong", "page1", 0),
        ("HOW to mend pump 1", "page1", 2),
    ]
    written(path, [*MANY, *bad])
    with path.open("a") as stream:
        stream.write("{broken\n")
    found, said = read(path)
    assert len(found) == 45
    assert dict(found)["how to mend pump 1"] == {1: 2.0}
    assert said == [
        f"{path}: 2 of 54 rows ignored: unknown document (line 46: 'gone.md')",
        f"{path}: 2 of 54 rows ignored: query missing (line 48)",
        f"{path}: 1 of 54 rows ignored: document missing (line 49)",
        f"{path}: 2 of 54 rows ignored: the gain is not a number (line 50: 'nan')",
        f"{path}: 1 of 54 rows ignored: the gain is not above 0 (line 52: 0)",
    ]


@pytest.mark.parametrize(
    ("queries", "documents", "why"),
    [
        (39, 39, "there are 39; 40 queries about 20 documents are required"),
        (50, 19, "they cover 19 documents; 20 are required"),
        (40, 20, ""),
    ],
)
def test_too_few(tmp_path, queries, documents, why):
    rows = [(f"query {n}", f"page{n % documents}") for n in range(queries)]
    found, said = read(written(tmp_path / "asked.csv", rows))
    assert (too_few(found), said) == (why, [])


def test_a_document_that_answers_everything(tmp_path):
    log = written(tmp_path / "log.csv", [*MANY, *((query, "page49") for query, _ in MANY)])
    found, said = read(clicks=log)
    assert found == [(query, {n: 1.0}) for n, (query, _) in enumerate(MANY)]
    assert said == ["Ignoring notes/page49.md as an answer: 45 of 45 queries point to it"]
    found, said = read(written(tmp_path / "same.csv", [(query, "page49") for query, _ in MANY]))
    assert found == []
    assert said[1:] == ["Ignoring 45 queries without another answer"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("asked.csv", "ask,price\na,b\n", r":1: needs the columns query and document, but has"),
        ("asked.csv", "query,document\na,gone.md\n", r"ignored: unknown document .*'gone\.md'"),
        ("asked.csv", "query,document\na,gone.md\n", r"documents are such as 'notes/page0\.md'"),
        ("asked.jsonl", "", ":1: needs the columns"),
        ("asked.tsv", "query\tdocument\n", "contains no answers"),
        ("asked.txt", "how to mend a pump\n", "needs the columns"),
        ("asked.xls", "", "unknown format"),
    ],
)
def test_nothing_usable_is_an_error(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said) as error:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(error.value)


def test_an_unquoted_comma_and_a_log_of_unknown_documents_do_not_stop_good_queries(tmp_path):
    good = written(tmp_path / "asked.csv", [*MANY, ("first, second", "page1")])
    log = written(tmp_path / "log.csv", [("a", "gone"), ("b", "gone")])
    found, said = read(good, clicks=log)
    assert len(found) == 45
    assert said == [
        f"{good}: 1 of 46 rows ignored: query missing (line 47)",
        f"{log}: 2 of 2 rows ignored: unknown document (line 2: 'gone')",
    ]
