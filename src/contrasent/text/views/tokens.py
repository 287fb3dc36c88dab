"""Views of tokens: a sentence is its ids without the special tokens of the template."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError, check_choice
from contrasent.text.views.words import (
    Ids,
    Level,
    PercentView,
    RateView,
    View,
    chosen,
    portion,
    repeats,
)  # fmt: skip

Fill = Callable[[Sequence[Ids], Sequence[NDArray[np.int64]]], list[NDArray[np.float32]]]
"""A masked language model: rows of inner ids and the masked positions in each, to logits
(positions, vocabulary) for each row. Special tokens are its own business and score -inf."""
Draw = Literal["argmax", "sample"]


@dataclass(frozen=True, kw_only=True)
class Identity(View):
    """The sentence itself: the dropout view (SimCSE, section 3), where dropout alone differs."""

    level: ClassVar[Level] = "token"

    def __call__(self, sentence: Ids, random: np.random.Generator) -> Ids:
        """The ids as they are."""
        return sentence


@dataclass(frozen=True, kw_only=True)
class RepeatTokens(RateView):
    """Repeat some sub-words in place (ESimCSE, section 3.1, "sub-word repetition")."""

    # `rule="code"` is the released code, which gives the published score, `rule="paper"` is
    # equation 3. The result may be longer than the length that sentences are cut at, as in the
    # code.

    level: ClassVar[Level] = "token"

    def __call__(self, sentence: Ids, random: np.random.Generator) -> Ids:
        """The ids with some of them twice."""
        count = repeats(len(sentence), self.rate, self.rule, random, words=False)
        if count == 0:
            return sentence
        times = np.ones(len(sentence), dtype=np.int64)
        times[chosen(len(sentence), count, random)] = 2
        return np.repeat(sentence, times)


@dataclass(frozen=True)
class InTemplate(View):
    """The sentence as it is, in another template than the model's."""

    level: ClassVar[Level] = "token"
    template: str

    def __call__(self, sentence: Ids, random: np.random.Generator) -> Ids:
        """The ids as they are."""
        return sentence


@dataclass(frozen=True, kw_only=True, eq=False)
class InsertMask(RateView):
    """Insert [MASK] after some words (ESimCSE, Table 5, "inserting [MASK]")."""

    # `continues` is as in `ReplaceMasked`: without it any sub-word may be followed by a [MASK].

    level: ClassVar[Level] = "token"
    mask: int
    continues: NDArray[np.bool_] | None = None

    def __call__(self, sentence: Ids, random: np.random.Generator) -> Ids:
        """The ids with [MASK] between them."""
        return self.insert(sentence, random)[0]

    def insert(self, sentence: Ids, random: np.random.Generator) -> tuple[Ids, NDArray[np.int64]]:
        """The ids with [MASK] between them, and where in the result it stands."""
        ends = np.asarray([word[-1] + 1 for word in _words(sentence, self.continues)])
        count = repeats(len(ends), self.rate, self.rule, random, words=self.continues is not None)
        if count == 0:
            return sentence, np.empty(0, dtype=np.int64)
        after = ends[chosen(len(ends), count, random)]
        longer = np.insert(sentence, after, self.mask).astype(np.int32)
        return longer, after + np.arange(count)


class FilledMasks(View):
    """A view whose masks a masked language model fills in, by one call for many sentences."""

    level: ClassVar[Level] = "token"
    fill: Fill
    draw: Draw = "argmax"

    def __call__(self, sentence: Ids, random: np.random.Generator) -> Ids:
        """The ids with predicted ones."""
        return self.many([sentence], [random])[0]

    def many(self, sentences: Sequence[Ids], randoms: Sequence[np.random.Generator]) -> list[Ids]:
        """Several sentences by one call of the model."""
        masked = [self._masked(s, r) for s, r in zip(sentences, randoms, strict=True)]
        changed = [i for i, (_, where) in enumerate(masked) if len(where)]
        out = [ids for ids, _ in masked]
        if not changed:
            return out
        found = self.fill([masked[i][0] for i in changed], [masked[i][1] for i in changed])
        for i, logits in zip(changed, found, strict=True):
            ids, where = masked[i]
            if self.draw == "sample":
                # The largest of logits plus Gumbel noise is a draw from the softmax.
                noise = randoms[i].gumbel(size=logits.shape)
            else:
                noise = np.zeros((), dtype=np.float64)
            new = ids.copy()
            new[where] = (logits + noise).argmax(axis=1)
            out[i] = new
        return out

    @abstractmethod
    def _masked(self, sentence: Ids, random: np.random.Generator) -> tuple[Ids, NDArray[np.int64]]:
        """The ids with masks, and where these stand."""


@dataclass(frozen=True, kw_only=True, eq=False)
class InsertMaskedPrediction(FilledMasks):
    """Insert the best prediction after some words (ESimCSE, Table 5, "masked prediction")."""

    where: InsertMask
    fill: Fill

    def _masked(self, sentence: Ids, random: np.random.Generator) -> tuple[Ids, NDArray[np.int64]]:
        return self.where.insert(sentence, random)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplaceMasked(PercentView, FilledMasks):
    """Mask percent % of the words as a whole and fill them in (SimCSE, Table 1, "MLM k%")."""

    # The paper does not say whether the prediction is drawn ("sample") or the best one ("argmax").

    mask: int
    fill: Fill
    percent: float = 15.0
    draw: Draw = "argmax"
    # (vocabulary,) bool, true for ids that continue a word, see `word_continuations`; without it
    # every sub-word is a word
    continues: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("draw", self.draw, get_args(Draw))

    def _masked(self, sentence: Ids, random: np.random.Generator) -> tuple[Ids, NDArray[np.int64]]:
        words = _words(sentence, self.continues)
        count = portion(len(words), self.percent)
        if count == 0:
            return sentence, np.empty(0, dtype=np.int64)
        where = np.concatenate([words[int(i)] for i in chosen(len(words), count, random)])
        hidden = sentence.copy()
        hidden[where] = self.mask
        return hidden, where


@dataclass(frozen=True, kw_only=True)
class NextSentence(View):
    """Another sentence of the same document (SimCSE, Table 2; after Logeswaran and Lee, 2018)."""

    # `reach=3` is one of the next three. The view is given how many sentences of the document
    # follow, one at least, and gives how many rows further the positive stands.

    level: ClassVar[Level] = "row"
    reach: int = 1

    def __post_init__(self) -> None:
        if self.reach < 1:
            raise OptionError("reach", self.reach, "must be 1 (the next sentence) or more")

    def __call__(self, sentence: int, random: np.random.Generator) -> int:
        """An offset from 1 to ``reach``, uniform among those inside the document."""
        return 1 + int(random.integers(min(self.reach, sentence)))


def _words(ids: Ids, continues: NDArray[np.bool_] | None) -> list[NDArray[np.int64]]:
    """Positions of each word's tokens; without ``continues`` every token is a word."""
    if len(ids) == 0:
        return []
    starts = np.ones(len(ids), dtype=np.bool_) if continues is None else ~continues[ids]
    return np.split(np.arange(len(ids), dtype=np.int64), np.flatnonzero(starts[1:]) + 1)
