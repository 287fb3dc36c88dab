"""Influences: derivatives of weighted statistics in plain loops, and the paired bootstrap."""

from functools import partial

import numpy as np
import pytest

import plain_measures
from contrasent import metrics
from contrasent.errors import DataError
from contrasent.evaluate.decisions import Thresholds, v_measures
from contrasent.report import Items, Report, Row
from contrasent.stats.bootstrap import RankedPairs, draw_counts, item_keys
from contrasent.stats.influence import item_error, item_moves, measure, shared_draws

RANDOM = np.random.default_rng(3)
X = np.round(RANDOM.normal(size=40), 1)
Y = np.round(X + RANDOM.normal(size=40))  # with ties in both
RIGHT = (RANDOM.random((2, 40)) < 0.6).astype(float)
POINTS = metrics.normalize(RANDOM.normal(size=(40, 3)))
NEAR = np.array([[np.exp(-2 * ((a - b) ** 2).sum()) for b in POINTS] for a in POINTS])
np.fill_diagonal(NEAR, 0.0)
COLUMNS = {
    "mean": X[None], "uniformity": NEAR.sum(axis=1)[None] / 39, "pearson": np.stack([X, Y]),
    "spearman": np.stack([X, Y]), "f1": RIGHT, "ap": np.stack([X, RIGHT[0]]),
    "f1_best": np.stack([X, RIGHT[0]]),
    "v_measure": np.stack([RANDOM.integers(0, 4, 40), RANDOM.integers(0, 3, 40)]).astype(float),
}  # fmt: skip


def ranks(values, weights):
    return np.array([sum(weights * ((values < x) + 0.5 * (values == x))) for x in values])


def weighted(statistic, columns, weights):
    """The statistic of items that count with weights, from its equation."""
    w = np.asarray(weights) / sum(weights)
    if statistic == "mean":
        return sum(w * columns[0])
    if statistic == "uniformity":
        if len(w) < 40:  # a subset, in which all count alike
            return np.log(sum(w * columns[0]))
        pairs = [(i, j) for i in range(40) for j in range(40) if i != j]
        both = sum(w[i] * w[j] for i, j in pairs)
        return np.log(sum(w[i] * w[j] * NEAR[i, j] for i, j in pairs) / both)
    if statistic == "v_measure":
        return plain_measures.v_measure(*columns, w)
    if statistic == "f1_best":
        return plain_measures.best_f1(*columns, w)
    if statistic == "ap":
        return plain_measures.average_precision(*columns, w)
    if statistic == "f1":
        hits = sum(w * columns[0] * columns[1])
        return 2 * hits / (sum(w * columns[0]) + sum(w * columns[1]))
    a, b = (ranks(c, w) for c in columns) if statistic == "spearman" else columns
    a, b = a - sum(w * a), b - sum(w * b)
    return sum(w * a * b) / np.sqrt(sum(w * a * a) * sum(w * b * b))


def test_every_statistic_has_an_equation_here_and_another_is_an_error():
    assert set(metrics.STATISTICS) == set(COLUMNS)
    with pytest.raises(DataError, match="unknown statistic, 'median'"):
        measure(Items("median", None, np.stack([X, Y])))


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
    before, after = RankedPairs(one, gold), RankedPairs(two, gold)
    counts = draw_counts([n], 2000, 1, keys)
    draws = np.concatenate([after.spearman(c) - before.spearman(c) for c in counts])
    moved = [measure(Items("spearman", keys, np.stack([s, gold])))[1] for s in (one, two)]
    _, place = np.unique(keys, return_inverse=True)
    error = np.sqrt((np.bincount(place, moved[1] - moved[0]) ** 2).sum())
    assert error == pytest.approx(draws.std(), rel=0.08)
    apart = np.sqrt(((moved[1] - moved[0]) ** 2).sum())
    assert error > 1.2 * apart  # equal pairs do not count twice
    # Of draws that were kept of each report, in whatever order its items stood.
    order, number = random.permutation(n), 2000
    arms = (one, np.arange(n)), (two, order)
    kept = [shared_draws(of_items(keys[o], s[o], gold[o]), number) for s, o in arms]
    assert [list(own) for own in kept] == [[KEY, MEAN]] * 2
    for key in (KEY, MEAN):
        assert (kept[1][key] - kept[0][key]).std() == pytest.approx(error, rel=0.05)
    # Resamples that are not shared say something else.
    assert (kept[1][KEY][::-1] - kept[0][KEY]).std() > 1.2 * error


KEY, MEAN = ("A", "test", "spearman", "all"), ("mean", "test", "spearman", "all")


