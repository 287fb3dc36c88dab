"""Paraphrases and triples told by cosine, against plain loops; what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent.errors import DataError, InputError
from contrasent.evaluate.compare import compare_reports
from contrasent.evaluate.decisions import (
    Thresholds,
    pair_classification,
    triplet_accuracy,
)
from contrasent.metrics import cosine
from contrasent.stats.bootstrap import draw_counts, item_keys
from contrasent.text.labelled import Labelled, Triples, inference_triples, question_pairs


def loop_curve(scores, labels):
    """(precision, recall, F1) at each distinct score, from the largest down."""
    found = []
    for threshold in sorted(set(scores), reverse=True):
        taken = [y for x, y in zip(scores, labels, strict=True) if x >= threshold]
        hits = sum(taken)
        f1 = 2 * hits / (len(taken) + sum(labels))
        found.append((hits / len(taken), hits / sum(labels), f1, threshold))
    return found


def loop_average_precision(scores, labels):
    total, before = 0.0, 0.0
    for precision, recall, _, _ in loop_curve(scores, labels):
        total += precision * (recall - before)
        before = recall
    return total


@given(st.integers(2, 40), st.integers(0, 9999))
def test_precision_and_f1_are_those_of_a_walk_over_thresholds(n, seed):
    random = np.random.default_rng(seed)
    scores = random.integers(0, 8, n) / 8  # ties are common
    labels = random.integers(0, 2, n)
    labels[0], labels[1] = 0, 1
    curve, one = Thresholds(scores, labels), np.ones((1, n))
    expected = loop_average_precision(scores, labels)
    assert curve.average_precision(one)[0] == pytest.approx(expected)
    best = max(loop_curve(scores, labels), key=lambda point: point[2])
    assert curve.best_f1(one)[0] == pytest.approx(best[2])
    assert curve.best_threshold() == pytest.approx(best[3])
    # A resample is the same as its items written out.
    for row in np.concatenate(list(draw_counts([n], 4, seed))):
        items = [i for i in range(n) for _ in range(int(row[i]))]
        if labels[items].any():
            found = curve.average_precision(row[None])[0]
            assert found == pytest.approx(loop_average_precision(scores[items], labels[items]))
            f1 = max(point[2] for point in loop_curve(scores[items], labels[items]))
            assert curve.best_f1(row[None])[0] == pytest.approx(f1)


def test_average_precision_is_scikit_learns():
    learn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(2)
    labels = random.integers(0, 2, 500)
    scores = np.round(random.normal(size=500) + labels, 1)
    found = Thresholds(scores, labels).average_precision(np.ones((1, 500)))[0]
    assert found == pytest.approx(learn.average_precision_score(labels, scores), abs=1e-12)


def letters(sentences):
    return np.array([[s.count(c) + 0.01 for c in "abcdefgh"] for s in sentences], dtype=np.float32)


def made(count, seed=1):
    random = np.random.default_rng(seed)
    first = ["".join(random.choice(list("abcdefgh"), 6)) for _ in range(count)]
    labels = random.integers(0, 2, count)
    # Of class 1: one letter is changed; of class 0: all are; one label in eight is the other one.
    second = ["a" + s[1:] if y else made_one(random) for s, y in zip(first, labels, strict=True)]
    labels = np.where(random.random(count) < 1 / 8, 1 - labels, labels)
    return Labelled(tuple(first), tuple(second), labels)


def made_one(random):
    return "".join(random.choice(list("abcdefgh"), 6))


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
        expected = loop_average_precision(cosines.tolist(), found.labels.tolist())
        assert row.value == pytest.approx(expected)
        assert 0.6 < row.low < row.value < row.high <= 1
        threshold = report.notes["threshold of the best F1"][task]
        assert threshold == pytest.approx(
            Thresholds(cosines, found.labels).best_threshold(), abs=1e-4
        )
    (one, *_), (other, *_) = (
        compare_reports(*arms, seed_sd=0)
        for other in [pair_classification(lambda s: letters(s) ** 2, data)]
        for arms in (([report], [other]), ([other], [report]))
    )
    assert (one.metric, one.item_p is None) == ("ap", False)
    assert (one.low, one.high, one.p) == (-other.high, -other.low, other.p)
    assert pair_classification(letters, data, resamples=0).rows[0].low is None
    same = Labelled(data["one"].first, data["one"].second, np.ones(80, dtype=np.int64))
    with pytest.raises(DataError, match="one: all 80 pairs are of one class"):
        pair_classification(letters, {"one": same})


def test_triples_are_right_where_the_entailed_sentence_is_nearer(items_give_the_values):
    triples = Triples(
        ("aab", "aab", "cd", "ef"),
        ("aaab", "cd", "cd", "gh"),  # right, wrong, right, a tie
        ("cd", "aaab", "ab", "gh"),
        "here",
    )
    (found,) = triplet_accuracy(letters, triples).items.values()
    assert found.columns.tolist() == [[1, 0, 1, 0]]
    assert found.keys[0] == found.keys[1] == item_keys(["aab"])[0]
    many = Triples(
        *(column * 10 for column in (triples.premises, triples.entailed, triples.contradicted)), "x"
    )
    report = triplet_accuracy(letters, many)
    assert items_give_the_values(report) == 1
    row = report.one(metric="accuracy_triplet")
    assert (row.value, row.count) == (0.5, 40)
    assert row.low < 0.5 < row.high
    # Three premises: the interval is that of three items and not of forty.
    assert row.high - row.low > 0.4


def test_triples_are_taken_at_equal_distances():
    columns = [tuple(f"{side}{i}" for i in range(11)) for side in "pqr"]
    few = Triples(*columns, "here").spread(3)
    assert few.premises == ("p0", "p5", "p10")
    assert few.contradicted == ("r0", "r5", "r10")
    assert (
        len(Triples(*columns, "here").spread(0)) == len(Triples(*columns, "here").spread(99)) == 11
    )


def test_files_of_pairs_and_triples_are_read(tmp_path):
    (tmp_path / "qqp").mkdir()
    (tmp_path / "nli").mkdir()
    pairs, triples = tmp_path / "qqp" / "qqp_subset.tsv", tmp_path / "nli" / "nli_triples.csv"
    head = "split\tquestion1\tquestion2\tis_duplicate\n"
    pairs.write_text(head + 'train\tx\ty\t0\ntest\t"say ""when"""\thow?\t1\ntest\ta\tb\t0\n')
    found = question_pairs(folder=tmp_path)
    assert found.first == ('say "when"', "a")
    assert found.labels.tolist() == [1, 0]
    triples.write_text('sent0,sent1,hard_neg\n"a, b",c,d\n')
    assert inference_triples(folder=tmp_path).premises == ("a, b",)
    for path, text, message in (
        (pairs, head + "test\ta\tb\tyes\n", r"qqp_subset.tsv:2: is_duplicate is 'yes'"),
        (pairs, "a\tb\n", "no column 'question1'"),
        (pairs, head, "holds no rows"),
        (triples, "sent0,sent1,hard_neg\na,b\n", r"nli_triples.csv:2: 2 columns where"),
        (triples, "sent0,sent1,hard_neg\na,,b\n", r"nli_triples.csv:2: expected sent0"),
    ):
        path.write_text(text)
        with pytest.raises((DataError, InputError), match=message):
            (question_pairs if path is pairs else inference_triples)(folder=tmp_path)
    pairs.unlink()
    with pytest.raises(DataError, match="QQP: not found"):
        question_pairs(folder=tmp_path)
