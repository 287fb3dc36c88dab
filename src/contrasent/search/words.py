"""Search by words: BM25 over terms that are analysed here for the language of the texts.

A query's score for a text is the sum, over the terms they share, of how rare the term is times how
often it stands there, damped by the text's length (Robertson and Zaragoza, 2009, The Probabilistic
Relevance Framework, eq. 3.15; Lucene's form of the rarity).

Typing errors in queries are words that neither model nor index knows, a letter away from theirs
(Damerau, 1964, A technique for computer detection and correction of spelling errors): one letter
wrong, missing or too many, or two that have changed places.
"""

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import islice
from typing import Any

import numpy as np
import Stemmer
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.progress import check_deadline
from contrasent.search.ranking import Floats
from contrasent.types import Mask

K1, B = 1.2, 0.75  # Lucene's values: how soon repetitions stop counting, and how much length does
SAMPLE = 2000  # texts that the language is detected from
SURE = 0.1
"""Share of words that must be stop words of a language before it is taken for that language."""

SHORTEST, LONGEST = 4, 30  # letters of words that are repaired
ROWS = 2  # rows that a replacement must occur in, unless it is a whole token
WORDS = 8  # unknown words beyond which a query is left alone
REPAIRED = 1024  # words of all queries of a call; each takes a millisecond or two
MOST_TIMES = 65535  # most times that a term counts in a row
FOREIGN = 0.2  # share of another language's stop words among those of a query in that language

STOP_WORDS = {
    language: frozenset(listed.split())
    for language, listed in (
        part.split(":")
        for part in (files(__package__) / "stop_words.txt").read_text("utf-8").split("\n\n")
    )
}
"""Words that say little of a text, by language; also what a language is recognised by."""

Posting = tuple[NDArray[np.int32], NDArray[np.uint16]]
"""Rows that hold a term, rising, and how often each does."""
Lookup = Callable[[str], Posting | None]

_UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
WORD = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|(?:(?![{_UNSPACED}])\w)+")
_PARTS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DIACRITICS = re.compile(r"[\u064b-\u0652\u0640\u0591-\u05c7]")


def words(text: str) -> list[str]:
    """The words of a text, case-folded.

    Scripts written without spaces (Chinese, Japanese, Thai) and Korean give pairs of characters, as
    search engines do. A compound identifier such as ``readFile`` or ``read_file`` gives its parts
    and itself.
    """
    # Arabic and Hebrew write vowels in some texts only.
    plain = text if text.isascii() else _DIACRITICS.sub("", unicodedata.normalize("NFKC", text))
    tokens: list[str] = []
    for match in WORD.finditer(plain):
        word = match[0]
        if match["unspaced"]:
            tokens += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
            continue
        if word.islower() and word.isalnum():
            tokens.append(word.casefold())
            continue
        parts = [part for piece in _PARTS.findall(word) for part in _CAMEL.split(piece)]
        tokens += [part.casefold() for part in parts]
        if len(parts) > 1:
            tokens.append(word.casefold())
    return tokens


def language_of(texts: Iterable[str]) -> str:
    """The language of texts by the share of its stop words among their words; "none" if unclear."""
    counts = Counter(word for text in islice(texts, SAMPLE) for word in words(text))
    total = counts.total() or 1
    shares = {
        name: sum(counts[word] for word in counts.keys() & stop) / total
        for name, stop in STOP_WORDS.items()
    }
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= SURE else "none"


def foreign_stop_words(query: str, language: str) -> set[str]:
    """The stop words of a query that seems to be in another language; else empty."""
    tokens = words(query)
    counts = {name: sum(word in stop for word in tokens) for name, stop in STOP_WORDS.items()}
    best = max(counts, key=lambda name: counts[name])
    if best == language or language not in STOP_WORDS:
        return set()
    least = max(1.0, FOREIGN * len(tokens), 2 * counts[language])
    return {*tokens} & STOP_WORDS[best] if counts[best] >= least else set()


@dataclass(frozen=True)
class Analyzer:
    """From a text to the terms that are matched: words, less stop words, stemmed."""

    language: str = "none"  # one of Snowball's, or "none" for words as they stand

    def __post_init__(self) -> None:
        known = ("none", *Stemmer.algorithms())
        if self.language not in known:
            raise OptionError("language", self.language, "has no stemmer", choices=known)

    @cached_property
    def _stemmer(self) -> Any:
        return None if self.language == "none" else Stemmer.Stemmer(self.language)

    def __call__(self, text: str) -> list[str]:
        """The terms of a text, in order."""
        stop = STOP_WORDS.get(self.language, frozenset())
        terms = [word for word in words(text) if word not in stop]
        return terms if self._stemmer is None else list(self._stemmer.stemWords(terms))


