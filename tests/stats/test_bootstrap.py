"""Correlations of resamples against the same correlations of the resample written out."""

import numpy as np
import pytest
from benchmarks.coverage import MEAN, Design, coverage
from hypothesis import given
from hypothesis import strategies as st

from contrasent import metrics
from contrasent.stats import bootstrap
from contrasent.stats.bootstrap import MIN_ITEMS, RankedPairs, draw_counts, interval, mean_interval


@given(st.integers(4, 40), st.integers(0, 999), st.booleans())
def test_a_resamples_correlations_are_those_of_its_items(n, seed, ties):
    random = np.random.default_rng(seed)
    x = random.integers(0, 4, n).astype(float) if ties else random.normal(size=n)
    y = random.integers(0, 5, n) / 2 + 0.3 * x
    counts = np.concatenate(list(draw_counts([n], 5, seed)))
    found = RankedPairs(x, y).spearman(counts)
    moments = bootstrap.weighted_pearson(x, y, counts)
    for row, rank_value, value in zip(counts, found, moments, strict=True):
        items = [i for i in range(n) for _ in range(int(row[i]))]
        expected = metrics.spearman(x[items], y[items])
        assert rank_value == pytest.approx(expected, abs=1e-4, nan_ok=True)
        expected = metrics.pearson(x[items], y[items])
        # Items that hardly differ beside the others lose their digits in float32.
        if all(part[items].std() > 0.01 * part.std() for part in (x, y)):
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


def test_keyed_counts_are_poisson_inside_each_stratum_and_belong_to_the_item():
    texts = [f"item {i}" for i in range(200)]
    keys = bootstrap.item_keys(texts)
    assert len(set(keys.tolist())) == 200
    counts = np.concatenate(list(draw_counts([150, 50], 20_001, 7, keys)))
    assert counts.shape == (20_001, 200)
    assert counts[:, :150].sum(axis=1) == pytest.approx(150, rel=1e-5)
    assert counts[:, 150:].sum(axis=1) == pytest.approx(50, rel=1e-5)
    # Poisson(1) divided by the mean of m of them: variance 1 - 1/m, covariance -1/m, to order 1/m.
    error = 5 / np.sqrt(len(counts))
    assert counts.mean(axis=0) == pytest.approx(1, abs=error)
    assert counts[:, 3].var() == pytest.approx(1 - 1 / 150, abs=2 * error)
    assert np.corrcoef(counts[:, 160], counts[:, 161])[0, 1] == pytest.approx(-1 / 49, abs=error)
    assert np.corrcoef(counts[:-1, 0], counts[1:, 0])[0, 1] == pytest.approx(0, abs=error)
    # Unscaled, in another order and in blocks of another size: the same counts.
    one = np.concatenate(list(draw_counts([200], 50, 7, keys)))
    other = np.concatenate(list(draw_counts([200], 50, 7, keys[::-1])))[:, ::-1]
    assert one == pytest.approx(other, rel=1e-6)
    assert not np.allclose(one, np.concatenate(list(draw_counts([200], 50, 8, keys))))


def test_equal_keys_of_a_pair_in_either_order_and_equal_draws_of_a_seed():
    keys = bootstrap.item_keys(["a b", "c", "a", "c"], ["c", "ab ", "b c", "\ud800"])
    assert (keys[0], len(set(keys.tolist()))) == (keys[1], 3)
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


def test_intervals_of_a_mean_over_sets_that_share_items_cover_the_truth():
    """Small sets, half of whose items are shared; benchmarks/coverage.py takes the real ones.

    Resampled each for itself, the mean's interval is too narrow: the covariance is not seen.
    """
    places = np.arange(240)
    items = {"a": places[:160], "b": places[80:240], "c": places[np.r_[0:80, 160:240]]}
    sizes = {"a": [80, 80], "b": [160], "c": [160]}
    design = Design(items, sizes, places // 80)
    options = {"trials": 200, "resamples": 150}
    held = {own: coverage(design, **options, together=own)[MEAN] for own in (True, False)}
    # 0.95 give or take twice its own error over 200 trials (0.0154); the covariances of three such
    # sets double the variance of their mean, and 1.96 / sqrt(2) deviations hold 0.834.
    assert 0.919 <= held[True] <= 0.981
    assert held[False] < 0.9


def test_intervals_of_few_draws_hold_their_share_and_few_items_have_none():
    """Of 39 draws the first and the last: between them lie 38 of 40 parts of what is drawn from."""
    draws = np.random.default_rng(1).permutation(np.arange(39.0))
    assert interval(draws) == (0.0, 38.0)
    assert interval([*draws, np.nan]) == (0.0, 38.0)
    assert mean_interval(np.arange(MIN_ITEMS - 1.0)) == (None, None)
    assert mean_interval(np.arange(MIN_ITEMS * 1.0), 0) == (None, None)
    assert mean_interval(np.arange(MIN_ITEMS * 1.0))[0] is not None
