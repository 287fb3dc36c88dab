"""Changes from one model to another: against loops, and against changes that are known."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent import metrics
from contrasent.errors import DataError, OptionError
from contrasent.evaluate.diff import diff_models, shift

TEXTS = [f"note {n} about {'harbours' if n % 2 else 'gardens'}" for n in range(120)]


def model(seed=0, noise=0.0, dimension=16):
    """Vectors that depend on the text alone; of one seed the same but for the noise."""

    def encode(texts):
        rows = []
        for text in texts:
            own = np.random.default_rng([seed, *text.encode()]).normal(size=dimension)
            other = np.random.default_rng([99, *text.encode()]).normal(size=dimension)
            rows.append(own + noise * other)
        return np.array(rows, dtype=np.float32)

    return encode


def rbo_by_definition(a, b, p):
    """Equation 30 of Webber et al. (2010), term by term."""
    k = len(a)
    overlap = [len(set(a[:d]) & set(b[:d])) for d in range(1, k + 1)]
    total = overlap[-1] / k * p**k
    for d in range(1, k + 1):
        total += (1 - p) / p * overlap[d - 1] / d * p**d
    return total


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.floats(0.05, 0.99))
def test_rank_biased_overlap(seed, k, p):
    random = np.random.default_rng(seed)
    first, second = (np.array([random.permutation(15)[:k] for _ in range(3)]) for _ in range(2))
    both = list(zip(first.tolist(), second.tolist(), strict=True))
    expected = [rbo_by_definition(a, b, p) for a, b in both]
    assert metrics.rank_biased_overlap(first, second, p) == pytest.approx(expected)
    assert metrics.rank_biased_overlap(first, first, p) == pytest.approx(1)
    assert metrics.rank_biased_overlap(first, first + 100, p) == pytest.approx(0)
    shared = metrics.shared_by_depth(first, second)
    for row, (a, b) in enumerate(both):
        assert shared[row].tolist() == [len(set(a[:d]) & set(b[:d])) for d in range(1, k + 1)]


def test_the_same_model_changes_nothing():
    found = diff_models(model(), model(), [*TEXTS, *TEXTS[:50]], sample=60)  # each text once
    names = ["overlap@1", "overlap@10", "overlap@100", "rank-biased overlap"]
    assert [m.name for m in found.measures] == names
    for measure in found.measures:
        assert (measure.value, measure.low, measure.high) == pytest.approx((1, 1, 1))
    assert found.changed == ()
    assert (found.queries, found.documents, found.of, found.own) == (60, 120, 120, True)
    assert json.loads(json.dumps(found.to_json()))["measures"][1]["value"] == 1


@pytest.mark.parametrize("depth", [21, 30, 47])
def test_a_list_that_is_equal_has_not_changed_whatever_its_depth(depth):
    assert diff_models(model(), model(), TEXTS[:depth], TEXTS[-30:]).changed == ()


def test_against_a_loop():
    queries = [f"question {n}" for n in range(30)]
    old, new = model(1), model(1, noise=0.4)
    found = diff_models(old, new, TEXTS, queries)
    shares, biased = [], []
    for query in queries:
        lists = []
        for encode in (old, new):
            (q,), documents = encode([query]).astype(float), encode(TEXTS).astype(float)
            scores = [q @ d / math.sqrt((q @ q) * (d @ d)) for d in documents]
            lists.append(sorted(range(len(TEXTS)), key=lambda d: -scores[d])[:100])
        shares.append(len(set(lists[0][:10]) & set(lists[1][:10])) / 10)
        biased.append(rbo_by_definition(*lists, 0.9))
    measure = found["overlap@10"]
    assert measure.value == pytest.approx(np.mean(shares))
    assert found["rank-biased overlap"].value == pytest.approx(np.mean(biased))
    error = np.std(shares) / math.sqrt(len(queries))  # the normal interval of a mean
    assert measure.high - measure.low == pytest.approx(2 * 1.96 * error, rel=0.25)
    worst = found.changed[0]
    assert worst.query == queries[int(np.argmin(biased))]
    assert worst.overlap == shares[int(np.argmin(biased))]
    assert worst.old[0].text in TEXTS and len(worst.old) == len(worst.new) == 5


def test_ranks_in_the_other_list():
    found = diff_models(model(1), model(1, noise=0.7), TEXTS, sample=40)
    for change in found.changed:
        new = {one.text: rank for rank, one in enumerate(change.new, 1)}
        for one in change.old:
            if one.text in new:
                assert one.other == new[one.text]


def test_known_vectors_are_not_made_again():
    vectors = model()(TEXTS)
    found = diff_models(pytest.fail, model(), TEXTS, old_vectors=vectors, sample=30)
    assert found["overlap@100"].value == 1
    shuffled = diff_models(pytest.fail, model(), TEXTS, old_vectors=vectors[::-1], sample=30)
    assert shuffled["overlap@10"].value < 0.5


@given(st.integers(0, 2**32 - 1))
def test_a_monotone_change_of_scores_moves_the_threshold_with_it(seed):
    random = np.random.default_rng(seed)
    old = random.uniform(size=(30, 10))
    threshold = float(np.quantile(old, 0.8))
    moved = shift(threshold, old, 3 * old - 1, resamples=50)
    reached = old[old >= threshold]
    assert moved.new == pytest.approx(3 * reached.min() - 1)
    assert moved.at == pytest.approx(len(reached) / old.size)
    assert moved.low <= moved.new + 1e-9 and moved.high >= moved.new - 1e-9
    none = shift(2.0, old, old)
    assert (none.new, none.at) == (None, 0.0)


def test_bad_input():
    for options, message in (
        ({"sample": 3}, "--sample 3: must be at least 20"),
        ({"seed": -1}, "--seed -1: must be 0 or more"),
        ({"metric": "cos"}, "metric 'cos': unknown; did you mean 'cosine'"),
    ):
        with pytest.raises(OptionError, match=message):
            diff_models(model(), model(), TEXTS, **options)
    for new, texts, message in (
        (model(), (TEXTS[:19],), "19 different documents are too few"),
        (model(), (TEXTS, []), "0 different queries are too few"),
        (lambda texts: np.full((len(texts), 3), np.nan), (TEXTS,), "NaN or infinite"),
    ):
        with pytest.raises(DataError, match=message):
            diff_models(model(), new, *texts)
