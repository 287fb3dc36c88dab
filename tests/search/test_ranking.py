"""BM25, fusion and binary codes against plain loops from their equations."""

import json
import math
import time
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_states import bm25_of, encoder

from contrasent.errors import DataError, OptionError
from contrasent.search.codes import BinaryCodes
from contrasent.search.doctor import examine
from contrasent.search.index import Index
from contrasent.search.ranking import Ranker, Spread
from contrasent.search.store import Facts
from contrasent.search.words import Analyzer, Postings, language_of, words
from contrasent.search.writer import Writer

TEXTS = [
    f"{'alpha ' * (n % 3)}beta{n % 7} gamma{' delta' if n % 5 == 0 else ''}" for n in range(60)
]


encode = encoder(1)


def bm25(query, texts):
    """Robertson and Zaragoza (2009), eq. 3.15, with Lucene's rarity; one text after another."""
    documents = [text.split() for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for term in query.split():
            holding = sum(term in other for other in documents)
            rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            often = document.count(term)
            length = 1.2 * (0.25 + 0.75 * len(document) / mean)
            score += rarity * often / (often + length)
        scores.append(score)
    return scores


letters = st.lists(st.sampled_from(["x", "yy", "zzz", "w"]), min_size=1, max_size=8).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(letters, min_size=1, max_size=12), letters)
def test_bm25_is_its_equation(texts, query):
    found = bm25_of(texts, "none").weigh(query).scores
    assert found == pytest.approx(np.array(bm25(query, texts)), rel=1e-4, abs=1e-6)


def test_a_word_that_stands_very_often_counts_as_often_as_can_be_kept():
    texts = ["x " * 70_000 + "y", "x y", "y y"]
    found, most = bm25_of(texts, "none"), 65_535
    norm = 1.2 * (0.25 + 0.75 * 70_001 / ((70_001 + 2 + 2) / 3))
    expected = math.log(1 + 1.5 / 2.5) * most / (most + norm)
    assert found.weigh("x").scores[0] == pytest.approx(expected, rel=1e-5)


def test_a_threshold_is_of_the_cosine():
    index = Index.build(encode, TEXTS)
    (hits,) = index.search("alpha", encode=encode, k=60)
    (few,) = index.search("alpha", encode=encode, k=60, threshold=0.3)
    assert few == [hit for hit in hits if hit.cosine >= 0.3] and 0 < len(few) < 60
    with pytest.raises(OptionError, match=r"threshold 30: must be a cosine, at most 1"):
        index.search("alpha", encode=encode, threshold=30)


@given(st.lists(st.floats(0, 5, width=32), max_size=30), st.integers(0, 20))
def test_spread_with_zeros_left_out(values, zeros):
    scores = np.array(values, dtype=np.float32)
    whole = Spread.of(np.concatenate([scores, np.zeros(zeros, np.float32)]))
    assert Spread.of_sparse(scores, len(values) + zeros) == pytest.approx(whole, abs=1e-3)


@pytest.mark.parametrize("name", [field.name for field in fields(Ranker)])
def test_every_field_of_a_ranker_is_kept_and_read(name):
    changed = replace(Ranker(), **{name: 0.5})
    assert name in changed.to_json()
    assert Ranker.from_json(json.loads(json.dumps(changed.to_json()))) == changed


def test_a_ranker_is_kept_and_read():
    with pytest.raises(OptionError, match="from 0 to 1"):
        Ranker(1.5)
    assert Ranker(0.4).to_json() == {"bm25_weight": 0.4}
    with pytest.raises(DataError, match=r"synonyms.*unknown to"):
        Ranker.from_json({"bm25_weight": 0.2, "synonyms": 3})


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(("text", "wanted"), [
    ("The cat's 2 hats", ["the", "cat", "s", "2", "hats"]),
    ("readFile read_file", ["read", "file", "readfile", "read", "file", "read_file"]),
    ("Straße ﬁne", ["strasse", "fine"]), ("東京都", ["東京", "京都"]),
    ("كِتَاب", ["كتاب"]), ("…", []), ("हिन्दी में", ["हिन्दी", "में"]), ("人々", ["人々"]),
    ("தமிழ்", ["தமிழ்"]), ("ລາວ", ["ລາ", "າວ"]), ("בֵּית־סֵפֶר", ["בית", "ספר"]),
    ("за\u0301мок ẹ\u0300ko\u0323", ["замок", "ẹkọ"]),
    ("Do\u00adnau İzmir can´t", ["donau", "izmir", "can", "t"]), ("कि-2", ["कि", "2", "कि-2"]),
])  # fmt: skip
def test_words(text, wanted):
    assert words(text) == wanted


