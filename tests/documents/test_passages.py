"""Passages: nothing lost, nothing twice, nothing too long; copies against a plain loop."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasent.documents.duplicates import ALIKE, near_copies
from contrasent.documents.folder import Document, Section
from contrasent.documents.passages import cut, passages
from contrasent.documents.sentences import split
from contrasent.errors import OptionError


def words(texts):
    """A word is a token, a long one several; two special ones around each text."""
    return [2 + sum(-(-len(word) // 6) for word in text.split()) for text in texts]


def document(*paragraphs, id="a", title="", headings=()):
    return Document(id, title, (Section(headings, paragraphs),))


word = st.text("abcdeäß。ж中。. \n!?", min_size=1, max_size=12)
paragraph = st.lists(word, min_size=1, max_size=60).map(lambda w: " ".join(w).strip())
paragraph = paragraph.filter(lambda text: text.strip())
section = st.builds(
    Section,
    st.lists(st.sampled_from(["ONE", "TWO OF THEM", "x" * 50]), max_size=3).map(tuple),
    st.lists(paragraph, min_size=1, max_size=4).map(tuple),
)
texts = st.lists(st.lists(section, min_size=1, max_size=6).map(tuple), min_size=1, max_size=2)


@settings(max_examples=40, deadline=None)
@given(texts, st.sampled_from(["", "A title", "t" * 200]), st.integers(16, 80))
def test_every_word_is_in_one_passage_in_order_and_none_is_too_long(found, title, most):
    documents = [Document(str(i), title, sections) for i, sections in enumerate(found)]
    result = passages(documents, count_tokens=words, max_tokens=most)
    assert result == passages(documents, count_tokens=words, max_tokens=most)
    assert all(count <= most for count in words([p.indexed for p in result.passages]))
    if result.exact or result.near:
        return  # a sentence of a copy is where its original is: tested below
    for number, one in enumerate(documents):
        mine = [p for p in result.passages if p.document == number]
        assert [p.order for p in mine] == list(range(len(mine)))
        assert result.holding[number] == tuple(map(result.passages.index, mine))
        rest = "".join("".join(p.text for p in mine).split())
        for one_section in one.sections:
            for text in one_section.paragraphs:
                # Headings may stand before a paragraph, as lines of the text; nothing else may.
                wanted = "".join(text.split())
                before = rest.index(wanted)
                assert "".join("".join(one_section.headings).split()).endswith(rest[:before])
                rest = rest[before + len(wanted) :]
        assert not rest


def test_a_document_that_fits_is_one_passage_with_its_headings():
    one = Document("a", "Rivers", (
        Section((), ("They flow.",)),
        Section(("Banks",), ("Two.",)),
        Section(("Banks", "Left"), ("One.",)),
        Section(("Delta",), ("Ends.",)),
    ))  # fmt: skip
    (passage,) = passages([one], count_tokens=words, max_tokens=40).passages
    assert passage.text == "They flow.\nBanks\nTwo.\nLeft\nOne.\nDelta\nEnds."
    assert passage.indexed == f"Rivers\n{passage.text}"
    assert (passage.id, passage.headings, passage.order) == ("a#1", (), 0)
    text, _, about = passage.row
    found = [(text[at:].split("\n")[0], names) for at, names, _ in about["sections"]]
    assert found == [
        ("They flow.", []), ("Banks", ["Banks"]), ("Left", ["Banks", "Left"]), ("Delta", ["Delta"]),
    ]  # fmt: skip


def test_passages_know_the_pages_of_their_sections():
    pages = [
        Section((), (f"{n} " + "word " * length,), n) for n, length in ((1, 2), (2, 3), (4, 30))
    ]
    found = [one.row for one in cut([Document("a", "", tuple(pages))], words, 24)]
    assert [about["page"] for _, _, about in found] == [1, 4, 4]
    assert [
        [text[at], page] for text, _, about in found for at, _, page in about.get("sections", ())
    ] == [["1", 1], ["2", 2]]


def test_sections_are_not_mixed_unless_small():
    long = " ".join(f"w{i}" for i in range(25))
    one = Document("a", "", (
        Section(("First",), (long,)),
        Section(("Second", "Inner"), (long + " x",)),
        Section(("Second", "Small"), ("tiny",)),
    ))  # fmt: skip
    found = passages([one], count_tokens=words, max_tokens=36).passages
    second = f"Inner\n{long} x\nSmall\ntiny"
    assert [(*p.headings, p.text) for p in found] == [("First", long), ("Second", second)]
    assert found[1].indexed.startswith("Second\nInner")


def test_a_long_section_is_cut_at_sentences_into_even_parts():
    sentence = [f"Sentence number {i} has six words." for i in range(10)]
    found = passages([document(" ".join(sentence))], count_tokens=words, max_tokens=38).passages
    # 6 tokens and a longer word: 7 or 8 each, 36 in a passage; 70 or so in all: two halves.
    assert [p.text for p in found] == [" ".join(sentence[:5]), " ".join(sentence[5:])]


def test_titles_take_a_quarter_at_most():
    one = document("Text.", title="word " * 30, headings=("Outer " * 30, "Inner one"))
    (passage,) = passages([one], count_tokens=words, max_tokens=24).passages
    assert passage.indexed == "Inner one\nText."
    with pytest.raises(OptionError, match=r"max_tokens 15.*at least 16"):
        passages([one], count_tokens=words, max_tokens=15)


def test_what_many_documents_repeat_is_removed_and_counted_but_never_all():
    own, common = "Text number {} of all.", "Copyright 200{}. All rights reserved."
    many = [document(own.format("x" * i), common.format(i), id=str(i)) for i in range(8)]
    alone = document("Copyright 1999. All rights reserved.", id="alone")
    result = passages([*many, alone], count_tokens=words, max_tokens=60)
    assert result.boilerplate == 8
    texts = [one.sections[0].paragraphs[0] for one in (*many, alone)]
    assert [p.text for p in result.passages] == texts


def test_copies_are_removed_and_stood_for():
    river = "Rivers carry sand and mud and stones to a big sea where waves grind it all so far " * 2
    near = river.replace("stones", "pebbles", 1)
    given = [river, "Other text.", f"  {river.upper()}", near, "Rivers carry other things."]
    documents = [document(text, id=str(i)) for i, text in enumerate(given)]
    result = passages(documents, count_tokens=words, max_tokens=100)
    assert (result.exact, result.near) == (1, 1)
    assert [p.id for p in result.passages] == ["0#1", "1#1", "4#1"]
    assert result.holding == ((0,), (1,), (0,), (0,), (2,))


def jaccard(one, other):
    """By sets of runs of three words, case aside."""
    runs = []
    for text in (one, other):
        found = text.casefold().split()
        runs.append({tuple(found[i : i + 3]) for i in range(max(len(found) - 2, 1))})
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 59), max_size=4)), max_size=12)
)
def test_near_copies_against_all_pairs(changes):
    bases = [[f"{chr(97 + (7 * i * i + i) % 26)}{b}{i % 19}" for i in range(60)] for b in range(3)]
    given = []
    for base, places in changes:
        text = bases[base][:]
        for place in places:
            text[place] = "changed"
        given.append(" ".join(text))
    expected: list[int] = []
    for i, text in enumerate(given):
        originals = [j for j in range(i) if expected[j] == j]
        alike = (j for j in originals if jaccard(text, given[j]) >= ALIKE)
        same = next((expected[j] for j in range(i) if given[j] == text), None)
        expected.append(same if same is not None else next(alike, i))
    assert near_copies(given) == expected


def test_near_copies_of_texts_without_spaces():
    text = "海辺には砂と石と貝がある。川は砂を海へ運びます。"
    text += "海はそれをさらに細かく砕きます。これは長い話だ。"
    assert near_copies([text, text.replace("川", "河", 1), text[::-1]]) == [0, 0, 2]


SENTENCES = [
    ("One river. Two rivers! Three?", 3), ("See Fig. 3 and Mr. Smith. He left.", 2),
    ("Das Urteil vom 2. April 2013 gem. § 17 Abs. 2 BGB i.V.m. Art. 5 Nr. 3 gilt. Es bleibt.", 2),
    ("Vgl. z. B. das Amt, d.h. den Kläger. Er klagte.", 2),
    ("Sie wird zurückgewiesen.2. Der Kläger hat die Kosten zu tragen.Tatbestand ist dies.", 3),
    ("川は流れる。海は広い！本当？", 3), ("नदी बहती है। समुद्र बड़ा है।", 2),
    ("هل تجري الأنهار؟ نعم.", 2),
    ('He said "No." Then he went.', 2),
    ("the wing was tested . the flow was laminar . see fig. 3 .", 3),
    ("Read numpy.linalg.svd now. Version 2.3.1 is out.", 2),
]  # fmt: skip


@pytest.mark.parametrize(("text", "count"), SENTENCES)
def test_sentences_end_where_they_do(text, count):
    found = split(text)
    assert len(found) == count, found
    assert "".join(found) == text


@given(st.text(alphabet=st.sampled_from('ab. \n。!?"A1२।'), max_size=60))
def test_sentences_joined_are_the_text(text):
    assert "".join(split(text)) == text
    assert all(split(text)) or not text
