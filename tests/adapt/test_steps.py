"""What is learned from text alone: by equation, with meaning and without."""

import numpy as np
import pytest

from contrasent.adapt import steps as steps_
from contrasent.adapt.steps import fit_map, learn_from_text
from contrasent.metrics import normalize
from contrasent.search.index import Index
from contrasent.search.learned import mapped
from contrasent.search.ranking import Ranker
from contrasent.search.writer import Writer

SYLLABLES = ("bal", "cor", "dim", "fer", "gul", "hap", "jin", "kel", "lom", "mur")
ENDINGS = ("an", "esk", "ip", "ond", "ur", "ath", "ell", "ov", "ick", "umb")
WORDS = [beginning + ending for beginning in SYLLABLES for ending in ENDINGS]
VECTORS = dict(zip(WORDS, np.random.default_rng(0).normal(size=(100, 32)), strict=True))


def encode(texts):
    """A text's vector is the mean of those of its words, drawn at random."""
    words = (text.lower().replace(".", "").split() for text in texts)
    means = [np.mean([VECTORS[word] for word in some], axis=0) for some in words]
    return normalize(np.array(means, dtype=np.float32))


def passages(random, documents):
    """Passages of two to eight sentences of words drawn on their own, and each one's document."""
    texts, names = [], []
    for document in range(documents):
        for _ in range(random.integers(1, 4)):
            drawn = (" ".join(random.choice(WORDS, 8)) for _ in range(random.integers(2, 9)))
            texts.append(" ".join(f"{sentence.capitalize()}." for sentence in drawn))
            names.append(f"{document}.md")
    return texts, names


def learn(texts, names=None, encode=encode, until=lambda: 600.0, index=None):
    about = [{"document": name} for name in names or map(str, range(len(texts)))]
    index = index or Index.build(encode, texts, metadata=about)
    log = []
    found = learn_from_text(index, encode, index.ranker, seed=0, log=log.append, until=until)
    return index, found


