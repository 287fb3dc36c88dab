"""The training loop: what it writes, what it rejects, when it stops, what it leaves alone."""

import hashlib
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from commands import mounted
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.tensors import read_checkpoint, write_checkpoint
from contrasent.errors import MissingExtraError, OptionError, OutputError, TrainingError
from contrasent.files import read_object
from contrasent.model.base import Prompts
from contrasent.report import Report, Row
from contrasent.text.batches import BatchPlan
from contrasent.text.corpus import open_corpus
from contrasent.text.heldout import hold_out_sentences
from contrasent.train.fit import fit, fit_plan
from contrasent.train.plan import Plan
from contrasent.train.prepare import prepare
from contrasent.train.run import Gain, RunFolder, trajectory
from contrasent.train.settings import Settings
from contrasent.train.step import scheduled_rate
from contrasent.types import Batch

pytestmark = pytest.mark.early
FEW = {
    "batch_size": 8,
    "max_steps": 6,
    "learning_rate": 1e-3,
    "seed": 1,
    "pooling": "mean",
    "max_seq_length": 64,
}


@pytest.fixture
def start(bert, sentences, tmp_path):
    """Train a fresh objective on our sentences; returns it and the run."""

    def start(folder="m", rows=None, parameters=None, spoil=None, **options):
        known = Settings.__dataclass_fields__.keys()
        settings = Settings(**FEW | {k: v for k, v in options.items() if k in known})
        stated = {k: v for k, v in options.items() if k not in known}
        learner = prepare(bert, "simcse", parameters or {}, settings)
        if spoil is not None:
            spoil(learner)
        run = fit(learner, rows or sentences[:80], settings, output_dir=tmp_path / folder, **stated)
        return learner, run

    return start


def log(folder):
    return [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]


def scores(values):
    """An evaluation that gives these values, one a call, and the calls."""
    calls = []

    def evaluate(encode):
        calls.append(encode(["a map"]))
        return Report((Row("made", "dev", "spearman", "", values[len(calls) - 1], 10),))

    return evaluate, calls


def weights(folder):
    return load_file(folder / "model.safetensors")


def checkpoint(folder):
    return load_file(folder / "run" / "checkpoint.safetensors")


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def test_a_run_leaves_a_model_and_its_record(start, tmp_path, sentences):
    learner, run = start(max_steps=23)
    folder = tmp_path / "m"
    assert (run.folder, run.steps, run.history) == (folder, 23, [])
    assert (run.score, run.best_step, run.improved, run.kept) == (None, None, None, 23)
    assert run.seconds > 0 and run.sentences_per_second > 0
    trained = TorchEncoder.load(folder)
    assert np.array_equal(trained.encode(sentences[:5]), learner.encoder.encode(sentences[:5]))
    lines = log(folder)
    assert [line["step"] for line in lines] == [*range(1, 11), 11, 12, 21, 23]
    named = "step learning_rate norm loss contrast cosine_positive cosine_negative mean_cosine"
    named += " effective_rank neighbor_overlap measured_at"
    assert set(lines[1]) == set(named.split())
    measured = {line["step"]: line["shares"] for line in lines if "shares" in line}
    assert measured == {step: {"contrast": 1.0} for step in (1, 3, 12, 23)}
    assert lines[-1]["loss"] < lines[0]["loss"] / 2
    kept = {"log.jsonl", "result.json", "settings.json"}  # and no weights a second time
    assert {p.name for p in (folder / "run").iterdir()} == {".lock", *kept}
    # The projector is dropped, the text of the corpus is gone.
    assert not (folder / "2_Dense").exists()
    assert not (folder / "run" / "tokens").exists()
    assert "simcse" in (folder / "README.md").read_text()


def test_runs_share_what_they_tokenized(start, bert, sentences, tmp_path):
    def share(folder, seed):
        settings = Settings(**FEW | {"seed": seed})
        plan = Plan(
            objective=prepare(bert, "simcse", {}, settings),
            corpus=open_corpus([*sentences[:80]]), settings=settings,
            base="a base of mine", evaluate=None, keep="last",
        )  # fmt: skip
        fit_plan(plan, tmp_path / folder, tokens=tmp_path / "t")
        return sorted(path.relative_to(tmp_path) for path in (tmp_path / "t").rglob("*.tokens"))

    start("alone")
    kept = share("first", 1)
    assert kept == share("second", 2)
    assert len(kept) == 1 and not (tmp_path / "first" / "run" / "tokens").exists()
    assert same(weights(tmp_path / "alone"), weights(tmp_path / "first"))
    card = (tmp_path / "first" / "README.md").read_text()
    assert 'base_model: "a base of mine"' in card


