"""Masked language models of the tiny encoders, and every objective with parameters that run."""

import shutil
import warnings

import pytest
from made_batches import batch


@pytest.fixture(scope="session")
def masked(tiny, tmp_path_factory):
    """Folders of masked language models with the tiny encoders' vocabularies, by kind."""
    import torch
    from transformers import AutoModelForMaskedLM

    home = tmp_path_factory.mktemp("masked")
    folders = {}
    for kind, folder in tiny.items():
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(11)
            model = AutoModelForMaskedLM.from_pretrained(folder)
            with torch.no_grad():
                for weight in model.get_output_embeddings().parameters():
                    weight.add_(torch.randn_like(weight) * 0.3)
        folders[kind] = home / kind
        model.save_pretrained(folders[kind])
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(folder / name, folders[kind] / name)
    return folders


@pytest.fixture(scope="session")
def guide(tiny, tmp_path_factory):
    """Folder of a sentence encoder with the tokenizer of the kind "bert"."""
    import torch

    from contrasent.encoder.encoder import TorchEncoder

    encoder = TorchEncoder.load(tiny["bert"], pooling="mean", max_seq_length=24)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(12)
        for weight in encoder.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    folder = tmp_path_factory.mktemp("guides") / "guide"
    encoder.save(folder)
    return folder


@pytest.fixture(scope="session")
def examples(masked, guide):
    """Every objective, by name, with the parameters that it cannot do without."""

    def parameters(kind):
        model = str(masked[kind])
        return {
            "simcse": {}, "simcse_supervised": {}, "esimcse": {"queue_size": 9},
            "diffcse": {"generator": model}, "simcse_plus_plus": {},
            "masked_lm": {"language_head": model, "mask_ratio": 0.4},
            "barlow_twins": {"artificial": 5}, "dimension_wise": {}, "simcse_noise": {"passes": 2},
            "simcse_copies": {"copy_filler": model}, "cosent": {}, "angle": {},
            "cosine_regression": {"highest_score": 5},
            "gist": {"guide": str(guide), "temperature": 0.1},
            "ranking_distillation": {"guide": str(guide)}, "matryoshka": {"dimensions": "8,16"},
            "promptbert": {"template": "a [X] is [MASK].", "positive_template": "[X]? [MASK]"},
        }  # fmt: skip

    return parameters


@pytest.fixture(scope="session")
def load(tiny):
    """A fresh tiny encoder of a kind."""
    from contrasent.encoder.encoder import TorchEncoder

    def loaded(kind="bert", *, dropout=0.1, **options):
        return TorchEncoder.load(
            tiny[kind], pooling=options.pop("pooling", "cls"), dropout=dropout,
            attention_dropout=options.pop("attention_dropout", dropout),
            max_seq_length=24, **options,
        )  # fmt: skip

    return loaded


@pytest.fixture(scope="session")
def batches():
    """See ``made_batches.batch``."""
    return batch
