"""Questions that stand in the text ask for the answers that follow them."""

import re
from collections.abc import Iterator, Sequence

from contrasent.adapt.pairs import Pair, Split, as_indexed, pieces
from contrasent.adapt.passages import Passage

_MARKED = re.compile(
    r"(?:^|\n)\s*Q(?:uestion)?\s*[.:]\s*(?P<question>[^\n]+?)\s*\n+\s*A(?:nswer)?\s*[.:]\s*"
    r"(?P<answer>.+?)(?=\n\s*Q(?:uestion)?\s*[.:]|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_MARKS = ("?", "？", "؟")
FEWEST_WORDS = 3


def question_to_answer(
    passages: Sequence[Passage], numbers: Sequence[int], split: Split, seed: int
) -> Iterator[Pair]:
    """Headings and titles that are questions, "Q: ... A: ..." and questions that open a passage."""
    for number in numbers:
        passage = passages[number]
        marked = list(_MARKED.finditer(passage.text))
        for match in marked:
            yield Pair(match["question"], match["answer"].strip(), number, "question")
        if marked:
            continue
        asking = [name for name in (passage.title, *passage.headings) if _asks(name)]
        first, *rest = split(passage.text) or [""]
        if asking:
            yield Pair(asking[-1], passage.text, number, "question")
        elif rest and _asks(first):
            yield Pair(first, as_indexed(passage, " ".join(rest)), number, "question")


def _asks(text: str) -> bool:
    return text.rstrip().endswith(_MARKS) and len(pieces(text)) >= FEWEST_WORDS
