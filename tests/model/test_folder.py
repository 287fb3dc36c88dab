"""Model folders: both schemas read, the older one written, everything else rejected by name."""

import json
import shutil
from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError
from contrasent.files import read_json
from contrasent.model.description import describe

TEXTS = ["The gardener sold his violin.", "A Map", "my neighbor hid two blue lamps before dawn"]
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "WeightedLayerPooling": "sentence_transformers.sentence_transformer.modules"
    ".weighted_layer_pooling.WeightedLayerPooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


def write(path, data):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


def edit(path, **changes):
    write(path, read_json(path) | changes)


@pytest.fixture
def folder(bert, tmp_path):
    """A bare encoder that the test may change."""
    return shutil.copytree(bert, tmp_path / "m")


def modules(folder, names, kinds=None):
    """Write modules.json; the folders have the schema's usual names."""
    rows = []
    for i, name in enumerate(names):
        kind = kinds[name] if kinds else f"sentence_transformers.models.{name}"
        path = "" if name == "Transformer" else f"{i}_{name}"
        rows.append({"idx": i, "name": str(i), "path": path, "type": kind})
    write(folder / "modules.json", rows)


def dense(folder, activation="torch.nn.modules.activation.Tanh", out=5):
    torch.manual_seed(3)
    folder.mkdir()
    weights = {"linear.weight": torch.randn(out, 32), "linear.bias": torch.randn(out)}
    save_file(weights, folder / "model.safetensors")
    stated = {"in_features": 32, "out_features": out, "bias": True}
    write(folder / "config.json", stated | {"activation_function": activation})
    return weights


def pooled(bert, pooling):
    return TorchEncoder.load(bert, pooling=pooling, max_seq_length=9).encode(TEXTS).astype(float)


@pytest.mark.parametrize(
    ("schema", "mode"),
    [
        *product(["older", "newer"], ["cls", "mean", "max", "lasttoken"]),
        ("newer", "last_token"),  # as it is called here
    ],
)
def test_both_schemas_are_read(bert, folder, mode, schema):
    modules(
        folder, ["Transformer", "Pooling", "Dense", "Normalize"], NEW if schema == "newer" else None
    )
    weights = dense(folder / "2_Dense")
    if schema == "older":
        key = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}.get(mode, mode)
        keys = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
        flags = {f"pooling_mode_{k}": k == key for k in keys}
        write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **flags})
        stated = {"max_seq_length": 9, "do_lower_case": False}
        write(folder / "sentence_bert_config.json", stated)
    else:
        stated = {"embedding_dimension": 32, "pooling_mode": mode, "include_prompt": True}
        write(folder / "1_Pooling" / "config.json", stated)
        method = {"method": "forward", "method_output_name": "last_hidden_state"}
        stated = {"transformer_task": "feature-extraction", "modality_config": {"text": method}}
        write(
            folder / "sentence_bert_config.json",
            stated | {"module_output_name": "token_embeddings"},
        )
        # The newer schema keeps the length with the tokenizer alone.
        edit(folder / "tokenizer_config.json", model_max_length=9)
        stated = {"model_type": "SentenceTransformer", "truncate_dim": None}
        write(folder / "config_sentence_transformers.json", stated | {"default_prompt_name": None})
    encoder = TorchEncoder.load(folder)
    pooling = "last_token" if mode == "lasttoken" else mode
    assert (encoder.pooling, encoder.max_seq_length, encoder.dimension) == (pooling, 9, 5)
    expected = np.tanh(
        pooled(bert, pooling) @ weights["linear.weight"].numpy().T + weights["linear.bias"].numpy()
    )
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert encoder.encode(TEXTS) == pytest.approx(expected, abs=1e-6)


