"""Views: what each may and may not do to a sentence, decided by the random generator alone."""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.models import WordLevel

from contrasent.errors import DataError, ModelError, OptionError
from contrasent.text import views
from contrasent.text.tokens import Tokenizer
from contrasent.text.views import VIEWS, make_view, options_of, wordnet_synonyms

few = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32 - 1)
word = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6)
sentences = st.lists(word, max_size=12).map(" ".join)
rows = st.lists(st.integers(5, 40), max_size=40).map(lambda ids: np.asarray(ids, np.int32))
MASK, SIZE = 4, 41
# Ids from 30 on continue a word.
CONTINUES = np.arange(SIZE) >= 30
SYNONYMS = {"quick": ["fast", "speedy"], "dog": ["hound"], "a": []}


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def fill(rows, positions):
    """A stand-in for a language model: each position's best id is 5 plus the position."""
    out = []
    for ids, where in zip(rows, positions, strict=True):
        assert all(ids[p] == MASK for p in where)
        logits = np.full((len(where), 100), -50.0, dtype=np.float32)
        for k, p in enumerate(where):
            logits[k, 5 + int(p)] = 0.0
        out.append(logits)
    return out


def subsequence(part: list, whole: list) -> bool:
    remaining = iter(whole)
    return all(any(x == y for y in remaining) for x in part)


def half_up(count: int, percent: int) -> int:
    return math.floor(Fraction(count * percent, 100) + Fraction(1, 2))


EXAMPLES = {
    "dropout": views.Identity(), "crop": views.Crop(percent=30),
    "delete_words": views.DeleteWords(percent=30), "delete_one_word": views.DeleteOneWord(),
    "synonym": views.ReplaceSynonym(synonyms=lambda w: SYNONYMS.get(w, [])),
    "masked_lm": views.ReplaceMasked(mask=MASK, fill=fill, continues=CONTINUES),
    "repeat_words": views.RepeatWords(), "repeat_tokens": views.RepeatTokens(),
    "insert_stop_words": views.InsertStopWords(),
    "insert_mask": views.InsertMask(mask=MASK, continues=CONTINUES),
    "insert_prediction": views.InsertMaskedPrediction(where=views.InsertMask(mask=MASK), fill=fill),
    "next_sentence": views.NextSentence(reach=3),
}  # fmt: skip


assert set(EXAMPLES) == set(VIEWS)


@pytest.mark.parametrize("name", list(EXAMPLES))
@few
@given(seed=seeds, text=sentences, ids=rows, left=st.integers(1, 9))
def test_a_view_is_a_pure_function_of_sentence_and_random(name, seed, text, ids, left):
    view = EXAMPLES[name]
    sentence = {"word": text, "token": ids, "row": left}[view.level]
    before = sentence.copy() if view.level == "token" else sentence
    one, two = view(sentence, rng(seed)), view(sentence, rng(seed))
    (three,) = view.many([sentence], [rng(seed)])
    if view.level == "token":
        assert one.dtype == np.int32 and one.ndim == 1
        assert np.array_equal(sentence, before), "the input was changed"
        assert np.array_equal(one, two) and np.array_equal(one, three)
        assert len(one) or not len(sentence)
    else:
        assert one == two == three
        assert type(one) is type(sentence)
        assert bool(one) or not sentence


@pytest.mark.parametrize("name", [n for n, v in EXAMPLES.items() if v.level != "row"])
def test_many_sentences_are_one_by_one(name):
    view = EXAMPLES[name]
    if view.level == "word":
        batch = ["the quick dog sleeps on a warm stone", "one", "", "Quick! A dog, a dog barks."]
    else:
        batch = [np.asarray(range(5, 5 + n), np.int32) for n in (20, 1, 0, 33)]
    together = view.many(batch, [rng(k) for k in range(4)])
    alone = [view(s, rng(k)) for k, s in enumerate(batch)]
    assert len(together) == 4
    assert all(np.array_equal(a, b) for a, b in zip(together, alone, strict=True))


