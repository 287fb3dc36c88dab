"""LoRA: what trains, what is saved, and that packed layers do not pass over it."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from contrasent import Encoder, fit
from contrasent.encoder.heads import add_lora
from contrasent.errors import MissingExtraError
from tiny_models import made_sentences, write_backbone, write_tokenizer

TEXTS = made_sentences()[:24]
GIVEN = {"max_steps": 3, "batch_size": 8, "learning_rate": 1e-2, "max_seq_length": 24, "lora": 4}
GIVEN |= {"evaluate": "none"}


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_it_is_merged_when_saved(kind, tmp_path):
    pytest.importorskip("peft")
    base = tmp_path / "base"
    write_backbone(kind, base, write_tokenizer(kind, base))
    run = fit("simcse", TEXTS, output_dir=tmp_path / "m", base=base, pooling="mean", **GIVEN)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "m"))
    before, after = ({k: v for k, v in x.items() if "pooler" not in k} for x in (before, after))
    assert before.keys() == after.keys()
    moved = {k for k in before if not torch.equal(before[k], after[k])}
    assert moved and all(before[k].dim() == 2 and "embed" not in k for k in moved)
    for key in moved:  # of rank 4, and no more
        assert torch.linalg.matrix_rank((after[key] - before[key]).double(), rtol=1e-4) <= 4
    assert (run.encoder.encode(TEXTS) != Encoder.load(base, pooling="mean").encode(TEXTS)).any()
    assert json.loads((tmp_path / "m" / "config.json").read_text())["model_type"] == kind


def test_the_vectors_in_training_are_those_that_are_saved(bert, tmp_path):
    pytest.importorskip("peft")
    encoder = Encoder.load(bert, pooling="mean")
    assert encoder.packed
    add_lora(encoder.backbone, 3)
    names = {k for k, p in encoder.named_parameters() if p.requires_grad}
    assert names and all(".lora_" in name for name in names)
    for name, parameter in encoder.named_parameters():
        if ".lora_B." in name:
            parameter.data.normal_(std=0.3)
    state = {k: v.clone() for k, v in encoder.state_dict().items()}
    encoder.packed = True  # as it was: no layer may be computed without its matrices
    vectors = encoder.encode(TEXTS)
    encoder.save(tmp_path / "m")
    again = Encoder.load(tmp_path / "m")
    assert again.encode(TEXTS) == pytest.approx(vectors, abs=1e-5)
    assert again.identity == encoder.identity
    assert all(torch.equal(state[k], v) for k, v in encoder.state_dict().items())
    assert np.abs(vectors - Encoder.load(bert, pooling="mean").encode(TEXTS)).max() > 0.01


def test_a_momentum_encoder_may_start_at_random(bert, tmp_path):
    pytest.importorskip("peft")
    given = {"momentum_init": "random", "queue_size": 8, "pooling": "mean", **GIVEN, "max_steps": 1}
    assert fit("esimcse", TEXTS, output_dir=tmp_path / "m", base=bert, **given).steps == 1


def test_without_peft_the_extra_is_named(bert, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'contrasent\[lora\]'"):
        fit("simcse", TEXTS, output_dir=tmp_path / "m", base=bert, **GIVEN)