@pytest.mark.parametrize(("times", "parameters", "said"), [
    (40, {}, "41 of 81 rows are duplicates after tokenization. Duplicates act as false "
     "negatives: remove them, or use --set duplicates=mask"),
    (40, {"duplicates": "mask"}, ""), (0, {}, ""),
])  # fmt: skip
def test_rows_that_come_again_are_counted(start, sentences, caplog, times, parameters, said):
    rows = sentences[:40] + (sentences[:times] + sentences[:1] if times else [])
    start(rows=rows, parameters=parameters, max_steps=1)
    assert [line for line in caplog.messages if "duplicates" in line] == [said] * bool(said)


@pytest.mark.parametrize(("others", "words", "most", "said"), [
    (99, 20, 8, "1 of 100 texts exceed 8 tokens; --set max_seq_length=64 keeps more"),
    (99, 70, 64, "1 of 100 texts exceed 64 tokens; the base cannot use more"),
    (100, 70, 64, None),
])  # fmt: skip
def test_cut_texts_are_counted(start, caplog, others, words, most, said):
    rows = [f"a map {n}" for n in range(others)] + ["kettle " * words]
    start(rows=rows, max_steps=1, max_seq_length=most)
    assert [line for line in caplog.messages if "exceed" in line] == ([said] if said else [])


def test_advice_names_settings_that_the_method_takes(bert, sentences, tmp_path, caplog):
    given = FEW | {"max_steps": 2}
    fit("esimcse", [*sentences[:40], *["twice"] * 9], given, output_dir=tmp_path / "m", base=bert)
    (line,) = [line for line in caplog.messages if "duplicates" in line]
    assert line.endswith("Duplicates act as false negatives: remove them")


@pytest.mark.parametrize(("objective", "given", "said"), [
    ("esimcse", {"queue_size": 16}, ""),
    ("esimcse", {"queue_size": 17, "max_steps": 3}, ""),  # no sentence comes again
    ("esimcse", {"queue_size": 17}, "the queue of 17 .* 24 rows .* --set queue_size=16 or less"),
    ("simcse", {"dropout": 0.0}, "without dropout both views of a sentence are identical"),
    ("simcse", {"dropout": 0.0, "attention_dropout": 0.1}, ""),
    ("simcse", {"dropout": 0.0, "view": "crop", "percent": 20}, ""),
    ("simcse", {"dropout": 0.0, "encoders": 2}, ""),
])  # fmt: skip
def test_a_sentence_that_meets_itself_is_told(
    bert, sentences, tmp_path, caplog, objective, given, said
):
    given = FEW | {"max_steps": 4} | given
    how = {"base": bert, "evaluate": "none", "output_dir": tmp_path / "m"}
    fit(objective, sentences[:24], given, **how)
    told = [line for line in caplog.messages if "queue" in line or "identical" in line]
    assert len(told) == bool(said) and all(re.search(said, line) for line in told)


@pytest.mark.parametrize(("view", "spaces", "said"), [
    ("delete_words", False, "the view DeleteWords leaves 24 of 24 texts as they are"),
    ("crop", False, "the view Crop leaves 24 of 24 texts as they are"),
    ("delete_words", True, ""), ("repeat_tokens", False, ""),
])  # fmt: skip
def test_a_view_that_changes_nothing_is_told(bert, tmp_path, caplog, view, spaces, said):
    texts = [(" " * spaces).join("今天船只在码头出海一共十") + f"{n}" for n in range(24)]
    given = FEW | {"max_steps": 1, "view": view}
    how = {"base": bert, "evaluate": "none", "output_dir": tmp_path / "m"}
    fit("simcse", texts, given, **how)
    told = [line for line in caplog.messages if "as they are" in line]
    assert len(told) == bool(said) and all(said in line for line in told)


def test_the_projector_trains_and_is_dropped_but_a_head_is_kept(start, tmp_path):
    learner, _ = start(head="tanh")
    fresh, _ = start(folder="again", head="tanh", max_steps=1, learning_rate=1e-12)
    assert not torch.equal(learner.projector.linear.weight, fresh.projector.linear.weight)
    assert not torch.equal(learner.encoder.head.linear.weight, fresh.encoder.head.linear.weight)
    stored = load_file(tmp_path / "m" / "2_Dense" / "model.safetensors")
    assert torch.equal(stored["linear.weight"], learner.encoder.head.linear.weight)


