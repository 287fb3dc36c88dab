"""Paraphrases, triples and clusters by cosine, against plain loops and scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plain_measures
from contrasent.datasets.labeled import Labeled, Triples, inference_triples, question_pairs
from contrasent.errors import DataError, InputError
from contrasent.evaluate import decisions
from contrasent.evaluate.compare import compare_reports
from contrasent.evaluate.decisions import Thresholds, kmeans, pair_classification
from contrasent.metrics import cosine
from contrasent.stats.bootstrap import draw_counts, item_keys


@given(st.integers(2, 40), st.integers(0, 9999))
def test_precision_and_f1_are_those_of_a_walk_over_thresholds(n, seed):
    random = np.random.default_rng(seed)
    scores = random.integers(0, 8, n) / 8  # ties are common
    labels = random.integers(0, 2, n)
    labels[0], labels[1] = 0, 1
    curve, one = Thresholds(scores, labels), np.ones((1, n))
    expected = plain_measures.average_precision(scores, labels)
    assert curve.average_precision(one)[0] == pytest.approx(expected)
    best = max(plain_measures.curve(scores, labels), key=lambda point: point[2])
    assert curve.best_f1(one)[0] == pytest.approx(best[2])
    assert curve.best_threshold() == pytest.approx(best[3])
    # A resample is the same as its items written out.
    for row in np.concatenate(list(draw_counts([n], 4, seed))):
        items = [i for i in range(n) for _ in range(int(row[i]))]
        if labels[items].any():
            expected = plain_measures.average_precision(scores[items], labels[items])
            assert curve.average_precision(row[None])[0] == pytest.approx(expected)
            best = plain_measures.best_f1(scores[items], labels[items])
            assert curve.best_f1(row[None])[0] == pytest.approx(best)


def letters(sentences):
    return np.array([[s.count(c) + 0.01 for c in "abcdefgh"] for s in sentences], dtype=np.float32)


def made(count, seed=1):
    random = np.random.default_rng(seed)

    def one():
        return "".join(random.choice(list("abcdefgh"), 6))

    first = [one() for _ in range(count)]
    labels = random.integers(0, 2, count)
    # Of class 1: one letter is changed; of class 0: all are; one label in eight is the other one.
    second = ["a" + s[1:] if y else one() for s, y in zip(first, labels, strict=True)]
    labels = np.where(random.random(count) < 1 / 8, 1 - labels, labels)
    return Labeled(tuple(first), tuple(second), labels)


def test_rows_are_the_measures_of_the_cosines(items_give_the_values):
    data = {"one": made(80), "two": made(60, 2)}
    report = pair_classification(letters, data)
    assert items_give_the_values(report) == 4
    assert [(row.task, row.metric, row.count) for row in report] == [
        (task, metric, count)
        for task, count in (("one", 80), ("two", 60))
        for metric in ("ap", "f1_best")
    ]
    for task, found in data.items():
        cosines = cosine(letters(found.first), letters(found.second))
        row = report.one(task=task, metric="ap")
        expected = plain_measures.average_precision(cosines.tolist(), found.labels.tolist())
        assert row.value == pytest.approx(expected)
        assert 0.6 < row.low < row.value < row.high <= 1
        best = Thresholds(cosines, found.labels).best_threshold()
        threshold = report.notes["threshold of the best F1"][task]
        assert threshold == pytest.approx(best, abs=1e-4)
    squared = pair_classification(lambda s: letters(s) ** 2, data)
    one = compare_reports([report], [squared], seed_sd=0)[0]
    other = compare_reports([squared], [report], seed_sd=0)[0]
    assert (one.metric, one.item_p is None) == ("ap", False)
    assert (one.low, one.high, one.p) == (-other.high, -other.low, other.p)
    assert pair_classification(letters, data, resamples=0).rows[0].low is None
    same = Labeled(data["one"].first, data["one"].second, np.ones(80, dtype=np.int64))
    with pytest.raises(DataError, match="one: all 80 pairs have the same class"):
        pair_classification(letters, {"one": same})


def test_triples_are_right_where_the_entailed_sentence_is_nearer(items_give_the_values):
    triples = Triples(
        ("aab", "aab", "cd", "ef"),
        ("aaab", "cd", "cd", "gh"),  # right, wrong, right, a tie
        ("cd", "aaab", "ab", "gh"),
        "here",
    )
    (found,) = decisions.triplet_accuracy(letters, triples).items.values()
    assert found.columns.tolist() == [[1, 0, 1, 0]]
    other = replace(triples, contradicted=("cd", "aaab", "ab", "gg"))
    (its,) = decisions.triplet_accuracy(letters, other).items.values()
    assert its.context != found.context
    assert found.keys[0] == found.keys[1] == item_keys(["aab"])[0]
    columns = triples.premises, triples.entailed, triples.contradicted
    many = Triples(*(column * 10 for column in columns), "x")
    report = decisions.triplet_accuracy(letters, many)
    assert items_give_the_values(report) == 1
    row = report.one(metric="accuracy_triplet")
    assert (row.value, row.count) == (0.5, 40)
    assert row.low < 0.5 < row.high
    few = many.spread(3)
    assert few.premises == tuple(many.premises[i] for i in (0, 19, 39))
    assert few.contradicted == tuple(many.contradicted[i] for i in (0, 19, 39))
    assert len(many.spread(0)) == len(many.spread(99)) == 40
    # Three premises: the interval is that of three items and not of forty.
    assert row.high - row.low > 0.4


def test_files_of_pairs_and_triples_are_read(tmp_path):
    pairs, triples = tmp_path / "qqp" / "qqp_subset.tsv", tmp_path / "nli" / "nli_triples.csv"
    pairs.parent.mkdir()
    triples.parent.mkdir()
    head = "split\tquestion1\tquestion2\tis_duplicate\n"
    pairs.write_text(head + 'train\tx\ty\t0\ntest\t"say ""when"""\thow?\t1\ntest\ta\tb\t0\n')
    found = question_pairs(folder=tmp_path)
    assert (found.first, found.labels.tolist()) == (('say "when"', "a"), [1, 0])
    triples.write_text('sent0,sent1,hard_neg\n"a, b",c,d\n')
    assert inference_triples(folder=str(tmp_path)).premises == ("a, b",)
    for path, text, message in (
        (pairs, head + "test\ta\tb\tyes\n", r"qqp_subset.tsv:2: is_duplicate is 'yes'"),
        (pairs, "a\tb\n", "column 'question1' is missing"),
        (pairs, head, "contains no rows"),
        (triples, "sent0,sent1,hard_neg\na,b\n", r"nli_triples.csv:2: expected sent0"),
        (triples, "sent0,sent1,hard_neg\na,,b\n", r"nli_triples.csv:2: expected sent0"),
    ):
        path.write_text(text)
        with pytest.raises((DataError, InputError), match=message):
            (question_pairs if path is pairs else inference_triples)(folder=tmp_path)
    pairs.unlink()
    with pytest.raises(DataError, match="QQP: not found"):
        question_pairs(folder=tmp_path)


