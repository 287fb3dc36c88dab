"""Items against the values of their rows, named sets of pairs, and a model without weights."""

import shutil

import numpy as np
import pytest


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
