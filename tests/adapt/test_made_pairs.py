"""Pairs made of passages, each maker against what it is meant to do."""

import math
from collections import Counter

from contrasent.adapt.pairs import (
    Source,
    clicks,
    first_sentence,
    inverse_cloze,
    question_to_answer,
    title_to_passage,
    without_copied,
)
from contrasent.adapt.reading import SPAN, sentences_of
from contrasent.documents.passages import Passage
from contrasent.search.words import words


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
    alone = Source([passage("One sentence alone stands here.")], [0], split, 0)
    assert list(first_sentence(alone)) == []


def test_a_sentence_is_taken_out_of_what_it_asks_for_and_every_one_has_its_turn():
    seen = set()
    for seed in range(30):
        source = Source(PASSAGES, [0, 1, 2], split, seed)
        (pair,) = inverse_cloze(source)  # the others have two sentences
        assert pair.query in split(TEXT)
        left = [sentence for sentence in split(TEXT) if sentence != pair.query]
        assert pair.text == "The mill\n" + " ".join(left)
        seen.add(pair.query)
    assert seen == set(split(TEXT))


def test_titles_ask_with_the_headings_that_are_the_documents_own():
    common = [
        passage("Text.", document=n, title=f"Note {n}", headings=("Introduction", f"Part {n}"))
        for n in range(5)
    ]
    pairs = list(title_to_passage(Source(common, range(5), split, 0)))
    assert [pair.query for pair in pairs] == [f"Note {n} Part {n}" for n in range(5)]
    same = [passage("Text.", document=n, title="Untitled") for n in range(5)]
    assert list(title_to_passage(Source(same, range(5), split, 0))) == []


def test_questions_ask_for_the_answers_that_follow():
    headed = passage("Call one.", headings=("How do I mend it?",))
    for made, query, text in (
        (passage("Q: Who mends it?\nA: The roofer."), "Who mends it?", "The roofer."),
        (headed, "How do I mend it?", "Call one."),
    ):
        (pair,) = question_to_answer(Source([made], [0], split, 0))
        assert (pair.query, pair.text, pair.maker) == (query, text, "question")


def test_text_without_spaces_gives_sentences_too():
    text = "古い水車は川のそばに立っている。車輪は何年も回っていない。壁は蔦に覆われている。"
    rows = [passage(text)]
    (pair,) = first_sentence(Source(rows, [0], lambda t: [s + "。" for s in t.split("。") if s], 0))
    assert pair.query == "古い水車は川のそばに立っている。"
    left = without_copied(pair.query, "古い水車", words, 1.0, 0)
    assert left == "は川のそばに立っている。"  # no pairs of characters that overlap, no spaces
    assert without_copied(pair.query, pair.query, words, 0.0, 0) == pair.query


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

    once = [("green", 1, "click"), ("ink", 2, "click"), ("ink", 3, "click")]
    assert made(range(4)) == [*once, ("Tea", 3, "click"), ("Tea", 0, "click")]
    assert made([3]) == []  # both queries belong to where they were opened most
    assert made([0, 1]) == [("green", 1, "click"), ("Tea", 0, "click")]


def test_text_without_marks_is_cut_into_spans():
    words = [f"w{n}" for n in range(30)]
    spans = sentences_of(" ".join(words))
    assert [span.split() for span in spans] == [words[:SPAN], words[SPAN : 2 * SPAN], words[24:]]
    assert sentences_of("A short line without any mark") == ["A short line without any mark"]
    assert sentences_of("One ends. Two follows\nThree") == ["One ends.", "Two follows", "Three"]
    # Written without spaces, it is cut between characters.
    assert sentences_of("水" * 25) == ["水" * 12, "水" * 12, "水"]
