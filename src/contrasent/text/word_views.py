"""The base class of views, and views of words, which stand between white space."""

# A sentence left as it is comes back unchanged. Text without spaces is one word: use views of
# tokens.

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, MissingExtraError, import_extra

Ids = NDArray[np.int32]
Level = Literal["word", "token", "row"]
Rule = Literal["code", "paper", "exact"]
MOST = 10  # the released code of ESimCSE repeats fewer than this many
SPECIAL = 2  # [CLS] and [SEP], which the released code of ESimCSE counts into the length


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


@dataclass(frozen=True, kw_only=True)
class PercentView(View):
    """A view that changes a share of the words."""

    percent: float = 10.0  # from 0 up to, not including, 100


@dataclass(frozen=True, kw_only=True)
class RateView(View):
    """A view that repeats words or tokens, or inserts after them; see ``repeats``."""

    rate: float = 0.32  # from 0 to 1
    rule: Rule = "code"


FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
FOLDERS = ("/usr/share/wordnet", "/usr/local/share/wordnet", "/usr/local/WordNet-3.0/dict")


def wordnet_synonyms(source: str | Path | None = None) -> Callable[[str], Sequence[str]]:
    """A word's synonyms: the other members of all its synsets, of every part of speech, sorted."""
    if source is not None:
        if Path(source).is_dir():
            return _from_files(Path(source))
        if os.sep in str(source):
            raise DataError(f"{source}: no such folder of WordNet database files")
        return _from_lexicon(str(source))
    named = os.environ.get("WNSEARCHDIR")
    if named:
        return _from_files(Path(named))
    for folder in FOLDERS:
        if Path(folder, FILES[0]).is_file():
            return _from_files(Path(folder))
    try:
        return _from_lexicon(None)
    except (MissingExtraError, DataError) as error:
        raise DataError(
            "synonyms need WordNet, and it is not here: apt install wordnet-base, or set "
            "WNSEARCHDIR to a folder with data.noun, data.verb, data.adj and data.adv, or "
            "pip install wn and python -m wn download oewn:2024"
        ) from error


def _from_files(folder: Path) -> Callable[[str], Sequence[str]]:
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder}: {missing[0]} is missing, so these are not WordNet's files")
    found: dict[str, set[str]] = {}
    for name in FILES:
        for members in _synsets(folder / name):
            for member in members:
                found.setdefault(member.lower(), set()).update(members)
    table = {word: _others(word, members) for word, members in found.items()}
    return lambda word: table.get(word, ())


def _synsets(path: Path) -> Iterator[list[str]]:
    """Members of each synset of a data file (the format is WordNet's manual page wndb(5WN))."""
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.startswith("  "):  # the licence
                continue
            fields = line.split(" ")
            try:
                # offset, file, part of speech, count in hexadecimal, then word and sense number
                words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            except (IndexError, ValueError) as error:
                raise DataError(f"{path}:{number}: not a line of a WordNet data file") from error
            # Adjectives may carry a marker of position: "alone(p)".
            yield [word.split("(")[0].replace("_", " ") for word in words]


def _from_lexicon(lexicon: str | None) -> Callable[[str], Sequence[str]]:
    wn = import_extra("wn", "synonyms", "a lexicon for synonyms")
    try:
        words = wn.Wordnet(lexicon) if lexicon else wn.Wordnet(lang="en")
    except wn.Error as error:
        name = lexicon or "oewn:2024"
        raise DataError(
            f"the package wn has no lexicon {lexicon or 'for English'}; "
            f"python -m wn download {name} fetches it"
        ) from error

    @lru_cache(maxsize=100_000)
    def synonyms(word: str) -> tuple[str, ...]:
        members = {lemma for synset in words.synsets(word) for lemma in synset.lemmas()}
        return _others(word, members)

    return synonyms


def _others(word: str, members: set[str]) -> tuple[str, ...]:
    return tuple(sorted(m for m in members if m.lower() != word))


