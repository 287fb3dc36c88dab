"""The model card: YAML that the hub reads, and what was done, stated."""

import json
import re

import numpy as np
import pytest

from contrasent.encoder.card import CardMetadata, card
from contrasent.encoder.encoder import TorchEncoder
from contrasent.model.base import Prompts
from contrasent.model.pooling import POOLERS
from contrasent.report import Report, Row

PLAIN = [name for name, kind in POOLERS.items() if kind.mode]  # the others: test_poolers
STSB = Row("STSB", "dev", "spearman", "", 0.81234, 1500, 0.79, 0.83)
REPORT = Report((STSB, Row("mine", "heldout", "mrr@10", "all", 0.5, 40)))


def front(text):
    """The YAML block; each value is JSON."""
    _, block, _ = text.split("---\n", 2)
    return {key: json.loads(value) for key, value in (x.split(": ", 1) for x in block.splitlines())}


def test_everything_is_told(bert):
    encoder = TorchEncoder.load(bert, pooling="mean", normalize=True, max_seq_length=20)
    data = {"source": "x.txt", "rows": 7, "sha256": "ab"}
    settings, objective = {"learning_rate": 3e-5, "seed": 4}, {"name": "simcse"}
    trained = {"objective": objective, "settings": settings, "step": 250}
    facts = CardMetadata(base='a "quoted" base', data=data, report=REPORT, **trained)
    text = card(encoder, facts)
    stated = front(text)
    assert stated["library_name"] == "sentence-transformers"
    assert stated["pipeline_tag"] == "sentence-similarity"
    assert stated["base_model"] == 'a "quoted" base'
    assert "contrasent" in stated["tags"]
    results = stated["model-index"][0]["results"]
    assert [r["metrics"][0]["value"] for r in results] == [0.81234, 0.5]
    assert [r["metrics"][0]["name"] for r in results] == [
        "spearman, 95 % interval 0.7900 to 0.8300, n = 1500",
        "mrr@10 (all), n = 40",
    ]
    assert stated["tags"][-2:] == ["dataset_size:7", "loss:simcse"]
    for wanted in (
        "32 dimensions (unit length), pooled by `mean` from 2 layers; "
        "texts are truncated to 20 tokens",
        '| objective | `{"name": "simcse"}` |',
        '| settings | `{"learning_rate": 3e-05, "seed": 4}` |',
        '"rows": 7',
        "| taken after step | `250` |",
        "| STSB | dev | spearman | 0.8123 | 0.7900 to 0.8300 | 1500 |",
        "| mine | heldout | mrr@10 (all) | 0.5000 |  | 40 |",
        'SentenceTransformer("FOLDER")',
    ):
        assert wanted in text


def test_nothing_is_guessed(bert):
    encoder = TorchEncoder.load(bert, pooling="cls")
    text = card(encoder, CardMetadata())
    assert set(front(text)) == {"library_name", "pipeline_tag", "tags"}
    assert "## Training" not in text
    assert "## Scores" not in text
    assert "not normalized" in text
    assert "Compare vectors by cosine." in text
    encoder.prompts = Prompts(similarity="dot")
    assert "Compare vectors by dot product." in card(encoder, CardMetadata())
    assert "vectors = states[:, 0]" in text


def test_the_hub_reads_it(bert):
    from huggingface_hub import ModelCard

    facts = CardMetadata(base="person/base@" + "a" * 40, report=REPORT)
    read = ModelCard(card(TorchEncoder.load(bert, pooling="mean"), facts)).data
    assert read.base_model == "person/base"
    assert read.model_name == "this model"
    kept = {(r.task_type, r.dataset_type, r.metric_type, r.metric_value) for r in read.eval_results}
    assert kept == {
        ("semantic-similarity", "stsb", "spearman", 0.81234),
        ("information-retrieval", "mine", "mrr@10", 0.5),
    }


VARIANTS = [
    *({"pooling": name} for name in PLAIN),
    {"pooling": "cls", "head": "tanh"},
    {"pooling": "first_last", "head": "batchnorm", "normalize": True},
    {"pooling": "mean", "normalize": True, "max_seq_length": 9},
]


WAYS = [(options, False) for options in VARIANTS] + [(options, True) for options in VARIANTS[-3:]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("options", "lower"), WAYS, ids=str)
def test_its_code_gives_the_vectors_of_encode(tiny, tmp_path, sentences, options, lower):
    encoder = TorchEncoder.load(tiny["roberta" if lower else "bert"], **options)  # cased, or not
    encoder.lower_case = lower
    if options.get("head") == "batchnorm":
        encoder.train()
        encoder(encoder.tokenize(sentences[:64])[0])
        encoder.eval()
    text = card(encoder, CardMetadata())
    encoder.save(tmp_path / "m", card=text)
    wanted = encoder.encode(["A sentence", "a much LONGER sentence than the other one, by far"])
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 3
    for block in blocks:
        code = block.replace("FOLDER", str(tmp_path / "m"))
        code = code.replace("a sentence", "A sentence")
        code = code.replace("another", "a much LONGER sentence than the other one, by far")
        names = {}
        exec(code, names)
        assert np.asarray(names["vectors"]) == pytest.approx(wanted, abs=2e-6), block
