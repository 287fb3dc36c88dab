"""``contrasent reproduce`` from the shell."""

import csv
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from killed_reproductions import OTHER, RECIPE

from contrasent import postprocess
from contrasent.errors import DataError
from contrasent.evaluate.transfer import SOLVERS
from contrasent.postprocess import whiten
from contrasent.report import Items, Report, Row
from contrasent.reproduce.measures import MEASURES
from contrasent.reproduce.results import ItemResults
from contrasent.reproduce.run import _share
from contrasent.reproduce.store import ResultStore
from contrasent.reproduce.strict import HERE
from contrasent.reproduce.tables import ItemFolder

SWEEP = 'figure = "sweep"\nsweep = "percent"\n'
FACTS = """
title = "What was used"
source = "our own"
about = "Facts for tests."
cost = "none"

[columns.size]
title = "parameters"

[[rows]]
name = "a small model"
facts = { size = "13.6 M" }
"""
BLOCKED = """
[[rows]]
name = "never"
blocked = "its data were never published"
expected = { made = 1.0 }

[[rows]]
name = "large"
encoder = "bert-large-uncased"
pooling = "cls"
expected = { made = 2.0 }

[[rows]]
name = "whitened"
encoder = "@base"
pooling = "mean"
postprocess = { kind = "whitening", corpus = "wiki" }
expected = { made = 5.0 }

[[rows]]
name = "through a flow"
encoder = "@base"
pooling = "mean"
postprocess = { kind = "flow", corpus = "wiki", sentences = 80 }
expected = { made = 6.0 }

[[rows]]
name = "theirs"
quote = true
source = "a letter"
expected = { made = 3.0 }

[[rows]]
name = "filled in"
use = "unsup"
set = { view = "masked_lm", filler = "@base" }
expected = { made = 4.0 }

[[claims]]"""


SPEED = OTHER.replace('kind = "sts"\ntasks = ["STSB"]', 'kind = "speed"').replace(
    'metric = "spearman"', 'metric = "seconds_per_step"'
)
pytestmark = pytest.mark.early


RESULTS = Path(__file__).parents[2] / "research" / "reproduction" / "results"
PUBLISHED = ("simcse:table5", "--from", RESULTS)

WHITENED = """
title = "Two measurements of whitened vectors"
source = "our own"
about = "An item for tests."
cost = "light"
fresh_samples = true
evaluations.first = { kind = "sts", tasks = ["STSB"] }
evaluations.second = { kind = "sts", tasks = ["STS12"] }
columns.made = { evaluation = "first", metric = "spearman" }
columns.again = { evaluation = "second", metric = "spearman" }

[[rows]]
name = "whitened"
encoder = "@base"
pooling = "mean"
postprocess = { kind = "whitening", corpus = "wiki", sentences = 60 }
"""


@pytest.fixture
def call(run):
    return partial(run, "reproduce")


@pytest.fixture
def home(tmp_path, monkeypatch, sentences):
    """Recipes, a data folder with a corpus, and a made measure."""
    recipes = tmp_path / "recipes"
    for paper, item, text in (
        ("simcse", "table1", SWEEP + RECIPE.replace("[[claims]]", BLOCKED, 1)),
        ("simcse", "table2", OTHER),
        ("study", "table1", FACTS),
    ):
        (recipes / paper).mkdir(parents=True, exist_ok=True)
        (recipes / paper / f"{item}.toml").write_text(text)
    wiki = tmp_path / "data" / "wiki" / "wiki1m_for_simcse.txt"
    wiki.parent.mkdir(parents=True)
    wiki.write_text("\n".join(sentences[:90]) + "\n")
    monkeypatch.setenv("CONTRASENT_DATA", str(tmp_path / "data"))

    def made(encode, folder, **options):
        vectors = encode(sentences[:12]).astype(float)
        row = Row("STSB", "test", "spearman", "all", float(np.sin(50 * vectors.sum())), 12)
        items = Items("mean", np.arange(12, dtype=np.uint64), vectors[:, :1].T)
        return Report((row,), {}, {row.key: items})

    for kind, measure in MEASURES.items():
        monkeypatch.setitem(MEASURES, kind, replace(measure, reads=lambda folder, **options: ()))
    monkeypatch.setitem(MEASURES, "sts", replace(MEASURES["sts"], run=made))
    return tmp_path


def without_times(book):
    for item in book["items"]:
        del item["run"]
    return book["items"]


