"""Transfer tasks: features, order, items; few examples; the real tasks."""

import numpy as np
import pytest

from contrasent.datasets.labeled import Labeled
from contrasent.errors import DataError, OptionError
from contrasent.evaluate import transfer as module
from contrasent.evaluate.classifier import ClassifierOutcome, SentEval, classify
from contrasent.evaluate.compare import compare_reports
from contrasent.evaluate.transfer import TASKS, few_shot, guess_items, make_problem, transfer
from contrasent.evaluate.vectors import ReportBuilder, encode_distinct
from contrasent.stats.bootstrap import item_keys

GOOD = ["bright", "kind", "crisp", "warm"]
BAD = ["dull", "cruel", "soggy", "cold"]
FILLERS = ["the", "harbour", "was", "and", "evening", "quite"]


def words(sentences):
    """Bag of words."""
    known = [*GOOD, *BAD, *FILLERS]
    return np.array([[s.split().count(w) for w in known] for s in sentences], dtype=np.float32)


def sentences(n, seed, pairs=False):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, n)
    first, second = [], []
    for y in labels:
        words = [*random.choice(FILLERS, random.integers(2, 6)), random.choice(GOOD if y else BAD)]
        first.append(" ".join(words))
        second.append(first[-1] if y else " ".join(random.choice(FILLERS, 4)))
    return Labeled(tuple(first), tuple(second) if pairs else None, labels)


@pytest.fixture
def data(monkeypatch):
    def parts(task, **_):
        if task == "SST2":
            return {"train": sentences(80, 1), "dev": sentences(40, 2), "test": sentences(50, 3)}
        if task in ("TREC", "MRPC"):
            pairs = task == "MRPC"
            return {"train": sentences(90, 4, pairs), "test": sentences(50, 5, pairs)}
        return {"all": sentences(120, 6)}

    monkeypatch.setattr(module, "transfer_set", parts)


def test_every_task_is_learned_and_averaged(data, items_give_the_values):
    report = transfer(words, seeds=(1111, 3), resamples=100)
    values = [report.one(task=t, metric="accuracy", split="test").value for t in TASKS]
    assert min(values) > 0.9
    row = report.one(task="Transfer7", metric="accuracy", split="test")
    assert row.value == pytest.approx(sum(values) / 7)
    assert row.low <= row.value <= row.high
    counts = {t: report.one(task=t, metric="accuracy", split="test").count for t in TASKS}
    assert counts == {"MR": 120, "CR": 120, "SUBJ": 120, "MPQA": 120, "SST2": 50, "TREC": 50,
                      "MRPC": 50}  # fmt: skip
    assert report.one(task="MRPC", metric="f1").value > 0.7
    assert report.one(task="MR", metric="accuracy_seed_sd").count == 2
    # F1 over two seeds is no mean of items.
    assert items_give_the_values(report, without=("accuracy_seed_sd", "f1")) == 8
    single = transfer(words, tasks=("MRPC",), resamples=0)
    assert items_give_the_values(single) == 2


def test_sentevals_own_classifier_is_another_one(data):
    fast, own = (transfer(words, tasks=("TREC",), solver=s) for s in ("fast", "senteval"))
    assert "Adam" in own.notes["classifier"] != fast.notes["classifier"]
    parts = module.transfer_set("TREC")
    encoded = encode_distinct(words, [part.first for part in parts.values()])
    problem, _ = make_problem("TREC", parts, encoded)
    guesses = classify(problem, SentEval(problem, 1111), 1111, lambda n: None).guesses
    right = (guesses == problem.labels)[problem.test].mean()
    assert own.one(metric="accuracy", split="test").value == pytest.approx(right)
    assert own.one(metric="accuracy", split="dev") != fast.one(metric="accuracy", split="dev")


def test_examples_stand_in_sentevals_order_and_pairs_become_features():
    first, second = ("the harbour was warm", "dull", "kind"), ("the", "dull", "cold")
    part = Labeled(first, second, np.array([1, 1, 0]))
    encoded = encode_distinct(words, [part.first, part.second])
    problem, keys = make_problem("MRPC", {"train": part, "test": part}, encoded)
    ordered = item_keys(["kind", "dull", first[0]], ["cold", "dull", "the"])
    assert np.array_equal(keys, np.concatenate([ordered, ordered]))
    assert problem.labels.tolist() == [0, 1, 1, 0, 1, 1]  # by length, then by class
    u, v = words(["kind"])[0], words(["cold"])[0]
    np.testing.assert_array_equal(problem.features[0], [*np.abs(u - v), *(u * v)])
    assert problem.features.shape == (6, 28)
    assert (problem.train, problem.dev, problem.test.tolist()) == (3, 0, [3, 4, 5])