def with_topics(count=510):
    """Passages whose sentences are of fourteen words of a topic that six passages share."""
    random = np.random.default_rng(1)
    texts = []
    for number in range(count):
        own = np.random.default_rng(number // 6).choice(WORDS, 14)
        sentences = (" ".join(random.choice(own, 5)).capitalize() for _ in range(4))
        texts.append(" ".join(f"{sentence}." for sentence in sentences))
    return texts


@pytest.mark.parametrize("seed", range(6))
def test_of_text_without_meaning_nothing_is_kept(seed):
    texts, names = passages(np.random.default_rng(seed), 40 + 30 * seed)
    index, found = learn(texts, names)
    assert found.ranker == index.ranker and found.learned.matrix is None
    (note,) = found.notes
    assert "sentences do not find their own passages" in note or "too little" in note


def test_of_text_with_meaning_steps_are_kept_and_last(tmp_path):
    index, found = learn(with_topics())
    assert found.ranker == Ranker(index.ranker.bm25_weight, map_share=0.25, smoothing=0.6)
    assert "default, not measured here" in found.notes[-1] and "held-out" in found.notes[-1]
    index.save(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.set(ranker=found.ranker, learned=found.learned)
    kept = Index.open(tmp_path / "index")
    queries = encode([" ".join(WORDS[:4]), " ".join(WORDS[5:9])])
    assert kept.search(queries, k=3) == kept.search(queries, k=3, ranker=found.ranker)
    assert (mapped(kept.ranker, kept.learned, queries) != queries).any()


@pytest.fixture
def opposite_map(monkeypatch):
    """The map that is learned turns queries around, and is the only one that is tried."""
    monkeypatch.setattr(steps_, "fit_map", lambda q, *_, **__: -9 * np.eye(q.shape[1], dtype="f4"))
    monkeypatch.setattr(steps_, "MAP_SHARE", 1.0)


def test_where_queries_judge_all_sentences_may_teach(opposite_map, monkeypatch):
    """Nothing is left out for harm: that is measured by the queries."""
    texts, log = with_topics(), []
    index = Index.build(encode, texts, metadata=[{"document": f"{n}"} for n in range(len(texts))])
    given = {"seed": 0, "log": log.append, "until": lambda: 600.0}
    found = learn_from_text(index, encode, Ranker(0.0), evaluate=False, **given)
    assert found.ranker.map_share and found.ranker.smoothing and not found.notes
    assert not found.learned.lacks(found.ranker) and "training a query map on" in log[0]


def test_documents_that_judge_do_not_teach():
    """Each document has three rows, of which one judges."""
    texts, calls, log = with_topics(240), [], []
    index = Index.build(encode, texts, metadata=[{"document": f"{n // 3}"} for n in range(240)])

    def recorded(some):
        calls.append(list(some))
        return encode(some)

    learn_from_text(index, recorded, index.ranker, seed=0, log=log.append, until=lambda: 600.0)
    queries, judged = [*calls[0], *calls[1]], len(calls[2])
    assert f"{judged:,} held-out sentences of other" in log[0] and len(queries) > 3 * judged

    def documents(sentences):
        rows = {n for some in sentences for n, text in enumerate(texts) if some in text}
        return {row // 3 for row in rows}

    assert not documents(queries[:judged]) & documents(queries[judged:])


def test_sentences_ask_as_queries_and_what_is_left_of_passages_answers_as_documents():
    """A model with prompts encodes the two in different ways."""
    texts, calls = with_topics(120), []

    def recorded(sentences):
        raise AssertionError("neither as a query nor as a document")

    def for_task(task):
        def encoded(some):
            calls.append((task, list(some)))
            return encode(some)

        return encoded

    recorded.for_task = for_task
    index = Index.build(encode, texts, metadata=[{"document": f"{n}"} for n in range(120)])
    given = {"seed": 0, "log": lambda line: None, "until": lambda: 600.0}
    learn_from_text(index, recorded, index.ranker, **given)
    assert [task for task, _ in calls] == ["query", "query", "document"]
    sentences, more, rests = (some for _, some in calls)
    assert all(any(one in text for text in texts) for one in (*sentences, *more))
    # What is left of four sentences of five words
    assert {len(one.split()) for one in rests} == {15}


def test_deleted_rows_teach_nothing(tmp_path):
    """Neighbors are numbers of rows, deleted ones counted."""
    index, _ = learn(with_topics(530))
    index.save(tmp_path / "index")
    with Writer(tmp_path / "index") as writer:
        writer.delete([str(n) for n in range(0, 60, 3)])
    left = Index.open(tmp_path / "index")
    _, found = learn([], index=left)
    near = found.learned.neighbors
    assert (near.rows[~left.alive] == -1).all() and left.alive[near.rows[left.alive]].all()
    row = int(np.flatnonzero(left.alive)[30])
    mean = left.vectors[near.rows[row]].mean(axis=0)
    assert near.products[row, 0] == pytest.approx(left.vectors[row] @ mean, abs=1e-5)


def test_what_is_left_out():
    texts = with_topics()
    for given, note in [
        ({"texts": texts[:15]}, "too little"),
        ({"texts": texts, "until": lambda: 0.0}, "time budget is used up"),
        ({"texts": texts, "encode": lambda t: encode(t) + 5.0}, "one direction"),
    ]:
        index, found = learn(**given)
        assert found.ranker == index.ranker and note in found.notes[0]


def test_a_map_that_does_harm_is_left_out(opposite_map):
    index, found = learn(with_topics())
    assert found.ranker == index.ranker and "discarded, worse" in found.notes[0]


def test_a_map_brings_queries_near_their_rows():
    random = np.random.default_rng(3)
    rows = random.normal(size=(300, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    turn = np.linalg.qr(random.normal(size=(16, 16)))[0].astype(np.float32)
    queries = rows @ (np.eye(16, dtype=np.float32) + turn)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    own = np.arange(300)
    matrix = fit_map(queries[:200], rows, own[:200], seed=0)
    before = (queries[200:] @ rows.T).argmax(axis=1) == own[200:]
    after = (queries[200:] @ matrix @ rows.T).argmax(axis=1) == own[200:]
    assert after.mean() > before.mean() + 0.02
