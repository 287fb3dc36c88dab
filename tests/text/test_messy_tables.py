"""Tables as strangers have them: what each column is taken for, and what is said of the rest."""

import csv
import io
import json

import pytest

from contrasent.documents.folder import DocumentSource
from contrasent.errors import InputError, OptionError
from contrasent.text.corpus import open_corpus, read_labeled_pairs

ASKED = [
    ("how do I oil the gate", "take the small can from the shed"),
    ("who feeds the hens on sunday", "the twins do it before breakfast"),
    ("where is the key of the barn", "it hangs behind the blue door"),
    ("when does the ferry leave", "it leaves at seven and at noon"),
]
QUERIES, ANSWERS = zip(*ASKED, strict=True)


def table(*columns, head=None, mark=",", **form):
    """The text of a table by its columns."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=mark, lineterminator="\n", **form)
    writer.writerows([*([head] if head else []), *zip(*columns, strict=True)])
    return stream.getvalue()


def written(folder, name, text):
    (folder / name).write_text(text, "utf-8")
    return folder / name


IDS = [f"T-{n:03}" for n in range(4)]
DATES = [f"2024-03-0{n + 1} 10:0{n}" for n in range(4)]
LABELS = ["entailment", "neutral", "neutral", "contradiction"]
PATHS = [f"scans/{n}.pdf" for n in range(4)]
WORDS = ["gate", "hens", "barn", "ferry"]


@pytest.mark.parametrize(("columns", "head", "said"), [
    ((IDS, QUERIES, ANSWERS), ("ticket", "question", "answer"),
     "query: question, positive: answer; not used: ticket"),
    ((ANSWERS, QUERIES), ("answer", "question"), "query: question, positive: answer"),
    ((QUERIES, ANSWERS, LABELS), ("premise", "hypothesis", "label"),
     "query: premise, positive: hypothesis; not used: label"),
    ((IDS, DATES, PATHS, QUERIES, ANSWERS), ("ref", "when", "scan", "left", "right"),
     "query: left, positive: right; not used: ref, when, scan"),
    ((range(4), QUERIES, ANSWERS), ("", "query", "passage"),
     "query: query, positive: passage; not used: column 0"),
    ((QUERIES, ANSWERS, ANSWERS[::-1]), ("anchor", "positive", "negative_1"),
     "query: anchor, positive: positive, negative: negative_1"),
    ((QUERIES, ANSWERS, (0.5, 1, 0, 2)), ("first", "second", "score"),
     "text: first, second, score: score"),
    ((QUERIES, ANSWERS, (0.5, 1, 0, 2)), ("question", "answer", "score"),
     "query: question, positive: answer; not used: score"),
    ((ANSWERS, QUERIES, WORDS), ("Agent answer", "Customer question", "Question type"),
     "query: Customer question, positive: Agent answer; not used: Question type"),
    ((WORDS, ANSWERS), ("author", "comment"), "text: comment; not used: author"),
    ((IDS, [""] * 4, ANSWERS), ("_id", "title", "text"), "text: text; not used: _id, title"),
    ((WORDS, QUERIES, ANSWERS), ("Timestamp", "Your question", "What we said"),
     "query: Your question, positive: What we said; not used: Timestamp"),
])  # fmt: skip
@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_names_and_contents_say_what_teaches(tmp_path, columns, head, said, form):
    text = table(*columns, head=head, mark="\t" if form == "tsv" else ",")
    if form == "jsonl":
        rows = [dict(zip(head, row, strict=True)) for row in zip(*columns, strict=True)]
        text, said = "\n".join(map(json.dumps, rows)), said.replace("column 0", "")
    corpus = open_corpus(written(tmp_path, f"a.{form}", text))
    assert corpus.roles[0] == said
    wanted = {"query": QUERIES, "anchor": QUERIES, "text: first": QUERIES}
    first = next((rows[0] for name, rows in wanted.items() if name in said), ANSWERS[0])
    assert next(iter(corpus))[0] == first


@pytest.mark.parametrize(("columns", "head", "ways"), [
    ((WORDS, ANSWERS), ("title", "body"),
     ("--columns body (sentences)", "--columns title,body (pairs)")),
    ((QUERIES, ANSWERS, ANSWERS), ("x", "y", "z"),
     ("--columns x,y (pairs)", "--columns x,y,z (pairs with a hard negative)")),
    ((QUERIES, ANSWERS, ANSWERS), ("question", "y", "z"),
     ("--columns question,y (pairs)", "--columns question,z (pairs)")),
])  # fmt: skip
def test_two_readings_are_an_error_with_both_commands(tmp_path, columns, head, ways):
    path = written(tmp_path, "a.csv", table(*columns, head=head))
    with pytest.raises(InputError) as caught:
        open_corpus(path)
    for way in ways:
        assert f"contrasent train {path} {way}" in str(caught.value)
        chosen = way.split()[1].split(",")
        assert open_corpus(path, columns=chosen).names == tuple(chosen)


def test_labels_of_pairs_and_lines_above_are_said(tmp_path):
    labeled = table(QUERIES, ANSWERS, LABELS, head=("premise", "hypothesis", "label"))
    (_, warning) = open_corpus(written(tmp_path, "a.csv", labeled)).roles
    assert warning.startswith(
        "warning: label has the values neutral 2, entailment 1, contradiction 1"
    )
    above = "What the farm was asked\n\n" + table(
        *zip(*ASKED, strict=True), head=("q", "a"), mark=";"
    )
    corpus = open_corpus(written(tmp_path, "b.csv", above))
    assert list(corpus) == ASKED
    assert corpus.roles[1].startswith("skipped 1 lines above the header (first: 'What")
    bare = open_corpus(written(tmp_path, "c.csv", table(QUERIES, ANSWERS)))
    assert (len(list(bare)), bare.roles[1][:15]) == (4, "no header found")


@pytest.mark.parametrize(("name", "values"), [
    ("relevance", "0123"), ("grade", "12"), ("is_good", ["True", "False"]), ("label", "01"),
    ("score", "01"), ("helpful", ["TRUE", "FALSE"]), ("label", ["relevant", "irrelevant"]),
    ("match", ["ja", "nein"]), ("rating", ["low", "high"]), ("rating", "12345"),
    ("score", [f"0.{n}1" for n in range(10)]), ("quality", ["good", "bad"]), ("type", "01"),
])  # fmt: skip
def test_grades_of_pairs_do_not_teach_and_are_warned_of(tmp_path, name, values):
    rows = "".join(
        f"where is shelf {i}?,The shelf {i} stands behind the door.,{values[i % len(values)]}\n"
        for i in range(40)
    )
    (tmp_path / "t.csv").write_text(f"query,document,{name}\n{rows}")
    line, warning = open_corpus(tmp_path / "t.csv").roles
    assert line == f"query: query, positive: document; not used: {name}"
    assert warning.startswith(f"warning: {name} has the values ")
    assert ("5 others" in warning) == (len(values) > 5)


@pytest.mark.parametrize(("name", "values"), [
    ("split", ["train", "test"]), ("source_lang", ["de", "en"]), ("source", ["mail", "chat"]),
    ("ticket_id", ["1", "2"]), ("quality", ["good"]), ("place", [f"hall {n}" for n in range(6)]),
])  # fmt: skip
def test_columns_that_sort_rows_are_no_grades_of_pairs(tmp_path, name, values):
    asked, told = [f"where is shelf {n}?" for n in range(36)], ["It is near."] * 36
    text = table(asked, told, values * (36 // len(values)), head=("q", "a", name))
    path = written(tmp_path, "t.csv", text)
    assert open_corpus(path).roles == [f"query: q, positive: a; not used: {name}"]


def test_files_join_by_name(tmp_path):
    one = written(tmp_path, "a.csv", table(QUERIES, ANSWERS, head=("question", "answer")))
    two = written(tmp_path, "b.csv", table(ANSWERS, QUERIES, head=("answer", "question")))
    other = written(tmp_path, "c.csv", table(QUERIES, ANSWERS, head=("anchor", "positive")))
    unlike = written(tmp_path, "d.csv", table(QUERIES, ANSWERS, head=("left", "right")))
    several = open_corpus(one).join(*map(open_corpus, (two, other)))
    assert list(several) == list(open_corpus([one, two, other])) == 3 * ASKED
    with pytest.raises(InputError, match=r"d\.csv: the file has left, right where a.csv has que"):
        open_corpus(one).join(open_corpus(unlike))


@pytest.mark.parametrize(("name", "text", "rows"), [
    ("excel.tsv", table(QUERIES, [f"{a}, or not" for a in ANSWERS], head=("q", "a"), mark="\t",
                        quoting=csv.QUOTE_ALL), [(q, f"{a}, or not") for q, a in ASKED]),
    ("pandas.tsv", 'q\ta\nwho calls\t"he said ""now""\tand\nleft"\nwhy\tplain\n',
     [("who calls", 'he said "now"\tand\nleft'), ("why", "plain")]),
    ("letters.tsv", 'l\tr\n"Stop!" he said\t"Go."\n"open\tyes\n',
     [('"Stop!" he said', '"Go."'), ('"open', "yes")]),
    ("spaced.csv", 'q, a\n"who, then", "the hens"\n"why", "because"\n',
     [("who, then", "the hens"), ("why", "because")]),
    ("slashed.csv", 'q,a\n"he said \\"no\\", twice","yes"\nb,c\n',
     [('he said "no", twice', "yes"), ("b", "c")]),
    ("stated.csv", "sep=;\nq;a\nwho, then;the hens\nwhy;because\n",
     [("who, then", "the hens"), ("why", "because")]),
    ("piped.csv", "q|a\nwho, then|the hens; all\nwhy|because\n",
     [("who, then", "the hens; all"), ("why", "because")]),
    ("decimals.csv", "q;net;all\n" + 30 * "why so;0,5;1,5\n", 30 * [("why so",)]),
    ("below.csv", "Prices\n\nq;a;net\n" + 60 * "why so;as is, or;0,5\n",
     60 * [("why so", "as is, or")]),
    ("prose.csv", "text\nHens, and a cock\nSheep, but no ram\n",
     [("Hens, and a cock",), ("Sheep, but no ram",)]),
])  # fmt: skip
def test_delimiters_and_quotes(tmp_path, name, text, rows):
    assert list(open_corpus(written(tmp_path, name, text))) == rows


def test_rows_with_an_empty_cell_are_left_out_and_counted(tmp_path):
    rows = ["question,answer,note", *(f"{q},{a}," for q, a in ASKED), "why,,x", ",alone,x", "short"]
    rows += ["a,b,c,d", "trailing,cells,x,,", " , , "]
    corpus = open_corpus(written(tmp_path, "a.csv", "\n".join(rows) + "\n"))
    assert list(corpus) == [*ASKED, ("trailing", "cells")]
    assert [line.rpartition(" (")[0] for line in corpus.notes()] == [
        "2 rows skipped: answer empty",
        "1 rows skipped: question empty",
        "1 rows skipped: more cells than there are columns",
        "1 rows skipped: question and answer empty",
    ]
    assert corpus.notes()[0].endswith("a.csv:6)")
    gaps = ["q,a", "x,y", "b,NULL", "c,None", "N/A,d", "e,\\N", "f,none of them", "g,NaN"]
    corpus = open_corpus(written(tmp_path, "b.csv", "\n".join(gaps) + "\n"))
    assert list(corpus) == [("x", "y"), ("f", "none of them")]
    assert [line[:23] for line in corpus.notes()] == [
        *("4 rows skipped: a empty", "1 rows skipped: q empty")
    ]
    assert len(list(open_corpus(written(tmp_path, "b.txt", "None\nNULL\n")))) == 2
    lines = '{"q": "x", "a": null}\n{"q": "y", "a": "b"}\n{"a": "d", "q": "z"}\n{"q": "w"}\n'
    assert list(open_corpus(written(tmp_path, "a.jsonl", lines))) == [("y", "b"), ("z", "d")]


BODY = [("Anna Ohl", "Kiel", "likes the early boat"), ("Bo Ek", "Ulm", "never on mondays")]
BODY += [("Carl Amt", "Bonn", "brings the cake")]


@pytest.mark.parametrize("head", [
    ("Name", "Note", "Note"), ("Name", "", "Note"), ("", "City", "Note"), ("Name", "City", ""),
    ("1. Name", "2. City", "3. Note"), ("Name.", "City.", "Note."), ("Name?", "City?", "Note?"),
    ("What is your name?", "Where do you live now?", "What should we know about you?"),
    ("The name of the person who filled in this form", "City", "Anything else to be known of it"),
    ("Name", "2021", "2022"), ("NAME", "CITY", "NOTE"),
])  # fmt: skip
def test_a_header_is_kept(tmp_path, head):
    path = written(tmp_path, "a.csv", table(*zip(*BODY, strict=True), head=head))
    documents = [document.sections[0].paragraphs[0] for document in DocumentSource(path)]
    assert len(documents) == 3
    for cell, name in zip(BODY[0], head, strict=True):
        assert cell in documents[0] and name in documents[0]


@pytest.mark.parametrize("rows", [
    [("Rome", "1,200", "2024-01-02"), ("Oslo", "900", "2024-02-03"), ("Rome", "12", "2024-03-04")],
    [("Applicant", "Dora Klein"), ("Street", "Hafenweg 3"), ("Amount", "5000"), ("Due", "1.2.24")],
    [("How do I get an answer?", "By post in a week."), ("Where is it?", "At the quay in a shed."),
     ("When do you open?", "At six, or a bit later."), ("Who has the key?", "Bo, next door.")],
])  # fmt: skip
def test_a_first_row_of_data_is_data(tmp_path, rows):
    path = written(tmp_path, "a.csv", table(*zip(*rows, strict=True)))
    text = "\n".join(str(document.sections) for document in DocumentSource(path))
    assert all(
        text.count(cell) == sum(row.count(cell) for row in rows) for row in rows for cell in row
    )


FORMS = [
    [("Applicant", "Dora Klein"), ("Street", "Hafenweg 3"), ("Amount", "5000"), ("Due", "1.2.24")],
    [("Invoice", "4711"), ("Customer", "Globex"), ("Total", "1,200.50"), ("Date", "2024-04-01")],
    [("Sender", "Anna"), ("Subject", "Boat"), ("Length", "12"), ("Draft", "yes")],
    [("Project", "Berth 9"), ("Lead", "Bo Ek"), ("Site", "www.ohl.org"), ("Budget", "20000")],
    [("Antragsteller", "D. Klein"), ("Betrag", "5000"), ("Zweck", "Dach, neu"), ("Konto", "17")],
]
HEADS = [
    ("Product", "Price"), ("City", "Inhabitants"), ("Word", "Count"), ("Item", "2024"),
    ("Which item?", "How many do we have?"), ("", "Stock"), ("0", "1"), ("Teil", "Menge"),
]  # fmt: skip
PRICES = [("bolt", "1.20"), ("nut", "0.80"), ("long screw", "0.10")]
COLORS = [("bolt", "red"), ("nut", "blue"), ("long screw", "dark green")]
ASIDE = [("Where is it moored", "By the gate"), ("When do you open", "At six or a bit later")]
ASIDE += [("Who has the key", "Bo who lives next door")]
REMARKS = [*((f"tool {n}", f"works{' well' * n}") for n in range(9)), ("saw", "17")]


@pytest.mark.parametrize(("rows", "head"), [
    *((form, None) for form in FORMS), (REMARKS, ("Gerät", "Bemerkung")),
    (ASIDE, ("Question asked by the guest", "Answer given by our crew")), (ASIDE, None),
    *((rows, head) for rows in (PRICES, COLORS) for head in HEADS),
])  # fmt: skip
def test_a_form_has_no_header_and_what_stands_below_one_is_no_form(tmp_path, rows, head):
    path = written(tmp_path, "a.csv", table(*zip(*rows, strict=True), head=head))
    assert len(list(open_corpus(path, columns=[0]))) == len(rows)


def test_documents_keep_ragged_rows_long_texts_and_codes(tmp_path):
    long = "a pump for wells and cellars that runs all night"
    rows = ["sku;subject;description;answer", f"AB-1;One;{long};{long} too", f"AB-2;Two;{long}"]
    rows += [f"AB-3;Three;{long};{long};and a cell more"]
    source = DocumentSource(written(tmp_path, "a.csv", "Stock list\n\n" + "\n".join(rows)))
    texts = [" / ".join(p for s in document.sections for p in s.paragraphs) for document in source]
    assert texts[0] == "Stock list"
    assert texts[1] == f"{long} too / {long} / sku: AB-1"
    assert texts[3].startswith(f"{long};and a cell more")
    assert len(texts) == 4 and "sku: AB-2" in texts[2]
    said = "text: answer, description, title: subject, metadata: sku"
    assert source.report.columns == {"a.csv": said}


def test_names_of_columns_count_however_they_are_written(tmp_path):
    text = table(IDS, WORDS, ANSWERS, head=("Doc-ID", "Title:", " BODY "))
    source = DocumentSource(written(tmp_path, "a.csv", text))
    assert [document.title for document in source] == WORDS
    assert source.report.columns == {"a.csv": "text: BODY, title: Title:, id: Doc-ID"}


def test_names_of_files_and_things_that_are_no_rows_are_refused(tmp_path):
    path = written(tmp_path, "a.csv", table(QUERIES, ANSWERS, head=("q", "a")))
    with pytest.raises(OptionError, match=r"is a file name, .*\[Path\(name\)"):
        open_corpus([str(path)] * 2)
    for wrong in (None, 7):
        with pytest.raises(OptionError, match="is neither a path nor rows of text"):
            open_corpus(wrong)
    path.unlink()
    path.symlink_to("gone.csv")
    with pytest.raises(InputError, match=r"a.csv: is a link to gone.csv, which does not exist"):
        open_corpus(path)


def test_labeled_pairs_take_the_roles_of_wider_tables(tmp_path, caplog):
    columns = (IDS, QUERIES, ANSWERS, ("0.5", "", "2", "3"))
    path = written(tmp_path, "a.csv", table(*columns, head=("id", "text1", "text2", "rating")))
    pairs = read_labeled_pairs(path)
    assert (pairs.first[1], pairs.scores.tolist()) == (QUERIES[2], [0.5, 2, 3])
    assert caplog.messages == [f"1 rows skipped: rating empty (first: {path}:3)"]