@few
@given(seed=seeds, text=sentences, percent=st.integers(0, 99))
def test_crop_and_deletion_keep_the_right_number_of_words(seed, text, percent):
    words = text.split()
    kept = views.Crop(percent=percent)(text, rng(seed)).split()
    assert len(kept) == (max(1, half_up(len(words), 100 - percent)) if words else 0)
    assert kept in [words[i : i + len(kept)] for i in range(len(words) - len(kept) + 1)]
    kept = views.DeleteWords(percent=percent)(text, rng(seed)).split()
    gone = min(half_up(len(words), percent), max(len(words) - 1, 0))
    assert len(words) - len(kept) == gone
    assert subsequence(kept, words)


def test_crop_starts_anywhere():
    text = "zero one two three four five six seven eight nine"
    firsts = Counter(views.Crop(percent=30)(text, rng(k)).split()[0] for k in range(400))
    assert set(firsts) == {"zero", "one", "two", "three"}
    assert min(firsts.values()) > 60


def test_deleting_one_word_may_hit_any_word_but_never_the_only_one():
    text = "red green blue"
    results = {views.DeleteOneWord()(text, rng(k)) for k in range(60)}
    assert results == {"green blue", "red blue", "red green"}
    assert views.DeleteOneWord()("alone", rng(0)) == "alone"


def numbers_of_repeats(view, sentence) -> set[int]:
    size = len(sentence.split()) if view.level == "word" else len(sentence)
    out = [view(sentence, rng(k)) for k in range(400)]
    lengths = [len(x.split()) if view.level == "word" else len(x) for x in out]
    return {length - size for length in lengths}


CODE, PAPER = {"rule": "code"}, {"rule": "paper"}
COUNTS = {
    # Most is min(10, int(0.32 * (n + 2))) - 1: special tokens count, the bound does not.
    "code": ((1, 0), (4, 0), (5, 1), (14, 4), (30, 9), (36, 9)),
    # Equation 3: max(2, int(0.32 * N)), and never more than there are.
    "paper": ((1, 1), (4, 2), (6, 2), (10, 3), (30, 9), (36, 11)),
    # Words: min(10, n, max(2, int(0.32 n))) - 1.
    "words": ((1, 0), (2, 1), (6, 1), (10, 2), (40, 9)),
    "paper, words": ((1, 1), (2, 2), (10, 3), (40, 12)),
}


@pytest.mark.parametrize(("view", "counts"), [
    (views.RepeatTokens(**CODE), "code"), (views.InsertMask(mask=MASK, **CODE), "code"),
    (views.InsertMaskedPrediction(where=views.InsertMask(mask=MASK, **CODE), fill=fill), "code"),
    (views.RepeatTokens(**PAPER), "paper"), (views.InsertMask(mask=MASK, **PAPER), "paper"),
    (views.RepeatWords(**CODE), "words"), (views.InsertStopWords(**CODE), "words"),
    (views.RepeatWords(**PAPER), "paper, words"), (views.InsertStopWords(**PAPER), "paper, words"),
], ids=lambda v: v if isinstance(v, str) else type(v).__name__)  # fmt: skip
def test_rules_of_repetition(view, counts):
    for n, most in COUNTS[counts]:
        ids = np.arange(5, 5 + n, dtype=np.int32)
        sentence = ids if view.level == "token" else " ".join(f"w{i}" for i in range(n))
        assert numbers_of_repeats(view, sentence) == set(range(most + 1))


@few
@given(seed=seeds, ids=rows, rule=st.sampled_from(["code", "paper"]))
def test_repeated_tokens_stand_behind_themselves(seed, ids, rule):
    ids = np.arange(len(ids), dtype=np.int32)
    longer = views.RepeatTokens(rule=rule)(ids, rng(seed)).tolist()
    assert sorted(set(longer)) == ids.tolist()
    assert longer == sorted(longer)
    assert max(Counter(longer).values(), default=0) <= 2


def test_code_never_repeats_the_last_word_and_the_paper_may():
    text = "north south east west up down"
    for rule, last in (("code", False), ("paper", True)):
        out = [views.RepeatWords(rule=rule)(text, rng(k)).split() for k in range(200)]
        assert all(w == sorted(w, key=text.split().index) for w in out)
        assert any(w[-2:] == ["down", "down"] for w in out) is last
        assert {w for x in out for w, c in Counter(x).items() if c == 2} == (
            set(text.split()) if last else set(text.split()[:-1])
        )


