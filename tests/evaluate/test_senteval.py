"""The batched classifier of SentEval against one fit after the other in plain PyTorch."""

import copy

import numpy as np
import pytest

from contrasent.evaluate import senteval
from contrasent.evaluate.classifier import ClassifierProblem, stratified_folds, with_ones
from contrasent.evaluate.senteval import Procedure, Split

torch = pytest.importorskip("torch")
SHORT = Procedure(
    folds=4, rate=1e-2, batch_size=16, tenacity=2, epochs=2, longest=30, grid=(1e-4, 1e-1)
)


def made(n=230, d=7, classes=2, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)).astype(np.float32)
    scores = x @ random.normal(size=(d, classes)) + random.gumbel(size=(n, classes))
    return x, scores.argmax(axis=1)


def one_fit(x, y, split, penalty, classes, seed):
    """The published procedure for a single fit, step by step."""
    random, train, check = np.random.RandomState(seed), split.train, split.check
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = torch.nn.Linear(x.shape[1], classes)
    if check is None:
        order = random.permutation(len(train))
        cut = int(0.05 * len(order))
        train, check = train[order[cut:]], train[order[:cut]]
    x, y = torch.tensor(x), torch.tensor(y)
    adam = torch.optim.Adam(model.parameters(), lr=SHORT.rate, weight_decay=penalty)
    best, kept, epoch, misses = -1.0, None, 0, 0
    while epoch <= SHORT.longest:
        for _ in range(SHORT.epochs):
            order = train[random.permutation(len(train))]
            for left in range(0, len(order), SHORT.batch_size):
                rows = order[left : left + SHORT.batch_size]
                adam.zero_grad()
                torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                adam.step()
        epoch += SHORT.epochs
        with torch.no_grad():
            accuracy = (model(x[check]).argmax(1) == y[check]).double().mean().item()
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model)
        elif misses >= SHORT.tenacity:
            break
        else:
            misses += 1
    return best, kept


@pytest.mark.parametrize("classes", [2, 4])
def test_every_fit_is_the_one_that_is_trained_alone(classes):
    x, y = made(classes=classes)
    splits = [Split(a, b, SHORT.grid) for a, b in stratified_folds(y, 4, 1111)]
    # Training sets of two lengths: a fold may have one batch less than its neighbors.
    splits[1] = Split(splits[1].train[:130], splits[1].check, SHORT.grid)
    splits.append(Split(splits[0].train, None, SHORT.grid))
    start = senteval.linear_start(x.shape[1], classes, 7)
    found = senteval._Trainer(with_ones(x), y, start, splits, SHORT, 7).run()
    for split, fitted in zip(splits, found, strict=True):
        for i, penalty in enumerate(split.penalties):
            best, model = one_fit(x, y, split, penalty, classes, 7)
            assert fitted.accuracy[i] == pytest.approx(best, abs=1e-9)
            weights, bias = (p.detach().numpy().T for p in model.parameters())
            np.testing.assert_allclose(fitted.weights[:-1, :, i], weights, atol=2e-4)
            np.testing.assert_allclose(fitted.weights[-1, :, i], bias, atol=2e-4)


@pytest.mark.parametrize(("dev", "test"), [(40, 50), (0, 50), (0, 0)])
def test_an_l2_weight_is_chosen_and_all_that_is_to_be_tested_is(dev, test):
    x, y = made()
    learned = len(y) - dev - test
    told = []
    problem = ClassifierProblem(x, y, learned, dev, 2)
    found = senteval.classify(problem, 7, told.append, SHORT)
    assert sum(told) == senteval.count_of_fits(problem, SHORT)
    tested = np.sort(np.concatenate(found.parts))
    assert np.array_equal(tested, problem.test if test else np.arange(len(y)))
    assert (found.guesses[tested] == y[tested]).mean() > 0.6
    assert (np.delete(found.guesses, tested) == -1).all()
    # By hand, the last fit of the weight that did best.
    if dev:
        parts = np.arange(learned), np.arange(learned, learned + dev)
        scores = {p: one_fit(x, y, Split(*parts, SHORT.grid), p, 2, 7) for p in SHORT.grid}
        best = max(scores, key=lambda penalty: scores[penalty][0])
        assert found.dev == pytest.approx(scores[best][0], abs=1e-9)
        expected = scores[best][1](torch.tensor(x[tested])).argmax(1).numpy()
        assert (found.guesses[tested] == expected).mean() > 0.99
