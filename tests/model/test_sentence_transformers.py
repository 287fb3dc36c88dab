"""The installed sentence-transformers reads what we save and writes what we read."""

import warnings

import numpy as np
import pytest
import torch
from transformers import AutoModel

from contrasent.encoder.encoder import TorchEncoder
from tiny_models import KINDS

TEXTS = ["The gardener sold his violin.", "", "A Map", "kettle " * 80, "Ein alter Seemann, 老水手"]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    library = pytest.importorskip("sentence_transformers")


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "electra", "modernbert"])
def test_no_weight_of_a_saved_folder_is_missing(tiny, tmp_path, kind):
    TorchEncoder.load(tiny[kind], pooling="mean").save(tmp_path / "m")
    options = {"local_files_only": True, "output_loading_info": True}
    _, info = AutoModel.from_pretrained(tmp_path / "m", **options)
    assert not any(info.values()), info


WAYS = {"cls": ("none", False), "mean": ("tanh", True), "max": ("batchnorm", False)}
WAYS |= dict.fromkeys(("first_last", "embeddings_last", "last_two"), ("tanh", True))
SAVED_BY_BOTH = [("bert", "mean"), ("roberta", "first_last"), ("modernbert", "max")]


@pytest.mark.parametrize(("kind", "pooling"), [
    *((kind, "mean") for kind in KINDS), *(("bert", name) for name in WAYS if name != "mean"),
    *SAVED_BY_BOTH[1:],
])  # fmt: skip
def test_the_same_vectors(tiny, tmp_path, kind, pooling):
    torch.manual_seed(1)
    head, normalize = WAYS[pooling]
    options = {"head": head, "normalize": normalize, "max_seq_length": 20}
    encoder = TorchEncoder.load(tiny[kind], pooling=pooling, **options)
    expected = encoder.encode(TEXTS)
    encoder.save(tmp_path / "old")
    other = library.SentenceTransformer(str(tmp_path / "old"), device="cpu")
    assert other.max_seq_length == 20
    vectors = other.encode(TEXTS, show_progress_bar=False)
    assert np.abs(vectors - expected).max() < 1e-5
    if (kind, pooling) in SAVED_BY_BOTH:
        other.save(str(tmp_path / "new"))
        again = TorchEncoder.load(tmp_path / "new")
        assert again.max_seq_length == 20
        assert np.abs(again.encode(TEXTS) - expected).max() < 1e-5
