"""Thresholds: against loops, and their guarantees by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent.errors import DataError, OptionError
from contrasent.evaluate.threshold import (
    certified,
    conformal_bound,
    from_pairs,
    from_random,
    lowest_with_precision,
    shift_by_precision,
    shift_by_share,
)


def draw(random, n):
    """Scores in [0, 1]; a pair with score s is the same with the chance s squared."""
    scores = random.uniform(size=n)
    return scores, random.uniform(size=n) < scores**2


def true_precision(t):
    """Mean of s squared for s from t to 1: (1 - t^3) / (3 (1 - t))."""
    return (1 - t**3) / (3 * (1 - t))


@given(st.lists(st.integers(0, 5), min_size=2, max_size=20), st.data())
def test_lowest_with_precision_by_a_loop(values, data):
    same = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    precision = data.draw(st.sampled_from([0.5, 0.75, 1.0]))
    weight = data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values)))
    expected = None
    for t in sorted(set(values), reverse=True):
        chosen = [(w, y) for v, y, w in zip(values, same, weight, strict=True) if v >= t]
        total = sum(w for w, _ in chosen)
        if total and sum(w * y for w, y in chosen) >= precision * total:
            expected = t
    arrays = np.array(values, float), np.array(same)
    assert lowest_with_precision(*arrays, precision, weight) == expected
    ones = [1] * len(values)
    assert lowest_with_precision(*arrays, precision) == lowest_with_precision(
        *arrays, precision, ones
    )


def test_the_guarantee_of_precision_holds():
    """In at least 95 of 100 draws the precision above the threshold is what was wanted."""
    random, found = np.random.default_rng(0), []
    for _ in range(120):
        value = certified(*draw(random, 2000), 0.7)
        if value is not None:
            found.append(true_precision(value))
    assert len(found) >= 115  # it is no empty promise
    assert np.mean(np.array(found) < 0.7) <= 0.05
    assert np.mean(found) < 0.8  # nor an idle one


def test_an_estimate_alone_would_not_hold():
    random = np.random.default_rng(0)
    below = [true_precision(lowest_with_precision(*draw(random, 300), 0.7)) for _ in range(200)]
    assert np.mean(np.array(below) < 0.7) > 0.2


def test_from_pairs():
    random = np.random.default_rng(1)
    scores, same = draw(random, 3000)
    found = from_pairs(scores, same, precision=0.7)
    t = next(x for x in np.linspace(0, 0.99, 1000) if true_precision(x) >= 0.7)
    assert found.guaranteed and found.basis == "pairs" and found.pairs == 3000
    assert found.low < t < found.high
    assert t - 0.02 < found.value < t + 0.15
    assert found.found == pytest.approx(np.mean([s >= found.value for s in scores[same]]))
    few = from_pairs(scores[:30], same[:30], precision=0.7)
    assert not few.guaranteed and few.value == lowest_with_precision(scores[:30], same[:30], 0.7)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.sampled_from([0.5, 0.1, 0.04]))
def test_conformal_bound_by_a_loop(scores, alpha):
    value = conformal_bound(scores, alpha)
    k = math.ceil(round((len(scores) + 1) * (1 - alpha), 6))
    assert value == (sorted(scores)[k - 1] if k <= len(scores) else math.inf)


@pytest.mark.parametrize("law", ["normal", "exponential"])
def test_coverage_of_the_conformal_bound(law):
    """The chance that the next score is above is at most alpha, and not much less."""
    random = np.random.default_rng(5)
    draws = getattr(random, law)(size=(20_000, 40))
    above = np.mean([row[-1] > conformal_bound(row[:-1], 0.1) for row in draws])
    assert 0.09 < above < 0.1 + 3 * math.sqrt(0.1 * 0.9 / 20_000)


def test_from_random():
    random = np.random.default_rng(2)
    inside = 0
    for _ in range(200):
        found = from_random(random.uniform(size=2000), [0.2, 0.999, 1.0], alpha=0.01)
        inside += found.low <= 0.99 <= found.high
    assert inside >= 182  # 95 % of 200 less three standard errors
    assert found.basis == "random" and found.guaranteed and found.wanted == 0.01
    assert found.found == pytest.approx(2 / 3)


# ---------------------------------------------------------------- carried over to another model


@given(st.integers(0, 2**32 - 1))
def test_a_monotone_change_of_scores_moves_the_threshold_with_it(seed):
    random = np.random.default_rng(seed)
    old = random.uniform(size=(30, 10))
    threshold = float(np.quantile(old, 0.8))
    shift = shift_by_share(threshold, old, 3 * old - 1, resamples=50)
    reached = old[old >= threshold]
    assert shift.new == pytest.approx(3 * reached.min() - 1)
    assert shift.at == pytest.approx(len(reached) / old.size)
    assert shift.low <= shift.new + 1e-9 and shift.high >= shift.new - 1e-9


def test_shift_by_precision():
    random = np.random.default_rng(3)
    scores, same = draw(random, 800)
    shift = shift_by_precision(0.6, scores, scores / 2 + 0.1, same, resamples=200)
    wanted = same[scores >= 0.6].mean()
    assert shift.at == pytest.approx(wanted) and shift.kept == "precision"
    # The lowest threshold with that precision is at or below the one that was carried over.
    assert shift.new <= 0.6 / 2 + 0.1 + 0.01
    assert same[scores / 2 + 0.1 >= shift.new].mean() >= wanted
    assert shift.low <= shift.new <= shift.high
    none = shift_by_share(2.0, scores[:, None], scores[:, None])
    assert (none.new, none.at) == (None, 0.0)


def test_bad_input():
    scores, same = draw(np.random.default_rng(0), 100)
    with pytest.raises(OptionError, match="must lie between"):
        from_pairs(scores, same, precision=1.0)
    with pytest.raises(DataError, match="10 pairs are too few"):
        from_pairs(scores[:10], same[:10])
    with pytest.raises(DataError, match="all 100 pairs are different"):
        from_pairs(scores, np.zeros(100, bool))
    with pytest.raises(DataError, match="at no score are"):
        from_pairs(scores, scores < 0.5, precision=0.9)
    with pytest.raises(OptionError, match="needs at least 999 random pairs; there are 100"):
        from_random(scores, scores)
    with pytest.raises(DataError, match="no pair reaches the threshold 3"):
        shift_by_precision(3, scores, scores, same)
