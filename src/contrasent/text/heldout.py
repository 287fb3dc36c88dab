"""Hold out pairs, sentences or documents of a corpus, to measure a training without labels.

The corpus alone says which, so that runs with several seeds can be compared on the same items.

A view that takes the next sentence may still take a held-out one, which is not a row itself.
"""

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError, TrainingError
from contrasent.text.batches import HELDOUT, random_for
from contrasent.text.corpus import Corpus

MIN_HELD_OUT = 20  # sentences or documents held out, below which they measure nothing

MIN_PAIRS = 40
"""Pairs held out, below which nothing is evaluated (:mod:`contrasent.evaluate.validation`)."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows to train on, and pairs to measure on."""

    # (n,) rows that share no text with the held-out queries; with the held-out documents neither,
    # but for the second way of `hold_out`
    train: NDArray[np.int64]
    queries: list[str]
    documents: list[str]  # the counterpart of each query
    scores: NDArray[np.float64]  # how similar the two are, of a corpus with scores; else empty
    pool: list[str]  # the distinct documents
    # for each query the places in `pool` of the documents that the corpus pairs with it
    relevant: list[list[int]]
    note: str = ""  # which way the rows were held out, where texts are shared; else empty


Keys = Callable[[Sequence[str], int], NDArray[np.uint64]]
"""Numbers of the texts of a column, equal for equal ones: :class:`contrasent.text.tokens.TextKeys`,
or where no model is known :func:`letters`."""


def letters(texts: Sequence[str], column: int) -> NDArray[np.uint64]:
    """Numbers of texts, equal for those that differ in letter case alone."""
    folded = (text.casefold().encode("utf-8") for text in texts)
    marks = (hashlib.blake2b(text, digest_size=8).digest() for text in folded)
    return np.frombuffer(b"".join(marks), "<u8").astype(np.uint64)


def hold_out(corpus: Corpus, count: int, *, keys: Keys = letters) -> Split:
    """Choose pairs to hold out, with all rows that share a text with them.

    At most a fifth of the rows, in two passes and linear time. Where nearly all
    rows share texts, queries are held out whose documents stay in training, or documents whose
    queries do.
    """
    if count < 1:
        problem = "must be at least 1, or choose another --evaluate"
        raise OptionError("eval_size", count, problem)
    table, strings = _numbered(corpus, keys)
    texts = _Texts(table)
    order = random_for(0, HELDOUT).permutation(len(texts.rows))
    budget = len(texts.rows) // 5
    wanted = min(count, budget)
    chosen, gone = _whole(texts, order, wanted, budget)
    note = ""
    if len(gone) > len(chosen):
        note = f"held out: {len(chosen):,} pairs ({len(gone):,} rows with the same texts)"
    if len(chosen) < min(MIN_PAIRS, wanted):
        for side, names in enumerate((("queries", "answers"), ("answers", "queries"))):
            if len(chosen) == wanted:
                break
            other = _one_side(texts, order, wanted, budget, side)
            if len(other[0]) > len(chosen):
                chosen, gone = other
                sides = f"{names[0]}, but not their {names[1]}, which most rows share"
                note = f"held out: {len(chosen):,} {sides}"
    if not chosen:
        raise TrainingError(
            f"{corpus.source}: {len(order)} pairs are too few to hold any out for evaluation, "
            "or their texts are identical; add pairs, or choose another --evaluate"
        )
    numbers = sorted(chosen)
    pairs = [(strings(row, 0), strings(row, 1)) for row in numbers]
    pool: dict[int, str] = {}  # by the number of a text
    for number, (_, document) in zip(texts.rows[numbers, 1].tolist(), pairs, strict=True):
        pool.setdefault(number, document)
    place = {number: at for at, number in enumerate(pool)}
    relevant = []
    for query in texts.rows[numbers, 0]:
        answers = (texts.rows[row, 1] for row in texts.having(query) if texts.rows[row, 0] == query)
        relevant.append(sorted({place[answer] for answer in answers if answer in place}))
    rows = np.delete(np.arange(len(order)), np.fromiter(gone, np.int64, len(gone)))
    scores = corpus.scores[numbers] if corpus.scored else corpus.scores
    queries, documents = (list(side) for side in zip(*pairs, strict=True))
    return Split(rows, queries, documents, scores, list(pool.values()), relevant, note)


def _numbered(corpus: Corpus, keys: Keys) -> tuple[NDArray[np.int64], Callable[[int, int], str]]:
    """(n, width) a number for every text, from 0, and what gives the string of a row and column."""
    places: list[dict[str, int]] = [{} for _ in range(corpus.width)]
    flat = array("q")
    for row in corpus:
        for known, text in zip(places, row, strict=True):
            flat.append(known.setdefault(text, len(known)))
    found = np.frombuffer(flat, np.int64).reshape(-1, corpus.width)
    strings = [list(known) for known in places]
    places.clear()
    values = [keys(texts, column) for column, texts in enumerate(strings)]
    every = np.unique(np.concatenate(values), return_inverse=True)[1]
    ends = np.cumsum([0, *map(len, values)])
    columns = [every[ends[at] + found[:, at]] for at in range(corpus.width)]
    numbers = np.stack(columns, axis=1).astype(np.int64)
    return numbers, lambda row, column: strings[column][found[row, column]]


