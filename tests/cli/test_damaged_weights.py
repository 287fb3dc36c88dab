"""A flipped byte in a model's weights ends every command with one line that names the file."""

import re
import shutil

import pytest

from commands import invoke, printed, run
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError
from contrasent.model.golden import WEIGHTS

COMMANDS = {
    "similarity": "similarity {model} a b", "encode": "encode {model} notes.txt -o v.npy",
    "encode in shards": "encode {model} notes.txt -o vs --engine local",
    "index": "index notes.txt --model {model} -o new", "search": "search made query",
    "evaluate": "evaluate {model} --pairs pairs.csv --columns a,b,score",
    "serve": "serve {model} --port 0",
    "adapt": "adapt handbook -o adapted --model {model} --budget 10s",
    "train": "train notes.txt -o trained --base {model} --set max_steps=1",
    "diff": "diff {model} whole --on notes.txt", "export": "export {model} --to onnx -o exported",
    "postprocess": "postprocess whiten {model} notes.txt -o white",
}  # fmt: skip


def flip(path, at=-5):
    data = bytearray(path.read_bytes())
    data[at] ^= 64
    path.write_bytes(data)


@pytest.fixture(scope="module")
def home(tmp_path_factory, bert, sentences):
    """A saved model, an index of it, and texts; then a byte of the model is another one."""
    home = tmp_path_factory.mktemp("damaged")
    TorchEncoder.load(bert, pooling="mean", head="tanh").save(home / "model")
    shutil.copytree(home / "model", home / "whole")
    (home / "notes.txt").write_text("\n".join(sentences[:60]))
    (home / "pairs.csv").write_text("a,b,score\n" + "".join(f'"{s}","so",{n}\n' for n, s in
                                    enumerate(sentences[:30])))  # fmt: skip
    (home / "handbook").mkdir()
    (home / "handbook" / "page.md").write_text("# Page\n\n" + "\n\n".join(sentences[:60]))
    run("index", home / "notes.txt", "--model", home / "model", "-o", home / "made")
    flip(home / "model" / "model.safetensors")
    return home


@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
def test_each_command_names_the_file(home, line, monkeypatch):
    monkeypatch.chdir(home)
    named = re.escape(str(home / "model" / "model.safetensors"))
    with pytest.raises(ModelError, match=rf"^{named}: has changed since it was saved .*--write'$"):
        invoke(*line.format(model=home / "model").split())


def test_the_doctor_looks_at_it_and_accepts_it_on_request(home, tmp_path):
    folder = shutil.copytree(home / "whole", tmp_path / "model")
    assert printed("doctor", folder)["good"]
    flip(folder / "2_Dense" / "model.safetensors", at=-4)  # no vector shows it
    checks = [one["check"] for one in printed("doctor", folder)["findings"] if not one["good"]]
    assert checks[-1] == "files"
    with pytest.raises(
        ModelError, match=r"2_Dense/model\.safetensors: has changed since it was saved"
    ):
        TorchEncoder.load(folder)
    run("doctor", folder, "--write")
    assert printed("doctor", folder)["good"]
    TorchEncoder.load(folder)


def test_a_folder_without_digests_is_loaded_as_it_is(home, tmp_path):
    folder = shutil.copytree(home / "model", tmp_path / "model")
    (folder / WEIGHTS).unlink()
    assert TorchEncoder.load(folder).dimension == 32


@pytest.mark.slow
def test_a_graph_is_compared_too(home, tmp_path):
    run("export", home / "whole", "--to", "onnx", "-o", tmp_path / "graph")
    run("similarity", tmp_path / "graph", "a", "b")
    flip(tmp_path / "graph" / "encoder.onnx", at=3000)
    with pytest.raises(ModelError, match=r"encoder\.onnx: has changed since the export"):
        run("similarity", tmp_path / "graph", "a", "b")