@pytest.mark.slow
def test_from_a_recipe_to_a_page(call, home, bert):
    common = ["--recipes", "recipes", "--json-file", "book.json", "--report", "book.md"]
    run = ["all", "--scale", "lab", "--base", bert, "--results", "results"]
    out, err = call(*run, "--seeds", 2, *common)
    # The base with two poolers, three trained rows and a row that cannot be, with two seeds each.
    assert "10 of 10 jobs to do in results" in err
    items = without_times(json.loads((home / "book.json").read_text()))
    names = [item["name"] for item in items]
    assert names == ["simcse:table1", "simcse:table2", "study:table1"]
    first = items[0]
    rows = {row["name"]: row for row in first["rows"]}
    counts = {n: len(row["cells"]["made"].get("values", [])) for n, row in rows.items()}
    assert list(counts.values()) == [1, 2, 2, 2, 0, 0, 1, 2, 0, 0], counts
    assert rows["never"]["skipped"] == "its data were never published"
    assert "needs --checkpoint bert-large-uncased=FOLDER" in rows["large"]["skipped"]
    assert "masked-LM head" in rows["filled in"]["skipped"]
    assert rows["theirs"]["source"] == "a letter"
    # At scale lab a value is not compared with the document's, a direction is.
    crop = rows["crop 20"]["cells"]["made"]
    plain = rows["plain"]["cells"]["made"]
    gap = crop["difference"]
    assert gap["ours"] == pytest.approx(crop["ours"] - plain["ours"], abs=1e-3)
    assert gap["low"] < gap["ours"] < gap["high"]
    assert gap["paper"] == crop["paper"] - plain["paper"]
    assert crop["sd"] == pytest.approx(np.std(crop["values"], ddof=1), abs=1e-3)
    assert "difference" not in plain
    assert crop["verdict"]["word"] in ("agrees", "differs", "equivalent", "cannot tell")
    (panel,) = first["figure"]["panels"]
    assert panel["axis"] == "percent"
    assert [point["x"] for point in panel["points"]] == [20.0, 40.0]
    assert items[2]["rows"][0]["facts"] == {"size": "13.6 M"}
    assert first["scale"] == "lab"
    for text in (
        "values are not comparable",
        "missing: never: its data were never",
        f"{gap['ours']:+.2f} [{gap['low']:+.2f}, {gap['high']:+.2f}]",
        "1 thread",
        "parameters a small model 13.6 M",
    ):
        assert text in " ".join(out.split()), text
    page = (home / "book.md").read_text()
    word = first["claims"][0]["verdict"]["word"]
    for text in (
        "| a small model | 13.6 M |",
        f"| {crop['ours']:.2f} \N{PLUS-MINUS SIGN} {crop['sd']:.2f} ({crop['paper']:.0f}) |",
        f"- **{word}**: {first['claims'][0]['text']}",
    ):
        assert text in page, text
    # No path of this machine is told.
    assert str(home) not in page + (home / "book.json").read_text()
    assert str(bert) not in page + (home / "book.json").read_text()

    # Trained rows share the order of their sentences, encoders the items that they are measured on.
    (item,) = ItemFolder(home / "recipes").find(["simcse:table1"])
    scores = ItemResults(item, ResultStore(home / "results"), "lab").scores["made"]
    trained = {name: one.order for name, one in scores.items() if one.order is not None}
    assert list(trained) == ["plain", "crop 20", "crop 40"]
    assert len(set(trained.values())) == 1
    known = {name for name, one in scores.items() if len(one.draws) == 400}
    assert known == {"base", "whitened", "through a flow", *trained}
    stored = ResultStore(home / "results")
    (about,) = stored.manifest(item.name, "lab")["rows"][[*rows].index("plain")][
        "measured"
    ].values()
    runs = [stored.read("units", key)["draws"] for key in about["units"].values()]
    moves = [[float(move) for move in text.split()] for run in runs for text in run.values()]
    assert len(moves) == len(runs) == 2
    assert 100 * np.mean(moves, axis=0) == pytest.approx(scores["plain"].draws)
    assert " over test items" in page

    # The stored results alone give the same again: no data, no model, no corpus.
    shutil.rmtree(home / "data")
    shutil.rmtree(home / "results" / "corpora")
    again = ["--recipes", "recipes", "--json-file", "again.json", "--report", "again.md"]
    again += ["--figures", "figures", "--report", "t.tex", "--report", "t.csv"]
    told, err = call("all", "--from", ".", *again)  # they are in its folder "results"
    cells = list(csv.DictReader((home / "t.csv").read_text().splitlines()))
    entries = [
        (item["name"], row["name"], column, str(cell.get("ours", "")), str(cell.get("paper", "")))
        for item in json.loads((home / "again.json").read_text())["items"]
        for row in item["rows"]
        for column, cell in row["cells"].items()
    ]
    keys = ("item", "row", "column", "ours", "paper")
    assert entries == [tuple(cell[key] for key in keys) for cell in cells]
    tex = (home / "t.tex").read_text()
    assert tex.count(r"\toprule") == tex.count(r"\bottomrule") == tex.count(r"\end{table}") > 0
    (wide,) = {line.count("&") for line in tex.split(r"\midrule")[1].split("\\bottomrule")[0]
               .strip().splitlines()}  # fmt: skip
    assert wide == tex.split(r"\begin{tabular}{l")[1].split("}")[0].count("r")
    assert told == out
    assert without_times(json.loads((home / "again.json").read_text())) == items
    assert (home / "again.md").read_text() == page
    (drawn,) = (home / "figures").iterdir()
    assert drawn.name == "simcse-table1.svg"
    assert ElementTree.fromstring(drawn.read_text()).tag.endswith("svg")


