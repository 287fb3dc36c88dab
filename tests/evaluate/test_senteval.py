"""The batched classifier against one fit after the other in plain PyTorch."""

import copy

import numpy as np
import pytest

from contrasent.errors import OptionError
from contrasent.evaluate import senteval
from contrasent.evaluate.folds import stratified_folds
from contrasent.evaluate.senteval import Split, fit_splits, predict, with_bias
from contrasent.evaluate.senteval_state import Procedure

torch = pytest.importorskip("torch")


def made(n=230, d=7, classes=2, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)).astype(np.float32)
    scores = x @ random.normal(size=(d, classes)) + random.gumbel(size=(n, classes))
    return x, scores.argmax(axis=1)


def one_fit(x, y, train, check, penalty, procedure, classes, seed):
    """The published procedure for a single fit, step by step."""
    random = np.random.RandomState(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = torch.nn.Linear(x.shape[1], classes)
    if check is None:
        order = random.permutation(len(train))
        cut = int(0.05 * len(order))
        train, check = train[order[cut:]], train[order[:cut]]
    x, y = torch.tensor(x), torch.tensor(y)
    kinds = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}
    optimiser = kinds[procedure.optimiser](
        model.parameters(), lr=procedure.rate, weight_decay=penalty
    )
    best, kept, epoch, misses = -1.0, None, 0, 0
    while epoch <= procedure.longest:
        for _ in range(procedure.epoch_size):
            order = train[random.permutation(len(train))]
            for left in range(0, len(order), procedure.batch):
                rows = order[left : left + procedure.batch]
                loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        epoch += procedure.epoch_size
        with torch.no_grad():
            accuracy = (model(x[check]).argmax(1) == y[check]).double().mean().item()
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model)
        else:
            if misses >= procedure.tenacity:
                break
            misses += 1
    return best, kept


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
@pytest.mark.parametrize("classes", [2, 4])
def test_every_fit_is_the_one_that_is_trained_alone(optimiser, classes, device):
    """In numpy, and in torch as a GPU would compute it."""
    x, y = made(classes=classes)
    procedure = Procedure(
        folds=4, optimiser=optimiser, rate=1e-2, batch=16, tenacity=2, epoch_size=2, longest=30,
        grid=(1e-4, 1e-1),
    )  # fmt: skip
    folds = stratified_folds(y, 4, 1111)
    splits = [Split(a, b, procedure.grid) for a, b in folds]
    # Training sets of two lengths: a fold may have one batch less than its neighbours.
    splits[1] = Split(folds[1][0][:130], folds[1][1], procedure.grid)
    splits.append(Split(folds[0][0], None, (1e-4, 1e-1)))
    told = []
    found = fit_splits(
        with_bias(x),
        y,
        splits,
        classes=classes,
        procedure=procedure,
        seed=7,
        device=device,
        advance=told.append,
    )
    assert len(found) == len(splits) == sum(told)
    for split, fitted in zip(splits, found, strict=True):
        for i, penalty in enumerate(split.penalties):
            best, model = one_fit(x, y, split.train, split.check, penalty, procedure, classes, 7)
            assert fitted.accuracy[i] == pytest.approx(best, abs=1e-9)
            weights = model.weight.detach().numpy().T
            np.testing.assert_allclose(fitted.weights[i][:-1], weights, atol=2e-4)
            np.testing.assert_allclose(
                fitted.weights[i][-1], model.bias.detach().numpy(), atol=2e-4
            )
            expected = model(torch.tensor(x)).argmax(1).numpy()
            assert (predict(with_bias(x), fitted.weights[i]) == expected).mean() > 0.99


def test_the_width_of_the_pool_changes_nothing(monkeypatch):
    x, y = made()
    procedure = Procedure(batch=32, tenacity=1, epoch_size=1, longest=8)
    splits = [Split(a, b, procedure.grid) for a, b in stratified_folds(y, 6, 2)]
    wide = fit_splits(with_bias(x), y, splits, classes=2, procedure=procedure)
    monkeypatch.setattr(senteval, "SIDE_BY_SIDE", 1)
    narrow = fit_splits(with_bias(x), y, splits, classes=2, procedure=procedure)
    for a, b in zip(wide, narrow, strict=True):
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-5)


def test_the_callers_random_state_is_left_alone():
    x, y = made(n=80)
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    procedure = Procedure(batch=32, tenacity=0, epoch_size=1, longest=2)
    splits = [Split(a, None, (1e-3,)) for a, _ in stratified_folds(y, 3, 1)]
    fit_splits(with_bias(x), y, splits, classes=2, procedure=procedure)
    assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])


def test_a_device_that_is_not_there_is_named():
    x, y = made(n=80)
    splits = [Split(a, b, (1e-3,)) for a, b in stratified_folds(y, 3, 1)]
    with pytest.raises(OptionError, match="device 'cudas': torch cannot use it"):
        fit_splits(with_bias(x), y, splits, classes=2, device="cudas")