@dataclass(frozen=True)
class Bm25:
    """BM25 scores of all rows for a query."""

    analyzer: Analyzer
    lookup: Lookup
    lengths: Floats
    alive: Mask | None = None  # None where all rows count

    @cached_property
    def _count(self) -> int:
        return len(self.lengths) if self.alive is None else int(self.alive.sum())

    @cached_property
    def _damping(self) -> Floats:
        counted = self.lengths if self.alive is None else self.lengths[self.alive]
        total = counted.sum(dtype=np.float64)
        mean = np.float32(total / max(1, self._count)) or np.float32(1)
        damping: Floats = np.float32(K1) * (np.float32(1 - B) + np.float32(B) * self.lengths / mean)
        return damping

    def scores(self, query: str) -> Floats:
        """(rows,) scores; 0 for rows that share no term with the query, or are dead."""
        return self.weigh(query)[0]

    def weigh(self, query: str) -> tuple[Floats, float]:
        """(rows,) scores, and the score that no row exceeds: the rarity of all terms."""
        scores, total = np.zeros(len(self.lengths), dtype=np.float32), 0.0
        for term, times in Counter(self.analyzer(query)).items():
            check_deadline()
            posting = self.lookup(term)
            if posting is None:
                total += times * float(np.log1p((self._count + 0.5) / 0.5))
                continue
            rows, counts = posting
            if self.alive is not None:
                there = self.alive[rows]
                rows, counts = rows[there], counts[there]
            rarity = np.log1p((self._count - len(rows) + 0.5) / (len(rows) + 0.5))
            often, total = counts.astype(np.float32), total + times * float(rarity)
            scores[rows] += np.float32(times * rarity) * often / (often + self._damping[rows])
        return scores, total


class Postings:
    """The terms of consecutive rows, counted in each: 6 bytes for a term of a row."""

    def __init__(self, rows: Iterable[Sequence[str]] = ()) -> None:
        self.lengths: list[int] = []  # terms of each row
        self._numbers, self._places = dict[str, int](), array("i")  # of terms; of those of rows
        self._times, self._distinct = array("H"), list[int]()
        for terms in rows:
            self.add(terms)

    def __len__(self) -> int:
        return len(self.lengths)

    def add(self, terms: Sequence[str]) -> None:
        """Count the terms of the next row."""
        counts, numbers = Counter(terms), self._numbers
        self._places.extend(numbers.setdefault(term, len(numbers)) for term in counts)
        self._times.extend(min(count, MOST_TIMES) for count in counts.values())
        self.lengths.append(len(terms))
        self._distinct.append(len(counts))

    def by_term(self, first: int) -> Iterator[tuple[str, Posting]]:
        """The terms in their order, each with its posting; ``first``: number of the first row."""
        places = np.array(self._places, np.int32)
        order = np.argsort(places, kind="stable")
        numbers = np.arange(first, first + len(self), dtype=np.int32)
        rows = np.repeat(numbers, self._distinct)[order]
        times = np.array(self._times, np.uint16)[order]
        ends = np.cumsum(np.bincount(places, minlength=len(self._numbers)))
        for term in sorted(self._numbers):
            number = self._numbers[term]
            span = slice(ends[number - 1] if number else 0, ends[number])
            yield term, (rows[span], times[span])


@dataclass
class Speller:
    """Repairs the words of queries, up to so many in all."""

    analyzer: Analyzer  # that of the index; where its language is unknown, nothing is repaired
    count_rows: Callable[[Sequence[str]], Mapping[str, int]]  # of the index, as it has them
    knows: Callable[[str], bool]  # whether a word is a whole token of the model's vocabulary
    left: int = REPAIRED

    def __call__(self, query: str) -> str:
        """A query with apparent typing errors replaced; other queries stay as they are."""
        stop = STOP_WORDS.get(self.analyzer.language)
        if not stop:
            return query
        original, query = query, unicodedata.normalize("NFC", query)
        alphabet = {letter for word in stop for letter in word if letter.isalpha()}
        shouted = query.isupper() and len(query.split()) > 1
        doubtful = (
            match.span()
            for match in WORD.finditer(query)
            if not match["unspaced"] and self._doubtful(match[0], shouted, stop)
        )
        places = list(islice(doubtful, WORDS + 1))
        if len(places) > min(WORDS, self.left):
            return original
        self.left -= len(places)
        before = query
        for start, end in reversed(places):
            word = query[start:end]
            letters = alphabet | (set("abcdefghijklmnopqrstuvwxyz") if word.isascii() else set())
            if better := self._best(word.lower(), "".join(sorted(letters))):
                styled = better.upper() if word.isupper() else better
                styled = styled.capitalize() if word.istitle() else styled
                query = query[:start] + styled + query[end:]
        return original if query == before else query

    def _doubtful(self, word: str, shouted: bool, stop: frozenset[str]) -> bool:
        check_deadline()
        plain = word.lower()
        return (
            SHORTEST <= len(word) <= LONGEST
            and word.isalpha()
            and (shouted or word[1:] == plain[1:])  # not iPhone, and not NATO
            and plain not in stop
            and not self.knows(word)
            and not self.count_rows(self.analyzer(plain))
        )

    def _best(self, word: str, alphabet: str) -> str:
        """The likeliest word one edit away, or ""."""
        stop = STOP_WORDS[self.analyzer.language]
        near = {one: next(iter(self.analyzer(one)), "") for one in edits(word, alphabet)}
        rows = self.count_rows([*{*near.values()} - {""}])
        often = {
            one: rows[term]
            for one, term in near.items()
            if term in rows and (rows[term] >= ROWS or self.knows(one))
        }
        # Whole tokens first, then the most rows, then the alphabet. A stop word, which no row
        # holds, is the last resort.
        best = min(often, key=lambda one: (not self.knows(one), -often[one], one), default="")
        return best or min(stop & near.keys(), default="")


def edits(word: str, alphabet: str) -> Iterator[str]:
    """Strings one edit away with the same first letter."""
    for cut in range(1, len(word) + 1):
        head, tail = word[:cut], word[cut:]
        yield from (head + letter + tail for letter in alphabet)
        if tail:
            yield head + tail[1:]
            yield from (head + letter + tail[1:] for letter in alphabet if letter != tail[0])
        if len(tail) > 1 and tail[0] != tail[1]:
            yield head + tail[1] + tail[0] + tail[2:]
