"""Logistic regression against its definition: the gradient is zero at the answer; folds."""

import numpy as np
import pytest

from contrasent.evaluate import classifier
from contrasent.evaluate.classifier import ClassifierProblem, Logistic, classify, stratified_folds


def made(n=300, d=6, classes=2, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)) * np.linspace(0.1, 3, d) + random.normal(size=d)
    scores = x @ random.normal(size=(d, classes)) + random.gumbel(size=(n, classes))
    return x, scores.argmax(axis=1)


def loss(weights, x, y, penalty, classes):
    """Mean cross-entropy and penalty, by loops over examples."""
    total = 0.0
    for row, label in zip(x, y, strict=True):
        scores = [float(row @ weights[:, c]) for c in range(weights.shape[1])]
        if weights.shape[1] == 1:
            scores = [0.0, scores[0]]
        top = max(scores)
        total += top + np.log(sum(np.exp(s - top) for s in scores)) - scores[label]
    return total / len(y) + penalty / 2 * float((weights[:-1] ** 2).sum())


@pytest.mark.parametrize("classes", [2, 3])
def test_no_step_away_from_the_answer_lowers_the_loss(classes):
    x, y = made(classes=classes)
    model = Logistic(x, y, classes)
    subsets, penalties = [np.arange(0, 200), np.arange(100, 300)], [1e-3, 1e-1]
    found = model.fit(subsets, penalties).astype(np.float64)
    random = np.random.default_rng(1)
    for weights, rows, penalty in zip(found, subsets, penalties, strict=True):
        z, labels = model.rows[rows].astype(np.float64), y[rows]
        here = loss(weights, z, labels, penalty, classes)
        for size in (0.3, 0.01):
            step = random.normal(size=weights.shape)
            step *= size / np.linalg.norm(step)
            for sign in (1, -1):
                assert loss(weights + sign * step, z, labels, penalty, classes) > here - 1e-6


def test_blocks_and_the_vectors_length_change_nothing(monkeypatch):
    x, y = made()
    subsets, penalties = [np.arange(250)] * 3, [1e-4, 1e-3, 1e-2]
    whole = Logistic(x, y, 2).fit(subsets, penalties)
    monkeypatch.setattr(classifier, "BLOCK", 300)
    np.testing.assert_allclose(Logistic(x, y, 2).fit(subsets, penalties), whole, atol=1e-3)
    scaled = Logistic(x * 1000, y, 2).fit(subsets, penalties)
    np.testing.assert_allclose(np.abs(scaled), np.abs(whole), atol=1e-3)


def test_separable_classes_and_constant_columns_do_no_harm():
    x = np.stack([np.linspace(-1, 1, 40), np.zeros(40)], axis=1)
    y = (x[:, 0] > 0).astype(np.int64)
    model = Logistic(x, y, 2)
    weights = model.fit([np.arange(40)], [1e-6])
    assert np.isfinite(weights).all()
    assert (model.predict(weights[0], x) == y).all()
    assert np.array_equal(model.predict_rows(weights[0], np.arange(40)), y)


@pytest.mark.parametrize(("classes", "k", "seed"), [(2, 10, 1111), (6, 5, 3), (3, 4, 0)])
def test_folds_are_those_of_scikit_learn(classes, k, seed):
    selection = pytest.importorskip("sklearn.model_selection")
    labels = np.random.default_rng(seed).integers(0, classes, 311)
    expected = selection.StratifiedKFold(k, shuffle=True, random_state=seed).split(labels, labels)
    found = stratified_folds(labels, k, seed)
    assert len(found) == k
    for (train, test), (wanted_train, wanted_test) in zip(found, expected, strict=True):
        assert np.array_equal(train, wanted_train)
        assert np.array_equal(test, wanted_test)


def test_labels_without_a_reason_are_not_learned():
    """Noise must score near the share of the larger class: a leak would score more."""
    random = np.random.default_rng(8)
    noise = random.normal(size=(300, 20)).astype(np.float32)
    labels = random.integers(0, 2, 300)
    found = classify(ClassifierProblem(noise, labels, 300, 0, 2), 1111, lambda n: None)
    accuracy = (found.guesses == labels).mean()
    assert 0.5 - 0.12 < accuracy < 0.5 + 0.12
    assert 0.5 - 0.15 < found.dev < 0.5 + 0.15
