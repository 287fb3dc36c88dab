"""BM25 and fusion against plain loops; hybrid search of an index, its words on disk."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasent.errors import DataError, InputError, OptionError, UserError
from contrasent.search.hybrid import FOLDER, Fusion, Hybrid, own_fusion, searcher
from contrasent.search.index import Index
from contrasent.search.lexical import Analyzer, Lexical, language_of, words
from contrasent.search.writer import Writer

TEXTS = [
    "The ferry to the island leaves at nine.",
    "Part number QX-7741 fits the older pump.",
    "A boat carries passengers across the strait.",
    "The pump must be greased twice a year.",
    "Grease the bearings, then grease the pump again.",
]
BASKET = ["pump", "grease", "boat", "island", "valve", "rope"]


def encode(texts):
    """A vector that depends on the text alone."""
    rows = [np.random.default_rng(list(text.encode())).normal(size=8) for text in texts]
    return np.array(rows, dtype=np.float32).reshape(-1, 8)


def bm25(query, texts, k1, b):
    """Robertson's sum with Lucene's rarity, one word after the other."""
    counts = [Counter(text.split()) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    mean = sum(lengths) / len(lengths)
    scores = []
    for count, length in zip(counts, lengths, strict=True):
        score = 0.0
        for word in query.split():
            holding = sum(word in other for other in counts)
            if not holding:
                continue
            rarity = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            often = count[word]
            score += rarity * often / (often + k1 * (1 - b + b * length / mean))
        scores.append(score)
    return scores


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(BASKET), min_size=1, max_size=8).map(" ".join),
        min_size=1,
        max_size=6,
    ),
    query=st.lists(st.sampled_from(BASKET), min_size=1, max_size=3).map(" ".join),
    k1=st.floats(0.1, 3),
    b=st.floats(0, 1),
)
def test_scores_are_those_of_plain_loops(texts, query, k1, b):
    lexical = Lexical.build(texts, language="none", k1=k1, b=b)
    np.testing.assert_allclose(lexical.scores(query), bm25(query, texts, k1, b), rtol=1e-4)


def test_words_of_identifiers_and_of_scripts_without_spaces():
    assert words("readFile, max_size and Q7") == [
        *("read", "file", "readfile"),
        *("max", "size", "max_size"),
        *("and", "q7"),
    ]
    assert words("検索エンジン x") == ["検索", "索エ", "エン", "ンジ", "ジン", "x"]
    assert words("猫") == ["猫"]
    assert words("Straße ﬁle") == ["strasse", "file"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", "What is this, and which of those are the ones that he was looking for?"),
        ("german", "Das ist nicht das, was wir mit dem Kind und der Katze haben wollten."),
        ("none", "lorem quux 12 zzyzx"),
    ],
)
def test_the_language_is_told_by_its_stop_words(language, text):
    assert language_of([text]) == language


def test_an_analyzer_drops_stop_words_and_stems():
    assert Analyzer("english")("The pumps are greased") == Analyzer("english")("pump grease")
    assert Analyzer()("The pumps") == ["the", "pumps"]
    with pytest.raises(OptionError, match="klingon"):
        Analyzer("klingon")


def test_a_query_that_shares_no_word_scores_nothing():
    lexical = Lexical.build(TEXTS)
    assert lexical.scores("xylophone").tolist() == [0.0] * 5
    assert Lexical.build(["the and of"], language="english").scores("the").tolist() == [0.0]
    with pytest.raises(UserError, match="no texts"):
        Lexical.build([])


def test_the_words_come_back_from_disk_and_not_for_other_rows(tmp_path):
    lexical = Lexical.build(TEXTS)
    lexical.save(tmp_path / "words", "abc")
    again = Lexical.open(tmp_path / "words", "abc")
    assert again is not None
    np.testing.assert_array_equal(again.scores("grease pump"), lexical.scores("grease pump"))
    assert Lexical.open(tmp_path / "words", "other") is None
    assert Lexical.open(tmp_path / "nothing", "abc") is None
    (tmp_path / "words" / "lexical.json").write_text("{")
    with pytest.raises(InputError, match="delete the folder"):
        Lexical.open(tmp_path / "words", "abc")


def test_words_that_are_replaced_while_they_are_read_are_read_again(tmp_path, monkeypatch):
    """Another process puts other rows in place between the reading of two files."""
    Lexical.build(TEXTS[:2]).save(tmp_path / "words", "abc")
    load, loads = Lexical._load, []

    def slow(*arguments):
        loads.append(arguments)
        if len(loads) == 1:
            Lexical.build(TEXTS).save(tmp_path / "words", "abc")
        return load(*arguments)

    monkeypatch.setattr(Lexical, "_load", slow)
    again = Lexical.open(tmp_path / "words", "abc")
    assert len(loads) == 2
    assert (
        again.scores("grease pump").tolist() == Lexical.build(TEXTS).scores("grease pump").tolist()
    )


numbers = st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=12)


@settings(max_examples=60, deadline=None)
@given(dense=numbers, weight=st.floats(0, 1), proposed=st.integers(1, 12), data=st.data())
def test_weighted_fusion_is_the_mean_of_scores_brought_to_one_scale(dense, weight, proposed, data):
    lexical = data.draw(
        st.lists(st.floats(0, 20, width=32), min_size=len(dense), max_size=len(dense))
    )

    def scaled(scores):
        falling = sorted(scores, reverse=True)
        high, low = falling[0], falling[min(proposed, len(falling)) - 1]
        return [0.0 if high == low else (s - low) / (high - low) for s in scores]

    wanted = [
        (1 - weight) * d + weight * w for d, w in zip(scaled(dense), scaled(lexical), strict=True)
    ]
    got = Fusion(weight)(np.float32(dense), np.float32(lexical), proposed)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * (1 + max(map(abs, wanted))))


def test_ranks_are_fused_reciprocally_and_a_row_without_a_shared_term_gets_none():
    got = Fusion(method="ranks")(np.float32([0.9, 0.1, 0.5]), np.float32([0.0, 7.0, 3.0]))
    np.testing.assert_allclose(got, [1 / 61, 1 / 63 + 1 / 61, 1 / 62 + 1 / 62], rtol=1e-6)


@pytest.fixture
def index(tmp_path):
    made = Index.build(encode, TEXTS, metadata=[{"n": n} for n in range(5)], model="m")
    made.save(tmp_path / "index")
    return Index.open(tmp_path / "index")


def ids(found):
    return [hit.id for hit in found[0]]


def test_words_alone_vectors_alone_and_both(index):
    query = "QX-7741"
    vectors = encode(["a boat"])
    by_vectors = ids(index.search(vectors, k=5))
    none = Hybrid.open(index, Fusion(0.0)).search(query, vectors=vectors, k=5)
    assert ids(none) == by_vectors
    assert ids(Hybrid.open(index, Fusion(1.0)).search(query, vectors=vectors, k=1)) == ["1"]
    all_of_it = Hybrid.open(index, Fusion(0.5)).search(query, encode=encode, k=5)
    cosines = {hit.id: hit.score for hit in index.search([query], encode=encode, k=5)[0]}
    low, high = min(cosines.values()), max(cosines.values())
    for hit in all_of_it[0]:
        wanted = 0.5 * (cosines[hit.id] - low) / (high - low) + 0.5 * (hit.id == "1")
        assert math.isclose(hit.score, wanted, abs_tol=1e-5)


def test_filters_deletions_and_thresholds_hold(index, tmp_path):
    with Writer(tmp_path / "index") as writer:
        writer.delete(["1"])
    opened = Hybrid.open(Index.open(tmp_path / "index"), Fusion(0.9))
    assert "1" not in ids(opened.search("QX-7741 pump", encode=encode, k=5))
    found = opened.search("grease", encode=encode, k=5, where={"n": {"$lte": 2}})
    assert set(ids(found)) == {"0", "2"}
    for hit in opened.search("grease", encode=encode, k=5, threshold=0.9)[0]:
        assert hit.score >= 0.9
    with pytest.raises(OptionError, match="k"):
        opened.search("grease", encode=encode, k=0)


def test_words_are_counted_once_and_again_when_rows_are_added(index, tmp_path, monkeypatch):
    Hybrid.open(index)
    assert (tmp_path / "index" / FOLDER / "lexical.json").is_file()
    with monkeypatch.context() as patch:
        patch.setattr(Lexical, "build", None)
        Hybrid.open(Index.open(tmp_path / "index"))
    with Writer(tmp_path / "index") as writer:
        writer.add(["A walrus sings."], encode)
    grown = Hybrid.open(Index.open(tmp_path / "index"), Fusion(1.0))
    assert ids(grown.search("walrus", encode=encode, k=1)) == ["5"]


def test_an_index_says_how_it_is_searched(index):
    assert own_fusion({}) is None
    with pytest.raises(DataError, match="colour"):
        own_fusion({"hybrid": {"colour": "red"}})
    assert own_fusion({"hybrid": {"lexical_weight": 0.4, "method": "weighted"}}) == Fusion(0.4)
    assert searcher(index) is index
    assert isinstance(searcher(index, hybrid=True), Hybrid)
    assert searcher(index, lexical_weight=0.3).fusion == Fusion(0.3)
    with pytest.raises(OptionError, match="hybrid search alone"):
        searcher(index, hybrid=False, lexical_weight=0.3)
    with pytest.raises(OptionError, match="from 0 to 1"):
        Fusion(1.5)
    with pytest.raises(OptionError, match="ranks"):
        Fusion(method="rank")
