"""Exported graphs against torch: every kind of encoder, every pooling, head and scaling."""

import json

import numpy as np
import pytest

from contrasent.encoder import export as export_
from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.export import export
from contrasent.errors import ModelError, OptionError, OutputError
from contrasent.model import base, runtime
from contrasent.model.golden import PROBES
from contrasent.model.pooling import POOLERS
from contrasent.model.runtime import Exported, read_export
from tiny_models import KINDS

pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("graphs_written_once")]

WAYS = {
    "bert": ("mean", "none", True), "roberta": ("cls", "tanh", False),
    "distilbert": ("max", "batchnorm", True), "mpnet": ("first_last", "none", False),
    "electra": ("embeddings_last", "tanh", True), "modernbert": ("last_two", "none", False),
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tiny, tmp_path_factory):
    """A model of each kind, each with another pooling; together all heads and both scalings."""
    import torch

    assert set(WAYS) == set(KINDS)
    # Graphs have the poolers of sentence-transformers; export rejects the others. That of decoders
    # is exported in test_architectures.
    portable = {name for name, kind in POOLERS.items() if kind.mode}
    assert {way[0] for way in WAYS.values()} == portable - {"last_token"}
    home = tmp_path_factory.mktemp("models")
    for kind, (pooling, head, normalize) in WAYS.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            encoder = TorchEncoder.load(tiny[kind], pooling=pooling, head=head, normalize=normalize)
        if head == "batchnorm":  # statistics that do something
            encoder.head[1].running_mean.uniform_(-0.1, 0.1)
        encoder.matryoshka_dims = (32, 8) if kind == "bert" else ()
        encoder.save(home / kind, card="# A card\n\n## Scores\n\nnone\n")
    return {kind: home / kind for kind in KINDS}


@pytest.fixture(scope="module")
def onnx(models, graphs_written_once):
    """The tiny BERT's export, next to it."""
    export(models["bert"], models["bert"] / "onnx", engine="onnx")
    return models["bert"] / "onnx"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_pooler_and_head_gives_the_vectors_of_torch(
    kind, models, onnx, tmp_path, sentences
):
    target = onnx
    if kind != "bert":
        target = tmp_path / "out"
        export(models[kind], target, engine="onnx")
    texts = [*sentences[:40], "", *PROBES]
    wanted = TorchEncoder.load(models[kind]).encode(texts)
    exported = Exported.open(target)
    for batch in (1, 7, 64):
        found = exported.encode(texts, batch_size=batch)
        assert found.dtype == np.float32
        assert np.abs(found - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())
    assert exported.truncated == sum(len(exported.tokenizer.backend.encode(t).overflowing) > 0
                                     for t in texts)  # fmt: skip
    assert read_export(target).difference <= 1e-5
    assert exported.matryoshka_dims == ((32, 8) if kind == "bert" else ())


def test_openvino_in_float32_gives_the_vectors_of_torch(models, tmp_path, sentences):
    pytest.importorskip("openvino")
    export(models["modernbert"], tmp_path / "out", engine="openvino")  # with sliding windows
    wanted = TorchEncoder.load(models["modernbert"]).encode(sentences[:40])
    found = Exported.open(tmp_path / "out").encode(sentences[:40], batch_size=16)
    assert np.abs(found - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())


def test_openvino_is_first_called_by_one_thread(models, tmp_path, monkeypatch):
    openvino = pytest.importorskip("openvino")
    export(models["bert"], tmp_path / "out", engine="openvino")
    infer, alone = openvino.InferRequest.infer, []

    def stated(self, *arguments, **options):
        alone.append(runtime._ALONE.locked())
        return infer(self, *arguments, **options)

    monkeypatch.setattr(openvino.InferRequest, "infer", stated)
    path = next((tmp_path / "out").glob("*.xml"))
    # Whoever opens a graph has called it, alone: later calls may be made at the same time.
    run = runtime.open_session("openvino", path, "fp32", streams=2)
    assert alone == [True]
    run(np.ones((2, 3), np.int64), np.ones((2, 3), np.int64))
    assert alone == [True, False]

    path.write_text(path.read_text().replace('names="attention_mask"', 'names="another"'))
    with pytest.raises(ModelError, match=r"encoder\.xml: OpenVINO cannot run it \(.*") as caught:
        runtime.open_session("openvino", path, "fp32", streams=2)
    assert "\n" not in str(caught.value)


