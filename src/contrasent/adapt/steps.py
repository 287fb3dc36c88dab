"""Learning from an index's own text, without queries.

Two steps, chosen on seven collections with user queries (research/log.md, 2026-11-23) by properties
of the text: a share of a map of queries where vectors point in many directions, and rows smoothed
by their neighbors where there are enough rows. Sentences of held-out documents, as queries for
passages without them, show whether the text has meaning to learn from, and whether a step harms; a
step need not be shown to help on each text, since few sentences can show little.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from contrasent.adapt.bench import Bench, Query, difference
from contrasent.adapt.learner import NEIGHBORS, contrast, descend
from contrasent.adapt.user_queries import MIN_DOCUMENTS
from contrasent.documents.sections import sentences
from contrasent.metrics import normalize
from contrasent.search.index import Index, document_of
from contrasent.search.learned import Learned, Neighbors
from contrasent.search.ranking import Ranker
from contrasent.search.store import Row
from contrasent.search.words import words
from contrasent.types import EncodeFn, Log, Numbers, Vectors, for_task

UNMEASURED = "default, not measured here"
MAP_SHARE = 0.25
SMOOTHING = 0.6
SMOOTHED_ROWS = (500, 50_000)  # fewer have no near neighbors; of more these take minutes to find
ONE_DIRECTION = 0.8  # length of the mean of all vectors from which they point in one direction
SENTENCES, TESTED, MIN_SENTENCES = 1000, 150, 200
ROWS = 5000  # of an index that sentences search
SHORTEST, LONGEST, RUN = 4, 60, 10  # words of a sentence; of a part of a text without sentences
MEANING = 0.001  # p value by which held-out sentences must find their passages above chance
RESERVE = 0.5  # share of the seconds left that encoding may take
STEPS, BATCH, RATE, TEMPERATURE = 150, 256, 2e-3, 0.05
_FIRST = 32  # texts that encoding is timed on


@dataclass(frozen=True, slots=True)
class Steps:
    """A search that learned from the text alone."""

    ranker: Ranker
    learned: Learned
    notes: tuple[str, ...]


def learn_from_text(
    index: Index,
    encode: EncodeFn,
    prior: Ranker,
    *,
    seed: int,
    log: Log,
    until: Callable[[], float],  # seconds that are left
    evaluate: bool = True,
) -> Steps:
    """Learn from the text alone; left out where held-out sentences show no meaning, or harm.

    Without ``evaluate``, which is where user queries decide, all sentences are trained on.
    """

    def nothing(why: str) -> Steps:
        return Steps(prior, Learned(), (f"learned nothing from the text: {why}",))

    # What is learned depends on the vectors.
    rows, vectors = list(index.every()), np.asarray(index.vectors[index.numbers()])
    if np.linalg.norm(vectors.mean(axis=0, dtype=np.float64)) > ONE_DIRECTION:
        return nothing("this model's vectors point in one direction")
    few, many = SMOOTHED_ROWS
    smoothing = SMOOTHING if few <= len(vectors) <= many else 0.0
    wanted = replace(prior, map_share=MAP_SHARE, smoothing=smoothing)

    # Sentences of some documents test what is learned from those of the others.
    random = np.random.default_rng(seed)
    tested, training = _draw(rows, random)
    about = len({sentence.document for sentence in tested})
    if len(training) < MIN_SENTENCES or (about < MIN_DOCUMENTS and evaluate):
        counts = f"{len(training):,} sentences to train on, {about:,} documents to test on"
        return nothing(f"too little text ({counts})")
    texts = [sentence.text for sentence in (*tested, *training)]
    began, first = time.monotonic(), for_task(encode, "query")(texts[:_FIRST])
    seconds = (time.monotonic() - began) / _FIRST
    if seconds * (len(texts) + 5 * len(tested)) > RESERVE * until():
        return nothing("the time budget is used up")
    queries = normalize(np.concatenate([first, for_task(encode, "query")(texts[_FIRST:])]))
    own_rows = np.array([sentence.row for sentence in (*tested, *training)])

    def kept(ranker: Ranker, *notes: str) -> Steps:
        """What is learned from all sentences."""
        matrix = fit_map(queries, vectors, own_rows, seed=seed)
        near = None
        if ranker.smoothing:
            near = Neighbors.among(index.vectors, index.numbers(), NEIGHBORS)
        return Steps(ranker, Learned(matrix, near), notes)

    if not evaluate:
        log(f"training a query map on {len(texts):,} sentences")
        return kept(wanted)

    # Sentences should find the passages that they were cut from more often than by chance.
    held_out = f"{len(tested):,} held-out sentences"
    log(f"training a query map on {len(training):,} sentences; {held_out} of other documents")
    cut = normalize(for_task(encode, "document")([sentence.rest for sentence in tested]))
    count = len(tested)
    bench = _bench(index, rows, vectors, tested, queries[:count], cut, random)
    (before,) = bench.values([prior])
    chance = float((1 / np.log2(np.arange(2, 12))).sum()) / len(bench.documents)
    above_chance = difference(bench.queries, before - chance, seed=seed)
    if above_chance.p >= MEANING or above_chance.value <= 0:
        return nothing("sentences do not find their own passages")

    # The steps, or the map alone, are kept if the held-out sentences are not proven to lose.
    near = Neighbors.of(bench.index.vectors, min(NEIGHBORS, len(bench.documents) - 1))
    trial = Learned(fit_map(queries[count:], vectors, own_rows[count:], seed=seed), near)
    tried, notes = list(dict.fromkeys([wanted, replace(wanted, smoothing=0.0)])), list[str]()
    for ranker, after in zip(tried, bench.values(tried, learned=trial), strict=True):
        name = "query map" + " and smoothing" * bool(ranker.smoothing)
        gain = difference(bench.queries, after - before, seed=seed)
        if gain.high >= 0:
            return kept(ranker, *notes, f"{name}: {UNMEASURED} ({gain} on {held_out})")
        notes.append(f"{name}: discarded, worse on {held_out} ({gain})")
    return Steps(prior, Learned(), tuple(notes))


# ---------------------------------------------------------------------- sentences


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence, the number of its row among those that are there, and the row's other text."""

    text: str
    row: int
    document: str
    rest: str


