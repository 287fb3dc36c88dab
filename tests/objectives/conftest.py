"""Masked language models beside the tiny encoders, and every objective with parameters that run."""

import shutil
import warnings

import numpy as np
import pytest

KINDS = ("bert", "roberta", "distilbert")

TEXTS = [
    "the copper kettle was sold before dawn",
    "an old sailor painted two blue lamps",
    "my neighbour hid his violin",
    "a young clerk measured the wooden ladder while the rain kept falling on the roof",
    "the gardener forgot",
    "a torn map, a blue lamp and a violin",
]


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
def examples(masked):
    """Every objective, by name, with the parameters that it cannot do without."""

    def parameters(kind):
        model = str(masked[kind])
        return {
            "simcse": {},
            "simcse_supervised": {},
            "esimcse": {"queue_size": 9},
            "diffcse": {"generator": model},
            "simcse_plus_plus": {},
            "masked_lm": {"language_head": model, "mask_ratio": 0.4},
            "barlow_twins": {"artificial": 5},
            "dimension_wise": {},
            "simcse_noise": {"passes": 2},
            "simcse_copies": {"copy_filler": model},
        }

    return parameters


@pytest.fixture(scope="session")
def load(tiny):
    """A fresh tiny encoder of a kind."""
    from contrasent.model.encoder import Encoder

    def loaded(kind="bert", *, dropout=0.1, **options):
        return Encoder.load(
            tiny[kind],
            pooler=options.pop("pooler", "cls"),
            dropout=dropout,
            attention_dropout=options.pop("attention_dropout", dropout),
            max_tokens=24,
            **options,
        )

    return loaded


@pytest.fixture(scope="session")
def batches():
    """A batch of an objective's views, as the training loop makes it, without a corpus on disk."""
    from contrasent.text.batches import random_for
    from contrasent.types import Batch, Tokens

    def one(objective, view, index, texts, rows):
        tokenizer = objective.encoder.tokenizer
        whole = tokenizer(texts)[0]
        randoms = [random_for(5, 2 + index, int(row), 0) for row in rows]
        if view.level == "row":
            following = [texts[(i + 1) % len(texts)] for i in range(len(texts))]
            return tokenizer(following)[0]
        if view.level == "word":
            return tokenizer(view.many(texts, randoms))[0]
        before, after = tokenizer.frame
        inner = [whole[i][len(before) : len(whole[i]) - len(after)] for i in range(len(whole))]
        return Tokens.from_rows(
            np.concatenate([before, ids, after]) for ids in view.many(inner, randoms)
        )

    def batch(objective, step=0, part=slice(None)):
        rows = np.arange(len(TEXTS))[part]
        columns = [
            one(objective, view, i, [TEXTS[r] for r in rows], rows)
            for i, view in enumerate(objective.views)
        ]
        if objective.labelled:
            tokenizer = objective.encoder.tokenizer
            hard = [" ".join(reversed(TEXTS[r].split())) for r in rows]
            columns += [tokenizer(hard)[0], tokenizer([t.upper() for t in hard])[0]]
        return Batch(tuple(columns), rows.astype(np.int64), step)

    return batch
