"""The command export, and what uses its graphs: encode and search without torch, and auto."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from commands import printed, run
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError, OptionError, OutputError

pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("graphs_written_once")]


@pytest.fixture(scope="module")
def lines(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_text("\n".join(sentences[:90]) + "\n")
    return path


@pytest.fixture(scope="module")
def model(bert, tmp_path_factory, lines, graphs_written_once):
    """A tiny model with two exports beside it."""
    folder = tmp_path_factory.mktemp("model") / "m"
    TorchEncoder.load(bert, pooling="mean", normalize=True).save(folder, card="# A card\n")
    said = printed("export", folder, "--to", "onnx")
    assert said["difference"] <= 1e-5
    run("export", folder, "--to", "onnx", "--int8", "--calibrate", lines)
    return folder


def wanted(model, lines):
    return TorchEncoder.load(model).encode(lines.read_text().splitlines())


def test_encode_by_name_or_by_the_folder_of_the_export(model, lines, tmp_path):
    for number, arguments in enumerate(([model, "--runtime", "onnx"], [model / "onnx"])):
        target = tmp_path / f"{number}.npy"
        said = printed("encode", *arguments[:1], lines, "-o", target, *arguments[1:])
        assert said["runtime"] == "onnx"
        assert said["identity"] == TorchEncoder.load(model).identity
        assert np.abs(np.load(target) - wanted(model, lines)).max() <= 1e-5


def test_invariant_is_the_same_in_any_order(model, lines, tmp_path):
    texts = lines.read_text().splitlines()
    (tmp_path / "back.txt").write_text("\n".join(texts[::-1]))
    for name, source in (("a", lines), ("b", tmp_path / "back.txt")):
        run("encode", model, source, "-o", tmp_path / f"{name}.npy", "--batch-invariant")
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")[::-1])


def test_a_folder_of_shards(model, lines, tmp_path):
    out = tmp_path / "vectors"
    run("encode", model, lines, "-o", out, "--runtime", "onnx", "--shard-rows", 25)
    files = sorted(out.glob("*.parquet"))
    found = [pq.read_table(file).column("vector").to_pylist() for file in files]
    assert [len(rows) for rows in found] == [25, 25, 25, 15]
    assert np.abs(np.concatenate(found) - wanted(model, lines)).max() <= 1e-5


def test_what_an_export_cannot_do_is_refused(model, lines, tmp_path):
    for line, error, words in (
        ("encode {m} --runtime openvino-int8", ModelError, "contrasent export .* openvino --int8"),
        ("encode {m} --runtime onxx", OptionError, "unknown"),
        ("encode {m}/onnx --max-seq-length 9", OptionError, "--max-seq-length 9"),
        ("encode {m}/onnx --runtime torch", OptionError, "is exported to onnx"),
        ("export {m} --to onnx --calibrate x", OptionError, "needs --int8"),
        ("export all-MiniLM-L6-v2 --to onnx", OptionError, "name a folder to write"),
        ("export {m} --to onnx", OutputError, "--overwrite"),
    ):
        command, *arguments = line.format(m=model).split()
        given = (lines, "-o", tmp_path / "v.npy") if command == "encode" else ()
        with pytest.raises(error, match=words):
            run(command, arguments[0], *given, *arguments[1:])


TRACED = """
import re, sys
from pathlib import Path
from contrasent.cli.app import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
heavy = [name for name in ("torch", "transformers", "scipy") if name in sys.modules]
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print("HEAVY", heavy, int(peak[1]) // 1024)
"""


def test_encode_and_search_need_neither_torch_nor_transformers(model, lines, tmp_path):
    run("index", lines, "--model", model, "-o", tmp_path / "index")
    query = lines.read_text().splitlines()[3]
    for arguments in (
        ["encode", model, lines, "-o", tmp_path / "v.npy", "--runtime", "onnx"],
        ["encode", model / "onnx", lines, "-o", tmp_path / "w.parquet"],
        ["search", tmp_path / "index", query, "--runtime", "onnx", "--vectors-only"],
    ):
        command = [sys.executable, "-c", TRACED, *(str(a) for a in arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        heavy, megabytes = done.stdout.splitlines()[-1].removeprefix("HEAVY ").rsplit(" ", 1)
        assert heavy == "[]"
        assert int(megabytes) < 300
    first, second = done.stdout.splitlines()[:2]
    assert first == f"  1  {query}" and second.split(" · ")[:2] == ["     3", "cosine 1.0000"]
