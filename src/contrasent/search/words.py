"""BM25 over terms that are analyzed here for the language of the texts, and typing errors.

BM25 is eq. 3.15 of Robertson and Zaragoza (2009), The Probabilistic Relevance Framework, with
Lucene's form of the rarity. Typing errors are words that neither model nor index knows, one edit
from theirs: a letter wrong, missing or too many, or two that changed places (Damerau, 1964).
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
from typing import Any, NamedTuple

import numpy as np
import Stemmer
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.progress import check_deadline
from contrasent.search.ranking import Floats
from contrasent.types import Mask, composed

K1, B = 1.2, 0.75  # Lucene's values: how soon repetitions stop counting, and how much length does
NAME = 0.3  # weight of a word in a file's name that texts have too
PART = 0.2  # weight of the parts of a joined number that is found whole
SAMPLE = 2000  # texts at most, from all parts of an index, that the language is detected from
RECOGNIZED = 0.1
"""Share of words that must be stop words of a language before it is taken for that language."""

SHORTEST, LONGEST = 4, 30  # letters of words that are repaired
ROWS = 2  # rows that a replacement must occur in, unless it is a whole token
WORDS = 8  # unknown words beyond which a query is left alone
REPAIRED = 1024  # words of all queries of a call; each takes a few milliseconds
MOST_TIMES = 65535  # most times that a term counts in a row
FOREIGN = 0.2  # share of another language's stop words among those of a query in that language

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz", "ßàáâãäåæçèéêëìíîïñòóôõöøùúûüýœ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
)  # fmt: skip
"""Letters of repairs: of those alphabets that the word or stop words of its language are in."""

STOP_WORDS = {
    language: frozenset(listed.split())
    for language, listed in (
        part.split(":")
        for part in (files(__package__) / "stop_words.txt").read_text("utf-8").split("\n\n")
    )
}
"""Words that say little of a text, by language; also what a language is recognized by."""

Posting = tuple[NDArray[np.int32], NDArray[np.uint16]]
"""Rows that hold a term, rising, and how often each does."""
Lookup = Callable[[str], Posting | None]

# Silent are soft hyphens, joiners, vowels that Arabic and Hebrew write in some texts only, accents
# that are no part of a letter. These and the vowels of India are in words, but not in `\w`.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_SILENT = r"\u00ad\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u065f\u0670\u200d\u2060"
_MARKS = rf"{_SILENT}\u0900-\u0963\u0966-\u096f\u0971-\u0dff\u0f71-\u0f84\u0f8d-\u0fbc"
WORD = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|\w(?:(?![{_UNSPACED}])[\w{_MARKS}])*")
_PARTS = re.compile(rf"[^\W_](?:[^\W_]|[{_MARKS}])*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_JOINERS = frozenset(".-/\\:@+")
LONGEST_WHOLE = 120  # characters of a joined number or path
LINE = 200  # characters on each side by which a line is one of capitals
_WHOLE = re.compile(rf"[^\W_][{_MARKS}]*[^\w{_MARKS}]+\w")  # words are without what joins them
_STEPS, _PLACES = re.compile(r"[./\\]"), re.compile(r"[/\\:@]+")
_NUMBERS = re.compile(r"\d+(?:[.-]\d+)+")
_DIACRITICS = re.compile(f"[{_SILENT}]")


def words(text: str, stop: frozenset[str] = frozenset()) -> list[str]:
    """The words of a text, case-folded, without stop words; pairs of letters without spaces."""
    # A compound such as readFile, a number with signs in it (a version, a date, an address) and a
    # path give their parts and themselves. A stop word in capitals, such as IT, is a word.
    plain = text
    if not text.isascii():  # in small letters a Turkish capital with a dot would be two characters
        plain = _DIACRITICS.sub("", unicodedata.normalize("NFKC", text)).replace("İ", "I")
    tokens: list[str] = []
    first = begun = last = -2  # of the words that single signs join; ``begun``: of the last one
    for match in WORD.finditer(plain):
        word, (start, end) = match[0], match.span()
        if start != last + 1 or plain[last] not in _JOINERS:
            tokens += _whole(plain, first, last) if begun > first else []
            first = start
        begun, last = start, end
        if match["unspaced"]:
            first = begun = last = -2
            tokens += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
        elif word.islower() and word.isalnum():
            if (word := word.casefold()) not in stop:
                tokens.append(word)
        else:
            parts = [part for piece in _PARTS.findall(word) for part in _CAMEL.split(piece)]
            compound = len(parts) > 1
            for part in parts:
                if (folded := part.casefold()) not in stop or (
                    not compound and _is_name(word, plain, start, end)
                ):
                    tokens.append(folded)
            if compound:
                tokens.append(word.casefold())
    return tokens + (_whole(plain, first, last) if begun > first else [])


def _whole(text: str, first: int, last: int) -> list[str]:
    """The terms of joined words: numbers, those within them, and paths; none of other words."""
    whole = text[first:last].casefold()
    if last - first > LONGEST_WHOLE or not _WHOLE.search(whole):
        return []
    if not any(map(str.isdigit, whole)) and len(_STEPS.findall(whole)) < 2:
        return []
    found = [whole]
    for part in _PLACES.split(whole):
        inner = [one for one in (part, *_NUMBERS.findall(part)) if _WHOLE.search(one)]
        found += [one for one in inner if any(map(str.isdigit, one))]
    # v2.1 is 2.1, and 2024/05/03 is 2024-05-03.
    found = [one[1:] if re.match(r"v\d", one) else one for one in found]
    return [*{one if any(map(str.isalpha, one)) else re.sub(r"\W", ".", one): 0 for one in found}]


def _is_name(word: str, text: str, start: int, end: int) -> bool:
    """Whether a stop word is in capitals and its line is not."""
    if len(word) < 2 or not word.isupper():
        return False
    before = text[max(0, start - LINE) : start].rpartition("\n")[2]
    after = text[end : end + LINE].partition("\n")[0]
    return not f"{before}{word}{after}".isupper() or len(f"{before} {after}".split()) < 2


def language_of(texts: Sequence[str]) -> str:
    """The language of texts by the share of its stop words among their words; "none" if unclear."""
    step = -(-len(texts) // SAMPLE) or 1  # the first ones alone may be of another language
    counts = Counter(word for text in texts[::step] for word in words(text))
    known = {name: sum(counts[word] for word in stop) for name, stop in STOP_WORDS.items()}
    best = max(known, key=lambda name: known[name])
    return best if known[best] >= RECOGNIZED * (counts.total() or 1) else "none"


def foreign_stop_words(query: str, language: str) -> set[str]:
    """The stop words of a query that seems to be in another language; else empty."""
    tokens = words(query)
    counts = {name: sum(word in stop for word in tokens) for name, stop in STOP_WORDS.items()}
    best = max(counts, key=lambda name: counts[name])
    if best == language or language not in STOP_WORDS:
        return set()
    least = max(1.0, FOREIGN * len(tokens), 2 * counts[language])
    return {*tokens} & STOP_WORDS[best] if counts[best] >= least else set()


def in_name(term: str) -> str:
    """The term of a word in the name of a file."""
    return f"/{term}"


def name_of(metadata: Any) -> str:
    """The name of a row's file, with and without its suffix and underscores; "" if none."""
    name = metadata.get("document") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        return ""
    name = re.sub(r"#\d+$", "", name.rpartition("/")[2])  # a row of a table
    return f"{name} {name.rpartition('.')[0].replace('_', ' ')}"


