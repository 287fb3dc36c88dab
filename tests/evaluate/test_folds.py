"""Folds and first weights against the libraries whose draws they repeat."""

import numpy as np
import pytest

from contrasent.evaluate.folds import linear_start, stratified_folds


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


def test_folds_share_every_class():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    tests = [test for _, test in stratified_folds(labels, 10, 1)]
    assert sorted(np.concatenate(tests)) == list(range(100))
    for test in tests:
        assert np.bincount(labels[test]).tolist() == [5, 3, 2]


@pytest.mark.parametrize(("inputs", "outputs", "seed"), [(384, 2, 1111), (9, 6, 5), (3, 2, 0)])
def test_first_weights_are_those_of_a_seeded_linear_layer(inputs, outputs, seed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    layer = torch.nn.Linear(inputs, outputs)
    found = linear_start(inputs, outputs, seed)
    assert found.shape == (inputs + 1, outputs)
    np.testing.assert_allclose(found[:-1], layer.weight.detach().numpy().T, atol=1e-7)
    np.testing.assert_allclose(found[-1], layer.bias.detach().numpy(), atol=1e-7)