def test_openvino_in_int8_meets_few_shapes(models, tmp_path, sentences, monkeypatch):
    pytest.importorskip("openvino")
    export(models["bert"], tmp_path / "q", engine="openvino", calibration=sentences[:50])
    opened, shapes = runtime.open_session, []

    def stated(*arguments, **options):
        run = opened(*arguments, **options)

        def call(ids, mask):
            shapes.append(ids.shape)
            return run(ids, mask)

        return call

    monkeypatch.setattr(runtime, "open_session", stated)
    monkeypatch.setattr(base, "BUDGET", 256)  # so that there are many calls
    exported = Exported.open(tmp_path / "q")
    words = " ".join(sentences).split()
    random = np.random.default_rng(0)
    for _ in range(2):
        shapes.clear()
        sizes = random.integers(1, exported.max_seq_length // 2, 300)
        exported.encode([" ".join(random.choice(words, size)) for size in sizes])
        widths = {width for _, width in shapes}
        # As many rows for each width, but for the call that takes what is left.
        assert len(widths) >= 3
        assert len(set(shapes)) <= len(widths) + 1
        assert len(widths) <= 8 + 4 * np.ceil(np.log2(max(2, exported.max_seq_length / 32)))


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_int8_is_near_and_says_how_near(engine, models, tmp_path, sentences, monkeypatch):
    pytest.importorskip(engine)
    write = export_.write_onnx

    def written(encoder, path):
        write(encoder, path)
        path.with_name(f"{path.name}.data").touch()  # as torch writes it of a large model

    monkeypatch.setattr(export_, "write_onnx", written)
    said = export(models["bert"], tmp_path / "q", engine=engine, calibration=sentences[:100])
    assert said.name == f"{engine}-int8"
    assert said.made["quantized_products"] == 12  # 6 products with weights in each of 2 layers
    wanted = TorchEncoder.load(models["bert"]).encode(sentences[200:260])
    found = Exported.open(tmp_path / "q").encode(sentences[200:260])
    cosines = (found * wanted).sum(axis=1)
    assert 0.98 < cosines.min() < 1 - 1e-7
    assert json.loads((tmp_path / "q" / "export.json").read_text())["cosine"] == said.cosine
    assert not [*(tmp_path / "q").glob("*.data")]


def test_an_export_of_other_weights_is_rejected(models, tmp_path, onnx):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(models["bert"], copy)
    assert Exported.open(copy / "onnx", model=copy).identity == TorchEncoder.load(copy).identity
    config = copy / "config.json"
    config.write_text(config.read_text() + " ")
    with pytest.raises(ModelError, match="current weights, settings or prompts"):
        Exported.open(copy / "onnx", model=copy)


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_a_graph_that_gives_other_vectors_is_not_kept(models, tmp_path, monkeypatch, engine):
    pytest.importorskip(engine)
    monkeypatch.setattr("contrasent.encoder.export.LIMIT", 0.0)
    with pytest.raises(ModelError, match=rf"^{models['bert']}: .* differ from torch's by"):
        export(models["bert"], tmp_path / "bad", engine=engine)
    assert not (tmp_path / "bad").exists()


def test_what_cannot_be_is_rejected_before_any_work(models, onnx, tmp_path, monkeypatch):
    with pytest.raises(OptionError, match=r"--to 'onx'.*did you mean 'onnx'"):
        export(models["bert"], tmp_path / "x", engine="onx")
    with pytest.raises(OutputError, match="--overwrite"):
        export(models["bert"], onnx, engine="onnx")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(OutputError, match="is not an export"):
        export(models["bert"], tmp_path / "other", engine="onnx", overwrite=True)
    with pytest.raises(OptionError, match="at least 16 are needed"):
        export(models["bert"], tmp_path / "few", engine="onnx", calibration=["one"])
    monkeypatch.setattr(export_, "LARGEST", 100)
    with pytest.raises(ModelError, match=r"int8 is made of at most 1e-07 GB of weights, not 0\.0"):
        export(models["bert"], tmp_path / "x", engine="onnx", calibration=["one"])