@dataclass(frozen=True)
class Analyzer:
    """From a text to the terms that are matched: words, less stop words, stemmed."""

    language: str = "none"  # one of Snowball's, or "none" for words as they stand

    def __post_init__(self) -> None:
        known = ("none", *Stemmer.algorithms())
        if self.language not in known:
            raise OptionError("language", self.language, "has no stemmer", choices=known)

    @property
    def stop(self) -> frozenset[str]:
        """The stop words of its language."""
        return STOP_WORDS.get(self.language, frozenset())

    @cached_property
    def _stemmer(self) -> Any:
        return None if self.language == "none" else Stemmer.Stemmer(self.language)

    def __call__(self, text: str) -> list[str]:
        """The terms of a text, in order."""
        return self.stems(words(text, self.stop))

    def stems(self, terms: list[str]) -> list[str]:
        """The terms of case-folded words."""
        terms = terms if self._stemmer is None else list(self._stemmer.stemWords(terms))
        # In Turkish a capital I is one without a dot, or, in foreign names, one with it.
        return [t.replace("ı", "i") for t in terms] if self.language == "turkish" else terms


class Weighed(NamedTuple):
    """How rows match the words of a query."""

    scores: Floats  # (rows,) BM25; 0 for rows that share no term with the query, or are dead
    # (rows,) share of the rarity of the words that rows have in numbers that a row has whole, and
    # of that of all words in those that only its name has.
    exact: Floats
    rarity: float  # of all terms: the score that no row exceeds


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

    def weigh(self, query: str) -> Weighed:
        """How all rows match a query, by their texts and, lightly, the names of their files."""
        scores, exact, by_name = np.zeros((3, len(self.lengths)), dtype=np.float32)
        total = known = 0.0
        # Parts of joined numbers that are found whole count little.
        light, terms = set[str](), Counter(self.analyzer(query))
        for term in sorted(terms, key=lambda term: not _WHOLE.search(term)):
            check_deadline()
            (rows, counts), (named, once) = self.posting(term), self.posting(in_name(term))
            whole, only_named = _WHOLE.search(term), not len(rows)
            if only_named:
                rows, counts = named, once
            if not len(rows) and (whole or term in self.analyzer.stop):
                continue  # its parts count, and AND means nothing
            if whole:
                light |= {*self.analyzer(term)} - {term}
            times = terms[term] * (PART if term in light else 1.0)
            rarity = times * float(np.log1p((self._count - len(rows) + 0.5) / (len(rows) + 0.5)))
            often, total = counts.astype(np.float32), total + rarity
            known += rarity if len(rows) else 0.0
            scores[rows] += np.float32(rarity) * often / (often + self._damping[rows])
            if whole:
                exact[rows] += np.float32(rarity)
            elif only_named:
                by_name[rows] += np.float32(rarity)
            else:
                scores[named] += np.float32(NAME * rarity) / (1 + self._damping[named])
        exact = exact / np.float32(known or 1.0) + by_name / np.float32(total or 1.0)
        return Weighed(scores, exact, total)

    def posting(self, term: str) -> Posting:
        """The rows that hold a term and count, and how often each does."""
        rows, counts = self.lookup(term) or (np.empty(0, np.int32), np.empty(0, np.uint16))
        if self.alive is None:
            return rows, counts
        there = self.alive[rows]
        return rows[there], counts[there]


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

    def add(self, terms: Sequence[str], name: Iterable[str] = ()) -> None:
        """Count the terms of the next row, and those of its file's name once each."""
        counts, numbers = Counter(terms), self._numbers
        counts.update(map(in_name, {*name}))
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
    """Repairs the words of queries, up to ``left`` in all."""

    analyzer: Analyzer  # that of the index; where its language is unknown, nothing is repaired
    count_rows: Callable[[Sequence[str]], Mapping[str, int]]  # of the index, as it has them
    knows: Callable[[str], bool]  # whether a word is a whole token of the model's vocabulary
    left: int = REPAIRED

    def __call__(self, query: str) -> str:
        """A query with apparent typing errors replaced; other queries stay as they are."""
        stop = self.analyzer.stop
        if not stop:
            return query
        original, query = query, composed(query)
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
            if better := self._best(_DIACRITICS.sub("", word.lower())):
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
            and not self.count_rows([f(t) for t in self.analyzer(plain) for f in (str, in_name)])
        )

    def _best(self, word: str) -> str:
        """The likeliest word one edit away, or ""."""
        stop = self.analyzer.stop
        letters = {letter for one in (word, *stop) for letter in one if letter.isalpha()}
        letters.update(*(some for some in ALPHABETS if letters & {*some}))
        near = edits(word, letters)
        stems = self.analyzer.stems([*map(str.casefold, near)])
        rows = self.count_rows([*{*stems}])
        often = {
            one: rows[term]
            for one, term in zip(near, stems, strict=True)
            if term in rows and one not in stop and (rows[term] >= ROWS or self.knows(one))
        }

        def rank(one: str) -> tuple[Any, ...]:
            # Whole tokens first, then the most rows, then letters that changed places, one that is
            # missing, one too many: rows hold stems, and endings with another letter are often no
            # words.
            edit = sorted(one) != sorted(word), len(one) == len(word), -len(one)
            return not self.knows(one), -often[one], *edit, one

        # A stop word, which no row holds, is the last resort.
        return min(often, key=rank, default="") or min(stop & near, default="")


def edits(word: str, alphabet: Iterable[str]) -> set[str]:
    """A word and all strings one edit away with the same first letter."""
    found, letters = set[str](), ("", *alphabet)
    for cut in range(1, len(word) + 1):
        head, tail = word[:cut], word[cut:]
        found |= {head + letter + rest for letter in letters for rest in (tail, tail[1:])}
        found.add(head + tail[1:2] + tail[:1] + tail[2:])
    return found
