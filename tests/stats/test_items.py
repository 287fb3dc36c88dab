"""Paired tests over items: exact small cases and the error they promise."""

import numpy as np
import pytest

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.stats.items import bootstrap_p, paired_spearman_difference


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


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (np.zeros(30), np.zeros(29), r"shapes \(30,\) and \(29,\)"),
        (np.zeros(5), np.ones(5), "5 items are too few"),
        (np.zeros(30), np.full(30, np.nan), "NaN"),
        (np.ones(30), np.arange(30.0), "constant"),
    ],
)
def test_values_that_cannot_be_paired_are_errors(before, after, message):
    with pytest.raises(DataError, match=message):
        paired_spearman_difference(before, after, np.arange(len(before)), resamples=50)
