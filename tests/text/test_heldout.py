"""Held-out pairs: no text of theirs is trained on, and the corpus alone chooses them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contrasent.errors import InputError, OptionError, TrainingError
from contrasent.text import heldout
from contrasent.text.corpus import open_corpus
from contrasent.text.heldout import hold_out, hold_out_documents, hold_out_sentences

few_words = st.sampled_from(["kettle", "Kettle", "map", "MAP", "lamp", "roof", "violin", "ladder"])


def pairs(count):
    return [(f"question {n} about the lamp", f"answer {n}, by the sailor") for n in range(count)]


def can_hold_one_out(rows):
    """Whether a pair can be held out at all: with all its texts, or with the text of one side."""
    budget = len(rows) // 5

    def times(text):
        return sum(row.count(text) for row in rows)

    for query, document in (row[:2] for row in rows if row[0] != row[1]):
        if (
            max(times(query), times(document))
            <= budget
            >= sum(query in row or document in row for row in rows)
        ):
            return True
        for side, text in enumerate((query, document)):
            others = Counter(row[1 - side] for row in rows if text in row)
            every = Counter(row[1 - side] for row in rows)
            if times(text) <= budget and all(every[other] > n for other, n in others.items()):
                return True
    return False


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(few_words, few_words, few_words), min_size=5, max_size=40),
    st.integers(0, 12), st.integers(1, 9),
)  # fmt: skip
@example([("kettle", "Kettle", "map")] * 40, 0, 1)
@example([("kettle", "map", "lamp")] * 20 + [("map", "kettle", "lamp")] * 20, 0, 1)
def test_what_is_held_out_is_not_trained_on(rows, others, count):
    rows = [*rows, *((f"{a}?", f"{a}!", "no") for a in range(others))]
    fold = [tuple(text.casefold() for text in row) for row in rows]
    try:
        split = hold_out(open_corpus(rows), count)
    except TrainingError:
        assert not can_hold_one_out(fold)
        return
    assert can_hold_one_out(fold)
    queries, documents, pool = (
        [text.casefold() for text in side] for side in (split.queries, split.documents, split.pool)
    )
    assert 1 <= len(queries) == len(documents) <= min(count, len(rows) // 5)
    assert len(rows) - len(split.train) <= len(rows) // 5
    assert all((q, d) in {row[:2] for row in fold} for q, d in zip(queries, documents, strict=True))
    assert len(set(pool)) == len(pool) and set(pool) == set(documents)
    for query, places in zip(queries, split.relevant, strict=True):
        answers = {row[1] for row in fold if row[0] == query}
        assert [i for i, text in enumerate(pool) if text in answers] == places
    trained = {text for row in split.train for text in fold[row]}
    gone = [row for i, row in enumerate(fold) if i not in set(split.train.tolist())]
    if "but not their" not in split.note:
        assert len(set(queries) | set(documents)) == 2 * len(queries)  # each text once
        assert not trained & {*queries, *documents}
        assert all({*row} & {*queries, *documents} for row in gone)  # nothing else is left out
        assert [places for places in split.relevant] == [[i] for i in range(len(queries))]
    else:
        sides = [queries, documents]
        own, other = sides if "queries, but" in split.note else reversed(sides)
        assert not trained & set(own) and len(set(own)) == len(own)
        column = 1 if "queries, but" in split.note else 0
        assert set(other) <= {fold[row][column] for row in split.train}
        assert all({*row} & set(own) for row in gone)


def faq(questions, answers):
    return [(f"question {n} of {n % answers}", f"answer {n % answers}") for n in range(questions)]


def test_questions_that_share_answers():
    split = hold_out(open_corpus(faq(4170, 750)), 1000)
    assert len(split.train) >= 4170 * 4 // 5
    assert 139 <= len(split.queries) <= 167  # of five or six rows each, in 834
    gone = 4170 - len(split.train)
    assert split.note == f"held out: {len(split.queries)} pairs ({gone} rows with the same texts)"
    star = [(f"question {n}", "the answer") for n in range(500)]
    split = hold_out(open_corpus(star), 1000)
    assert (len(split.train), len(split.queries), split.pool) == (400, 100, ["the answer"])
    assert split.note == "held out: 100 queries, but not their answers, which most rows share"
    split = hold_out(open_corpus([row[::-1] for row in star]), 1000)
    assert (len(split.train), len(set(split.documents))) == (400, 100)
    assert "100 answers, but not their queries" in split.note
    clicks = [(f"query {n % 60}", f"page {(7 * n + n // 60) % 45}") for n in range(600)]
    split = hold_out(open_corpus(clicks), 1000)
    assert "queries, but not their answers" in split.note
    assert max(map(len, split.relevant)) > 1


def test_held_out_pairs_have_their_scores():
    rated = [(f"one {i}", f"two {i}", i / 7) for i in range(50)]
    split = hold_out(open_corpus(rated, score=2), 10)
    assert len(split.scores) == len(split.queries) == 10
    for query, document, score in zip(split.queries, split.documents, split.scores, strict=True):
        assert (query, document, score) in rated


def test_counts():
    corpus = open_corpus(pairs(100))
    one, two = hold_out(corpus, 10), hold_out(corpus, 10)
    assert one.queries == two.queries
    assert np.array_equal(one.train, two.train)
    assert (len(one.queries), len(one.train)) == (10, 90)
    assert one.train.dtype == np.int64
    # At most a fifth.
    assert len(hold_out(corpus, 1000).queries) == 20
    # Pairs stay together, in the corpus's order.
    numbers = [int(q.split()[1]) for q in one.queries]
    assert numbers == sorted(numbers)
    assert one.documents == [f"answer {n}, by the sailor" for n in numbers]


def test_too_few():
    with pytest.raises(TrainingError, match="4 pairs are too few to hold any out"):
        hold_out(open_corpus(pairs(4)), 10)
    alike = [("Map", "map")] * 20
    with pytest.raises(TrainingError, match=r"20 pairs .* or their texts are identical"):
        hold_out(open_corpus(alike), 10)
    with pytest.raises(InputError, match="only one row"):
        hold_out(open_corpus(pairs(1)), 10)
    with pytest.raises(OptionError, match="eval_size 0: must be at least 1"):
        hold_out(open_corpus(pairs(200)), 0)
    sentences = open_corpus([a for a, _ in pairs(200)])
    with pytest.raises(TrainingError, match=r"^eval_size 10: at least 20 sentences are needed"):
        hold_out_sentences(sentences, 10)


def test_sentences_are_held_out_once_and_not_trained_on():
    texts = [f"Lamp {n % 120}" if n % 3 else f"lamp {n % 120}" for n in range(200)]
    rows, held = hold_out_sentences(open_corpus(texts), 20)
    folded = [text.casefold() for text in held]
    assert len(folded) == len(set(folded)) == 20
    assert [i for i, text in enumerate(texts) if text.casefold() not in folded] == rows.tolist()
    assert len(hold_out_sentences(open_corpus(texts), 1000)[1]) == 24  # a fifth of 120
    rows, held = hold_out_sentences(open_corpus([f"lamp {n % 100}" for n in range(500)]), 1000)
    assert (len(rows), len(held)) == (400, 20)  # repeats do not hold everything out
    with pytest.raises(TrainingError, match="needs 20 held-out sentences"):
        hold_out_sentences(open_corpus(texts[:99]), 1000)


def test_documents_are_held_out_whole(tmp_path):
    lengths = [n % 4 + 1 for n in range(150)]
    documents = [
        [f"sentence {i} of {n}" for i in range(length)] for n, length in enumerate(lengths)
    ]
    documents[149] = [documents[9][0], "another one"]  # says again what another begins with
    path = tmp_path / "text.txt"
    for _ in range(5):
        documents = documents[30:] + documents[:30]
        path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
        corpus = open_corpus(path, documents=True)
        rows, held = hold_out_documents(corpus, 1000)
        assert len(held) == 22  # a fifth of the 112 that have two sentences or more
        assert all(document in documents and len(document) > 1 for document in held)
        gone = {text for document in held for text in document}
        every = [text for document in documents for text in document]
        assert [i for i, text in enumerate(every) if text not in gone] == rows.tolist()
    assert len(hold_out_documents(corpus, 21)[1]) == 21
    again = [["sentence one", f"sentence {n % 100}"] for n in range(500)]
    again += [[f"alone {n}"] for n in range(500)]
    path.write_text("\n\n".join("\n".join(document) for document in again) + "\n")
    assert len(hold_out_documents(open_corpus(path, documents=True), 1000)[1]) == 20
    path.write_text("\n\n".join("\n".join(document) for document in documents[:99]) + "\n")
    with pytest.raises(TrainingError, match="needs 20 held-out documents of two sentences or more"):
        hold_out_documents(open_corpus(path, documents=True), 1000)


def test_what_finds_what_in_a_document():
    found = heldout.passages([["a", "b"], ["c", "d", "e", "f", "g"]])
    assert found == {"rest": (["a", "c"], ["b", "d e f g"]), "next": (["a", "d"], ["b", "e"])}
