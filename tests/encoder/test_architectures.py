"""The table of docs/methods.md, tried: every architecture on tiny random weights."""

import json
import logging
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer

from contrasent import Encoder, UserError, fit
from contrasent.encoder.backbone import (
    TURNING,
    first_position,
    is_causal,
    load_backbone,
    longest_input,
)
from contrasent.encoder.export import export
from contrasent.errors import ModelError, OptionError
from contrasent.model.numpy_model import supports
from contrasent.model.opening import open_encoder
from contrasent.types import Tokens
from tiny_models import KINDS, OTHERS, made_sentences, write_backbone, write_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
COLUMNS = ["model", "pooling", "encodes", "trains", "packed", "bidirectional"]
COLUMNS += ["diffcse", "numpy", "onnx"]
TABLE = {
    cells[0]: dict(zip(COLUMNS, cells[1:], strict=True))
    for line in PAGE.read_text("utf-8").splitlines()
    if line.startswith("| `") and line.count("|") == len(COLUMNS) + 2
    for cells in [[cell.strip(" `") for cell in line.strip("|").split("|")]]
}
DECODERS = [kind for kind, row in TABLE.items() if row["bidirectional"] == "by the setting"]
TEXTS = [*made_sentences()[:24], "", "map"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A function that makes the bare encoder of a kind, once."""
    made = {}

    def make(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("kinds") / kind
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(7)
                write_backbone(kind, made[kind], write_tokenizer(kind, made[kind]))
        return made[kind]

    return make


def trained(base, place, method="simcse", **given):
    given |= {"max_steps": 1, "batch_size": 8, "learning_rate": 1e-3, "max_seq_length": 24}
    given |= {"eval_size": 0, "evaluate": "none"}
    return fit(method, TEXTS[:24], output_dir=place, base=base, **given)


def write_generator(kind, folder):
    config = transformers.BertConfig(
        vocab_size=write_tokenizer(kind, folder), hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertForMaskedLM(config).save_pretrained(folder)


def test_the_table_has_every_architecture():
    assert sorted(TABLE) == sorted({*KINDS, *OTHERS})


@pytest.mark.parametrize("kind", TABLE)
def test_a_row(folder, tmp_path, kind):
    """Whether it encodes, trains, takes DiffCSE and runs in numpy is what its row says."""
    logging.getLogger("contrasent.train.monitor").setLevel(logging.ERROR)
    row, base = TABLE[kind], folder(kind)
    encoder = Encoder.load(base, pooling="mean")
    several = encoder.encode(TEXTS)
    alone = np.stack([encoder.encode(text) for text in TEXTS])
    assert row["encodes"] == "yes" and np.abs(several - alone).max() < 2e-5
    assert is_causal(encoder.backbone) == (row["bidirectional"] == "by the setting")
    assert encoder.packs(encoder.tokenize(TEXTS)[0]) == (row["packed"] == "yes")
    encoder.packed = False
    assert np.abs(encoder.encode(TEXTS) - several).max() < 1e-5
    run = trained(base, tmp_path / "m")
    assert row["trains"] == "yes" and run.encoder.pooling == row["pooling"]
    after = Encoder.load(tmp_path / "m").encode(TEXTS)
    assert np.abs(after - Encoder.load(base, pooling=row["pooling"]).encode(TEXTS)).max() > 1e-4
    assert run.log[0]["cosine_positive"] < 1 - 1e-4  # dropout makes two views
    assert supports(tmp_path / "m") == (row["numpy"] == "yes")
    if row["numpy"] == "yes":
        vectors = open_encoder(tmp_path / "m", runtime="numpy").encode(TEXTS)
        assert vectors == pytest.approx(after, abs=1e-5)
    write_generator(kind, tmp_path / "generator")
    able = "yes"
    try:
        trained(base, tmp_path / "d", "diffcse", generator=str(tmp_path / "generator"))
    except UserError as error:
        assert "discriminator cannot be made" in str(error)
        able = "no"
    assert able == row["diffcse"]
    if kind not in DECODERS:
        assert row["bidirectional"] == "always"
        with pytest.raises(OptionError, match="already attends to both sides of a token"):
            Encoder.load(base, pooling="mean", bidirectional=True)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_is_opened_by_the_setting(folder, tmp_path, kind):
    assert TABLE[kind]["bidirectional"] == "by the setting"
    with pytest.raises(OptionError, match="pooling 'cls': the first token of a decoder does not"):
        Encoder.load(folder(kind), pooling="cls")
    encoder = Encoder.load(folder(kind), pooling="cls", bidirectional=True)
    # One length is computed without a mask, several with one; and the same in training.
    for texts in (["the map hid", "the map sold"], ["the map hid a lamp", "the map sold"]):
        first, second = encoder.encode(texts)
        assert np.abs(first - second).max() > 1e-4
        with torch.no_grad():
            vectors = encoder.train()(encoder.tokenize(texts)[0])
        assert (vectors[0] - vectors[1]).abs().max() > 1e-4
        encoder.eval()
    encoder.save(tmp_path / "m")
    again = Encoder.load(tmp_path / "m")
    assert np.array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    assert again.identity == encoder.identity
    again.use_pooler("mean")
    packed = again.encode(TEXTS)
    again.packed = False
    assert np.abs(again.encode(TEXTS) - packed).max() < 1e-5
    assert again.identity != Encoder.load(folder(kind), pooling="mean").identity
    assert json.loads((tmp_path / "m" / "config.json").read_text())["is_causal"] is False


@pytest.mark.parametrize("kind", DECODERS)
def test_tokens_behind_a_gap_in_their_places_see_those_before_it(folder, kind):
    """As the tokens of a template alone, whose sentence is left out."""
    backbone = (encoder := Encoder.load(folder(kind), pooling="last_token")).backbone
    ids, places = np.arange(20, 28), [0, 1, 2, 5, 6, 7]
    mask = torch.zeros(1, 8).long().index_fill(1, torch.tensor(places), 1)
    with torch.no_grad():
        found = encoder.pool_at(Tokens.from_rows([ids[places]]), torch.tensor([places]))
        given = {"attention_mask": mask, "position_ids": torch.arange(8)[None]}
        wanted = backbone(torch.from_numpy(ids)[None], **given).last_hidden_state[:, -1]
    assert (found - wanted).abs().max() < 1e-5


def test_a_long_text_turns_no_other(tmp_path):
    """Phi-3 places the tokens of long texts otherwise, and with them all of a call."""
    turned = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    changes = {"rope_parameters": turned | {"rope_theta": 1e4}}
    changes["original_max_position_embeddings"] = 16
    write_backbone("phi3", tmp_path, write_tokenizer("phi3", tmp_path), **changes)
    encoder, held = Encoder.load(tmp_path, pooling="mean"), []
    rows = Tokens.from_rows([np.arange(20, 20 + size) for size in (5, 20, 16, 21)])
    alone = np.concatenate([encoder.embed(rows.select(np.array([row]))) for row in range(4)])
    for encoder.packed in (True, False):
        assert np.abs(encoder.embed(rows) - alone).max() < 1e-5
    turning = encoder.backbone.rotary_emb.rotary
    turning.register_forward_hook(lambda *_: held.append(TURNING.locked()))
    encoder.embed(rows)
    assert held == [True, True]  # nor of another thread's call


KIN = {"Xmod": {"default_language": "en_XX"}, "LayoutLMv3": {"coordinate_size": 4, "shape_size": 4}}
OTHER_KIN = ("Data2VecText", "XLMRobertaXL", "RobertaPreLayerNorm", "IBert", "Lilt", "Luke")


@pytest.mark.parametrize("name", [*KIN, *OTHER_KIN, "MarkupLM"])
def test_kin_of_roberta_numbers_tokens_from_the_pad_on(name):
    sizes = {"vocab_size": 9, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= KIN.get(name, {}) | {
        "intermediate_size": 8,
        "max_position_embeddings": 12,
        "pad_token_id": 1,
    }
    config = getattr(transformers, f"{name}Config")(**sizes)
    model, longest = getattr(transformers, f"{name}Model")(config).eval(), longest_input(config)
    ids, places = torch.full((1, longest), 5), first_position(config) + torch.arange(longest)
    with torch.no_grad():
        own, given = (model(ids, position_ids=at)[0] for at in (None, places[None]))
    assert longest == 10 and torch.equal(own, given)


def test_an_encoder_that_projects_its_last_states(folder):
    """As the smallest OPT's."""
    encoder = Encoder.load(folder("opt"), pooling="last_token", head="tanh")
    assert encoder.encode(TEXTS).shape == (len(TEXTS), 24)
    with pytest.raises(OptionError, match="needs hidden states of one size"):
        Encoder.load(folder("opt"), pooling="first_last")


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text"])
def test_sentence_transformers_has_the_same_vectors(folder, tmp_path, kind):
    """Of a folder such as Qwen3-Embedding's, padded on the left, and of one that was opened."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("sentence_transformers")
    for opened, pooling in ((False, "last_token"), (True, "mean")):
        place = tmp_path / pooling
        encoder = Encoder.load(folder(kind), pooling=pooling, bidirectional=opened)
        encoder.save(place)
        config = json.loads((place / "tokenizer_config.json").read_text())
        (place / "tokenizer_config.json").write_text(json.dumps(config | {"padding_side": "left"}))
        pooling = json.loads((place / "1_Pooling" / "config.json").read_text())
        assert pooling["pooling_mode_lasttoken"] is not opened
        other = library.SentenceTransformer(str(place), device="cpu")
        assert other.tokenizer.padding_side == "left"
        theirs = other.encode(TEXTS, show_progress_bar=False)
        assert np.abs(Encoder.load(place).encode(TEXTS) - theirs).max() < 1e-5


@pytest.mark.parametrize("special", [True, False])
def test_a_token_without_an_embedding_is_none_if_it_is_special(folder, tmp_path, special):
    """As Gemma 3's, of images, in its text models."""
    bare, base = folder("gemma3_text"), tmp_path / "base"
    shutil.copytree(bare, base)
    stated = json.loads((base / "tokenizer.json").read_text())
    image = {**stated["added_tokens"][-1], "content": "<image_soft_token>", "special": special}
    image["id"] = json.loads((base / "config.json").read_text())["vocab_size"]
    stated["added_tokens"].append(image)
    (base / "tokenizer.json").write_text(json.dumps(stated))
    names = json.loads((base / "tokenizer_config.json").read_text())
    names["image_token"] = image["content"]
    (base / "tokenizer_config.json").write_text(json.dumps(names))
    if not special:
        with pytest.raises(ModelError, match="they belong to different models"):
            Encoder.load(base, pooling="mean")
        return
    encoder, texts = Encoder.load(base, pooling="mean"), [*TEXTS, "a <image_soft_token> map"]
    assert np.array_equal(encoder.encode(texts), Encoder.load(bare, pooling="mean").encode(texts))
    encoder.save(tmp_path / "m")
    assert Encoder.load(tmp_path / "m").identity == encoder.identity
    theirs = AutoTokenizer.from_pretrained(tmp_path / "m")(texts)["input_ids"]
    assert max(max(row) for row in theirs) < image["id"]


def test_dropout_without_a_place_falls_on_what_is_pooled(folder):
    encoder = Encoder.load(
        folder("llama"), pooling="last_token", dropout=0.4, attention_dropout=0.0
    )
    assert encoder.states_dropout.p == 0.4
    with torch.no_grad():
        vectors = encoder.train()(encoder.tokenize(TEXTS)[0])
    assert 0.3 < (vectors == 0).float().mean() < 0.5
    assert not (encoder.encode(TEXTS) == 0).any()
    assert Encoder.load(folder("bert"), pooling="mean", dropout=0.4).states_dropout.p == 0


def test_encoders_that_cannot_be_pooled_say_why(folder, tmp_path):
    base = folder("funnel")
    config = json.loads((base / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["FunnelBaseModel"]})
    )
    (tmp_path / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes())
    with pytest.raises(ModelError, match="Funnel without its decoder gives fewer vectors"):
        load_backbone(tmp_path)


ALIKE = {"xlm-roberta", "camembert", "ernie", "mt5", "mistral", "qwen2", "olmo2"}
"""Kinds whose layers are those of another."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({*TABLE} - {*KINDS} - ALIKE))  # KINDS: by test_export
def test_a_graph(folder, tmp_path, kind):
    pytest.importorskip("onnxruntime")
    Encoder.load(folder(kind), pooling=TABLE[kind]["pooling"]).save(tmp_path / "m")
    able = "yes"
    try:
        export(tmp_path / "m", tmp_path / "graph", engine="onnx")
    except ModelError:
        able = "no"
    assert able == TABLE[kind]["onnx"]