@pytest.mark.slow
def test_seeds_that_were_run_stay_and_another_base_is_refused(call, home, bert, tiny):
    run = ["simcse:table2", "--recipes", "recipes", "--scale", "lab", "-q"]
    _, err = call(*run, "--base", bert, "--seeds", 2, "--json-file", "two.json")
    _, err = call(*run, "--base", bert, "--seeds", 1, "--json-file", "one.json")
    two, one = (json.loads((home / f"{name}.json").read_text()) for name in ("two", "one"))
    assert without_times(one) == without_times(two)
    _, err = call(*run, "--base", tiny["distilbert"], code=2)
    assert "from the base 'bert', not 'distilbert'; choose another" in err
    _, err = call(*run, "--base", bert, "--set", "dropout=0.2", "--sentences", 50, code=2)
    assert "with the scale's own settings, not with dropout 0.2, sentences 50" in err
    other = ["--results", "other", "--set", "dropout=0.2", "--json-file", "other.json"]
    _, err = call(*run, "--base", bert, "--seeds", 2, *other)
    (item,) = json.loads((home / "other.json").read_text())["items"]
    assert item["changes"] == {"dropout": 0.2}
    base, plain, _ = (row["cells"]["made"]["values"] for row in item["rows"])
    was = [row["cells"]["made"]["values"] for row in two["items"][0]["rows"]]
    assert base == was[0]
    assert not set(plain) & set(was[1])


def test_without_the_data_what_is_stored_stays_in_the_report(call, home, bert, monkeypatch):
    run = [
        "simcse:table2",
        "--recipes",
        "recipes",
        "--base",
        bert,
        "--scale",
        "lab",
        "--seeds",
        1,
        "-q",
    ]

    def told():
        call(*run, "--json-file", "told.json")
        return without_times(json.loads((home / "told.json").read_text()))

    def lost(folder, **options):
        raise DataError("no test set")

    first = told()
    monkeypatch.delenv("CONTRASENT_DATA")  # of the trained rows, which have no corpus now
    assert told() == first
    monkeypatch.setitem(MEASURES, "sts", replace(MEASURES["sts"], reads=lost))
    assert told() == first
    unit = next((home / "reproduction" / "units").glob("[!t]*"))
    unit.rename(home / "aside")
    (item,) = told()
    assert sum("no " in row["skipped"] for row in item["rows"]) == 1
    (home / "aside").rename(unit)
    assert told() == first
    path = home / "recipes" / "simcse" / "table2.toml"
    path.write_text(path.read_text().replace("max_steps = 5", "max_steps = 6"))
    (item,) = told()  # another recipe, which has no results
    assert all(row["skipped"] for row in item["rows"])


def test_a_folder_of_recipes_may_have_its_own_scales(call, home, bert):
    # The recipe says steps and batch itself, but not this.
    text = (HERE / "scales.toml").read_text().replace("max_seq_length = 32", "max_seq_length = 8")
    (home / "recipes" / "scales.toml").write_text(text)
    run = ["simcse:table2", "--recipes", "recipes", "--scale", "lab", "-q"]
    call(*run, "--seeds", 1, "--base", bert)
    records = [json.loads(p.read_text()) for p in (home / "reproduction/units").glob("train-*")]
    assert [r["settings"]["max_seq_length"] for r in records] == [8, 8]
    (home / "recipes" / "scales.toml").write_text("[labs]\n")
    _, err = call(*run, "--base", bert, code=2)
    assert "scales.toml" in err


