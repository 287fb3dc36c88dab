"""Views: a sentence rewritten, so that two views of it make a positive pair. No torch here.

Each view is a pure function of a sentence and a generator, one for each (seed, epoch, row, view). A
view of words splits at white space and gives a sentence without changes back as it is; text without
spaces is one word, for which views of tokens are meant. A view of tokens is given the ids without
the special tokens of the template.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, ModelError, check_choice
from contrasent.text.tokens import Tokenizer

Ids = NDArray[np.int32]
Level = Literal["word", "token", "row"]
Rule = Literal["code", "paper", "exact"]
Draw = Literal["argmax", "sample"]
Fill = Callable[[Sequence[Ids], Sequence[NDArray[np.int64]]], list[NDArray[np.float32]]]
"""A masked language model: rows of inner ids and the masked positions in each, to logits
(positions, vocabulary) for each row. Special tokens are its own business and score -inf."""

MOST = 10  # the released code of ESimCSE repeats fewer than this many
SPECIAL = 2  # [CLS] and [SEP], which the released code of ESimCSE counts into the length

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

WORDNET_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
WORDNET_FOLDERS = (
    "/usr/share/wordnet", "/usr/local/share/wordnet", "/usr/local/WordNet-3.0/dict",
)  # fmt: skip

GIVEN = {"mask", "continues", "fill", "synonyms", "where"}
"""Parameters that come from the tokenizer, a model or a data set, not from an option."""


class View(ABC):
    """A transformation of a sentence: a function of the sentence and a random generator.

    Attributes:
        level: "word" for a view of strings, "token" for int32 ids without special tokens, "row" for
            the sentences that follow.
        template: the template around the ids of a view of tokens; the model's own if empty.
    """

    level: ClassVar[Level]
    template: str = ""

    @abstractmethod
    def __call__(self, sentence: Any, random: np.random.Generator) -> Any:
        """The sentence rewritten; the input is never changed."""

    def many(self, sentences: Sequence[Any], randoms: Sequence[np.random.Generator]) -> list[Any]:
        """Transform several sentences, each with its own generator."""
        return [self(s, random) for s, random in zip(sentences, randoms, strict=True)]


def portion(count: int, percent: float) -> int:
    """``percent`` of a count, rounding half up."""
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
class RateView(View):
    """A view that repeats words or tokens, or inserts after them; see ``repeats``."""

    rate: float = 0.32  # from 0 to 1
    # "code" is the released code, which gives the published score, "paper" is equation 3
    rule: Rule = "code"


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
class Crop(WordView):
    """Keep a run of (100 - percent) % of the words, at least one (SimCSE, Table 1, "crop k%")."""

    percent: float = 10.0  # from 0 up to, not including, 100

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        keep = max(1, portion(len(words), 100 - self.percent))
        if keep >= len(words):
            return None
        start = int(random.integers(len(words) - keep + 1))
        return words[start : start + keep]


@dataclass(frozen=True, kw_only=True)
class DeleteWords(WordView):
    """Delete percent % of the words, but never all (SimCSE, Table 1, "word deletion k%")."""

    percent: float = 10.0  # from 0 up to, not including, 100

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        return _without(words, min(portion(len(words), self.percent), len(words) - 1), random)


@dataclass(frozen=True, kw_only=True)
class DeleteOneWord(WordView):
    """Delete exactly one word (SimCSE, Tables 1 and 2); a sentence of one word is left alone."""

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        return _without(words, min(1, len(words) - 1), random)


@dataclass(frozen=True, kw_only=True)
class RepeatWords(RateView, WordView):
    """Repeat some words in place (ESimCSE, section 3.1 and Table 5, "word repetition").

    The released code repeats fewer than ten, and never the last word.
    """

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

    def _rewritten(self, words: list[str], random: np.random.Generator) -> list[str] | None:
        positions = self._selected(words, random)
        for position in positions[::-1]:
            stop = STOP_WORDS[int(random.integers(len(STOP_WORDS)))]
            words.insert(position + 1, stop)
        return words if positions else None


@dataclass(frozen=True, kw_only=True)
class ReplaceSynonym(WordView):
    """Replace ``count`` words by a synonym (SimCSE, Table 1, "synonym replacement": one word).

    Looked up in lower case without punctuation; capital and punctuation are kept.
    """

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


@dataclass(frozen=True, kw_only=True)
class Identity(View):
    """The sentence itself: SimCSE's view, which differs in dropout only (section 3)."""

    level: ClassVar[Level] = "token"

    def __call__(self, sentence: Ids, random: np.random.Generator) -> Ids:
        """The ids as they are."""
        return sentence


