"""What a stopped process leaves of a model is gone on with, or begun anew; it is in no way."""

import json
import shutil
from pathlib import Path

import pytest

from contrasent.errors import InputError, OutputError
from contrasent.reproduce.corpora import Built
from contrasent.reproduce.plan import Job, Measurement, WorkPlan
from contrasent.reproduce.run import do, run, train
from contrasent.reproduce.store import ResultStore
from contrasent.reproduce.tables import Training
from contrasent.train.step import StepRunner

SETTINGS = {"max_steps": 4, "save_steps": 2, "batch_size": 8, "precision": "fp32"}


@pytest.fixture
def steps(monkeypatch):
    """The steps that are taken; the first run is stopped before its last one."""
    taken, take = [], StepRunner.take

    def noted(runner, step):
        if taken == [0, 1, 2]:
            raise KeyboardInterrupt
        taken.append(step)
        return take(runner, step)

    monkeypatch.setattr(StepRunner, "take", noted)
    return taken


@pytest.fixture
def trained(tmp_path, bert, models, sentences):
    """Train by a guide, a folder, into the same folder each time."""
    path = tmp_path / "pairs.jsonl"
    rows = zip(sentences[:40], sentences[40:80], strict=True)
    path.write_text("".join(json.dumps({"text0": a, "text1": b}) + "\n" for a, b in rows))
    corpus = Built("pairs", str(path), False, 40, "", path.name)

    def trained(guide=models / "mean"):
        training = Training("gist", {"guide": str(guide)}, {}, SETTINGS, "none", None, corpus)
        return train(training, Path(bert), tmp_path / "model", None, tmp_path / "tokens")

    return trained


@pytest.mark.parametrize(("elsewhere", "left"), [(False, [2, 3]), (True, [0, 1, 2, 3])])
def test_a_training_begins_anew_with_a_guide_at_another_path(
    trained, steps, models, tmp_path, elsewhere, left
):
    with pytest.raises(KeyboardInterrupt):
        trained()
    steps.clear()
    steps.append("again")
    copy = shutil.copytree(models / "mean", tmp_path / "copy")
    assert trained(copy if elsewhere else models / "mean")["steps"] == 4
    assert steps[1:] == left


def test_what_a_kill_leaves_of_a_measured_model_is_no_model_and_is_removed(
    trained, tmp_path, monkeypatch
):
    training = Training("gist", {}, {}, SETTINGS, "none", None)
    job = Job(
        "one", "train", "base", training, measurements={"unit": Measurement("unit", "sts", {})}
    )
    store, remove = ResultStore(tmp_path / "results"), shutil.rmtree
    for key in ("unit", "train-one"):
        store.write("units", key, {})
    left = store.model("one")
    left.mkdir(parents=True)
    for name in ("config.json", "modules.json"):
        (left / name).write_text("{}")

    def killed(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        do(job, store, None)
    monkeypatch.setattr(shutil, "rmtree", remove)
    assert [path.name for path in left.iterdir()] == ["config.json"]
    shutil.copytree(left, tmp_path / "model")
    assert trained()["steps"] == 4  # in its place
    (left / "modules.json").write_text("{}")
    assert run(WorkPlan([job], {}), store, None) == (0, 0)
    assert left.is_dir()  # whole: another item may have stopped before it had measured it
    (left / "modules.json").unlink()
    assert run(WorkPlan([job], {}), store, None) == (0, 0)
    assert not left.exists()


def test_a_stored_run_is_done_again_for_terms_that_its_record_lacks(tmp_path, monkeypatch):
    job = Job("one", "train", "base", Training("simcse", {}, {}, SETTINGS, "none", None))
    store, made = ResultStore(tmp_path), []
    record = {"steps": 4, "late_terms": {"contrast": 0.5}, "sentences_per_second": 8.0}
    monkeypatch.setattr(
        "contrasent.reproduce.run.train",
        lambda *given: made.append(1) or {**record, "batch_size": 8},
    )
    store.write("units", "train-one", {"steps": 4, "sentences_per_second": 4.0, "batch_size": 8})
    counts = []
    for kind in ("speed", "terms", "terms", "speed"):
        unit = f"unit {len(counts)}"
        job.measurements = {unit: Measurement(unit, kind, {})}
        (report,) = do(job, store, None)
        counts.append(len(made))
    assert counts == [0, 1, 1, 1]
    assert report.one(metric="sentences_per_second").value == 8.0


def test_a_full_disk_ends_the_queue_and_a_damaged_result_is_named(tmp_path, monkeypatch):
    """A job that cannot be written is not impossible: it would be left out, and the next begun."""
    job = Job("one", "encoder", "base", measurements={"unit": Measurement("unit", "sts", {})})
    store = ResultStore(tmp_path)

    def full(*given):
        raise OutputError("no space left")

    monkeypatch.setattr("contrasent.reproduce.run.do", full)
    with pytest.raises(OutputError, match="no space"):
        run(WorkPlan([job], {}), store, None)
    assert store.read("skipped", "one") is None
    store.write("units", "unit", {"report": {}})
    store.path("units", "unit").write_text('{"repo')
    with pytest.raises(InputError, match=r"unit\.json: damaged"):
        store.read("units", "unit")
