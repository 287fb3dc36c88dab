"""Comparisons of methods: their intervals, and what is rejected."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from contrasent.datasets.official import STS_TASKS
from contrasent.errors import DataError, OptionError
from contrasent.evaluate import sts as module
from contrasent.evaluate.compare import SEED_SD, MethodComparison, compare_reports, comparison_table
from contrasent.report import Items, Report, Row
from contrasent.text.corpus import ScoredPairs

PAIRS = 120
GOLD = np.random.default_rng(0).integers(0, 11, PAIRS) / 2


def pairs(task):
    first = tuple(f"{task} a {i}" for i in range(PAIRS))
    second = tuple(f"{task} b {i}" for i in range(PAIRS))
    return (ScoredPairs(task, first, second, GOLD),)


@pytest.fixture(autouse=True)
def data(named_pairs):
    named_pairs(lambda task, **_: pairs(task))


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


def compare_sts(before, after, *, tasks=STS_TASKS, seed_sd=None):
    arms = [
        [module.sts(m, tasks=tasks, resamples=0).select(metric="spearman") for m in models]
        for models in (before, after)
    ]
    return compare_reports(*arms, seed_sd=seed_sd)


def test_one_run_an_arm_is_about_two_models_or_widened_for_the_methods():
    arms = [model(0.8, 1)], [model(0.1, 2)]
    (found,) = compare_sts(*arms, tasks=("STSB",))
    assert found.difference == pytest.approx(found.after - found.before)
    assert 0 < found.item_low < found.difference < found.item_high
    assert found.runs == (1, 1)
    assert found.deviation is None
    assert found.seed_sd == SEED_SD / 100
    # Both sources add up as squares: two runs with the assumed standard deviation.
    half = np.sqrt(((found.item_high - found.item_low) / 2) ** 2 + 2 * (1.96 * 0.012) ** 2)
    assert found.high - found.difference == pytest.approx(half, rel=1e-4)
    assert "STSB test spearman all" in found.line()
    assert "these models alone: [" in found.line()
    (alone,) = compare_sts(*arms, tasks=("STSB",), seed_sd=0.0)
    assert (alone.low, alone.high, alone.p) == (found.item_low, found.item_high, found.item_p)
    with pytest.raises(OptionError, match="0 or more"):
        compare_sts(*arms, tasks=("STSB",), seed_sd=-1.0)


def test_the_mean_of_seven_is_compared_as_well():
    found = compare_sts([model(0.8, 1), model(0.8, 2)], [model(0.2, 3), model(0.2, 4)])
    assert [c.task for c in found] == [*STS_TASKS, "STS7"]
    assert found[-1].difference == pytest.approx(np.mean([c.difference for c in found[:-1]]))
    assert found[-1].deviation > 0
    assert found[-1].item_high - found[-1].item_low < found[0].item_high - found[0].item_low
    assert "sd over seeds " in found[-1].line()
    assert len(compare_sts([model(1, 1)], [model(1, 2)], tasks=("STSB",))) == 1


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (3, 3), (2, 5)])
def test_swapping_the_arms_mirrors_the_interval_to_the_bit(sizes):
    a, b = ([model(0.5, 10 * side + i) for i in range(n)] for side, n in enumerate(sizes))
    (there,), (back,) = (compare_sts(*arms, tasks=("STSB",)) for arms in ((a, b), (b, a)))
    assert (there.low, there.high, there.p) == (-back.high, -back.low, back.p)
    assert (there.item_low, there.item_p) == (-back.item_high, back.item_p)


def report(value, **items):
    return Report((Row("STSB", "test", "spearman", "all", value, 1379),), {}, items)


def test_reports_without_items_are_compared_over_seeds():
    before, after = ([report(v + n / 100) for n in range(3)] for v in (0.7, 0.8))
    (found,) = compare_reports(before, after)
    assert found.difference == pytest.approx(0.1)
    # Student's t with 4 degrees of freedom (tables), standard error 0.01 * sqrt(2/3).
    assert found.high - found.low == pytest.approx(2 * 2.776445 * 0.01 * np.sqrt(2 / 3))
    assert found.deviation == pytest.approx(0.01)
    assert found.item_low is found.item_p is found.seed_sd is None
    assert found.verdict == "B is higher"
    for arms, message in (
        ((before[:1], after[:1]), "contain no item"),
        ((before, [Report(()), Report(())]), "no row in common"),
        ((before, []), "at least one model"),
    ):
        with pytest.raises(DataError, match=message):
            compare_reports(*arms)
    # A single run has the other arm's spread, unless it is said.
    single, several = [report(0.70)], [report(v) for v in (0.72, 0.73, 0.74)]
    (found,) = compare_reports(single, several)
    # Standard error 0.01 * sqrt(1 + 1/3), t with 2 degrees of freedom (tables).
    assert found.high - found.difference == pytest.approx(4.302653 * 0.01 * np.sqrt(4 / 3))
    (fixed,) = compare_reports(single, several, seed_sd=0.0)
    assert fixed.high - fixed.difference == pytest.approx(4.302653 * 0.01 * np.sqrt(1 / 3))


def scored(values, keys=None, task="own", context="", metric="accuracy"):
    keys = np.arange(len(values), dtype=np.uint64) if keys is None else np.array(keys, np.uint64)
    row = Row(task, "test", metric, "", float(np.mean(values)), len(values))
    items = Items("mean", keys, np.array([values], dtype=float), context=context)
    return Report((row,), {}, {row.key: items})


def test_what_runs_share_is_counted_once():
    """Three runs an arm: over items and over seeds, less how far other items move runs apart."""
    random = np.random.default_rng(4)
    level = random.random(40)
    runs = [level + 0.1 * arm + 0.3 * random.normal(size=(3, 40)) for arm in (0, 1)]
    (found,) = compare_reports(*([scored(run) for run in arm] for arm in runs))
    moved, scale = [(arm - arm.mean(1, keepdims=True)) / 40 for arm in runs], 40 / 39
    items = ((moved[1].mean(0) - moved[0].mean(0)) ** 2).sum() * scale
    test = stats.ttest_ind(runs[1].mean(1), runs[0].mean(1), equal_var=False)
    low, high = test.confidence_interval()
    shared = sum(((own - own.mean(0)) ** 2).sum() / 2 * scale / 3 for own in moved)
    half = stats.t.ppf(0.975, 39) ** 2 * items + ((high - low) / 2) ** 2
    half -= stats.norm.ppf(0.975) ** 2 * shared
    assert found.high - found.difference == pytest.approx(np.sqrt(half))


def test_the_page_shows_what_is_printed():
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    found = MethodComparison(
        "STSB", "spearman", 0.3393, 0.3508, 0.0115, -0.0061, 0.0291, 0.1167, (3, 3), 0.0059,
        1379, "test", "all",
    )  # fmt: skip
    assert found.line() in page


def test_copies_of_a_run_are_no_seeds():
    random = np.random.default_rng(3)
    one, two, three = (scored(random.random(40)) for _ in range(3))
    copy = Report(one.rows, {}, dict(one.items))
    for arms in (([one, copy], [two]), ([two], [one, three, copy])):
        with pytest.raises(
            DataError, match=r"[AB] 1 and [AB] \d have the same score on every item"
        ):
            compare_reports(*arms)
    assert compare_reports([one], [copy])[0].difference == 0  # a model and its exact copy
    right = scored([0.0, 1.0] * 20)
    assert compare_reports([right, scored([0.0, 1.0] * 20)], [right])  # may be by chance
    with pytest.raises(OptionError, match=r"seed_sd 0.5: is for a model with one run"):
        compare_reports([one, two], [three, two], seed_sd=0.5)


def test_a_spread_in_points_is_assumed_of_points_alone():
    single, *several = [
        Report.join([scored([v, v + 0.1] * 10), scored([v, v + 0.1] * 10, metric="uniformity")])
        for v in (0.70, 0.72, 0.73, 0.74)
    ]
    found = compare_reports([single], several, seed_sd=1.2)
    assert [one.seed_sd for one in found] == [0.012, None]
    assert found[1].high == compare_reports([single], several)[1].high
    table = comparison_table(["a"], ["b"], [single, *several], found, 1.2)
    assert "1.2 points (--seed-sd), or the other model's for scores not in points" in table


def test_what_is_left_out_is_told_with_what_helps():
    both = scored([0.5, 0.6] * 10), scored([0.2, 0.3] * 10, metric="anisotropy")
    bare = Report.join([both[0], Report(both[1].rows)])
    for seed_sd, words in ((0.0, "the reports contain no item"), (None, "or --seed-sd 0 if")):
        table = comparison_table(
            ["a"], ["b"], [bare] * 2, compare_reports([bare], [bare], seed_sd=seed_sd), seed_sd
        )
        assert words in table and ("--seed-sd 0" in table) == (seed_sd is None)
        assert "not compared: anisotropy: " in table


def test_items_are_paired_by_their_identity_and_not_by_their_place():
    random = np.random.default_rng(0)
    a = random.random(50)
    b = a + 0.1 + 0.01 * random.normal(size=50)
    order = random.permutation(50)
    (found,) = compare_reports([scored(a)], [scored(b)], seed_sd=0)
    (other,) = compare_reports([scored(a)], [scored(b[order], order)], seed_sd=0)
    # The paired t test.
    error = np.std(b - a, ddof=1) / np.sqrt(50)
    assert found.high - found.difference == pytest.approx(2.009575 * error)  # t, 49 (tables)
    assert (other.low, other.high) == pytest.approx((found.low, found.high))


def test_an_item_of_two_sets_counts_once_in_their_mean():
    random = np.random.default_rng(1)
    a, b = random.random((2, 40))

    def both(values):
        one, two = scored(values, task="one"), scored(values, task="two")
        mean = Row("mean", "test", "accuracy", "", float(np.mean(values)), 80)
        keys = (one.rows[0].key, two.rows[0].key)
        return Report((*one.rows, *two.rows, mean), {}, {**one.items, **two.items, mean.key: keys})

    one, _, mean = compare_reports([both(a)], [both(b)], seed_sd=0)
    assert (mean.low, mean.high) == pytest.approx((one.low, one.high))


def test_a_handful_of_items_is_not_compared_however_alike_they_move(caplog):
    few = [scored([v] * 19, task="few") for v in (0.0, 1.0)]
    with pytest.raises(DataError, match="few test accuracy has 19; 20 are needed"):
        compare_reports(*([report] for report in few), seed_sd=0)
    with pytest.raises(DataError, match="has 1; 20"):
        compare_reports([scored([0.5] * 20, [7] * 20)], [scored([0.6] * 20, [7] * 20)])
    many = [scored([v, v + 0.1] * 10, task="many") for v in (0.1, 0.2)]
    both = [Report.join(pair) for pair in zip(few, many, strict=True)]
    (found,) = compare_reports(both[:1], both[1:], seed_sd=0)
    assert found.task == "many"
    assert "too few distinct items to compare: few test accuracy has 19" in caplog.text
    # Equal texts are one item. Of what has no items at all, the table tells.
    keys = [*range(12)] * 2
    alike = [scored([v, v + 0.1] * 12, keys, metric="anisotropy") for v in (0.1, 0.2)]
    bare = Row("bare", "test", "uniformity", "", 0.3, 12)
    both = [Report.join([*pair, Report((bare,))]) for pair in zip(alike, many, strict=True)]
    table = comparison_table(["a"], ["b"], both, compare_reports(both[:1], both[1:], seed_sd=0), 0)
    assert "not compared: uniformity: the reports contain no item scores" in table


def test_means_of_other_numbers_of_sets_are_rejected():
    def mean_of(*tasks):
        parts = [scored([0.2, 0.4], task=task) for task in tasks]
        mean = Row("pairs", "test", "accuracy", "mean", 0.3, 2 * len(tasks))
        items = {key: own for part in parts for key, own in part.items.items()}
        return Report((mean,), {}, {**items, mean.key: tuple(items)})

    words = "pairs test accuracy mean: in x and y it rests on 2 and on 3 sets"
    with pytest.raises(DataError, match=words):
        compare_reports([mean_of("a", "b")], [mean_of("a", "b", "c")], names=["x", "y"])