def test_the_learning_rate_follows_the_schedule(start, tmp_path):
    start(max_steps=10, warmup_ratio=0.3, learning_rate=2e-3)
    rates = [line["learning_rate"] for line in log(tmp_path / "m")]
    assert rates == [scheduled_rate(s, total=10, peak=2e-3, warmup_ratio=0.3) for s in range(10)]


def test_epochs_and_steps(start, sentences):
    rows = sentences[:20]  # two batches of eight an epoch
    assert start("a", rows, max_steps=None, num_train_epochs=3)[1].steps == 6
    assert start("b", rows, max_steps=None, num_train_epochs=0.5)[1].steps == 1
    assert start("c", rows, max_steps=None, num_train_epochs=1.3)[1].steps == 3
    assert start("d", rows, max_steps=5, num_train_epochs=3)[1].steps == 5
    assert start("e", sentences[:5], max_steps=None, num_train_epochs=2)[1].steps == 2


def test_named_rows_alone_are_trained_on(bert, start, sentences, tmp_path):
    settings = Settings(**FEW)
    rows = np.arange(3, 80, 5)
    learner = prepare(bert, "simcse", {}, settings)
    fit(learner, sentences[:80], settings, output_dir=tmp_path / "m", rows=rows)
    start("alone", [sentences[row] for row in rows])
    assert same(weights(tmp_path / "m"), weights(tmp_path / "alone"))


def test_named_rows_that_are_held_out_are_not_trained_on(bert, sentences, tmp_path):
    texts = sentences[:100]
    kept, _ = hold_out_sentences(open_corpus(texts), 1000)
    train = partial(fit, "simcse", texts, FEW | {"max_steps": 1}, base=bert, evaluate="neighbors")
    train(output_dir=tmp_path / "m", rows=np.arange(60))
    stated = read_object(tmp_path / "m" / "run" / "settings.json")
    both = np.intersect1d(kept, np.arange(60))
    assert 0 < len(both) < 60
    assert stated["rows"] == hashlib.sha256(both.tobytes()).hexdigest()
    with pytest.raises(OptionError, match="all of them are held out"):
        train(output_dir=tmp_path / "n", rows=np.setdiff1d(np.arange(100), kept))


def test_the_best_is_kept_and_the_last(start, tmp_path, kept_steps):
    evaluate, calls = scores([0.1, 0.4, 0.9, 0.2, 0.9])
    _, run = start(max_steps=8, eval_steps=2, evaluate=evaluate)
    folder = tmp_path / "m"
    assert run.history == [(0, 0.1), (2, 0.4), (4, 0.9), (6, 0.2), (8, 0.9)]
    assert (run.score, run.best_step) == (0.9, 4)  # the first of two equal ones
    best, last = (TorchEncoder.load(folder / "run" / name) for name in ("best", "last"))
    assert np.array_equal(best.encode(["a map"]), calls[2])
    assert np.array_equal(last.encode(["a map"]), calls[4])
    assert np.array_equal(TorchEncoder.load(folder).encode(["a map"]), calls[2])
    assert "| made | dev | spearman | 0.9000 |" in (folder / "README.md").read_text()
    assert "| taken after step | `4` |" in (folder / "README.md").read_text()
    lines = [line for line in log(folder) if "evaluation" in line]
    assert [line["step"] for line in lines] == [0, 2, 4, 6, 8]
    assert lines[2]["evaluation"][0]["value"] == 0.9
    stated = read_object(folder / "run" / "result.json")
    assert (stated["best_step"], stated["steps"]) == (4, 8)