def test_stop_words_are_inserted_after_words():
    text = "ALPHA BETA GAMMA DELTA EPSILON ZETA"
    out = [views.InsertStopWords(rule="paper")(text, rng(k)).split() for k in range(200)]
    for words in out:
        assert [w for w in words if w.isupper()] == text.split()
        assert all(w in views.STOP_WORDS for w in words if not w.isupper())
        assert words[0] == "ALPHA"
    assert len({w for words in out for w in words if not w.isupper()}) > 50


@few
@given(seed=seeds, ids=rows)
def test_masks_are_inserted_between_words(seed, ids):
    view = views.InsertMask(mask=MASK, continues=CONTINUES, rule="paper")
    longer, where = view.insert(ids, rng(seed))
    assert np.array_equal(np.delete(longer, where), ids)
    assert (longer[where] == MASK).all()
    for p in where.tolist():
        assert p > 0
        assert p + 1 == len(longer) or longer[p + 1] < 30, "a word was split"


def test_inserted_predictions_are_the_best():
    ids = np.arange(5, 25, dtype=np.int32)
    where = views.InsertMask(mask=MASK, rule="paper")
    for k in range(20):
        expected, places = where.insert(ids, rng(k))
        expected[places] = 5 + places
        filled = views.InsertMaskedPrediction(where=where, fill=fill)(ids, rng(k))
        assert np.array_equal(filled, expected)


@few
@given(seed=seeds, ids=rows, percent=st.integers(0, 99))
def test_masked_replacement_takes_whole_words(seed, ids, percent):
    seen = []

    def spy(masked, positions):
        seen.extend(zip(masked, positions, strict=True))
        return fill(masked, positions)

    view = views.ReplaceMasked(mask=MASK, fill=spy, continues=CONTINUES, percent=percent)
    out = view(ids, rng(seed))
    starts = [i for i in range(len(ids)) if i == 0 or ids[i] < 30]
    count = half_up(len(starts), percent)
    if count == 0:
        assert not seen and np.array_equal(out, ids)
        return
    masked, requested = seen[0][0], set(seen[0][1].tolist())
    words = [set(range(a, b)) for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]
    assert sum(word <= requested for word in words) == count
    assert all(word <= requested or not word & requested for word in words)
    for i in range(len(ids)):
        assert masked[i] == (MASK if i in requested else ids[i])
        assert out[i] == (5 + i if i in requested else ids[i])


def test_sampling_follows_the_softmax():
    def uneven(masked, positions):
        return [np.log(np.tile([[0.7, 0.2, 0.1]], (len(p), 1))) for p in positions]

    view = views.ReplaceMasked(mask=MASK, fill=uneven, percent=99, draw="sample")
    ids = np.full(3000, 9, dtype=np.int32)
    counts = Counter(view(ids, rng(0)).tolist())
    for token, share in enumerate([0.7, 0.2, 0.1]):
        assert counts[token] / (3000 - counts[9]) == pytest.approx(share, abs=0.03)
    best = replace(view, draw="argmax")(ids, rng(0))
    assert set(best.tolist()) == {0, 9}


def test_synonym_keeps_capital_and_punctuation():
    view = EXAMPLES["synonym"]
    results = {view("Quick, (a quick) cat.", rng(k)) for k in range(100)}
    assert results == {
        "Fast, (a quick) cat.",
        "Speedy, (a quick) cat.",
        "Quick, (a fast) cat.",
        "Quick, (a speedy) cat.",
    }
    assert view("nothing known here", rng(0)) == "nothing known here"
    both = replace(view, count=9)("quick dog", rng(0))
    assert both in {"fast hound", "speedy hound"}


def test_next_sentence_stays_in_the_document():
    for reach, left, offsets in [(1, 5, {1}), (3, 5, {1, 2, 3}), (3, 2, {1, 2}), (3, 1, {1})]:
        assert {views.NextSentence(reach=reach)(left, rng(k)) for k in range(80)} == offsets