def test_the_older_schema_is_written(bert, tmp_path):
    encoder = TorchEncoder.load(bert, pooling="cls", head="tanh", normalize=True, max_seq_length=11)
    encoder.lower_case = True
    encoder.save(tmp_path / "m")
    m = tmp_path / "m"
    kinds = [(row["path"], row["type"]) for row in read_json(m / "modules.json")]
    steps = [("", "Transformer")]
    steps += [(f"{i}_{name}", name) for i, name in enumerate(("Pooling", "Dense", "Normalize"), 1)]
    assert kinds == [(path, f"sentence_transformers.models.{name}") for path, name in steps]
    stated = read_json(m / "1_Pooling" / "config.json")
    assert stated["word_embedding_dimension"] == 32
    on = [key for key, value in stated.items() if key.startswith("pooling_mode") and value]
    assert on == ["pooling_mode_cls_token"]
    assert sum(key.startswith("pooling_mode_") for key in stated) == 6
    stated = read_json(m / "sentence_bert_config.json")
    assert stated == {"max_seq_length": 11, "do_lower_case": True}
    assert set(load_file(m / "2_Dense" / "model.safetensors")) == {"linear.weight", "linear.bias"}
    stated = read_json(m / "2_Dense" / "config.json")
    assert stated["activation_function"] == "torch.nn.modules.activation.Tanh"
    assert read_json(m / "config_sentence_transformers.json")["similarity_fn_name"] == "cosine"
    files = {str(p.relative_to(m)) for p in m.rglob("*") if p.is_file()}
    named = "1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors"
    named += " 3_Normalize/config.json README.md config.json config_sentence_transformers.json"
    named += " golden/vectors.safetensors golden/weights.json model.safetensors modules.json"
    named += " sentence_bert_config.json tokenizer.json tokenizer_config.json"
    assert files == set(named.split())


@pytest.mark.parametrize("name", ["first_last", "embeddings_last", "last_two"])
def test_layers_come_back_in_a_deeper_model(tmp_path, name):
    from tiny_models import write_backbone, write_tokenizer

    size = write_tokenizer("bert", tmp_path / "deep")
    write_backbone("bert", tmp_path / "deep", size, num_hidden_layers=4)
    encoder = TorchEncoder.load(tmp_path / "deep", pooling=name)
    encoder.save(tmp_path / "m")
    again = TorchEncoder.load(tmp_path / "m")
    assert again.pooling == name
    assert np.array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    # As sentence-transformers writes them, from a layer on.
    path = tmp_path / "m" / "1_WeightedLayerPooling"
    weights = load_file(path / "model.safetensors")["layer_weights"]
    start = int(weights.nonzero()[0])
    save_file({"layer_weights": weights[start:].clone()}, path / "model.safetensors")
    edit(path / "config.json", layer_start=start)
    assert describe(tmp_path / "m").pooling == name
    edit(path / "config.json", layer_start="first")
    with pytest.raises(ModelError, match=r"config\.json: layer_start 'first' is not a layer"):
        describe(tmp_path / "m")


