"""V-measure against its definition and scikit-learn; groups that are there are found."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent.evaluate.compare import compare_reports
from contrasent.evaluate.decisions import clustering, kmeans, v_measure, v_measures
from contrasent.stats.bootstrap import draw_counts
from contrasent.text.labelled import Labelled


def loop_entropy(values):
    return -sum(c / len(values) * math.log(c / len(values)) for c in Counter(values).values())


def loop_conditional(values, given_these):
    """H(values | given_these): the mean over groups of the entropy inside each."""
    total = 0.0
    for group in set(given_these):
        inside = [v for v, g in zip(values, given_these, strict=True) if g == group]
        total += len(inside) / len(values) * loop_entropy(inside)
    return total


def loop_v_measure(classes, groups):
    hc, hk = loop_entropy(classes), loop_entropy(groups)
    h = 1 - loop_conditional(classes, groups) / hc if hc else 1.0
    c = 1 - loop_conditional(groups, classes) / hk if hk else 1.0
    return 2 * h * c / (h + c) if h + c > 1e-9 else 0.0


@given(st.integers(1, 30), st.integers(0, 9999))
def test_v_measure_is_the_definition(n, seed):
    random = np.random.default_rng(seed)
    classes, groups = random.integers(0, 3, n).tolist(), random.integers(0, 4, n).tolist()
    assert v_measure(classes, groups) == pytest.approx(loop_v_measure(classes, groups), abs=1e-5)
    counts = np.concatenate(list(draw_counts([n], 3, seed)))
    for row, found in zip(counts, v_measures(classes, groups, counts), strict=True):
        items = [i for i in range(n) for _ in range(int(row[i]))]
        expected = loop_v_measure([classes[i] for i in items], [groups[i] for i in items])
        assert found == pytest.approx(expected, abs=1e-5)


def test_v_measure_is_scikit_learns():
    learn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(1)
    classes = random.integers(0, 6, 400)
    groups = np.where(random.random(400) < 0.6, classes, random.integers(0, 6, 400))
    assert v_measure(classes, groups) == pytest.approx(learn.v_measure_score(classes, groups))


def planted(count, seed=0, noise=0.05):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    vectors = np.eye(3, 5)[labels] + noise * random.normal(size=(count, 5))
    return labels, (vectors * random.uniform(1, 9, (count, 1))).astype(np.float32)


def test_k_means_finds_groups_by_direction():
    """Three directions of any length; one start may go wrong, the best of five does not."""
    labels, vectors = planted(300)
    scores = [v_measure(labels, kmeans(vectors, 3, (0, i))) for i in range(5)]
    assert max(scores) == pytest.approx(1.0)
    assert np.array_equal(kmeans(vectors, 3, 4), kmeans(vectors, 3, 4))
    assert set(kmeans(np.ones((6, 2), dtype=np.float32), 3, 0).tolist()) <= {0, 1, 2}


def test_the_row_is_the_mean_over_starts(items_give_the_values):
    labels, vectors = planted(120, noise=0.4)
    texts = tuple(f"text {i}" for i in range(120))

    def encode(sentences):
        return vectors[[int(s.split()[1]) for s in sentences]]

    data = {"here": Labelled(texts, None, labels)}
    report = clustering(encode, data, starts=3)
    assert items_give_the_values(report) == 1
    row = report.one(metric="v_measure")
    found = [kmeans(vectors, 3, (0, start)).tolist() for start in range(3)]
    expected = np.mean([loop_v_measure(labels.tolist(), groups) for groups in found])
    assert row.value == pytest.approx(expected, abs=1e-5)
    assert row.low < row.value < row.high
    assert row.count == 120


def test_reports_are_compared_over_texts_whatever_the_starts():
    data = {"here": Labelled(tuple(f"text {i}" for i in range(600)), None, planted(600)[0])}
    arms = []
    for noise in (0.4, 0.5):
        vectors = planted(600, noise=noise)[1]
        arms.append(lambda texts, v=vectors: v[[int(s.split()[1]) for s in texts]])
    reports = [clustering(encode, data, starts=3, resamples=0) for encode in arms]
    (found,) = compare_reports([reports[0]], [reports[1]], seed_sd=0)
    (back,) = compare_reports([reports[1]], [reports[0]], seed_sd=0)
    assert (found.low, found.high, found.p) == (-back.high, -back.low, back.p)
    labels, texts = data["here"].labels, data["here"].first
    grouped = [[kmeans(encode(texts), 3, (0, i)) for i in range(3)] for encode in arms]

    def scores(groups, counts):
        return np.mean([v_measures(labels, g, counts) for g in groups], axis=0)

    draws = [scores(grouped[1], c) - scores(grouped[0], c) for c in draw_counts([600], 2000, 1)]
    half = 1.9639 * np.concatenate(draws).std()  # t, 599 degrees of freedom (tables)
    assert found.high - found.difference == pytest.approx(half, rel=0.1)
