"""Whether a model knows the language of some texts, measured by its vocabulary and not listed.

A vocabulary that was not made for a language cuts its words into many pieces, or has none for them.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol

from contrasent.search.words import words

SAMPLE = 64  # texts that are looked at
LONGEST = 1000  # characters of each
PIECES = 1.55  # tokens a word beyond which the language is not the vocabulary's
SHARED = 100_000  # tokens from which a vocabulary is shared by many languages, and cuts all of them
SHARED_PIECES = 3.0
UNKNOWN = 0.05  # share of unknown tokens beyond which it is not


class Vocabulary(Protocol):
    """A tokenizer, see :class:`contrasent.text.tokens.Tokenizer`."""

    size: Any
    specials: Any
    frame: Any
    __call__: Callable[..., Any]


def knows_language(texts: Iterable[str], tokenizer: Vocabulary) -> bool:
    """Whether a tokenizer's vocabulary is of the texts' language; true of no words at all."""
    sample = [words(text[:LONGEST]) for text in islice(texts, SAMPLE)]
    count = sum(map(len, sample))
    if not count:
        return True
    tokens, _ = tokenizer([" ".join(some) for some in sample])
    before, after = tokenizer.frame
    total = max(1, len(tokens.ids) - len(sample) * (len(before) + len(after)))
    unknown = (tokens.ids == tokenizer.specials.unknown).sum()
    most = PIECES if tokenizer.size < SHARED else SHARED_PIECES
    return bool(total / count <= most and unknown / total <= UNKNOWN)