def test_the_length_that_a_bare_encoder_states(folder):
    assert TorchEncoder.load(folder, pooling="cls").max_seq_length == 64
    edit(folder / "tokenizer_config.json", model_max_length=20)
    assert TorchEncoder.load(folder, pooling="cls").max_seq_length == 20
    edit(folder / "tokenizer_config.json", model_max_length=10**30)
    assert TorchEncoder.load(folder, pooling="cls").max_seq_length == 64


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_the_length_that_older_versions_state_by_the_kind_of_encoder(folder, kind):
    modules(folder, ["Transformer", "Pooling"])
    write(folder / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    stated = {"max_seq_length": 9, "do_lower_case": True, "tokenizer_args": {}}
    write(folder / f"sentence_{kind}_config.json", stated)
    found = describe(folder)
    assert (found.max_seq_length, found.lower_case) == (9, True)


def test_a_bare_encoder_does_not_say_how_to_pool(bert):
    with pytest.raises(ModelError, match=r"such as --pooling mean \(cls, mean, max, "):
        TorchEncoder.load(bert)


REJECTED = {
    "module of another package": (
        lambda m: modules(m, ["Transformer", "Pooling"], NEW | {"Transformer": "own.Transformer"}),
        "modules.json: module 'own.Transformer' is not supported",
    ),
    "module": (
        lambda m: modules(m, ["Transformer", "LSTM"]),
        r"modules.json: module 'sentence_transformers.models.LSTM' is not supported",
    ),
    **{
        f"{last} after {order[-1]}": (
            lambda m, order=(*order, last): modules(m, order),
            rf"modules.json: {last} cannot follow {order[-1]}; only the order Transformer, ",
        )
        for *order, last in (
            ("Transformer", "Pooling", "Normalize", "Dense"),
            ("Transformer", "Normalize", "Pooling"),
            ("Transformer", "Dense", "Pooling"),
            ("Pooling", "Transformer"),
        )
    },
    "json": (lambda m: (m / "modules.json").write_text("[{"), "modules.json: not valid JSON"),
    "pooling": (
        lambda m: write(m / "1_Pooling" / "config.json", {"pooling_mode": "unheard"}),
        r"1_Pooling/config.json: pooling \['unheard'\] is not supported",
    ),
    "no pooling": (
        lambda m: (m / "1_Pooling" / "config.json").unlink(),
        "1_Pooling/config.json: missing or unreadable",
    ),
    "layers": (
        lambda m: (
            modules(m, ["Transformer", "WeightedLayerPooling", "Pooling"]),
            (m / "1_WeightedLayerPooling").mkdir(),
            save_file(
                {"layer_weights": torch.tensor([1.0, 0.5, 0.1])},
                m / "1_WeightedLayerPooling" / "model.safetensors",
            ),
            write(m / "2_Pooling" / "config.json", {"pooling_mode": "mean"}),
        ),
        "a mean over layers with weights .* is not supported",
    ),
    "activation": (
        lambda m: (
            modules(m, ["Transformer", "Pooling", "Dense"]),
            dense(m / "2_Dense", "os.system"),
        ),
        r"2_Dense/config.json: activation 'os.system' is not one of",
    ),
    "dense weights": (
        lambda m: (
            modules(m, ["Transformer", "Pooling", "Dense"]),
            dense(m / "2_Dense"),
            edit(m / "2_Dense" / "config.json", out_features=7),
        ),
        "2_Dense: the weights do not match its config.json",
    ),
    "pickled dense": (
        lambda m: (
            modules(m, ["Transformer", "Pooling", "Dense"]),
            dense(m / "2_Dense"),
            (m / "2_Dense" / "model.safetensors").rename(m / "2_Dense" / "pytorch_model.bin"),
        ),
        "2_Dense/model.safetensors: missing or not readable as safetensors",
    ),
    "prompt": (
        lambda m: write(m / "config_sentence_transformers.json", {"default_prompt_name": "query"}),
        "default_prompt_name 'query' is not one of its prompts",
    ),
    **{
        key: (
            lambda m, key=key, value=value: (
                modules(m, ["Transformer", "Pooling", "Dense"]),
                dense(m / "2_Dense", out=32),
                edit(m / "2_Dense" / "config.json", **{key: value}),
            ),
            f"2_Dense/config.json: .*{said} is not supported",
        )
        for key, value, said in (
            ("use_residual", True, "use_residual"),
            ("module_input_name", "token_embeddings", "token_embeddings"),
        )
    },
    **{
        key: (
            lambda m, key=key, value=value: write(m / "sentence_bert_config.json", {key: value}),
            f"sentence_bert_config.json: {key} .* is not supported; removing it changes",
        )
        for key, value in (
            ("processing_kwargs", {"text": {"max_length": 8}}),
            ("tokenizer_args", {"padding_side": "left", "truncation_side": "left"}),
            ("transformer_task", "fill-mask"),
            ("query_length", 8),
        )
    },
    "adapter": (
        lambda m: (
            (m / "config.json").unlink(),
            write(m / "adapter_config.json", {"peft_type": "LORA"}),
        ),
        "m: contains an adapter of PEFT; merge it into its base",
    ),
    "reranker": (
        lambda m: write(m / "config_sentence_transformers.json", {"model_type": "CrossEncoder"}),
        "config_sentence_transformers.json: is of a CrossEncoder; use a SentenceTransformer",
    ),
    "shortened": (
        lambda m: write(m / "config_sentence_transformers.json", {"truncate_dim": 16}),
        "truncate_dim 16 is not supported",
    ),
}


@pytest.mark.parametrize("case", REJECTED)
def test_rejected(folder, case):
    modules(folder, ["Transformer", "Pooling"])
    write(folder / "1_Pooling" / "config.json", {"pooling_mode": "mean"})
    assert TorchEncoder.load(folder).pooling == "mean"
    change, message = REJECTED[case]
    change(folder)
    with pytest.raises(ModelError, match=message):
        TorchEncoder.load(folder)


def test_folders_that_are_none(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"empty: not a model folder \(neither modules.json nor"):
        describe(tmp_path / "empty")
    with pytest.raises(ModelError, match="absent: model folder not found"):
        describe(tmp_path / "absent")


@pytest.mark.parametrize("place", ["../other", "/etc", "a/../../b", 3, None])
def test_no_module_leads_out_of_the_folder(bert, tmp_path, place):
    TorchEncoder.load(bert, pooling="mean").save(tmp_path / "m")
    path = tmp_path / "m" / "modules.json"
    modules = json.loads(path.read_text())
    modules[1]["path"] = place
    path.write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=r"modules\.json: (path .* is outside|not a list)"):
        TorchEncoder.load(tmp_path / "m")
