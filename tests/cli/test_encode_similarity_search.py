"""The commands encode, similarity, index and search on a real model."""

import io
import json
import math
import re
import shutil
import sys
from contextlib import redirect_stdout
from functools import cache

import numpy as np
import pytest

from commands import invoke, printed, run
from contrasent import search_index
from contrasent.errors import InputError, ModelError, OptionError, OutputError, UserError

MINILM = "all-MiniLM-L6-v2"
LINES = [
    "The kettle is on the stove.",
    "A pot of water is being heated.",
    "Interest rates rose by half a point.",
    "The central bank made borrowing dearer.",
    "Our dog dislikes the vacuum cleaner.",
]
HIT = {"id", "text", "score", "cosine", "bm25", "confidence", "metadata", "entry", "path", "answer"}


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("index") / "index"
    run("index", lines, "--model", MINILM, "-o", folder, "--quiet")
    return folder


@cache
def reference():
    from contrasent.encoder.encoder import TorchEncoder

    return TorchEncoder.load(MINILM).encode(LINES)


def test_encode_npy_and_parquet(tmp_path, lines):
    import pyarrow.parquet as pq

    said = printed("encode", MINILM, lines, "-o", tmp_path / "v.npy")
    vectors = np.load(tmp_path / "v.npy", allow_pickle=False)
    assert vectors.dtype == np.float32
    assert vectors == pytest.approx(reference(), abs=1e-6)
    assert (said["texts"], said["dimension"], said["truncated"]) == (5, 384, 0)
    run("encode", MINILM, lines, "-o", tmp_path / "v.parquet")
    table = pq.read_table(tmp_path / "v.parquet")
    assert table.column("text").to_pylist() == LINES
    assert np.array(table.column("vector").to_pylist(), np.float32) == pytest.approx(vectors)


def test_encode_standard_input_in_blocks(tmp_path, monkeypatch):
    from contrasent.search.opening import KeptVectors

    sizes, encode = [], KeptVectors.__call__
    counted = lambda kept, texts: sizes.append(len(texts)) or encode(kept, texts)  # noqa: E731
    monkeypatch.setattr(KeptVectors, "__call__", counted)
    monkeypatch.setattr("contrasent.cli.encode.AT_ONCE", 2)
    text = "\n".join([*LINES[:2], "", *LINES[2:], LINES[0]])
    said = json.loads(
        run("encode", MINILM, "-", "-o", tmp_path / "v.npy", "--json", "--quiet", stdin=text)
    )
    assert (said["texts"], said["blank_lines"], said["computed"]) == (6, 1, 5)
    assert sizes == [2, 2, 2]
    wanted = reference()
    assert np.load(tmp_path / "v.npy") == pytest.approx(wanted[[*range(5), 0]], abs=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]


