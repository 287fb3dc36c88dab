"""Paired tests over items: exact small cases and the error they promise."""

import numpy as np
import pytest
from benchmarks.clusters import columns, world
from scipy import stats

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.stats.bootstrap import bootstrap_p, clustered_mean, paired_spearman_difference


def test_spearman_difference_is_of_the_two_correlations():
    random = np.random.default_rng(4)
    gold = random.integers(0, 6, 300)
    before = gold + random.normal(0, 3, 300)
    after = gold + random.normal(0, 1, 300)
    found = paired_spearman_difference(before, after, gold, resamples=2000)
    expected = metrics.spearman(after, gold) - metrics.spearman(before, gold)
    assert found.mean == pytest.approx(expected)
    assert 0 < found.low < found.mean < found.high
    assert found.p < 0.01


def test_equal_systems_are_found_different_as_rarely_as_promised():
    """A/A: both systems are the same truth plus noise of the same size."""
    random = np.random.default_rng(6)
    found = 0
    trials = 400
    for trial in range(trials):
        truth = random.normal(size=120)
        a, b = truth + random.normal(size=(2, 120))
        found += paired_spearman_difference(a, b, truth, resamples=400, seed=trial).p < 0.05
    # A test that never finds anything would pass the upper bound as well.
    assert 0 < found / trials <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / trials)


def test_the_p_of_draws_counts_the_other_side():
    assert bootstrap_p([1.0] * 99) == pytest.approx(2 / 100)
    assert bootstrap_p([1.0, -1.0] * 50) == 1.0


@pytest.mark.parametrize(("before", "after", "message"), [
    (np.zeros(30), np.zeros(29), r"shapes \(30,\) and \(29,\)"),
    (np.zeros(5), np.ones(5), "5 items are too few"), (np.zeros(30), np.full(30, np.nan), "NaN"),
    (np.ones(30), np.arange(30.0), "constant"),
])  # fmt: skip
def test_values_that_cannot_be_paired_are_errors(before, after, message):
    with pytest.raises(DataError, match=message):
        paired_spearman_difference(before, after, np.arange(len(before)), resamples=50)


def test_clusters_of_one_size_have_at_least_students_interval():
    values = np.random.default_rng(1).normal(0.3, 1, 30)
    found = clustered_mean(values[:, None], np.ones((30, 1)))
    test = stats.ttest_1samp(values, 0.0)
    low, high = test.confidence_interval()
    assert found.mean == pytest.approx(values.mean())
    assert (found.error, found.df) == pytest.approx((stats.sem(values), 29))
    assert low - 0.2 < found.low <= low + 1e-12 and high - 1e-12 <= found.high < high + 0.2
    assert found.p >= test.pvalue - 1e-12
    assert (found.p > 0.05) == (found.low <= 0 <= found.high)


def test_a_mean_over_kinds_is_jackknifed_over_clusters():
    """Two kinds, of which some clusters have one alone; against a loop that leaves each out."""
    random = np.random.default_rng(2)
    counts = random.integers(0, 4, (25, 2)).astype(float)
    counts[:, 0] += 1
    sums = counts * random.normal(size=(25, 1)) + counts * random.normal(size=(25, 2))
    found = clustered_mean(sums, counts)
    left = []
    for out in range(25):
        rest = [at for at in range(25) if at != out]
        left.append(np.mean([sums[rest, k].sum() / counts[rest, k].sum() for k in (0, 1)]))
    expected = np.mean([sums[:, k].sum() / counts[:, k].sum() for k in (0, 1)])
    assert found.mean == pytest.approx(expected)
    assert found.error == pytest.approx(np.sqrt(24 / 25 * ((np.array(left) - expected) ** 2).sum()))
    assert found.df < 24
    assert clustered_mean(np.full((25, 1), 0.1), np.ones((25, 1))).low == pytest.approx(0.1)


@pytest.mark.parametrize("law", ["normal", "jumps"])
def test_gains_that_documents_share_are_found_by_chance_as_rarely_as_promised(law):
    """One side of 95 %: 2.5 % and 2.6 standard errors; the percentile bootstrap has 4.0."""
    random, found, number = np.random.default_rng(5), 0, 600
    for trial in range(number):
        sums, counts = columns(*world(random, 25, law, "unequal"))
        found += clustered_mean(sums, counts, resamples=200, seed=trial).low > 0
    assert 0 < found / number <= 0.025 + 2.6 * np.sqrt(0.025 * 0.975 / number)