def wordnet(folder):
    """A WordNet of my own in the format of wndb(5WN), license line included."""
    noun = (
        "  1 license text\n"
        "00000001 03 n 03 dog 0 domestic_dog 0 Canis_familiaris 0 000 | an animal\n"
        "00000002 03 n 02 dog 1 hot_dog 0 000 | a sausage\n"
        "00000003 03 n 01 island 0 000 | land\n"
    )
    (folder / "data.noun").write_text(noun)
    (folder / "data.adj").write_text("00000001 00 a 02 alone(p) 0 lone 0 000 | single\n")
    members = "".join(f"w{i} 0 " for i in range(17))
    (folder / "data.verb").write_text(f"00000001 29 v 11 {members}000 01 + 02 00 | many\n")
    (folder / "data.adv").write_text("00000001 02 r 01 now 0 000 | at this time\n")
    return folder


def test_synonyms_from_wordnet_files(tmp_path, monkeypatch):
    monkeypatch.setenv("WNSEARCHDIR", str(wordnet(tmp_path)))
    for synonyms in (wordnet_synonyms(), wordnet_synonyms(tmp_path)):
        assert synonyms("dog") == ("Canis familiaris", "domestic dog", "hot dog")
        assert synonyms("canis familiaris") == ("dog", "domestic dog")
        assert synonyms("alone") == ("lone",)
        assert len(synonyms("w3")) == 16
        assert list(synonyms("island")) == list(synonyms("unheard")) == []
    view = make_view("synonym", {"wordnet": str(tmp_path)}, tokenizer(["[UNK]"]), lambda: fill)
    assert view("Dog", rng(0)) in {"Canis familiaris", "Domestic dog", "Hot dog"}


def test_missing_wordnet_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("WNSEARCHDIR", raising=False)
    monkeypatch.setattr("contrasent.text.views.WORDNET_FOLDERS", ())
    with pytest.raises(DataError, match=r"apt install wordnet-base.*WNSEARCHDIR"):
        wordnet_synonyms()
    with pytest.raises(DataError, match=r"data\.noun is missing"):
        wordnet_synonyms(tmp_path)
    wordnet(tmp_path)
    (tmp_path / "data.adv").write_text("00000001 02\n")
    with pytest.raises(DataError, match=r"data\.adv:1: not a line"):
        wordnet_synonyms(tmp_path)


def tokenizer(vocabulary: list[str]) -> Tokenizer:
    backend = tokenizers.Tokenizer(
        WordLevel({text: i for i, text in enumerate(vocabulary)}, unk_token=vocabulary[0])
    )
    backend.add_special_tokens([t for t in vocabulary if t[0] in "[<"])
    return Tokenizer(backend, max_seq_length=16)


def test_where_words_continue():
    wordpiece = tokenizer(["[UNK]", "[MASK]", "play", "##ing"])
    assert views.word_continuations(wordpiece).tolist() == [False, False, False, True]
    bytelevel = tokenizer(["<unk>", "<mask>", "Ġplay", "ing"])
    assert views.word_continuations(bytelevel).tolist() == [False, False, False, True]
    assert views.word_continuations(tokenizer(["[UNK]", "word"])) is None


def test_views_by_name_take_their_options():
    vocabulary = tokenizer(["[UNK]", "[MASK]", "play", "##ing"])
    for name in VIEWS:
        if name == "synonym":
            continue
        options = {"rate": 0.5} if "rate" in options_of(name) else {}
        view = make_view(name, options, vocabulary, lambda: fill)
        assert type(view) is VIEWS[name]
        taken = getattr(view, "where", view)
        assert all(getattr(taken, option) == value for option, value in options.items())
    assert options_of("insert_prediction") == options_of("insert_mask") == ["rate", "rule"]
    assert options_of("masked_lm") == ["percent", "draw"]
    assert options_of("synonym") == ["count", "wordnet"]


def test_views_that_cannot_be_made():
    with pytest.raises(OptionError, match="did you mean 'crop'"):
        options_of("crops")
    with pytest.raises(ModelError, match=r"\[MASK\]"):
        make_view("insert_mask", {}, tokenizer(["[UNK]", "word"]), lambda: fill)
