"""The model card: YAML that the hub reads, and what was done, stated."""

import json
from dataclasses import replace

import pytest

from contrasent.model.card import Facts, card
from contrasent.model.encoder import Encoder
from contrasent.report import Report, Row

REPORT = Report(
    (
        Row("STSB", "dev", "spearman", "", 0.81234, 1500, 0.79, 0.83),
        Row("mine", "heldout", "mrr@10", "all", 0.5, 40),
    )
)


def front(text):
    """The YAML block; each value is JSON."""
    _, block, _ = text.split("---\n", 2)
    return {key: json.loads(value) for key, value in (x.split(": ", 1) for x in block.splitlines())}


def test_everything_is_told(bert):
    encoder = Encoder.load(bert, pooler="mean", normalise=True, max_tokens=20)
    facts = Facts(base='a "quoted" base', data={"source": "x.txt", "rows": 7, "sha256": "ab"})
    facts = facts.with_training({"name": "simcse"}, {"lr": 3e-5, "seed": 4}, 250, REPORT)
    text = card(encoder, facts)
    told = front(text)
    assert told["library_name"] == "sentence-transformers"
    assert told["pipeline_tag"] == "sentence-similarity"
    assert told["base_model"] == 'a "quoted" base'
    assert "contrasent" in told["tags"]
    results = told["model-index"][0]["results"]
    assert [r["metrics"][0]["value"] for r in results] == [0.81234, 0.5]
    for wanted in (
        "32 dimensions (unit length), pooled by `mean` from 2 layers; texts are cut at 20 tokens",
        '| objective | `{"name": "simcse"}` |',
        '| settings | `{"lr": 3e-05, "seed": 4}` |',
        '"rows": 7',
        "| taken after step | `250` |",
        "| STSB | dev | spearman | 0.8123 | 0.7900 to 0.8300 | 1500 |",
        "| mine | heldout | mrr@10 (all) | 0.5000 |  | 40 |",
        'SentenceTransformer("FOLDER")',
    ):
        assert wanted in text


def test_nothing_is_guessed(bert):
    encoder = Encoder.load(bert, pooler="cls")
    text = card(encoder, Facts())
    assert set(front(text)) == {"library_name", "pipeline_tag", "tags"}
    assert "## Training" not in text
    assert "## Scores" not in text
    assert "not normalised" in text
    assert "last_hidden_state[:, 0]" in text
    assert "last_hidden_state" not in card(Encoder.load(bert, pooler="mean"), Facts())


def test_yaml_readers_read_it(bert):
    yaml = pytest.importorskip("yaml")
    facts = replace(Facts(base="- odd: base #1"), report=REPORT)
    _, block, _ = card(Encoder.load(bert, pooler="mean"), facts).split("---\n", 2)
    assert yaml.safe_load(block)["base_model"] == "- odd: base #1"
