"""The summary of a docstring asks for the prose that explains it."""

from collections.abc import Iterator, Sequence

from contrasent.adapt.formats.prose import summary_and_explanation
from contrasent.adapt.pairs import Pair, Split, as_indexed
from contrasent.adapt.passages import Passage


def summary_to_explanation(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """Passages of Python sources, and of the installed packages' documentation, that explain."""
    for number in numbers:
        passage = passages[number]
        if passage.docstring:
            summary, explanation = summary_and_explanation(passage.text.replace("\n", "\n\n"))
            if explanation:
                yield Pair(summary, as_indexed(passage, explanation), number, "docstring")
