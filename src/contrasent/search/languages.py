"""Whether a model knows the language of some texts, measured and not listed.

A model that was not trained on a language cuts its words into many pieces or into unknown ones, and
its vectors of two halves of one text are hardly nearer to each other than those of two texts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from contrasent.metrics import normalize
from contrasent.search.words import words
from contrasent.types import EncodeFn, Tokens

SAMPLE = 64
"""Texts that are looked at."""
SHORTEST = 40
"""Characters of a text that is cut in halves."""
PIECES = 1.6
"""Tokens a word from which a vocabulary does not know the language; scripts without spaces count
two characters as a word."""
UNKNOWN = 0.05
"""Share of unknown tokens from which it does not."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """How a model takes some texts.

    Attributes:
        pieces: tokens a word.
        unknown: share of tokens that its vocabulary does not have.
        coherence: share of first halves that are nearest to their own second half.
    """

    pieces: float
    unknown: float
    coherence: float

    @property
    def known(self) -> bool:
        """Whether the model knows the language."""
        return self.pieces <= PIECES and self.unknown <= UNKNOWN


def knowledge(
    texts: Sequence[str],
    tokenise: Callable[[Sequence[str]], Tokens],
    unknown: int | None,
    encode: EncodeFn,
) -> Knowledge:
    """Measure it on a sample of texts."""
    rows = np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(int)
    sample = [texts[row][:1000] for row in dict.fromkeys(rows.tolist())]
    spoken = [" ".join(words(text)) for text in sample]
    tokens = tokenise(spoken)
    total = max(1, len(tokens.ids) - 2 * len(sample))
    count = sum(len(text.split()) for text in spoken)
    missing = 0 if unknown is None else int((tokens.ids == unknown).sum())
    halves = [_halves(text) for text in sample if len(text) >= SHORTEST]
    coherence = 1.0
    if len(halves) >= 8:
        first = normalize(encode([one for one, _ in halves]))
        second = normalize(encode([two for _, two in halves]))
        coherence = float(((first @ second.T).argmax(axis=1) == np.arange(len(halves))).mean())
    return Knowledge(total / max(1, count), missing / total, coherence)


def _halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    space = text.find(" ", middle, middle + 40)
    middle = space if space >= 0 else middle
    return text[:middle], text[middle:]
