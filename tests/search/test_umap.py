"""A map by UMAP: groups stay together, and the picture is the same each time."""

import sys

import numpy as np
import pytest

from contrasent.errors import MissingExtraError, OptionError
from contrasent.search.index import Index
from contrasent.search.plane import plane


def grouped(count, groups=3, dimension=24):
    """Rows around a few directions, in turn."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(groups, dimension))
    vectors = centres[np.arange(count) % groups] + 0.1 * rng.normal(size=(count, dimension))
    texts = [f"t{n}" for n in range(count)]
    return Index.build(lambda _: vectors.astype(np.float32), texts)


def test_groups_stay_together():
    pytest.importorskip("umap")
    index = grouped(90)
    flat = plane(index, limit=60, method="umap")
    assert flat.explained is None
    assert flat.points.shape == (60, 2)
    assert np.abs(flat.points).max() == pytest.approx(1)
    group = flat.rows % 3
    apart = np.linalg.norm(flat.points[:, None] - flat.points[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (group[apart.argmin(axis=1)] == group).mean() > 0.9  # by chance, a third
    again = plane(index, limit=60, method="umap")
    assert np.array_equal(flat.points, again.points)
    for few in (1, 2, 3, 4, 5):  # too few for neighbours, or just enough
        assert np.isfinite(plane(grouped(few), method="umap").points).all()


def test_an_unknown_method_and_a_missing_package(monkeypatch):
    with pytest.raises(OptionError, match="did you mean 'umap'"):
        plane(grouped(9), method="umpa")
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'contrasent\[map\]'"):
        plane(grouped(9), method="umap")
