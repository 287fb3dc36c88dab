"""``contrasent`` and ``contrasent doctor`` without arguments: where one begins."""

import json
import re
from importlib import import_module
from importlib.metadata import requires

import pytest
from typer.testing import CliRunner

from contrasent.cli.app import WELCOME, app

doctor = import_module("contrasent.cli.doctor")


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
    known = doctor.find_spec
    without = ("fastapi", "kreuzberg")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in without else known(name))
    monkeypatch.setenv("CONTRASENT_DATA", str(tmp_path / "nowhere"))
    lines = run("doctor").stdout.splitlines()
    (serve,) = [line for line in lines if "the HTTP server" in line]
    assert serve.endswith("pip install 'contrasent[serve]'")
    found = json.loads(run("doctor", "--json").stdout)
    assert {"documents", "serve"} <= set(found["missing"]) and "offline" not in found["missing"]
    assert found["data"] == [str(tmp_path / "nowhere"), False]
    assert any("which is not there" in line for line in lines)


def test_every_extra_that_it_names_exists():
    declared = set(re.findall(r"extra == ['\"]([\w-]+)['\"]", " ".join(requires("contrasent"))))
    assert set(doctor.EXTRAS) <= declared
    assert len(doctor.EXTRAS) >= 9


@pytest.mark.parametrize("option", [("--url", "http://127.0.0.1:1/v1"), ("--write",)])
def test_a_check_needs_a_model(option):
    refused = CliRunner().invoke(app, ["doctor", *option])
    assert "name the model" in str(refused.exception)
