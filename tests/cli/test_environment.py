"""``contrasent`` and ``contrasent doctor`` without arguments: where one begins."""

import json
import re
import sys
from importlib import import_module
from importlib.metadata import requires

import pytest
from typer.testing import CliRunner

from contrasent import cli
from contrasent.cli.app import WELCOME, app

doctor = import_module("contrasent.cli.doctor")
application = import_module("contrasent.cli.app")


def run(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_without_arguments_it_shows_four_things_to_try():
    shown = run()
    assert (shown.exit_code, shown.stdout.strip()) == (0, WELCOME)
    commands = [c.name for c in app.registered_commands]
    tried = re.findall(r"^  contrasent (\w+)", WELCOME, re.M)
    assert len(tried) == 4
    assert set(tried) <= set(commands)


def test_doctor_names_what_is_missing_and_what_to_type(monkeypatch, tmp_path):
    for name in ("fastapi", "xberg"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("CONTRASENT_DATA", str(tmp_path / "nowhere"))
    lines = run("doctor").stdout.splitlines()
    (serve,) = [line for line in lines if "the HTTP server" in line]
    assert serve.endswith("pip install 'contrasent[serve]'")
    found = json.loads(run("doctor", "--json").stdout)
    assert {"documents", "serve"} <= set(found["missing"]) and "offline" not in found["missing"]
    assert found["data"] == [str(tmp_path / "nowhere"), False]
    assert any("which does not exist" in line for line in lines)


def test_every_extra_that_it_names_exists():
    declared = set(re.findall(r"extra == ['\"]([\w-]+)['\"]", " ".join(requires("contrasent"))))
    assert set(doctor.EXTRAS) <= declared
    assert len(doctor.EXTRAS) >= 9


def test_a_check_needs_a_model():
    refused = CliRunner().invoke(app, ["doctor", "--write"])
    assert "name the model" in str(refused.exception)


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
