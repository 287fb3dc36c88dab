"""Objectives in the training loop: every kind of view, and runs that are killed and resumed."""

import pytest
from safetensors.torch import load_file

from contrasent.errors import TrainingError
from contrasent.text.corpus import open_corpus
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings, choose


class Killed(Exception):
    """Stands for a SIGKILL between two steps."""


def settings(**more):
    chosen = {
        "batch": 8,
        "steps": 5,
        "max_tokens": 24,
        "checkpoint_every": 2,
        "lr": 1e-3,
        "seed": 4,
    }
    return Settings(**(chosen | more))


def run(bert, folder, name, given, corpus, *, killed_at=None, resume=False):
    objective = prepare(bert, name, given, settings())
    if killed_at is not None:
        after, seen = objective.after_step, []

        def count():
            seen.append(1)
            if len(seen) == killed_at:
                raise Killed
            after()

        objective.after_step = count
    fit(objective, corpus, settings(), folder=folder, resume=resume)
    return load_file(folder / "model.safetensors"), objective


def resumed_cases(masked):
    return {
        "esimcse+simcse_plus_plus": {"queue_size": 12, "rate": 0.6},
        "diffcse": {"generator": masked},
        "simcse_supervised+esimcse+masked_lm": {"queue_size": 12, "language_head": masked},
    }


@pytest.mark.parametrize("killed_at", [1, 4])
@pytest.mark.parametrize("name", list(resumed_cases("")))
def test_a_killed_run_resumes_bit_exactly(bert, masked, sentences, tmp_path, name, killed_at):
    given = resumed_cases(str(masked["bert"]))[name]
    corpus = sentences[:60]
    if "supervised" in name:
        corpus = list(zip(sentences[:60], sentences[1:61], sentences[2:62], strict=True))
    whole, _ = run(bert, tmp_path / "whole", name, given, corpus)
    with pytest.raises(Killed):
        run(bert, tmp_path / "part", name, given, corpus, killed_at=killed_at)
    again, _ = run(bert, tmp_path / "part", name, given, corpus, resume=True)
    assert whole.keys() == again.keys()
    for key, value in whole.items():
        assert value.equal(again[key]), key


def viewed_cases(masked):
    return {
        "next sentence": ("simcse", {"view": "next_sentence"}),
        "one of the next three": ("simcse", {"view": "next_sentence", "reach": 3}),
        "crop both": ("simcse", {"view": "crop", "percent": 30.0, "views": "both"}),
        "static deletion": ("simcse", {"view": "delete_one_word", "fresh": "static"}),
        "masked replacement": ("simcse", {"view": "masked_lm", "filler": masked, "draw": "sample"}),
        "inserted mask": ("esimcse", {"view": "insert_mask", "queue_size": 8}),
        "inserted prediction": ("esimcse", {"view": "insert_prediction", "filler": masked}),
        "inserted stop words": ("esimcse", {"view": "insert_stop_words", "rate": 0.5}),
        "difference of the next": ("diffcse", {"generator": masked, "target": "both"}),
        "copies": ("simcse_copies", {"copy_edit": "insert", "copy_filler": masked}),
        "words": ("esimcse", {"view": "repeat_words", "rule": "paper"}),
    }


@pytest.mark.parametrize("case", list(viewed_cases("")))
def test_every_kind_of_view_trains(bert, masked, sentences, tmp_path, case):
    name, given = viewed_cases(str(masked["bert"]))[case]
    text = tmp_path / "documents.txt"
    groups = [sentences[i : i + 5] for i in range(0, 60, 5)]
    text.write_text("\n\n".join("\n".join(group) for group in groups) + "\n")
    corpus = open_corpus(text, documents=True)
    _, objective = run(bert, tmp_path / "model", name, given, corpus)
    assert objective.describe()["name"] == name


def test_next_sentences_of_a_shuffled_corpus_are_refused(bert, sentences, tmp_path):
    with pytest.raises(TrainingError, match="document order"):
        run(bert, tmp_path / "model", "simcse", {"view": "next_sentence"}, sentences[:40])


def test_parameters_of_a_combination_are_settings(masked):
    chosen = choose(
        {"queue_size": "64", "factor": "1.0", "lr": "1e-5", "generator": "x"},
        "diffcse+esimcse+simcse_plus_plus",
    )
    assert chosen.run == {"lr": 1e-5}
    assert chosen.objective == {"queue_size": 64, "factor": 1.0, "generator": "x"}
