"""Geometry against definitions and clouds whose shape is known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from contrasent import metrics
from contrasent.errors import DataError, OptionError
from contrasent.evaluate.compare import compare_reports
from contrasent.evaluate.geometry import (
    batch_ranks,
    cosine_by_rating,
    geometry,
    isoscore,
    length_bias,
    repeated_overlaps,
    repetition_bias,
    spectral_bound,
)
from contrasent.metrics import anisotropy, effective_rank, singular_values
from contrasent.text.corpus import ScoredPairs

random = np.random.default_rng(0)
ROUND = random.normal(size=(4000, 8)).astype(np.float32)
CONE = (ROUND + 6).astype(np.float32)
LINE = (random.normal(size=(500, 1)) * np.ones((1, 8))).astype(np.float32)


def test_anisotropy_is_the_mean_over_all_different_pairs():
    few = CONE[:30]
    u = metrics.normalize(few)
    pairs = [float(u[i] @ u[j]) for i in range(30) for j in range(30) if i != j]
    assert anisotropy(few) == pytest.approx(sum(pairs) / len(pairs))
    assert abs(anisotropy(ROUND)) < 0.01
    assert anisotropy(CONE) > 0.9


def test_isoscore_knows_the_extremes_and_counts_dimensions():
    assert isoscore(ROUND) > 0.98
    assert isoscore(LINE) == pytest.approx(0, abs=1e-6)
    # k of d dimensions alike: the published linear scale gives (k - 1) / (d - 1).
    half = ROUND.copy()
    half[:, 4:] = 0
    assert isoscore(half) == pytest.approx(3 / 7, abs=0.02)
    stretched, turn = ROUND * np.linspace(1, 3, 8), np.linalg.qr(ROUND[:8].astype(float))[0]
    assert isoscore(5 * stretched @ turn + 2) == pytest.approx(isoscore(stretched), abs=1e-6)


def test_the_spectral_bound_is_both_sides_of_equation_7():
    for vectors, positive in ((CONE[:40], True), (ROUND[:40], False)):
        found, m, tau = spectral_bound(vectors, temperature=0.1), 40, 0.1
        h = [v / math.sqrt(sum(x * x for x in v)) for v in vectors.astype(float)]
        dots = [[float(a @ b) for b in h] for a in h]
        left = sum(math.log(sum(math.exp(x / tau) for x in row) / m) for row in dots) / m
        right = sum(map(sum, dots)) / (tau * m * m)
        assert found["log_mean_exp"] == pytest.approx(left, abs=1e-10)
        assert found["mean_over_temperature"] == pytest.approx(right, abs=1e-10)
        assert left >= right
        assert found["sum"] == pytest.approx(sum(map(sum, dots)), abs=1e-8)
        assert found["top"] == pytest.approx(np.linalg.eigvalsh(dots)[-1], abs=1e-8)
        assert found["positive"] == sum(x > 0 for row in dots for x in row) / m**2
        assert (found["positive"] == 1) == positive
    # Merikoski (1984): where all elements are positive the sum is no less.
    assert spectral_bound(CONE[:40])["sum"] >= spectral_bound(CONE[:40])["top"]


def test_a_batch_bounds_the_rank_of_its_correlation_matrix():
    wide = np.random.default_rng(1).normal(size=(70, 96)).astype(np.float32)
    assert batch_ranks(wide, batch_size=32) == [(32, 31), (32, 31)]
    assert batch_ranks(wide[:, :8], batch_size=32) == [(8, 8), (8, 8)]
    assert batch_ranks(np.repeat(wide[:2], 16, axis=0), batch_size=32) == [(2, 1)]


def test_singular_values_and_effective_rank():
    expected = np.linalg.svd(CONE[:200].astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(singular_values(CONE[:200]), expected / expected[0], atol=1e-6)
    share = expected / expected.sum()
    rank = math.exp(-sum(p * math.log(p) for p in share))
    assert effective_rank(CONE[:200]) == pytest.approx(rank, abs=1e-5)
    assert effective_rank(LINE) == pytest.approx(1, abs=0.01)
    assert effective_rank(ROUND) == pytest.approx(8, abs=0.05)


def test_ratings_fall_into_five_bins():
    found = cosine_by_rating(np.array([0.5, -1.0, 1.0, 0.2]), np.array([0.0, 1.0, 5.0, 4.2]))
    assert {name: sum(v) for name, v in found.items()} == {
        "0-1": 1, "1-2": 1, "2-3": 0, "3-4": 0, "4-5": 2
    }  # fmt: skip
    assert found["1-2"][0] == found["4-5"][-1] == 1  # cosine -1 lies in the first of 40 cells


def made():
    names = [f"sentence {i}" for i in range(60)]
    scores = np.concatenate([np.full(20, 4.5), np.full(10, 4.0)])
    return ScoredPairs("mine", tuple(names[:30]), tuple(names[30:60]), scores)


def vectors(sentences):
    return np.array([CONE[int(s.split()[1])] for s in sentences], dtype=np.float32)


def test_alignment_takes_pairs_above_four_and_uniformity_all_sentences():
    pairs = made()
    report = geometry(vectors, pairs=pairs)
    first, second = vectors(pairs.first), vectors(pairs.second)
    aligned = report.one(metric="alignment")
    assert aligned.count == 20
    assert aligned.value == pytest.approx(metrics.alignment(first[:20], second[:20]))
    assert aligned.low < aligned.value < aligned.high
    whole = np.concatenate([first, second])
    for measure in (metrics.uniformity, isoscore, effective_rank, anisotropy):
        assert report.one(metric=measure.__name__).value == pytest.approx(measure(whole))
    assert len(report.notes["singular_values"]) == 8


def test_the_interval_of_uniformity_is_the_bootstraps_of_pairs_of_sentences():
    random = np.random.default_rng(2)
    first = random.normal(size=(150, 4)) + 1
    second = first + 0.3 * random.normal(size=(150, 4))  # so pairs are what must be resampled
    names = [f"{side} {i}" for side in "ab" for i in range(150)]
    both = np.concatenate([first, second])
    arms = [dict(zip(names, both + shift, strict=True)) for shift in (0.0, [0.5, 0, 0, 0])]
    pairs = ScoredPairs("mine", tuple(names[:150]), tuple(names[150:]), np.full(150, 5.0))
    near = []
    for arm in arms:
        u = metrics.normalize(np.array(list(arm.values())))
        near.append(np.exp(-2 * ((u[:, None] - u) ** 2).sum(axis=2)))
        np.fill_diagonal(near[-1], 0.0)
    drawn = []
    for _ in range(1000):
        w = np.tile(np.bincount(random.integers(0, 150, 150), minlength=150), 2).astype(float)
        drawn.append([np.log(w @ k @ w / (w.sum() ** 2 - (w * w).sum())) for k in near])
    before, after = np.array(drawn).T

    def measured(arm):
        return geometry(lambda s: np.array([arm[x] for x in s], np.float32), pairs=pairs)

    reports = [measured(arm) for arm in arms]
    row = reports[0].one(metric="uniformity")
    assert (row.low, row.high) == pytest.approx(np.quantile(before, [0.025, 0.975]), abs=0.02)
    found = {c.metric: c for c in compare_reports(reports[:1], reports[1:], seed_sd=0)}
    assert set(found) == {"alignment", "uniformity"}
    width = found["uniformity"].high - found["uniformity"].low
    assert width == pytest.approx(2 * 1.96 * (after - before).std(), rel=0.1)
    # What a seed would do is assumed of scores in hundredths alone.
    with pytest.raises(DataError, match="or --seed-sd 0 if no seed"):
        compare_reports(reports[:1], reports[1:])


def test_duplicates_count_and_pairs_must_be_near():
    pairs = ScoredPairs("mine", ("sentence 1",) * 5, ("sentence 2",) * 5, np.full(5, 5.0))
    assert geometry(vectors, pairs=pairs).one(metric="uniformity").count == 10
    with pytest.raises(DataError, match="needs pairs with a score above 4"):
        geometry(vectors, pairs=replace(pairs, scores=np.full(5, 4.0)))


def test_splits_and_samples_of_the_benchmark(named_pairs):
    requested = []

    def pairs(task, *, split, **_):
        requested.append((task, split))
        return (made(),)

    named_pairs(pairs)
    report = geometry(vectors, split="all", sample=50, seed=4)
    assert requested == [("STSB", "train"), ("STSB", "dev"), ("STSB", "test")]
    assert report.notes["geometry_pairs"] == 50
    assert [key[2] for key in report.items] == ["alignment", "uniformity"]
    assert geometry(vectors, split="dev").rows[0].split == "dev"
    with pytest.raises(OptionError, match="did you mean 'test'"):
        geometry(vectors, split="tests")


WORDS = [f"w{i}" for i in range(60)]


def bag(sentences):
    return np.array([[s.split().count(w) + 1e-3 for w in WORDS] for s in sentences], np.float32)


def presence(sentences):
    return np.array([[float(w in s.split()) for w in WORDS] for s in sentences], np.float32)


def length_of(sentences):
    """A model that hears nothing but length: an angle that grows with it."""
    angle = np.array([len(s.split()) / 10 for s in sentences])
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


@pytest.fixture
def data(named_pairs):
    random = np.random.default_rng(3)
    first, second = [], []
    for i in range(80):
        first.append(" ".join(random.choice(WORDS, 8)))
        second.append(" ".join(random.choice(WORDS, 8 + (0, 3, 4, 9)[i % 4])))
    pairs = ScoredPairs("x", tuple(first), tuple(second), np.full(80, 2.5))
    named_pairs(lambda task, **_: (pairs,))


def test_a_model_of_length_errs_by_length(data):
    report = length_bias(length_of)
    near, far = (report.one(task="STSB", metric=f"error_{group}") for group in ("near", "far"))
    assert (near.count, far.count) == (40, 40)
    # Differences of 0 and 3 words: angles 0 and 0.3; the gold score is 0.5.
    assert near.value == pytest.approx(100 * (np.mean([1, np.cos(0.3)]) - 0.5), abs=1e-3)
    assert far.value == pytest.approx(100 * (np.mean(np.cos([0.4, 0.9])) - 0.5), abs=1e-3)
    assert near.low <= near.value <= near.high
    for task in ("STSB", "STS7"):
        gap = report.one(task=task, metric="error_gap").value
        assert gap == pytest.approx(near.value - far.value)
    counted = {"length": lambda s: len(s.split()) // 2, "unit": "halves"}
    report = length_bias(bag, tasks=("STSB",), **counted)
    assert report.one(metric="absolute_near").value >= abs(report.one(metric="error_near").value)
    # Differences of 0, 3, 4 and 9 words are 0, 1, 2 and 4 halves.
    assert report.one(metric="error_near").count == 60
    assert "halves" in report.notes["length"]


def test_shared_words_are_doubled_and_only_a_model_that_counts_is_biased():
    random = np.random.default_rng(5)
    text = [" ".join(random.choice(WORDS, 13)) for _ in range(400)]
    triples = repeated_overlaps(text, queries=30, seed=1)
    assert len(triples) == 30
    for query, once, twice in triples:
        known = set(query.split())
        shared = [w in known for w in once.split()]
        assert 0.13 <= sum(shared) / len(shared) <= 0.17
        words = zip(once.split(), shared, strict=True)
        assert twice == " ".join(" ".join([word] * (2 if both else 1)) for word, both in words)
    assert triples == repeated_overlaps(text, queries=30, seed=1)
    assert repetition_bias(bag, text, queries=40).one(metric="repetition_gain").low > 0
    fair = repetition_bias(presence, text, queries=40).one(metric="repetition_gain")
    assert fair.value == pytest.approx(0, abs=1e-5)
    with pytest.raises(DataError, match="give more text"):
        repetition_bias(bag, text[:3])
