import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError
from contrasent.text import sources
from contrasent.text.corpus import open_corpus, read_labeled_pairs
from contrasent.text.tables import MISSING

TRIPLES = [
    ("A fox sleeps.", "An animal rests.", "A fox barks."),
    ('She said "no".', "She refused, twice.", "She agreed."),
    ("Größe zählt", "Size matters", "Size is nothing"),
]
NAMES = ("anchor", "positive", "negative")


def quoted(rows) -> str:
    lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    return "\n".join(lines) + "\n"


def tabbed(rows) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def objects(rows, names=NAMES) -> str:
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    return "\n".join(lines) + "\n"


@pytest.fixture
def put(tmp_path):
    """Write a file below the temporary folder and give its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.fixture
def parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")

    def write(name: str, **columns) -> Path:
        pq.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    return write


def fails(action, *expected: str, kind=InputError) -> str:
    """The one-line message of the error that an action raises."""
    with pytest.raises(kind) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    for part in expected:
        assert part in message
    return message


def reading(path, **options):
    return lambda: list(open_corpus(path, **options))


# What is read


ORDER = [(c, a) for a, _, c in TRIPLES]
ARRAYS = "".join(json.dumps(row) + "\n" for row in TRIPLES)
CRLF = b'\xef\xbb\xbfleft,right\r\n"one\r\ntwo",b\r\n\r\nc,d\r\n'
LISTED = '{"id": 1, "text": "One.", "tags": []}\n{"text": "Two.", "more": 3}\n'
CASES = [
    ("a.txt", "  One.\t\n\nTwo, \ttab.\n \nThree", None, ("0",), ["One.", "Two, \ttab.", "Three"]),
    ("a.txt", b"\xef\xbb\xbfone\r\ntwo\rthree", None, ("0",), ["one", "two", "three"]),
    *(
        (name, content, *chosen)
        for name, content in (
            ("a.csv", quoted([NAMES, *TRIPLES])),
            ("a.tsv", tabbed([NAMES, *TRIPLES])),
            ("a.jsonl", objects(TRIPLES)),
        )
        for chosen in (
            (None, NAMES, TRIPLES),
            (["negative", "anchor"], ("negative", "anchor"), ORDER),
            ("positive", ("positive",), [b for _, b, _ in TRIPLES]),
            # A position next to a name counts in a file with a header.
            (["negative", 0], ("negative", "anchor"), ORDER),
        )
    ),
    ("a.csv", quoted(TRIPLES), [2, 0], ("2", "0"), ORDER),
    ("a.tsv", tabbed(TRIPLES), [2, 0], ("2", "0"), ORDER),
    ("a.jsonl", ARRAYS, [2, 0], ("2", "0"), ORDER),
    ("a.csv", CRLF, None, ("left", "right"), [("one\ntwo", "b"), ("c", "d")]),
    ("a.csv", "left;right\nb;c, d\ne;f\n", None, ("left", "right"), [("b", "c, d"), ("e", "f")]),
    ("a.csv", ",kettle\n0,c d\n1,e f\n", None, ("kettle",), ["c d", "e f"]),
    ("a.csv", "id,text\n17,One.\n18,Two.\n", None, ("text",), ["One.", "Two."]),
    ("a.jsonl", '"One."\n\n"Two."\n', None, ("0",), ["One.", "Two."]),
    ("a.jsonl", LISTED, None, ("text",), ["One.", "Two."]),
    (
        "a.jsonl",
        '{"t": "a", "n": null, "x": null}\n\n{"t": "b", "n": 1}\n',
        None,
        ("t",),
        ["a", "b"],
    ),
]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(("name", "content", "columns", "names", "rows"), CASES)
def test_what_is_read(put, name, content, columns, names, rows, packed):
    path = put(name + packed, content)
    corpus = open_corpus(path, columns=columns)
    wanted = [(row,) if isinstance(row, str) else row for row in rows]
    assert list(corpus) == list(corpus) == wanted, "a corpus is read as often as one likes"
    assert (corpus.width, corpus.names, corpus.source) == (len(names), names, str(path))
    data = content if isinstance(content, bytes) else content.encode()
    assert corpus.skipped == sum(not line.strip() for line in data.splitlines())


def test_parquet(parquet):
    path = parquet("a.parquet", n=[1, 2, 3], left=["a b", " c ", "d"], more=["x", "y", "z"])
    corpus = open_corpus(path)
    assert corpus.names == ("left", "more")
    assert list(corpus) == list(corpus) == [("a b", "x"), ("c", "y"), ("d", "z")]
    assert list(open_corpus(path, columns=[2, "left"])) == [("x", "a b"), ("y", "c"), ("z", "d")]
    assert list(open_corpus(parquet("a.parquet", t=["a", None, "b"]))) == [("a",), ("b",)]
    texts = [f"sentence {i}" for i in range(5000)]
    assert [row for (row,) in open_corpus(parquet("a.parquet", text=texts))] == texts
    texts[4321] = " "
    corpus = open_corpus(parquet("b.parquet", text=texts))
    assert (len(list(corpus)), len(corpus.notes())) == (4999, 1)
    assert corpus.notes()[0].endswith("b.parquet:4322)")


def test_a_folder_is_read_in_the_order_of_paths(put):
    put("c/b.txt", "three\nfour\n")
    put("c/a/z.txt.gz", "one\ntwo\n")
    put("c/a/notes.md", "not read")
    put("c/.hidden.txt", "not read")
    put("c/.git/x.txt", "not read")
    put("c/empty.txt", "")
    path = put("c/d.jsonl", '"five"\n').parent
    corpus = open_corpus(path)
    assert [row for (row,) in corpus] == ["one", "two", "three", "four", "five"]
    assert corpus.source == str(path)


def test_rows_in_memory_are_texts_sequences_or_mappings():
    assert list(open_corpus([" one", "two "])) == [("one",), ("two",)]
    assert list(open_corpus(np.array(["one", "two"]))) == [("one",), ("two",)]
    corpus = open_corpus(TRIPLES, columns=[1])
    assert (corpus.names, list(corpus)) == (("1",), [(b,) for _, b, _ in TRIPLES])
    rows = [dict(zip(NAMES, row, strict=True)) for row in TRIPLES]
    corpus = open_corpus(dict(row, id=i) for i, row in enumerate(rows))
    assert (corpus.names, list(corpus)) == (NAMES, TRIPLES)
    assert corpus.digest() != open_corpus(rows).digest() == open_corpus(rows).digest()
    rated = open_corpus([{"s": 1, "a": "x"}, {"s": 2, "a": "y"}], score="s")
    assert (list(rated), rated.scores.tolist()) == ([("x",), ("y",)], [1, 2])
    assert list(open_corpus(["one"], at_least=1)) == [("one",)]


FRAME = type("DataFrame", (list,), {"columns": ["text"]})(["text"])


@pytest.mark.parametrize(("rows", "options", "words"), [
    ([("a", "b"), ("c",)], {}, "rows in memory:2: 1 columns"),
    (["a", "\n"], {}, "rows in memory:2: blank sentence"),
    (["a", 3], {}, "rows in memory:2: 3 is not of type string, unlike the first row"),
    (["a", None], {}, "rows in memory:2: None is not a text"),
    ([("a", "b", None), ("c", "d", 1)], {"score": 2}, "rows in memory:1: the label is missing"),
    ([("a", None), ("b", "c")], {}, "rows in memory:1: column '1' is missing"),
    ([{"t": "a"}, {"t": "b", "s": "c"}], {}, "rows in memory:1: column 's'"),
    ([{"t": "a", "s": "b"}] * 3 + ["text"], {}, "rows in memory:4: 'text' is not of type object"),
    (TRIPLES, {"columns": ["anchor"]}, "no names"),
    (["one"], {}, "rows in memory: only one row"),
    ([], {}, "rows in memory: no texts"),
    (FRAME, {}, "a DataFrame contains columns, not rows; pass a list of rows, such as frame.to_di"),
    ({"text": ["a", "b"]}, {}, "a dict contains columns, not rows"),
    ([Path("a.txt"), "b.txt"], {}, "source 'b.txt': is a text among paths"),
])  # fmt: skip
def test_bad_rows_in_memory(rows, options, words):
    kind = OptionError if "columns" in options or "among" in words else InputError
    fails(reading(rows, **options), words, kind=kind)


TWICE = """
import json, os
from contrasent.text.corpus import open_corpus

