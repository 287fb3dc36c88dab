"""BM25, fusion and binary codes against plain loops from their equations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_states import bm25_of, encoder

from contrasent.errors import DataError, OptionError
from contrasent.search.codes import BinaryCodes
from contrasent.search.index import Index
from contrasent.search.ranking import Ranker, Spread
from contrasent.search.store import Facts
from contrasent.search.words import Analyzer, Postings, language_of, words
from contrasent.search.writer import Writer

TEXTS = [
    f"{'alpha ' * (n % 3)}beta{n % 7} gamma{' delta' if n % 5 == 0 else ''}" for n in range(60)
]


encode = encoder(1)


def bm25(query, texts):
    """Robertson and Zaragoza (2009), eq. 3.15, with Lucene's rarity; one text after another."""
    documents = [text.split() for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for term in query.split():
            holding = sum(term in other for other in documents)
            rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            often = document.count(term)
            length = 1.2 * (0.25 + 0.75 * len(document) / mean)
            score += rarity * often / (often + length)
        scores.append(score)
    return scores


letters = st.lists(st.sampled_from(["x", "yy", "zzz", "w"]), min_size=1, max_size=8).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(letters, min_size=1, max_size=12), letters)
def test_bm25_is_its_equation(texts, query):
    found = bm25_of(texts, "none").scores(query)
    assert found == pytest.approx(np.array(bm25(query, texts)), rel=1e-4, abs=1e-6)


def test_a_word_that_stands_very_often_counts_as_often_as_can_be_kept():
    texts = ["x " * 70_000 + "y", "x y", "y y"]
    found, most = bm25_of(texts, "none"), 65_535
    norm = 1.2 * (0.25 + 0.75 * 70_001 / ((70_001 + 2 + 2) / 3))
    expected = math.log(1 + 1.5 / 2.5) * most / (most + norm)
    assert found.scores("x")[0] == pytest.approx(expected, rel=1e-5)


def test_weight_0_is_a_search_by_vectors_alone():
    index = Index.build(encode, TEXTS)
    assert index.ranker == Ranker()
    (alone,) = index.search("alpha", encode=encode, ranker=Ranker(0.0))
    assert alone == index.search(encode(["alpha"]))[0]
    assert [hit.score for hit in alone] == [hit.cosine for hit in alone]
    assert alone != index.search("alpha", encode=encode)[0]


def test_a_threshold_is_of_the_cosine():
    index = Index.build(encode, TEXTS)
    (hits,) = index.search("alpha", encode=encode, k=60)
    (few,) = index.search("alpha", encode=encode, k=60, threshold=0.3)
    assert few == [hit for hit in hits if hit.cosine >= 0.3] and 0 < len(few) < 60


@given(st.lists(st.floats(0, 5, width=32), max_size=30), st.integers(0, 20))
def test_spread_with_zeros_left_out(values, zeros):
    scores = np.array(values, dtype=np.float32)
    whole = Spread.of(np.concatenate([scores, np.zeros(zeros, np.float32)]))
    assert Spread.of_sparse(scores, len(values) + zeros) == pytest.approx(whole, abs=1e-3)


def test_a_ranker_is_kept_and_read():
    assert Ranker.from_json(Ranker(0.4).to_json()) == Ranker(0.4)
    with pytest.raises(OptionError, match="from 0 to 1"):
        Ranker(1.5)
    assert Ranker(0.4).to_json() == {"word_weight": 0.4}
    with pytest.raises(DataError, match=r"synonyms.*does not know"):
        Ranker.from_json({"word_weight": 0.2, "synonyms": 3})


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(("text", "wanted"), [
    ("The cat's 2 hats", ["the", "cat", "s", "2", "hats"]),
    ("readFile read_file", ["read", "file", "readfile", "read", "file", "read_file"]),
    ("Straße ﬁne", ["strasse", "fine"]), ("東京都", ["東京", "京都"]),
    ("كِتَاب", ["كتاب"]), ("…", []),
])  # fmt: skip
def test_words(text, wanted):
    assert words(text) == wanted


def test_languages_and_stems():
    assert language_of(["the house is on the hill and it is old"]) == "english"
    assert language_of(["das Haus ist auf dem Hügel und es ist alt"]) == "german"
    assert language_of(["x1 y2 z3"]) == "none"
    assert Analyzer("english")("the houses are running") == ["hous", "run"]
    with pytest.raises(OptionError, match="no stemmer"):
        Analyzer("klingon")


