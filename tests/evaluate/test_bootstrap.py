"""Correlations of resamples against the same correlations of the resample written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent import metrics
from contrasent.evaluate.bootstrap import (
    FEWEST,
    RankedPairs,
    draw_counts,
    interval,
    mean_interval,
    weighted_pearson,
)


@given(st.integers(4, 40), st.integers(0, 999), st.booleans())
def test_a_resamples_correlations_are_those_of_its_items(n, seed, ties):
    random = np.random.default_rng(seed)
    x = random.integers(0, 4, n).astype(float) if ties else random.normal(size=n)
    y = random.integers(0, 5, n) / 2 + 0.3 * x
    counts = np.concatenate(list(draw_counts([n], 5, seed)))
    found = RankedPairs(x, y).spearman(counts)
    moments = weighted_pearson(x, y, counts)
    for row, rank_value, value in zip(counts, found, moments, strict=True):
        items = [i for i in range(n) for _ in range(int(row[i]))]
        assert rank_value == pytest.approx(
            metrics.spearman(x[items], y[items]), abs=1e-4, nan_ok=True
        )
        expected = metrics.pearson(x[items], y[items])
        if not np.isnan(expected):
            assert value == pytest.approx(expected, abs=1e-3)


def test_counts_are_multinomial_inside_each_stratum():
    blocks = list(draw_counts([30, 5], 40_000, 7))
    counts = np.concatenate(blocks)
    assert len(blocks) > 1
    assert counts.shape == (40_000, 35)
    assert (counts[:, :30].sum(axis=1) == 30).all()
    assert (counts[:, 30:].sum(axis=1) == 5).all()
    # Of a multinomial with p = 1/n: mean 1, variance 1 - 1/n, covariance -1/n.
    error = 5 / np.sqrt(len(counts))
    assert counts.mean(axis=0) == pytest.approx(1, abs=error)
    assert counts[:, 32].var() == pytest.approx(1 - 1 / 5, abs=2 * error)
    assert np.cov(counts[:, 30], counts[:, 31])[0, 1] == pytest.approx(-1 / 5, abs=2 * error)
    assert not np.array_equal(counts[0], counts[1])


def test_the_same_seed_draws_the_same_and_another_does_not():
    first = np.concatenate(list(draw_counts([50], 10, 3)))
    assert np.array_equal(first, np.concatenate(list(draw_counts([50], 10, 3))))
    assert not np.array_equal(first, np.concatenate(list(draw_counts([50], 10, (3, 1)))))


def test_the_interval_of_a_mean_has_the_width_of_the_theory():
    values = np.random.default_rng(0).normal(2.0, 3.0, size=2000)
    low, high = mean_interval(values, 4000, 1)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Correlation 0.6 planted in normal pairs; Spearman's is (6/pi) asin(0.3)."""
    truth = 6 / np.pi * np.arcsin(0.3)
    random = np.random.default_rng(5)
    inside = 0
    for trial in range(300):
        x = random.normal(size=150)
        y = 0.6 * x + 0.8 * random.normal(size=150)
        ranked = RankedPairs(x, y)
        draws = np.concatenate([ranked.spearman(c) for c in draw_counts([150], 400, trial)])
        low, high = interval(draws)
        inside += low <= truth <= high
    assert 0.90 <= inside / 300 <= 0.985  # 0.95, give or take its own error over 300 trials


def test_too_few_items_have_no_interval():
    assert mean_interval(np.arange(FEWEST - 1.0)) == (None, None)
    assert mean_interval(np.arange(FEWEST * 1.0), 0) == (None, None)
    assert mean_interval(np.arange(FEWEST * 1.0))[0] is not None
