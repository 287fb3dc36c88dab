"""Two crops of one document belong together (Izacard et al., 2022, Contriever, Section 3.1)."""

from collections.abc import Iterator, Sequence

import numpy as np

from contrasent.adapt.pairs import Pair, Split, joined, pieces, random_of
from contrasent.adapt.passages import Passage

SHORTEST, LONGEST = 0.05, 0.5
"""Shares of a passage's words that a crop may be; Contriever's."""
FEWEST_WORDS = 4


def crops(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """Two spans of words of each passage, drawn apart from each other; they may overlap."""
    for number in numbers:
        words = pieces(passages[number].text)
        if len(words) < 2 * FEWEST_WORDS:
            continue
        random = random_of(seed, 2, number)
        yield Pair(_crop(words, random), _crop(words, random), number, "crop")


def neighbours(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """A sentence of each passage asks for the passage that follows in its document."""
    wanted = set(numbers)
    for number in numbers:
        following = number + 1
        if following not in wanted or following >= len(passages):
            continue
        here, there = passages[number], passages[following]
        if here.document != there.document:
            continue
        sentences = [s for s in split(here.text) if len(pieces(s)) >= FEWEST_WORDS]
        if sentences:
            at = int(random_of(seed, 3, number).integers(len(sentences)))
            yield Pair(sentences[at], there.indexed, following, "neighbour")


def _crop(words: Sequence[str], random: np.random.Generator) -> str:
    low = max(FEWEST_WORDS, round(SHORTEST * len(words)))
    high = max(low, round(LONGEST * len(words)))
    length = int(random.integers(low, high + 1))
    start = int(random.integers(len(words) - length + 1))
    return joined(words[start : start + length])