class _Texts:
    """The texts of a corpus by number, and the rows that have each."""

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self.rows = rows
        flat = rows.ravel()
        self._order = np.argsort(flat, kind="stable") // rows.shape[1]
        self.counts = np.bincount(flat)
        self._ends = np.cumsum(self.counts)
        self._having: dict[int, set[int]] = {}

    def having(self, text: int) -> set[int]:
        """The rows that have a text, in any column."""
        if text not in self._having:
            end = self._ends[text]
            self._having[text] = set(self._order[end - self.counts[text] : end].tolist())
        return self._having[text]


def _whole(
    texts: _Texts, order: NDArray[np.int64], wanted: int, budget: int
) -> tuple[set[int], set[int]]:
    """Pairs whose texts are both kept out of training, and that no row connects."""
    chosen: set[int] = set()
    gone: set[int] = set()
    seen: set[int] = set()
    often = texts.counts[texts.rows[:, :2]].max(axis=1)
    for row in order[often[order] <= budget].tolist():
        if len(chosen) == wanted or len(gone) >= budget:
            break
        pair, left = set(texts.rows[row, :2].tolist()), budget - len(gone)
        if len(pair) < 2 or pair & seen or often[row] > left:
            continue
        few, many = sorted(map(texts.having, pair), key=len)
        # The rows of both, counted over the fewer ones: those of a label are looked at once.
        if len(many) + sum(other not in many for other in few) > left:
            continue
        more = (few | many) - gone
        chosen.add(row)
        gone |= more
        seen.update(pair, *texts.rows[list(more), :2].tolist())
    return chosen, gone


def _one_side(
    texts: _Texts, order: NDArray[np.int64], wanted: int, budget: int, side: int
) -> tuple[set[int], set[int]]:
    """Pairs whose text on one side is kept out of training, while the other side's is not."""
    chosen: set[int] = set()
    gone: set[int] = set()
    left = np.bincount(texts.rows[:, 1 - side], minlength=len(texts.counts))
    tried: set[int] = set()  # each text once, so that the rows of a frequent one count once
    for row in order.tolist():
        if len(chosen) == wanted or len(gone) == budget:
            break
        text, other = texts.rows[row, side], texts.rows[row, 1 - side]
        if text == other or row in gone or text in tried:
            continue
        if texts.counts[text] > budget - len(gone):
            continue
        tried.add(text)
        more = texts.having(text) - gone
        others, repeats = np.unique(texts.rows[list(more), 1 - side], return_counts=True)
        if (left[others] > repeats).all():
            chosen.add(row)
            gone |= more
            left[others] -= repeats
    return chosen, gone


def hold_out_sentences(
    corpus: Corpus, count: int, *, keys: Keys = letters
) -> tuple[NDArray[np.int64], list[str]]:
    """Choose sentences to hold out."""
    numbers, strings = _numbered(corpus, keys)
    marks = numbers[:, 0]
    _, first = np.unique(marks, return_index=True)
    chosen = _chosen(corpus, np.sort(first), count, "sentences")
    texts = [strings(row, 0) for row in chosen.tolist()]
    return np.flatnonzero(~np.isin(marks, marks[chosen])), texts


def hold_out_documents(
    corpus: Corpus, count: int, *, keys: Keys = letters
) -> tuple[NDArray[np.int64], list[list[str]]]:
    """Choose whole documents to hold out, of two sentences or more."""
    marks = _numbered(corpus, keys)[0][:, 0]
    bounds = np.array([*corpus.starts, len(marks)])
    first: dict[bytes, int] = {}
    for number in np.flatnonzero(np.diff(bounds) > 1):
        first.setdefault(marks[bounds[number] : bounds[number + 1]].tobytes(), int(number))
    several = np.array(list(first.values()), dtype=np.int64)
    chosen = _chosen(corpus, several, count, "documents of two sentences or more")
    of_row = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    held_out = np.isin(of_row, chosen)
    texts: dict[int, list[str]] = {int(number): [] for number in chosen}
    for row, (text,) in enumerate(corpus):
        if held_out[row]:
            texts[int(of_row[row])].append(text)
    return np.flatnonzero(~np.isin(marks, marks[held_out])), list(texts.values())


def passages(documents: list[list[str]]) -> dict[str, tuple[list[str], list[str]]]:
    """Queries and their targets in documents of two sentences or more."""
    return {
        "rest": ([d[0] for d in documents], [" ".join(d[1:]) for d in documents]),
        "next": ([d[len(d) // 2 - 1] for d in documents], [d[len(d) // 2] for d in documents]),
    }


def _chosen(corpus: Corpus, several: NDArray[np.int64], count: int, what: str) -> NDArray[np.int64]:
    """``count`` of the numbers of sentences or documents, or a fifth of them, rising."""
    wanted = min(count, len(several) // 5)
    if wanted < MIN_HELD_OUT:
        problem = (
            f"{corpus.source}: needs {MIN_HELD_OUT} held-out {what}; 20 % of this "
            f"corpus is {wanted}"
        )
        if count == wanted:
            problem = f"eval_size {count}: at least {MIN_HELD_OUT} {what} are needed"
        raise TrainingError(f"{problem}; add text or choose another --evaluate")
    return np.sort(random_for(0, HELDOUT).permutation(several)[:wanted])