def _draw(
    rows: Sequence[Row], random: np.random.Generator
) -> tuple[list[_Sentence], list[_Sentence]]:
    """Sentences to evaluate on, one per row of some documents, and to train on, of the others."""
    documents = [document_of(row.id, row.metadata) for row in rows]
    names = list(dict.fromkeys(documents))
    places = {names[i]: place for place, i in enumerate(random.permutation(len(names)))}
    # A third of the documents is held out, fewer where they have many rows.
    order = sorted(random.permutation(len(rows)).tolist(), key=lambda row: places[documents[row]])
    tested = list[_Sentence]()
    for row in order:
        if len(tested) == TESTED or places[documents[row]] >= math.ceil(len(names) / 3):
            break
        if sentence := _sentence(row, documents[row], rows[row].text, random):
            tested.append(sentence)
    held_out = {sentence.document for sentence in tested}
    training = [i for i in random.permutation(len(rows)) if documents[i] not in held_out]
    by_text: dict[str, _Sentence] = {}
    for row in training * (SENTENCES // max(1, len(training)) + 1):
        if len(by_text) == SENTENCES:
            break
        if sentence := _sentence(int(row), documents[row], rows[row].text, random):
            by_text.setdefault(sentence.text, sentence)
    return tested, list(by_text.values())


def _sentence(row: int, document: str, text: str, random: np.random.Generator) -> _Sentence | None:
    """A random sentence of a text, or run of words; None if there is none, or no other text."""
    pieces = [piece.strip() for line in text.splitlines() for piece in sentences(line)]
    if sum(len(words(piece)) >= SHORTEST for piece in pieces) > 1:
        pieces = [piece for piece in pieces if piece]
    else:
        tokens = text.split()
        pieces = [" ".join(tokens[start : start + RUN]) for start in range(0, len(tokens), RUN)]
    good = [i for i, piece in enumerate(pieces) if SHORTEST <= len(words(piece)) <= LONGEST]
    if not good:
        return None
    i = int(random.choice(good))
    context = "\n".join(pieces[:i] + pieces[i + 1 :])
    return _Sentence(pieces[i], row, document, context) if len(words(context)) >= SHORTEST else None


def _bench(
    index: Index,
    rows: Sequence[Row],
    vectors: Vectors,
    tested: Sequence[_Sentence],
    queries: Vectors,
    cut: Vectors,
    random: np.random.Generator,
) -> Bench:
    """The sentences as queries for their own rows, cut from them, among other rows."""
    own_rows = np.array([one.row for one in tested])
    others = random.permutation(np.setdiff1d(np.arange(len(rows)), own_rows))
    chosen = np.concatenate([own_rows, others[: max(0, ROWS - len(own_rows))]])
    texts = [one.rest for one in tested] + [rows[row].text for row in chosen[len(own_rows) :]]
    row_vectors = np.concatenate([cut, vectors[chosen[len(own_rows) :]]])
    ids = [rows[row].id for row in chosen]
    small = Index.build(lambda _: row_vectors, texts, ids=ids, ranker=index.ranker)
    places = {name: i for i, name in enumerate(dict.fromkeys(one.document for one in tested))}
    sentences = [Query(o.text, {i: 1.0}, places[o.document]) for i, o in enumerate(tested)]
    return Bench(small, sentences, queries)


# ---------------------------------------------------------------------- the map


def fit_map(queries: Vectors, rows: Vectors, own: Numbers, *, seed: int) -> Vectors:
    """(d, d) M that brings q M of a query near its own row, by InfoNCE from the identity."""
    random = np.random.default_rng(seed)

    def slope(matrix: Vectors) -> Vectors:
        chosen = random.permutation(len(queries))[:BATCH]
        which = own[chosen]
        right, wrong = np.eye(len(chosen), dtype=bool), which[:, None] != which
        return contrast(matrix, queries[chosen], rows[which], right, wrong, TEMPERATURE)[1]

    return descend(np.eye(queries.shape[1], dtype=np.float32), slope, rate=RATE, steps=STEPS)
