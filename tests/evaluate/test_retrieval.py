"""Ranks against a plain sort, ties against the model; named collections, folders, listings."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import collection
from contrasent import metrics
from contrasent.datasets.labeled import Captions
from contrasent.errors import DataError, OptionError
from contrasent.evaluate import retrieval as module
from contrasent.evaluate.compare import compare_reports
from contrasent.evaluate.retrieval import folder_retrieval, rank_vectors, retrieval
from contrasent.metrics import METRICS
from contrasent.text.corpus import ScoredPairs


def loop_ranks(query, documents, judged):
    """Walk the documents from the best score down; the least gain first where scores are equal."""
    size = np.linalg.norm
    scores = [float(np.dot(query, d) / size(query) / size(d)) for d in documents]
    order = sorted(range(len(documents)), key=lambda i: (-round(scores[i], 5), judged.get(i, 0)))
    return [(place, judged[i]) for place, i in enumerate(order, start=1) if i in judged]


@given(st.integers(1, 6), st.integers(2, 12), st.integers(0, 10_000))
def test_ranks_are_those_of_a_sort(queries, documents, seed):
    random = np.random.default_rng(seed)
    # Few small integers, so that equal vectors and equal cosines are common.
    q = random.integers(1, 4, (queries, 2)).astype(np.float32)
    d = random.integers(1, 4, (documents, 2)).astype(np.float32)
    judged = []
    for _ in range(queries):
        some = random.choice(documents, random.integers(1, min(6, documents + 1)), False)
        judged.append({int(i): float(random.integers(1, 4)) for i in some})
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


def test_blocks_do_not_change_ranks():
    random, documents = np.random.default_rng(2), 100_000
    count = 2 * module.BLOCK // documents + 30  # three blocks
    q, d = random.normal(size=(count, 3)), random.normal(size=(documents, 3))
    judged = [{i: 1.0} for i in range(count)]
    alone = [rank_vectors(q[i : i + 1], d, judged[i : i + 1]).ranks[0] for i in range(0, count, 9)]
    assert np.array_equal(rank_vectors(q, d, judged).ranks[::9], alone)


def one_hot(sentences):
    """'x1' and 'y1' share a direction; what has no digit points nowhere."""
    vectors = np.zeros((len(sentences), 100), dtype=np.float32)
    for i, s in enumerate(sentences):
        digits = "".join(c for c in s if c.isdigit())
        if digits:
            vectors[i, int(digits)] = 1
    return vectors


def test_rows_are_named_and_several_documents_have_gains():
    queries, documents = [f"x{i}" for i in range(40)], [f"y{i}" for i in range(80)]
    report = retrieval(one_hot, queries, documents, list(range(40)), k=(10, 1), task="captions")
    assert {"mrr@10", "recall@1", "recall@10", "ndcg@10"} <= {row.metric for row in report}
    assert all(row.value == 1.0 and row.count == 40 and row.task == "captions" for row in report)
    assert report.notes["documents"] == 80
    vectors = one_hot(["x1"]), one_hot(["y1", "y2", "y3"])
    ranking = rank_vectors(*vectors, [{0: 2.0, 2: 1.0}])
    # y2 and y3 tie at cosine 0: the irrelevant one stands first.
    assert ranking.ranks[0].tolist() == [1, 3]
    assert ranking.by_query(metrics.recall_at_k, 1).tolist() == [0.5]
    assert ranking.by_query(metrics.reciprocal_rank_at_k, 1).tolist() == [1.0]
    best = 2 / np.log2(2) + 1 / np.log2(3)
    found = ranking.by_query(metrics.ndcg_at_k, 3)[0]
    assert found == pytest.approx((2 / np.log2(2) + 1 / np.log2(4)) / best)
    ((query, found),) = module.nearest_documents(letters, ["aab"], ["aab", "aba", "aaa", "cd"], k=2)
    assert (query, [text for _, text in found]) == ("aab", ["aba", "aaa"])


@pytest.mark.parametrize("metric", [m for m in METRICS.values() if m.of_query])
def test_each_metric_of_a_ranking_is_1_for_the_best_and_falls_with_every_rank(metric):
    gains = np.ones(3)
    for k in (3, 10):
        assert metric.of_query(gains, np.array([1, 2, 3]), k) == pytest.approx(1)
        assert metric.of_query(gains, np.array([90, 91, 92]), k) == 0
        for ranks in product(range(1, 13), repeat=3):
            first, second, third = ranks
            if first < second < third:
                here = metric.of_query(gains, np.array(ranks), k)
                worse = metric.of_query(gains, np.array([first, second, third + 1]), k)
                assert 0 <= worse <= here <= 1


@pytest.mark.parametrize(("queries", "relevant", "message"), [
    ([], [], "no queries"), (["x1"], [], "relevant documents for 0"),
    (["x1"], [[]], "query 0 has no relevant"),
    (["x1"], [3], "relevant document 3, but there are 3"),
    (["x1"], [{0: 0.0}], "gain 0.0, not above 0"),
])  # fmt: skip
def test_bad_judgments_and_cuts_are_errors(queries, relevant, message):
    with pytest.raises(DataError, match=message):
        retrieval(one_hot, queries, ["y1", "y2", "y3"], relevant)
    with pytest.raises(OptionError, match="k"):
        retrieval(one_hot, ["x1"], ["y1"], [0], k=(0,))
    with pytest.raises(OptionError, match="seed -1: must be 0 or more"):
        retrieval(one_hot, ["x1"], ["y1"], [0], seed=-1)


def letters(sentences):
    return np.array([[s.count(c) for c in "abcdefghij"] for s in sentences], dtype=np.float32)


@pytest.fixture
def scored(named_pairs):
    """Scored pairs in the place of STSB's."""

    def scored(first, second, *scores):
        pairs = ScoredPairs("STSB", first, second, np.array(scores))
        named_pairs(lambda task, **_: (pairs,))

    return scored


