"""Ranks against a plain sort, ties against the model, blocks that do not matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrasent.errors import DataError, OptionError
from contrasent.evaluate import retrieval as module
from contrasent.evaluate.retrieval import rank_documents, rank_vectors, retrieval


def loop_ranks(query, documents, judged):
    """Walk the documents from the best score down; the least gain first where scores are equal."""
    scores = [
        float(np.dot(query, d) / np.linalg.norm(query) / np.linalg.norm(d)) for d in documents
    ]
    order = sorted(range(len(documents)), key=lambda i: (-round(scores[i], 5), judged.get(i, 0)))
    return [(place, judged[i]) for place, i in enumerate(order, start=1) if i in judged]


@given(st.integers(1, 6), st.integers(2, 12), st.integers(0, 10_000))
def test_ranks_are_those_of_a_sort(queries, documents, seed):
    random = np.random.default_rng(seed)
    # Few small integers, so that equal vectors and equal cosines are common.
    q = random.integers(1, 4, (queries, 2)).astype(np.float32)
    d = random.integers(1, 4, (documents, 2)).astype(np.float32)
    judged = [
        {
            int(i): float(random.integers(1, 4))
            for i in random.choice(documents, random.integers(1, min(6, documents + 1)), False)
        }
        for _ in range(queries)
    ]
    found = rank_vectors(q, d, judged)
    for row, gains, query, relevant in zip(found.ranks, found.gains, q, judged, strict=True):
        expected = loop_ranks(query, d, relevant)
        assert list(zip(row.tolist(), gains.tolist(), strict=True)) == expected


def test_relevant_documents_of_all_but_equal_scores_are_ordered_against_the_model():
    """Cosines a rounding apart are a tie: the document of gain 1 stands before that of gain 3."""
    scores = np.array([0.9, 0.5 + 2e-7, 0.5, 0.5 - 2e-7], dtype=np.float32)
    ranks, gains = module._ranks(scores, {1: 3.0, 2: 1.0})
    # The irrelevant third document ties with both, the first is better than both.
    assert (ranks.tolist(), gains.tolist()) == ([3, 4], [1.0, 3.0])


def test_blocks_do_not_change_ranks(monkeypatch):
    random = np.random.default_rng(2)
    q, d = random.normal(size=(70, 9)), random.normal(size=(300, 9))
    judged = [{i: 1.0} for i in range(70)]
    whole = rank_vectors(q, d, judged)
    monkeypatch.setattr(module, "BLOCK", 700)
    assert np.array_equal(rank_vectors(q, d, judged).first(), whole.first())


def test_a_model_without_an_opinion_comes_last():
    def same(sentences):
        return np.ones((len(sentences), 3), dtype=np.float32)

    report = retrieval(same, ["q"], [f"d{i}" for i in range(50)], [0], k=(1, 10))
    assert [row.value for row in report] == [0.0] * 4
    ranking = rank_documents(same, ["q"], ["a", "b", "c"], [1])
    assert ranking.first().tolist() == [3]


def one_hot(sentences):
    """'x1' and 'y1' share a direction; what has no digit points nowhere."""
    vectors = np.zeros((len(sentences), 100), dtype=np.float32)
    for i, s in enumerate(sentences):
        digits = "".join(c for c in s if c.isdigit())
        if digits:
            vectors[i, int(digits)] = 1
    return vectors


def test_a_perfect_model_scores_one_and_rows_are_named():
    queries, documents = [f"x{i}" for i in range(40)], [f"y{i}" for i in range(80)]
    report = retrieval(one_hot, queries, documents, list(range(40)), k=(10, 1), task="captions")
    assert [row.metric for row in report] == ["mrr@10", "recall@1", "recall@10", "ndcg@10"]
    assert all(row.value == 1.0 and row.count == 40 and row.task == "captions" for row in report)
    assert report.notes["documents"] == 80


def test_several_relevant_documents_and_gains():
    ranking = rank_documents(one_hot, ["x1"], ["y1", "y2", "y3"], [{0: 2.0, 2: 1.0}])
    # y2 and y3 tie at cosine 0: the irrelevant one stands first.
    assert ranking.ranks[0].tolist() == [1, 3]
    assert ranking.recall(1).tolist() == [0.5]
    assert ranking.reciprocal(1).tolist() == [1.0]
    best = 2 / np.log2(2) + 1 / np.log2(3)
    assert ranking.ndcg(3)[0] == pytest.approx((2 / np.log2(2) + 1 / np.log2(4)) / best)


@pytest.mark.parametrize(
    ("queries", "relevant", "message"),
    [
        ([], [], "no queries"),
        (["x1"], [], "relevant documents for 0"),
        (["x1"], [[]], "query 0 has no relevant"),
        (["x1"], [3], "relevant document 3, but there are 3"),
        (["x1"], [-1], "relevant document -1"),
        (["x1"], [{0: 0.0}], "gain 0.0, not above 0"),
    ],
)
def test_bad_judgements_are_refused(queries, relevant, message):
    with pytest.raises(DataError, match=message):
        retrieval(one_hot, queries, ["y1", "y2", "y3"], relevant)


def test_bad_cuts_are_refused():
    with pytest.raises(OptionError, match="k"):
        retrieval(one_hot, ["x1"], ["y1"], [0], k=(0,))
