"""The mean weighted by inverse document frequency: against loops, trained, saved, exported."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_mask_pooler import same_gradients

from contrasent.errors import ModelError
from contrasent.model.card import CardMetadata, card
from contrasent.model.doctor import examine_folder
from contrasent.model.encoder import Encoder
from contrasent.model.export import export
from contrasent.model.golden import WEIGHTS, read_golden
from contrasent.model.runtime import Exported
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings

TEXTS = ["a map", "The gardener sold the violin.", "", "the the two blue lamps, and a map"]
CORPUS = ["the gardener sold a map", "the old map", "a violin and a violin", "lamps"]


def fitted(folder, **options):
    encoder = Encoder.load(folder, **({"pooler": "idf", "max_tokens": 24} | options))
    tokens = encoder.tokenise(CORPUS)[0]
    encoder.pooler.fit([tokens.select(np.arange(2)), tokens.select(np.arange(2, 4))])
    return encoder


def weight(encoder, token, corpus=CORPUS):
    held = sum(token in encoder.tokenise([text])[0][0] for text in corpus)
    return math.log((1 + len(corpus)) / (1 + held)) + 1


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_vectors_are_those_of_a_plain_loop(tiny, kind):
    encoder = fitted(tiny[kind])
    tokens = encoder.tokenise(TEXTS)[0]
    weights = {}
    for row, vector in enumerate(encoder.encode(TEXTS)):
        ids = tokens[row].tolist()
        with torch.inference_mode():
            states = encoder.backbone(input_ids=torch.tensor([ids])).last_hidden_state[0].tolist()
        weights |= {token: weight(encoder, token) for token in ids}
        total = sum(weights[token] for token in ids)
        for d, found in enumerate(vector.tolist()):
            wanted = sum(weights[t] * s[d] for t, s in zip(ids, states, strict=True)) / total
            assert found == pytest.approx(wanted, abs=1e-5)
    assert len({round(value, 9) for value in weights.values()}) >= 3
    assert weights[tokens[0].tolist()[0]] == 1.0


def test_packed_padded_and_cached_give_the_same_gradients(bert):
    encoder = fitted(bert, dropout=0.0, attention_dropout=0.0).double().train()
    same_gradients(encoder, encoder.tokenise(TEXTS)[0])


def test_saved_and_read_to_the_bit(bert, tmp_path):
    encoder = fitted(bert, head="tanh", normalise=True)
    encoder.save(tmp_path / "model", card=card(encoder, CardMetadata()))
    again = Encoder.load(tmp_path / "model")
    assert (again.pooling, again.identity) == ("idf", encoder.identity)
    assert np.array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    findings = examine_folder(again, read_golden(tmp_path / "model"))
    assert len(findings) == 7 and all(finding.good for finding in findings)
    text = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "inverse document frequency" in text and "from sentence_transformers" not in text
    other = Encoder.load(bert, pooler="idf", max_tokens=24)
    other.pooler.fit([encoder.tokenise(CORPUS[:2])[0]])
    assert other.identity != encoder.identity
    statistics = tmp_path / "model" / "1_IdfPooling" / "model.safetensors"
    stored = load_file(statistics)
    save_file(stored | {"frequencies": stored["frequencies"][:9].clone()}, statistics)
    with pytest.raises(ModelError, match=r"1_IdfPooling/model.safetensors: is not as it was saved"):
        Encoder.load(tmp_path / "model")
    (tmp_path / "model" / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"1_IdfPooling: does not fit the pooler 'idf'"):
        Encoder.load(tmp_path / "model")
    library = pytest.importorskip("sentence_transformers")
    with pytest.raises((ValueError, ImportError, AttributeError), match="IdfPooling"):
        library.SentenceTransformer(str(tmp_path / "model"), device="cpu")


def test_training_counts_the_rows_it_trains_on(bert, tmp_path):
    rows = np.arange(3)
    settings = Settings(batch=2, steps=2, pooler="idf", checkpoint_every=1)
    objective = prepare(bert, "esimcse", {"queue_size": 4}, settings)
    fit(objective, CORPUS, settings, folder=tmp_path / "m", rows=rows)
    model = Encoder.load(tmp_path / "m")
    assert int(model.pooler.texts) == 3
    for token in range(len(model.pooler.frequencies)):
        held = sum(token in model.tokenise([text])[0][0] for text in CORPUS[:3])
        assert int(model.pooler.frequencies[token]) == held
    momentum = objective.queue.momentum_encoder.pooler
    assert torch.equal(momentum.frequencies, model.pooler.frequencies)


def test_without_frequencies_it_says_so_in_a_line(bert):
    encoder = Encoder.load(bert, pooler="idf")
    with pytest.raises(ModelError, match=r"^pooler 'idf' has no token frequencies; [^\n]+$"):
        encoder.encode(TEXTS)


def test_a_graph_gives_its_vectors(bert, tmp_path):
    pytest.importorskip("onnxruntime")
    encoder = fitted(bert)
    encoder.save(tmp_path / "model")
    export(tmp_path / "model", tmp_path / "graph", engine="onnx")
    found = Exported.load(tmp_path / "graph").encode(TEXTS)
    assert found == pytest.approx(encoder.encode(TEXTS), abs=1e-5)
