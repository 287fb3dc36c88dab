"""Ways in which a model goes wrong on its way, and the doctor names each."""

import json
import shutil

import numpy as np
import pytest

from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError
from contrasent.model.golden import NAME, PROBES, compare_golden, read_golden, write_golden
from tiny_models import made_sentences, write_backbone, write_tokenizer


def edit(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A small random BERT whose tokenizer has seen the probes."""
    import torch

    folder = tmp_path_factory.mktemp("bert") / "bert"
    torch.manual_seed(0)
    texts = [*made_sentences(), *(text.lower() for text in PROBES), *PROBES]
    size = write_tokenizer("bert", folder, texts)
    write_backbone("bert", folder, size, max_position_embeddings=512)
    return folder


@pytest.fixture(scope="module")
def saved(base, tmp_path_factory):
    """The BERT with a tanh head, and with scaling and no head; both with golden vectors."""
    home = tmp_path_factory.mktemp("models")
    kinds = {"head": {"head": "tanh"}, "plain": {"normalize": True}}
    for name, options in kinds.items():
        TorchEncoder.load(base, pooling="mean", max_seq_length=256, **options).save(home / name)
    return home


@pytest.fixture
def copy(saved, tmp_path):
    def make(name):
        shutil.copytree(saved / name, tmp_path / name)
        return tmp_path / name

    return make


def wrong(findings):
    return [finding.check for finding in findings if not finding.good]


def test_a_save_in_the_middle_of_training(base, tmp_path):
    """A BatchNorm head is saved folded and must match; the encoder trains on as it was."""
    import torch

    encoder = TorchEncoder.load(base, pooling="cls", head="batchnorm")
    encoder.train()
    encoder.backbone.embeddings.eval()
    encoder(encoder.tokenize(made_sentences()[:32])[0])  # moves the running statistics
    modes = [module.training for module in encoder.modules()]
    statistics = [buffer.clone() for buffer in encoder.head.buffers()]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    encoder.save(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in encoder.modules()] == modes
    for old, new in zip(statistics, encoder.head.buffers(), strict=True):
        assert torch.equal(old, new)
    loaded = TorchEncoder.load(tmp_path / "model")
    assert wrong(compare_golden(loaded.golden(), read_golden(tmp_path / "model"))) == []
    first = (tmp_path / "model" / NAME).read_bytes()
    for _ in range(5):
        write_golden(tmp_path / "model", encoder.golden())
        assert (tmp_path / "model" / NAME).read_bytes() == first


def pooling(mode):
    def change(folder):
        def to(data):
            for key in list(data):
                if key.startswith("pooling_mode_"):
                    data[key] = key == f"pooling_mode_{mode}"

        edit(folder / "1_Pooling/config.json", to)

    return change


def drop(kind):
    def change(folder):
        edit(
            folder / "modules.json",
            lambda rows: rows.remove(next(r for r in rows if r["type"].endswith(kind))),
        )

    return change


def add_normalize(folder):
    (folder / "3_Normalize").mkdir()
    row = {"idx": 3, "name": "3", "path": "3_Normalize"}
    row["type"] = "sentence_transformers.models.Normalize"
    edit(folder / "modules.json", lambda rows: rows.append(row))


def setting(**values):
    return lambda folder: edit(folder / "sentence_bert_config.json", lambda d: d.update(values))


def normalizer(**values):
    return lambda folder: edit(
        folder / "tokenizer.json", lambda data: data["normalizer"].update(values)
    )


def weights(function):
    def change(folder):
        from safetensors.numpy import load_file, save_file

        path = folder / "model.safetensors"
        arrays = load_file(path)
        save_file({name: function(name, array) for name, array in arrays.items()}, path)

    return change


def noise(name, array):
    if array.dtype != np.float32 or "layer.1" not in name:
        return array
    rng = np.random.default_rng(0)
    return array + (rng.normal(size=array.shape) * array.std()).astype(np.float32)


def half(name, array):
    return array.astype(np.float16).astype(np.float32) if array.dtype == np.float32 else array


def eight_bits(name, array):
    if array.ndim != 2 or array.dtype != np.float32:
        return array
    step = np.maximum(np.abs(array).max(axis=1, keepdims=True), 1e-9) / 127
    return (np.round(array / step) * step).astype(np.float32)


MUTATIONS = [
    ("plain", pooling("cls_token"), "pooling"), ("head", pooling("cls_token"), "pooling"),
    ("head", drop("Dense"), "head"), ("plain", drop("Normalize"), "normalization"),
    ("head", add_normalize, "normalization"), ("plain", setting(do_lower_case=True), "lower_case"),
    ("plain", setting(max_seq_length=128), "truncation"),
    ("plain", normalizer(lowercase=False), "tokenization"),
    ("plain", normalizer(strip_accents=False), "tokenization"),
    ("plain", normalizer(handle_chinese_chars=False), "tokenization"),
    ("plain", weights(noise), "weights"), ("plain", weights(half), "precision"),
    ("plain", weights(eight_bits), "precision"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "check"), MUTATIONS)
def test_a_changed_folder(copy, name, change, check):
    folder = copy(name)
    change(folder)
    findings = compare_golden(TorchEncoder.load(folder, check=False).golden(), read_golden(folder))
    bad = wrong(findings)
    assert check in bad, findings
    assert set(bad) <= {check, "vectors"}
    assert "vectors" in bad or check in ("lower_case", "tokenization")


def test_files_that_are_no_golden(copy):
    folder = copy("plain")
    path = folder / NAME
    whole = path.read_bytes()
    for content in (b"", b"{}", whole[:-10], whole[:100], b"\0" * 200):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="golden"):
            read_golden(folder)
    path.unlink()
    with pytest.raises(ModelError, match="--write"):
        read_golden(folder)