def test_pairs_of_score_five_are_asked_among_all_other_sentences(scored, items_give_the_values):
    first, second = ("aab", "cd", "e f", "ggh", "ij"), ("aba", "dcc", "fe", "ah", "ij")
    scored(first, second, 5.0, 5.0, 4.8, 0.0, 5.0)
    report = module.stsb_retrieval(letters, directions="first")
    assert report.notes["pairs"] == report.rows[0].count == 3
    assert report.notes["documents"] == 9  # "ij" twice is one document
    # aab finds aba at once; cd finds dcc; ij is its own pair and stays.
    assert report.one(metric="recall@1").value == 1.0
    both = module.stsb_retrieval(letters, directions="both")
    assert (both.rows[0].count, items_give_the_values(both)) == (6, 5)
    keys = both.items[both.rows[0].key].keys
    assert keys[:3].tolist() == keys[3:].tolist()  # the two directions of a pair are one item
    with pytest.raises(OptionError, match="did you mean 'both'"):
        module.stsb_retrieval(letters, directions="bot")
    scored(("aa", "b"), ("ab", "aac"), 5.0, 0.0)
    # Of "aa": "aac" (0.89) stands before "ab" (0.71); "aa" itself does not count.
    report = module.stsb_retrieval(letters, directions="first", k=(1, 2))
    assert [report.one(metric=f"recall@{k}").value for k in (1, 2)] == [0.0, 1.0]


def test_the_interval_of_both_directions_is_that_of_resampled_pairs(scored):
    random, number = np.random.default_rng(4), 300
    words = ["".join(random.choice(list("abcdefghij"), 6)) for _ in range(2 * number)]
    scored(tuple(words[:number]), tuple(words[number:]), *[5.0] * number)
    row = module.stsb_retrieval(letters, k=(100,), resamples=2000).rows[1]
    found = module.stsb_retrieval(letters, k=(100,), resamples=0).items[row.key].columns[0]
    means = []
    for _ in range(2000):
        drawn = [int(i) for i in random.integers(0, number, number)]
        means.append(sum(found[i] + found[number + i] for i in drawn) / (2 * number))
    assert row.count == 2 * number
    assert row.high - row.low == pytest.approx(np.ptp(np.quantile(means, [0.025, 0.975])), rel=0.1)


def test_reports_of_other_judgments_or_exclusions_are_not_compared():
    queries, documents = ["ab", "cd", "ef"], ["aab", "ccd", "eef", "af"]
    others = ["a" * count + "b" for count in range(2, 20)]

    def report(relevant=(0, 1, 2), order=(0, 1, 2), exclude=(-1, -1, -1)):
        asked = [queries[i] for i in order] + others
        judged = [relevant[i] for i in order] + [0] * len(others)
        return retrieval(letters, asked, documents, judged, exclude=[*exclude] + [-1] * len(others))

    bare = retrieval(letters, queries + others, documents, [0, 1, 2] + [0] * len(others))
    for other in (report(order=(2, 0, 1)), report([[0], {1: 1.0}, 2]), bare):
        assert compare_reports([report()], [other], seed_sd=0)
    for other in (report([0, 1, 3]), report([0, 1, {2: 2.0}]), report(exclude=[-1, 3, -1])):
        said = "same items but different documents, judgments or settings"
        with pytest.raises(DataError, match=said):
            compare_reports([report()], [other], seed_sd=0)


