"""Each metric against plain loops written from its definition, and its invariances."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from contrasent import metrics


def arrays(shape, *elements):
    return st.tuples(*(hnp.arrays(np.float64, shape, elements=each) for each in elements))


ratings, values = st.integers(-5, 5), st.floats(-100, 100, width=16)
columns = st.integers(2, 30).flatmap(lambda n: arrays(n, ratings, values))
entries = st.floats(-3, 3, width=16)
shapes = st.tuples(st.integers(2, 9), st.integers(1, 6))
matrices = shapes.flatmap(lambda shape: arrays(shape, entries, entries))


def loop_cosine(u, v):
    product = sum(a * b for a, b in zip(u, v, strict=True))
    size = math.sqrt(sum(a * a for a in u)) * math.sqrt(sum(b * b for b in v))
    return product / size if size else 0.0


def loop_rank(x):
    """Place among the sorted values, ties at the mean of the places they fill."""
    return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]


def loop_pearson(x, y):
    mx, my = math.fsum(x) / len(x), math.fsum(y) / len(y)
    xy = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    xx = math.fsum((a - mx) ** 2 for a in x)
    yy = math.fsum((b - my) ** 2 for b in y)
    return xy / math.sqrt(xx * yy) if xx and yy else math.nan


@given(matrices)
def test_cosine_is_the_definition_row_by_row(pair):
    a, b = pair
    expected = [loop_cosine(u, v) for u, v in zip(a, b, strict=True)]
    np.testing.assert_allclose(metrics.cosine(a, b), expected, atol=1e-12)


def test_equal_vectors_have_a_cosine_of_exactly_one():
    """A rank correlation sees one ulp: (sqrt x)^2 is not always x, sqrt(x * x) is."""
    vectors = np.random.default_rng(3).normal(size=(4000, 37)).astype(np.float32)
    assert (metrics.cosine(vectors, vectors.copy()) == 1.0).all()
    assert (metrics.norms(vectors) ** 2 != np.square(vectors, dtype=np.float64).sum(1)).any()


def test_measures_of_zeros_constants_and_nan():
    a = np.array([[0.0, 0.0], [1.0, math.nan], [3.0, 4.0]])
    b = np.array([[1.0, 2.0], [1.0, 1.0], [6.0, 8.0]])
    found = metrics.cosine(a, b)
    assert found[0] == 0.0
    assert math.isnan(found[1])
    assert found[2] == 1.0
    assert math.isnan(metrics.spearman([1, 1, 1], [1, 2, 3]))
    assert math.isnan(metrics.pearson([1.0], [2.0]))
    assert math.isnan(metrics.spearman([1, math.nan, 3], [1, 2, 3]))


@given(columns)
def test_rank_shares_ties(pair):
    for column in pair:
        assert metrics.rank(column).tolist() == loop_rank(column.tolist())


@settings(max_examples=200)
@given(columns)
def test_correlations_are_the_definitions(pair):
    x, y = pair
    np.testing.assert_allclose(metrics.pearson(x, y), loop_pearson(x, y), atol=1e-9)
    ranks = loop_pearson(loop_rank(x.tolist()), loop_rank(y.tolist()))
    np.testing.assert_allclose(metrics.spearman(x, y), ranks, atol=1e-9)


@given(st.sets(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 12))
def test_reciprocal_ranks_are_cut_at_k(ranks, k):
    expected = max(1 / rank if rank <= k else 0.0 for rank in ranks)
    found = metrics.reciprocal_rank_at_k([1.0] * len(ranks), sorted(ranks), k)
    assert found == pytest.approx(expected)


GAINS = st.lists(st.integers(0, 3), min_size=1, max_size=7)


@given(GAINS, st.integers(1, 7), st.randoms(use_true_random=False))
def test_ndcg_is_the_gain_over_the_best_orders_gain(gains, k, random):
    ranks = random.sample(range(1, 15), len(gains))

    def dcg(pairs):
        return sum(g / math.log2(r + 1) for g, r in pairs if r <= k)

    best = dcg(zip(sorted(gains, reverse=True), range(1, 15), strict=False))
    found = metrics.ndcg_at_k(gains, ranks, k)
    if best == 0:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(dcg(zip(gains, ranks, strict=True)) / best)
        assert 0 <= found <= 1 + 1e-12


@given(matrices)
def test_alignment_and_uniformity_are_the_equations(pair):
    a, b = ([[*row, 1.0] for row in side] for side in pair)  # no zero rows
    u, v = metrics.normalize(a), metrics.normalize(b)
    gaps = [sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) for x, y in zip(u, v, strict=True)]
    assert metrics.alignment(a, b) == pytest.approx(sum(gaps) / len(gaps), abs=1e-9)
    others = [
        [math.exp(-2 * math.dist(u[i], u[j]) ** 2) for j in range(len(u)) if j != i]
        for i in range(len(u))
    ]
    expected = [sum(row) / len(row) for row in others]
    mean = sum(expected) / len(expected)
    assert metrics.uniformity(a) == pytest.approx(math.log(mean), abs=1e-5)
    np.testing.assert_allclose(metrics.nearness(a), expected, atol=1e-5)


def test_uniformity_does_not_depend_on_the_block():
    vectors = np.random.default_rng(0).normal(size=(2500, 5))
    assert len(vectors) ** 2 > 2 * metrics.BLOCK
    unit = metrics.normalize(vectors)
    near = np.exp(4 * (unit @ unit.T) - 4)
    whole = math.log((near.sum() - near.trace()) / (len(near) * (len(near) - 1)))
    assert metrics.uniformity(vectors) == pytest.approx(whole, abs=1e-6)
    assert metrics.uniformity(vectors * 7.0) == pytest.approx(whole, abs=1e-6)
    assert metrics.uniformity(np.ones((4, 3))) == pytest.approx(0.0, abs=1e-6)
    assert math.isnan(metrics.uniformity(vectors[:1]))
    assert math.isnan(metrics.uniformity(vectors[:0]))


def test_a_reported_metric_has_one_entry():
    for reported, *entry in (
        ("ndcg@10", "ndcg@k", True, "higher", "retrieval"),
        ("accuracy_seed_sd", "accuracy", True, "higher", "transfer"),
        ("accuracy_triplet", "accuracy_triplet", True, "higher", "decisions"),
        ("accuracy@8", "accuracy@k", True, "higher", "decisions"),
        ("alignment_change", "alignment", False, "lower", "geometry"),
        ("seconds_per_step", "seconds", False, "lower", ""),
        ("error_near", "error", False, "higher", "bias"),
        ("gain_mrr@10", "", False, "higher", ""),
        ("overlap@10", "", False, "higher", ""),
    ):
        found = metrics.metric(reported)
        assert [found.name, found.hundredths, found.better, found.table] == entry
