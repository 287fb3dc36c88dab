"""Biases planted in a model are found; one without them is cleared."""

import numpy as np
import pytest

from contrasent.errors import DataError
from contrasent.evaluate import geometry as module
from contrasent.evaluate.geometry import length_bias, repeated_overlaps, repetition_bias
from contrasent.text.datasets import ScoredPairs

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
def data(monkeypatch):
    random = np.random.default_rng(3)
    first, second = [], []
    for i in range(80):
        first.append(" ".join(random.choice(WORDS, 8)))
        second.append(" ".join(random.choice(WORDS, 8 + (0, 3, 4, 9)[i % 4])))
    pairs = ScoredPairs("x", tuple(first), tuple(second), np.full(80, 2.5), "here")
    monkeypatch.setattr(module, "sts_pairs", lambda task, **_: (pairs,))


def test_a_model_of_length_errs_by_length(data):
    report = length_bias(length_of, tasks=("STSB",))
    near = report.one(metric="error_near")
    far = report.one(metric="error_far")
    assert (near.count, far.count) == (40, 40)
    # Differences of 0 and 3 words: angles 0 and 0.3; the gold score is 0.5.
    assert near.value == pytest.approx(100 * (np.mean([1, np.cos(0.3)]) - 0.5), abs=1e-3)
    assert far.value == pytest.approx(100 * (np.mean(np.cos([0.4, 0.9])) - 0.5), abs=1e-3)
    assert report.one(metric="error_gap").value == pytest.approx(near.value - far.value)
    assert near.low <= near.value <= near.high
    seven = length_bias(length_of).one(task="STS7", metric="error_gap")
    assert seven.value == pytest.approx(near.value - far.value)
    report = length_bias(bag, tasks=("STSB",))
    assert report.one(metric="absolute_near").value >= abs(report.one(metric="error_near").value)


def test_length_can_be_counted_in_anything(data):
    counted = {"length": lambda s: len(s.split()) // 2, "unit": "halves"}
    report = length_bias(length_of, tasks=("STSB",), **counted)
    # Differences of 0, 3, 4 and 9 words are 0, 1, 2 and 4 halves.
    assert report.one(metric="error_near").count == 60
    assert "halves" in report.notes["length"]


def text(count=400):
    random = np.random.default_rng(5)
    return [" ".join(random.choice(WORDS, 13)) for _ in range(count)]


def test_shared_words_are_doubled_and_nothing_else():
    triples = repeated_overlaps(text(), queries=30, overlap=(0.13, 0.17), seed=1)
    assert len(triples) == 30
    for query, once, twice in triples:
        known = set(query.split())
        shared = [w in known for w in once.split()]
        assert 0.13 <= sum(shared) / len(shared) <= 0.17
        words = zip(once.split(), shared, strict=True)
        assert twice == " ".join(" ".join([word] * (2 if both else 1)) for word, both in words)
    assert triples == repeated_overlaps(text(), queries=30, overlap=(0.13, 0.17), seed=1)


def test_a_counting_model_is_biased_and_one_of_presence_is_not():
    biased = repetition_bias(bag, text(), queries=40).one(metric="repetition_gain")
    assert biased.low > 0
    fair = repetition_bias(presence, text(), queries=40).one(metric="repetition_gain")
    assert fair.value == pytest.approx(0, abs=1e-5)
    with pytest.raises(DataError, match="give more text"):
        repetition_bias(bag, text(3))
