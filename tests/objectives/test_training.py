"""Objectives in the training loop: every kind of view, and runs that are killed and resumed."""

from dataclasses import replace

import pytest
from safetensors.torch import load_file

from contrasent.text.corpus import open_corpus
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings

SETTINGS = Settings(batch=8, steps=5, max_tokens=24, checkpoint_every=2, lr=1e-3, seed=4)


class Killed(Exception):
    """Stands for a SIGKILL between two steps."""


@pytest.mark.parametrize(("name", "more"), [
    ("esimcse+simcse_plus_plus", {}), ("diffcse", {}), ("simcse_supervised+esimcse+masked_lm", {}),
    ("simcse_plus_plus", {"grad_cache_rows": 3, "accumulate": 2, "dropout": 0.2}),
])  # fmt: skip
def test_a_killed_run_resumes_bit_exactly(bert, masked, sentences, tmp_path, name, more):
    settings = replace(SETTINGS, **more)
    model = str(masked["bert"])
    given = {"diffcse": {"generator": model}, "masked_lm": {"language_head": model}}
    given = given.get(name.split("+")[-1], {}) | ({"queue_size": 12} if "esimcse" in name else {})
    corpus = sentences[:60]
    if "supervised" in name:
        corpus = list(zip(sentences[:60], sentences[1:61], sentences[2:62], strict=True))

    def train(folder, killed_at=0, **more):
        objective = prepare(bert, name, given, settings)
        steps, after = iter(range(killed_at - 1, -9, -1)), objective.after_step

        def counted():
            if next(steps) == 0:
                raise Killed
            after()

        objective.after_step = counted
        fit(objective, corpus, settings, folder=tmp_path / folder, **more)
        return load_file(tmp_path / folder / "model.safetensors")

    whole = train("whole")
    with pytest.raises(Killed):
        train("part", killed_at=4)
    again = train("part", resume=True)
    assert whole.keys() == again.keys() and all(v.equal(again[k]) for k, v in whole.items())
    logs = {(tmp_path / name / "run" / "log.jsonl").read_text() for name in ("whole", "part")}
    assert len(logs) == 1


def viewed_cases(masked):
    return {
        "next sentence": ("simcse", {"view": "next_sentence"}),
        "one of the next three": ("simcse", {"view": "next_sentence", "reach": 3}),
        "crop both": ("simcse", {"view": "crop", "percent": 30.0, "views": "both"}),
        "static deletion": ("simcse", {"view": "delete_one_word", "resample_views": "static"}),
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
    objective = prepare(bert, name, given, SETTINGS)
    fit(objective, corpus, SETTINGS, folder=tmp_path / "model")
    assert objective.describe()["name"] == name
