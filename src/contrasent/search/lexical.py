"""Search by words: BM25 over the texts of an index, by the library ``bm25s``.

A query's score for a text is the sum, over the words they share, of how rare the word is times how
often it stands there, damped by the text's length (Robertson and Zaragoza, 2009, The Probabilistic
Relevance Framework, eq. 3.15; Lucene's form of the rarity). It finds names, numbers and rare terms
that a vector blurs, which is why :mod:`contrasent.search.hybrid` adds it to the cosine.
"""

import json
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import bm25s
import bm25s.stopwords as lists
import numpy as np
import Stemmer
from numpy.typing import NDArray

from contrasent.errors import InputError, OptionError, UserError
from contrasent.files import atomic_folder, write_json

K1, B = 1.2, 0.75
"""Lucene's values: how soon repetitions stop counting, and how much length does."""

SAMPLE = 2000
"""Texts that the language is found by."""
SURE = 0.1
"""Share of words that must be stop words of a language before it is taken for that language."""

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it speaks of every index it builds

STOP_WORDS: dict[str, frozenset[str]] = {
    "english": frozenset(lists.STOPWORDS_EN_PLUS),
    "german": frozenset(lists.STOPWORDS_GERMAN),
    "dutch": frozenset(lists.STOPWORDS_DUTCH),
    "french": frozenset(lists.STOPWORDS_FRENCH),
    "spanish": frozenset(lists.STOPWORDS_SPANISH),
    "portuguese": frozenset(lists.STOPWORDS_PORTUGUESE),
    "italian": frozenset(lists.STOPWORDS_ITALIAN),
    "russian": frozenset(lists.STOPWORDS_RUSSIAN),
    "swedish": frozenset(lists.STOPWORDS_SWEDISH),
    "norwegian": frozenset(lists.STOPWORDS_NORWEGIAN),
    "turkish": frozenset(lists.STOPWORDS_TURKISH),
    "danish": frozenset(lists.STOPWORDS_DANISH),
}
"""Languages whose stop words are known, and which can therefore be recognised."""

_UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|(?:(?![{_UNSPACED}])\w)+")
_PARTS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words(text: str) -> list[str]:
    """The words of a text, case-folded.

    Scripts written without spaces (Chinese, Japanese, Thai) and Korean give pairs of characters, as
    search engines do. A compound identifier such as ``readFile`` or ``read_file`` gives its parts
    and itself.
    """
    found: list[str] = []
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text)):
        word = match[0]
        if match["unspaced"]:
            found += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
            continue
        parts = [part for piece in _PARTS.findall(word) for part in _CAMEL.split(piece)]
        found += [part.casefold() for part in parts]
        if len(parts) > 1:
            found.append(word.casefold())
    return found


def language_of(texts: Iterable[str]) -> str:
    """The language of texts by the share of its stop words among their words; "none" if unclear."""
    counts = Counter(word for text in islice(texts, SAMPLE) for word in words(text))
    total = counts.total() or 1
    shares = {name: sum(counts[word] for word in stop) / total for name, stop in STOP_WORDS.items()}
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= SURE else "none"


@dataclass(frozen=True)
class Analyzer:
    """From a text to the terms that are matched: words, less stop words, stemmed.

    Attributes:
        language: one of :data:`STOP_WORDS`, any of Snowball's stemmers (which then remove no stop
            words), or "none" for words as they stand.
    """

    language: str = "none"

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


class Lexical:
    """BM25 over n texts."""

    def __init__(
        self, analyzer: Analyzer, vocabulary: dict[str, int], scorer: Any, count: int
    ) -> None:
        self.analyzer, self._vocabulary, self._scorer = analyzer, vocabulary, scorer
        self._count = count

    def __len__(self) -> int:
        return self._count

    @classmethod
    def build(
        cls, texts: Sequence[str], *, language: str = "auto", k1: float = K1, b: float = B
    ) -> "Lexical":
        """Count the words of texts."""
        if not texts:
            raise UserError("there are no texts to search by words")
        analyzer = Analyzer(language_of(texts) if language == "auto" else language)
        vocabulary: dict[str, int] = {}
        rows = [
            [vocabulary.setdefault(term, len(vocabulary)) for term in analyzer(text)]
            for text in texts
        ]
        scorer = None
        if vocabulary:  # texts of stop words alone have no term
            scorer = bm25s.BM25(method="lucene", k1=k1, b=b)
            scorer.index((rows, vocabulary), create_empty_token=False, show_progress=False)
        return cls(analyzer, vocabulary, scorer, len(texts))

    def terms(self, query: str) -> list[int]:
        """Numbers of a query's terms that occur in the texts."""
        found = (self._vocabulary.get(term) for term in self.analyzer(query))
        return [number for number in found if number is not None]

    def scores(self, query: str) -> NDArray[np.float32]:
        """(n,) BM25 of a query and each text; 0 where they share no term."""
        terms = self.terms(query)
        if not terms:
            return np.zeros(self._count, dtype=np.float32)
        scores: NDArray[np.float32] = self._scorer.get_scores_from_ids(terms)
        return scores

    # ------------------------------------------------------------------ on disk

    def save(self, folder: Path, fingerprint: str) -> None:
        """Write it to a folder, atomically."""
        with atomic_folder(folder) as temporary:
            if self._scorer is not None:
                self._scorer.save(temporary, corpus=None, show_progress=False, allow_pickle=False)
            facts = {
                "fingerprint": fingerprint,
                "language": self.analyzer.language,
                "rows": self._count,
                "terms": list(self._vocabulary),
            }
            write_json(temporary / "lexical.json", facts)

    @classmethod
    def open(cls, folder: Path, fingerprint: str) -> "Lexical | None":
        """Map what :meth:`save` wrote; None if there is none, or it was made of other rows."""
        path, before = folder / "lexical.json", b""
        while True:
            try:
                stored = path.read_bytes()
            except FileNotFoundError:
                return None
            except OSError as error:
                raise InputError(folder, f"cannot be read ({error}); delete the folder") from error
            if stored == before:
                break
            before = stored
            try:
                found, broken = cls._load(folder, stored, fingerprint), None
            except (OSError, ValueError, KeyError, TypeError) as error:
                found, broken = None, error
            # Read again: another process may have put another folder in its place meanwhile.
        if broken is not None:
            raise InputError(folder, f"is damaged ({broken}); delete the folder") from broken
        return found

    @classmethod
    def _load(cls, folder: Path, stored: bytes, fingerprint: str) -> "Lexical | None":
        facts = json.loads(stored)
        if facts["fingerprint"] != fingerprint:
            return None
        vocabulary = {term: number for number, term in enumerate(facts["terms"])}
        scorer = None
        if vocabulary:
            scorer = bm25s.BM25.load(folder, mmap=True, load_corpus=False, allow_pickle=False)
        return cls(Analyzer(facts["language"]), vocabulary, scorer, int(facts["rows"]))
