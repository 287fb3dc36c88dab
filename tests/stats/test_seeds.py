"""Tests over seeds: exact small cases, and simulations of the errors and the power promised."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from contrasent.errors import DataError
from contrasent.stats import seeds
from contrasent.stats.seeds import EffectEstimate, TwoWay, paired_t, unpaired_t

RUNS = st.lists(st.floats(-5, 5), min_size=2, max_size=8).filter(lambda x: np.std(x) > 1e-3)


@given(RUNS, st.floats(0.1, 3))
def test_the_paired_test_and_the_two_one_sided_ones_are_scipys(differences, margin):
    found = paired_t(differences)
    theirs = stats.ttest_1samp(differences, 0.0)
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval()))
    assert (found.df, found.p) == pytest.approx((theirs.df, theirs.pvalue))
    assert seeds.p_value(found, 0.3) == pytest.approx(stats.ttest_1samp(differences, 0.3).pvalue)
    sides = [
        stats.ttest_1samp(differences, at, alternative=way).pvalue
        for at, way in ((-margin, "greater"), (margin, "less"))
    ]
    assert seeds.tost(found, margin) == pytest.approx(max(sides))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_by_its_definition(values):
    found = seeds.holm(values)
    ordered = sorted(range(len(values)), key=lambda at: values[at])
    for place, at in enumerate(ordered):
        steps = [(len(values) - i) * values[j] for i, j in enumerate(ordered[: place + 1])]
        assert found[at] == pytest.approx(min(1.0, max(steps)))


@st.composite
def arms(draw):
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    sizes, spread = draw(st.tuples(st.integers(2, 7), st.integers(2, 7))), draw(st.floats(0.1, 10))
    return random.normal(70, spread, sizes[0]), random.normal(70.5, 1, sizes[1])


@given(arms())
def test_the_wider_of_scipys_two_intervals_is_taken_and_it_mirrors(both):
    a, b = both
    found = unpaired_t(a, b)
    tests = [stats.ttest_ind(b, a, equal_var=equal) for equal in (False, True)]
    bounds = [tuple(test.confidence_interval()) for test in tests]
    wider = int(np.ptp(bounds[1]) > np.ptp(bounds[0]) and len(a) != len(b))
    assert (found.low, found.high) == pytest.approx(bounds[wider])
    assert (found.df, found.p) == pytest.approx((tests[wider].df, tests[wider].pvalue))
    back = unpaired_t(b, a)
    assert (found.low, found.high, found.p) == (-back.high, -back.low, back.p)


@pytest.mark.parametrize(("test", "values", "message"), [
    (paired_t, ([1.0],), "at least 2"), (unpaired_t, ([1.0, 2.0], []), "no runs"),
    (unpaired_t, ([1.0, np.nan], [1.0]), "NaN"),
])  # fmt: skip
def test_too_few_runs_and_undefined_scores_are_errors(test, values, message):
    with pytest.raises(DataError, match=message):
        test(*values)


def test_a_known_error_is_normal_and_values_without_spread_give_a_point():
    found = EffectEstimate.from_error(1.0, 0.5)
    assert (found.low, found.high) == pytest.approx((1 - 1.959964 / 2, 1 + 1.959964 / 2))
    assert found.p == pytest.approx(0.0455003)  # two standard errors (tables)
    assert unpaired_t([1, 1], [1, 1]) == EffectEstimate(0.0, 0.0, 0.0, 0.0, 2, 1.0)
    assert paired_t([2, 2]) == EffectEstimate(2.0, 2.0, 2.0, 0.0, 1, 0.0)
    assert (seeds.tost(paired_t([2, 2]), 2.5), seeds.tost(paired_t([2, 2]), 2.0)) == (0.0, 1.0)
    assert seeds.pooled_deviation([1.0], [2.0]) is None
    assert seeds.pooled_deviation([1.0, 3.0], [2.0]) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("made", [
    TwoWay(0.0, math.inf, 0.3, 4), TwoWay(0.3, 4, 0.0, math.inf), TwoWay(0.2, 9, 0.3, 2),
], ids=["seeds alone", "items alone", "both"])  # fmt: skip
def test_the_interval_of_level_one_minus_p_touches_zero(made):
    for difference in (0.0, 0.1, -0.5, 1.5):
        p = made.p(difference)
        if not (made.items and made.seeds):  # Student's t of the one source that there is
            error, df = (made.seeds, made.seeds_df) if made.seeds else (made.items, made.items_df)
            assert p == pytest.approx(2 * stats.t.sf(abs(difference) / error, df), rel=1e-9)
        assert made.half_width(1 - p) == pytest.approx(abs(difference), rel=1e-6, abs=1e-9)


def test_a_small_p_of_two_sources_keeps_its_digits():
    made = TwoWay(0.02, 50, 0.03, 60)
    for p in (1e-3, 1e-6, 1e-10):
        assert made.p(made.half_width(1 - p)) == pytest.approx(p, rel=1e-3)


@pytest.mark.parametrize("df", [1, 2.5, 30, math.inf])
def test_the_quantile_of_students_t_is_scipys(df):
    law = stats.norm if math.isinf(df) else stats.t(df)
    assert seeds.t_quantile(0.5, df) == 0.0
    assert [seeds.t_quantile(share, df) for share in (0.0, 1.0)] == [-math.inf, math.inf]
    for share in (1e-9, 0.025, 0.4, 0.6, 0.995):
        assert seeds.t_quantile(share, df) == pytest.approx(law.ppf(share), rel=1e-9)
