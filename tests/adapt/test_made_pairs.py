"""Pairs made of passages, each maker against what it is meant to do."""

import math
from collections import Counter

import numpy as np
import pytest

from contrasent.adapt.pairs import (
    FEWEST_WORDS,
    LONGEST,
    Pair,
    Source,
    clicks,
    crops,
    first_sentence,
    inverse_cloze,
    keyword_query,
    neighbours,
    question_to_answer,
    title_to_passage,
    without_copied,
)
from contrasent.adapt.reading import SPAN, sentences_of
from contrasent.adapt.training import BATCH, mixture, with_negatives
from contrasent.documents.passages import Passage
from contrasent.metrics import normalize
from contrasent.search.words import Bm25, words


def split(text):
    return [part.strip() + "." for part in text.split(".") if part.strip()]


def passage(text, *, document=0, order=0, title="", headings=(), prefix=""):
    return Passage(f"d{document}#{order}", document, title, headings, order, text, prefix)


TEXT = "The old mill stands by the river. Its wheel has not turned for years. Ivy covers the walls."
PASSAGES = [
    passage(TEXT, title="The mill", prefix="The mill"),
    passage("A heron waits in the reeds. It catches a frog at last.", order=1, title="The mill"),
    passage("Trains cross the viaduct every hour. The noise wakes nobody.", document=1),
]


def test_the_first_sentence_asks_for_the_rest_below_its_title():
    first, second, third = first_sentence(Source(PASSAGES, [0, 1, 2], split, 0))
    assert first.query == "The old mill stands by the river."
    assert first.text == ("The mill\nIts wheel has not turned for years. Ivy covers the walls.")
    assert (first.passage, second.passage, third.passage) == (0, 1, 2)
    assert (
        list(first_sentence(Source([passage("One sentence alone stands here.")], [0], split, 0)))
        == []
    )


def test_a_sentence_is_taken_out_of_what_it_asks_for_and_every_one_has_its_turn():
    seen = set()
    for seed in range(30):
        (pair,) = inverse_cloze(
            Source(PASSAGES, [0, 1, 2], split, seed)
        )  # the others have two sentences
        assert pair.query in split(TEXT)
        left = [sentence for sentence in split(TEXT) if sentence != pair.query]
        assert pair.text == "The mill\n" + " ".join(left)
        seen.add(pair.query)
    assert seen == set(split(TEXT))


def test_crops_are_spans_of_the_passage_of_bounded_length():
    sizes = set()
    for seed in range(40):
        for pair in crops(Source(PASSAGES, [0, 2], split, seed)):
            text = PASSAGES[pair.passage].text
            total = len(text.split())
            for crop in (pair.query, pair.text):
                assert crop in text
                assert FEWEST_WORDS <= len(crop.split()) <= max(FEWEST_WORDS, LONGEST * total + 1)
                sizes.add(len(crop.split()))
    assert len(sizes) > 3


def test_neighbours_are_of_one_document_and_both_wanted():
    (pair,) = neighbours(Source(PASSAGES, [0, 1, 2], split, 0))
    assert pair.query in split(TEXT)
    assert (pair.text, pair.passage) == (PASSAGES[1].indexed, 1)
    assert list(neighbours(Source(PASSAGES, [0, 2], split, 0))) == []


def test_titles_ask_with_the_headings_that_are_the_documents_own():
    common = [
        passage("Text.", document=n, title=f"Note {n}", headings=("Introduction", f"Part {n}"))
        for n in range(5)
    ]
    pairs = list(title_to_passage(Source(common, range(5), split, 0)))
    assert [pair.query for pair in pairs] == [f"Note {n} Part {n}" for n in range(5)]
    same = [passage("Text.", document=n, title="Untitled") for n in range(5)]
    assert list(title_to_passage(Source(same, range(5), split, 0))) == []


def test_keywords_are_the_heaviest_words_by_a_plain_count():
    texts = [
        "copper copper kettle boils slowly today",
        "copper pipes leak slowly",
        "the kettle was new today",
        "pipes of copper and a kettle leak",
    ]
    rows = [passage(text, document=n) for n, text in enumerate(texts)]
    holding = Counter(word for text in texts for word in set(words(text)))
    for pair in keyword_query(Source(rows, range(4), split, 3)):
        for word in pair.query.split():
            assert word in words(texts[pair.passage])
            assert holding[word] > 1
            assert word not in ("the", "was", "and", "of")
        assert 2 <= len(pair.query.split()) <= 4
    assert len(list(keyword_query(Source(rows, range(4), split, 3)))) >= 3


@pytest.mark.parametrize(
    ("made", "query", "text"),
    [
        (
            passage("Q: Who mends roofs?\nA: The roofer does."),
            "Who mends roofs?",
            "The roofer does.",
        ),
        (
            passage("Call the roofer.", headings=("How do I mend a roof?",)),
            "How do I mend a roof?",
            "Call the roofer.",
        ),
    ],
)
def test_questions_ask_for_the_answers_that_follow(made, query, text):
    (pair,) = question_to_answer(Source([made], [0], split, 0))
    assert (pair.query, pair.text, pair.maker) == (query, text, "question")


