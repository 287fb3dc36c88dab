"""Pushing and pulling against a stand-in of the hub: what arrives is what was sent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hub_stand_in import stand_in

sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))
from serving import running

from contrasent.model.encoder import Encoder

RUN = """
import sys, typer
import time
time.sleep = lambda seconds: None  # a hub that is not there is asked again and again
from contrasent.errors import UserError
from contrasent.cli.push import push
from contrasent.cli.pull import pull
app = typer.Typer()
app.command()(push)
app.command()(pull)
try:
    app()
except UserError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@pytest.fixture(scope="module")
def hub():
    app = stand_in()
    with running(app) as url:
        yield url, app.state


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    Encoder.load(bert, pooler="mean", head="tanh").save(folder, card="---\ntags: [x]\n---\n")
    (folder / "evil.py").write_text("raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    return folder


@pytest.fixture
def run(hub, tmp_path):
    url, _ = hub

    def go(*arguments, token="hf_right", fails=False, **more):
        environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_TOKEN": token, **more}
        environment |= {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        environment |= {"HF_ENDPOINT": url, "HF_HUB_DISABLE_TELEMETRY": "1"}
        environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", RUN, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr.strip().splitlines()[-1] if fails else done.stdout

    return go


def test_there_and_back(hub, folder, run, tmp_path):
    _, state = hub
    said = json.loads(run("push", folder, "ann/mini", "--json"))
    commit = said["commit"]
    sent = state.commits[commit]
    assert "README.md" in sent
    assert not [path for path in sent if path.endswith((".py", ".bin"))]
    state.commits[commit]["evil.py"] = b"raise SystemExit"
    run("pull", f"ann/mini@{commit}", "-o", tmp_path / "back")
    got = {p.relative_to(tmp_path / "back").as_posix(): p.read_bytes()
           for p in (tmp_path / "back").rglob("*") if p.is_file()}  # fmt: skip
    assert got == {path: data for path, data in sent.items() if path != "evil.py"}
    texts = ["The gardener mended a torn map.", ""]
    assert Encoder.load(tmp_path / "back").encode(texts) == pytest.approx(
        np.asarray(Encoder.load(folder).encode(texts))
    )
    again = json.loads(run("push", folder, "ann/mini", "--json"))
    assert again["commit"] != commit or len(state.commits) == 1
    assert "exists" in run("pull", f"ann/mini@{commit}", "-o", tmp_path / "back", fails=True)
    run("pull", f"ann/mini@{commit}", "-o", tmp_path / "back", "--overwrite")


def test_only_a_commit_is_pulled(hub, folder, run, tmp_path):
    commit = json.loads(run("push", folder, "ann/mini", "--json"))["commit"]
    for name in ("ann/mini", "ann/mini@main", f"ann/mini@{commit[:12]}"):
        said = run("pull", name, "-o", tmp_path / "x", fails=True)
        assert said.startswith("OptionError")
        assert f"the newest is ann/mini@{commit}" in said
    said = run("pull", f"ann/mini@{'0' * 40}", "-o", tmp_path / "x", fails=True)
    assert said.startswith("ModelError")
    assert "404" in said
    assert not (tmp_path / "x").exists()


def test_refused(hub, folder, run, tmp_path):
    assert "401" in run("push", folder, "ann/other", token="hf_wrong", fails=True)
    for name in ("../x", "a/b/c", "", "a b", "-a"):
        assert "no name" in run("push", folder, "--", name, fails=True) or name == "-a"
    assert "no model folder" in run("push", tmp_path, "ann/mini", fails=True)
    where = ["--endpoint", "http://127.0.0.1:1"]
    said = run("pull", f"ann/mini@{'1' * 40}", "-o", tmp_path / "y", *where, fails=True)
    assert said.startswith("ModelError")
