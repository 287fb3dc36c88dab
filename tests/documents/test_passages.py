"""Passages: nothing lost, nothing twice, nothing too long."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasent.documents.folder import Document, Section
from contrasent.documents.passages import cut
from contrasent.documents.sections import sentences
from contrasent.errors import OptionError


def words(texts):
    """A word is a token, a long one several; two special ones around each text."""
    return [2 + sum(-(-len(word) // 6) for word in text.split()) for text in texts]


def own(row):
    """The text of a passage without its title and headings."""
    text, _, about = row
    return text[about["body"] :]


def bare(text):
    return "".join(text.split())


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
    rows = list(cut(documents, words, most))
    assert all(count <= most for count in words([text for text, *_ in rows]))
    for one in documents:
        mine = [row for row in rows if row[2]["document"] == one.id]
        assert [name for _, name, _ in mine] == [f"{one.id}#{n + 1}" for n in range(len(mine))]
        assert all(about["title"] == one.title for *_, about in mine)
        rest = "".join("".join(map(own, mine)).split())
        above = [*map(bare, re.split("\n| > ", "\n".join(text for text, *_ in mine))), rest]
        for one_section in one.sections:
            names = [*map(bare, (title, *one_section.headings))]
            assert all(any(name in text for text in above) for name in names)
            for text in one_section.paragraphs:
                # Title and headings may stand before a paragraph, as lines; nothing else may.
                wanted = bare(text)
                before = rest.index(wanted)
                assert re.fullmatch("".join(f"(?:{name})?" for name in names), rest[:before])
                rest = rest[before + len(wanted) :]
        assert not rest


def test_a_document_that_fits_is_one_passage_with_its_headings():
    one = Document("a", "Rivers", (
        Section((), ("They flow.",)),
        Section(("Banks",), ("Two.",)),
        Section(("Banks", "Left"), ("One.",)),
        Section(("Delta",), ("Ends.",)),
    ))  # fmt: skip
    ((text, name, about),) = cut([one], words, 40)
    assert text == "Rivers\nThey flow.\nBanks\nTwo.\nLeft\nOne.\nDelta\nEnds."
    assert (name, about["headings"]) == ("a#1", [])
    found = [(text[at:].split("\n")[0], names) for at, names, _ in about["sections"]]
    assert found == [
        ("They flow.", []), ("Banks", ["Banks"]), ("Left", ["Banks", "Left"]), ("Delta", ["Delta"]),
    ]  # fmt: skip


def test_passages_know_the_pages_of_their_sections():
    pages = [
        Section((), (f"{n} " + "word " * length,), n) for n, length in ((1, 2), (2, 3), (4, 30))
    ]
    found = [*cut([Document("a", "", tuple(pages))], words, 24)]
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
    found = list(cut([one], words, 36))
    second = f"Inner\n{long} x\nSmall\ntiny"
    assert [(*row[2]["headings"], own(row)) for row in found] == [
        ("First", long), ("Second", second),
    ]  # fmt: skip
    assert found[1][0].startswith("Second\nInner")


@pytest.mark.parametrize(("count", "parts"), [(6, 2), (8, 2), (12, 3), (13, 3)])
def test_a_long_section_is_cut_at_sentences_into_even_parts(count, parts):
    """36 tokens hold five sentences of 7; filled in turn, the last part would hold the rest."""
    sentence = [f"Sentence {i % 10} has six words now." for i in range(count)]
    found = cut([document(" ".join(sentence))], words, 38)
    sizes = [text.count("words") for text, *_ in found]
    assert sum(sizes) == count and len(sizes) == parts
    assert max(sizes) - min(sizes) <= 1


def test_titles_take_a_quarter_at_most():
    one = document("Text.", title="word " * 30, headings=("Outer " * 30, "Inner one"))
    found = [f"{text}\n".partition("\n") for text, *_ in cut([one], words, 24)]
    assert {above for above, *_ in found} == {"Inner one"}
    assert "".join(text for *_, text in found).split() == ["word"] * 30 + ["Outer"] * 30 + ["Text."]
    # A quarter of 22 tokens is 5: one more and only the last heading stands above the text.
    for above, first in (("aa bb", "tt\naa bb > cc"), ("aa bb dd", "tt\ncc")):
        ((text, *_),) = cut([document("Text.", title="tt", headings=(above, "cc"))], words, 24)
        assert text.startswith(first), text
    # What joins headings may stand in a title, which is not told again for that.
    ((text, *_),) = cut([document("Text.", title="aa > bb", headings=("cc",))], words, 24)
    assert text == "aa > bb\ncc\nText."
    with pytest.raises(OptionError, match=r"max_seq_length 15.*at least 16"):
        list(cut([one], words, 15))


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
    found = sentences(text)
    assert len(found) == count, found
    assert "".join(found) == text


@given(st.text(alphabet=st.sampled_from('ab. \n。!?"A1२।'), max_size=60))
def test_sentences_joined_are_the_text(text):
    assert "".join(sentences(text)) == text
    assert all(sentences(text)) or not text
