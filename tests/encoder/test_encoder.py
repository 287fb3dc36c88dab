"""The encoder: six kinds, all poolers, saved and loaded; order and padding change nothing."""

import json
import logging

import numpy as np
import pytest
import torch
from torch import nn

from contrasent.encoder.attention import by_length
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.heads import BatchNormProjector, Dense
from contrasent.errors import OptionError, OutputError
from contrasent.files import read_json, write_object
from contrasent.model.numpy_model import NumpyModel
from contrasent.model.pooling import POOLERS
from tiny_models import KINDS

PLAIN = [name for name, kind in POOLERS.items() if kind.mode]  # the others: test_poolers
MIXED = [
    "The gardener sold his violin.", "",
    "My neighbor carried two blue lamps while the rain kept falling on the roof.", "A map",
    "The gardener sold his violin.", "Ein alter Seemann, 老水手, écrivait — naïvely?", " ", "x",
]  # fmt: skip


@pytest.fixture(scope="module")
def encoder(bert):
    return TorchEncoder.load(bert, pooling="mean")


@pytest.mark.parametrize(("kind", "pooling"), [
    *((kind, "mean") for kind in KINDS), *(("bert", name) for name in PLAIN if name != "mean"),
])  # fmt: skip
def test_saved_and_loaded_gives_the_same_vectors(tiny, tmp_path, kind, pooling):
    torch.manual_seed(1)
    encoder = TorchEncoder.load(
        tiny[kind], pooling=pooling, head="tanh", normalize=True, max_seq_length=20
    )
    vectors = encoder.encode(MIXED)
    encoder.save(tmp_path / "model")
    again = TorchEncoder.load(tmp_path / "model")
    stated = (again.pooling, again.normalize, again.max_seq_length, again.dimension)
    # With two layers these are one and the same.
    expected = "first_last" if pooling == "last_two" else pooling
    assert stated == (expected, True, 20, 32)
    assert np.array_equal(again.encode(MIXED), vectors)
    assert (again.identity == encoder.identity) == (expected == pooling)
    # Nothing of ours may be left in a file that others read.
    assert "contrasent" not in (tmp_path / "model" / "config.json").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_grouping_change_nothing(tiny, kind, sentences):
    encoder = TorchEncoder.load(tiny[kind], pooling="mean")
    texts = sentences[: 150 if kind == "bert" else 12] + MIXED
    tokens = encoder.tokenize(texts)[0]
    assert len(by_length(tokens.lengths)) > 1
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    with torch.inference_mode():
        states, ids, mask = encoder.hidden(tokens)
        block = encoder.pooler(states, ids, mask).numpy()
    assert block == pytest.approx(alone, abs=2e-6)
    for packed in (True, False):
        encoder.packed = packed
        with torch.inference_mode():
            assert encoder(tokens).numpy() == pytest.approx(alone, abs=2e-6)
        assert encoder.encode(texts, batch_size=3) == pytest.approx(alone, abs=2e-6)


def test_equal_sentences_are_computed_once_longest_first(bert):
    seen = []

    class Counted(TorchEncoder):
        def embed(self, tokens):
            seen.extend(tokens.lengths.tolist())
            return super().embed(tokens)

    encoder = Counted.load(bert, pooling="mean")
    vectors = encoder.encode(MIXED * 3, batch_size=2)
    assert len(seen) == len(set(MIXED)) == 7
    assert seen == sorted(seen, reverse=True)
    assert np.array_equal(vectors[0], vectors[4])
    assert np.array_equal(vectors[:8], vectors[8:16])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_empty_sentences_and_the_longest(tiny, kind):
    encoder = TorchEncoder.load(tiny[kind], pooling="mean", normalize=True)
    none = encoder.encode([])
    assert (none.shape, none.dtype, encoder.max_seq_length) == ((0, 32), np.float32, 64)
    assert np.isfinite(encoder.encode(["kettle " * 200])).all()
    vectors = encoder.encode(["", " ", "a kettle"])
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-6)


def test_truncation_is_counted_and_logged(bert, caplog):
    encoder = TorchEncoder.load(bert, pooling="mean", max_seq_length=12)
    long = "violin " * 30
    # The command line quietens this logger, which other tests of this process call.
    with caplog.at_level(logging.WARNING, logger="contrasent.model.base"):
        encoder.encode([long, "a map", long, long + "lamps"])
    assert encoder.truncated == 3
    assert "3 of 4 sentences were truncated to 12 tokens" in caplog.text
    caplog.clear()
    encoder.encode(["a map"])
    assert (encoder.truncated, caplog.text) == (0, "")
    tokens, cut = encoder.tokenize([long, "a map"])
    assert tokens.lengths.max() == 12
    assert cut.tolist() == [True, False]
    # What is beyond the cut has no influence.
    assert np.array_equal(encoder.encode([long])[0], encoder.encode([long + "lamps"])[0])