@dataclass(frozen=True, kw_only=True)
class RepeatTokens(RateView):
    """Repeat some sub-words in place (ESimCSE, section 3.1, "sub-word repetition").

    The result may be longer than the length that sentences are cut at, as in the released code.
    """

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
    """The sentence itself in another template."""

    level: ClassVar[Level] = "token"
    template: str

    def __call__(self, sentence: Ids, random: np.random.Generator) -> Ids:
        """The ids as they are."""
        return sentence


@dataclass(frozen=True, kw_only=True, eq=False)
class InsertMask(RateView):
    """Insert [MASK] after some words (ESimCSE, Table 5, "inserting [MASK]").

    ``continues`` is as in ``ReplaceMasked``: without it any sub-word may be followed by a [MASK].
    """

    level: ClassVar[Level] = "token"
    mask: int
    continues: NDArray[np.bool_] | None = None

    def __call__(self, sentence: Ids, random: np.random.Generator) -> Ids:
        """The ids with [MASK] between them."""
        return self.insert(sentence, random)[0]

    def insert(self, sentence: Ids, random: np.random.Generator) -> tuple[Ids, NDArray[np.int64]]:
        """The ids with [MASK] between them, and its places in the result."""
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
        predictions = self.fill([masked[i][0] for i in changed], [masked[i][1] for i in changed])
        for i, logits in zip(changed, predictions, strict=True):
            scores: NDArray[np.floating] = logits
            if self.draw == "sample":
                # The largest of logits plus Gumbel noise is a draw from the softmax.
                scores = logits + randoms[i].gumbel(size=logits.shape)
            out[i] = out[i].copy()
            out[i][masked[i][1]] = scores.argmax(axis=1)
        return out

    @abstractmethod
    def _masked(self, sentence: Ids, random: np.random.Generator) -> tuple[Ids, NDArray[np.int64]]:
        """The ids with masks, and the places of the masks."""


@dataclass(frozen=True, kw_only=True)
class InsertMaskedPrediction(FilledMasks):
    """Insert the best prediction after some words (ESimCSE, Table 5, "masked prediction")."""

    where: InsertMask
    fill: Fill = field(compare=False)
    room: int | None = None  # tokens that the model can read between the special ones

    def _masked(self, sentence: Ids, random: np.random.Generator) -> tuple[Ids, NDArray[np.int64]]:
        longer, places = self.where.insert(sentence, random)
        longer = longer[: self.room]
        return longer, places[places < len(longer)]


@dataclass(frozen=True, kw_only=True)
class ReplaceMasked(FilledMasks):
    """Mask percent % of the words as a whole and fill them in (SimCSE, Table 1, "MLM k%")."""

    mask: int
    fill: Fill = field(compare=False)
    percent: float = 15.0  # from 0 up to, not including, 100
    draw: Draw = "argmax"  # or "sample"; the paper does not say which
    # (vocabulary,) bool, true for ids that continue a word, see `word_continuations`; without it
    # every sub-word is a word
    continues: NDArray[np.bool_] | None = field(default=None, compare=False)

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
    """Another sentence of the same document (SimCSE, Table 2; after Logeswaran and Lee, 2018).

    ``reach=3`` is one of the next three. The view is given how many sentences of the document
    follow, one at least, and gives how many rows further the positive is.
    """

    level: ClassVar[Level] = "row"
    reach: int = 1

    def __call__(self, sentence: int, random: np.random.Generator) -> int:
        """An offset from 1 to ``reach``, uniform among those inside the document."""
        return 1 + int(random.integers(min(self.reach, sentence)))


def _words(ids: Ids, continues: NDArray[np.bool_] | None) -> list[NDArray[np.int64]]:
    """Positions of each word's tokens; without ``continues`` every token is a word."""
    if len(ids) == 0:
        return []
    starts = np.ones(len(ids), dtype=np.bool_) if continues is None else ~continues[ids]
    return np.split(np.arange(len(ids), dtype=np.int64), np.flatnonzero(starts[1:]) + 1)


