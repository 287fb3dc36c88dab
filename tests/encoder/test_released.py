"""Checkpoints of the four papers, as stand-ins with their files and keys: whose head counts."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from contrasent.encoder.encoder import TorchEncoder
from contrasent.encoder.released import METHODS, import_checkpoint
from contrasent.errors import ModelError, OptionError
from tiny_models import KINDS, made_sentences

SIZE = 32
TEXTS = made_sentences()[:12]


def linear(rows, columns, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)).astype(np.float32) / 4


TANH = {"dense.weight": linear(SIZE, SIZE, 1), "dense.bias": linear(SIZE, 1, 2)[:, 0]}
PROJECTOR = {
    "net.0.weight": linear(2 * SIZE, SIZE, 3),
    "net.1.weight": np.ones(2 * SIZE, np.float32),
    "net.1.bias": np.zeros(2 * SIZE, np.float32),
    "net.1.running_mean": np.zeros(2 * SIZE, np.float32),
    "net.1.running_var": np.ones(2 * SIZE, np.float32),
    "net.3.weight": linear(SIZE, 2 * SIZE, 4),
    "net.4.running_mean": np.zeros(SIZE, np.float32),
    "net.4.running_var": np.ones(SIZE, np.float32),
}


def under(prefix, weights):
    return {f"{prefix}{key}": value for key, value in weights.items()}


@pytest.fixture
def checkpoint(tiny, tmp_path):
    """Write a stand-in: a tiny body, a head, and what training left, converted or as trained."""

    def make(head, *, kind="bert", extra=(), converted=True):
        folder = tmp_path / "checkpoint"
        shutil.copytree(tiny[kind], folder)
        body = load_file(folder / "model.safetensors")
        body = {key: body[key] for key in body if not key.startswith("pooler.")}
        body["embeddings.position_ids"] = np.arange(64)[None]  # as older checkpoints hold it
        weights = {**body, **under("pooler.", head)}
        if not converted:
            weights = {**under(f"{kind}.", body), **under("mlp.", head)}
        for prefix in extra:
            weights |= under(prefix, {k: v + 1 for k, v in body.items() if v.dtype == np.float32})
        if "aux_bert." in extra:
            weights["electra_head.weight"] = linear(2, SIZE, 5)
        save_file(weights, folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        name = {"bert": "Bert", "roberta": "Roberta"}[kind]
        config["architectures"] = [f"{name}{'Model' if converted else 'ForCL'}"]
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


def first_tokens(folder):
    """The [CLS] vectors that transformers gives for the untouched body."""
    return TorchEncoder.load(folder, pooling="cls").encode(TEXTS)


LAYOUTS = [
    # method, what the user says, head in the files, training's rest, through the head
    ("unsup-simcse", "unsup-simcse", TANH, (), False),
    ("sup-simcse", "sup-simcse", TANH, (), True),
    ("simcse++", "simcse++", TANH, (), False),
    ("esimcse", "esimcse", TANH, (), False),
    ("esimcse", None, TANH, ("momentum_model.",), False),
    ("diffcse", None, PROJECTOR, ("aux_bert.", "generator.distilbert."), False),
    ("diffcse", None, TANH, ("aux_bert.",), False),  # trained without --batchnorm
    ("diffcse", None, PROJECTOR, (), False),
]


@pytest.mark.parametrize(("kind", "converted"), [("bert", True), ("roberta", False)])
@pytest.mark.parametrize(("method", "said", "head", "extra", "through"), LAYOUTS)
def test_the_vectors_are_those_the_paper_evaluates(
    checkpoint, tiny, tmp_path, kind, converted, method, said, head, extra, through
):
    folder = checkpoint(head, kind=kind, extra=extra, converted=converted)
    encoder, found = import_checkpoint(folder, method=said)
    assert found == method
    wanted = first_tokens(tiny[kind])
    if through:
        wanted = np.tanh(wanted @ TANH["dense.weight"].T + TANH["dense.bias"])
    assert encoder.encode(TEXTS) == pytest.approx(wanted, abs=1e-6)
    encoder.save(tmp_path / "model")
    assert TorchEncoder.load(tmp_path / "model").encode(TEXTS) == pytest.approx(wanted, abs=1e-6)


def test_what_the_files_do_not_tell_is_asked(checkpoint):
    assert {layout[0] for layout in LAYOUTS} == set(METHODS)
    folder = checkpoint(TANH)
    with pytest.raises(OptionError, match=r"--method.*before the head .*or after it"):
        import_checkpoint(folder)
    with pytest.raises(OptionError, match="did you mean 'esimcse'"):
        import_checkpoint(folder, method="esimsce")


def test_a_method_that_the_files_contradict(checkpoint):
    folder = checkpoint(PROJECTOR, extra=("aux_bert.",))
    with pytest.raises(OptionError, match="has the keys of diffcse"):
        import_checkpoint(folder, method="sup-simcse")
    save_file(
        {k: v for k, v in load_file(folder / "model.safetensors").items() if "embed" in k[:9]},
        folder / "model.safetensors",
    )
    with pytest.raises(OptionError, match=r"has no head \(mlp\.dense or pooler\.dense"):
        import_checkpoint(folder, method="sup-simcse")
    with pytest.raises(ModelError, match="weights are missing"):
        import_checkpoint(folder, method="simcse++")


def test_pickled_weights_are_not_read(checkpoint, tmp_path):
    folder = checkpoint(TANH)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="give that commit"):
        import_checkpoint(folder, method="esimcse")
    mark = tmp_path / "unpickled"
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch %b'\ntR." % bytes(mark))
    with pytest.raises(ModelError, match=r"is pickled.*weights_only=True"):
        import_checkpoint(folder, method="esimcse")
    assert not mark.exists()


def test_the_conversion_that_is_named_works(checkpoint, tiny):
    import subprocess
    import sys

    import torch

    from contrasent.encoder.tensors import CONVERT

    folder = checkpoint(TANH, converted=False)
    weights = load_file(folder / "model.safetensors")
    tensors = {key: torch.from_numpy(value) for key, value in weights.items()}
    tensors["tied"] = tensors["mlp.dense.weight"]  # storage shared by two names
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    code = CONVERT.removeprefix('python -c "').removesuffix('"')
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=600)
    encoder, _ = import_checkpoint(folder, method="unsup-simcse")
    assert encoder.encode(TEXTS) == pytest.approx(first_tokens(tiny["bert"]), abs=1e-6)


def test_what_is_no_checkpoint(checkpoint, tiny, tmp_path):
    for kind in set(KINDS) - {"bert", "roberta"}:
        with pytest.raises(ModelError, match="is not from a BERT or RoBERTa"):
            import_checkpoint(tiny[kind], method="esimcse")
    TorchEncoder.load(tiny["bert"], pooling="mean").save(tmp_path / "whole")
    with pytest.raises(ModelError, match="no import needed"):
        import_checkpoint(tmp_path / "whole", method="esimcse")
    folder = checkpoint(TANH, converted=False)
    with pytest.raises(ModelError, match=r"contrasent import .*checkpoint -o MODEL"):
        TorchEncoder.load(folder, pooling="cls")


def test_the_command(checkpoint, tmp_path):
    from typer.testing import CliRunner

    from contrasent.cli.app import app

    folder = checkpoint(TANH)
    (tmp_path / "model").mkdir()  # an empty folder loses nothing
    requested = ["import", str(folder), "-o", str(tmp_path / "model"), "--quiet"]
    said = CliRunner().invoke(app, [*requested, "--method", "sup-simcse"])
    assert said.exit_code == 0, said.exception
    assert "sup-simcse, 32 dimensions, [CLS] through the tanh head" in said.stdout
    assert '"name": "sup-simcse"' in (tmp_path / "model" / "README.md").read_text()
    again = CliRunner().invoke(
        app, [*requested, "--method", "unsup-simcse", "--overwrite", "--json"]
    )
    assert json.loads(again.stdout)["head"] is False
