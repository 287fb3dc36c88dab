"""Linear layers fitted to vectors: whitening, dimension-wise contrast, and their errors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contrasent import metrics
from contrasent.errors import DataError, OptionError
from contrasent.postprocess.linear import LayerSettings, contrast, whiten


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
    with pytest.raises(DataError, match="5 vectors cannot show"):
        whiten(vectors[:5])
    flat = vectors.copy()
    flat[:, 5] = flat[:, 4]
    with pytest.raises(DataError, match="vary in 5 directions only"):
        whiten(flat, dimensions=6)
    assert whiten(flat)(flat).shape == (400, 5)
    with pytest.raises(DataError, match="NaN"):
        whiten(vectors * np.nan)


def views(n=1200, d=6, noise=0.3, seed=0):
    """Correlated dimensions on a cone, and two noisy looks at each row."""
    random = np.random.default_rng(seed)
    base = random.normal(size=(n, d)) @ (np.eye(d) + 0.8) + 20
    return [(base + noise * random.normal(size=(n, d))).astype(np.float32) for _ in range(2)]


def plain_loss(first, second, tau):
    """Equation 5 in loops: columns standardised, the inner product over the number of rows."""

    def standard(x):
        return [(c - c.mean()) / np.sqrt(c.var() + 1e-5) for c in np.asarray(x, float).T]

    one, two = standard(first), standard(second)
    total = 0.0
    for c, own in enumerate(one):
        scores = [float(own @ other) / len(own) / tau for other in two]
        peak = max(scores)
        total -= scores[c] - peak - np.log(sum(np.exp(s - peak) for s in scores))
    return total / len(one)


def test_without_learning_contrast_is_standardisation():
    """The weight begins as the identity, so that lr 0 leaves each dimension scaled and moved."""
    first, second = views()
    layer = contrast(first, second, LayerSettings(lr=0.0, batch=64))
    both = np.concatenate([first, second]).astype(float)
    wanted = (first - both.mean(0)) / both.std(0)
    np.testing.assert_allclose(layer(first), wanted, atol=1e-4)
    first[:, 2] = second[:, 2] = 7  # what does not vary becomes nothing
    layer = contrast(first, second, LayerSettings(lr=0.0, batch=64))
    assert np.abs(layer(first)[:, 2]).max() < 1e-4
    assert np.isfinite(contrast(first, second, LayerSettings(batch=64))(first)).all()


def test_contrast_lowers_the_papers_loss_on_rows_it_has_not_seen():
    first, second = views(n=2400, seed=2)
    steps = []
    settings = LayerSettings(batch=100, epochs=20, lr=1e-2)
    layer = contrast(first[:1200], second[:1200], settings, report=lambda *at: steps.append(at))
    assert [step for step, _ in steps] == list(range(240))
    unseen = [first[1200:], second[1200:]]
    before = plain_loss(*unseen, 0.05)
    assert plain_loss(layer(unseen[0]), layer(unseen[1]), 0.05) < 0.2 * before
    # The first step's loss is that of the plain vectors of its batch.
    assert steps[0][1] == pytest.approx(before, rel=0.25)
    off = np.abs(np.corrcoef(layer(unseen[0]).T) - np.eye(6)).max()
    assert off < 0.5 < np.abs(np.corrcoef(unseen[0].T) - np.eye(6)).max()


def test_equal_seeds_give_equal_layers_and_the_callers_random_state_stands():
    first, second = views(seed=5)
    state = torch.get_rng_state()
    one, two = (contrast(first, second, LayerSettings(batch=64, seed=s)) for s in (1, 1))
    other = contrast(first, second, LayerSettings(batch=64, seed=2))
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(one.matrix, two.matrix)
    assert not np.array_equal(one.matrix, other.matrix)


def test_what_cannot_be_fitted_is_an_error():
    first, second = views(n=100)
    for pair, batch, lr, message in (
        ((first, second), 512, 1e-3, "100 rows are fewer than a batch of 512"),
        ((first, second[:50]), 10, 1e-3, "two views of shapes"),
        ((first * np.nan, second), 10, 1e-3, "NaN"),
        ((first, second), 10, float("inf"), r"the loss is .* lower the lr"),
    ):
        with pytest.raises(DataError, match=message):
            contrast(*pair, LayerSettings(batch=batch, lr=lr))
