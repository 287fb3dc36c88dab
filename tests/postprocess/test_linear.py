"""Linear layers fitted to vectors: whitening, and its errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent import metrics
from contrasent.errors import DataError, OptionError
from contrasent.postprocess import whiten


def cloud(n=400, d=6, seed=0):
    random = np.random.default_rng(seed)
    stretch = np.diag(np.linspace(1, 4, d)) @ random.normal(size=(d, d))
    return (random.normal(size=(n, d)) @ stretch + random.normal(size=d) * 5).astype(np.float32)


@given(st.integers(0, 500), st.integers(1, 6))
def test_the_covariance_of_what_was_fitted_is_the_identity(seed, keep):
    vectors = cloud(seed=seed)
    out = whiten(vectors, dimensions=keep)(vectors)
    assert out.shape == (400, keep)
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(np.cov(out.T).reshape(keep, keep), np.eye(keep), atol=2e-3)


def test_kept_directions_are_those_of_the_largest_variance():
    vectors = np.random.default_rng(1).normal(size=(3000, 3)) * [1, 10, 3]
    out = whiten(vectors.astype(np.float32), dimensions=1)(vectors)
    assert abs(np.corrcoef(out[:, 0], vectors[:, 1])[0, 1]) > 0.999


def test_uniformity_improves_on_a_cone():
    """SimCSE, Figure 3: whitening raises uniformity (the loss falls); it is a linear layer."""
    vectors = cloud() + 20
    found = whiten(vectors)
    out = found(vectors)
    assert metrics.uniformity(out) < metrics.uniformity(vectors) - 0.5
    np.testing.assert_allclose(vectors @ found.matrix + found.bias, out, atol=2e-3)


def test_what_cannot_be_whitened_is_an_error():
    vectors = cloud()
    with pytest.raises(OptionError, match="have 6; choose 1 to 6"):
        whiten(vectors, dimensions=7)
    with pytest.raises(DataError, match="5 vectors are too few for"):
        whiten(vectors[:5])
    flat = vectors.copy()
    flat[:, 5] = flat[:, 4]
    with pytest.raises(DataError, match="vary in only 5 directions; keep"):
        whiten(flat, dimensions=6)
    assert whiten(flat)(flat).shape == (400, 5)
    with pytest.raises(DataError, match="NaN"):
        whiten(vectors * np.nan)