def of_items(keys, scores, gold):
    """A report of one set, and the mean of it and itself."""
    value = measure(items := Items("spearman", keys, np.stack([scores, gold])))[0]
    rows = tuple(Row(*key, value, len(keys)) for key in (KEY, MEAN))
    return Report(rows, {}, {KEY: items, MEAN: (KEY, KEY)})


@pytest.mark.parametrize("statistic", ["ap", "f1_best", "v_measure"])
def test_the_error_of_a_paired_decision_is_the_bootstraps(statistic):
    random, n = np.random.default_rng(6), 800
    if statistic == "v_measure":
        labels, shared = random.integers(0, 4, (2, n))
        wrong = random.random(n)
        arms = [np.where(wrong + 0.1 * random.random(n) < s, shared, labels) for s in (0.3, 0.4)]
        of_arms = [partial(v_measures, labels, arm) for arm in arms]
    else:
        labels, shared = random.integers(0, 2, n), random.normal(size=n)
        arms = [np.round(labels + s * (shared + random.normal(size=n)), 2) for s in (0.5, 0.7)]
        method = {"ap": "average_precision", "f1_best": "best_f1"}[statistic]
        of_arms = [getattr(Thresholds(scores, labels), method) for scores in arms]
    draws = np.concatenate([of_arms[1](c) - of_arms[0](c) for c in draw_counts([n], 2000, 2)])
    moved = [measure(Items(statistic, None, np.stack([s, labels])))[1] for s in arms]
    assert np.sqrt(((moved[1] - moved[0]) ** 2).sum()) == pytest.approx(draws.std(), rel=0.1)


def test_groups_of_one_class_and_labels_of_one_class_move_nothing():
    for columns, value in ((np.zeros((2, 5)), 1.0), (np.array([[0, 1.0, 0, 1], [0] * 4]), 0.0)):
        found, moved = measure(Items("v_measure", None, columns))
        assert (found, moved.tolist()) == (value, [0] * columns.shape[1])


@pytest.mark.parametrize("first", [2, 4])
def test_the_error_over_items_is_that_of_the_mean_difference_of_arms(first):
    moved = np.random.default_rng(8).normal(size=(5, 12))
    arms = moved[:first], moved[first:]
    means = ([sum(column) / len(column) for column in arm.T] for arm in arms)
    gaps = [after - before for before, after in zip(*means, strict=True)]
    error, df, parts = item_error(moved, first)
    assert error**2 == pytest.approx(sum(gap * gap for gap in gaps) * 12 / 11) and df == 11
    for arm, part in zip(arms, parts, strict=True):
        apart = [x - sum(column) / len(arm) for column in arm.T for x in column]
        wanted = sum(x * x for x in apart) / (len(arm) - 1) * 12 / 11 if len(arm) > 1 else 0.0
        assert part == pytest.approx(wanted)
    assert item_error(None, first) == (0.0, np.inf, [0.0, 0.0])


def test_reports_of_other_items_labels_or_documents_are_told_apart():
    row = Row("STSB", "test", "spearman", "", 0.5, 40)
    keys = item_keys([f"text {n}" for n in range(40)])

    def report(**changes):
        given = {"keys": keys, "columns": np.stack([X, Y]), "context": "a"} | changes
        items = Items("spearman", **given)
        value = measure(items)[0]
        rows.append(Row(*row.key, value, 40))
        return Report((rows[-1],), {}, {row.key: items})

    rows = []
    same = [report(), report(keys=keys[::-1], columns=np.stack([X, Y])[:, ::-1])]
    one, two = item_moves(rows, same, ["A", "B"])
    assert one == pytest.approx(two)
    for changes, problem in (
        ({"keys": keys + np.uint64(1)}, r"A and B have different items \(40 and 40 items, 0"),
        ({"columns": np.stack([X, Y[::-1]])}, "same items but different labels"),
        ({"context": "b"}, "same items but different documents, judgments or settings"),
    ):
        rows = []
        with pytest.raises(DataError, match=problem):
            item_moves(rows, [report(), report(**changes)], ["A", "B"])
    rows = []
    both = [report(), report()]
    rows[1] = Row(*row.key, rows[0].value + 2e-6, 40)
    with pytest.raises(DataError, match=r"B: the items of .* belong to another report"):
        item_moves(rows, both, ["A", "B"])
    assert item_moves(rows, [Report((row,)), report()], ["A", "B"]) is None
    with pytest.raises(ValueError, match="zip"):
        item_keys(["a"], ["b", "c"])