def test_languages_and_stems():
    assert language_of(["the house is on the hill and it is old"]) == "english"
    assert language_of(["das Haus ist auf dem Hügel und es ist alt"]) == "german"
    assert language_of(["x1 y2 z3"]) == "none"
    assert Analyzer("english")("the houses are running") == ["hous", "run"]
    assert len({*Analyzer("turkish")("Isparta ısparta ISPARTA")}) == 1
    began = time.thread_time()  # of the square of its length it would take a minute
    assert words("IT " * 10_000, frozenset({"it"})) == [] and time.thread_time() - began < 20
    with pytest.raises(OptionError, match="no stemmer"):
        Analyzer("klingon")


def test_stems_are_those_that_indexes_hold():
    """Version 3.0 of the stemmer has others; whoever admits another version raises FORMAT."""
    stems = {
        ("english", "internal international interval"): ["internal", "internat", "interval"],
        ("german", "Häuser Boote"): ["haus", "boot"], ("danish", "fuzzers"): ["fuzz"],
        ("finnish", "python"): ["pytho"], ("lithuanian", "chapters"): ["chapter"],
    }  # fmt: skip
    assert {key: Analyzer(key[0])(key[1]) for key in stems} == stems
    path = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(path.read_text("utf-8"))["project"]
    assert "PyStemmer>=3.1,<3.2" in project["dependencies"]


# ---------------------------------------------------------------------- codes

VOCABULARY = [f"{a}{b}" for a in ("sand", "rain", "leaf", "moon", "salt") for b in "abcdefgh"]


def test_hamming_distance_is_of_signs():
    """Whatever the width of the vectors."""
    vectors = np.random.default_rng(0).normal(size=(50, 70)).astype(np.float32) + 1
    codes = BinaryCodes.of(vectors)
    assert codes.columns.shape == (2, 50)
    assert codes.center == pytest.approx(vectors.astype(float).mean(axis=0), abs=1e-6)
    query = vectors[9] * 2 - 1
    wanted = [sum((v > codes.center) != (query > codes.center)) for v in vectors]
    assert codes.hamming(query).tolist() == wanted


def test_candidates_are_the_nearest_codes_and_all_that_tie():
    vectors = np.random.default_rng(0).normal(size=(6000, 64)).astype(np.float32)
    codes = BinaryCodes.of(vectors)
    distance = codes.hamming(vectors[9])
    for k, least in ((5, 2000), (20, 4000)):
        (found,) = codes.candidates(vectors[9:10], k, None)
        limit = np.sort(distance)[least - 1]
        assert found.tolist() == np.flatnonzero(distance <= limit).tolist()


def test_a_sample_of_cosines_gives_the_order_of_all(tmp_path, make_codes):
    """Of 11,000 rows 10,000 say mean and spread, the same each time, and codes propose 200."""
    random, count = np.random.default_rng(5), 11_000
    topics = random.normal(size=(40, 64)).astype(np.float32)
    noise = random.normal(size=(count, 64)).astype(np.float32)
    texts = [f"topic{n % 40} " + " ".join(random.choice(VOCABULARY, 6)) for n in range(count)]
    with Writer(tmp_path / "index", new=Facts()) as writer:
        writer.add(texts, topics[np.arange(count) % 40] + 0.7 * noise)
    index, again = make_codes(tmp_path / "index"), Index.open(tmp_path / "index")
    assert index.facts.codes["rows"] == count
    queries = [f"topic{n} {VOCABULARY[n]}" for n in range(40)]
    asked = topics + 0.4 * random.normal(size=topics.shape).astype(np.float32)
    same = 0
    for ranker in (Ranker(0.2), Ranker(0.6)):
        given = {"vectors": asked, "k": 10, "ranker": ranker}
        found, exact = index.search(queries, **given), index.search(queries, all_rows=True, **given)
        assert again.search(queries, **given) == found
        for some, every in zip(found, exact, strict=True):
            same += sum(a.id == b.id for a, b in zip(some, every, strict=True))
            scores = [hit.score for hit in every]
            assert [hit.score for hit in some] == pytest.approx(scores, rel=0.1)
    assert len(index.sample()) == 10_000
    assert same / 800 > 0.95


@given(
    rows=st.lists(st.lists(st.sampled_from("abcde"), max_size=9), max_size=6),
    first=st.integers(0, 9),
)
def test_postings_are_counts_of_terms_row_by_row(rows, first):
    found = Postings(rows)
    assert (len(found), found.lengths) == (len(rows), [len(row) for row in rows])
    wanted = [
        (term, [(first + at, row.count(term)) for at, row in enumerate(rows) if term in row])
        for term in sorted({term for row in rows for term in row})
    ]
    made = [
        (term, [*zip(held.tolist(), often.tolist(), strict=True)])
        for term, (held, often) in found.by_term(first)
    ]
    assert made == wanted


