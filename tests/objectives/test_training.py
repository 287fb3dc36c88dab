"""Objectives in the training loop: every kind of view."""

import numpy as np
import pytest

from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.registry import find
from contrasent.text.corpus import open_corpus
from contrasent.train.fit import fit
from contrasent.train.prepare import collator, configure, prepare
from contrasent.train.settings import Settings

SETTINGS = Settings(
    batch_size=8, max_steps=1, max_seq_length=24, learning_rate=1e-3, seed=4, warmup_ratio=0.0
)


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
        "static words": ("esimcse", {"view": "repeat_words", "resample_views": "static"}),
        "static copies": ("simcse_copies", {"copy_edit": "delete", "resample_views": "static"}),
    }


@pytest.mark.parametrize("case", list(viewed_cases("")))
def test_every_kind_of_view_trains(bert, masked, sentences, tmp_path, case):
    name, given = viewed_cases(str(masked["bert"]))[case]
    text = tmp_path / "documents.txt"
    groups = [sentences[i : i + 5] for i in range(0, 60, 5)]
    text.write_text("\n\n".join("\n".join(group) for group in groups) + "\n")
    corpus = open_corpus(text, documents=True)
    objective = prepare(bert, name, given, SETTINGS)
    resampled = collator(objective, corpus, SETTINGS, tmp_path / "tokens", None).resample_views
    assert resampled == (given.get("resample_views") != "static")
    before = objective.encoder.encode(sentences[:9])
    fit(objective, corpus, SETTINGS, output_dir=tmp_path / "model")
    after = TorchEncoder.load(tmp_path / "model").encode(sentences[:9])
    assert np.abs(after - before).max() > 1e-4


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("diffcse", {"generator": "", "edits": "all"}),
        ("esimcse", {"view": "insert_prediction", "filler": ""}),
        ("simcse_copies", {"copy_edit": "insert", "copy_filler": ""}),
    ],
)
def test_a_text_as_long_as_the_positions_takes_no_more_tokens(
    bert, masked, sentences, tmp_path, name, given
):
    settings = Settings(batch_size=4, max_steps=1, max_seq_length=64)
    given = {option: value or str(masked["bert"]) for option, value in given.items()}
    objective = prepare(bert, name, given, settings)
    texts = [" ".join(sentences[i : i + 12]) for i in range(4)]
    assert objective.encoder.tokenize(texts)[0].lengths.tolist() == [64] * 4
    fit(objective, texts, settings, output_dir=tmp_path / "model")


def test_all_of_an_objective_goes_where_its_encoder_is(load):
    """One that was made by hand around an encoder on a GPU; no machine lacks the device "meta"."""
    objective = find("esimcse")(load("bert").to("meta"))
    configure(objective, SETTINGS)
    state = objective.state_dict()
    assert any(name.startswith("projector") for name in state)
    assert {name: value.device.type for name, value in state.items()} == dict.fromkeys(
        state, "meta"
    )
