"""Which sentence of a hit answers, and which of its words are those of the query."""

import numpy as np
import pytest

from contrasent.search.answers import (
    ENCODED,
    LONGEST,
    Candidates,
    answers,
    path_of,
    place_of,
    set_apart,
)
from contrasent.search.index import Hit, grouped
from contrasent.search.words import Analyzer

ENGLISH = Analyzer("english")


def hit(text, name="a.md", **facts):
    return Hit("1", text, 1.0, {"document": name, **facts})


def found(query, text, analyzer=ENGLISH, **facts):
    """The answer by words alone, and its marked words."""
    ((answer,),) = Candidates([query], [[hit(text, **facts)]], analyzer).best(None, None)
    return text[answer.start : answer.end], [text[a:b] for a, b in answer.marks]


TRIPS = "Travel\nTrains are booked by the office. Every day you get 28 euros for food. Ask first."


def test_the_sentence_that_shares_most_words():
    sentence, marks = found("euros for food each day", TRIPS, body=7)
    assert sentence == "Every day you get 28 euros for food."
    assert marks == ["day", "euros", "food"]
    # Stems match, and the title in front of the passage is no sentence of it.
    assert found("travelling: who books trains?", TRIPS, body=7) == (
        "Trains are booked by the office.",
        ["Trains", "booked"],
    )


def test_vectors_decide_where_words_do_not():
    """A paraphrase without a common word; each sentence's vector is the number of its place."""
    places = {"Trains are booked by the office.": 0, "Every day you get 28 euros for food.": 1}

    def encode(texts):
        return np.array([np.eye(3)[places.get(t, 2)] for t in texts], np.float32)

    for place, sentence in enumerate(places):
        vector = np.eye(3, dtype=np.float32)[[place]]
        ((answer,),) = answers(["xyz"], vector, [[hit(TRIPS, body=7)]], encode, ENGLISH)
        assert slice(answer.start, answer.end) == slice(
            TRIPS.index(sentence), TRIPS.index(sentence) + len(sentence)
        )


@pytest.mark.parametrize(("query", "sentence", "rest"), [
    # A heading, or a question, is answered by what follows it.
    ("opening hours", "Opening hours\nFrom nine to five, not on Mondays.", " Come soon."),
    ("machine", "The manual of the machine\nCare\nClean it with warm water only.", " Rest."),
    ("rain", "The wettest day brought rain of 147 mm.", "\nimport rain\n2 days"),
    ("what about hotels", "What about hotels? They are paid for.", " Trains too."),
    # A wrapped line goes on; an item of a list stands alone.
    ("the roof", "We shall mend the roof in\nspring of the coming year.", " Then we rest."),
    ("the roof", "Of all that a village has to pay for the roof comes first and\n2 doors.", ""),
    ("the ferry", f"Passengers of the ferry were {'more and ' * 8}more", "\nOn Sundays it is full"),
    ("the roof", "- mend the roof before winter comes, and pay for it", "\n- Paint the door"),
    ("the roof", "Of all that we have to mend, the roof comes first", "\n\nspring is best for it."),
])  # fmt: skip
def test_where_a_sentence_ends(query, sentence, rest):
    assert found(query, sentence + rest)[0] == sentence


def test_slides_headings_and_cells_are_not_run_together():
    text = "Plan\nMobile app in August\nRisks\nThe provider may fail. We look."
    shown, _ = found("mobile app", text, body=5, sections=[[5, ["Plan"], 1], [26, ["Risks"], 2]])
    assert shown == "Mobile app in August"  # the next line is of another slide
    assert set_apart("Care\nClean it\nwith water.\nRest") == "Care\u2028Clean it\nwith water.\nRest"


@pytest.mark.parametrize("item", [
    "- [ ] call the bank about the loan", "[x] call the bank about the loan",
    "TODO call the bank about the loan", "The bank and the loan ....... 17",
    "2.1 The bank and the loan 17", "- [The bank and the loan](#bank)",
])  # fmt: skip
def test_tasks_and_tables_of_contents_come_after_prose(item):
    assert found("the bank and the loan", f"{item}\nWe asked a bank.")[0] == "We asked a bank."
    ((answer,),) = Candidates(["bank"], [[hit(item)]], ENGLISH).best(None, None)
    assert answer.listed  # where there is nothing else


@pytest.mark.parametrize("at", [0, 500, 2000])
def test_a_long_sentence_is_cut_around_its_words(at):
    text = "word " * at + "the needle is here " + "hay " * 900
    ((answer,),) = Candidates(["needle"], [[hit(text)]], ENGLISH).best(None, None)
    shown = answer.to_json(hit(text))
    assert len(shown["text"]) <= LONGEST and "the needle is here" in shown["text"]
    assert shown["cut"] == [at > 0, True]
    assert text[slice(*shown["marks"][0])] == "needle"
    assert shown["text"].split()[0] in ("word", "the") and shown["text"].split()[-1] == "hay"


