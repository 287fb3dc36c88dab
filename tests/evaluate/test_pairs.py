"""A user's own labelled pairs."""

import numpy as np
import pytest

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.evaluate.sts import check_pairs, pairs, several_pairs


def letters(sentences):
    return np.array([[s.count(c) + 0.01 for c in "abcdefgh"] for s in sentences], dtype=np.float32)


def made(count):
    random = np.random.default_rng(1)
    alphabet = list("abcdefgh")
    first = ["".join(random.choice(alphabet, 6)) for _ in range(count)]
    second = ["".join(random.choice(alphabet, 6)) for _ in range(count)]
    return first, second, random.normal(size=count)


def test_values_are_the_correlations():
    first, second, scores = made(60)
    report = pairs(letters, first, second, scores)
    similarity = metrics.cosine(letters(first), letters(second))
    for name, measure in (("spearman", metrics.spearman), ("pearson", metrics.pearson)):
        row = report.one(metric=name)
        assert row.value == pytest.approx(measure(similarity, scores), abs=1e-12)
        assert row.low < row.value < row.high
        assert (row.count, row.split) == (60, "heldout")


def test_the_average_of_several_files_is_of_their_unrounded_values(items_give_the_values):
    files = {name: check_pairs(*made(count), name) for name, count in (("a", 40), ("b", 60))}
    report = several_pairs(letters, files)
    assert items_give_the_values(report) == 6
    for metric in ("spearman", "pearson"):
        rows = [report.one(task=name, metric=metric) for name in files]
        mean = report.one(task="pairs", metric=metric, aggregate="mean")
        assert mean.value == pytest.approx((rows[0].value + rows[1].value) / 2, abs=1e-15)
        assert mean.count == 100
        assert mean.low < mean.value < mean.high
    few = several_pairs(letters, {**files, "c": check_pairs(*made(12), "c")})
    assert few.one(task="pairs", metric="spearman").low is None
    assert "12 pairs are too few" in few.notes["interval"]


def test_few_pairs_have_a_value_and_a_note_but_no_interval():
    report = pairs(letters, *made(12))
    assert report.rows[0].low is None
    assert "too few" in report.notes["interval"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, s, g: (f[:-1], s, g), "39 first sentences, 40 second sentences and 40 labels"),
        (lambda f, s, g: (f[:2], s[:2], g[:2]), "2 labelled pairs; at least 3"),
        (lambda f, s, g: (f, s, np.where(np.arange(40) == 4, np.nan, g)), "label of pair 5 is nan"),
        (lambda f, s, g: (f, s, np.ones(40)), "all labels are 1"),
        (lambda f, s, g: (f, f, g), "all 40 cosines are 1.0000"),
    ],
)
def test_bad_pairs_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        pairs(letters, *change(*made(40)))
