"""Seeds: exact small cases, and simulations of what is promised."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from contrasent.errors import DataError
from contrasent.evaluate import power
from contrasent.evaluate.significance import Seeds, TwoWay, spread_error


def power_of(effect, *design, **more):
    return power.power_curve(*design, **more)(effect)


def test_the_permutation_p_tries_every_regrouping():
    a, b = [1.0, 2.0, 2.5], [3.0, 2.2, 5.0]
    values = a + b
    hits = total = 0
    for chosen in itertools.combinations(range(6), 3):
        one = [values[i] for i in chosen]
        two = [values[i] for i in range(6) if i not in chosen]
        hits += abs(sum(one) - sum(two)) >= abs(sum(b) - sum(a)) - 1e-9
        total += 1
    assert power.permutation_p(a, b) == pytest.approx(hits / total)
    assert power.permutation_p([1, 2, 3], [7, 8, 9]) == pytest.approx(0.1)


def test_the_sampled_permutation_p_agrees_with_the_exact_one(monkeypatch):
    random = np.random.default_rng(1)
    a, b = random.normal(size=8), random.normal(0.8, 1, size=8)
    exact = power.permutation_p(a, b)
    monkeypatch.setattr(power, "EXACT", 0)
    monkeypatch.setattr(power, "TRIES", 4000)
    assert power.permutation_p(a, b) == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize(
    ("seeds", "items", "shared"),
    [((3, 3), 0, 0), ((2, 5), 0, 0), ((1, 4), 0, 0), ((3, 3), 0.6, 0.4), ((1, 1), 0.5, 0)],
)
def test_the_detectable_effect_is_found_in_four_of_five_simulated_comparisons(seeds, items, shared):
    """20,000 comparisons with the test of ``compare``; scores vary by seeds, items, and both."""
    effect = power.minimum_detectable_effect(1.0, seeds, items=items, shared=shared)
    random = np.random.default_rng(len(seeds))
    number, scale = 20_000, sum(1 / n for n in seeds)
    arms = []
    for n in seeds:
        runs = random.normal(size=(number, n))
        known = (1.0, 1, math.inf) if max(seeds) == 1 else (0.0, 1, 0)
        arms.append(Seeds(*known) if n == 1 else Seeds(runs.var(axis=1, ddof=1), n, n - 1))
    gaps = effect + math.sqrt(items**2 + (1 - shared**2) * scale) * random.normal(size=number)
    error, df = spread_error(*arms)
    half = TwoWay(items, math.inf, error, df, shared * math.sqrt(scale)).half_width()
    assert np.mean(np.abs(gaps) > half) == pytest.approx(0.8, abs=0.012)


@pytest.mark.parametrize(("effect", "seeds"), [(1.0, 5), (1.0, 12), (0.4, 30)])
def test_the_power_is_the_share_of_simulated_tests_that_find_it(effect, seeds):
    random = np.random.default_rng(seeds)
    a = random.normal(0, 0.844, (20_000, seeds))
    b = random.normal(effect, 0.844, (20_000, seeds))
    found = (stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue < 0.05).mean()
    assert power_of(effect, 0.844, seeds) == pytest.approx(found, abs=0.01)


def test_an_uncertain_spread_asks_for_more():
    known = power.minimum_detectable_effect(1.0, 3)
    assert power.minimum_detectable_effect(1.0, 3, freedom=4) > 1.2 * known
    assert power.minimum_detectable_effect(1.0, 3, freedom=10**6) == pytest.approx(known, rel=0.01)
    assert power.seeds_needed(1.0, 1.0, freedom=4) > power.seeds_needed(1.0, 1.0)


def test_more_runs_do_not_help_against_items():
    with pytest.raises(DataError, match="cannot be found"):
        power.seeds_needed(1.0, 0.5, items=0.5)  # 2.8 errors of items would do
    assert power.seeds_needed(1.5, 0.5, items=0.5) > power.seeds_needed(1.5, 0.5)


def test_detectable_effects_and_seeds_needed_invert_the_power():
    effect = power.minimum_detectable_effect(0.844, 6)
    assert power_of(effect, 0.844, 6) == pytest.approx(0.8, abs=1e-6)
    for wanted in (2.0, 1.0, 0.5):
        n = power.seeds_needed(wanted, 0.844)
        assert power_of(wanted, 0.844, n) >= 0.8
        assert n == 2 or power_of(wanted, 0.844, n - 1) < 0.8
    # The normal approximation of the same question says 12 and 45.
    assert 12 <= power.seeds_needed(1.0, 0.844) <= 14
    assert 45 <= power.seeds_needed(0.5, 0.844) <= 47


def test_what_cannot_be_found_or_known_is_said():
    with pytest.raises(DataError, match="cannot be found"):
        power.seeds_needed(0.0, 1.0)
    with pytest.raises(DataError, match="at least 2"):
        power.minimum_detectable_effect(1.0, 1)
    with pytest.raises(DataError, match="finite"):
        power.permutation_p([1.0], [math.nan])
    assert power.pooled_deviation([1.0], [2.0]) is None
    assert power.pooled_deviation([1.0, 3.0], [2.0]) == pytest.approx(math.sqrt(2))