def test_captions_of_a_picture_belong_together(items_give_the_values):
    captions = Captions(("aab", "aba", "cd", "dc", "ff"), ("1", "1", "2", "2", "3"))
    report = module.caption_retrieval(letters, captions, k=(1,))
    assert items_give_the_values(report) == 3
    assert report.one(metric="recall@1").value == 1.0
    assert report.one(metric="recall@1").count == 2
    assert (captions.last(2).texts, len(captions.last(0).texts)) == (("dc", "ff"), 5)


@pytest.fixture
def folder(tmp_path):
    corpus = [("d1", "abab", "aa"), ("d2", "cdcd", ""), ("d3", "efef", "")]
    judged = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\nq2\td3\t1\n"
    return collection(tmp_path, corpus, [("q1", "ab"), ("q2", "ce")], judged)


def test_a_folder_of_judgments_is_measured(folder):
    report = folder_retrieval(letters, folder, k=(1, 3))
    assert report.one(metric="recall@3").value == 1.0
    assert report.one(metric="recall@1").value == pytest.approx((1 + 1 / 2) / 2)
    assert report.rows[0].task == folder.name
    (folder / "qrels" / "dev.tsv").write_text("q1 0 d1 1\n")
    assert folder_retrieval(letters, str(folder), split="dev").rows[0].count == 1


def test_a_relevant_document_that_is_not_there_is_not_found(folder, items_give_the_values):
    """As pytrec_eval counts it; BEIR's ArguAna has some."""
    judged = folder / "qrels" / "test.tsv"
    judged.write_text(f"{judged.read_text()}q2\td9\t2\nq3\tq1\t1\nq3\td8\t0\n")
    with (folder / "queries.jsonl").open("a") as stream:
        stream.write('{"_id": "q3", "text": "ee"}\n')
    report = folder_retrieval(letters, folder, k=(1, 100))
    assert items_give_the_values(report) == 4
    assert report.notes["relevant documents missing from the corpus"] == 2
    values = {row.metric: row.value for row in report}
    ideal = 2 + 1 / np.log2(3) + 1 / 2
    assert values["recall@100"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert values["mrr@100"] == pytest.approx((1 + 1 + 0) / 3)
    assert values["ndcg@100"] == pytest.approx((1 + (1 + 1 / np.log2(3)) / ideal + 0) / 3)


def test_a_document_with_the_querys_own_id_is_no_answer(tmp_path):
    # Document 3 is judged relevant for query 3: there the equal ids are chance, and it stays.
    texts, requested = ("ab", "abb", "cd", "cdd"), [("0", "ab"), ("3", "cdd"), ("new", "cd")]
    collection(
        tmp_path, zip("0123", texts, strict=True), requested, "0\t1\t1\n3\t3\t1\nnew\t2\t1\n"
    )
    report = folder_retrieval(letters, tmp_path, k=(1,))
    assert report.one(metric="recall@1").value == 1.0
    assert report.notes["document with the query's own id"] == "excluded for 1 queries"
    as_it_is = folder_retrieval(letters, tmp_path, k=(1,), own_ids=True)
    assert as_it_is.one(metric="recall@1").value == pytest.approx(2 / 3)
    assert "document with the query's own id" not in as_it_is.notes


@pytest.mark.parametrize(("file", "text", "message"), [
    ("qrels/test.tsv", "q1 d1 high\n", r"test.tsv:1: expected query, document and gain"),
    ("qrels/test.tsv", "q1 d9 1\n", "names unknown documents alone, such as d9"),
    ("qrels/test.tsv", "", "contains no relevance judgments"),
    ("corpus.jsonl", '{"id": 1}\n', r"corpus.jsonl:1: expected a JSON object"),
    ("corpus.jsonl", '{"_id": 1, "text": null}\n', r"corpus.jsonl:1: expected a JSON object"),
    ("corpus.jsonl", 2 * '{"_id": 1, "text": "a"}\n', "the _id 1 is already used"),
    ("queries.jsonl", "[]\n", r"queries.jsonl:1: expected a JSON object"),
])  # fmt: skip
def test_bad_folders_are_named(folder, file, text, message):
    (folder / file).write_text(text)
    with pytest.raises(DataError, match=message):
        folder_retrieval(letters, folder)
    (folder / file).unlink()
    with pytest.raises(DataError, match=rf"{file.rpartition('/')[2]}: no such file"):
        folder_retrieval(letters, folder)
