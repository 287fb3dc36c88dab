"""Everything a user can get wrong: one line that names it and says what to do, exit code 2."""

import io
import json
import re
import sys

import pytest

from commands import mounted
from contrasent.cli import main
from contrasent.cli.options import Output, _print

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture
def refused(run, tmp_path):
    """A command that must be refused, with all of these words in its one line."""

    def refused(*arguments, words, **stdin):
        before = snapshot(tmp_path)
        out, err = run(*arguments, code=2, **stdin)
        assert out == ""
        lines = err.splitlines()
        assert len(lines) == 1, err
        assert lines[0].startswith("contrasent: ")
        for word in words:
            assert word in lines[0]
        # Nothing that was there is lost, and no part of a model is there.
        after = snapshot(tmp_path)
        assert {path: after.get(path) for path in before} == before
        assert not [path for path in after if path.endswith(".safetensors") and path not in before]
        return lines[0]

    return refused


def snapshot(folder):
    files = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture
def good(tmp_path, sentences):
    path = tmp_path / "good.txt"
    path.write_text("\n".join(sentences[:40]) + "\n")
    return path


@pytest.fixture
def train(refused, bert):
    """``contrasent train`` with the tiny encoder, which must be refused."""

    def train(corpus, *more, words, **options):
        return refused("train", corpus, "-o", "m", "--base", bert, *more, words=words, **options)

    return train


