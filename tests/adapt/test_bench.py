"""nDCG@10 of queries on an index, against plain loops and against the search itself."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from contrasent.adapt.bench import Bench, Query, difference, queries_of
from contrasent.search.index import Index, document_of
from contrasent.search.learned import KnownQueries, Learned, Neighbors
from contrasent.search.ranking import Ranker

WORDS = ["lamp", "boat", "key", "door", "river", "stone", "glass", "bread", "wind", "chair"]


@pytest.fixture(scope="module")
def index():
    """Sixty passages of thirty documents, with vectors drawn at random."""
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 6)) for _ in range(60)]
    vectors = random.normal(size=(60, 8)).astype(np.float32)
    about = [{"document": f"d{n // 2}"} for n in range(60)]
    ids = [f"d{n // 2}#{n % 2}" for n in range(60)]
    return Index.build(lambda _: vectors, texts, ids=ids, metadata=about)


@pytest.fixture(scope="module")
def bench(index):
    random = np.random.default_rng(1)
    queries = [
        Query(" ".join(random.choice(WORDS, 2)), {int(n): 1.0, int(n + 7) % 30: 2.0}, int(n))
        for n in random.integers(0, 30, 25)
    ]
    vectors = index.query_vectors(random.normal(size=(25, 8)).astype(np.float32))
    return Bench(index, queries, vectors)


def ndcg(names, relevant):
    """By the definition: gains over the logarithm of ranks, over the best that can be."""
    gained = sum(
        relevant.get(name, 0.0) / math.log2(rank + 1) for rank, name in enumerate(names, 1)
    )
    best = sorted(relevant.values(), reverse=True)[:10]
    return gained / sum(gain / math.log2(rank + 1) for rank, gain in enumerate(best, 1))


def learned_of(index, random):
    taught = KnownQueries(
        index.query_vectors(random.normal(size=(40, 8)).astype(np.float32)),
        tuple((f"d{n % 30}",) for n in range(40)),
    )
    matrix = random.normal(size=(8, 8)).astype(np.float32)
    return Learned(matrix, Neighbors.of(np.asarray(index.vectors), 3), taught)


def test_words_count_less_in_another_language_as_in_a_search():
    random = np.random.default_rng(0)
    texts = [f"The house of the {random.choice(WORDS)} was on the hill." for _ in range(30)]
    texts[7] = "The wagen of the king and the strasse are in the old town."
    vectors = random.normal(size=(30, 8)).astype(np.float32)
    index = Index.build(lambda _: vectors, texts)
    asked = ["wo ist der wagen und die strasse", "where is the wagen and the strasse"]
    queries, both = [Query(text, {7: 1.0}, 7) for text in asked], index.query_vectors(vectors[:2])
    bench = Bench(index, queries, both)
    found = index.search(asked, vectors=both, ranker=Ranker(0.4), k=30)
    best = [bench.best_rows(number, Ranker(0.4)).tolist() for number in range(2)]
    assert best == [[int(hit.id) for hit in hits] for hits in found]
    assert (best[0][0], best[1][0]) == (0, 7)


def test_it_measures_what_a_search_finds(index, bench):
    learned = learned_of(index, np.random.default_rng(2))
    rankers = [
        Ranker(0.0),
        Ranker(0.3),
        Ranker(0.3, map_share=0.5),
        Ranker(0.2, smoothing=0.8),
        Ranker(0.2, map_share=0.5, smoothing=0.4, known=2.0, known_from=0.2),
    ]
    values = bench.values(rankers, learned=learned)
    assert values.shape == (5, 25) and len(np.unique(values.mean(axis=1))) == 5
    texts = [query.text for query in bench.queries]
    for ranker, row in zip(rankers, values, strict=True):
        index.learned = learned
        found = index.search(texts, vectors=bench.vectors, k=60, ranker=ranker)
        for query, hits, value in zip(bench.queries, found, row, strict=True):
            names = list(dict.fromkeys(document_of(h.id, h.metadata) for h in hits))[:10]
            relevant = {bench.documents[at]: gain for at, gain in query.relevant.items()}
            assert value == pytest.approx(ndcg(names, relevant), abs=1e-9)
    index.learned = Learned()


@dataclass(frozen=True)
class Matching(Ranker):
    """A new way to rank: more for a row that has a word of the query."""

    more: float = 0.0

    def fuse(self, candidates):
        return super().fuse(candidates) + np.float32(self.more) * (candidates.words > 0)


def test_a_new_way_to_rank_is_a_field_and_its_part_in_fuse(index, bench):
    texts = [query.text for query in bench.queries]
    for ranker in (Matching(0.3), Matching(0.3, more=9.0)):
        index.learned = learned = learned_of(index, np.random.default_rng(2))
        found = index.search(texts, vectors=bench.vectors, k=60, ranker=ranker)
        plain = index.search(texts, vectors=bench.vectors, k=60, ranker=Ranker(0.3))
        rows = {hit.id: number for number, hit in enumerate(index.every())}
        for number, (hits, before) in enumerate(zip(found, plain, strict=True)):
            best = bench.best_rows(number, ranker, learned).tolist()
            assert best == [rows[hit.id] for hit in hits]
            matching = [hit.bm25 > 0 for hit in hits]
            first = matching == sorted(matching, reverse=True)
            assert (hits == before, first) == ((True, False), (False, True))[bool(ranker.more)]
    index.learned = Learned()


def test_some_queries(bench):
    ranker = Ranker(0.2)
    whole = bench.values([ranker])[0]
    some = np.array([3, 17, 4])
    np.testing.assert_array_equal(bench.values([ranker], some)[0], whole[some])


def test_a_difference_is_over_documents():
    random = np.random.default_rng(0)
    queries = [Query("", {n % 25: 1.0}, n % 25) for n in range(500)]
    noise = random.normal(size=25)[np.arange(500) % 25]  # queries of one document move together
    found = difference(queries, noise)
    assert found.value == pytest.approx(noise.mean())
    alone = difference([Query("", {n: 1.0}, n) for n in range(500)], noise)
    assert found.high - found.low > 3 * (alone.high - alone.low)


def test_the_main_answer_is_the_one_that_most_queries_share():
    found = queries_of([("a", {1: 1.0, 2: 1.0}), ("b", {2: 1.0}), ("c", {3: 1.0, 1: 2.0, 2: 1.0})])
    assert [query.document for query in found] == [2, 2, 2]