@pytest.mark.parametrize("value", [0, 2, -5, 65, 10**6])
def test_max_tokens_out_of_range(bert, value):
    with pytest.raises(OptionError, match=rf"max_seq_length {value}: must be from 3 to 64"):
        TorchEncoder.load(bert, pooling="mean", max_seq_length=value)


def test_a_device_that_is_not_there_is_an_option_error(bert):
    with pytest.raises(OptionError, match=r"device 'nonsense': cannot be used \(Expected one of"):
        TorchEncoder.load(bert, pooling="cls", device="nonsense")


def test_a_head_is_kept_or_dropped(bert, tmp_path):
    torch.manual_seed(2)
    bare = TorchEncoder.load(bert, pooling="cls")
    with_head = TorchEncoder.load(bert, pooling="cls", head="tanh")
    with_head.save(tmp_path / "m")
    weight = with_head.head.linear.weight.detach().numpy().astype(float)
    bias = with_head.head.linear.bias.detach().numpy().astype(float)
    expected = np.tanh(bare.encode(MIXED).astype(float) @ weight.T + bias)
    assert TorchEncoder.load(tmp_path / "m").encode(MIXED) == pytest.approx(expected, abs=1e-6)
    dropped = TorchEncoder.load(tmp_path / "m", head="none")
    assert dropped.head is None
    assert np.array_equal(dropped.encode(MIXED), bare.encode(MIXED))
    # A new head replaces the folder's; it is drawn from torch's seed.
    torch.manual_seed(5)
    new = TorchEncoder.load(tmp_path / "m", head="batchnorm")
    assert isinstance(new.head, BatchNormProjector)


def test_batchnorm_is_folded_into_dense_layers(bert, tmp_path, sentences):
    torch.manual_seed(3)
    encoder = TorchEncoder.load(bert, pooling="mean", head="batchnorm")
    encoder.train()
    for step in range(4):  # running statistics of their own
        encoder(encoder.tokenize(sentences[step * 16 : step * 16 + 16])[0])
    with torch.no_grad():
        encoder.head[1].weight.uniform_(0.5, 1.5)
        encoder.head[1].bias.normal_()
    encoder.eval()
    expected = encoder.encode(sentences[:20])
    encoder.save(tmp_path / "m")
    again = TorchEncoder.load(tmp_path / "m")
    assert [type(layer) for layer in again.head] == [Dense, Dense]
    assert again.encode(sentences[:20]) == pytest.approx(expected, abs=1e-5)
    paths = [m["path"] for m in read_json(tmp_path / "m" / "modules.json")]
    assert paths == ["", "1_Pooling", "2_Dense", "3_Dense"]


def test_encode_leaves_training_and_random_state_alone(bert):
    encoder = TorchEncoder.load(bert, pooling="mean", dropout=0.3, head="batchnorm").train()
    encoder.backbone.encoder.layer[0].eval()
    flags = [m.training for m in encoder.modules()]
    statistics = encoder.head[1].running_mean.clone()
    state = torch.random.get_rng_state()
    assert np.array_equal(encoder.encode(MIXED), encoder.encode(MIXED))
    assert [m.training for m in encoder.modules()] == flags
    assert torch.equal(encoder.head[1].running_mean, statistics)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_double_precision_is_kept(bert):
    encoder = TorchEncoder.load(bert, pooling="mean", head="tanh").double()
    assert encoder(encoder.tokenize(MIXED)[0]).dtype == torch.float64
    single = TorchEncoder.load(bert, pooling="mean").bfloat16()
    assert single(single.tokenize(MIXED)[0]).dtype == torch.float32
    assert single.encode(MIXED).dtype == np.float32


def test_lower_casing_is_kept(tiny, tmp_path):
    encoder = TorchEncoder.load(tiny["roberta"], pooling="mean")
    assert not np.allclose(encoder.encode(["A MAP"]), encoder.encode(["a map"]))
    encoder.lower_case = True
    encoder.save(tmp_path / "m")
    again = TorchEncoder.load(tmp_path / "m")
    assert again.lower_case
    assert np.array_equal(again.encode(["A MAP"]), again.encode(["a map"]))


