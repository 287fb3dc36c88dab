"""What a stopped process leaves of a model is gone on with, or begun anew; it is in no way."""

import json
import shutil
from pathlib import Path

import pytest

from contrasent.reproduce.corpora import Built
from contrasent.reproduce.run import train
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
        run = Training("gist", {"guide": str(guide)}, {}, SETTINGS, "none", None, corpus)
        return train(run, Path(bert), tmp_path / "model", None, tmp_path / "tokens")

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
