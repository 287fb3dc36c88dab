"""Search by vectors, words and what was learned, against plain loops over the rows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_states import encoder

from contrasent.errors import DataError, OptionError
from contrasent.search.index import Index
from contrasent.search.learned import (
    KnownQueries,
    Learned,
    Neighbors,
    bonus,
    mapped,
    smooth_vectors,
    smoothed,
)
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts, Store
from contrasent.search.writer import Writer

encode = encoder(3)
TEXTS = [
    f"{'alpha ' * (n % 3)}beta{n % 7} gamma{' delta' if n % 5 == 0 else ''}" for n in range(60)
]
METADATA = [{"document": f"doc{n // 4}", "n": n} if n % 2 else {"n": n} for n in range(60)]
QUERIES = ["alpha beta3", "delta", "nothing of it"]
WAYS = [
    Ranker(0.0),
    Ranker(0.2),
    Ranker(0.6),
    Ranker(0.2, map_share=0.5),
    Ranker(0.3, smoothing=0.8),
    Ranker(0.2, known=3.0, known_from=0.2),
    Ranker(0.2, map_share=0.25, smoothing=0.4, known=1.0, known_from=0.1),
    Ranker(0.0, map_share=1.0, smoothing=0.8, known=1.0, known_from=0.1),
]
each_way = pytest.mark.parametrize("ranker", WAYS, ids=str)


def learned_of(vectors, k=3):
    matrix = np.random.default_rng(9).normal(size=(8, 8)).astype(np.float32)
    asked = encode(["alpha beta", "delta", "nothing of it"])
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    documents = (("doc3", "8"), ("doc5",), ("doc3", "gone"))
    return Learned(matrix, Neighbors.of(vectors, k), KnownQueries(asked, documents))


def made(ranker, texts=TEXTS, metadata=METADATA):
    with Writer(None, new=Facts()) as writer:
        writer.add(texts, encode, metadata=metadata)
        writer._map()
        writer.set(ranker=ranker, learned=learned_of(writer.store.vectors))
    return Index(writer.store)


def unit(vector):
    length = math.sqrt(sum(v * v for v in vector))
    return [v / length for v in vector]


def dot(one, two):
    return sum(a * b for a, b in zip(one, two, strict=True))


def scores_of(ranker, learned, vectors, documents, query, words):
    """{row: score} of rows that are there, {row: vector}, by plain loops."""
    own = unit(query.tolist())
    asked = own
    if ranker.map_share:
        across = unit([dot(own, column) for column in learned.matrix.T.tolist()])
        share = ranker.map_share
        asked = unit([(1 - share) * a + share * b for a, b in zip(own, across, strict=True)])
    cosines = {}
    for row, vector in vectors.items():
        near = learned.neighbors.rows[row].tolist() if row < len(learned.neighbors.rows) else []
        if ranker.smoothing and near and all(other in vectors for other in near):
            mean = [
                float(sum(column)) / len(near)
                for column in np.transpose([vectors[n] for n in near])
            ]
            vector = unit([a + ranker.smoothing * b for a, b in zip(vector, mean, strict=True)])
        cosines[row] = dot(asked, vector)
    gains = dict.fromkeys(vectors, 0.0)
    if ranker.known:
        for taught, names in zip(learned.known.vectors, learned.known.documents, strict=True):
            gain = ranker.known * max(0.0, dot(own, taught.tolist()) - ranker.known_from)
            for row, document in documents.items():
                if document in names:
                    gains[row] = max(gains[row], gain)
    if not ranker.bm25_weight:
        return {row: cosines[row] + gains[row] for row in vectors}

    def scaled(values, spread):
        mean = sum(spread) / len(spread)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in spread) / len(spread))
        return {row: (v - mean) / deviation if deviation else 0.0 for row, v in values.items()}

    dense = scaled({row: cosines[row] + gains[row] for row in vectors}, list(cosines.values()))
    sparse = scaled(words, list(words.values()))
    clear = max(scaled(cosines, list(cosines.values())).values())
    one, two = (1 - ranker.bm25_weight) * clear, ranker.bm25_weight * max(sparse.values())
    share = two / (one + two) if one + two else ranker.bm25_weight
    return {row: (1 - share) * dense[row] + share * sparse[row] for row in vectors}


def check(index, ranker, learned, **about):
    """All hits of an index against the loops."""
    rows = {row.row: row for row in index.every()}
    vectors = {number: unit(index.vectors[number].tolist()) for number in rows}
    documents = {n: (row.metadata or {}).get("document", row.id) for n, row in rows.items()}
    for text in QUERIES:
        (query,) = encode([text])
        (hits,) = index.search([text], vectors=query[None], k=len(rows), **about)
        words = dict(enumerate(index.bm25.weigh(text).scores.tolist()))
        wanted = scores_of(
            ranker, learned, vectors, documents, query, {row: words[row] for row in rows}
        )
        by_id = {row.id: n for n, row in rows.items()}
        assert hits and [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)
        assert [h.score for h in hits] == pytest.approx(
            [wanted[by_id[h.id]] for h in hits], abs=2e-4
        )
        counted = dict.fromkeys(words, 0.0) if not ranker.bm25_weight else words
        assert [h.bm25 for h in hits] == pytest.approx([counted[by_id[h.id]] for h in hits])
        own = unit(query.tolist())
        assert [h.cosine for h in hits] == pytest.approx(
            [dot(own, vectors[by_id[h.id]]) for h in hits], abs=1e-5
        )


@pytest.mark.parametrize("ranker", [*WAYS, Ranker(1.0)], ids=str)
def test_search_is_its_equation(ranker):
    index = made(ranker)
    check(index, ranker, index.learned)


@each_way
def test_rows_that_are_filtered_out_change_no_score(ranker):
    index = made(ranker)
    given = encode(QUERIES)
    every = index.search(QUERIES, vectors=given, k=60)
    some = index.search(QUERIES, vectors=given, k=60, where={"n": {"$lt": 20}})
    for part, hits in zip(some, every, strict=True):
        assert len(part) == 20
        wanted = {hit.id: hit.score for hit in hits}
        assert [h.score for h in part] == pytest.approx([wanted[h.id] for h in part], abs=1e-5)


def test_vectors_as_queries_and_vectors_alone():
    index = made(WAYS[6])
    given = encode(QUERIES)
    assert index.search(given, k=5) == index.search(
        QUERIES, vectors=given, k=5, ranker=Ranker(0.0, 0.25, 0.4, 1.0, 0.1)
    )
    plain = Index.build(encode, TEXTS, metadata=METADATA)
    alone = index.search(QUERIES, vectors=given, k=5, ranker=index.ranker.with_bm25(0.0))
    assert alone == plain.search(QUERIES, vectors=given, k=5, ranker=Ranker(0.0))
    assert index.ranker.with_bm25(None) == WAYS[6]
    assert index.ranker.with_bm25(0.7) == Ranker(0.7, 0.25, 0.4, 1.0, 0.1)


@each_way
def test_after_changes(ranker, tmp_path):
    """Rows keep their numbers until all are written anew; then neighbors follow them."""
    made(ranker).save(tmp_path / "index")
    learned = Index.open(tmp_path / "index").learned
    with Writer(tmp_path / "index") as writer:
        writer.delete(["7", "8", "31"])
        writer.update(["delta delta", "alpha"], encode, ids=["3", "new"])
    index = Index.open(tmp_path / "index")
    check(index, ranker, learned)
    before = index.search(QUERIES, encode=encode, k=58)
    index.save(tmp_path / "copy")
    with Writer(tmp_path / "index") as writer:
        writer.rewrite()
    for name in ("index", "copy"):
        index = Index.open(tmp_path / name)
        assert not index.facts.dead and index.ranker == ranker
        for old, new in zip(before, index.search(QUERIES, encode=encode, k=58), strict=True):
            assert {h.id: h.score for h in new} == pytest.approx(
                {h.id: h.score for h in old}, abs=2e-4
            )


class Large(np.memmap):
    """Vectors that are too many for a product with all of them."""

    def __matmul__(self, query):
        raise AssertionError


@each_way
def test_codes_propose_the_same(ranker, tmp_path, make_codes):
    texts = [f"{TEXTS[n % 60]} no{n}" for n in range(300)]
    made(ranker, texts, [METADATA[n % 60] for n in range(300)]).save(tmp_path / "index")
    make_codes(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.delete(["9", "10"])
        writer.add(["delta no33", "alpha"], encode, ids=["new", "newer"])
    index, store = Index.open(tmp_path / "index"), Store.open(tmp_path / "index")
    store.vectors = store.vectors.view(Large)
    large = Index(store)
    large.exact_up_to = 10
    assert index.facts.codes["rows"] == 300
    for where in (None, {"n": {"$gt": 20}}, {"n": {"$in": [7, 8]}}):
        given = {"encode": encode, "k": 6, "where": where}
        found = large.search(QUERIES, **given)
        for some, every in zip(found, index.search(QUERIES, all_rows=True, **given), strict=True):
            assert [(h.id, pytest.approx(h.score, abs=1e-4)) for h in every] == [
                (h.id, h.score) for h in some
            ]


def test_nothing_learned_leaves_no_table(tmp_path):
    index = Index.build(encode, TEXTS)
    assert not index.store.query("SELECT 1 FROM sqlite_master WHERE name = 'learned'")
    assert index.learned.lacks(Ranker(map_share=0.5)) == "map"
    with pytest.raises(OptionError, match="out of range"):
        Ranker(map_share=1.5)


@pytest.mark.parametrize("weights", [{"bm25_weight": 9.0}, {"map_share": -1.0}])
def test_a_stored_weight_out_of_range_is_damage_and_no_option(weights):
    pattern = r"^the index is damaged \(.*[= ](-1|9)\.0.*\); build it again$"
    with pytest.raises(DataError, match=pattern):
        Ranker.from_json(weights)


@pytest.mark.parametrize(("metric", "size"), [("dot", 8), ("cosine", 5)])
def test_what_cannot_be_kept(metric, size):
    with (
        pytest.raises(OptionError, match=r"cosine|dimensions"),
        Writer(None, new=Facts(metric=metric)) as writer,
    ):
        writer.add(TEXTS, encode)
        writer.set(learned=Learned(np.eye(size, dtype=np.float32)))


@settings(max_examples=60, deadline=None)
@given(st.integers(5, 40), st.integers(1, 4), st.floats(0, 2), st.integers(0, 9999))
def test_smoothing_by_cosines_is_smoothing_by_vectors(rows, k, weight, seed):
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(rows, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = Neighbors.of(vectors[: rows - 1], min(k, rows - 2))
    for row, some in enumerate(near.rows.tolist()):
        cosines = (vectors[: rows - 1] @ vectors[row]).tolist()
        cosines[row] = -2.0
        assert min(cosines[n] for n in some) >= sorted(cosines)[-len(some)] - 1e-6
    alive = draw.random(rows) > 0.1
    learned, ranker = Learned(neighbors=near).among(alive), Ranker(smoothing=weight)
    query = draw.normal(size=6).astype(np.float32)
    scores = smoothed(ranker, learned, vectors @ query)
    smooth = smooth_vectors(ranker, learned, vectors, np.arange(rows))
    assert smooth @ query == pytest.approx(scores, abs=1e-4)
    assert np.linalg.norm(smooth, axis=1) == pytest.approx(np.ones(rows), abs=1e-4)
    assert scores[-1] == pytest.approx(vectors[-1] @ query, abs=1e-6)


def test_a_bonus_is_the_largest_of_what_near_queries_give_and_never_negative():
    asked = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [-1, 0]], dtype=np.float32)
    taught = KnownQueries(asked, (("a", "b"), ("a",), ("c",), ("a", "c", "d")))
    places = {"a": [4, 5], "b": [1], "c": [7], "d": [0]}

    def gains(known_from, query):
        ranker = Ranker(known=2.0, known_from=known_from)
        given = Learned(known=taught), query, lambda name: np.array(places[name])
        rows, added = bonus(ranker, *given)
        assert rows.tolist() == sorted(rows.tolist())
        return dict(zip(rows.tolist(), added.tolist(), strict=True))

    assert gains(0.6, asked[0]) == pytest.approx({4: 0.8, 5: 0.8, 1: 0.8})
    assert gains(0.5, asked[1]) == pytest.approx({4: 1.0, 5: 1.0, 1: 0.6, 7: 0.92})
    with pytest.raises(OptionError, match="out of range"):
        Ranker(known=-1.0)


def test_without_learning_nothing_changes():
    vectors = encode(["a", "b"])
    assert mapped(Ranker(map_share=0.5), Learned(), vectors) is vectors
    assert bonus(Ranker(known=1.0), Learned(), vectors[0], np.array)[0].tolist() == []