def test_identity_tells_models_apart(bert, tmp_path):
    one = TorchEncoder.load(bert, pooling="mean")
    same = TorchEncoder.load(bert, pooling="mean")
    assert one.identity == same.identity
    lengths = (16, np.int64(16))
    short, again = (TorchEncoder.load(bert, pooling="mean", max_seq_length=n) for n in lengths)
    assert short.identity == again.identity != one.identity
    others = [
        TorchEncoder.load(bert, pooling="cls"),
        TorchEncoder.load(bert, pooling="mean", normalize=True),
        TorchEncoder.load(bert, pooling="mean", max_seq_length=30),
        TorchEncoder.load(bert, pooling="mean", head="tanh"),
    ]
    with torch.no_grad():
        same.backbone.embeddings.word_embeddings.weight[5, 5] += 1e-3
    assert len({one.identity, same.identity, *(o.identity for o in others)}) == 6


@pytest.mark.parametrize(("kind", "key"), [("bert", "hidden_act"), ("distilbert", "activation")])
def test_identity_counts_unusual_settings_that_weights_do_not_show(kind, key, tiny, tmp_path):
    TorchEncoder.load(tiny[kind], pooling="mean", head="tanh").save(tmp_path / "m")
    config, dense = (tmp_path / "m" / name for name in ("config.json", "2_Dense/config.json"))

    def identity(path, **changes):
        before = read_json(path)
        write_object(path, {**before, **changes})
        one, two = (made(tmp_path / "m").identity for made in (TorchEncoder.load, NumpyModel))
        write_object(path, before)
        assert one == two
        return one

    usual = identity(config)
    assert identity(config, layer_norm_eps=1e-5) == usual
    # A program may write what it holds in float32.
    assert identity(config, layer_norm_eps=float(np.float32(1e-12))) == usual
    others = [identity(config, **{key: "relu"})]
    others += [identity(config, layer_norm_eps=1e-3)] if kind == "bert" else []
    for name in ("activation.GELU", "linear.Identity"):
        others.append(identity(dense, activation_function=f"torch.nn.modules.{name}"))
    assert len({usual, *others}) == 1 + len(others)


def test_a_layer_on_top_ends_nested_sizes(bert):
    encoder = TorchEncoder.load(bert, pooling="mean")
    encoder.matryoshka_dims = (32, 8)
    encoder.add_layer(np.eye(32), np.zeros(32))
    assert encoder.matryoshka_dims == ()


def test_save_replaces_models_and_nothing_else(encoder, bert, tmp_path):
    other = TorchEncoder.load(bert, pooling="cls")
    other.save(tmp_path / "m")
    for name in ("onnx", "run", "LICENSE", "chat_template.jinja", ".modules.json.new"):
        (tmp_path / "m" / name).mkdir()  # of the model that is replaced
    for name in ("notes.txt", "index"):
        (tmp_path / "m" / name).mkdir()
        with pytest.raises(OutputError, match=f"m: contains files that .*, such as '{name}'; move"):
            encoder.save(tmp_path / "m")
        (tmp_path / "m" / name).rmdir()
    assert TorchEncoder.load(tmp_path / "m").pooling == "cls"
    encoder.save(tmp_path / "m")
    assert TorchEncoder.load(tmp_path / "m").pooling == "mean"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"papers: contains files that are not part of a model"):
        encoder.save(tmp_path / "papers")
    with pytest.raises(OutputError, match=r"thesis\.txt: cannot write"):
        encoder.save(tmp_path / "papers" / "thesis.txt")
    assert (tmp_path / "papers" / "thesis.txt").read_text() == "years of work"
    assert [p.name for p in (tmp_path / "papers").iterdir()] == ["thesis.txt"]


def test_saved_files_are_readable_by_all(encoder, tmp_path):
    encoder.save(tmp_path / "m", card="# a card\n")
    files = [p for p in (tmp_path / "m").rglob("*") if p.is_file()]
    assert {p.stat().st_mode & 0o777 for p in files} == {0o644}
    assert (tmp_path / "m" / "README.md").read_text() == "# a card\n"
    assert not [p for p in files if p.suffix in (".bin", ".pt", ".pkl")]
    config = json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())
    assert config["pad_token"] == "[PAD]"
    assert "bos_token" not in config  # null in the base


def test_a_head_of_another_kind_is_rejected(encoder, bert, tmp_path):
    other = TorchEncoder.load(bert, pooling="cls")
    other.head = nn.Sequential(nn.Linear(32, 32), nn.Softmax(-1))
    with pytest.raises(TypeError, match="Sequential cannot be written"):
        other.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
