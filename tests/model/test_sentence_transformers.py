"""The installed sentence-transformers reads what we save and writes what we read."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from transformers import AutoModel

from contrasent.encoder.encoder import TorchEncoder

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


@pytest.mark.slow
def test_sentence_transformers_loads_a_folder_in_silence(tiny, tmp_path):
    TorchEncoder.load(tiny["bert"], pooling="mean").save(tmp_path / "m")
    program = "import sys, sentence_transformers as s; s.SentenceTransformer(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, tmp_path / "m"],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0
    assert "MISSING" not in done.stdout + done.stderr
    assert "UNEXPECTED" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "kind", ["bert", "roberta", "distilbert", "mpnet", "electra", "modernbert"]
)
@pytest.mark.parametrize(
    ("pooling", "head", "normalize"),
    [("cls", "none", False), ("mean", "tanh", True), ("max", "batchnorm", False)]
    + [(name, "tanh", True) for name in ("first_last", "embeddings_last", "last_two")],
)
def test_the_same_vectors(tiny, tmp_path, kind, pooling, head, normalize):
    torch.manual_seed(1)
    options = {"head": head, "normalize": normalize, "max_seq_length": 20}
    encoder = TorchEncoder.load(tiny[kind], pooling=pooling, **options)
    expected = encoder.encode(TEXTS)
    encoder.save(tmp_path / "old")
    other = library.SentenceTransformer(str(tmp_path / "old"), device="cpu")
    assert other.max_seq_length == 20
    vectors = other.encode(TEXTS, show_progress_bar=False)
    assert np.abs(vectors - expected).max() < 1e-5
    if (kind, pooling) in (("bert", "mean"), ("roberta", "first_last"), ("modernbert", "max")):
        other.save(str(tmp_path / "new"))
        again = TorchEncoder.load(tmp_path / "new")
        assert again.max_seq_length == 20
        assert np.abs(again.encode(TEXTS) - expected).max() < 1e-5