def test_tasks_that_share_sentences_are_resampled_together(data):
    random = np.random.default_rng(4)
    labels, guesses = random.integers(0, 2, (2, 90))
    keys = item_keys([f"sentence {i}" for i in range(90)])
    drawn = []
    for order in (np.arange(90), random.permutation(90)):
        outcome = ClassifierOutcome(0.5, (np.arange(90),), guesses[order])
        builder = ReportBuilder(100)
        module.add_outcomes(builder, "MR", labels[order], keys[order], [outcome])
        drawn.append(builder._draws[0])
    assert drawn[0] == pytest.approx(drawn[1], abs=1e-6)
    assert len(np.unique(drawn[0])) > 20


def test_bad_options_data_and_vectors_are_errors(data):
    for options, message in (
        ({"tasks": ("MRCP",)}, "did you mean 'MRPC'"),
        ({"solver": "sentevl"}, "did you mean 'senteval'"),
        ({"seeds": ()}, "seeds"),
    ):
        with pytest.raises(OptionError, match=message):
            transfer(words, **options)
    with pytest.raises(DataError, match="NaN"):
        transfer(lambda s: words(s) * np.nan, tasks=("CR",))
    few = Labeled(tuple("a" * 40), None, (np.arange(40) < 5) * 1)
    with pytest.raises(DataError, match="here: a class has 5 examples; 8 are needed"):
        few_shot(words, {"here": {"train": few, "test": few}}, shots=(8,))


def made(count, classes, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    texts = tuple(f"{seed} {i} {label}" for i, label in enumerate(labels))
    return Labeled(texts, None, labels)


class Model:
    """A direction a class and noise; remembers the texts."""

    def __init__(self, noise=1.0):
        self.noise, self.seen = noise, []

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
    fitted = []

    class Spy(module.Logistic):
        def __init__(self, *columns):
            super().__init__(*columns)
            self.seen = columns

        def fit(self, subsets, penalties):
            fitted.append((self, subsets, super().fit(subsets, penalties)))
            return fitted[-1][-1]

    monkeypatch.setattr(module, "Logistic", Spy)
    parts = {"train": made(200, classes, 1), "test": made(90, classes, 2)}
    _, found = guess_items(Model(), {"here": parts}, (8,), 4, 0)["here"]
    ((model, subsets, weights),) = fitted
    features, labels, _ = model.seen
    tested = Model()(parts["test"].first)
    assert len(subsets) == 4
    for subset, w, right in zip(subsets, weights, found[8], strict=True):
        assert np.bincount(labels[subset]).tolist() == [8] * classes
        theirs = linear.LogisticRegression(C=1.0, tol=1e-8, max_iter=2000)
        theirs.fit(features[subset], labels[subset])
        guesses = model.predict(w, model.transformed(tested))
        # Both are within rounding of the one optimum: a test item may lie on the border.
        assert (guesses == theirs.predict(tested)).mean() > 0.985
        assert np.array_equal(right, guesses == parts["test"].labels)


def test_rows_are_means_over_draws_and_tasks(items_give_the_values):
    data = {"one": {"train": made(200, 2, 1), "test": made(90, 2, 2)}}
    data["two"], model = {"all": made(180, 3, 3)}, Model()
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
    keys, right = found["two"]
    assert len(keys) == len(set(keys.tolist())) == 90 and len(np.unique(right[8], axis=0)) > 1
    # Half of "two" is tested, and of the rest only what was drawn is encoded.
    assert len(set(model.seen)) <= 90 + 90 + 5 * 16 * (2 + 3)
    assert few_shot(Model(), data, draws=2, resamples=0).rows[0].low is None


def test_few_shot_reports_of_other_draws_are_not_compared():
    data = {"here": {"train": made(60, 2, 1), "test": made(30, 2, 2)}}
    report, *others = [
        few_shot(Model(), data, shots=shots, draws=draws, resamples=0, seed=seed)
        for shots, draws, seed in (((4,), 2, 0), ((4,), 3, 0), ((4,), 2, 1), ((4, 8), 2, 0))
    ]
    assert compare_reports([report], [report], seed_sd=0)
    for other in others:
        said = "same items but different documents, judgments or settings"
        with pytest.raises(DataError, match=said):
            compare_reports([report], [other], seed_sd=0)


def test_the_interval_knows_that_other_examples_teach_other_things():
    data = {"here": {"train": made(400, 2, 1), "test": made(6000, 2, 2)}}
    report = few_shot(Model(noise=3.0), data, shots=(8,), draws=5)
    row = report.one(metric="accuracy@8")
    items = 1.96 * np.sqrt(row.value * (1 - row.value) / row.count)
    assert (row.high - row.low) / 2 > 1.2 * items