@given(st.integers(1, 30), st.integers(0, 9999))
def test_v_measure_is_the_definition(n, seed):
    random = np.random.default_rng(seed)
    classes, groups = random.integers(0, 3, n).tolist(), random.integers(0, 4, n).tolist()
    counts = np.concatenate(list(draw_counts([n], 3, seed)))
    for row, found in zip(counts, decisions.v_measures(classes, groups, counts), strict=True):
        items = [i for i in range(n) for _ in range(int(row[i]))]
        expected = plain_measures.v_measure([classes[i] for i in items], [groups[i] for i in items])
        assert found == pytest.approx(expected, abs=1e-5)


def planted(count, seed=0, noise=0.05):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    vectors = np.eye(3, 5)[labels] + noise * random.normal(size=(count, 5))
    return labels, (vectors * random.uniform(1, 9, (count, 1))).astype(np.float32)


def test_k_means_finds_groups_by_direction():
    labels, vectors = planted(300)
    starts = [plain_measures.v_measure(labels, kmeans(vectors, 3, (0, i))) for i in range(5)]
    assert max(starts) == pytest.approx(1.0)
    assert np.array_equal(kmeans(vectors, 3, 4), kmeans(vectors, 3, 4))
    assert set(kmeans(np.ones((6, 2), dtype=np.float32), 3, 0).tolist()) <= {0, 1, 2}


def test_the_row_is_the_mean_over_starts(items_give_the_values):
    labels, vectors = planted(120, noise=0.4)
    texts = tuple(f"text {i}" for i in range(120))

    def encode(sentences):
        return vectors[[int(s.split()[1]) for s in sentences]]

    data = {"here": Labeled(texts, None, labels)}
    report = decisions.clustering(encode, data, starts=3)
    assert items_give_the_values(report) == 1
    row = report.one(metric="v_measure")
    found = [kmeans(vectors, 3, (0, start)).tolist() for start in range(3)]
    expected = np.mean([plain_measures.v_measure(labels.tolist(), groups) for groups in found])
    assert row.value == pytest.approx(expected, abs=1e-5)
    assert row.low < row.value < row.high
    assert row.count == 120