def test_measurements_of_a_seed_share_one_fit(call, home, bert, monkeypatch):
    (home / "recipes" / "simcse" / "table3.toml").write_text(WHITENED)
    fitted = []
    monkeypatch.setattr(postprocess, "whiten", lambda x, **o: fitted.append(x) or whiten(x, **o))
    run = ["simcse:table3", "--recipes", "recipes", "--scale", "lab", "--base", bert]
    call(*run, "--seeds", 2, "-q")
    assert len([*(home / "reproduction" / "units").iterdir()]) == 4
    assert len(fitted) == 2
    assert not np.array_equal(*fitted)  # each seed draws sentences of its own


def test_an_item_in_bf16_measures_vectors_that_are_computed_in_bf16(call, home, bert):
    item = home / "recipes" / "simcse" / "table3.toml"
    run = ["simcse:table3", "--recipes", "recipes", "--scale", "lab", "--base", bert, "-q"]
    plain = WHITENED.rpartition("postprocess")[0]
    found = []
    for stated in ("", 'encode_precision = "bf16"\n'):
        item.write_text(stated + plain)
        call(*run, "--results", "both")
        found.append({p.name: json.loads(p.read_text()) for p in home.glob("both/units/*.json")})
    exact, rounded = found[0].values(), [v for k, v in found[1].items() if k not in found[0]]
    assert len(exact) == len(rounded) == 2  # nothing is shared
    moved = {one["report"]["rows"][0]["value"] for one in [*exact, *rounded]}
    assert len(moved) == 2  # both measures are of the same vectors


@pytest.mark.slow
def test_a_budget_leaves_the_rest_for_another_time(call, home, bert):
    run = ["simcse:table2", "--recipes", "recipes", "--scale", "lab", "--seeds", 2]
    stopped = [*run, "--base", bert, "--budget", "0.001s"]
    out, err = call(*stopped)
    left = int(re.search(r"(\d) jobs remain", err).group(1))
    assert left >= 4
    assert "of 2 seeds are still to run" in out
    out, err = call(*run, "--base", bert)
    assert f"{left} of 5 jobs to do" in err
    assert "still to run" not in out
    # The first seeds come before the second.
    told = re.findall(r"^\[.*? '([\w ]+)' seed (\d)", err, re.MULTILINE)
    order = [("base", "0"), ("plain", "0"), ("crop 40", "0"), ("plain", "1"), ("crop 40", "1")]
    assert told == order[-left:]


@pytest.mark.slow
def test_quality_is_followed_through_a_run(call, home, bert, sentences, monkeypatch):
    """The item on the length of training, at a tiny scale, with its figure by the same command."""
    text = (HERE / "own" / "length.toml").read_text()
    for old, new in (
        ("max_steps = 4000, save_steps = 100",
         "max_steps = 5, batch_size = 8, learning_rate = 1e-3"),
        ("every = 100", "every = 2"),
        ('aggregate = "100"', 'aggregate = "2"'),
        ("sentences = 256000", "sentences = 60"),
    ):  # fmt: skip
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (home / "recipes" / "own").mkdir()
    (home / "recipes" / "own" / "length.toml").write_text(text)

    def made(encode, *, tasks, split, form, resamples, folder):
        assert (tasks, split, resamples) == (("STSB",), "dev", 0)
        value = float(np.sin(50 * encode(sentences[:12]).astype(float).sum()))
        rows = [Row("STSB", split, m, "all", value, 12) for m in ("pearson", "spearman")]
        return Report(tuple(rows))

    monkeypatch.setattr("contrasent.reproduce.run.sts", made)
    run = ["own:length", "--recipes", "recipes", "--scale", "lab", "--seeds", 1, "-q"]
    told = ["--json-file", "book.json", "--figures", "drawn", "--base", bert]
    call(*run, *told)
    (item,) = json.loads((home / "book.json").read_text())["items"]
    rows = {row["name"]: row for row in item["rows"]}
    assert len(rows) == 8
    assert "masked-LM head" in rows.pop("DiffCSE")["skipped"]
    assert item["figure"]["rows"].keys() == rows.keys()
    for name, row in rows.items():
        seeds = item["figure"]["rows"][name]
        assert [[step for step, _ in seed] for seed in seeds] == [[0, 2, 4, 5]]
        for column, pick in (
            ("early", lambda own: own[1][1]),
            ("best", lambda own: max(value for _, value in own)),
            ("last", lambda own: own[-1][1]),
        ):
            want = [100 * pick(seed) for seed in seeds]
            assert row["cells"][column]["values"] == pytest.approx(want, abs=1e-3)
    # All begin from the same base.
    assert len({seed[0][1] for seeds in item["figure"]["rows"].values() for seed in seeds}) == 1
    drawn = (home / "drawn" / "own-length.svg").read_text()
    texts = {" ".join("".join(t.itertext()).split()) for t in ElementTree.fromstring(drawn).iter()}
    assert {*rows, "steps", "Spearman's correlation, points"} <= texts