VIEWS: dict[str, type[View]] = {
    "dropout": Identity,
    "crop": Crop,
    "delete_words": DeleteWords,
    "delete_one_word": DeleteOneWord,
    "synonym": ReplaceSynonym,
    "masked_lm": ReplaceMasked,
    "repeat_words": RepeatWords,
    "repeat_tokens": RepeatTokens,
    "insert_stop_words": InsertStopWords,
    "insert_mask": InsertMask,
    "insert_prediction": InsertMaskedPrediction,
    "next_sentence": NextSentence,
}


def options_of(name: str) -> list[str]:
    """Names of the options that a view takes."""
    check_choice("view", name, VIEWS)
    # A prediction is inserted where a [MASK] would be.
    kind = InsertMask if name == "insert_prediction" else VIEWS[name]
    options = [f.name for f in fields(kind) if f.name not in GIVEN]  # type: ignore[arg-type]
    return options + (["wordnet"] if name == "synonym" else [])


def make_view(
    name: str,
    options: Mapping[str, Any],
    tokenizer: Tokenizer,
    fill: Callable[[], Fill],
    room: int | None = None,
) -> View:
    """A view from its name and options, which :func:`options_of` names."""
    given = dict(options)
    if name == "synonym":
        given["synonyms"] = wordnet_synonyms(given.pop("wordnet", None))
    if name in {"masked_lm", "insert_mask", "insert_prediction"}:
        if tokenizer.specials.mask is None:
            raise ModelError(f"the view {name!r} needs a tokenizer with a [MASK] token")
        given |= {"mask": tokenizer.specials.mask, "continues": word_continuations(tokenizer)}
    if name == "insert_prediction":
        return InsertMaskedPrediction(where=InsertMask(**given), fill=fill(), room=room)
    if name == "masked_lm":
        given["fill"] = fill()
    return VIEWS[name](**given)


def word_continuations(tokenizer: Tokenizer) -> NDArray[np.bool_] | None:
    """(vocabulary,) bool, true for ids that continue a word; None if that is not known."""
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
    hashes = sum(text.startswith("##") for text in vocabulary)
    spaces = sum(text.startswith(("Ġ", "▁")) for text in vocabulary)
    if not hashes and not spaces:
        return None
    continues = np.zeros(tokenizer.size, dtype=np.bool_)
    for text, i in vocabulary.items():
        if hashes > spaces:
            continues[i] = text.startswith("##")
        else:
            continues[i] = not text.startswith(("Ġ", "▁")) and i not in tokenizer.specials.all
    return continues


def wordnet_synonyms(folder: str | Path | None = None) -> Callable[[str], Sequence[str]]:
    """A word's synonyms: the other members of all its synsets, of every part of speech, sorted."""
    folder = folder or os.environ.get("WNSEARCHDIR")
    if folder is None:
        folder = next(
            (place for place in WORDNET_FOLDERS if Path(place, WORDNET_FILES[0]).is_file()), None
        )
    if folder is None:
        remedy = f"set WNSEARCHDIR to a folder with {', '.join(WORDNET_FILES)}"
        raise DataError(f"synonyms need WordNet: apt install wordnet-base, or {remedy}")
    return _read_wordnet(Path(folder))


@lru_cache(maxsize=1)
def _read_wordnet(folder: Path) -> Callable[[str], Sequence[str]]:
    """The synonyms of one folder; the same function again, so that views of it are equal."""
    missing = [name for name in WORDNET_FILES if not Path(folder, name).is_file()]
    if missing:
        raise DataError(f"{folder}: {missing[0]} is missing; not a WordNet folder")
    members_of: dict[str, set[str]] = {}
    for name in WORDNET_FILES:
        for members in _synsets(Path(folder, name)):
            for member in members:
                members_of.setdefault(member.lower(), set()).update(members)
    table = {
        word: tuple(sorted(member for member in members if member.lower() != word))
        for word, members in members_of.items()
    }
    return lambda word: table.get(word, ())


def _synsets(path: Path) -> Iterator[list[str]]:
    """Members of each synset of a data file (the format is WordNet's manual page wndb(5WN))."""
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.startswith("  "):  # the license
                continue
            fields = line.split(" ")
            try:
                # offset, file, part of speech, count in hexadecimal, then word and sense number
                words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            except (IndexError, ValueError) as error:
                raise DataError(f"{path}:{number}: not a line of a WordNet data file") from error
            # Adjectives may carry a marker of position: "alone(p)".
            yield [word.split("(")[0].replace("_", " ") for word in words]
