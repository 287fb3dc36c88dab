"""Queries that people typed ask for the documents that they opened."""

from collections.abc import Iterator, Sequence

from contrasent.adapt.pairs import Maker, Pair, Split
from contrasent.adapt.passages import Passage
from contrasent.adapt.reading import Asked
from contrasent.search.lexical import words


def clicks(log: Asked, holding: Sequence[Sequence[int]]) -> Maker:
    """A maker of pairs from a click log.

    A query asks for the passage of the opened document that shares most words with it. It belongs
    to the part of the documents (training, choosing, judging) in which the one lies that was
    opened most often for it, and to that part alone. A pair is repeated for every doubling of its
    count.

    Args:
        log: queries, and how often each document was opened.
        holding: for each document the passages that hold its text.
    """

    def opened(
        passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
    ) -> Iterator[Pair]:
        wanted = set(numbers)
        for query, counts in log:
            if wanted.isdisjoint(holding[max(counts, key=lambda document: counts[document])]):
                continue
            terms = set(words(query))
            for document, count in counts.items():
                there = [number for number in holding[document] if number in wanted]
                shared = [len(terms.intersection(words(passages[at].indexed))) for at in there]
                if there:
                    best = there[shared.index(max(shared))]
                    pair = Pair(query, passages[best].indexed, best, "click")
                    yield from [pair] * max(1, int(count).bit_length())

    return opened
