"""Poolers that sentence-transformers lacks: at a template's mask token, and weighted by rarity."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from contrasent.encoder.card import CardMetadata, card
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.export import export
from contrasent.errors import ModelError, OptionError
from contrasent.model.base import Prompts
from contrasent.model.golden import WEIGHTS, compare_golden, read_golden
from contrasent.model.numpy_model import NumpyModel
from contrasent.model.runtime import Exported
from contrasent.text.tokens import Tokenizer
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings

TEMPLATE = "a [X] is [MASK]."
TEXTS = [
    "The gardener sold his violin.", "a map", "",
    "My neighbor hid two blue lamps while the rain kept falling on the roof, and sold them.",
    "a [MASK] lamp",
]  # fmt: skip
CORPUS = ["the gardener sold a map", "the old map", "a violin and a violin", "lamps"]


def prompted(folder, **options):
    encoder = TorchEncoder.load(folder, **({"pooling": "mask", "max_seq_length": 24} | options))
    encoder.prompts = Prompts({"query": TEMPLATE, "document": TEMPLATE}, "query")
    return encoder


def fitted(folder, **options):
    encoder = TorchEncoder.load(folder, **({"pooling": "idf", "max_seq_length": 24} | options))
    tokens = encoder.tokenize(CORPUS)[0]
    encoder.pooler.fit([tokens.select(np.arange(2)), tokens.select(np.arange(2, 4))])
    return encoder


OWN = {"mask": prompted, "idf": fitted}
CARDS = {
    "mask": f"mask token of the template `{TEMPLATE}`, [X] being",
    "idf": "weighted by its inverse document frequency",
}


@pytest.mark.parametrize(("name", "kind"), [("mask", "bert"), ("mask", "roberta"), ("idf", "bert")])
def test_packed_padded_and_cached_give_the_same_gradients(tiny, name, kind):
    """Packed, padded, in buckets and with cached gradients."""
    encoder = OWN[name](tiny[kind], dropout=0.0, attention_dropout=0.0).double().train()
    tokens = encoder.tokenize(TEXTS, encoder.prompts.text())[0]
    found = []
    for packed, cached, bucketed in ((True, 0, 0), (False, 0, 0), (False, 0, 1), (True, 2, 0)):
        encoder.packed, encoder.mini_batch_size, encoder.bucketed = packed, cached, bool(bucketed)
        encoder.zero_grad()
        vectors = encoder(tokens)
        vectors.square().sum().sin().backward()
        own = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
        found.append([vectors.detach(), *own])
    assert len(found[0]) > 30
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert torch.allclose(one, two, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(("name", "lower"), [("mask", False), ("mask", True), ("idf", False)])
def test_saved_and_read_to_the_bit(bert, tmp_path, name, lower):
    encoder = OWN[name](bert, head="tanh", normalize=True)
    encoder.lower_case = lower
    wanted = encoder.encode(TEXTS)
    encoder.save(tmp_path / "model", card=card(encoder, CardMetadata()))
    again = TorchEncoder.load(tmp_path / "model")
    assert (again.pooling, again.prompts) == (name, encoder.prompts)
    assert again.identity == encoder.identity
    assert np.array_equal(again.encode(TEXTS), wanted)
    findings = compare_golden(again.golden(), read_golden(tmp_path / "model"))
    assert len(findings) == 7 and all(finding.good for finding in findings)
    text = (tmp_path / "model" / "README.md").read_text("utf-8").replace("\n", " ")
    assert CARDS[name] in text and "from sentence_transformers" not in text
    assert not list((tmp_path / "model").glob("*_Pooling"))
    kind = {"mask": "MaskPooling", "idf": "IdfPooling"}[name]
    library = pytest.importorskip("sentence_transformers")
    for trust in (False, True):
        given = {"device": "cpu", "trust_remote_code": trust}
        with pytest.raises((ValueError, ImportError, AttributeError), match=kind):
            library.SentenceTransformer(str(tmp_path / "model"), **given)


def test_the_mask_token_against_loops(bert):
    torch.manual_seed(0)
    encoder = TorchEncoder.load(bert, pooling="mask")
    ids = torch.tensor([[1, 4, 9, 2, 0, 0], [1, 7, 7, 9, 5, 2], [9, 1, 9, 3, 0, 0]])
    hidden = (torch.zeros(3, 6, 4), torch.randn(3, 6, 4))
    encoder.pooler.rule.mask = 9
    pooled = encoder.pooler(hidden, ids, ids > 0)
    for row in range(3):
        last = max(t for t in range(6) if ids[row, t] == 9)
        assert pooled[row].tolist() == hidden[1][row, last].tolist()
    for mask in (7, -1):
        encoder.pooler.rule.mask = mask
        with pytest.raises(ModelError, match=r"^pooling at the mask token needs a prompt"):
            encoder.pooler(hidden, ids, ids > 0)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_the_tokens_are_the_templates_around_those_of_the_sentence(tiny, kind):
    encoder = prompted(tiny[kind])
    backend, specials = encoder.tokenizer.backend, encoder.tokenizer.specials
    name = "<mask>" if kind in ("roberta", "mpnet") else "[MASK]"
    parts = [backend.encode(part, add_special_tokens=False).ids for part in ("a ", f" is {name}.")]
    empty = backend.encode("").ids
    tokens, cut = encoder.tokenize(TEXTS, TEMPLATE)
    room = 24 - len(empty) - sum(map(len, parts))
    assert room > 3
    for row, text in enumerate(TEXTS):
        whole = Tokenizer(backend, max_seq_length=99).backend
        ids = whole.encode(text, add_special_tokens=False).ids
        assert cut[row] == (len(ids) > room)
        wanted = [empty[0], *parts[0], *ids[:room], *parts[1], empty[-1]]
        assert tokens[row].tolist() == wanted
        assert specials.mask in tokens[row]
    assert cut.tolist()[3] and not cut.all()
    assert tokens.lengths.max() == 24


def test_what_cannot_be_is_rejected_in_a_line(bert, tmp_path):
    encoder = prompted(bert)
    encoder.save(tmp_path / "model")
    with pytest.raises(ModelError, match=r"pooling 'mask' cannot .* use the model with torch$"):
        export(tmp_path / "model", tmp_path / "graph", engine="onnx")
    with pytest.raises(ModelError, match=r"^pooling at the mask token needs a prompt with [^\n]*$"):
        encoder.encode(["a map"], prompt="")
    count = sum(map(len, encoder.tokenizer.around(TEMPLATE)))
    small = Tokenizer(encoder.tokenizer.backend, max_seq_length=count)
    said = rf"no room for a sentence; its own tokens number {count}$"
    with pytest.raises(OptionError, match=said):
        small(TEXTS, TEMPLATE)
    with pytest.raises(OptionError, match=r"a template must contain \[X\] once$"):
        encoder.encode(["a map"], prompt="[X] [X] [MASK]")


def weight(encoder, token, corpus=CORPUS):
    held = sum(token in encoder.tokenize([text])[0][0] for text in corpus)
    return math.log((1 + len(corpus)) / (1 + held)) + 1


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_the_weighted_mean_is_that_of_a_plain_loop(tiny, kind):
    encoder = fitted(tiny[kind])
    tokens = encoder.tokenize(TEXTS)[0]
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


def test_other_frequencies_are_another_model_and_damaged_ones_none(bert, tmp_path):
    encoder = fitted(bert)
    encoder.save(tmp_path / "model")
    other = TorchEncoder.load(bert, pooling="idf", max_seq_length=24)
    other.pooler.fit([encoder.tokenize(CORPUS[:2])[0]])
    assert other.identity != encoder.identity
    statistics = tmp_path / "model" / "1_IdfPooling" / "model.safetensors"
    stored = load_file(statistics)
    save_file(stored | {"frequencies": stored["frequencies"][:9].clone()}, statistics)
    changed = r"1_IdfPooling/model.safetensors: has changed since it was saved"
    with pytest.raises(ModelError, match=changed):
        TorchEncoder.load(tmp_path / "model")
    (tmp_path / "model" / WEIGHTS).unlink()
    with pytest.raises(ModelError, match="1_IdfPooling: does not match this model's pooling 'idf'"):
        TorchEncoder.load(tmp_path / "model")


def test_training_counts_the_rows_it_trains_on(bert, tmp_path):
    rows = np.arange(3)
    settings = Settings(batch_size=2, max_steps=2, pooling="idf", save_steps=1)
    objective = prepare(bert, "esimcse", {"queue_size": 4}, settings)
    fit(objective, CORPUS, settings, output_dir=tmp_path / "m", rows=rows)
    model = TorchEncoder.load(tmp_path / "m")
    assert int(model.pooler.texts) == 3
    for token in range(len(model.pooler.frequencies)):
        held = sum(token in model.tokenize([text])[0][0] for text in CORPUS[:3])
        assert int(model.pooler.frequencies[token]) == held
    momentum = objective.queue.momentum_encoder.pooler
    assert torch.equal(momentum.frequencies, model.pooler.frequencies)


@pytest.mark.parametrize("load", [TorchEncoder.load, NumpyModel])
def test_without_frequencies_it_can_be_loaded_and_says_so_when_it_encodes(bert, load):
    encoder = load(bert, pooling="idf")
    with pytest.raises(ModelError, match=r"^pooling 'idf' needs token frequencies; [^\n]+$"):
        encoder.encode(TEXTS)


@pytest.mark.slow
def test_a_graph_gives_its_vectors(bert, tmp_path):
    pytest.importorskip("onnxruntime")
    encoder = fitted(bert)
    encoder.save(tmp_path / "model")
    export(tmp_path / "model", tmp_path / "graph", engine="onnx")
    found = Exported.open(tmp_path / "graph").encode(TEXTS)
    assert found == pytest.approx(encoder.encode(TEXTS), abs=1e-5)
