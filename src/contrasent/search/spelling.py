"""Typing errors in queries: a word that neither model nor index knows, a letter away from theirs.

Damerau (1964, A technique for computer detection and correction of spelling errors): one letter
wrong, missing or too many, or two that have changed places.
"""

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from contrasent.deadline import check_deadline
from contrasent.search.words import STOP_WORDS, WORD, Analyzer

SHORTEST, LONGEST = 4, 30  # letters of words that are repaired
ROWS = 2  # rows that a word must stand in to take its place, unless it is a whole token
WORDS = 8  # unknown words beyond which a query is left alone

CountRows = Callable[[Sequence[str]], Mapping[str, int]]
"""Of some terms, those that rows hold, and how many rows do."""


@dataclass(frozen=True)
class Speller:
    """Repairs the words of queries.

    Attributes:
        analyzer: that of the index; where its language is unknown, nothing is repaired.
        count_rows: of the index.
        knows: whether a word is a whole token of the model's vocabulary.
    """

    analyzer: Analyzer
    count_rows: CountRows
    knows: Callable[[str], bool]

    def __call__(self, query: str) -> str:
        """A query with the words that seem to be typing errors replaced; others as they stand."""
        stop = STOP_WORDS.get(self.analyzer.language)
        if not stop:
            return query
        given, query = query, unicodedata.normalize("NFC", query)
        alphabet = {letter for word in stop for letter in word if letter.isalpha()}
        shouted = query.isupper() and len(query.split()) > 1
        places = [
            match.span()
            for match in WORD.finditer(query)
            if not match["unspaced"] and self._doubtful(match[0], shouted, stop)
        ]
        if len(places) > WORDS:
            return given
        before = query
        for start, end in reversed(places):
            word = query[start:end]
            letters = alphabet | (set("abcdefghijklmnopqrstuvwxyz") if word.isascii() else set())
            if better := self._best(word.lower(), "".join(sorted(letters))):
                styled = better.upper() if word.isupper() else better
                styled = styled.capitalize() if word.istitle() else styled
                query = query[:start] + styled + query[end:]
        return given if query == before else query

    def _doubtful(self, word: str, shouted: bool, stop: frozenset[str]) -> bool:
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
        check_deadline()
        stop = STOP_WORDS[self.analyzer.language]
        near = {one: next(iter(self.analyzer(one)), "") for one in edits(word, alphabet)}
        rows = self.count_rows([*{*near.values()} - {""}])
        often = {
            one: rows[term]
            for one, term in near.items()
            if term in rows and (rows[term] >= ROWS or self.knows(one))
        }
        # Whole tokens first, then the most rows; of equals the first in the alphabet. A stop word,
        # which no row holds, where there is nothing else.
        best = min(often, key=lambda one: (not self.knows(one), -often[one], one), default="")
        return best or min(stop & near.keys(), default="")


def edits(word: str, alphabet: str) -> Iterator[str]:
    """Strings one edit away, of the same first letter."""
    for at in range(1, len(word) + 1):
        head, tail = word[:at], word[at:]
        yield from (head + letter + tail for letter in alphabet)
        if tail:
            yield head + tail[1:]
            yield from (head + letter + tail[1:] for letter in alphabet if letter != tail[0])
        if len(tail) > 1 and tail[0] != tail[1]:
            yield head + tail[1] + tail[0] + tail[2:]
