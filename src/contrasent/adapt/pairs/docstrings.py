"""The summary of a docstring asks for the prose that explains it."""

from collections.abc import Iterator, Sequence

from contrasent.adapt.documents import FORMATS
from contrasent.adapt.pairs import Pair, Split, as_indexed
from contrasent.adapt.passages import Passage
from contrasent.text.prose import summary_and_explanation


def summary_to_explanation(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """Passages of Python sources, and of the installed packages' documentation, that explain."""
    for number in numbers:
        passage = passages[number]
        if _is_source(passage.id.rpartition("#")[0]):
            summary, explanation = summary_and_explanation(passage.text.replace("\n", "\n\n"))
            if explanation:
                text = as_indexed(passage, explanation)
                yield Pair(summary, text, number, "docstring")


def _is_source(document: str) -> bool:
    """Whether a document is a Python source, or a dotted name of an installed package."""
    _, dot, suffix = document.rpartition(".")
    named = dot and not ("/" in document or "#" in document or f".{suffix}" in FORMATS)
    return suffix == "py" or bool(named)
