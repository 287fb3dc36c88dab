"""New texts that lie far from all that an index holds: in which groups, and what they are about."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.search.cluster import kmeans
from contrasent.search.index import Index
from contrasent.search.lexical import STOP_WORDS, words
from contrasent.types import Vectors

QUANTILE = 0.01
"""A text is far if its nearest in the index is farther than that of so few of the index's own."""
UNUSUAL = 0.05
"""Share of far texts from which they are shown: five times as many as there would be by chance."""
SMALLEST = 5
"""Texts of a group."""
MOST_GROUPS = 8
OWN = 500
"""Texts of the index whose own distances are looked at."""
BESIDE = 50
"""Neighbours among which the nearest of another document is looked for."""
TERMS, EXAMPLES = 6, 3
_STOP = frozenset().union(*STOP_WORDS.values())


@dataclass(frozen=True, slots=True)
class Group:
    """New texts that lie together, and far from the index.

    Attributes:
        texts: how many of the texts that were looked at.
        terms: words that tell them from all other texts, most telling first.
    """

    texts: int
    terms: tuple[str, ...]
    examples: tuple[str, ...]


def nearest_to_index(
    index: Index, vectors: Vectors, *, own: Sequence[NDArray[np.int64]] | None = None
) -> NDArray[np.float32]:
    """(n,) the score of each vector's nearest row; -inf where an index has nothing else.

    ``vectors``: (n, d) unit vectors.
    """
    scores, rows = index.nearest(vectors, min(BESIDE if own else 1, len(index)))
    if own is None:
        return scores[:, 0]
    nearest = np.full(len(vectors), -np.inf, dtype=np.float32)
    for at, mine in enumerate(own):
        others = scores[at][(rows[at] >= 0) & ~np.isin(rows[at], mine)]
        # Where a document fills all of the neighbours, the last of them is an upper bound.
        nearest[at] = others[0] if len(others) else scores[at][-1]
    return nearest


def far_texts(own: NDArray[np.float32], new: NDArray[np.float32]) -> NDArray[np.int64]:
    """Places of the new texts whose nearest is farther than those of nearly all of the index's own.

    ``own``: (n,) scores of the nearest, of texts of the index. ``new``: (m,) the same of the new
    texts.
    """
    return np.flatnonzero(new < np.quantile(own, QUANTILE))


def grouped(
    texts: Sequence[str], vectors: Vectors, old: Sequence[str], *, seed: int
) -> tuple[Group, ...]:
    """Groups of texts by k-means, the largest first; small ones are left out.

    ``vectors``: (n, d) unit vectors of them.
    """
    if len(texts) < SMALLEST:
        return ()
    found = Index.build(lambda _: vectors, texts)
    clusters = kmeans(found, min(MOST_GROUPS, max(1, round((len(texts) / 2) ** 0.5))), seed=seed)
    groups = [clusters.members(label) for label in range(len(clusters.centres))]
    holding = _holding([*old, *texts])
    return tuple(
        Group(
            len(members),
            telling_terms([texts[at] for at in members], holding, len(old) + len(texts)),
            tuple(texts[at] for at in members[:EXAMPLES]),
        )
        for members in groups
        if len(members) >= SMALLEST
    )


def telling_terms(texts: Sequence[str], holding: Counter[str], count: int) -> tuple[str, ...]:
    """Words that many of a group's texts hold and few of all texts, by BM25's rarity."""
    weights = {
        word: often
        / len(texts)
        * math.log(1 + (count - holding[word] + 0.5) / (holding[word] + 0.5))
        for word, often in _holding(texts).items()
        if often > 1 and len(word) > 2 and word not in _STOP and not word.isdigit()
    }
    return tuple(sorted(weights, key=lambda word: (-weights[word], word))[:TERMS])


def _holding(texts: Sequence[str]) -> Counter[str]:
    return Counter(word for text in texts for word in set(words(text)))
