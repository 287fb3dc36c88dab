"""What all tests share: tiny encoders of six kinds, sentences, and the folder of the real data."""

import logging
import os
from pathlib import Path

import pytest

from contrasent import progress
from tiny_models import KINDS, made_sentences, write_backbone, write_tokenizer

DATA = os.environ.get("CONTRASENT_DATA")


def pytest_configure(config):
    # Before torch is imported, here and in subprocesses.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items):
    if DATA:
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason="CONTRASENT_DATA is not set"))


@pytest.fixture(autouse=True)
def as_the_library_is():
    """Commands choose progress and quieten logs for their process; tests share one."""
    yield
    progress.show("silent")
    logging.getLogger("contrasent.model.encoder").setLevel(logging.NOTSET)


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
