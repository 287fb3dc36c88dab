"""The base for texts, and the weight of words, by how well a vocabulary knows their language.

A vocabulary that was not made for a language cuts its words into many pieces, or has none for them.
That is measured on the texts; no language is listed, and no model is loaded.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np

from contrasent.errors import see
from contrasent.search.ranking import KNOWN_WEIGHT, OTHER_WEIGHT
from contrasent.search.words import WORD, words
from contrasent.text.tokens import Tokenizer

SAMPLE = 200  # texts that are looked at
LONGEST = 500  # characters of each
RUN = 24  # characters of a word, or of a run in a script without spaces, that are cut at once
PIECES = 1.45  # tokens a word beyond which the language is not the vocabulary's
SHARED = 100_000  # tokens from which a vocabulary is shared by many languages, and cuts all of them
SHARED_PIECES = 3.0
UNKNOWN = 0.05  # share of unknown tokens beyond which it is not
CLEAR = 1.35  # tokens a word up to which no other base is looked at
BETTER = 1.1  # times the tokens of another base beyond which that one knows the language better
EXTRA = "pip install 'contrasent[multilingual]' brings a base for about 100 languages"


class Fit(NamedTuple):
    """How a vocabulary cuts some texts: tokens a word, and whether it knows their language."""

    pieces: float
    known: bool
    unknown: float = 0.0

    @property
    def word_weight(self) -> float:
        """Share of words in a score."""
        return KNOWN_WEIGHT if self.known else OTHER_WEIGHT


class Base(NamedTuple):
    """The base that was chosen for some texts."""

    name: str
    fit: Fit
    reason: str
    tokenizer: Tokenizer  # who loads the base while this is there need not read it again


def choose_base(texts: Iterable[str], bases: Mapping[str, Callable[[], Tokenizer]]) -> Base:
    """The base that knows the language of some texts best, the first one where none does better.

    ``bases`` has what loads the tokenizer of each, by name.
    """
    first = list(islice(texts, SAMPLE))
    (name, load), *others = bases.items()
    tokenizer, compared = load(), ""
    best = fit(first, tokenizer)
    if not best.known or best.pieces > CLEAR:
        for other, load in others:
            other_tokenizer = load()
            found = fit(first, other_tokenizer)
            if found.known and (best.unknown > UNKNOWN or best.pieces > BETTER * found.pieces):
                compared = f"; {name}: {_cut(best)}"
                name, best, tokenizer = other, found, other_tokenizer
            else:
                compared = f"; {other}: {_cut(found)}"
    if best.known:
        reason = f"its vocabulary knows the language ({_cut(best)}{compared})"
        return Base(name, best, reason, tokenizer)
    reason = (
        f"no installed base knows the language ({_cut(best)}{compared}): words count for "
        f"{OTHER_WEIGHT:g} of a score (--word-weight)"
    )
    reason += "" if others else f"; {EXTRA}"
    return Base(name, best, reason + see("wrong-language"), tokenizer)


def fit(texts: Iterable[str], tokenizer: Tokenizer) -> Fit:
    """How a tokenizer cuts the words of some texts; it knows the language of no words at all."""
    # Words, and runs of scripts without spaces, as they stand in the first texts.
    runs = Counter[str]()
    for text in islice(texts, SAMPLE):
        for match in WORD.finditer(text[:LONGEST]):
            run = match[0]
            runs.update(run[at : at + RUN] for at in range(0, len(run), RUN))
    counts = np.fromiter(runs.values(), np.int64, len(runs))
    count = int(sum(times * len(words(run)) for run, times in runs.items()))
    if not count:
        return Fit(1.0, True)
    # One by one, since a model may read only a few tokens.
    tokens, _ = tokenizer(list(runs))
    before, after = tokenizer.frame
    total = int(((tokens.lengths - len(before) - len(after)) * counts).sum())
    unknown = 0
    if tokenizer.specials.unknown is not None:
        marks = (tokens.ids == tokenizer.specials.unknown).astype(np.int64)
        marks = np.add.reduceat(marks, tokens.offsets[:-1])
        unknown = int((marks * counts).sum())
    pieces, share = total / count, unknown / max(1, total)
    few = pieces <= PIECES or (pieces <= SHARED_PIECES and tokenizer.size >= SHARED)
    return Fit(pieces, few and share <= UNKNOWN, share)


def _cut(fit: Fit) -> str:
    unknown = f", {fit.unknown:.0%} unknown" if fit.unknown > UNKNOWN else ""
    return f"{fit.pieces:.1f} tokens a word{unknown}"