def test_encode_goes_on_after_a_kill(tmp_path, models):
    """What was encoded is kept next to the file; another input takes of it what is the same."""
    from contrasent.encoder.encoder import TorchEncoder
    from contrasent.search.opening import KeptVectors

    long, order = tmp_path / "long.txt", np.random.default_rng(0).permutation(300)
    long.write_text("".join(f"{LINES[n % 5][:-1]} {n}.\n" for n in order))
    model, target = models / "mean", tmp_path / "v.npy"
    command = ("encode", model, long, "-o", target)
    done, put = [], KeptVectors.put

    def killed(self, texts, vectors):
        put(self, texts, vectors)
        done.extend(texts)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contrasent.cli.encode.AT_ONCE", 270)
        patch.setattr(KeptVectors, "put", killed)
        assert invoke(*command).exit_code == 130
        assert not target.exists() and len(done) == 270
    assert printed(*command)["computed"] == 30
    texts = long.read_text().splitlines()
    assert np.load(target) == pytest.approx(TorchEncoder.load(model).encode(texts), abs=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.txt", "v.npy"]


def test_encode_reports_truncation(tmp_path):
    (tmp_path / "long.txt").write_text("word " * 400 + "\nshort\n")
    result = invoke("encode", MINILM, tmp_path / "long.txt", "-o", tmp_path / "v.npy", "--unit")
    assert "1 of 2 texts were truncated to" in result.stderr
    norms = np.linalg.norm(np.load(tmp_path / "v.npy"), axis=1)
    assert norms == pytest.approx([1, 1])


def test_encode_takes_a_column(tmp_path, lines):
    rows = "".join(f'"k{number}","{line}"\n' for number, line in enumerate(LINES))
    (tmp_path / "t.csv").write_text("key,body\n" + rows)
    run("encode", MINILM, tmp_path / "t.csv", "-o", tmp_path / "v.npy", "--column", "body")
    assert np.load(tmp_path / "v.npy") == pytest.approx(reference(), abs=1e-5)
    run("encode", MINILM, tmp_path / "t.csv", "-o", tmp_path / "w.npy")  # keys are no text
    assert np.load(tmp_path / "w.npy") == pytest.approx(reference(), abs=1e-5)
    (tmp_path / "t.csv").write_text("one,two\na map,a lamp\na boat,a train\n")
    with pytest.raises(InputError, match=r"2 columns of text \(one, two\); choose one with --col"):
        run("encode", MINILM, tmp_path / "t.csv", "-o", tmp_path / "x.npy")


def test_similarity_is_the_cosine():
    one, two = reference()[:2].astype(float)
    wanted = sum(one * two) / math.sqrt(sum(one * one) * sum(two * two))
    assert run("similarity", MINILM, LINES[0], LINES[1]) == f"{wanted:.4f}\n"
    said = printed("similarity", MINILM, LINES[0], LINES[1])
    assert said["similarity"] == pytest.approx(wanted, abs=1e-6)
    assert run("similarity", MINILM, "same", "same") == "1.0000\n"


def test_search_finds_the_near_text(built):
    shown = run("search", built, "boiling water for tea", "-k", 2)
    rows = shown.splitlines()
    assert len(rows) == 4
    assert {row[5:] for row in rows[::2]} == set(LINES[:2])
    (lines := built.parent / "queries.txt").write_text("a pet\n")
    said = printed("search", built, "monetary", "policy", "--query-file", lines, "-k", 2)
    money, pet = said["results"]
    assert money["query"] == money["searched"] == "monetary policy"  # words are one query
    assert {hit["text"] for hit in money["hits"]} == {LINES[2], LINES[3]}
    assert pet["hits"][0]["text"] == LINES[4]
    assert pet["hits"][0]["id"] == "4"
    assert set(pet["hits"][0]) == HIT


def test_every_printed_score_is_in_the_json(built):
    shown = run("search", built, "monetary policy")
    (result,) = printed("search", built, "monetary policy")["results"]
    rows = [row.split(" · ")[1] for row in shown.splitlines() if " · " in row]
    assert rows == [f"{hit['confidence']:.0f} %" for hit in result["hits"]]


def test_passages_of_a_document_are_one_entry(tmp_path):
    head = "The house\n"
    texts = ["The roof leaks. Two people mend the roof in May.", "Gutters. The roof is old."]
    rows = [
        *({"text": head + t, "document": "house.md", "body": len(head), "page": 3} for t in texts),
        {"text": "A dog lives next door. Nobody asked the dog.", "document": "dog.md", "body": 0},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("index", tmp_path / "t.jsonl", "--model", MINILM, "-o", tmp_path / "i", "--metadata", "*")
    shown = run("search", tmp_path / "i", "who mends the roof?").splitlines()
    assert shown[0] == "  1  Two people mend the roof in May."
    assert shown[1].startswith("     house.md · page 3 · ")
    assert shown[1].endswith(" · 1 more passage")
    assert len(shown) == 4 and shown[2].startswith("  2  ") and "dog" in shown[2]
    flat = run("search", tmp_path / "i", "who mends the roof?", "--flat").splitlines()
    assert len(flat) == 6 and "more" not in "".join(flat)
    found = printed("search", tmp_path / "i", "who mends the roof?")
    hits = found["results"][0]["hits"]
    assert [hit["entry"] for hit in hits] == [1, 1, 2] and hits[0]["path"] is None
    answer = hits[0]["answer"]
    assert answer["text"] == hits[0]["text"][answer["start"] : answer["end"]]
    assert [hits[0]["text"][a:b] for a, b in answer["marks"]] == ["mend", "roof"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_bold_words_a_link_and_no_orders_of_a_text(monkeypatch, tmp_path):
    from contrasent.cli.search import _entry, _printed
    from contrasent.search.answers import Answer
    from contrasent.search.index import Hit

    hit = Hit(
        "r#0", "The \x1b[31mroof.", 1.0, {"document": "a b.md", "headings": ["Up\u202e", "On"]},
        confidence=87.3,
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    lines = _entry(1, [hit, hit, hit], Answer(0, 14, ((9, 13),)), str(tmp_path / "notes"))
    plain = _printed(lines)
    assert plain.splitlines() == [
        "  1  The [31mroof.",
        "     notes/a b.md › Up\\u202e › On · 87 % · 2 more passages",
    ]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    with redirect_stdout(Terminal()):
        shown = _printed(lines)
    assert "\x1b[1mroof\x1b[0m" in shown and "\x1b[31m" not in shown
    assert re.search(rf"\x1b\]8;id=\d+;{tmp_path.as_uri()}/notes/a%20b\.md\x1b", shown)
    widths = [len(re.sub(r"\x1b(\[\d*m|\].*?\x1b\\)", "", row)) for row in shown.splitlines()]
    assert len(widths) == 3 and max(widths) <= 40
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    again = _entry(1, [hit], Answer(0, 14, ((9, 13),)), str(tmp_path / "notes"))
    assert f"{tmp_path}/notes/a b.md" in _printed(again)


def test_search_threshold_and_query_file(built, tmp_path):
    (tmp_path / "queries.txt").write_text("monetary policy\n\na pet\n")
    said = printed("search", built, "--query-file", tmp_path / "queries.txt", "--threshold", 20)
    assert [result["query"] for result in said["results"]] == ["monetary policy", "a pet"]
    sure = [hit["confidence"] for result in said["results"] for hit in result["hits"]]
    assert sure and min(sure) >= 20
    assert run("search", built, "x", "--threshold", 99) == "nothing found\n"
    for cosine in (0.4, -1, 101):
        with pytest.raises(OptionError, match="from 1 to 100 percent"):
            run("search", built, "x", "--threshold", cosine)
    weak = printed("search", built, "zzqq xkcd 12345")["results"][0]
    assert weak["no_match"] and max(hit["confidence"] for hit in weak["hits"]) < 12
    assert run("search", built, "zzqq xkcd 12345").startswith("no good match\n")


def test_typing_errors_are_repaired_unless_exact(tmp_path, caplog):
    rows = [*LINES, "The central bank keeps a dog.", "Our dog is at the central station."]
    (tmp_path / "t.txt").write_text("\n".join(rows))
    run("index", tmp_path / "t.txt", "--model", MINILM, "-o", tmp_path / "i", "--quiet")
    (result,) = printed("search", tmp_path / "i", "centrl", "bank")["results"]
    assert (result["query"], result["searched"]) == ("centrl bank", "central bank")
    shown = run("search", tmp_path / "i", "centrl", "bank")
    assert shown.startswith(
        "showing results for central bank; to search for centrl bank, add --exact\n"
    )
    (result,) = printed("search", tmp_path / "i", "centrl", "bank", "--exact")["results"]
    assert result["searched"] == "centrl bank"
    search_index(tmp_path / "i", ["a dog", "centrl bank"])
    assert caplog.messages == ["searched for 'central bank', not 'centrl bank'"]


def test_search_refuses_another_model(built, models):
    with pytest.raises(ModelError, match="cannot be compared"):
        run("search", built, "x", "--model", models / "mean")


def test_outputs_are_never_overwritten_unasked(tmp_path, lines, models):
    target = tmp_path / "v.npy"
    target.write_text("precious")
    with pytest.raises(OutputError, match="exists"):
        run("encode", models / "mean", lines, "-o", target)
    assert target.read_text() == "precious"
    run("encode", models / "mean", lines, "-o", target, "--overwrite")
    assert np.load(target).shape == (5, 32)


WRONG = [
    ("encode {m} {t} -o {d}/v.txt", OptionError, "must end in .npy or .parquet"),
    ("encode {m} {d}/no.txt -o {d}/v.npy", InputError, "no.txt"),
    ("encode {d}/no {t} -o {d}/v.npy", ModelError, "no such"),
    ("encode {m} {t} -o /proc/x/v.npy", OutputError, "/proc/x"),
    ("index {d}/no.txt --model {m} -o {d}/i", InputError, "no.txt"),
    ("index {t} --model {d} -o {d}/i", ModelError, "not a model folder"),
    ("index {t} --model {m} -o {d}/i --metric l2", OptionError, "cosine"),
    ("index {t} --model {m} -o {d}/i --id key", OptionError, "have no names"),
    ("index {t} --model {m} -o {d}/i --column 3", OptionError, "columns 0 to 0"),
    *(
        (f"index {{t}} --model {{m}} -o {{d}}/i {option}", OptionError, "is for documents; here")
        for option in ("--id 0 --exclude x", "--encoding latin-1", "--column 0 --as-text *.a")
    ),
    *(
        (f"index {{t}} --model {{m}} -o {{d}}/i --watch{option}", OptionError, words)
        for option, words in {"": "follows documents", " --json": "--json.*with --watch"}.items()
    ),
    ("index {t} --model {m} -o {d}/i --milvus-collection x", OptionError, "needs --milvus-uri"),
    ("encode {m} {t} -o {d}/v.npy --worker-gpus 1", OptionError, "needs --engine ray"),
    ("encode {m} {t} -o {d}/v --timeout 5", OptionError, "--timeout '5.0': needs --engine ray"),
    ("encode {m} {d} -o {d}/in/v", OptionError, "is inside INPUT"),
    ("encode {m} {d}/** -o {d}/in/v", OptionError, "is inside INPUT"),
    (
        "encode {m} {d} -o {d}/.v.parquet",
        InputError,
        "contains no text",
    ),  # hidden ones are not read
    ("index  -o {d}/i", OptionError, "INDEX '': is empty"),
    ("search  x", OptionError, "INDEX '': is empty"),
    ("train {t} -o ", OptionError, "-o '': is empty"),
    ("dedupe {i} --output=", OptionError, "-o '': is empty"),
    ("index {t} --model {m} -o {d}/i --milvus-uri ", OptionError, "--milvus-uri '': is empty"),
    ("index {t} -o {d}/i --model ", OptionError, "--model '': is empty"),
    ("index {t} -o {d}/i --exclude x --exclude ", OptionError, "--exclude '': is empty"),
    ("index {t} -o {d}/i --checksum", UserError, "--checksum 'True': needs --sync"),
    ("search {d} x", InputError, "no index"),
    ("search {d}/no x", InputError, "no such folder"),
    ("search {i} x -k 0", OptionError, "at least 1"),
    ("search {i}", OptionError, "give a query"),
    ("search {i} --query-file {d}/no", InputError, "no such file"),
    ("search {i} ", OptionError, "is empty; give a query"),
    ("similarity {d}/no a b", ModelError, "no such"),
    ("index {t} --model {m} -o {i} --add --upsert", UserError, "cannot be combined with --upsert"),
    ("index {t} --model m -o {i} --add --overwrite", UserError, "cannot be combined with --add"),
    ("index {t} --model {m} -o {i} --upsert", UserError, "needs --id"),
    ("index {t} --model {m} -o {d}/no --add", UserError, "no such folder"),
    ("search {i} x --where year", UserError, "neither JSON nor"),
    ("index {i} {t} --remove 0", UserError, "cannot be combined with --remove"),
    ("index {i} {t} --model {m}", OptionError, "SOURCE .*cannot be combined with --model"),
    ("index {d}", UserError, "--output/-o .*is missing"),
    ("index {d}/no --model {m}", UserError, "no such folder"),
    ("index {i} --model {d}/no", ModelError, "no such"),
    *(
        (f"index {{i}} --sync {option}", UserError, f"{option.split()[0]}.* combined with --sync")
        for option in ("--as-text *.a", "--vectors-only", "-o x", "--upsert", "--id a")
    ),
    *(
        (f"index {{i}} {change} --metric dot", UserError, "^--metric 'dot': cannot be combined")
        for change in ("--sync", "--watch", "--list", "--remove 0", "--model {m}")
    ),
    ("index {i} --list --max-seq-length 5", UserError, "--max-seq-length '5': cannot be combined"),
    ("index {t} -o {i} --add --metric dot", UserError, "--metric 'dot': cannot be combined with"),
    ("index {t} --model {m} -o {d}/i --bm25-weight 0.3 --vectors-only", OptionError, "--vectors"),
    ("index {t} --model {m} -o {i}", OutputError, "exists"),
    ("index {i} --remove nobody", UserError, "neither a row nor"),
    ("index {i} --remove-where year", UserError, "neither JSON nor"),
    ("index {d} --remove 0", UserError, "no index"),
]


@pytest.mark.parametrize(("line", "error", "words"), WRONG)
def test_bad_input_costs_no_torch(line, error, words, tmp_path, lines, built, monkeypatch):
    """Each is refused with one line before torch would be imported."""
    monkeypatch.setitem(sys.modules, "contrasent.encoder.encoder", None)
    names = {"t": lines, "d": tmp_path, "i": built, "m": MINILM}
    with pytest.raises(error, match=words) as caught:
        run(*line.format(**names).split(" "))
    assert isinstance(caught.value, UserError)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rows", "words"), [
    ('{"text": "a"}\n{"text": 3}\n', r"t\.jsonl:2: column .text. contains 3, not text"),
    ('{"text": "a", "id": null}\n', r"t\.jsonl:1: the id is empty"),
    ('{"text": "a", "id": "x"}\n{"text": "b", "id": "x"}\n', r"t\.jsonl:2: id 'x' is repeated"),
    ("", "found no text"),
])  # fmt: skip
def test_bad_rows_leave_no_index(tmp_path, rows, words):
    (tmp_path / "t.jsonl").write_text(rows)
    options = ["--id", "id"] if '"id"' in rows else ["--column", "text"] if rows else []
    with pytest.raises(UserError, match=words):
        run("index", tmp_path / "t.jsonl", "--model", MINILM, "-o", tmp_path / "index", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_index_grows_changes_and_shrinks(tmp_path, models):
    def write(rows):
        (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def found(*options):
        (result,) = printed("search", folder, "x", "-k", 99, *options)["results"]
        return {hit["id"]: hit["text"] for hit in result["hits"]}

    folder, source = tmp_path / "index", tmp_path / "t.jsonl"
    index = ("index", source, "--model", models / "mean", "-o", folder)
    command = (*index, "--id", "id", "--metadata", "n")
    write([{"id": "a", "text": "one", "n": 1}, {"id": "b", "text": "two", "n": 2}])
    run(*command)
    write([{"id": "b", "text": "deux", "n": 3}, {"id": "c", "text": "trois", "n": 4}])
    with pytest.raises(OptionError, match="in the index already"):
        run(*command, "--add")
    assert found() == {"a": "one", "b": "two"}
    run(*command, "--upsert")
    assert found() == {"a": "one", "b": "deux", "c": "trois"}
    assert found("--where", "n>=3") == {"b": "deux", "c": "trois"}
    assert found("--where", "n>=3", "--where", '{"n": {"$ne": 4}}') == {"b": "deux"}
    write([{"id": "d", "text": "four", "n": 5}])  # by the columns that the index was made with
    run(*index, "--add")
    assert set(found().values()) == {"one", "deux", "trois", "four"}
    removed = run("index", folder, "--remove", "a", "--remove-where", "n=4")
    assert removed.endswith("2 rows removed, 2 left\n")
    assert set(found().values()) == {"deux", "four"}


def test_words_count_as_the_index_says_or_the_search(tmp_path, lines, built):
    found = printed("search", built, "vacuum", "--bm25-weight", "1", "-k", 1)
    assert found["bm25_weight"] == 1 and found["results"][0]["hits"][0]["text"] == LINES[4]
    assert printed("search", built, "vacuum")["bm25_weight"] == 0.12
    folder = tmp_path / "index"
    made = printed("index", lines, "--model", MINILM, "-o", folder, "--bm25-weight", "0.4")
    assert made["bm25_weight"] == 0.4
    (result,) = printed("search", folder, "dog")["results"]
    assert result["hits"][0].keys() == HIT
    alone = printed("search", folder, "dog", "--vectors-only")
    assert alone["bm25_weight"] == 0
    for hit in alone["results"][0]["hits"]:
        assert hit["score"] == hit["cosine"] and hit["bm25"] == 0


def test_an_index_in_a_folder_is_found(built, tmp_path):
    shutil.copytree(built, tmp_path / "mine" / "index")
    shown = run("search", tmp_path / "mine", "dog", "-k", 1)
    assert shown == run("search", built, "dog", "-k", 1)
    assert "1 rows removed" in run("index", tmp_path / "mine", "--remove", "0")
