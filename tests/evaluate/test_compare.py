"""Comparisons of methods: false findings on A/A, power on planted gains, what is refused."""

import numpy as np
import pytest

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.evaluate import compare as module
from contrasent.evaluate import power
from contrasent.evaluate.compare import compare_reports, compare_sts
from contrasent.report import Report, Row
from contrasent.text.datasets import ScoredPairs
from contrasent.text.official import STS_TASKS

PAIRS = 120
GOLD = np.random.default_rng(0).integers(0, 11, PAIRS) / 2


def pairs(task):
    first = tuple(f"{task} a {i}" for i in range(PAIRS))
    second = tuple(f"{task} b {i}" for i in range(PAIRS))
    return (ScoredPairs(task, first, second, GOLD, "here"),)


@pytest.fixture(autouse=True)
def data(monkeypatch):
    monkeypatch.setattr(module, "sts_pairs", lambda task, **_: pairs(task))


def model(noise, seed):
    """Angles between a pair's vectors fall with the gold score, plus a run's own noise."""
    random = np.random.default_rng(seed)
    angles = {}

    def encode(sentences):
        vectors = []
        for s in sentences:
            task, side, i = s.split()
            key = (task, i)
            if key not in angles:
                angles[key] = 1.5 - GOLD[int(i)] / 5 + noise * random.normal()
            angle = 0.0 if side == "a" else angles[key]
            vectors.append((np.cos(angle), np.sin(angle)))
        return np.array(vectors, dtype=np.float32)

    return encode


def test_one_run_an_arm_is_a_paired_bootstrap_over_pairs():
    (found,) = compare_sts([model(0.8, 1)], [model(0.1, 2)], tasks=("STSB",), resamples=400)
    assert found.difference == pytest.approx(found.after - found.before)
    assert 0 < found.low < found.difference < found.high
    assert found.runs == (1, 1)
    assert found.seed_p is found.deviation is found.detectable is found.needed is None
    assert "STSB" in found.line()


def test_the_mean_of_seven_is_compared_as_well():
    found = compare_sts([model(0.8, 1), model(0.8, 2)], [model(0.2, 3)] * 2, resamples=200)
    assert [c.task for c in found] == [*STS_TASKS, "STS7"]
    assert found[-1].difference == pytest.approx(np.mean([c.difference for c in found[:-1]]))
    assert found[-1].deviation > 0
    assert "over seeds" in found[-1].line()
    assert len(compare_sts([model(1, 1)], [model(1, 2)], tasks=("STSB",), resamples=50)) == 1


def runs(random, count, gain, spread=0.3, noise=1.0):
    """Similarities of several runs of a method on fixed pairs: a seed moves the noise's size."""
    size = np.exp(spread * random.normal(size=count)) * noise * np.exp(-gain)
    return [GOLD + s * random.normal(size=PAIRS) * 2 for s in size]


def shares(gain, trials, count, seed):
    random = np.random.default_rng(seed)
    found = 0
    for trial in range(trials):
        a, b = runs(random, count, 0.0), runs(random, count, gain)
        values = [[metrics.spearman(s, GOLD) for s in arm] for arm in (a, b)]
        moved = module._moved(a, b, GOLD, [PAIRS], 120, (trial, 0))
        result = module._compare("t", "spearman", *values, moved, PAIRS, trial)
        assert result.low <= result.difference <= result.high
        found += result.p < 0.05
    return found / trials


@pytest.mark.parametrize("count", [2, 3, 5])
def test_equal_methods_are_found_different_at_most_as_often_as_promised(count):
    trials = 200
    assert shares(0.0, trials, count, count) <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / trials)


def test_a_planted_gain_is_found():
    """Three standard deviations of the seeds: five runs an arm find it almost always."""
    assert power.power(0.9, 0.3, 5) > 0.95
    assert shares(0.9, 60, 5, 9) > 0.85


def report(value):
    return Report((Row("STSB", "test", "spearman", "all", value, 1379),))


def test_reports_are_compared_over_seeds():
    before = [report(v) for v in (0.70, 0.71, 0.72)]
    after = [report(v) for v in (0.80, 0.81, 0.82)]
    (found,) = compare_reports(before, after)
    assert found.difference == pytest.approx(0.1)
    assert found.low > 0
    # Student's t with 4 degrees of freedom, standard error 0.01 * sqrt(2/3).
    assert found.high - found.low == pytest.approx(2 * 2.776 * 0.00816, rel=0.15)
    assert found.seed_p == pytest.approx(0.1)
    assert found.needed == 2
    with pytest.raises(DataError, match="at least two an arm"):
        compare_reports(before[:1], after)
    with pytest.raises(DataError, match="no row in common"):
        compare_reports(before, [Report(()), Report(())])
