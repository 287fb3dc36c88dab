"""A title, or a path of headings, asks for the passage below it."""

from collections import Counter
from collections.abc import Iterator, Sequence

from contrasent.adapt.pairs import Pair, Split
from contrasent.adapt.passages import Passage

COMMON = 3
"""A heading of more documents than this, such as "Introduction", asks for nothing in particular."""


def title_to_passage(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """The title and the headings of each passage, as far as they are the document's own."""
    headings = Counter(name for names in _of_documents(passages).values() for name in sorted(names))
    for number in numbers:
        passage = passages[number]
        telling = [name for name in passage.headings if headings[name] <= COMMON]
        parts = [part for part in (passage.title, *telling) if part]
        if parts and headings[passage.title] <= COMMON:
            yield Pair(" ".join(dict.fromkeys(parts)), passage.text, number, "title")


def _of_documents(passages: Sequence[Passage]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for passage in passages:
        found.setdefault(passage.document, set()).update((passage.title, *passage.headings))
    for names in found.values():
        names.discard("")
    return found
