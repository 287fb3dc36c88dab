"""Pairs of a query and what it should find, made of passages without labels; one maker a file.

None of these queries was asked by a person. Each maker stands for one way of asking: by a title, by
a sentence on the same matter, by a few telling words. What a passage has in common with a query
that was taken from it is the trap: the makers take the query's text out of what it should find, and
:func:`without_copied` takes out of a query words that stand in both.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from contrasent.adapt.passages import Passage
from contrasent.search.lexical import words

Split = Callable[[str], list[str]]
"""A text's sentences, in order."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and what it should find.

    Attributes:
        query: what is asked.
        text: what should be found: the passage's text, without what the query was taken from.
        passage: number of that passage.
        maker: what made the pair.
        old: whether it is of text that the base was made of, where a model is updated.
    """

    query: str
    text: str
    passage: int
    maker: str
    old: bool = False


Maker = Callable[[Sequence[Passage], Sequence[int], Split, int], Iterator[Pair]]
"""All passages, the numbers of those to make pairs of, how to split sentences, and the seed."""


def random_of(seed: int, purpose: int, passage: int) -> np.random.Generator:
    """A generator for one passage, whatever the order in which passages are taken.

    Args:
        seed: of the run.
        purpose: of the maker.
        passage: the passage's number.
    """
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, passage, purpose, 7]))


def pieces(text: str) -> list[str]:
    """What a text is cut into: its words, or its characters where it is written without spaces.

    Joined by :func:`joined` they are the text again, white space aside.
    """
    spaced = text.split()
    return spaced if 3 * len(spaced) >= len(words(text)) else [c for c in text if not c.isspace()]


def joined(parts: Sequence[str]) -> str:
    """Pieces as a text: characters side by side, words with a space between."""
    return ("" if all(len(part) == 1 for part in parts) else " ").join(parts)


def as_indexed(passage: Passage, text: str) -> str:
    """A part of a passage's text with the title and headings that are indexed before it."""
    return f"{passage.prefix}\n{text}" if passage.prefix else text


def without_copied(
    query: str, text: str, terms: Callable[[str], list[str]], share: float, seed: int
) -> str:
    """A query without some of the words that stand in the text it should find.

    A person who has not seen a text uses other words for it; a query that was cut out of the text
    does not. What search by words gains from that is no gain to the person.

    Args:
        query: the query.
        text: what it should find.
        terms: terms of a text, as search by words compares them.
        share: of the words that stand in both, how many are taken out: 0 none, 1 all.
        seed: of the choice.

    Returns:
        What is left, in order; "" if nothing is.
    """
    there = set(terms(text))
    random = np.random.default_rng(seed)
    asked, space = pieces(query), " "
    if len(asked) > len(query.split()):  # characters: words of unspaced scripts are about a pair
        asked, space = ["".join(asked[at : at + 2]) for at in range(0, len(asked), 2)], ""
    left = [w for w in asked if not (there & set(terms(w)) and random.random() < share)]
    return space.join(left)