@pytest.mark.slow
def test_two_processes_at_once(call, home, bert):
    """The speed of training is measured, which needs no data set; a made measure stays behind."""
    (home / "recipes" / "simcse" / "table2.toml").write_text(SPEED)
    run = ["simcse:table2", "--recipes", "recipes", "--scale", "lab", "--seeds", 2]
    _, err = call(*run, "--base", bert, "--jobs", 2, "--json-file", "book.json")
    assert "4 measurements in" in err
    # Each process says what it has done.
    assert len(re.findall(r"^\[\d/\d\] simcse:table2 '.*' seed [01]: ", err, re.M)) == 4, err
    (item,) = json.loads((home / "book.json").read_text())["items"]
    cells = [row["cells"]["made"] for row in item["rows"]]
    assert [len(cell.get("values", [])) for cell in cells] == [0, 2, 2]
    assert all(value > 0 for cell in cells for value in cell.get("values", []))


def leave(folder):
    """Die, unless this is the first process."""
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / "done").touch()


def test_what_a_killed_process_leaves_the_first_one_does(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    _share(partial(leave, tmp_path), 2)
    assert (tmp_path / "done").exists()


def outlive(folder: Path) -> None:
    """Stop the first process once the other has begun, which then works for a while."""
    if multiprocessing.parent_process() is None:
        while not (folder / "begun").exists():
            time.sleep(0.05)
        raise KeyboardInterrupt
    (folder / "begun").touch()
    time.sleep(20)
    (folder / "worked on").touch()


def test_helpers_stop_where_the_signal_was_ignored(tmp_path, monkeypatch):
    """As nohup and & leave it to what they start."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            _share(partial(outlive, tmp_path), 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "worked on").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopping_the_first_process_stops_all(home, bert, tmp_path, how):
    """Whoever stops it need not be a terminal, which would tell every process."""
    assert "max_steps = 5" in SPEED
    text = SPEED.replace("max_steps = 5", "max_steps = 100000")
    (home / "recipes" / "simcse" / "table2.toml").write_text(text)
    command = [sys.executable, "-m", "contrasent", "reproduce", "simcse:table2", "--seeds", "2"]
    command += ["--recipes", "recipes", "--scale", "lab", "--base", str(bert), "--jobs", "2"]
    # Where tests run in the background the signal is ignored, and what they start inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    try:
        logs = tmp_path / "reproduction" / "models"
        until = time.monotonic() + 600
        while len(list(logs.glob("*/run/log.jsonl"))) < 2:
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        lines = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in listed.split()}
        helpers = [pid for pid, line in lines.items() if "spawn_main" in line]
        process.send_signal(how)
        _, err = process.communicate(timeout=600)  # until no worker holds its end of the pipe
    finally:
        process.kill()
    assert len(helpers) == 1
    if how == signal.SIGINT:
        assert process.returncode == 130, err
        assert "stopped; saved step " in err and "; the same command continues" in err
        for helper in helpers:
            with pytest.raises(ProcessLookupError):
                os.kill(helper, 0)
    assert len(list(logs.glob("*/run/checkpoint.safetensors"))) == 2


def test_of_a_paper_only_what_is_stored_is_reported(call):
    stored = ("--from", RESULTS.parent / "contrasent-small")
    told, _ = call("own", *stored)
    items = [line.split()[0] for line in told.splitlines() if line.startswith("own:")]
    assert items == ["own:halves", "own:headlines", "own:long_rates"]
    assert "note: 20 runs of 64,000 rows in all" in told
    # The base was chosen by one headline; two halves were trained with a factor that is not theirs.
    assert "\nchosen        Unsupervised SimCSE is better than the base's averages" in told
    assert told.count("\nnot run       Contrast between dimensions") == 2
    assert "run with another recipe than the item has now" in " ".join(told.split())
    for name in ("own:length", "simcse"):
        _, err = call("own:halves", name, *stored, code=2)
        assert f"contrasent-small/results: has no results of {name}; it has own:halves, " in err


def test_the_list_needs_no_torch():
    code = "import sys; from contrasent.cli.reproduce import reproduce as run; "
    code += "run(context=None, listing=True, quiet=True); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^  (\w+:\w+) ", done.stdout.decode(), re.MULTILINE)
    assert {"simcse:table1", "simcse:figure2"} <= set(found)
    assert f"{len(found)} items".encode() in done.stdout


def test_items_are_checked(call, home):
    out, _ = call("--check", "--recipes", "recipes")
    assert out == "checked 3 items, 14 rows, 13 published values, 2 claims\n"
    out, _ = call("--check")
    assert out.startswith(f"checked {len(ItemFolder().all(settings=False))} items, ")
    out, _ = call("--check", "simcse:table2", "--recipes", "recipes")
    assert out.startswith("checked 1 items, ")
    path = home / "recipes" / "simcse" / "table2.toml"
    path.write_text(path.read_text().replace("corpus = ", "corpse = "))
    _, err = call("--check", "--recipes", "recipes", code=2)
    assert len(err.splitlines()) == 1
    assert re.search(r"table2\.toml.*corpus", err)


def test_own_scores_are_a_row(call, tmp_path):
    own, report = tmp_path / "mine.csv", RESULTS.parent.parent / "results" / "lab-unsup-0.json"
    own.write_text("task,value\nSTS12,61.2\nAvg.,66.1\n")
    out, _ = call(*PUBLISHED, "--row", own, "--row", report, "--json-file", tmp_path / "b.json")
    rows = json.loads((tmp_path / "b.json").read_text())["items"][0]["rows"]
    cells = {row["name"]: row["cells"] for row in rows}
    ours = cells["SimCSE-BERT base"]["sts12"]["ours"]
    mine = {"ours": 61.2, "seeds": 0, "difference": {"ours": round(61.2 - ours, 4)}}
    assert cells["mine"].keys() == {"sts12", "avg"}
    assert cells["mine"]["sts12"] == mine
    assert cells["lab-unsup-0"]["sts13"]["ours"] == 70.762
    assert cells["lab-unsup-0"]["sts13"]["low"] == 67.9
    assert "lab-unsup-0" in out
    for notes in ({"form": "raw"}, {"geometry": {"geometry_form": "raw; all"}}):
        other = json.loads(report.read_text()) | {"notes": notes}
        (tmp_path / "raw.json").write_text(json.dumps(other))
        _, err = call(*PUBLISHED, "--row", tmp_path / "raw.json", code=2)
        assert "has no score for a column" in err  # for another form of the data


def cells_of(call, tmp_path, item, *more):
    """The cells of the row that is added to a stored item of the small BERT."""
    stored = ("--from", RESULTS.parent / "small-bert", "--json-file", tmp_path / "b.json")
    call(item, *stored, *more)
    return json.loads((tmp_path / "b.json").read_text())["items"][0]["rows"][-1]["cells"]


def test_a_task_of_several_columns_names_none_of_them(call, tmp_path):
    own = tmp_path / "mine.csv"
    for text, columns in (("STSB,8\nstsb,9", {"stsb": 9}), ("STSB,8\nSTS-B dev,7", {"dev": 7})):
        own.write_text(f"task,value\n{text}\nSICKR,6\n")
        cells = cells_of(call, tmp_path, "own:methods", "--row", own)
        assert {name: cell["ours"] for name, cell in cells.items()} == {**columns, "sickr": 6}


def report_file(folder, rows, **notes):
    named = [dict(zip(("task", "metric", "aggregate", "value"), row, strict=True)) for row in rows]
    rest = {"split": "test", "count": 10, "low": None, "high": None}
    rows = [row | rest for row in named]
    (folder / "r.json").write_text(json.dumps({"model": "m", "rows": rows, "notes": notes}))
    return folder / "r.json"


def test_of_a_report_on_words_and_tokens_the_words_are_taken(call, tmp_path):
    rows = [
        ("STS7", f"error_{name}", unit, value)
        for unit, shift in (("words", 0.0), ("tokens", 5.0))
        for name, value in (("near", 3.0 + shift), ("far", 2.0 + shift), ("gap", 1.0))
    ]
    path = report_file(tmp_path, rows, bias={"bias_form": "senteval"})
    cells = cells_of(call, tmp_path, "esimcse:table1", "--row", path)
    assert {name: cell["ours"] for name, cell in cells.items()} == {"near": 3, "far": 2, "gap": 1}


def test_accuracies_of_another_classifier_are_no_row(call, tmp_path):
    names = {"lab": "logistic regression, L2 by cross-validation", "paper": SOLVERS["senteval"]}
    for scale, other in (("lab", "paper"), ("paper", "lab")):
        wanted = "simcse:e1", "--from", RESULTS.parent / "small-bert", "--scale", scale
        rows = [("MR", "accuracy", "", 0.75)]
        path = report_file(tmp_path, rows, transfer={"classifier": names[scale]})
        out, _ = call(*wanted, "--row", path)
        assert "75.00" in out
        path = report_file(tmp_path, rows, transfer={"classifier": names[other]})
        _, err = call(*wanted, "--row", path, code=2)
        assert "has no score for a column" in err


@pytest.mark.parametrize(("arguments", "problem"), [
    (["simcse:tabel1"], "did you mean 'simcse:table1'?"), ([], "name a table or figure"),
    (["simcse:table1", "--scale", "labs"], "did you mean 'lab'?"),
    (["simcse:table1", "--budget", "soon"], "write a time such as 90s"),
    (["simcse:table1", "--scale", "lab", "--checkpoint", "bert"], "write NAME=FOLDER"),
    (["simcse:table1", "--scale", "lab", "--set", "stps=9"], "did you mean 'max_steps'?"),
    (["simcse:table1", "--scale", "lab", "--set", "max_steps=0"], "must be 1 or more"),
    (["simcse:table1", "--scale", "lab", "--set", "view=crop"], "belongs to an objective"),
    (["simcse:table1", "--scale", "lab", "--set", "seed=7"], "--set 'seed': each run has a seed"),
    (["simcse:table1", "--from", "nowhere"], "--from: dir 'nowhere' does not"),
    (["simcse:table1", "--recipes", "nowhere"], "does not exist"),
    (["simcse:table1", "--from", "."], "contains no results of reproduce, nor does its folder"),
    ([*PUBLISHED, "--row", "nowhere.json"], "nowhere.json: cannot be read"),
    ([*PUBLISHED, "--row", "w.csv"], "w.csv:1: is neither from evaluate --json-file nor a table"),
    ([*PUBLISHED, "--row", "n.csv"], "n.csv:3: 'STS13' is not a number: '6o'"),
    ([*PUBLISHED, "--row", "t.csv"], "t.csv:3: 'STS12' appears twice"),
    ([*PUBLISHED, "--row", "o.csv"],
     "o.csv: has no score for a column of these tables: STS12, STS13, "),
    (["own:methods", "--from", RESULTS.parent / "small-bert", "--row", "b.csv"],
     "b.csv: has no score for a column of these tables: dev, stsb, SICKR, STS7"),
    *(([*PUBLISHED, *option.split()], f"{value}: needs a run; --from computes nothing")
      for option, value in (
          ("--base small", "--base 'small'"), ("--set max_steps=9", "--set \"['max_steps=9']\""),
          ("--seeds 2", "--seeds '2'"), ("--jobs 1", "--jobs '1'"), ("--budget 2h", "2h'"),
          ("--sentences 9", "--sentences '9'"), ("--checkpoint a=b", "['a=b']\""),
          ("--results r", "--results 'r'"))),
    (["simcse:table1", "--report", "a.pdf"], "by its suffix); did you mean '.md'? (one of .csv"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(call, arguments, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = {"n": "STS12,6\nSTS13,6o", "t": "STS12,6\nSTS12,7", "o": "MTEB,6", "b": "STSB,6"}
    for name, rows in tables.items():
        (tmp_path / f"{name}.csv").write_text(f"task,value\n{rows}\n")
    (tmp_path / "w.csv").write_text("STS12,6\n")
    out, err = call(*arguments, code=2)
    assert out == ""
    assert problem in err
    assert len(err.splitlines()) == 1