corpus = open_corpus("-")
found = [corpus.source, list(zip(corpus, corpus, strict=True)), len(corpus.digest())]
found.append(len(os.listdir(os.environ["TMPDIR"])))
del corpus
print(json.dumps([*found, os.listdir(os.environ["TMPDIR"])]))
"""


def test_standard_input_is_read_twice_and_leaves_nothing_behind(tmp_path):
    command, place = [sys.executable, "-c", TWICE], {"TMPDIR": str(tmp_path)}
    found = subprocess.check_output(command, input=b"one\n\ntwo\n", env=os.environ | place)
    rows = [[["one"], ["one"]], [["two"], ["two"]]]
    assert json.loads(found) == ["standard input", rows, 64, 1, []]


def test_no_place_for_temporary_files_is_one_line(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    with pytest.raises(OutputError, match=r"a temporary file: cannot write \(No usable .*nowhere"):
        open_corpus("-")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_like_standard_input(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("one\ntwo\n",), daemon=True)
    writer.start()
    corpus = open_corpus(path)
    writer.join()
    assert list(corpus) == list(corpus) == [("one",), ("two",)]


def test_a_line_of_a_megabyte(put):
    long = "word " * 200_000 + "end"
    rows = [("short", long), (long, "short")]
    for path in (put("a.csv", quoted(rows)), put("a.tsv", tabbed(rows))):
        assert list(open_corpus(path, columns=[0, 1])) == rows
    assert list(open_corpus(put("a.txt", f"short\n{long}\n"))) == [("short",), (long,)]
    assert list(open_corpus(put("a.jsonl", objects(rows, ("a", "b"))))) == rows


def test_memory_does_not_grow_with_the_file(put):
    path = put("a.txt", "".join(f"{i} {'word ' * 20}\n" for i in range(40_000)))
    corpus = open_corpus(path)
    tracemalloc.start()
    assert sum(1 for _ in corpus) == 40_000
    corpus.digest()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 4_000_000
    assert peak < 3_000_000


TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('",;\t'), min_size=1
).filter(lambda text: text.strip() and text.strip() not in MISSING)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=6))
def test_every_text_survives_csv_and_jsonl(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("corpus")
    wanted = [tuple(cell.strip() for cell in row) for row in rows]
    (folder / "a.csv").write_text(quoted([("a", "b"), *rows]), encoding="utf-8")
    assert list(open_corpus(folder / "a.csv", columns=["a", "b"])) == wanted
    (folder / "a.jsonl").write_text(objects(rows, ("a", "b")), encoding="utf-8")
    assert list(open_corpus(folder / "a.jsonl", columns=["a", "b"])) == wanted


# The digest


def test_the_digest_is_that_of_the_bytes_and_of_the_choice(put):
    path = put("a.csv", quoted([NAMES, *TRIPLES]))
    digest = open_corpus(path).digest()
    assert digest == open_corpus(path).digest() == open_corpus(path, columns=NAMES).digest()
    assert digest == open_corpus(put("moved/b.csv", path.read_bytes())).digest()
    rated = put("r.csv", "one,two,three\na,b,1\nc,d,2\n")
    others = [
        open_corpus(path, columns=["anchor"]),
        open_corpus(path, columns=["positive", "anchor", "negative"]),
        open_corpus(put("c.csv", quoted([NAMES, *TRIPLES[:2]]))),
        open_corpus(TRIPLES),
        open_corpus(rated, columns=("one", "two", "three")),
        open_corpus(rated, columns=("one", "two"), score="three"),
    ]
    assert len({digest, *(other.digest() for other in others)}) == 7
    int(digest, 16)
    assert len(digest) == len(hashlib.sha256().hexdigest())


def test_the_digest_of_a_folder_and_of_memory_sees_borders_between_texts(put):
    put("a/1.txt", "one\n")
    put("a/2.txt", "two\nthree\n")
    put("b/1.txt", "one\ntwo\n")
    put("b/2.txt", "three\n")
    folder = put("a/1.txt", "one\n").parent
    assert open_corpus(folder).digest() != open_corpus(folder.parent / "b").digest()
    put("c/1.txt", "won\n")
    put("c/2.txt", "two\nthree\n")
    assert open_corpus(folder).digest() != open_corpus(folder.parent / "c").digest()
    assert open_corpus(["ab", "c"]).digest() != open_corpus(["a", "bc"]).digest()
    assert open_corpus(["ab", "c"]).digest() == open_corpus(("ab", "c")).digest()


# Bad input: one line each, with file, line, and what to do


def test_a_missing_file_names_the_nearest(put):
    path = put("sentences.txt", "one\ntwo\n")
    missing = path.with_name("sentence.txt")
    fails(lambda: open_corpus(missing), f"{missing}: no such file", f"did you mean '{path}'?")
    missing = path.parent.with_name(path.parent.name + "x") / "sentences.txt"
    fails(lambda: open_corpus(missing), "folder", repr(str(path.parent)))
    lonely = put("other/zebra.txt", "").with_name("q.csv")
    assert "did you mean" not in fails(lambda: open_corpus(lonely), "no such file")


def test_a_folder_without_text(put):
    folder = put("c/picture.png", b"\x89PNG").parent
    fails(lambda: open_corpus(folder), f"{folder}: the folder contains no text", ".jsonl")
    put("c/empty.txt", "\n\n")
    put("c/more.txt", "")
    fails(lambda: open_corpus(folder), "all files are empty")
    (folder / "b.txt").symlink_to(folder / "gone.txt")
    fails(lambda: open_corpus(folder), "b.txt: cannot read (No such file or directory)")


THREE = quoted([NAMES, *TRIPLES])
EITHER = "the first row is either column names or data, "


@pytest.mark.parametrize(("name", "content", "options", "words"), [
    ("a.csv", "text,more\n", {}, "a.csv: only a header row"),
    ("a.txt", "one\n", {}, "a.txt: only one row; at least 2 are needed"),
    *((name, content, {}, f"{name}: the file is empty") for content in ("", "\n\n")
      for name in ("a.txt", "a.csv", "a.tsv", "a.jsonl", "a.txt.gz")),
    ("c.json", '{"rows":\n ["one"]}', {}, "c.json: {'rows': ['one']} is neither a list of rows"),
    ("d.json", '["one", null]', {}, "null is not a text"),
    ("a.parquet", b"one", {}, "a.parquet: not a complete parquet file"),
    ("a.docx", b"PK", {}, "unknown format (suffix .docx); supported: .txt"),
    ("LICENSE", "text", {}, "unknown format (suffix none)"),
    # Text that is none; bytes that are not UTF-8 name line and character.
    ("a.txt", b"fine\n\n\n\ncaf\xe9\n", {}, "a.txt:5: byte 0xe9 at character 4 is not UTF-8"),
    ("a.jsonl", b'"fine"\n\n\n\n"caf\xe9"\n', {}, "a.jsonl:5: byte 0xe9 at character 5"),
    ("a.txt.gz", b"fine\n\n\n\ncaf\xe9\n", {}, "a.txt.gz:5: byte 0xe9 at character 4"),
    ("a.txt", "one\ntwo\n".encode("utf-16"), {}, "a.txt:1: the file is UTF-16"),
    ("a.txt", "fine\nb\0d\n", {}, "a.txt:2: the text contains a NUL byte"),
    ("a.jsonl", '"fine"\n"b\\u0000d"\n', {}, "a.jsonl:2: the text contains a NUL byte"),
    ("a.jsonl", '"fine"\n"\\ud83d"\n', {}, "a.jsonl:2: half a surrogate pair"),
    # Rows that are not like the first.
    ("a.csv", "l,r\na,b\nc\n", {}, "1 rows skipped: r empty"),
    ("a.csv", 'l,r\n"a\nb",c\nd,e,f\n', {}, "1 rows skipped: more cells than there are columns"),
    ("a.csv", "l,r\nd,e,f\nd,e,f,g\ng,h\n", {}, "need quotes"),
    ("a.csv", 'l,r\na,b\n"c,d\ne,f\ng,h\n', {}, "a.csv:3: the row is not valid csv"),
    # Columns that are not there, and a first row that is no header.
    ("a.csv", THREE, {"columns": ["anchr"]}, "columns 'anchr': unknown column"),
    ("a.csv", THREE, {"columns": ["anchr"]}, "did you mean 'anchor'?"),
    ("a.csv", THREE, {"columns": [3]}, "has columns 0 to 2"),
    ("a.csv", THREE, {"columns": []}, "at least one"),
    ("a.txt", "one\ntwo\n", {"columns": ["text"]}, "have no names; choose by position, 0 to 0"),
    ("a.csv", "A fox.,It rests.\nb,c\n", {}, EITHER + "'A fox., It rests.'"),
    ("a.csv", "A fox.,It rests.\nb,c\n", {}, "a.csv --columns 0,1 for data"),
    ("a.csv", "A fox.,It rests.\nb,c\n", {"single": True}, "position, or give a file with one"),
    ("a.csv", "id,sku\n1,AB-1\n2,AB-2\n", {"single": True}, "choose it with --column, or give"),
    ("a.csv", "text,more\na,b\nc,d\n", {}, "a.csv --columns more,text (pairs)"),
    ("a.csv", "text,more\na,b\nc,d\n", {}, "a.csv --columns text (sentences)"),
    ("a.csv", "x,y,z\na,b,c\nc,d,e\n", {}, "--columns x,y,z (pairs with a hard negative)"),
    ("a.csv", "id\n17\n", {}, "column 'id' contains numbers, not text"),
    ("a.jsonl", '{"id": 1}\n', {}, "column 'id' contains numbers, not text"),
    ("a.csv", "id,sku\n1,AB-1\n2,AB-2\n", {}, "no column of id, sku contains text"),
    # Cells.
    ("a.csv", "l,r\na,b\nc, \n", {}, "1 rows skipped: r empty"),
    ("a.tsv", "l\tr\na\tb\n\tc\n", {}, "1 rows skipped: l empty"),
    ("a.jsonl", '"a"\n" "\n', {}, "1 rows skipped: 0 empty"),
    ("a.jsonl", '{"t": "a"}\n{"t": 3}\n', {}, "a.jsonl:2: column 't' contains 3"),
    ("a.jsonl", '{"t": "a"}\n{"s": "b"}\n', {}, "1 rows skipped: t empty"),
    ("a.jsonl", '"a"\n{"t": \n', {}, "a.jsonl:2: the line is not JSON"),
    ("a.jsonl", '"a"\n["b"]\n', {}, "a.jsonl:2: ['b'] is not of type string"),
    ("a.jsonl", "3\n", {}, "a.jsonl:1: 3 is neither a string"),
    ("a.jsonl", '"a"\n' + "[" * 100_000 + "\n", {}, "a.jsonl:2: the line is not readable JSON"),
    ("a.jsonl", '"a"\n' + "9" * 5000 + "\n", {}, "a.jsonl:2: the line is not readable JSON"),
    ("a.jsonl", '{"t": "a", "s": null}\n{"t": "b", "s": "c"}\n', {}, "skipped: s empty"),
    ("a.jsonl", '["a", null]\n["b", "c"]\n', {}, "1 rows skipped: 1 empty"),
    # Scores.
    ("a.csv", "a,b,s\nu,v,1\nw,x,high\n", {"score": "s"}, "a.csv:3: label 'high' is not a"),
    ("a.csv", "a,b,rating\nu,v,1\n", {"score": "ratng"}, "did you mean 'rating'"),
    ("a.jsonl", '{"a": "x", "s": 1}\n{"a": "x"}\n', {"score": "s"}, "skipped: s empty"),
])  # fmt: skip
def test_bad_input_names_file_line_and_remedy(put, name, content, options, words):
    kind = OptionError if "columns" in options or "did you mean" in words else InputError
    fails(reading(put(name, content), **options), words, kind=kind)


def test_files_of_a_folder_must_agree(put):
    put("c/a.csv", "left,right\na,b\n")
    folder = put("c/b.csv", "right,left\nd,c\n").parent
    assert list(open_corpus(folder)) == [("a", "b"), ("c", "d")]  # joined by name
    assert list(open_corpus(folder, columns=["left"])) == [("a",), ("c",)]
    put("c/b.csv", "question,answer\na,b\n")
    fails(lambda: open_corpus(folder), "b.csv: the file has question, answer where a.csv has")
    put("c/b.csv", "left\na\n")
    fails(lambda: open_corpus(folder), "b.csv: the file has left where a.csv has left, right")


def test_broken_files(put, parquet):
    broken = put("a.txt", "").with_name("b.txt.gz")
    for content in (gzip.compress(b"one\ntwo\n" * 1000)[:-10], b"one\ntwo\n"):
        broken.write_bytes(content)
        fails(reading(broken), "b.txt.gz: not a complete gzip file")
    xz = broken.with_name("b.txt.xz")
    xz.write_bytes(lzma.compress(b"one\ntwo\n" * 1000))
    assert len(list(open_corpus(xz))) == 2000
    for content in (xz.read_bytes()[:-20], b"one\ntwo\n"):
        xz.write_bytes(content)
        fails(reading(xz), "b.txt.xz: not a complete xz file")
    data = bytearray(parquet("b.parquet", text=[f"text {i}" for i in range(9000)]).read_bytes())
    data[100:4000] = b"\xff" * 3900
    fails(reading(put("b.parquet", bytes(data))), "b.parquet: ")


def test_a_line_without_end_is_rejected(put):
    endless = put("a.txt", "one\n" + "x" * (sources.LONGEST + 1))
    fails(reading(endless), f"a.txt:2: a line of {sources.LONGEST:,} characters")


def test_parquet_without_pyarrow(put, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = put("a.parquet", b"PAR1")
    fails(lambda: open_corpus(path), "contrasent[parquet]", kind=MissingExtraError)


# Labeled pairs


LABELED = [("a fox", "an animal", "3.5"), ("a car", "a tree", "0"), ("one", "1", "4e0")]


def test_labeled_pairs(put, parquet):
    """The formats are those of a corpus with scores, below."""
    pairs = read_labeled_pairs(put("a.tsv.gz", tabbed([("s1", "s2", "score"), *LABELED])))
    assert pairs.first == ("a fox", "a car", "one")
    assert pairs.second == ("an animal", "a tree", "1")
    assert (pairs.scores.dtype, pairs.scores.tolist()) == (np.float64, [3.5, 0.0, 4.0])
    path = parquet("a.parquet", score=[1, 2], b=["c", "d"], a=["x", "y"])
    pairs = read_labeled_pairs(path, columns=["a", "b", "score"])
    assert (pairs.first, pairs.second, pairs.scores.tolist()) == (("x", "y"), ("c", "d"), [1, 2])
    rows = [("news", "2012", "5.0", 'a "b', "c"), ("web", "2013", "1.25", "d", "e")]
    pairs = read_labeled_pairs(put("sts.tsv", tabbed(rows)), columns=(3, 4, 2))
    assert (pairs.first, pairs.scores.tolist()) == (('a "b', "d"), [5.0, 1.25])


@pytest.mark.parametrize(("label", "words"), [
    *((label, "is not a number") for label in ("high", "4,5", "1_0", "0x10")),
    *((label, "is not a finite number") for label in ("nan", "inf", "-Infinity", "1e999")),
])  # fmt: skip
def test_a_row_that_is_no_labeled_pair(put, label, words):
    path = put("a.tsv", tabbed([("s1", "s2", "score"), *LABELED, ("a", "b", label)]))
    fails(lambda: read_labeled_pairs(path), f"a.tsv:5: label {label!r} {words}")


@pytest.mark.parametrize(("name", "content", "columns", "words"), [
    ("a.jsonl", '["a", "b", NaN]\n', None, "contains no labeled pairs; 1 rows skipped: 2 empty"),
    ("a.tsv", "a\tb\tc\n", ["a", "b"], "give three columns: two texts and a number"),
    ("a.tsv", "a\tb\tc\td\nw\tx\ty\tz\n", None, "choose three columns of a, b, c, d"),
    ("c.tsv", "", None, "c.tsv: the file is empty"),
    ("d.txt", "a\nb\n", None, "labeled pairs must be one file"),
])  # fmt: skip
def test_labeled_pairs_that_cannot_be(put, name, content, columns, words):
    kind = OptionError if columns == ["a", "b"] else InputError
    fails(lambda: read_labeled_pairs(put(name, content), columns=columns), words, kind=kind)
    fails(lambda: read_labeled_pairs(put(name, content).parent), "labeled pairs must be one file")


# Real files


RATED = [
    ("A fox sleeps.", "A fox naps.", 4.5),
    ("A fox sleeps.", "A ship sails.", 0),
    ("It rains.", "Rain falls.", 5.0),
]


LINES = [("rating", "one", "two"), *((str(s), a, b) for a, b, s in RATED)]


@pytest.mark.parametrize(("source", "options", "names"), [
    (("r.csv", quoted(LINES)), {"score": "rating"}, ("one", "two")),
    (("r.tsv", tabbed(LINES)), {"score": "rating"}, ("one", "two")),
    (("r.jsonl", objects([(s, a, b) for a, b, s in RATED], LINES[0])), {"score": "rating"},
     ("one", "two")),
    (None, {"score": "rating"}, ("one", "two")),
    (RATED, {"score": 2}, ("0", "1")),
    (("r.csv", quoted(LINES[1:])), {"columns": (1, 2), "score": 0}, ("1", "2")),
], ids=["csv", "tsv", "jsonl", "parquet", "memory", "no header"])  # fmt: skip
def test_scores_stand_with_the_texts(put, parquet, source, options, names):
    if source is None:
        a, b, s = zip(*RATED, strict=True)
        source = parquet("r.parquet", rating=[float(x) for x in s], one=a, two=b)
    elif isinstance(source, tuple):
        source = put(*source)
    corpus = open_corpus(source, **options)
    assert (corpus.width, corpus.scored, corpus.names) == (2, True, names)
    assert list(corpus) == [row[:2] for row in RATED]
    assert corpus.scores.tolist() == [4.5, 0.0, 5.0]


def test_a_query_with_positives_and_negatives_is_a_row_for_each_positive(put):
    rows = [
        {"query": "q", "pos": ["p", "o"], "neg": ["a", "b", "c"], "pos_scores": [1, 2]},
        {"query": "r", "pos": ["s"], "neg": ["d"]},
    ]
    text = "\n".join(map(json.dumps, rows))
    for name, content in {"a.jsonl": text, "a.json": text, "b.json": json.dumps(rows)}.items():
        found = open_corpus(put(name, content))
        assert found.names == ("query", "pos", "neg1", "neg2", "neg3")
        assert list(found) == [
            *(("q", "p", "a", "b", "c"), ("q", "o", "a", "b", "c"), ("r", "s", "d", "d", "d"))
        ]
    two = [rows[0] | {"neg": ["a"]}, rows[1] | {"pos": ["s", "t"], "neg": ["d", "e"]}]
    assert list(open_corpus(put("c.json", json.dumps(two))))[2:] == [
        *(("r", "s", "d"), ("r", "t", "e"))
    ]
    one = [{"query": "q", "pos": "p", "neg": ["a", "b"]}] * 2
    assert list(open_corpus(put("g.json", json.dumps(one)))) == [("q", "p", "a", "b")] * 2
    pairs = [{"query": "q", "pos": ["p", "o"]}]
    assert list(open_corpus(put("d.json", json.dumps(pairs)))) == [("q", "p"), ("q", "o")]
    late = reading(put("f.jsonl", "\n".join(map(json.dumps, [rows[1] | {"neg": []}, rows[0]]))))
    fails(late, "f.jsonl:2: has negatives, unlike the first row; all rows need them, or none")
    for wrong in ({"query": "r", "pos": []}, {"query": "r", "pos": ["s"]}, {"pos": ["s"]}):
        broken = put("e.jsonl", "\n".join(map(json.dumps, [rows[0], wrong])))
        with pytest.raises(InputError, match=r"e\.jsonl:2: "):
            list(open_corpus(broken))


@pytest.mark.parametrize(("sizes", "width", "said"), [
    ((2, 5, 5, 5), 5, ["1 rows with fewer than 5 negatives, which are repeated"]),
    ((5, 2, 2, 2), 2, ["1 rows with more than 2 negatives for each pos; the rest is left out"]),
    ((3, 3), 3, []),
])  # fmt: skip
def test_negatives_that_most_rows_have_are_columns_and_the_rest_is_counted(put, sizes, width, said):
    rows = [{"query": f"q{n}", "pos": ["p"], "neg": [*"abcde"[:n]]} for n in sizes]
    for source in (put("a.jsonl", "\n".join(map(json.dumps, rows))), rows):
        corpus = open_corpus(source)
        for _ in range(2):
            assert {len(row) for row in corpus} == {2 + width}
            assert corpus.notes() == said


@pytest.mark.parametrize(("row", "column"), [
    ({"question": "what calls here", "answers": ["a hen", "a cock"]}, "answers"),
    ({"question": "what calls here", "answer": "the hen", "negatives": ["a gate"]}, "negatives"),
])  # fmt: skip
def test_lists_in_place_of_positives_or_negatives_are_refused(put, parquet, row, column):
    path = put("a.jsonl", "\n".join([json.dumps(row)] * 4))
    columnar = parquet("a.parquet", **{name: [cell] * 4 for name, cell in row.items()})
    for source in (path, columnar, [row] * 4):
        with pytest.raises(InputError, match=f"column '{column}' contains lists, not text; write"):
            open_corpus(source)
    assert len(list(open_corpus(path, columns=["question"]))) == 4
    assert open_corpus(path, single=True).names == ("question",)


def test_json_is_a_list_of_rows(put):
    assert list(open_corpus(put("a.json", '["one",\n "two"]'))) == [("one",), ("two",)]
    assert open_corpus(put("b.json", '[{"a": "x", "b": "y"}, {"a": "z", "b": "w"}]')).width == 2
    other = put("e/a.txt", "one\ntwo\n")
    put("e/meta.json", "{}")
    assert open_corpus(other.parent).width == 1  # in a folder, .json is not text


def test_a_folder_of_save_to_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"n": [1, 2, 3], "a": ["x", "y", "z"], "b": ["k", "l", "m"]}
    made = datasets.Dataset.from_dict(rows)
    made.save_to_disk(tmp_path / "one", num_shards=2)
    assert list(open_corpus(tmp_path / "one")) == [("x", "k"), ("y", "l"), ("z", "m")]
    assert list(open_corpus(tmp_path / "one", columns=["b"])) == [("k",), ("l",), ("m",)]
    splits = datasets.DatasetDict({"train": made, "test": made})
    splits.save_to_disk(tmp_path / "two")
    with pytest.raises(InputError, match=r"several splits; give the folder of one: .*two/train"):
        open_corpus(tmp_path / "two")
    assert open_corpus(tmp_path / "two" / "train").names == ("a", "b")
    datasets.DatasetDict({"train": made}).save_to_disk(tmp_path / "three")
    assert len(list(open_corpus(tmp_path / "three"))) == 3
    (file,) = (tmp_path / "three/train").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="not a complete arrow file"):
        list(open_corpus(tmp_path / "three"))
    (tmp_path / "three/train/state.json").write_text("{}")
    with pytest.raises(InputError, match="not a dataset of save_to_disk"):
        open_corpus(tmp_path / "three")


def test_text_of_an_arrow_file_that_is_no_utf_8(tmp_path):
    pa = pytest.importorskip("pyarrow")
    ends, data = np.arange(3, dtype=np.int32), b"a\xff"
    cells = pa.StringArray.from_buffers(2, pa.py_buffer(ends), pa.py_buffer(data))
    table = pa.table({"text": cells})
    file = str(tmp_path / "a.arrow")
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "a.arrow"}]}')
    with pytest.raises(InputError, match=r"a\.arrow: not a complete arrow file"):
        list(open_corpus(tmp_path))


def test_joined_corpora_know_where_each_begins(put):
    one, two = put("a.txt", "1 a\n2 a\n"), put("b.txt", "1 b\n2 b\n3 b\n")
    joined = open_corpus(one).join(open_corpus(two), open_corpus(one))
    assert [row for (row,) in joined] == ["1 a", "2 a", "1 b", "2 b", "3 b", "1 a", "2 a"]
    assert (joined.parts, joined.source) == ([0, 2, 5], "a.txt + b.txt + a.txt")
    assert list(open_corpus([one, two])) == list(open_corpus(one).join(open_corpus(two)))
    together, apart = open_corpus([one, two]), open_corpus(one).join(open_corpus(two))
    assert together.digest() != apart.digest()
    with pytest.raises(InputError, match="columns that all files have"):
        open_corpus(one).join(open_corpus(put("c.tsv", "x\ty\na\tb\nc\td\n")))