# fmt: off
STOP_WORDS = (
    "a", "about", "after", "all", "also", "an", "and", "any", "are", "as", "at", "be",
    "because", "been", "before", "but", "by", "can", "could", "did", "do", "does", "for",
    "from", "had", "has", "have", "he", "her", "his", "how", "i", "if", "in", "into", "is",
    "it", "its", "just", "may", "more", "most", "my", "no", "not", "of", "on", "only", "or",
    "other", "our", "out", "over", "she", "so", "some", "such", "than", "that", "the", "their",
    "them", "then", "there", "these", "they", "this", "those", "through", "to", "under", "up",
    "very", "was", "we", "were", "what", "when", "where", "which", "who", "will", "with",
    "would", "you", "your",
)
# fmt: on
"""English function words, for ``InsertStopWords``."""


class WordView(View):
    """A view of the words of a sentence; they are joined again by single spaces."""

    level: ClassVar[Level] = "word"

    def __call__(self, sentence: str, random: np.random.Generator) -> str:
        """The sentence rewritten; as it is, white space included, where no word changes."""
        words = self._rewritten(sentence.split(), random)
        return sentence if words is None else " ".join(words)

    @abstractmethod
    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        """The new words; None for the same."""


@dataclass(frozen=True, kw_only=True)
class Crop(PercentView, WordView):
    """Keep a run of (100 - percent) % of the words, at least one (SimCSE, Table 1, "crop k%")."""

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        keep = max(1, portion(len(words), 100 - self.percent))
        if keep >= len(words):
            return None
        start = int(random.integers(len(words) - keep + 1))
        return words[start : start + keep]


@dataclass(frozen=True, kw_only=True)
class DeleteWords(PercentView, WordView):
    """Delete percent % of the words, but never all (SimCSE, Table 1, "word deletion k%")."""

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        return _without(words, min(portion(len(words), self.percent), len(words) - 1), random)


@dataclass(frozen=True, kw_only=True)
class DeleteOneWord(WordView):
    """Delete exactly one word (SimCSE, Tables 1 and 2); a sentence of one word is left alone."""

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        return _without(words, min(1, len(words) - 1), random)


@dataclass(frozen=True, kw_only=True)
class RepeatWords(RateView, WordView):
    """Repeat some words in place (ESimCSE, section 3.1 and Table 5, "word repetition")."""

    # `rule="code"` is the released code: fewer than ten, never the last word. `rule="paper"` is
    # equation 3, any word.

    def _selected(self, words: list[str], random: np.random.Generator) -> list[int]:
        """Positions of the words to repeat, in order."""
        count = repeats(len(words), self.rate, self.rule, random, words=True)
        if count == 0:
            return []
        eligible = len(words) - (self.rule == "code")
        return [int(i) for i in chosen(eligible, min(count, eligible), random)]

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        twice = set(self._selected(words, random))
        if not twice:
            return None
        return [w for i, word in enumerate(words) for w in [word] * (1 + (i in twice))]


@dataclass(frozen=True, kw_only=True)
class InsertStopWords(RepeatWords):
    """Insert a stop word after words chosen as ``RepeatWords`` chooses them (ESimCSE, Table 5)."""

    stop_words: Sequence[str] = STOP_WORDS

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        positions = self._selected(words, random)
        for position in positions[::-1]:
            stop = self.stop_words[int(random.integers(len(self.stop_words)))]
            words.insert(position + 1, stop)
        return words if positions else None


@dataclass(frozen=True, kw_only=True)
class ReplaceSynonym(WordView):
    """Replace ``count`` words by a synonym (SimCSE, Table 1, "synonym replacement": one word)."""

    # Looked up in lower case without punctuation; capital and punctuation are kept.

    synonyms: Callable[[str], Sequence[str]]
    count: int = 1

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        cores = [word.strip("\"'`.,;:!?()[]{}") for word in words]
        known = [i for i, core in enumerate(cores) if core and self.synonyms(core.lower())]
        if not known:
            return None
        for place in chosen(len(known), min(self.count, len(known)), random):
            i = known[int(place)]
            choices = self.synonyms(cores[i].lower())
            new = choices[int(random.integers(len(choices)))]
            if cores[i][0].isupper():
                new = new[0].upper() + new[1:]
            words[i] = words[i].replace(cores[i], new, 1)
        return words


def _without(words: list[str], gone: int, random: np.random.Generator) -> list[str] | None:
    if gone <= 0:
        return None
    lost = set(chosen(len(words), gone, random).tolist())
    return [word for i, word in enumerate(words) if i not in lost]
