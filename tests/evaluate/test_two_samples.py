"""The two-sample test against loops, its errors on samples of one distribution, and its power."""

from dataclasses import replace

import numpy as np
import pytest

from contrasent.errors import UserError
from contrasent.evaluate.two_samples import compare_samples


def drawn(random, documents, texts=1, *, spread=0.0, shift=0.0, size=6):
    """Rows of documents whose texts share a middle of their own, and the documents' names."""
    middles = spread * random.standard_normal((documents, 1, size))
    rows = middles + random.standard_normal((documents, texts, size)) + shift
    return rows.reshape(-1, size).astype(np.float32), np.repeat(np.arange(documents), texts)


def named(side, documents):
    return [f"{side}{document}" for document in documents]


def test_the_discrepancy_is_that_of_the_equation():
    """Gretton et al. (2012), eq. 3, on the mean kernel of each pair of documents, by loops."""
    random = np.random.default_rng(0)
    old, new = random.standard_normal((26, 4)), random.standard_normal((31, 4)) + 0.5
    which = [random.permutation(np.arange(len(rows)) % 11) for rows in (old, new)]
    rows = [r / np.linalg.norm(r, axis=1, keepdims=True) for r in (old, new)]
    pooled = np.concatenate(rows)
    width = np.median([((a - b) ** 2).sum() for a in pooled for b in pooled])

    def kernel(x, y):
        return np.mean([np.exp(-((a - b) ** 2).sum() / width) for a in x for b in y])

    groups = [[side[own == d] for d in range(11)] for side, own in zip(rows, which, strict=True)]

    def inside(side):
        pairs = [kernel(x, y) for i, x in enumerate(side) for j, y in enumerate(side) if i != j]
        return np.mean(pairs)

    between = np.mean([kernel(x, y) for x in groups[0] for y in groups[1]])
    expected = inside(groups[0]) + inside(groups[1]) - 2 * between
    found = compare_samples(
        old.astype(np.float32),
        new.astype(np.float32),
        old_documents=named("a", which[0]),
        new_documents=named("b", which[1]),
    )
    assert found.mmd == pytest.approx(expected, abs=1e-5)
    assert (found.old, found.new) == (11, 11)


def test_of_samples_of_one_distribution_one_in_twenty_is_an_alarm_though_texts_come_in_documents():
    """And where the documents are not known, half of them are."""
    runs, alarms, blind, accuracies = 120, 0, 0, []
    for seed in range(runs):
        random = np.random.default_rng(seed)
        rows, documents = drawn(random, 30, 4, spread=1.5)
        old, new = documents < 15, documents >= 15
        found = compare_samples(
            rows[old],
            rows[new],
            old_documents=named("d", documents[old]),
            new_documents=named("d", documents[new]),
            permutations=39,
            seed=seed,
        )
        alarms += found.p <= 0.05
        accuracies.append(found.accuracy)
        blind += compare_samples(rows[old], rows[new], permutations=39, seed=seed).p <= 0.05
    # 120 runs at a level of 1 in 20: none, or 13 or more, have a probability of 1 %.
    assert 1 <= alarms <= 12
    assert blind > 36
    error = np.std(accuracies) / runs**0.5
    assert abs(np.mean(accuracies) - 0.5) < 4 * error < 0.05


def test_a_shift_is_found_and_its_size_is_told():
    random = np.random.default_rng(1)
    old, _ = drawn(random, 400)
    slight, far = drawn(random, 400, shift=0.15)[0], drawn(random, 400, shift=2.0)[0]
    small, large = compare_samples(old, slight), compare_samples(old, far)
    # Both are certain, and only one of them is far.
    assert small.p <= 0.01
    assert large.p == 0.001
    assert 0.5 < small.accuracy < 0.65 < 0.9 < large.accuracy
    assert small.low < small.accuracy < small.high < large.low
    assert small.mmd < large.mmd


def test_neither_order_nor_a_second_run_changes_anything_and_the_seed_does():
    random = np.random.default_rng(2)
    (old, first), (new, second) = drawn(random, 20, 3), drawn(random, 15, 2)
    arguments = {"old_documents": named("a", first), "new_documents": named("b", second)}
    found = compare_samples(old, new, **arguments, permutations=199)
    turns = random.permutation(len(old)), random.permutation(len(new))
    turned = compare_samples(
        old[turns[0]],
        new[turns[1]],
        old_documents=named("x", first[turns[0]]),
        new_documents=named("y", second[turns[1]]),
        permutations=199,
    )
    assert turned == found
    other = compare_samples(old, new, **arguments, permutations=199, seed=1)
    assert other.p != found.p
    assert replace(other, p=found.p, low=0, high=0, accuracy=0) == replace(
        found, low=0, high=0, accuracy=0
    )


def test_copies_on_both_sides_are_no_drift():
    rows = drawn(np.random.default_rng(3), 40)[0]
    assert compare_samples(rows, rows).p == 1.0
    same = np.ones((12, 5), dtype=np.float32)
    found = compare_samples(same, same)
    assert (found.p, found.mmd) == (1.0, pytest.approx(0.0, abs=1e-6))


def test_too_few_documents_are_refused():
    rows = drawn(np.random.default_rng(4), 40)[0]
    with pytest.raises(UserError, match="40 old and 9 new documents"):
        compare_samples(rows, rows[:9])
    with pytest.raises(UserError, match="1 old and 40 new"):
        compare_samples(rows, rows, old_documents=["one"] * 40)
