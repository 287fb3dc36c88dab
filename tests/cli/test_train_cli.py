"""``contrasent train`` from the shell: what it makes, prints and survives."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contrasent.encoder.encoder import TorchEncoder
from contrasent.train.run import trajectory


def sets(**values):
    """Options for settings."""
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


FAST = sets(batch_size=8, learning_rate="1e-3", pooling="mean")


@pytest.fixture
def texts(tmp_path, sentences):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(sentences[:120]) + "\n")
    return path


@pytest.fixture
def pairs(tmp_path, sentences):
    rows = [f"{sentences[i]}\t{sentences[i + 200]}\t{sentences[i + 400]}" for i in range(60)]
    path = tmp_path / "pairs.tsv"
    path.write_text("anchor\tpositive\tnegative\n" + "\n".join(rows) + "\n")
    return path


def test_a_check_prints_the_roles_of_columns(run, pairs, monkeypatch):
    monkeypatch.setattr("contrasent.train.method_checks.check_objective", lambda *_: ())
    _, err = run("train", pairs, "--check")
    assert err == "query: anchor, positive: positive, negative: negative\n"


def settings_of(folder):
    return json.loads((folder / "run" / "settings.json").read_text())


def test_sentences(run, texts, bert, tmp_path):
    out, err = run("train", texts, "-o", "m", "--base", bert, *FAST, *sets(max_steps=5))
    first, second, last = out.splitlines()
    assert second.startswith("m: 5 steps, ") and last.endswith("--model m")
    assert re.fullmatch(r"Saved the last step\. .*; \d+\.\d % of the base's neighbors .*", first)
    blind, chosen = [line for line in err.splitlines() if not line.startswith("train:")]
    assert "simcse" in chosen and "max_seq_length 32" in chosen
    assert blind.startswith("--evaluate neighbors: ") and "--evaluate FILE" in blind
    assert TorchEncoder.load(tmp_path / "m").pooling == "mean"
    told = settings_of(tmp_path / "m")
    assert told["objective"]["name"] == "simcse"
    assert told["base"] == "bert"  # no path of this machine


def test_pairs_are_held_out_and_json_tells_all(run, pairs, bert, tmp_path):
    asked = [*sets(max_steps=6, eval_steps=3, eval_size=10), "--seed", "4"]
    out, _ = run("train", pairs, "-o", "m", "--base", bert, *FAST, *asked, "--json")
    told = json.loads(out)
    assert (told["folder"], told["steps"]) == ("m", 6)
    assert [step for step, _ in told["history"]] == [0, 3, 6]
    assert told["score"] == max(score for step, score in told["history"] if step)
    stored = settings_of(tmp_path / "m")
    assert (stored["objective"]["name"], stored["settings"]["seed"]) == ("simcse_supervised", 4)
    assert "mrr@10" in (tmp_path / "m" / "README.md").read_text()
    out, _ = run("train", pairs, "-o", "n", "--base", bert, *FAST, *asked)
    best = out.splitlines()[0]
    start = f"heldout mrr@10 {told['score']:.3f} after step {told['best_step']}"
    assert told["improved"] == (told["score"] > told["base_score"])  # ten pairs have no interval
    start = f"Better, not proven: {start}" if told["improved"] else f"No improvement: {start}"
    assert best.startswith(f"{start}, {told['history'][0][1]:.3f} before training")


@pytest.mark.parametrize(("count", "answers", "held", "choosing"), [
    (400, 200, "40 pairs (", 20), (100, 1, "20 queries, but not their answers", 20),
], ids=["faq", "star"])  # fmt: skip
def test_rows_that_share_answers_are_trained(
    run, bert, tmp_path, sentences, caplog, count, answers, held, choosing
):
    table = [(sentences[n], f"so {sentences[n % answers]}") for n in range(count)]
    (tmp_path / "faq.tsv").write_text("".join(f"{q}\t{a}\n" for q, a in [("q", "a"), *table]))
    asked = ["train", "faq.tsv", "--base", bert, *FAST, *sets(max_steps=3)]
    out, err = run(*asked, "-o", "m")
    lines = [line for line in err.splitlines() if not line.startswith("train:")]
    roles, first, chosen = lines
    assert roles == "query: q, positive: a" and first.startswith(f"held out: {held}")
    # With one answer to all questions there is nothing to tell apart.
    assert any("all gradients are zero" in line for line in caplog.messages) == (answers == 1)
    assert chosen.endswith("for repeated texts: duplicates mask")
    stored = settings_of(tmp_path / "m")
    assert (stored["objective"]["duplicates"], stored["defaults"]["values"]["duplicates"]) == (
        *("mask", "mask"),
    )
    log = [json.loads(line) for line in (tmp_path / "m/run/log.jsonl").read_text().splitlines()]
    assert next(line for line in log if "evaluation" in line)["evaluation"][0]["count"] == choosing
    assert run(*asked, "-o", "m", "--resume")[0] == out
    run(*asked, "-o", "n", *sets(duplicates="contrast"))
    assert settings_of(tmp_path / "n")["objective"]["duplicates"] == "contrast"


def test_what_is_better_and_not_proven_keeps_the_base():
    from contrasent.cli.train import outcome
    from contrasent.train.run import Gain, Run

    numbers = {"steps": 9, "seconds": 1.0, "sentences_per_second": 1.0, "score": 0.44}
    gain = Gain(0.01, -0.02, 0.04, 50)
    scores = {"improved": False, "kept": 0, "base_score": 0.43, "best_step": 5, "gain": gain}
    found = Run(folder=Path("m"), **numbers, **scores, metric="mrr@10")
    said = outcome(found, "heldout")
    assert said == (
        "No reliable improvement: heldout mrr@10 0.440 after step 5, 0.430 before training; on 50 "
        "other items +0.010, 95 % CI [-0.020, +0.040]. Saved the base model; trained weights: "
        "m/run/best."
    )
    assert outcome(replace(found, kept=5), "heldout").endswith(" Saved step 5.")
    better = outcome(replace(found, improved=True, kept=5), "heldout")
    assert better.startswith("Improved and saved: heldout mrr@10 0.440 after step 5, 0.430 before")
    for gain in (None, Gain(0.01, None, None, 5)):
        few = outcome(replace(found, improved=True, kept=5, gain=gain), "heldout")
        assert few.startswith("Better, not proven: heldout mrr@10 0.440 after step 5, 0.430 before")
    left = replace(found, score=0.3, kept=0, steps=5)
    assert outcome(left, "neighbors") == (
        "Worse and discarded: only 30.0 % of the base's neighbors are unchanged. Saved the base "
        "model; trained weights: m/run/last."
    )
    assert outcome(replace(left, kept=5), "neighbors").startswith("Worse: only 30.0 % of")
    assert outcome(replace(left, improved=None, kept=5), "neighbors") == (
        "Saved the last step. Without labels improvement cannot be measured; 30.0 % of the base's "
        "neighbors are unchanged."
    )


@pytest.mark.parametrize(("gain", "code"), [((0.1, 0.01, 0.2, 50), 0), (None, 3)])
def test_what_is_required_is_proof(run, pairs, bert, monkeypatch, gain, code):
    from contrasent.train import fit
    from contrasent.train.run import Gain, Run

    scores = {"score": 0.5, "base_score": 0.4, "metric": "mrr@10", "kept": 5, "best_step": 5}
    facts = scores | {"steps": 5, "seconds": 1.0, "sentences_per_second": 1.0, "improved": True}
    made = Run(folder=Path("m"), **facts, gain=gain and Gain(*gain))
    monkeypatch.setattr(fit, "fit_plan", lambda *_, **__: made)
    run("train", pairs, "-o", "m", "--base", bert, "--require-improvement", code=code)


def test_ratings_train_and_decide(run, bert, tmp_path, sentences):
    rows = [f"{i % 6}\t{sentences[i]}\t{sentences[i + 1]}" for i in range(60)]
    (tmp_path / "ratings.tsv").write_text("mark\tone\ttwo\n" + "\n".join(rows) + "\n")
    asked = ["--base", bert, *FAST, *sets(max_steps=4, eval_steps=2), "--json"]
    out, _ = run("train", "ratings.tsv", "-o", "m", "--score", "mark", *asked)
    assert json.loads(out)["evaluate"] == "heldout"
    assert settings_of(tmp_path / "m")["objective"]["name"] == "cosent"
    assert "spearman" in (tmp_path / "m" / "README.md").read_text()
    log = (tmp_path / "m" / "run" / "log.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, log) if "loss" in line]
    assert len(steps) == 4 and all(line["cosent"] == line["loss"] > 0 for line in steps)
    again, _ = run("train", "ratings.tsv", "-o", "m", "--score", "mark", *asked, "--resume")
    assert json.loads(again) == json.loads(out) | {"defaults": json.loads(again)["defaults"]}
    _, err = run("train", "ratings.tsv", "-o", "n", "--objective", "angle", *asked, code=2)
    assert "score '': ratings.tsv has no score column with a known name (score, simil" in err
    _, err = run(
        "train", "ratings.tsv", "-o", "n", "--objective", "simcse", "--score", "0", *asked, code=2
    )
    assert "--score '0': simcse does not learn from scores; cosent, angle" in err


def test_harm_is_said_and_the_base_is_given(run, bert, tmp_path, sentences):
    """Pairs, 50 of them held out, and a rate that wrecks any model."""
    rows = [f"{text}\t{text.replace('the', 'a')} indeed" for text in sentences[:250]]
    (tmp_path / "pairs.tsv").write_text("one\ttwo\n" + "\n".join(rows) + "\n")
    asked = ["train", "pairs.tsv", "--base", bert, *FAST, *sets(learning_rate=1.0, max_steps=4)]
    asked += sets(head="none")
    out, _ = run(*asked, "-o", "m", "--require-improvement", "--json", code=3)
    told = json.loads(out)
    assert (told["improved"], told["kept"], told["evaluate"]) == (False, 0, "heldout")
    assert told["score"] < told["base_score"] == told["history"][0][1]
    gain = told["gain"]
    assert gain["low"] <= gain["value"] <= gain["high"] < 0 and gain["count"] == 25
    said = run(*asked, "-o", "m", "--resume", "--require-improvement", code=3)[0].splitlines()
    assert said[1].startswith("m: 4 steps, ")
    assert said[0].startswith(f"No improvement: heldout mrr@10 {told['score']:.3f} after step 4")
    numbers = (f"{told['base_score']:.3f}", *(f"{gain[k]:+.3f}" for k in ("value", "low", "high")))
    assert all(number in said[0] for number in numbers)
    assert said[0].endswith("(docs/troubleshooting.md#no-gain)")
    base = TorchEncoder.load(bert, pooling="mean").encode(sentences[:5])
    assert np.array_equal(TorchEncoder.load(tmp_path / "m").encode(sentences[:5]), base)
    out, _ = run(*asked, "-o", "n", "--keep", "last")
    assert " Saved the last step. (docs/" in out.splitlines()[0]
    assert not np.allclose(TorchEncoder.load(tmp_path / "n").encode(sentences[:5]), base, atol=0.1)


def test_sentences_that_drift_from_a_sentence_encoder(run, bert, tmp_path, sentences):
    """The base is given where too little of it is left; a bare encoder has nothing to leave."""
    TorchEncoder.load(bert, pooling="mean").save(tmp_path / "base")
    (tmp_path / "texts.txt").write_text("\n".join(sentences[:200]) + "\n")
    asked = ["train", "texts.txt", *FAST, *sets(learning_rate=1.0, max_steps=4)]
    out, _ = run(*asked, "-o", "m", "--base", "base", "--json")
    told = json.loads(out)
    assert (told["improved"], told["kept"], told["evaluate"]) == (False, 0, "neighbors")
    assert told["score"] < 0.5 and told["base_score"] == 1.0
    assert "whether the change is better" in told["cannot_see"]
    assert "--evaluate FILE" in told["better_evidence"]
    out, _ = run(*asked, "-o", "n", "--base", bert, "--json")
    assert [json.loads(out)[key] for key in ("improved", "kept")] == [None, 4]
    stored = [json.loads(line) for line in (tmp_path / "m/run/log.jsonl").read_text().splitlines()]
    reports = [line["evaluation"] for line in stored if "evaluation" in line]
    assert [[row["metric"] for row in rows] for rows in reports] == [
        ["overlap@10", "alignment", "uniformity"]
    ] * 2
    assert reports[0][0]["count"] == 40
    assert '"rows": 160' in (tmp_path / "n" / "README.md").read_text()  # forty are left out


def test_documents_are_the_default_where_they_are_marked(run, bert, tmp_path, sentences):
    documents = ["\n".join(sentences[i : i + 3]) for i in range(0, 360, 3)]
    (tmp_path / "texts.txt").write_text("\n\n".join(documents) + "\n")
    asked = ["train", "texts.txt", "--documents", "--base", bert, *FAST, *sets(max_steps=2)]
    out, err = run(*asked, "-o", "m", "--json")
    assert err.startswith("--evaluate documents: ")
    told = json.loads(out)
    assert (told["evaluate"], told["improved"] in (True, False)) == ("documents", True)
    assert "whether people's questions do" in told["cannot_see"]
    card = tmp_path / "m" / ("README.md" if told["kept"] else "run/best/README.md")
    assert '"rows": 288' in card.read_text()
    # Too few documents, but sentences enough; and too few of both.
    (tmp_path / "few.txt").write_text("\n\n".join(documents[:90]) + "\n")
    out, err = run(*asked[:1], "few.txt", *asked[2:], "-o", "few", "--json")
    assert json.loads(out)["evaluate"] == "neighbors"
    assert err.startswith(
        "the default, --evaluate documents, is impossible: few.txt: needs 20 held-out documents"
    )
    (tmp_path / "tiny.txt").write_text("\n\n".join(documents[:20]) + "\n")
    out, err = run(*asked[:1], "tiny.txt", *asked[2:], "-o", "tiny", "--json")
    assert (json.loads(out)["evaluate"], json.loads(out)["improved"]) == ("none", None)
    assert err.startswith("evaluation skipped: tiny.txt: needs 20 held-out sentences")
    assert "20 % of this corpus is 12" in err and "--evaluate" in err


UNSEEN = "improvement cannot be measured"
REFUSED = {
    "{texts} --require-improvement": f"'neighbors': {UNSEEN}; train on pairs (two columns)",
    "{texts} --require-improvement --evaluate none": f"--require-improvement 'none': {UNSEEN}",
    "{texts} --evaluate documents": "needs sentences and --documents",
    "{pairs} --evaluate neighbors": "needs a corpus of sentences; this one has pairs",
    "{texts} --evaluate neighbours": "did you mean 'neighbors'?",
    # Before the corpus is read.
    "missing.txt --keep lst": "--keep 'lst': unknown; did you mean 'last'?",
    "missing.txt --config keep.toml": "--keep 'lst': unknown",
    "missing.txt --require-improvement --evaluate none": UNSEEN,
    "missing.txt --config mine.toml": UNSEEN,
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_is_refused(run, texts, pairs, bert, tmp_path, line):
    (tmp_path / "mine.toml").write_text('evaluate = "neighbors"\nrequire_improvement = true\n')
    (tmp_path / "keep.toml").write_text('keep = "lst"\n')
    asked = line.format(texts=texts, pairs=pairs).split()
    assert REFUSED[line] in run("train", *asked, "-o", "m", "--base", bert, code=2)[1]


def test_of_several_processes_the_first_says_that_nothing_improved(run, texts, bert, monkeypatch):
    labels = texts.parent / "labels.tsv"
    labels.write_text("one\ttwo\tscore\n" + "A map\tThe map\t1\nA kite\tThe sea\t0\n" * 3)
    asked = ["train", texts, "-o", "m", "--base", bert, "--evaluate", labels, *FAST]
    asked += [*sets(max_steps=1, learning_rate="1e-12"), "--require-improvement"]
    run(*asked, code=3)
    for rank, code in (("0", 3), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        run(*asked, "--resume", code=code)


def test_columns_by_name_and_position(run, pairs, bert, tmp_path):
    asked = [*sets(max_steps=2), "--evaluate", "none", "--quiet"]
    for i, columns in enumerate(("anchor,positive", "0,1")):
        _, err = run("train", pairs, "-o", i, "--base", bert, *FAST, *asked, "--columns", columns)
        assert err == ""
    run("train", pairs, "-o", "one", "--base", bert, *FAST, *asked, "--columns", "positive")
    assert settings_of(tmp_path / "one")["objective"]["name"] == "simcse"


def test_a_recipe_and_what_overrides_it(run, texts, bert, tmp_path):
    (tmp_path / "mine.toml").write_text(
        f'objective = "simcse"\nbase = "{bert}"\n\n'
        "[settings]\nmax_steps = 3\nlearning_rate = 1e-3\nbatch_size = 8\n"
        'temperature = 0.1\nprojector = "none"\nseed = 7\n'
    )
    run("train", texts, "-o", "m", "--config", "mine.toml", *sets(temperature=0.2), "--seed", 8)
    told = settings_of(tmp_path / "m")
    assert (
        told["settings"].items()
        >= dict(max_steps=3, learning_rate=1e-3, batch_size=8, seed=8).items()
    )
    given = {k: told["objective"][k] for k in ("temperature", "projector", "symmetric")}
    assert given == {"temperature": 0.2, "projector": "none", "symmetric": False}


def test_a_finished_run_says_so_before_a_model_is_loaded(run, texts, pairs, bert, tmp_path):
    base = shutil.copytree(bert, tmp_path / "base")
    given = sets(temperature=0.1, eval_size=10, eval_steps=2)
    given += [*sets(max_steps=4), *FAST]
    methods = {"one": (texts, "simcse"), "two": (pairs, "simcse_supervised + esimcse")}
    asked = {
        name: ["train", corpus, "--objective", method, "-o", name, "--base", base, *given]
        for name, (corpus, method) in methods.items()
    }
    first = {name: run(*command, "--json") for name, command in asked.items()}
    (base / "model.safetensors").unlink()  # what is loaded now is an error
    files = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    for name, command in asked.items():
        # The first run also says what is not evaluated; nothing is left to say of that.
        assert run(*command, "--resume", "--json")[0] == first[name][0]
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == files
    for more, words in (
        (sets(temperature=0.2), "has temperature 0.1, now it is 0.2"),
        (sets(max_steps=5), "has max_steps 4, now it is 5"),
        (sets(eval_size=12), "has eval_size 10, now it is 12"),
        (["--evaluate", "none"], "has evaluated True, now it is False"),
    ):
        said = run(*asked["two"], *more, "--resume", code=2)[1]
        assert "two: the run there" in said and words in said
    texts.write_text(texts.read_text() + "One more line.\n")
    with pytest.raises(AssertionError, match="used a different text"):
        run(*asked["one"], "--resume")


def test_the_head_of_the_base_is_dropped_on_request(run, texts, bert, tmp_path):
    TorchEncoder.load(bert, pooling="cls", head="tanh").save(tmp_path / "base")
    for name, more in (("kept", []), ("dropped", sets(head="none"))):
        run("train", texts, "-o", name, "--base", "base", *sets(max_steps=1), *more)
    assert TorchEncoder.load(tmp_path / "kept").head is not None
    assert TorchEncoder.load(tmp_path / "dropped").head is None


@pytest.mark.data
def test_sts_benchmark_decides(run, bert, data_folder, tmp_path):
    lines = (data_folder / "wiki" / "wiki1m_for_simcse.head.txt").read_text("utf-8").splitlines()
    (tmp_path / "wiki.txt").write_text("\n".join(lines[:200]) + "\n", "utf-8")
    asked = ["--evaluate", "stsb", *sets(max_steps=2, eval_steps=2)]
    asked += sets(geometry_every=1)
    out, _ = run("train", "wiki.txt", "-o", "m", "--base", bert, *FAST, *asked, "--json")
    assert len(json.loads(out)["history"]) == 2
    assert "| STSB | dev | spearman" in (tmp_path / "m" / "README.md").read_text()
    points = trajectory(tmp_path / "m")
    assert [point["step"] for point in points] == [0, 1, 2]
    assert {"alignment", "uniformity", "anisotropy"} <= points[0].keys()


def started(*arguments, folder):
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "contrasent", *map(str, arguments)], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


PAUSING = """
import time
from pathlib import Path

