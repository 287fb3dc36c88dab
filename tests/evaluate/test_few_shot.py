"""Few-shot classification: the classifier is scikit-learn's, the examples are no test items."""

import numpy as np
import pytest

from contrasent.errors import DataError
from contrasent.evaluate.transfer import few_shot, guess_items
from contrasent.text.labelled import Labelled


def made(count, classes, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    texts = tuple(f"{seed} {i} {label}" for i, label in enumerate(labels))
    return Labelled(texts, None, labels)


class Model:
    """A direction a class and noise; remembers what it was asked."""

    def __init__(self, noise=1.0):
        self.noise = noise
        self.seen = []

    def __call__(self, sentences):
        self.seen += sentences
        rows = []
        for s in sentences:
            seed, number, label = map(int, s.split())
            noise = np.random.default_rng((seed, number)).normal(size=12)
            rows.append(0.4 * np.eye(12)[label] + self.noise * 0.2 * noise)
        return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_classifier_is_scikit_learns_with_c_of_one(classes, monkeypatch):
    linear = pytest.importorskip("sklearn.linear_model")
    from contrasent.evaluate import transfer as module

    fitted = []
    real = module.Logistic

    class Spy(real):
        def __init__(self, features, labels, count):
            super().__init__(features, labels, count)
            self.seen = np.asarray(features), labels

        def fit(self, subsets, penalties):
            weights = super().fit(subsets, penalties)
            fitted.append((self, subsets, weights))
            return weights

    monkeypatch.setattr(module, "Logistic", Spy)
    parts = {"train": made(200, classes, 1), "test": made(90, classes, 2)}
    _, found = guess_items(Model(), {"here": parts}, (8,), 4, 0)["here"]
    ((model, subsets, weights),) = fitted
    features, labels = model.seen
    tested = Model()(parts["test"].first)
    assert len(subsets) == 4
    for subset, w, right in zip(subsets, weights, found[8], strict=True):
        assert np.bincount(labels[subset]).tolist() == [8] * classes
        theirs = linear.LogisticRegression(C=1.0, tol=1e-8, max_iter=2000)
        theirs.fit(features[subset], labels[subset])
        guesses = model.predict(w, tested)
        # Both are within rounding of the one optimum: a test item may lie on the border.
        assert (guesses == theirs.predict(tested)).mean() > 0.985
        assert np.array_equal(right, guesses == parts["test"].labels)


def test_rows_are_means_over_draws_and_tasks(items_give_the_values):
    data = {
        "one": {"train": made(200, 2, 1), "test": made(90, 2, 2)},
        "two": {"all": made(180, 3, 3)},
    }
    model = Model()
    report = few_shot(model, data, draws=5)
    assert items_give_the_values(report) == len(report) > 0
    found = guess_items(Model(), data, (8, 16), 5, 0)
    for k in (8, 16):
        rows = [report.one(task=task, metric=f"accuracy@{k}") for task in ("one", "two")]
        assert rows[0].value == pytest.approx(found["one"][1][k].mean())
        mean = report.one(task="mean", metric=f"accuracy@{k}")
        assert mean.value == pytest.approx((rows[0].value + rows[1].value) / 2)
        assert (rows[0].count, rows[1].count, mean.count) == (90, 90, 180)
        assert all(row.low < row.value < row.high for row in (*rows, mean))
    assert report.one(task="one", metric="accuracy@16").value > 0.6
    # Half of "two" is tested, and of the rest only what was drawn is encoded.
    assert len(set(model.seen)) <= 90 + 90 + 5 * 16 * (2 + 3)
    assert few_shot(Model(), data, draws=2, resamples=0).rows[0].low is None


def test_examples_are_never_test_items_and_draws_differ():
    whole = made(120, 2, 5)
    model = Model()
    keys, found = guess_items(model, {"here": {"all": whole}}, (8,), 6, 0)["here"]
    assert len(keys) == len(set(keys.tolist())) == 60
    assert len(np.unique(found[8], axis=0)) > 1
    assert 60 < len(set(model.seen)) <= 120
    _, again = guess_items(Model(), {"here": {"all": whole}}, (8,), 6, 0)["here"]
    assert np.array_equal(found[8], again[8])


def test_the_interval_knows_that_other_examples_teach_other_things():
    """With few draws that differ, it is wider than test items alone make it."""
    data = {"here": {"train": made(400, 2, 1), "test": made(6000, 2, 2)}}
    report = few_shot(Model(noise=3.0), data, shots=(8,), draws=5)
    row = report.one(metric="accuracy@8")
    items = 1.96 * np.sqrt(row.value * (1 - row.value) / row.count)
    assert (row.high - row.low) / 2 > 1.2 * items


def test_a_class_with_too_few_examples_is_refused():
    few = Labelled(tuple(f"1 {i} {int(i < 5)}" for i in range(40)), None, (np.arange(40) < 5) * 1)
    with pytest.raises(DataError, match="here: a class has 5 examples, 8 are to be drawn"):
        few_shot(Model(), {"here": {"train": few, "test": few}}, shots=(8,))
