"""A sentence asks for the passage it stands in, from which it is taken out."""

from collections.abc import Iterator, Sequence

from contrasent.adapt.pairs import Pair, Split, as_indexed, pieces, random_of
from contrasent.adapt.passages import Passage

FEWEST_WORDS = 4
"""Words of a sentence that says something."""


def first_sentence(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """The first sentence of each passage asks for the rest of it.

    That of a docstring asks in :mod:`contrasent.adapt.pairs.docstrings`.
    """
    for number in numbers:
        if passages[number].docstring:
            continue
        first, *rest = split(passages[number].text) or [""]
        if rest and len(pieces(first)) >= FEWEST_WORDS:
            text = as_indexed(passages[number], " ".join(rest))
            yield Pair(first, text, number, "first sentence")


def inverse_cloze(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """A sentence of each passage asks for the others (Lee et al., 2019, Section 4)."""
    for number in numbers:
        sentences = split(passages[number].text)
        usable = [i for i, s in enumerate(sentences) if len(pieces(s)) >= FEWEST_WORDS]
        if len(sentences) < 3 or not usable:
            continue
        taken = usable[int(random_of(seed, 1, number).integers(len(usable)))]
        rest = [s for i, s in enumerate(sentences) if i != taken]
        text = as_indexed(passages[number], " ".join(rest))
        yield Pair(sentences[taken], text, number, "sentence")
