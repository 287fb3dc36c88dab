"""Published protocols give the rows that their papers print; the regressor is plain PyTorch's."""

import numpy as np
import pytest

from contrasent.datasets.official import STS_TASKS
from contrasent.errors import OptionError
from contrasent.evaluate import protocols as module
from contrasent.evaluate.classifier import linear_start
from contrasent.evaluate.protocols import every_protocol, fit, relatedness
from contrasent.evaluate.sts import AGGREGATES, sts
from contrasent.report import Report, Row
from contrasent.text.corpus import ScoredPairs


@pytest.mark.slow
@pytest.mark.data
def test_every_protocol_is_the_mean_of_its_own_seven_values(data_folder, monkeypatch):
    def encode(sentences):
        vectors = np.zeros((len(sentences), 26), dtype=np.float32)
        for i, sentence in enumerate(sentences):
            for letter in sentence.lower():
                if "a" <= letter <= "z":
                    vectors[i, ord(letter) - 97] += 1
        return vectors

    def stand_in(encode, **_):
        values = {"STSB": 0.31, "SICKR": 0.53}
        rows = [Row(t, "test", "pearson", "regressor", v, 9) for t, v in values.items()]
        return Report(tuple(rows), {"relatedness": "stand-in"})

    monkeypatch.setattr(module, "relatedness", stand_in)
    report = every_protocol(encode, resamples=0)
    own = sts(encode, aggregate=AGGREGATES, resamples=0)
    found = [row for row in report if row.task.startswith("protocol ")]
    assert len(module.PROTOCOLS) == 10
    assert len(found) == 11  # hill2016 gives two metrics
    for row in found:
        name = row.task.split()[1]
        protocol = module.PROTOCOLS[name]
        how = {"metric": row.metric, "aggregate": protocol.aggregate}
        values = [own.one(task=t, **how).value for t in STS_TASKS]
        if protocol.regressor:
            values[5:] = 0.31, 0.53
        assert row.value == pytest.approx(sum(values) / 7, abs=1e-12)
    assert len({round(row.value, 6) for row in found}) >= 5
    dev = [row.task for row in report if row.split == "dev" and row.metric == "spearman"]
    assert dev == ["STSB", "SICKR"]
    for task, count in {"SICKR-all": 9927, "STSB-de": 1379, "STSB-es": 1379}.items():
        assert report.one(task=task, metric="spearman").count == count
    with pytest.raises(OptionError, match="did you mean 'declutr'"):
        every_protocol(encode, ["declutter"])


def test_a_score_is_shared_by_its_neighbors():
    found = module.spread_scores(np.array([0.25, 3.25, 5.0]))
    np.testing.assert_allclose(found, [[0.25, 0, 0, 0, 0], [0, 0, 0.75, 0.25, 0], [0, 0, 0, 0, 1]])


def made(n, seed, d=4):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)).astype(np.float32)
    return module.with_ones(x), np.clip(2.5 + x[:, 0] + 0.3 * random.normal(size=n), 0, 5)


def test_the_training_is_pytorchs(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(module, "TRAINING", {"epochs": 2, "longest": 3, "tenacity": 3})
    features, gold = {}, {}
    for seed, (name, n) in enumerate({"train": 150, "dev": 60}.items()):
        features[name], gold[name] = made(n, seed)
    best, weights = fit(features, gold, seed=9)

    model = torch.nn.Linear(4, 5)
    start = linear_start(4, 5, 9)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(start[:-1].T))
        model.bias.copy_(torch.tensor(start[-1]))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.tensor(features["train"][:, :-1])
    y = torch.tensor(module.spread_scores(gold["train"]))
    random, seen = np.random.RandomState(9), []
    for _ in range(2):
        for order in [random.permutation(150) for _ in range(2)]:
            for rows in (order[left : left + 64] for left in range(0, 150, 64)):
                loss = ((torch.softmax(model(x[rows]), 1) - y[rows]) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            p = torch.softmax(model(torch.tensor(features["dev"][:, :-1])), 1)
        guess = (p @ torch.arange(1.0, 6.0)).numpy()
        correlation = np.corrcoef(guess, gold["dev"])[0, 1]
        seen.append((correlation, model.weight.detach().numpy().T.copy()))
    expected = max(seen, key=lambda pair: pair[0])
    assert best == pytest.approx(expected[0], abs=1e-5)
    np.testing.assert_allclose(weights[:-1], expected[1], atol=1e-4)


def test_it_learns_what_cosine_does_not_see(named_pairs, items_give_the_values):
    random = np.random.default_rng(0)
    table = {}

    def pairs(task, *, split, **_):
        count = {"train": 200, "dev": 60, "test": 80}[split]
        first = tuple(f"{split} a {i}" for i in range(count))
        second = tuple(f"{split} b {i}" for i in range(count))
        u, v = random.normal(size=(2, count, 3))
        table.update(zip(first, u, strict=True))
        table.update(zip(second, v, strict=True))
        scores = np.clip(5 - 2 * np.abs(u - v)[:, 0], 1, 5)
        return (ScoredPairs(task, first, second, scores),)

    named_pairs(pairs)

    def encode(texts):
        return np.array([table[text] for text in texts], dtype=np.float32)

    report = relatedness(encode, tasks=("SICKR",), resamples=50)
    row = report.one(metric="pearson", split="test")
    assert row.value > 0.7
    assert row.low < row.value < row.high
    assert (row.aggregate, items_give_the_values(report)) == ("regressor", 2)
    assert report.one(metric="pearson", split="dev").count == 60
    with pytest.raises(OptionError, match="no regressor"):
        relatedness(lambda s: s, tasks=("STS12",))
