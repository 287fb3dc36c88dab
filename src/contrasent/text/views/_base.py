"""What a view is, and the arithmetic that several share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError, check_choice

Ids = NDArray[np.int32]
Level = Literal["word", "token", "row"]
Rule = Literal["code", "paper", "exact"]
RULES = ("code", "paper", "exact")
MOST = 10
"""The released code of ESimCSE repeats fewer than this many."""
SPECIAL = 2
"""[CLS] and [SEP], which the released code of ESimCSE counts into the length."""


class View(ABC):
    """A sentence rewritten: a pure function of the sentence and a random generator.

    Attributes:
        level: "word": strings to strings. "token": int32 ids to int32 ids, without the special
            tokens of the template, which the caller takes off and puts back. "row": see
            ``NextSentence``.
        template: of a view of tokens, what its caller puts around the ids in place of the model's
            own template.
    """

    level: ClassVar[Level]
    template: str = ""

    @abstractmethod
    def __call__(self, sentence: Any, random: np.random.Generator) -> Any:
        """The sentence rewritten; the input is never changed."""

    def many(self, sentences: Sequence[Any], randoms: Sequence[np.random.Generator]) -> list[Any]:
        """Several sentences, each with a generator of its own; views with a model batch here."""
        return [self(s, random) for s, random in zip(sentences, randoms, strict=True)]


def portion(count: int, percent: float) -> int:
    """So many percent of a count, halves rounded up."""
    return math.floor(count * percent / 100 + 0.5)


def repeats(
    count: int, rate: float, rule: Rule, random: np.random.Generator, *, words: bool
) -> int:
    """How many of ``count`` words or tokens to repeat: dup_len of ESimCSE, section 3.1."""
    if rule == "exact":  # DiffCSE, section 5, edits of 15 %
        return portion(count, 100 * rate)
    if rule == "paper":  # equation 3: uniform over 0 .. max(2, int(rate * N)), both included
        most = max(2, int(rate * count)) + 1
    elif words:  # the released code
        most = min(MOST, count, max(2, int(rate * count)))
    else:  # the same for sub-words: at rate 0.32 four or fewer are never changed
        most = min(MOST, int(rate * (count + SPECIAL)))
    return min(int(random.integers(most)), count) if most > 0 else 0


def chosen(count: int, size: int, random: np.random.Generator) -> NDArray[np.int64]:
    """``size`` different positions of ``count``, in order."""
    return np.sort(random.choice(count, size=size, replace=False))


def check_percent(percent: float) -> None:
    """Reject a share outside [0, 100)."""
    if not 0 <= percent < 100:
        raise OptionError("percent", percent, "must be from 0 up to, not including, 100")


def check_rate(rate: float, rule: str) -> None:
    """Reject a repetition rate outside [0, 1] or an unknown rule."""
    if not 0 <= rate <= 1:
        raise OptionError("rate", rate, "must be from 0 to 1, such as 0.32")
    check_choice("rule", rule, RULES)