def test_text_without_spaces_gives_crops_and_sentences_too():
    text = "古い水車は川のそばに立っている。車輪は何年も回っていない。壁は蔦に覆われている。"
    rows = [passage(text)]
    for seed in range(10):
        (pair,) = crops(Source(rows, [0], split, seed))
        assert pair.query in text
        assert FEWEST_WORDS <= len(pair.query) <= LONGEST * len(text) + 1
    (pair,) = first_sentence(Source(rows, [0], lambda t: [s + "。" for s in t.split("。") if s], 0))
    assert pair.query == "古い水車は川のそばに立っている。"
    left = without_copied(pair.query, "古い水車", words, 1.0, 0)
    assert left == "は川のそばに立っている。"  # no pairs of characters that overlap, no spaces
    assert without_copied(pair.query, pair.query, words, 0.0, 0) == pair.query


def test_keywords_of_text_without_spaces_are_pairs_of_characters():
    texts = [
        "古い水車は川のそばに立つ",
        "水車の車輪は回らない",
        "川の水は冷たい",
        "水車と川のそばの道",
    ]
    rows = [passage(text) for text in texts]
    pairs = list(keyword_query(Source(rows, range(4), split, 0)))
    assert pairs
    for pair in pairs:
        assert all(word in texts[pair.passage] for word in pair.query.split())
        assert any(len(word) == 2 for word in pair.query.split())


def test_copied_words_are_taken_out_in_the_share_that_is_named():
    query = "alpha beta gamma delta " * 50
    text = "alpha gamma"
    assert without_copied(query, text, str.split, 0.0, 0).split() == query.split()
    assert set(without_copied(query, text, str.split, 1.0, 0).split()) == {"beta", "delta"}
    half = Counter(without_copied(query, text, str.split, 0.5, 0).split())
    assert half["beta"] == half["delta"] == 50
    # 100 shared words, each kept with probability one half: four standard deviations are 20.
    assert math.isclose(half["alpha"] + half["gamma"], 50, abs_tol=20)


def test_a_query_asks_for_the_passage_of_what_was_opened_that_shares_its_words():
    rows = [passage("red tea"), passage("green tea"), passage("blue ink"), passage("old ink")]
    holding = [(0, 1), (2,), (3,)]
    log = [("green", {0: 1.0}), ("ink", {1: 3.0, 2: 1.0}), ("Tea", {2: 1.0, 0: 2.0})]
    make = clicks(log, holding)

    def made(numbers):
        return [(p.query, p.passage, p.maker) for p in make(Source(rows, numbers, split, 0))]

    once = [("green", 1, "click"), *[("ink", 2, "click")] * 2, ("ink", 3, "click")]
    assert made(range(4)) == [*once, ("Tea", 3, "click"), *[("Tea", 0, "click")] * 2]
    assert made([3]) == []  # both queries belong to where they were opened most
    assert made([0, 1]) == [("green", 1, "click"), *[("Tea", 0, "click")] * 2]


def test_negatives_are_of_training_documents_and_never_of_the_pairs_own():
    texts = [f"note {n} about copper" for n in range(40)]
    documents = [n // 2 for n in range(40)]
    trainable = np.array([n % 4 < 2 for n in range(40)])
    random = np.random.default_rng(0)
    rows = normalize(random.standard_normal((40, 6)).astype(np.float32))
    pairs = [Pair(f"copper {n}", "text", n, "m") for n in range(40) if trainable[n]]
    triples = with_negatives(
        pairs,
        texts,
        documents,
        trainable,
        queries=rows[trainable],
        rows=rows,
        lexical=Bm25.of(texts, "none"),
        seed=0,
    )
    assert len(triples) == 20
    for pair, (query, positive, negative) in zip(pairs, triples, strict=True):
        assert (query, positive) == (pair.query, pair.text)
        row = texts.index(negative)
        assert trainable[row]
        assert documents[row] != documents[pair.passage]


def test_a_mixture_takes_makers_in_turn_and_no_pair_twice_in_two_batches():
    many = [Pair(f"m{n}", "text", n, "many") for n in range(1000)]
    few = [Pair(f"f{n}", "text", n, "few") for n in range(5)]
    chosen = [pair.query for pair in mixture([*many, *few], (), 900, 3)]
    assert len(chosen) == 900
    assert chosen[:10:2] == [q for q in chosen[:10] if q.startswith("m")]
    assert 5 * (900 // (3 * BATCH)) <= sum(q.startswith("f") for q in chosen) <= 5 * (900 // BATCH)
    for start in range(0, 900 - 2 * BATCH):
        window = chosen[start : start + BATCH]
        assert len(set(window)) == len(window)
    assert len(mixture(few, (), 12, 0)) == 12  # nothing else to give
    assert mixture([], (), 12, 0) == []


def test_text_without_marks_is_cut_into_spans():
    words = [f"w{n}" for n in range(30)]
    spans = sentences_of(" ".join(words))
    assert [span.split() for span in spans] == [words[:SPAN], words[SPAN : 2 * SPAN], words[24:]]
    assert sentences_of("A short line without any mark") == ["A short line without any mark"]
    assert sentences_of("One ends here. Two follows\nThree") == [
        "One ends here.",
        "Two follows",
        "Three",
    ]
    # Written without spaces, it is cut between characters.
    assert sentences_of("水" * 25) == ["水" * 12, "水" * 12, "水"]