from contrasent.objectives.simcse import SimCSE


class Pausing(SimCSE):
    def forward(self, batch):
        if batch.step == {step}:
            Path("begun").touch()
            end = time.monotonic() + 600
            while not Path("go").exists() and time.monotonic() < end:
                time.sleep(0.01)
        return super().forward(batch)
"""


def begun(process, folder):
    """Wait until the step at which a run pauses has begun."""
    while not (folder / "begun").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def read_until(process, words):
    """The line of standard error that has these words."""
    while words not in (line := process.stderr.readline()):
        assert line, words
    return line


@pytest.mark.slow
def test_ctrl_c_and_resume_to_the_end(run, texts, bert, tmp_path):
    """From the shell: 130 and a usable checkpoint, and the same bits in the end."""
    (tmp_path / "pausing.py").write_text(PAUSING.format(step=12))
    asked = ["train", texts, "--base", bert, *FAST, *sets(max_steps=120, dropout=0.2)]
    asked += [*sets(save_steps=40, view="repeat_tokens"), "--objective", "pausing.py"]
    first = started(*asked, "-o", "m", folder=tmp_path)
    begun(first, tmp_path)
    first.send_signal(signal.SIGINT)
    read_until(first, "contrasent: stopping after this step, with a ")
    (tmp_path / "go").touch()
    _, err = first.communicate()
    assert first.returncode == 130, err
    assert err.splitlines() == ["contrasent: stopped; saved step 13 of 120; --resume continues m"]
    assert (tmp_path / "m" / "run" / "checkpoint.safetensors").is_file()
    run(*asked, "-o", "m", "--resume")
    run(*asked, "-o", "whole")
    for name in ("model.safetensors", "run/log.jsonl"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_ctrl_c_is_answered_during_a_long_step(texts, bert, tmp_path):
    """Before it ends; a second one ends the process, and the checkpoint before is there."""
    (tmp_path / "pausing.py").write_text(PAUSING.format(step=2))
    asked = ["train", texts, "--base", bert, *FAST, "--objective", "pausing.py", "-o", "m"]
    asked += [*sets(max_steps=9, save_steps=1), "--evaluate", "none"]
    process = started(*asked, folder=tmp_path)
    begun(process, tmp_path)
    for words in ("stopping after this step", "stopped; --resume continues m"):
        process.send_signal(signal.SIGINT)
        read_until(process, words)
    process.communicate()
    assert process.returncode == 130
    assert (tmp_path / "m" / "run" / "checkpoint.safetensors").is_file()


def test_several_corpora(run, pairs, bert, tmp_path, sentences):
    rows = [{"query": sentences[i], "pos": [sentences[i + 9]], "neg": ["a map"]} for i in range(99)]
    (tmp_path / "more.json").write_text(json.dumps(rows))
    asked = ["train", pairs, "more.json", "--base", bert, *FAST, *sets(max_steps=4)]
    asked += ["--evaluate", "none"]
    run(*asked, "-o", "m", *sets(weights="1,3"))
    assert settings_of(tmp_path / "m")["corpus"]["source"] == "pairs.tsv + more.json"
    assert settings_of(tmp_path / "m")["settings"]["weights"] == "1,3"
    _, err = run(*asked, "-o", "n", *sets(weights="1,2,3"), code=2)
    assert "weights '1,2,3': give one number per corpus, 2" in err
    alone = ["train", pairs, "--base", bert, *FAST, *sets(max_steps=1), "-o", "n"]
    assert "needs several corpora" in run(*alone, *sets(weights=1), code=2)[1]
    assert "be positive numbers" in run(*alone, *sets(weights="1,x"), code=2)[1]
