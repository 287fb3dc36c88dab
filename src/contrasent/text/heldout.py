"""Hold out pairs, sentences or documents of a corpus, to measure a training without labels.

Whatever is held out is chosen by the seed alone, is at most a fifth, and shares no text with the
rows that are trained on, letter case aside. (A view that takes the next sentence of the corpus may
still take a held-out one: it is seen beside its neighbour, and is no row itself.)
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import TrainingError
from contrasent.text.batches import HELDOUT, random_for
from contrasent.text.corpus import Corpus

FEWEST = 20
"""Sentences or documents held out, below which they measure nothing."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows to train on, and pairs to measure on.

    Attributes:
        train: (n,) rows that share no text with the held-out pairs.
        scores: how similar the two are, of a corpus with scores; else empty.
    """

    train: NDArray[np.int64]
    queries: list[str]
    documents: list[str]
    scores: NDArray[np.float64]


def hold_out(corpus: Corpus, count: int, *, seed: int) -> Split:
    """Choose pairs to hold out; which ones depends on the seed alone.

    Rows of which any text is also in a held-out pair (letter case aside) are left out of training.
    Each text is held out once. Two passes over the corpus; eight bytes a text are kept.
    """
    flat = np.fromiter((_mark(text) for row in corpus for text in row), np.uint64)
    marks = flat.reshape(-1, corpus.width)
    order = random_for(seed, HELDOUT).permutation(len(marks))
    wanted = min(count, len(marks) // 5)
    chosen: set[int] = set()
    seen: set[int] = set()
    for row in order:
        if len(chosen) == wanted:
            break
        pair = {int(mark) for mark in marks[row, :2]}
        if len(pair) == 2 and not pair & seen:
            chosen.add(int(row))
            seen |= pair
    if not chosen:
        raise TrainingError(
            f"{corpus.source}: {len(marks)} pairs are too few to hold some out for evaluation, or "
            "their two texts are alike; give more, or evaluate on labelled pairs or not at all "
            "(--evaluate)"
        )
    touched = np.isin(marks, np.fromiter(seen, np.uint64, len(seen))).any(axis=1)
    pairs = [row[:2] for i, row in enumerate(corpus) if i in chosen]
    rows = np.flatnonzero(~touched).astype(np.int64)
    scores = corpus.scores[sorted(chosen)] if corpus.scored else corpus.scores
    return Split(rows, [p[0] for p in pairs], [p[1] for p in pairs], scores)


def hold_out_sentences(
    corpus: Corpus, count: int, *, seed: int
) -> tuple[NDArray[np.int64], list[str]]:
    """Choose sentences to hold out."""
    marks = np.fromiter((_mark(text) for (text,) in corpus), np.uint64)
    _, first = np.unique(marks, return_index=True)
    wanted = min(count, len(first) // 5)
    chosen = np.sort(random_for(seed, HELDOUT).permutation(np.sort(first))[:wanted])
    _check_enough(corpus, len(chosen), "sentences")
    wanted_rows = set(chosen.tolist())
    texts = [text for i, (text,) in enumerate(corpus) if i in wanted_rows]
    return np.flatnonzero(~np.isin(marks, marks[chosen])), texts


def hold_out_documents(
    corpus: Corpus, count: int, *, seed: int
) -> tuple[NDArray[np.int64], list[list[str]]]:
    """Choose whole documents to hold out, of two sentences or more."""
    marks = np.fromiter((_mark(text) for (text,) in corpus), np.uint64)
    bounds = np.array([*corpus.starts, len(marks)])
    first: dict[bytes, int] = {}
    for number in np.flatnonzero(np.diff(bounds) > 1):
        first.setdefault(marks[bounds[number] : bounds[number + 1]].tobytes(), int(number))
    several = np.array(list(first.values()), dtype=np.int64)
    wanted = min(count, len(several) // 5)
    chosen = np.sort(random_for(seed, HELDOUT).permutation(several)[:wanted])
    _check_enough(corpus, len(chosen), "documents of two sentences or more")
    of_row = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    held = np.isin(of_row, chosen)
    texts: dict[int, list[str]] = {int(number): [] for number in chosen}
    for row, (text,) in enumerate(corpus):
        if held[row]:
            texts[int(of_row[row])].append(text)
    return np.flatnonzero(~np.isin(marks, marks[held])), list(texts.values())


def passages(documents: list[list[str]]) -> dict[str, tuple[list[str], list[str]]]:
    """What finds what in documents of two sentences or more: texts, and what each should find."""
    middles = [len(sentences) // 2 for sentences in documents]
    return {
        "rest": ([d[0] for d in documents], [" ".join(d[1:]) for d in documents]),
        "next": (
            [d[m - 1] for d, m in zip(documents, middles, strict=True)],
            [d[m] for d, m in zip(documents, middles, strict=True)],
        ),
    }


def _check_enough(corpus: Corpus, found: int, what: str) -> None:
    if found < FEWEST:
        raise TrainingError(
            f"{corpus.source}: too few {what} to hold {FEWEST} or more out, which may be a fifth "
            f"at most ({found} could be); give more text, or another --evaluate"
        )


def _mark(text: str) -> int:
    digest = hashlib.blake2b(text.casefold().encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