def test_a_run_that_only_harms_gives_the_base(start, tmp_path):
    for keep, kept in (("proven", 0), ("trained", 4), ("last", 6)):
        evaluate, calls = scores([0.9, 0.1, 0.3, 0.2])
        _, run = start(keep, max_steps=6, eval_steps=2, evaluate=evaluate, keep=keep)
        assert (run.improved, run.kept, run.base_score) == (False, kept, 0.9)
        assert (run.score, run.best_step, run.gain) == (0.3, 4, None)
        top = TorchEncoder.load(tmp_path / keep)
        assert np.array_equal(top.encode(["a map"]), calls[kept // 2])
        card = (tmp_path / keep / "README.md").read_text()
        assert f"| taken after step | `{kept}` |" in card
        # With its own score.
        assert f"| made | dev | spearman | {run.history[kept // 2][1]:.4f} |" in card
        # Where the base is at the top, what was trained is not lost.
        folders = [p.name for p in (tmp_path / keep / "run").iterdir() if p.is_dir()]
        assert folders == ["best"] * (keep == "proven")
        for name in folders:
            stored = TorchEncoder.load(tmp_path / keep / "run" / name)
            assert np.array_equal(stored.encode(["a map"]), calls[2])
        assert RunFolder(tmp_path / keep).finished() == run


@pytest.mark.parametrize("own", [(), (32, 4)])
def test_a_base_that_is_given_keeps_its_own_sizes_and_similarity(bert, sentences, tmp_path, own):
    base = TorchEncoder.load(bert, pooling="mean")
    base.matryoshka_dims, base.prompts = own, Prompts(similarity="dot")
    base.save(tmp_path / "base")
    given = FEW | {"max_steps": 1, "dimensions": "16,8"}
    how = {"base": tmp_path / "base", "evaluate": scores([0.9, 0.1])[0]}
    fit("matryoshka", sentences[:40], given, output_dir=tmp_path / "m", **how)
    top, best = (TorchEncoder.load(tmp_path / place) for place in ("m", "m/run/best"))
    assert (top.matryoshka_dims, top.prompts.similarity) == (own, "dot")
    assert (best.matryoshka_dims, best.prompts.similarity) == ((32, 16, 8), "cosine")
    card = (tmp_path / "m" / "README.md").read_text().splitlines()
    assert any(line.startswith("tags:") and '"matryoshka"' in line for line in card) == bool(own)


class Against:
    """An evaluation of given values whose later reports say how sure the gain is."""

    def __init__(self, values, lows=None, floor=None):
        self.values, self.lows, self.given = iter(values), iter(lows or values), []
        if floor is not None:
            self.floor = floor

    def __call__(self, encode):
        row = Row("made", "dev", "mrr@10", "", next(self.values), 10)
        next(self.lows)
        return Report((row,), {"items": [1.0, 2.0]})

    def against(self, encode, base):
        self.given.append(base)
        row = Row("made", "dev", "mrr@10", "", next(self.values), 10)
        low = next(self.lows)
        gain = Row("made", "test", "gain_mrr@10", "", low + 0.1, 10, low, low + 0.2)
        return Report((row, gain), {"items": [1.0, 2.0]})


@pytest.mark.parametrize(("low", "improved"), [(0.01, True), (0.0, False), (-0.3, False)])
def test_the_interval_on_other_items_decides(start, low, improved):
    judge = Against([0.2, 0.6, 0.4], [None, low, 0.15])
    _, run = start(max_steps=4, eval_steps=2, evaluate=judge)
    assert (run.improved, run.kept) == (improved, 2 if improved else 0)
    assert (run.score, run.best_step, run.base_score) == (0.6, 2, 0.2)
    assert run.gain == Gain(low + 0.1, low, low + 0.2, 10)  # the best step's, not the last's
    assert [report.notes for report in judge.given] == [{"items": [1.0, 2.0]}] * 2
    assert RunFolder(run.folder).finished() == run
    # A sure gain is none if its score did not win.
    assert start("b", max_steps=2, evaluate=Against([0.7, 0.6], [None, 0.3]))[1].improved is False


@pytest.mark.parametrize(("last", "improved", "kept"), [(0.5, None, 4), (0.49, False, 0)])
def test_what_only_sees_preservation_claims_nothing(start, tmp_path, last, improved, kept):
    judge = Against([1.0, 0.9, last], [None, 0.2, 0.3], floor=0.5)
    learner, run = start(max_steps=4, eval_steps=2, evaluate=judge)
    assert (run.steps, run.improved, run.kept) == (4, improved, kept)
    assert (run.score, run.best_step, run.base_score) == (last, 4, 1.0)
    top, trained = TorchEncoder.load(tmp_path / "m"), learner.encoder
    assert np.array_equal(top.encode(["a map"]), trained.encode(["a map"])) == (kept == 4)
    assert (tmp_path / "m" / "run" / "last").is_dir() == (kept == 0)
    judge = Against([1.0, 0.9, last], [None, 0.2, 0.3], floor=0.5)
    options = {"max_steps": 4, "eval_steps": 2, "evaluate": judge}
    assert start("literal", keep="proven", **options)[1].kept == 0  # nothing was proven
    for keep, words in (("unharmed", "needs --evaluate neighbors"), ("proven", "needs an eval")):
        with pytest.raises(OptionError, match=f"--keep '{keep}': {words}"):
            start("none", keep=keep, max_steps=1)


def test_a_resumed_run_compares_with_the_same_base(start, tmp_path, kept_steps):
    class Stop(Exception):
        pass

    class Cut(Against):
        def against(self, encode, base):
            if len(self.given) == 2:
                raise Stop
            return super().against(encode, base)

    with pytest.raises(Stop):
        start(max_steps=6, eval_steps=2, save_steps=2, evaluate=Cut([0.5, 0.4, 0.3]))
    judge = Against([0.3, 0.2], [-0.1, -0.1])
    options = {"max_steps": 6, "eval_steps": 2, "save_steps": 2, "resume": True}
    with pytest.raises(OutputError, match="has keep 'proven', now it is 'last'"):
        start(evaluate=judge, keep="last", **options)
    _, run = start(evaluate=judge, **options)
    assert judge.given[0].rows[0].value == 0.5
    assert judge.given[0].notes == {"items": [1.0, 2.0]}
    assert (run.improved, run.kept, run.base_score) == (False, 0, 0.5)
    base = TorchEncoder.load(tmp_path / "m" / "run" / "base")
    fresh = start("fresh", max_steps=1, learning_rate=1e-12)[0].encoder  # as good as untouched
    assert np.allclose(base.encode(["a map"]), fresh.encode(["a map"]), atol=1e-6)
    assert same(weights(tmp_path / "m"), weights(tmp_path / "m" / "run" / "base"))


def test_a_run_by_name_is_that_of_the_command(run, bert, sentences, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(
        "question\tanswer\n"
        + "".join(f"{a}\t{b}\n" for a, b in zip(sentences[:90], sentences[90:180], strict=True))
    )
    given = {"batch_size": 8, "pooling": "mean", "temperature": 0.1, "eval_steps": 2}
    words = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
    run("train", path, "-o", "shell", "--base", bert, *words, "--set", "max_steps=4")
    train = partial(fit, "simcse_supervised", path, given, base=bert, max_steps=4)
    found = train(output_dir=tmp_path / "m")
    shell, own = (read_object(tmp_path / name / "run" / "settings.json") for name in ("shell", "m"))
    assert shell == own
    assert same(weights(tmp_path / "shell"), weights(found.folder))
    assert np.array_equal(
        found.encoder.encode(["a map"]), TorchEncoder.load(tmp_path / "shell").encode(["a map"])
    )
    assert found.log == log(tmp_path / "m")
    kept = dict(found.history)[found.kept]
    assert (found.report.rows[0].metric, found.report.rows[0].value) == ("mrr@10", kept)
    assert train(output_dir=found.folder, resume=True) == found


@pytest.mark.parametrize(("change", "message"), [
    ({"objective": "simcs"}, "unknown objective; did you mean 'simcse'"),
    ({"temprature": 0.1}, "unknown setting of a run or of simcse; did you mean 'temperature'"),
    ({"evaluate": "heldot"}, "did you mean 'heldout'"),
])  # fmt: skip
def test_wrong_names_are_one_line(bert, sentences, tmp_path, change, message):
    stated = {"objective": "simcse", "output_dir": tmp_path / "m", "base": bert} | change
    with pytest.raises(OptionError, match=message):
        fit(corpus=sentences[:80], **stated)
    assert not (tmp_path / "m").exists()


def test_an_objective_takes_no_names(bert, sentences, tmp_path):
    learner = prepare(bert, "simcse", {}, Settings(**FEW))
    for given, message in [
        ({"base": bert}, "needs the name of a method"),
        ({"evaluate": "stsb"}, "needs the name of a method"),
        ({"temperature": 0.1}, "unknown setting of a run"),
        ({"lora": 4}, "lora 4: needs the name of a method"),
        ({"settings": {"eval_size": 9}}, "eval_size 9: needs the name of a method"),
        ({"settings": Settings(**FEW), "normalize": True}, "normalize True: needs the name"),
    ]:
        with pytest.raises(OptionError, match=message):
            fit(learner, sentences[:80], output_dir=tmp_path / "m", **given)
    usual = {"eval_size": Settings().eval_size, "lora": 0, "bidirectional": False, "max_steps": 1}
    assert fit(learner, sentences[:80], output_dir=tmp_path / "m", **usual).steps == 1


def test_patience(start):
    for judge in (None, Against([1.0], floor=0.5)):
        with pytest.raises(OptionError, match="early_stopping_patience 2: needs an evaluation"):
            start("none", early_stopping_patience=2, evaluate=judge)
    values = [0.0, 0.3, 0.5, 0.4, 0.45, 0.5, 0.9]
    evaluate, calls = scores(values)
    _, run = start(max_steps=12, eval_steps=2, early_stopping_patience=3, evaluate=evaluate)
    # The best is the second; three without a better one follow, and equal is not better.
    assert run.steps == 10
    assert len(calls) == 6
    evaluate, calls = scores(values)
    _, run = start(
        folder="two", max_steps=12, eval_steps=2, early_stopping_patience=4, evaluate=evaluate
    )
    assert (run.steps, run.score, len(calls)) == (12, 0.9, 7)


def test_evaluation_does_not_change_training(start, tmp_path, kept_steps):
    def evaluate(encode):
        torch.manual_seed(99)
        torch.rand(7)
        np.random.default_rng().random()
        vectors = encode([f"lamp {i}" for i in range(30)])
        return Report((Row("made", "dev", "spearman", "", float(vectors.sum()), 30),))

    start("without", head="batchnorm", dropout=0.3)
    start("with", head="batchnorm", dropout=0.3, evaluate=evaluate, eval_steps=1)
    assert same(checkpoint(tmp_path / "without"), checkpoint(tmp_path / "with"))


def test_a_killed_run_whose_scores_differ_when_resumed_gives_the_step_that_it_names(
    start, tmp_path
):
    options = {"max_steps": 6, "eval_steps": 2, "save_steps": 3}
    with pytest.raises(IndexError):  # there is no fourth score
        start(evaluate=scores([0.1, 0.5, 0.9])[0], **options)
    _, run = start(evaluate=scores([0.2, 0.2])[0], resume=True, **options)
    assert (run.best_step, run.score) == (2, 0.5)
    assert "| taken after step | `2` |" in (tmp_path / "m" / "README.md").read_text()


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulated_parts_are_the_mean_of_their_losses(start, tmp_path, bert, sentences, parts):
    how = {"gradient_accumulation_steps": parts, "dropout": 0.0, "max_grad_norm": 1e9}
    learner, _ = start(max_steps=1, batch_size=16, **how)
    found = {name: p.grad.clone() for name, p in learner.named_parameters()}
    stated = log(tmp_path / "m")[0]
    # By hand: each part is a batch of its own, the gradient the mean of theirs.
    settings = Settings(**(FEW | {"batch_size": 16, "dropout": 0.0}))
    fresh = prepare(bert, "simcse", {}, settings)
    order = BatchPlan.make(np.arange(80), batch_size=16, seed=1, parts=parts).at(0)
    size, losses = 16 // parts, []
    for part in range(parts):
        rows = order[part * size : (part + 1) * size]
        tokens = fresh.encoder.tokenize([sentences[r] for r in rows])[0]
        losses.append(fresh(Batch((tokens, tokens), rows, 0))["contrast"])
    mean = sum(losses) / parts
    mean.backward()
    assert stated["loss"] == pytest.approx(mean.item(), rel=1e-6)
    for name, parameter in fresh.named_parameters():
        assert found[name].numpy() == pytest.approx(parameter.grad.numpy(), abs=1e-6)


def test_clipping(start, tmp_path):
    learner, _ = start(max_steps=3, max_grad_norm=0.05)
    assert min(line["norm"] for line in log(tmp_path / "m")) > 0.05  # before clipping
    grads = [p.grad.norm() for p in learner.parameters() if p.grad is not None]
    assert torch.stack(grads).norm().item() == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision(start, tmp_path, precision):
    learner, _ = start(max_steps=12, precision=precision, dropout=0.0)
    start("full", max_steps=12, dropout=0.0)
    half, full = (log(tmp_path / name) for name in ("m", "full"))
    assert half[0]["loss"] == pytest.approx(full[0]["loss"], rel=0.05)
    assert half[0]["loss"] != full[0]["loss"]
    assert half[-1]["loss"] < half[0]["loss"]
    # Weights stay in full precision.
    assert {p.dtype for p in learner.parameters()} == {torch.float32}
    assert json.dumps(half, allow_nan=False)


def test_fp16_resumes_with_its_scale(start, tmp_path, kept_steps):
    options = {"max_steps": 7, "precision": "fp16", "eval_steps": 1}
    options["parameters"] = {"temperature": 5e-3}  # with it the first scale is too large
    with pytest.raises(KeyboardInterrupt):
        start(evaluate=interrupt_after(5), **options)
    start(evaluate=interrupt_after(99), resume=True, **options)
    start("whole", evaluate=interrupt_after(99), **options)
    assert same(checkpoint(tmp_path / "m"), checkpoint(tmp_path / "whole"))
    norms = [line["norm"] for line in log(tmp_path / "whole") if "norm" in line]
    # Before the checkpoint the scale fell, and the optimizer took steps.
    assert norms[0] is None
    assert any(norms[:4])


def poison(where, value, at):
    """Makes the loss, or the gradient alone, something that is no number at a step."""
    calls = []

    def spoilt(number):
        calls.append(1)
        return number * (value if len(calls) == at + 1 else 1)

    def spoil(learner):
        loss = learner.loss
        if where == "loss":
            learner.loss = lambda terms: spoilt(loss(terms))
        else:
            next(learner.encoder.backbone.parameters()).register_hook(spoilt)

    return spoil


@pytest.mark.parametrize(("where", "value"), [("loss", math.inf), ("gradient", math.nan)])
def test_what_is_no_number_stops_the_run_before_the_weights(start, tmp_path, value, where):
    name = "loss" if where == "loss" else "the gradient"
    message = rf"step 4: {name} is not a finite number; the last checkpoint .* smaller "
    message += "learning_rate than"
    with pytest.raises(TrainingError, match=message):
        start(max_steps=10, save_steps=1, spoil=poison(where, value, 4))
    kept = checkpoint(tmp_path / "m").values()
    assert all(torch.isfinite(tensor.double()).all() for tensor in kept)
    # The checkpoint is usable: without the poison the run goes on from there.
    _, run = start(max_steps=10, save_steps=1, resume=True)
    assert run.steps == 10
    start("whole", max_steps=10, save_steps=1)
    assert same(weights(tmp_path / "m"), weights(tmp_path / "whole"))


def test_a_run_that_cannot_begin_leaves_the_model_that_it_would_replace(start, tmp_path):
    start(max_steps=1)
    before = weights(tmp_path / "m")
    with pytest.raises(OptionError, match="at least one weight must be above 0"):
        start(overwrite=True, spoil=lambda learner: learner.weights.update(contrast=0.0))
    assert same(weights(tmp_path / "m"), before)


def test_a_finished_run_returns_at_once(start):
    _, run = start(evaluate=scores([0.1, 0.7])[0])
    before = {p: p.stat().st_mtime_ns for p in run.folder.rglob("*")}
    _, again = start(evaluate=scores([])[0], resume=True)
    assert again == run
    assert before == {p: p.stat().st_mtime_ns for p in run.folder.rglob("*")}


def interrupt_after(count, number=signal.SIGINT):
    """An evaluation that sends a signal at its n-th call."""
    calls = []

    def evaluated(encode):
        calls.append(1)
        if len(calls) == count:
            os.kill(os.getpid(), number)
        return Report((Row("made", "dev", "spearman", "", 1.0 / len(calls), 10),))

    return evaluated


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_writes_a_checkpoint(start, tmp_path, monkeypatch, number):
    # A second passes with each look at the clock: each step, and each checkpoint.
    clock = types.SimpleNamespace(monotonic=itertools.count().__next__)
    monkeypatch.setattr("contrasent.train.fit.time", clock)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        start(max_steps=9, eval_steps=1, evaluate=interrupt_after(4, number))
    assert signal.getsignal(number) is before
    _, stated = read_checkpoint(tmp_path / "m" / "run" / "checkpoint.safetensors")
    assert stated["step"] == 3
    evaluate = scores([1 / 5, 1 / 6, 1 / 7, 1 / 8, 1 / 9, 1 / 10])[0]
    _, run = start(max_steps=9, eval_steps=1, evaluate=evaluate, resume=True)
    whole = scores([1 / n for n in range(1, 11)])[0]
    _, other = start("whole", max_steps=9, eval_steps=1, evaluate=whole)
    assert run.history == other.history
    assert run.seconds == other.seconds + 1  # of the checkpoint at which it was stopped
    assert same(weights(tmp_path / "m"), weights(tmp_path / "whole"))
    assert log(tmp_path / "m") == log(tmp_path / "whole")


@pytest.mark.parametrize("stopped", [3, 9])
def test_the_speed_of_a_run_is_that_of_all_its_sessions(start, monkeypatch, stopped):
    """Also where it was stopped in its last step, and nothing is left to do."""

    def run(tick, evaluate, **more):
        clock = types.SimpleNamespace(monotonic=itertools.count(step=tick).__next__)
        monkeypatch.setattr("contrasent.train.fit.time", clock)  # a step takes one tick
        return start(max_steps=9, eval_steps=1, evaluate=evaluate, **more)[1]

    with pytest.raises(KeyboardInterrupt):
        run(1, interrupt_after(stopped + 1))
    found = run(2, scores([0.1] * 9)[0], resume=True)
    assert found.sentences_per_second == 8 * 9 / (stopped + 2 * (9 - stopped))


def test_a_checkpoint_that_counts_no_training_time_is_resumed(start, monkeypatch):
    def write(path, module, optimizer, state):
        write_checkpoint(
            path, module, optimizer, {k: v for k, v in state.items() if k != "trained_seconds"}
        )

    monkeypatch.setattr("contrasent.train.fit.write_checkpoint", write)
    with pytest.raises(KeyboardInterrupt):
        start(eval_steps=1, evaluate=interrupt_after(4))
    _, run = start(eval_steps=1, evaluate=scores([0.1] * 9)[0], resume=True)
    assert run.steps == 6
    assert run.sentences_per_second > 0


def test_a_disk_that_fills_up_loses_nothing(start, tmp_path):
    with mounted(tmp_path / "disk", "size=4m") as home:

        def fill(step, values):
            if step == 5:
                (home / "filler").write_bytes(b"x" * shutil.disk_usage(home).free)

        start("whole", max_steps=8, save_steps=2)
        with pytest.raises(OutputError, match=r"disk/m/run/.*No space left"):
            start("disk/m", max_steps=8, save_steps=2, on_step=fill)
        (home / "filler").unlink()
        assert (home / "m" / "run" / "checkpoint.safetensors").is_file()
        subprocess.run(["mount", "-o", "remount,size=20m", str(home)], check=True)
        start("disk/m", max_steps=8, save_steps=2, resume=True)
        assert same(weights(home / "m"), weights(tmp_path / "whole"))
        assert log(home / "m") == log(tmp_path / "whole")


def test_facts_reach_the_card(start, sentences, tmp_path):
    start(rows=[*sentences[:30], "kettle " * 60])
    text = (tmp_path / "m" / "README.md").read_text()
    assert '"rows": 31' in text
    assert '"cut": 1' in text
    assert str(tmp_path) not in text  # no path of this machine


def test_geometry_is_followed_and_changes_nothing(start, tmp_path, monkeypatch):
    def space(encode):
        vectors = encode(["a map", "the road to the coast"])
        rows = [
            Row("made", "dev", name, "", float(vectors.sum()), 2) for name in ("alignment", "x")
        ]
        return Report(tuple(rows))

    monkeypatch.setattr("contrasent.train.fit.geometry_on_stsb", lambda: space)
    start("plain", max_steps=7, dropout=0.3)
    start("followed", max_steps=7, dropout=0.3, geometry_every=3)
    assert same(weights(tmp_path / "plain"), weights(tmp_path / "followed"))
    points = trajectory(tmp_path / "followed")
    assert [point["step"] for point in points] == [0, 3, 6, 7]
    assert len({point["alignment"] for point in points}) == 4
    assert points[0]["alignment"] == points[0]["x"]
    assert trajectory(tmp_path / "plain") == trajectory(tmp_path / "nowhere") == []


@pytest.mark.data
def test_geometry_is_that_of_sts_b_where_none_is_given(start, tmp_path):
    start(max_steps=1, geometry_every=1)
    points = trajectory(tmp_path / "m")
    assert [point["step"] for point in points] == [0, 1]
    assert {"alignment", "uniformity"} <= points[0].keys()


def test_the_page_and_the_callback_have_every_number(start, tmp_path):
    told = []
    evaluate, _ = scores([0.1, 0.4, 0.3])
    on_step = lambda step, values: told.append((step, values))  # noqa: E731
    start(max_steps=24, eval_steps=12, evaluate=evaluate, on_step=on_step)
    steps = [(step, values) for step, values in told if "loss" in values]
    assert [step for step, _ in steps] == list(range(1, 25))  # the log has some of them
    logged = {line["step"]: line for line in log(tmp_path / "m") if "loss" in line}
    assert all(values["loss"] == logged[step]["loss"] for step, values in steps if step in logged)
    assert dict(told)[24] == {"evaluation/made/spearman": 0.3}
    assert steps[0][1]["shares/contrast"] == 1.0
    page = (tmp_path / "m" / "report.html").read_text()
    shown = ("<svg", "neighbor overlap", "before and after", "0.400", "weight_decay")
    for words in (*shown, "Better, not proven"):  # by a score alone
        assert words in page


def test_tensorboard_has_the_same_numbers(start, tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder, purge_step):
            written.append((Path(folder).name, purge_step))

        def add_scalar(self, name, value, step):
            written.append((step, name, value))

        def flush(self):
            pass

    module = types.ModuleType("tensorboardX")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    told = []
    on_step = lambda step, values: told.extend((step, *pair) for pair in values.items())  # noqa: E731
    start(max_steps=3, on_step=on_step, tensorboard=True)
    assert written == [("tensorboard", 1), *told]
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingExtraError, match=r"contrasent\[tensorboard\]"):
        start("n", max_steps=3, tensorboard=True)
    assert not (tmp_path / "n").exists()