# ---------------------------------------------------------------------- codes

VOCABULARY = [f"{a}{b}" for a in ("sand", "rain", "leaf", "moon", "salt") for b in "abcdefgh"]


@pytest.fixture
def coded(tmp_path, make_codes):
    """300 rows with codes, 20 behind them without, some deleted."""
    texts = [f"{TEXTS[n % 60]} no{n}" for n in range(320)]
    with Writer(tmp_path / "index", new=Facts()) as writer:
        writer.add(texts[:300], encode, metadata=[{"n": n} for n in range(300)])
    make_codes(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.add(texts[300:], encode, metadata=[{"n": n} for n in range(300, 320)])
        writer.delete(["7", "8", "310"])
    index = Index.open(tmp_path / "index")
    index.exact_up_to = 10
    assert index.facts.codes["rows"] == 300
    return index


def test_hamming_distance_is_of_signs(coded):
    codes, vectors = coded.codes, coded.vectors[:300].astype(float)
    centre = vectors.mean(axis=0)
    assert codes.centre == pytest.approx(centre, abs=1e-6)
    (query,) = encode(["alpha"])
    wanted = [sum((v > codes.centre) != (query > codes.centre)) for v in coded.vectors[:300]]
    assert codes.hamming(query).tolist() == wanted


def test_candidates_are_the_nearest_codes_and_all_that_tie():
    vectors = np.random.default_rng(0).normal(size=(6000, 64)).astype(np.float32)
    codes = BinaryCodes.of(vectors)
    distance = codes.hamming(vectors[9])
    for k, least in ((5, 2000), (20, 4000)):
        (found,) = codes.candidates(vectors[9:10], k, None)
        limit = np.sort(distance)[least - 1]
        assert found.tolist() == np.flatnonzero(distance <= limit).tolist()


def test_codes_of_vectors_of_any_width():
    vectors = np.random.default_rng(0).normal(size=(50, 70)).astype(np.float32)
    codes = BinaryCodes.of(vectors)
    assert codes.columns.shape == (2, 50)
    assert codes.hamming(vectors[9])[9] == 0


def test_a_sample_of_cosines_gives_the_order_of_all(tmp_path, make_codes):
    """Of 11,000 rows 10,000 say mean and spread, the same each time, and codes propose 200."""
    random, count = np.random.default_rng(5), 11_000
    topics = random.normal(size=(40, 64)).astype(np.float32)
    noise = random.normal(size=(count, 64)).astype(np.float32)
    texts = [f"topic{n % 40} " + " ".join(random.choice(VOCABULARY, 6)) for n in range(count)]
    with Writer(tmp_path / "index", new=Facts()) as writer:
        writer.add(texts, topics[np.arange(count) % 40] + 0.7 * noise)
    index, again = make_codes(tmp_path / "index"), Index.open(tmp_path / "index")
    assert index.facts.codes["rows"] == count
    queries = [f"topic{n} {VOCABULARY[n]}" for n in range(40)]
    asked = topics + 0.4 * random.normal(size=topics.shape).astype(np.float32)
    same = 0
    for ranker in (Ranker(0.2), Ranker(0.6)):
        given = {"vectors": asked, "k": 10, "ranker": ranker}
        found, exact = index.search(queries, **given), index.search(queries, all_rows=True, **given)
        assert again.search(queries, **given) == found
        for some, every in zip(found, exact, strict=True):
            same += sum(a.id == b.id for a, b in zip(some, every, strict=True))
            scores = [hit.score for hit in every]
            assert [hit.score for hit in some] == pytest.approx(scores, rel=0.1)
    assert len(index.sample()) == 10_000
    assert same / 800 > 0.95


@given(
    rows=st.lists(st.lists(st.sampled_from("abcde"), max_size=9), max_size=6),
    first=st.integers(0, 9),
)
def test_postings_are_counts_of_terms_row_by_row(rows, first):
    found = Postings(rows)
    assert (len(found), found.lengths) == (len(rows), [len(row) for row in rows])
    wanted = [
        (term, [(first + at, row.count(term)) for at, row in enumerate(rows) if term in row])
        for term in sorted({term for row in rows for term in row})
    ]
    made = [
        (term, [*zip(held.tolist(), often.tolist(), strict=True)])
        for term, (held, often) in found.by_term(first)
    ]
    assert made == wanted
