"""The installed sentence-transformers reads what we save and writes what we read."""

import warnings

import numpy as np
import pytest
import torch

from contrasent.encoder.encoder import Encoder

TEXTS = ["The gardener sold his violin.", "", "A Map", "kettle " * 80, "Ein alter Seemann, 老水手"]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    library = pytest.importorskip("sentence_transformers")


@pytest.mark.parametrize(
    "kind", ["bert", "roberta", "distilbert", "mpnet", "electra", "modernbert"]
)
@pytest.mark.parametrize(
    ("pooler", "head", "normalise"),
    [("cls", "none", False), ("mean", "tanh", True), ("max", "batchnorm", False)]
    + [(name, "tanh", True) for name in ("first_last", "embeddings_last", "last_two")],
)
def test_the_same_vectors(tiny, tmp_path, kind, pooler, head, normalise):
    torch.manual_seed(1)
    options = {"head": head, "normalise": normalise, "max_tokens": 20}
    encoder = Encoder.load(tiny[kind], pooler=pooler, **options)
    expected = encoder.encode(TEXTS)
    encoder.save(tmp_path / "old")
    other = library.SentenceTransformer(str(tmp_path / "old"), device="cpu")
    assert other.max_seq_length == 20
    vectors = other.encode(TEXTS, show_progress_bar=False)
    assert np.abs(vectors - expected).max() < 1e-5
    if (kind, pooler) in (("bert", "mean"), ("roberta", "first_last"), ("modernbert", "max")):
        other.save(str(tmp_path / "new"))
        again = Encoder.load(tmp_path / "new")
        assert again.max_tokens == 20
        assert np.abs(again.encode(TEXTS) - expected).max() < 1e-5
