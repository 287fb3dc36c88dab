"""Hold out pairs of a corpus, so that training can be measured where there are no labels."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import TrainingError
from contrasent.text.batches import HELDOUT, random_for
from contrasent.text.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Split:
    """Rows to train on, and pairs to measure on.

    Attributes:
        train: (n,) rows that share no text with the held-out pairs.
        queries: first column of the held-out pairs.
        documents: their second column.
    """

    train: NDArray[np.int64]
    queries: list[str]
    documents: list[str]


def hold_out(corpus: Corpus, count: int, *, seed: int) -> Split:
    """Choose pairs to hold out; which ones depends on the seed alone.

    Rows of which any text is also in a held-out pair (letter case aside) are left out of training.
    Each text is held out once. Two passes over the corpus; eight bytes a text are kept.

    Args:
        corpus: of two columns or more.
        count: pairs to hold out, at most a fifth of the rows.
        seed: of the choice.

    Raises:
        TrainingError: too few pairs.
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
    return Split(
        np.flatnonzero(~touched).astype(np.int64), [p[0] for p in pairs], [p[1] for p in pairs]
    )


def _mark(text: str) -> int:
    digest = hashlib.blake2b(text.casefold().encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
