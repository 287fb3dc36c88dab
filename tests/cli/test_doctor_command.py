"""``contrasent`` without arguments, and ``contrasent doctor`` of a machine, a model, an index."""

import errno
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import requires
from pathlib import Path

import pytest

from commands import invoke
from contrasent import cli
from contrasent.cli.app import WELCOME, app
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError, OptionError
from contrasent.model.golden import NAME, PROBES
from contrasent.search.writer import Writer
from tiny_models import collapse_head

doctor = import_module("contrasent.cli.doctor")
application = import_module("contrasent.cli.app")


def test_without_arguments_it_shows_four_things_to_try():
    shown = invoke()
    assert (shown.exit_code, shown.stdout.strip()) == (0, WELCOME)
    commands = [c.name for c in app.registered_commands]
    tried = re.findall(r"^  contrasent (\w+)", WELCOME, re.M)
    assert len(tried) == 4
    assert set(tried) <= set(commands)


def test_doctor_names_what_is_missing_and_what_to_type(monkeypatch, tmp_path):
    for name in ("fastapi", "xberg"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("CONTRASENT_DATA", str(tmp_path / "nowhere"))
    lines = invoke("doctor").stdout.splitlines()
    (serve,) = [line for line in lines if "the HTTP server" in line]
    assert serve.endswith("pip install 'contrasent[serve]'")
    found = json.loads(invoke("doctor", "--json").stdout)
    assert {"documents", "serve"} <= set(found["missing"]) and "offline" not in found["missing"]
    assert found["data"] == [str(tmp_path / "nowhere"), False]
    assert any("which does not exist" in line for line in lines)
    with pytest.raises(OptionError, match="name the model"):
        invoke("doctor", "--write")


def test_every_extra_that_it_names_exists():
    declared = set(re.findall(r"extra == ['\"]([\w-]+)['\"]", " ".join(requires("contrasent"))))
    assert set(doctor.EXTRAS) <= declared
    assert len(doctor.EXTRAS) >= 9


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 9 GiB"), RuntimeError("CUDA out of memory. Tried")]
)
def test_memory_that_is_not_there_is_one_line_and_other_errors_stay(monkeypatch, capsys, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(application, "app", fails)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    line = capsys.readouterr().err
    assert (ended.value.code, line.count("\n")) == (2, 1)
    assert str(error) in line and line.endswith("(docs/troubleshooting.md#out-of-memory)\n")
    error = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()


def test_an_error_without_a_file_is_not_laid_on_standard_output(monkeypatch):
    def fail(words):
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(application, "run", fail)
    with pytest.raises(OSError, match="not connected"):
        cli.main([])


def test_a_closed_standard_stream_is_an_empty_one(monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as ended:
        cli.main(["search", "nowhere", "word"])
    with sys.stdin as stdin, sys.stdout as stdout, sys.stderr as stderr:
        assert stdin.buffer.read() == b""
        assert (stdout.name, stderr.name, ended.value.code) == (os.devnull, os.devnull, 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_standard_output_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "contrasent", "--version"], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=600,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "contrasent: standard output: No space left on device\n"


def doctor_says(*arguments):
    result = invoke("doctor", *arguments)
    return result.exit_code, result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory, bert):
    folder = tmp_path_factory.mktemp("model") / "mini"
    TorchEncoder.load(bert, pooling="mean").save(folder)
    return folder


def test_write(folder, bert):
    with pytest.raises(ModelError, match="--write"):
        doctor_says(bert)
    saved = (folder / NAME).read_bytes()
    code, said = doctor_says(folder, "--write")
    assert code == 0
    assert "25 golden vectors" in said
    assert (folder / NAME).read_bytes() == saved


def test_folder(folder):
    code, said = doctor_says(folder)
    assert code == 0
    assert said.splitlines()[-1] == "no problems found"
    assert "attention" not in said + invoke("doctor", folder).stderr
    code, said = doctor_says(folder, "--json", "--pooling", "cls")
    assert code == 1
    report = json.loads(said)
    assert report["good"] is False
    assert [f["check"] for f in report["findings"] if not f["good"]] == ["pooling", "vectors"]


def test_a_collapsed_head_is_a_warning(tmp_path, bert, caplog):
    encoder = TorchEncoder.load(bert, pooling="mean")
    collapse_head(encoder.eval(), 0, 1, PROBES)
    encoder.save(tmp_path / "m")
    result = invoke("doctor", tmp_path / "m")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "no problems found")
    said = "heads give the first token more than 90 % of their weight (layer 1: 2)"
    assert said in result.stderr
    assert said in json.loads(doctor_says(tmp_path / "m", "--json")[1])["warning"]
    (tmp_path / "m" / NAME).unlink()
    with pytest.raises(ModelError, match="no golden vectors"):
        doctor_says(tmp_path / "m")
    assert said in caplog.text  # of a base that nobody wrote golden vectors for as well


def test_index(folder, bert, tmp_path):
    (tmp_path / "t.txt").write_text("a map\nan old boat\n")
    for name, model in (("saved", folder), ("bare", bert)):
        options = ("--pooling", "mean") if name == "bare" else ()
        invoke("index", tmp_path / "t.txt", "--model", model, "-o", tmp_path / name, *options)
        code, said = doctor_says(tmp_path / name)
        assert (code, said.splitlines()[-1]) == (0, "no problems found")
        assert "ok     index: 2 rows of this model" in said
    invoke("index", tmp_path / "t.txt", "--model", folder, "-o", tmp_path / "adapted" / "index")
    assert doctor_says(tmp_path / "adapted")[0] == 0  # as adapt leaves it
    with Writer(tmp_path / "adapted" / "index") as writer:
        writer.set(model="", source="")
    code, said = doctor_says(tmp_path / "adapted")
    assert code == 0 and "ok     model: not recorded" in said
    assert "rows: 2 of" in said and "\nmodel: not recorded, " in said
    with Writer(tmp_path / "bare") as writer:
        writer.set(settings={**writer.facts.settings, "pooling": "cls"})
    code, said = doctor_says(tmp_path / "bare")
    assert code == 1
    assert "WRONG  index: 2 rows of another than" in said
