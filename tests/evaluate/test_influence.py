"""Influences: derivatives of weighted statistics in plain loops, and the paired bootstrap."""

import numpy as np
import pytest

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.evaluate.bootstrap import RankedPairs, draw_counts, item_keys
from contrasent.evaluate.influence import STATISTICS, measure
from contrasent.report import Items

RANDOM = np.random.default_rng(3)
X = np.round(RANDOM.normal(size=40), 1)
Y = np.round(X + RANDOM.normal(size=40))  # with ties in both
RIGHT = (RANDOM.random((2, 40)) < 0.6).astype(float)
COLUMNS = {
    "mean": X[None],
    "pearson": np.stack([X, Y]),
    "spearman": np.stack([X, Y]),
    "f1": RIGHT,
}


def ranks(values, weights):
    return np.array(
        [
            sum(w * ((v < mine) + 0.5 * (v == mine)) for v, w in zip(values, weights, strict=True))
            for mine in values
        ]
    )


def weighted(statistic, columns, weights):
    """The statistic of items that count with weights, from its equation."""
    w = np.asarray(weights) / sum(weights)
    if statistic == "mean":
        return sum(w * columns[0])
    if statistic == "f1":
        hits = sum(w * columns[0] * columns[1])
        return 2 * hits / (sum(w * columns[0]) + sum(w * columns[1]))
    a, b = (ranks(c, w) for c in columns) if statistic == "spearman" else columns
    a, b = a - sum(w * a), b - sum(w * b)
    return sum(w * a * b) / np.sqrt(sum(w * a * a) * sum(w * b * b))


def test_every_statistic_has_an_equation_here():
    assert set(STATISTICS) == set(COLUMNS)


@pytest.mark.parametrize("statistic", COLUMNS)
def test_influence_is_the_derivative_by_an_items_weight(statistic):
    columns = COLUMNS[statistic]
    n = columns.shape[1]
    value, moved = measure(Items(statistic, np.arange(n, dtype=np.uint64), columns))
    assert value == pytest.approx(weighted(statistic, columns, np.ones(n)))
    step = 1e-6
    for i in range(0, n, 3):
        weights = np.full(n, 1 / n) * (1 - step)
        weights[i] += step
        slope = (weighted(statistic, columns, weights) - value) / step
        assert moved[i] == pytest.approx(slope / n, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("statistic", COLUMNS)
@pytest.mark.parametrize("aggregate", ["all", "mean", "wmean"])
def test_subsets_are_joined_or_averaged_and_are_strata(statistic, aggregate):
    columns, sizes = COLUMNS[statistic], (10, 25, 5)
    parts = np.split(columns, [10, 35], axis=1)
    values = [weighted(statistic, part, np.ones(part.shape[1])) for part in parts]
    want = {
        "all": weighted(statistic, columns, np.ones(40)),
        "mean": np.mean(values),
        "wmean": sum(v * n for v, n in zip(values, sizes, strict=True)) / 40,
    }
    items = Items(statistic, np.arange(40, dtype=np.uint64), columns, sizes, aggregate)
    value, moved = measure(items)
    assert value == pytest.approx(want[aggregate])
    for part in np.split(moved, [10, 35]):
        assert part.sum() == pytest.approx(0, abs=1e-12)


def test_the_error_of_a_difference_is_that_of_the_paired_bootstrap_of_distinct_pairs():
    random = np.random.default_rng(5)
    n = 500
    again = np.arange(n) % 300  # two hundred pairs stand there twice
    keys = item_keys([str(i) for i in again], ["x"] * n)
    gold = (random.integers(0, 11, n) / 2)[again]
    shared = random.normal(size=n)[again]
    one, two = (gold + s * (shared + random.normal(size=n)[again]) for s in (1.0, 1.4))
    draws = np.concatenate(
        [
            RankedPairs(two, gold).spearman(c) - RankedPairs(one, gold).spearman(c)
            for c in draw_counts([n], 2000, 1, keys)
        ]
    )
    moved = [measure(Items("spearman", keys, np.stack([s, gold])))[1] for s in (one, two)]
    _, place = np.unique(keys, return_inverse=True)
    error = np.sqrt((np.bincount(place, moved[1] - moved[0]) ** 2).sum())
    assert error == pytest.approx(draws.std(), rel=0.08)
    apart = np.sqrt(((moved[1] - moved[0]) ** 2).sum())
    assert error > 1.2 * apart  # equal pairs do not count twice


def test_values_are_the_metrics_own():
    pair = np.stack([X, Y])
    assert measure(Items("spearman", None, pair))[0] == pytest.approx(metrics.spearman(X, Y))
    assert measure(Items("pearson", None, pair))[0] == pytest.approx(metrics.pearson(X, Y))
    with pytest.raises(DataError, match="unknown statistic, 'median'"):
        measure(Items("median", None, pair))
