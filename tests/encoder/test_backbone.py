"""Strict loading: a model with anything missing, new or of another shape does not load."""

import json
import logging
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError

TEXTS = ["The gardener sold his violin.", "a map"]


def config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weights(folder, change):
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def without(part):
    return lambda all_: {k: v for k, v in all_.items() if part not in k}


def to_pickle(folder):
    import torch

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


REJECTED = {
    "missing weights": (lambda m: weights(m, without("layer.1.output.dense")),
                        r"2 weights are missing \(encoder.layer.1.output.dense.bias, "),
    "newly initialized layer": (lambda m: config(m, num_hidden_layers=3),
                                r"16 weights are missing \(encoder.layer.2"),
    "layers left over": (lambda m: config(m, num_hidden_layers=1),
                         r"16 weights are unknown to the model in config.json \(encoder.layer.1"),
    "mismatched shape": (lambda m: config(m, intermediate_size=64),
                         r"the weights do not match config.json: encoder.layer.0.intermediate"
                         r".dense.\w+ has shape \(48.*, expected \(64"),
    "pickled weights alone": (to_pickle, "m: no weights in safetensors; .*bin is pickled"),
    "damaged weights": (cut, "the weights cannot be loaded: Error while deserializing header"),
    "no encoder": (lambda m: config(m, model_type="t5", dropout_rate=0.1), "m.*t5|config.json"),
    "unknown kind": (lambda m: config(m, model_type="nonesuch"), "config.json: .*nonesuch"),
    "code": (lambda m: config(m, model_type="new", auto_map={"AutoConfig": "configuration.New"}),
             "m: model_type 'new' needs the publisher's code, which is not run"),
    "alibi": (lambda m: config(m, position_embedding_type="alibi"), "'alibi' is not computed by"),
    "relative positions": (lambda m: config(m, position_embedding_type="relative_key_query"),
                           r"config.json: position_embedding_type 'relative_key_query' is not"),
    "damaged config": (lambda m: (m / "config.json").write_text("{"),
                       r"config.json: not valid JSON \(Expecting property name"),
    "no tokenizer": (lambda m: [path.unlink() for path in m.glob("tokenizer*")],
                     "contains neither tokenizer.json nor a vocabulary"),
    "pieces without their library": (
        lambda m: ((m / "tokenizer.json").rename(m / "spiece.model"),
                   (m / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')),
        r"could not be built \(.+\); a \*.model needs sentencepiece"),
    "damaged tokenizer": (lambda m: (m / "tokenizer.json").write_text("{}"),
                          "tokenizer.json: not a readable tokenizer"),
}  # fmt: skip


@pytest.mark.parametrize("case", REJECTED)
def test_rejected(bert, tmp_path, case):
    folder = shutil.copytree(bert, tmp_path / "m")
    change, message = REJECTED[case]
    change(folder)
    with pytest.raises(ModelError, match=message) as caught:
        TorchEncoder.load(folder, pooling="mean")
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_pickle_with_the_weights_is_not_opened(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "m")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    one, two = (TorchEncoder.load(place, pooling="mean").encode(TEXTS) for place in (folder, bert))
    assert np.array_equal(one, two)


def test_a_tokenizer_of_another_vocabulary(tiny, tmp_path):
    folder = shutil.copytree(tiny["bert"], tmp_path / "m")
    shutil.copy(tiny["roberta"] / "tokenizer.json", folder)
    message = "the tokenizer has 380 entries and the encoder 78; they belong to different models"
    with pytest.raises(ModelError, match=message):
        TorchEncoder.load(folder, pooling="mean")


def test_heads_of_pretraining_are_passed_over(bert, tmp_path):
    import torch

    folder = shutil.copytree(bert, tmp_path / "m")

    def dress(all_):
        head = {"cls.predictions.bias": torch.zeros(78), "bert.pooler.dense.bias": torch.ones(32)}
        return {f"bert.{k}": v for k, v in all_.items()} | head

    weights(folder, dress)
    expected = TorchEncoder.load(bert, pooling="mean").encode(TEXTS)
    assert np.array_equal(TorchEncoder.load(folder, pooling="mean").encode(TEXTS), expected)
    config(folder, num_hidden_layers=1)
    with pytest.raises(ModelError, match=r"16 weights are unknown .*\(bert.encoder.layer.1"):
        TorchEncoder.load(folder, pooling="mean")


def test_weights_in_half_precision_are_widened(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "m")
    config(folder, auto_map={"AutoModel": "modeling.New"})  # whose weights have other names
    weights(folder, lambda all_: {k: v.half() for k, v in all_.items()})
    encoder = TorchEncoder.load(folder, pooling="mean")
    assert {str(p.dtype) for p in encoder.parameters()} == {"torch.float32"}
    full = TorchEncoder.load(bert, pooling="mean").encode(TEXTS)
    assert encoder.encode(TEXTS) == pytest.approx(full, abs=5e-3)
    encoder.save(tmp_path / "saved")
    assert "auto_map" not in (tmp_path / "saved" / "config.json").read_text()


def test_an_older_tokenizer_is_converted(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "m")
    vocabulary = json.loads((bert / "tokenizer.json").read_text())["model"]["vocab"]
    words = sorted(vocabulary, key=vocabulary.get)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    encoder = TorchEncoder.load(folder, pooling="mean")
    assert np.array_equal(
        encoder.encode(["The Gardener"]),
        TorchEncoder.load(bert, pooling="mean").encode(["the gardener"]),
    )


def test_the_users_logging_is_left_alone(bert):
    from transformers.utils import logging as stated

    stated.set_verbosity(logging.INFO)
    stated.enable_progress_bar()
    try:
        TorchEncoder.load(bert, pooling="mean")
        assert stated.get_verbosity() == logging.INFO
        assert stated.is_progress_bar_enabled()
    finally:
        stated.set_verbosity_warning()
        stated.disable_progress_bar()