def test_marks_in_a_script_without_spaces():
    _, marks = found("修理屋顶", "我们在春天修理屋顶。", Analyzer("none"))
    assert marks == ["修理屋顶"]
    assert found("屋顶", "修理。屋顶", Analyzer("none"))[1] == ["屋顶"]


@pytest.mark.parametrize(("query", "text"), [
    ("café", "cafe\u0301"), ("हिन्दी", "हिन्दी"), ("كتاب", "كِتَاب"), ("file", "ﬁle"),
    ("Donaudampf", "Donau\u00addampf"), ("замок", "за\u0301мок"),
])  # fmt: skip
def test_marks_are_of_whole_words_with_all_that_is_not_compared(query, text):
    assert found(query, f"👨\u200d👩\u200d👧 x {text} y.", Analyzer("none"))[1] == [text]


def test_a_short_sentence_that_ends_where_a_section_begins_stands_alone():
    text, none = "修理。屋顶在春天。", Analyzer("none")
    assert found("修理", text, none)[0] == text  # a heading, but for the section
    assert found("修理", text, none, sections=[[0, ["A"], 1], [3, ["B"], 2]])[0] == text[:3]


def test_a_short_row_of_a_table_is_its_own_answer_and_costs_no_encoding():
    row = Hit("k", "  One. Two. Three.\n", 1.0, {"year": 3})
    candidates = Candidates(["two"], [[row]], ENGLISH)
    assert candidates.texts == []
    ((answer,),) = candidates.best(None, None)
    assert row.text[answer.start : answer.end] == "One. Two. Three."
    assert answer.marks == ((7, 10),)


@pytest.mark.parametrize("text", ["", " \n ", "?", "\n\n\n", "a", "…", "." * 5000, "\x00"])
@pytest.mark.parametrize("facts", [{}, {"body": -1}, {"body": "x"}, {"body": 10**9}, {"body": 0}])
def test_any_text_has_an_answer_inside_it(text, facts):
    for one in (hit(text, **facts), Hit("1", text, 1.0, [facts])):
        ((answer,),) = Candidates(["a"], [[one]], ENGLISH).best(None, None)
        assert 0 <= answer.start <= answer.end <= len(text)
        assert all(answer.start <= a < b <= answer.end for a, b in answer.marks)


@pytest.mark.parametrize("queries", [1, 3, 40])
def test_one_search_encodes_few_sentences(queries):
    text = " ".join(f"Sentence number {n} is here." for n in range(50))
    hits = [hit(text, f"{n // 2}.md") for n in range(20)]
    candidates = Candidates(["none"] * queries, [hits] * queries, ENGLISH)
    assert len(candidates.texts) <= ENCODED
    assert candidates.texts or queries > ENCODED // 2
    assert [len(some) for some in candidates.best(None, None)] == [20] * queries


def test_hits_of_one_document_are_together_and_others_alone():
    hits = [hit("a", "x"), hit("b", "y"), hit("c", "x"), Hit("4", "d", 1.0), Hit("5", "e", 1.0, 3)]
    assert grouped(hits) == [[0, 2], [1], [3], [4]]


def test_a_path_never_leaves_the_folder(tmp_path):
    assert path_of(hit("a", "b/c.md"), str(tmp_path)) == tmp_path / "b" / "c.md"
    for name in ("../c.md", "/etc/passwd", "", None, 3):
        assert path_of(hit("a", name), str(tmp_path)) is None
    (tmp_path / "c#.md").touch()
    assert path_of(hit("a", "c#.md"), str(tmp_path)) == tmp_path / "c#.md"
    assert path_of(hit("a", "faq.csv#7"), str(tmp_path)) == tmp_path / "faq.csv"
    assert path_of(hit("a"), "") is None
    assert place_of(hit("a", headings=["One", 2], page=3), 0) == (["One", "2"], 3)
    assert place_of(hit("a", headings="One", page="x"), 0) == ([], None)


def test_an_answer_names_the_heading_and_page_of_its_own_section():
    sections = [[0, [], 1], [7, ["Roof"], 2], [17, ["Roof", "Tiles"], 0]]
    one = hit("Start. Tar it. Tiles Red.", headings=[], page=1, sections=sections)
    places = [place_of(one, at) for at in (0, 6, 7, 20)]
    assert places == [([], 1), ([], 1), (["Roof"], 2), (["Roof", "Tiles"], None)]
    ((answer,),) = Candidates(["tar"], [[one]], ENGLISH).best(None, None)
    shown = answer.to_json(one)
    assert (shown["start"], shown["headings"], shown["page"]) == (7, ["Roof"], 2)
    for strange in ("ab", [1], [["a", [], 1]], {"a": 1}, None):
        assert place_of(hit("a", headings=["One"], sections=strange), 0) == (["One"], None)
