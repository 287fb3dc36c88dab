"""Logistic regression by its definition; SentEval's fits in plain PyTorch; folds, and choices."""

import copy
from types import MappingProxyType

import numpy as np
import pytest

from contrasent.evaluate import classifier
from contrasent.evaluate.classifier import (
    ClassifierProblem,
    Logistic,
    Optimum,
    SentEval,
    Split,
    classify,
    count_of_splits,
    linear_start,
    stratified_folds,
)

HOW = {"rate": 1e-2, "batch_size": 16, "tenacity": 2, "epochs": 2, "longest": 30}


class Short(SentEval):
    """Fewer and shorter fits."""

    grid, outer, inner = (1e-4, 1e-1), 4, 4
    training = MappingProxyType(HOW)


def made(n=300, d=6, classes=2, seed=0, spread=(0.1, 3)):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)) * np.linspace(*spread, d) + random.normal(size=d)
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
    assert (model.predict(weights[0], model.transformed(x)) == y).all()
    assert (model.predict(weights[0], model.rows) == y).all()


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
    problem = ClassifierProblem(noise, labels, 300, 0, 2)
    found = classify(problem, Optimum(problem), 1111, lambda n: None)
    accuracy = (found.guesses == labels).mean()
    assert 0.5 - 0.12 < accuracy < 0.5 + 0.12
    assert 0.5 - 0.15 < found.dev < 0.5 + 0.15


def one_fit(x, y, split, penalty, classes, seed):
    """SentEval's published procedure for a single fit, step by step."""
    torch = pytest.importorskip("torch")
    random, train, check = np.random.RandomState(seed), split.train, split.check
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = torch.nn.Linear(x.shape[1], classes)
    if check is None:
        order = random.permutation(len(train))
        cut = int(0.05 * len(order))
        train, check = train[order[cut:]], train[order[:cut]]
    x, y = torch.tensor(x), torch.tensor(y)
    adam = torch.optim.Adam(model.parameters(), lr=HOW["rate"], weight_decay=penalty)
    best, kept, epoch, misses = -1.0, None, 0, 0
    while epoch <= HOW["longest"]:
        for _ in range(HOW["epochs"]):
            order = train[random.permutation(len(train))]
            for left in range(0, len(order), HOW["batch_size"]):
                rows = order[left : left + HOW["batch_size"]]
                adam.zero_grad()
                torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                adam.step()
        epoch += HOW["epochs"]
        with torch.no_grad():
            accuracy = (model(x[check]).argmax(1) == y[check]).double().mean().item()
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model)
        elif misses >= HOW["tenacity"]:
            break
        else:
            misses += 1
    return best, kept


@pytest.mark.parametrize("classes", [2, 4])
def test_every_fit_of_senteval_is_the_one_that_is_trained_alone(classes):
    x, y = made(230, 7, classes, spread=(1, 1))
    splits = [Split(a, b, Short.grid) for a, b in stratified_folds(y, 4, 1111)]
    splits.append(Split(splits[0].train, None, Short.grid))
    problem = ClassifierProblem(x.astype(np.float32), y, len(y), 0, classes)
    for split, fitted in zip(splits, Short(problem, 7).fit(splits), strict=True):
        for i, penalty in enumerate(split.penalties):
            best, model = one_fit(problem.features, y, split, penalty, classes, 7)
            assert fitted.accuracy[i] == pytest.approx(best, abs=1e-9)
            weights, bias = (p.detach().numpy().T for p in model.parameters())
            np.testing.assert_allclose(fitted.weights[i], [*weights, bias], atol=2e-4)


@pytest.mark.parametrize("solver", [lambda problem: Short(problem, 7), Optimum])
@pytest.mark.parametrize(("dev", "test"), [(40, 50), (0, 50), (0, 0)])
def test_an_l2_weight_is_chosen_and_all_that_is_to_be_tested_is(solver, dev, test):
    x, y = made(230, 7, spread=(1, 1))
    learned, told = len(y) - dev - test, []
    problem = ClassifierProblem(x.astype(np.float32), y, learned, dev, 2)
    solver = solver(problem)
    found = classify(problem, solver, 7, told.append)
    assert sum(told) == count_of_splits(problem, solver)
    tested = np.sort(np.concatenate(found.parts))
    assert np.array_equal(tested, problem.test if test else np.arange(len(y)))
    assert (found.guesses[tested] == y[tested]).mean() > 0.6
    assert (np.delete(found.guesses, tested) == -1).all()
    if not (dev and isinstance(solver, Short)):
        return
    # By hand, the fit of the weight that did best.
    split = Split(np.arange(learned), np.arange(learned, learned + dev), Short.grid)
    fits = [one_fit(problem.features, y, split, penalty, 2, 7) for penalty in Short.grid]
    best, model = max(fits, key=lambda fit: fit[0])
    assert found.dev == pytest.approx(best, abs=1e-9)
    guesses = model(next(model.parameters()).new_tensor(problem.features[tested])).argmax(1).numpy()
    assert (found.guesses[tested] == guesses).mean() > 0.99


@pytest.mark.parametrize(("inputs", "outputs", "seed"), [(384, 2, 1111), (9, 6, 5), (3, 2, 0)])
def test_first_weights_are_those_of_a_seeded_linear_layer(inputs, outputs, seed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    weights, bias = (p.detach().numpy().T for p in torch.nn.Linear(inputs, outputs).parameters())
    found = linear_start(inputs, outputs, seed)
    np.testing.assert_allclose(found, [*weights, bias], atol=1e-7)
