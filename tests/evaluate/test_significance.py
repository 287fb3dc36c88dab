"""Paired comparisons: exact small cases, the error they promise, the power they have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.evaluate.significance import (
    Seeds,
    arm_scores,
    bootstrap_p,
    paired_spearman_difference,
    spread_error,
    t_difference,
)


def test_spearman_difference_is_of_the_two_correlations():
    random = np.random.default_rng(4)
    gold = random.integers(0, 6, 300)
    before = gold + random.normal(0, 3, 300)
    after = gold + random.normal(0, 1, 300)
    found = paired_spearman_difference(before, after, gold, resamples=2000)
    expected = metrics.spearman(after, gold) - metrics.spearman(before, gold)
    assert found.value == pytest.approx(expected)
    assert 0 < found.low < found.value < found.high
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
    ],
)
def test_unpaired_values_are_refused(before, after, message):
    with pytest.raises(DataError, match=message):
        paired_spearman_difference(before, after, np.arange(len(before)))


def test_constant_columns_are_refused():
    gold = np.arange(40.0)
    with pytest.raises(DataError, match="constant"):
        paired_spearman_difference(np.ones(40), gold, gold, resamples=50)


@st.composite
def arms(draw):
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    sizes, spread = draw(st.tuples(st.integers(2, 7), st.integers(2, 7))), draw(st.floats(0.1, 10))
    return random.normal(70, spread, sizes[0]), random.normal(70.5, 1, sizes[1])


def seed_difference(before, after, level=0.95):
    a, b = arm_scores(before), arm_scores(after)
    error, df = spread_error(Seeds.of(a), Seeds.of(b), level)
    return t_difference(b.mean() - a.mean(), float(error), float(df), level)


@given(arms(), st.floats(0.5, 0.99))
def test_the_wider_of_scipys_two_intervals_is_taken_and_it_mirrors(both, level):
    a, b = both
    found = seed_difference(a, b, level)
    tests = [stats.ttest_ind(b, a, equal_var=equal) for equal in (False, True)]
    bounds = [tuple(test.confidence_interval(level)) for test in tests]
    wider = int(np.ptp(bounds[1]) > np.ptp(bounds[0]) and len(a) != len(b))
    assert (found.low, found.high) == pytest.approx(bounds[wider])
    assert (found.df, found.p) == pytest.approx((tests[wider].df, tests[wider].pvalue))
    back = seed_difference(b, a, level)
    assert (found.low, found.high, found.p) == (-back.high, -back.low, back.p)


def test_a_single_run_borrows_the_other_arms_spread():
    """With three runs of standard deviation 1 the error of one more is sqrt(1 + 1/3)."""
    found = seed_difference([5.0], [1.0, 2.0, 3.0])
    half = 4.302653 * np.sqrt(4 / 3)  # t, 2 degrees of freedom (tables)
    assert (found.low, found.high) == pytest.approx((-3 - half, -3 + half))
    with pytest.raises(DataError, match="no runs"):
        arm_scores([])
    with pytest.raises(DataError, match="NaN"):
        arm_scores([2.0, np.nan])


def test_a_known_error_has_the_normal_distribution():
    found = t_difference(1.0, 0.5, np.inf)
    assert (found.low, found.high) == pytest.approx((1 - 1.959964 / 2, 1 + 1.959964 / 2))
    assert found.p == pytest.approx(0.0455003)  # two standard errors (tables)


def test_values_without_spread_give_a_point():
    assert seed_difference([1, 1], [1, 1]) == (0.0, 0.0, 0.0, 2, 1.0)
    assert seed_difference([1, 1], [3, 3])[:3] == (2.0, 2.0, 2.0)
    assert seed_difference([1, 1], [3, 3]).p == 0


@pytest.mark.parametrize(("na", "nb"), [(2, 2), (2, 5), (3, 3), (5, 5)])
def test_equal_methods_differ_by_their_seeds_as_rarely_as_promised(na, nb):
    random = np.random.default_rng(na * 10 + nb)
    draws = [(random.normal(size=na), random.normal(size=nb)) for _ in range(1000)]
    assert 0.01 < np.mean([seed_difference(a, b).p < 0.05 for a, b in draws]) < 0.055
    if (na, nb) == (2, 5):  # why it is the wider interval
        welch = [stats.ttest_ind(a, b, equal_var=False).pvalue for a, b in draws]
        assert np.mean(np.array(welch) < 0.05) > 0.055
