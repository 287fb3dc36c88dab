"""Seeds: exact small cases, and simulations of what is promised."""

import itertools
import math

import numpy as np
import pytest

from contrasent.errors import DataError
from contrasent.evaluate import power


def test_the_seed_error_is_welchs():
    a, b = [1.0, 2.0, 4.0], [3.0, 3.5, 5.0, 9.0]
    va, vb = np.var(a, ddof=1) / 3, np.var(b, ddof=1) / 4
    error, freedom = power.seed_error(a, b)
    assert error == pytest.approx(math.sqrt(va + vb))
    assert freedom == pytest.approx((va + vb) ** 2 / (va**2 / 2 + vb**2 / 3))
    assert power.seed_error([1.0], [2.0]) == (0.0, math.inf)


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
    assert power.permutation_p(a, b, tries=4000) == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize(("effect", "seeds"), [(1.0, 5), (1.0, 12), (0.4, 30)])
def test_the_power_is_the_share_of_simulated_tests_that_find_it(effect, seeds):
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(seeds)
    a = random.normal(0, 0.844, (4000, seeds))
    b = random.normal(effect, 0.844, (4000, seeds))
    found = (stats.ttest_ind(a, b, axis=1).pvalue < 0.05).mean()
    assert power.power(effect, 0.844, seeds) == pytest.approx(found, abs=0.025)


def test_detectable_effects_and_seeds_needed_invert_the_power():
    effect = power.minimum_detectable_effect(0.844, 6)
    assert power.power(effect, 0.844, 6) == pytest.approx(0.8, abs=1e-6)
    for wanted in (2.0, 1.0, 0.5):
        n = power.seeds_needed(wanted, 0.844)
        assert power.power(wanted, 0.844, n) >= 0.8
        assert n == 2 or power.power(wanted, 0.844, n - 1) < 0.8
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
