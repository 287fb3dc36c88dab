"""Language models in GGUF files: a tiny one made here stands in for those that people have."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import MissingExtraError, ModelError
from contrasent.model import pretrained
from contrasent.objectives.simcse import SimCSE
from contrasent.train.fit import fit
from contrasent.train.prepare import prepare
from contrasent.train.settings import Settings

gguf = pytest.importorskip("gguf")
HEADS, SHARED, SIZE, LAYERS, WIDE = 4, 2, 16, 2, 24
TEXTS = ["The ferry leaves at noon.", "A boat goes at twelve.", "Bread is baked at night.", "Tea."]


def byte_letters():
    """The letter that byte-level BPE writes for each byte (GPT-2: Radford et al., 2019)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def model():
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=260, hidden_size=SIZE, intermediate_size=WIDE, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=SHARED, max_position_embeddings=64,
        rms_norm_eps=1e-5, pad_token_id=1,
    )  # fmt: skip
    return LlamaModel(config).eval()


def as_llama_cpp(weight, heads):
    """Rows of queries or keys in llama.cpp's order: pairs of a rotation side by side."""
    parts = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return parts.swapaxes(1, 2).reshape(weight.shape)


def write(path, llama, *, architecture="llama", tokenizer=True):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_license("apache-2.0")
    writer.add_organization("Nobody")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(SIZE)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(260)
    if tokenizer:
        tokens = ["<|endoftext|>", "<|end|>", *byte_letters(), "th", "the"]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(tokens)
        writer.add_token_types([3, 3, *[1] * 258])
        writer.add_token_merges(["t h", "th e"])
        writer.add_bos_token_id(0)
        writer.add_unk_token_id(0)
        writer.add_eos_token_id(1)
        writer.add_pad_token_id(1)
    names = {
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for key, value in llama.state_dict().items():
        array = value.numpy()
        if key in ("embed_tokens.weight", "norm.weight"):
            name = {"e": "token_embd.weight", "n": "output_norm.weight"}[key[0]]
        else:
            _, layer, part = key.removesuffix(".weight").split(".", 2)
            name = f"blk.{layer}.{names[part]}.weight"
            if part.endswith(("q_proj", "k_proj")):
                array = as_llama_cpp(array, HEADS if "q_proj" in part else SHARED)
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "tiny.gguf", model())


def test_weights_tokens_and_vectors_are_those_of_the_file(source):
    encoder = TorchEncoder.load(source, pooling="mean")
    expected = model()
    for key, value in expected.state_dict().items():
        torch.testing.assert_close(encoder.backbone.state_dict()[key], value, rtol=0, atol=0)
    tokens, _ = encoder.tokenize(["the"])
    assert tokens.ids.tolist() == [259]
    letters = byte_letters()
    ids = torch.tensor([[2 + letters.index(letter) for letter in "TeaĠ."]])
    with torch.no_grad():
        states = expected(input_ids=ids).last_hidden_state
    np.testing.assert_allclose(
        encoder.encode("Tea ."), states.mean(1)[0].numpy(), rtol=1e-4, atol=1e-6
    )


def test_a_kind_with_another_name_for_its_positions_is_read(source, monkeypatch):
    from transformers import GPT2Config, GPT2Model

    sizes = {"vocab_size": 260, "n_embd": SIZE, "n_layer": 1, "n_head": 2, "n_positions": 64}
    read = GPT2Model(GPT2Config(**sizes)), {"missing_keys": []}
    monkeypatch.setattr("transformers.AutoModel.from_pretrained", lambda *_, **__: read)
    assert TorchEncoder.load(source, pooling="mean").max_seq_length == 64


def test_it_is_converted_once(source, monkeypatch):
    folder = pretrained.resolve(source)
    monkeypatch.setattr("contrasent.encoder.gguf.convert", lambda *_: pytest.fail("again"))
    assert pretrained.resolve(source) == folder
    assert not [path for path in folder.parent.iterdir() if path != folder]


def test_a_training_pools_by_the_mean_and_names_the_origin(source, tmp_path):
    settings = Settings(max_steps=1, batch_size=4, max_seq_length=16, precision="fp32")
    objective = prepare(pretrained.resolve(source), "simcse", {}, settings)
    assert isinstance(objective, SimCSE)
    assert objective.encoder.pooling == "mean"
    run = fit(objective, TEXTS, settings, output_dir=tmp_path / "trained", keep="last")
    origin = json.loads((run.folder / "origin.json").read_text("utf-8"))
    assert origin == {"file": "tiny.gguf", "license": "apache-2.0", "organization": "Nobody"}
    card = (run.folder / "README.md").read_text("utf-8")
    assert 'license: "apache-2.0"' in card
    assert "Nobody" in card


def test_files_that_cannot_be_read(source, tmp_path):
    whole = source.read_bytes()
    cut, other, wordless = (tmp_path / f"{name}.gguf" for name in ("cut", "other", "wordless"))
    for size in (len(whole) - 100, len(whole) // 2, 40):
        cut.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf: the file is cut off or damaged"):
            pretrained.resolve(cut)
    cut.write_bytes(b"not one at all")
    with pytest.raises(ModelError, match=r"cut\.gguf: not a GGUF file"):
        pretrained.resolve(cut)
    write(other, model(), architecture="wavtokenizer-dec")
    with pytest.raises(ModelError, match=r"other\.gguf: transformers cannot read this wavt"):
        pretrained.resolve(other)
    write(wordless, model(), tokenizer=False)
    with pytest.raises(ModelError, match=r"wordless\.gguf: contains no tokenizer"):
        pretrained.resolve(wordless)
    assert not list(Path(tmp_path / "cache").rglob("config.json"))


def test_what_transformers_needs_to_read_a_file_is_named(source, without):
    without("accelerate")
    with pytest.raises(MissingExtraError, match=r"accelerate.*contrasent\[llm\]"):
        pretrained.resolve(source)