TABLE = b"question,answer\nwhy?,because\n"
REFUSED = [
    ("absent.txt", None, "absent.txt: no such file"),
    ("goood.txt", None, "goood.txt: no such file|did you mean 'good.txt'?"),
    ("empty.txt", b"", "empty.txt: the file is empty"),
    ("latin.txt", b"a line\n\nna\xefve Latin-1\n",
     "latin.txt:3: byte 0xef at character 3 is not UTF-8|iconv -f WINDOWS-1252"),
    ("wide.txt", "one\ntwo\n".encode("utf-16"), "wide.txt:1: |iconv -f UTF-16"),
    ("uneven.csv", TABLE + b"how?,so,indeed\n", "uneven.csv: only one row|1 rows skipped: more "
     "cells than there are columns (uneven.csv:3)"),
    ("names.csv --columns question,anser", TABLE + b"how?,so\n",
     "columns 'anser': unknown column of names.csv; did you mean 'answer'?"),
    ("names.csv --documents", TABLE + b"how?,so\n",
     "documents True: needs a column of sentences; names.csv has question, answer"),
    ("notes.pdf", b"%PDF", "notes.pdf: unknown format|.txt"),
    ("book.xlsx", b"PK", "unknown format (suffix .xlsx); save its sheet as CSV; supported: .txt"),
    ("folder", None, "folder: the folder contains no text"),
    ("-", b"", "standard input: the file is empty"),
    ("-", b"alone\n", "standard input: only one row"),
    ("-", b"one\ntwo \xff\n", "standard input:2: byte 0xff"),
    ("good.txt --evaluate labels.tsv", b"one\ttwo\tscore\na\tb\t4.5\nc\td\thigh\n",
     "labels.tsv:3: label 'high' is not a number (column 'score')"),
    ("good.txt --objective simsce", None, "--objective 'simsce': |did you mean 'simcse'?"),
    ("good.txt --set temprature=1", None, "--set 'temprature': |did you mean 'temperature'?"),
    ("good.txt --set learning_rate=-1", None, "learning_rate '-1': must be greater than 0"),
    ("good.txt --set pooling=maen", None, "pooling 'maen': |did you mean 'mean'?"),
    ("good.txt --set learning_rate", None, "--set 'learning_rate': write key=value"),
    ("good.txt --evaluate heldot", None, "--evaluate 'heldot': |did you mean 'heldout'?"),
    ("good.txt --evaluate heldout", None, "needs a corpus of pairs"),
    ("good.txt --set batch_size=1", None, "fewer than two sentences per batch"),
    ("good.txt --config no.toml", None, "no.toml: cannot be read (No such file"),
    *(("good.txt --config mine.toml", text, words) for text, words in (
        (b"objective = ", "mine.toml: not valid TOML"),
        (b"[setings]\nlearning_rate = 1",
         "mine.toml:1: unknown key 'setings'|did you mean 'settings'"),
        (b'objective = "simcse"\nbase = 3', "mine.toml:2: base must be a text, it is 3"),
        (b"columns = 1", "mine.toml:1: columns must be a text or a list, it is 1"),
        (b"settings = 3", "mine.toml:1: settings must be a table, it is 3"),
        (b"[settings]\nlearning = 1", "mine.toml: 'learning': unknown setting"),
        (b'[settings]\nlearning_rate = "high"', "learning_rate 'high': must be of type float"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("line", "content", "words"), REFUSED)
def test_a_training_that_cannot_be(train, good, tmp_path, line, content, words):
    """The content is that of the file that is named last."""
    corpus, *more = line.split()
    (tmp_path / "folder").mkdir()
    if content is not None and line != "-":
        (tmp_path / (more[-1] if more and "." in more[-1] else corpus)).write_bytes(content)
    train(corpus, *more, words=words.split("|"), stdin=content or b"")


def test_after_mending_the_file_the_same_command_works(train, run, bert, tmp_path):
    path = tmp_path / "notes.tsv"
    path.write_text("question\tanswer\n" + "why?\tbecause\n" * 20 + "how?\tso\0\n")
    asked = ["--set", "max_steps=2", "--evaluate", "none"]
    train("notes.tsv", *asked, words=["notes.tsv:22: the text contains a NUL byte"])
    path.write_text("question\tanswer\n" + "why?\tbecause\n" * 20 + "how?\tso\n")
    out, _ = run("train", "notes.tsv", "-o", "m", "--base", bert, *asked)
    assert out.split(",")[0] == "m: 2 steps"


def test_a_line_of_a_megabyte_works(run, bert, tmp_path):
    lines = ["kettle " * 150_000, "a map", "the violin", "two lamps"]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    asked = ["--set", "max_steps=2", "--set", "batch_size=4"]
    assert "Traceback" not in run("train", "long.txt", "-o", "m", "--base", bert, *asked)[1]
    assert '"cut": 1' in (tmp_path / "m" / "README.md").read_text()


def test_models(refused, good, tmp_path):
    def model(base, *words):
        refused("train", good.name, "-o", "m", "--base", base, words=words)

    (tmp_path / "papers").mkdir()
    model("papers", "papers: not a model folder (neither modules.json nor config.json in it)")
    model("./paper", "no such file or folder", "did you mean 'papers'?")
    model("good.txt", "good.txt")
    for command in (
        ("encode", "papers", good.name, "-o", "v.npy"),
        ("similarity", "papers", "a", "b"),
    ):
        refused(*command, words=["papers: not a model folder"])


@pytest.mark.parametrize(("options", "words"), [
    ("size=200k", ["MB are needed and", "MB are free; free some space or choose another"]),
    ("ro", ["cannot write (Read-only file system); choose another target, or change"]),
], ids=["full", "read-only"])  # fmt: skip
def test_targets(refused, good, bert, tmp_path, options, words):
    with mounted(tmp_path / "disk", options):
        refused("train", good.name, "-o", "disk/m", "--base", bert, words=["disk/m: ", *words])


def test_targets_that_hold_something(refused, good, bert, tmp_path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("years of work")
    for more, word in (
        ([], "papers: contains 'thesis.txt'"),
        (["--resume"], "contains 'thesis.txt' and no run to resume"),
        (["--overwrite"], "contains 'thesis.txt' and no model"),
    ):
        refused("train", good.name, "-o", "papers", "--base", bert, *more, words=[word])
    words = ["thesis.txt: cannot write (File exists)"]
    refused("train", good.name, "-o", "papers/thesis.txt", "--base", bert, words=words)


def test_a_run_is_not_overwritten_unasked(run, refused, good, bert):
    asked = ["train", good.name, "-o", "m", "--base", bert, "--set", "max_steps=2"]
    run(*asked)
    refused(*asked, words=["m: already contains a run; --resume continues it, --overwrite starts"])
    words = ["m: the run there has max_steps 2, now it is 3; use the same, or"]
    refused(*asked[:-1], "max_steps=3", "--resume", words=words)
    run(*asked, "--resume")
    run(*asked, "--overwrite")


UNPARSED = {
    "trian": "no such command 'trian'. Did you mean 'train'?",
    "xyzzy": "no such command 'xyzzy'; see 'contrasent --help'",
    "train x.txt -o m --sed 1": "no such option: --sed (Possible options: --base, --seed",
    "train x.txt -o m --recipe a.toml": "no such option: --recipe; use --config",
    "encode m x.txt -o v.npy --max-tokens 9": "--max-tokens; use --max-seq-length",
    "train x.txt -o m --lr 1": "no such option: --lr; use --set learning_rate=...",
    "train x.txt -o m --learning-rate 1": "--learning-rate; use --set learning_rate=...",
    "train x.txt -o m --temp 1": "no such option: --temp; use --set temperature=...",
    "train x.txt -o m --fp16": "no such option: --fp16; use precision=fp16",
    "train x.txt -o m --loss simcse": "no such option: --loss; use --objective",
    "search i x --top-k 3": "no such option: --top-k; use -k",
    "train --bogus 1": "no such option: --bogus (Possible options: --base",
    "--versin train": "no such option: --versin (Possible options: --version)",
    "train -x": "no such option: -x; see 'contrasent train --help'",
    "train": "CORPUS is missing (txt, csv|'contrasent train --help'",
    "encode m": "INPUT is missing (File, ",
    "adapt x": "--output/-o (folder for the index and the report) is missing",
    "encode m x -o": "option '-o' requires an argument; see 'contrasent encode --help'",
    "train --resume=3": "option '--resume' does not take a value",
    "train a b -o m": "a: no such file or folder",
    "train x.txt -o m --seed abc": "--seed 'abc': must be a whole number",
    "diff a b --on x --seed -1": "--seed '-1': must be greater than or equal to 0",
    "demo --only part": "--only 'part': 'part' is not one of 'learn', 'search'",
    "serve m --timeout soon": "--timeout 'soon': must be a number",
    "encode m x -o y --batch-size 0": "--batch-size '0': must be greater than or equal to 1",
}


@pytest.mark.parametrize("line", UNPARSED)
def test_a_line_that_cannot_be_parsed(refused, line):
    refused(*line.split(), words=UNPARSED[line].split("|"))


@pytest.mark.parametrize(("line", "option"), [
    ("search idx", "QUERY"), ("index idx --remove", "--remove"), ("similarity m a", "B"),
    ("encode m - -o v.npy --prompt", "--prompt"),
])  # fmt: skip
def test_texts_with_bytes_that_are_no_characters(refused, line, option):
    words = [f"{option} b'caf\\xe9 roof': is not UTF-8"]
    refused(*line.split(), "caf\udce9 roof", words=words)
    refused("search", "idx\udce9", "roof", words=["no such folder"])  # a path may have any bytes


def test_what_the_locale_cannot_write_is_escaped(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr("contrasent.cli.app.run", lambda words: print("caf\u00e9 \u203a roof"))
    with pytest.raises(SystemExit):
        main([])
    stream.flush()
    assert stream.buffer.getvalue() == b"caf\xe9 \\u203a roof\n"
    stream.buffer.truncate(stream.buffer.seek(0))
    said = {"text": "caf\u00e9 \u203a roof \U0001f600"}
    _print(Output(said, ""), as_json=True)
    assert json.loads(stream.buffer.getvalue()) == said


def test_help_is_no_error_and_shows_brackets_methods_and_settings(run):
    for arguments, words in (
        (["--help"], ("contrasent",)),
        (["search", "--help"], ("[default: 10]",)),
        (["train", "--help"], ("[settings]", "[default: proven;", "esimcse: ESimCSE",
                               "batch_size=64, gradient_accumulation_steps=1")),
    ):  # fmt: skip
        out, err = run(*arguments)
        assert err == ""
        shown = " ".join(out.replace("│", " ").split())
        assert all(word in shown for word in words)


def test_nothing_from_outside_gives_orders_to_a_terminal(run, bert, tmp_path):
    order, turned = "\x1b]0;PWNED\x07\x9b2J", "\u202egnp.exe\u2069"
    notes, moved = tmp_path / f"notes{order}", tmp_path / "moved"
    notes.mkdir()
    text = f"The clerk hid {order} a \u05d0\u200f, torn{turned} map.\n"
    (notes / f"a{order}{turned}.md").write_text(f"# Head{order}{turned}\n\n{text}")
    (notes / f"b{order}\n{turned}.xyz").write_bytes(bytes(range(256)))
    (notes / f"c{turned}.csv").write_text(f'id,text{order}\n1{order},"{text.strip()}"\n')
    commands = [
        ("index", notes, "-o", f"ix{turned}", "--model", bert, "--pooling", "mean"),
        ("search", f"ix{turned}", "a torn map", f"hid{order}"),
        ("search", f"ix{turned}", f"hid{order}", "--json"),
        ("doctor", f"ix{turned}"),
        ("dedupe", f"ix{turned}", "--min-cosine", "0"),
        ("index", f"ix{turned}", moved, "--sync"),
        ("similarity", f"no{order}{turned}", "a", "b"),
        ("search", f"ix{turned}", "a", "--where", f"x{order}>1{turned}"),
        ("search", f"ix{turned}", "a", f"--no{order}{turned}"),
        ("index", f"no{order}{turned}", "-o", "other"),
    ]
    seen = {}
    for number, command in enumerate(commands):
        out, err = run(*command, code=0 if number < 5 else 2)
        orders = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202e\u2069]"
        assert not re.findall(orders, out + err), command
        seen[number] = out + err
    assert "b\\u001b]0;PWNED\\u0007\\u009b2J\\u000a\\u202egnp.exe\\u2069.xyz" in seen[0]
    assert "a \u05d0, torn\\u202egnp.exe" in seen[1]
    hits = json.loads(seen[2])["results"][0]["hits"]
    assert hits[0]["metadata"]["document"] in {f"a{order}{turned}.md", f"c{turned}.csv#1{order}"}