@pytest.mark.parametrize(("text", "wholes"), [
    ("release v2.13.4, then 2.13.5.", ["2.13.4", "2.13.5"]), ("03.05.2024", ["03.05.2024"]),
    ("at 10.0.0.7:8080", ["10.0.0.7.8080", "10.0.0.7"]), ("IL-2", ["il-2"]), ("1 - 2", []),
    ("on 2024/05/03 or 2024-05-03", ["2024.05.03"] * 2), ("at 9:30", ["9.30"]), ("4.東京", []),
    ("Bill INV-2024-0031", ["inv-2024-0031", "2024.0031"]), ("e.g. and/or state-of-the-art", []),
    ("in /etc/app/Main.conf", ["etc/app/main.conf"]), (r"C:\Data\x.txt", [r"data\x.txt"]),
    ("https://a.example/x-1", ["a.example/x-1", "x-1"]), ("a-1" * 60, []),
    ("notes-1.2.3-rc1", ["notes-1.2.3-rc1", "1.2.3"]),
])  # fmt: skip
def test_joined_numbers_and_paths_are_words_too(text, wholes):
    assert [word for word in words(text) if not word.isalnum()] == wholes


def number_texts():
    draw = np.random.default_rng(5)
    numbers = {
        "version": lambda: ".".join(map(str, draw.integers(1, 4, 3))),
        "address": lambda: f"10.{draw.integers(1, 3)}.{draw.integers(1, 9)}.{draw.integers(1, 9)}",
        "date": lambda: f"2023-{draw.integers(1, 9):02}-{draw.integers(1, 9):02}",
        "bill": lambda: f"R{draw.integers(1, 4)}/{draw.integers(1, 4)}-{draw.integers(1, 9):03}",
        "path": lambda: "/".join(draw.choice(["lib", "bin", "doc", "old"], 4)),
    }
    for kind, number in numbers.items():
        made = set()
        while len(made) < 24:
            made.add(number())
        yield kind, sorted(made)


@pytest.mark.parametrize(("kind", "numbers"), [*number_texts()])
def test_the_exact_number_is_first_among_many_alike(kind, numbers):
    """Whatever the vectors, which are random here, are nearest to."""
    texts = [f"The {kind} {number} is mentioned in this note." for number in numbers]
    index = Index.build(encode, texts)
    for question in ("{}", f"{kind} {{}}", f"where is the {kind} {{}} mentioned"):
        hits = index.search([question.format(n) for n in numbers], encode=encode, k=1)
        assert [hit.text for (hit,) in hits] == texts


def test_names_of_files_are_searched_lightly(tmp_path):
    names = ["bill_kraft_2023-11.txt", "bill_meyer_2023-12.txt", "old/cv-nora-lind.pdf", "a.csv#7"]
    texts = ["Due in June: 200.", "Due in May: 310.", "Baker, reads maps.", "A kraft paper bag."]
    facts = [{"document": name} for name in names]
    Index.build(encode, texts, metadata=facts).save(tmp_path / "index")
    index = Index.open(tmp_path / "index")
    asked = {"meyer": 1, "nora lind": 2, "2023-12": 1, "cv-nora-lind.pdf": 2, "bill 2023-11": 0}
    for query, row in asked.items():
        (hit,) = index.search([query], encode=encode, k=1)[0]
        assert hit.text == texts[row], query
    scores = index.bm25.weigh("kraft").scores
    assert scores[3] > 2 * scores[0] > 0  # a text says it, a name less
    assert not index.bm25.weigh("7").scores.any() and index.bm25.lengths[0] == 3
    assert all(check.good for check in examine(tmp_path / "index"))
    with Writer(tmp_path / "index") as writer:  # takes the last block back
        writer.add(["Tea."], encode, ids=["t"], metadata=[{"document": "tea_ceylon.md"}])
    (hits,) = index.refreshed().search(["ceylon"], encode=encode, k=1)
    assert hits[0].id == "t" and index.refreshed().bm25.weigh("meyer").scores[1] > 0


@pytest.mark.parametrize(("text", "terms"), [
    ("The IT department of the US", ["IT", "department", "US"]), ("IT", ["IT"]), ("it is us", []),
    ("WHAT IS IT ABOUT", []), ("A I am", []), ("at 10 AM", ["10", "AM"]),
    ("IS THAT ALL\nask IT", ["ask", "IT"]),
])  # fmt: skip
def test_stop_words_in_capitals_are_words(text, terms):
    assert Analyzer("english")(text) == [{"department": "depart"}.get(t, t.lower()) for t in terms]
