"""How a query finds rows: by vectors, by words, or by both in one ranking.

Words and vectors are put together by z-scores: from each row's cosine and from its BM25 score the
mean of that query's scores over all rows is taken off, and the rest divided by their standard
deviation; the two are averaged. Unlike scaling by the best and the last score found, this does not
depend on how many rows are looked at. The share of words follows the query: it grows where words
single out their best row more clearly than vectors do theirs, by the ratio of those two z-scores.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, OptionError
from contrasent.nearest import best_rows

KNOWN_WEIGHT, OTHER_WEIGHT = 0.12, 0.4
"""Share of words where the model knows the language of the texts, and where it does not; both
were measured on whole collections, see docs/log.md, 2026-11-23."""

BEST = 6  # hits that each is compared with to tell how sure it is

Floats = NDArray[np.float32]


class Spread(NamedTuple):
    """Mean, standard deviation and largest of one query's scores over all rows."""

    mean: float
    deviation: float
    best: float = 0.0

    @classmethod
    def of(cls, scores: Floats) -> "Spread":
        """Of scores of all rows, or of a sample of them."""
        if not len(scores):
            return cls(0.0, 0.0)
        mean, deviation = scores.mean(dtype=np.float64), scores.std(dtype=np.float64)
        return cls(float(mean), float(deviation), float(scores.max()))

    @classmethod
    def of_sparse(cls, scores: Floats, rows: int) -> "Spread":
        """Of scores of which those that are not given, of ``rows`` in all, are 0."""
        if not rows:
            return cls(0.0, 0.0)
        mean = float(scores.sum(dtype=np.float64)) / rows
        square = float(np.square(scores, dtype=np.float64).sum()) / rows
        best = float(scores.max(initial=0.0))
        return cls(mean, float(np.sqrt(max(0.0, square - mean * mean))), best)

    @property
    def clearness(self) -> float:
        """z-score of the largest."""
        return (self.best - self.mean) / self.deviation if self.deviation > 0.0 else 0.0

    def scaled(self, scores: Floats) -> Floats:
        """z-scores; 0 where all scores are equal."""
        if self.deviation <= 0.0:
            return np.zeros_like(scores)
        scaled: Floats = (scores - np.float32(self.mean)) / np.float32(self.deviation)
        return scaled


Bonus = tuple[NDArray[np.int64], Floats]
"""Rows of an index, rising, and what is added to the cosine of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The rows among which one query's hits are, with all that a ranker may weigh.

    Attributes:
        rows: (n,) their numbers or ids, rising.
        cosines: (n,) of the rows and the query, both as learned, and with a bonus for some.
        words: (n,) BM25 scores.
        dense: spread of the cosines of all rows of the index, without a bonus.
        sparse: spread of the BM25 scores of all rows.
    """

    rows: NDArray[Any]
    cosines: Floats
    words: Floats
    dense: Spread
    sparse: Spread

    @classmethod
    def of_all(
        cls,
        cosines: Floats,
        words: Floats,
        bonus: Bonus,
        counted: NDArray[np.bool_] | None,
        allowed: NDArray[np.bool_] | None,
    ) -> "Candidates":
        """All ``allowed`` rows, by cosines and BM25 scores (rows,) of every row of the index.

        Spreads are over the ``counted`` rows; others have no words. None stands for every row.
        """
        size = len(cosines) if counted is None else int(np.count_nonzero(counted))
        dense = Spread.of(cosines if counted is None else cosines[counted])
        sparse = Spread.of_sparse(words, size)
        cosines = _with_bonus(cosines, *bonus)
        if allowed is None:
            return cls(np.arange(len(cosines)), cosines, words, dense, sparse)
        rows = np.flatnonzero(allowed)
        return cls(rows, cosines[rows], words[rows], dense, sparse)

    @classmethod
    def of_some(
        cls,
        rows: NDArray[np.int64],
        cosines: Floats,
        words: Floats,
        bonus: Bonus,
        sampled: Spread,
        size: int,
    ) -> "Candidates":
        """Some rows (n,) with their cosines, by BM25 scores (rows,) of every row of the index.

        ``sampled``: the spread of the cosines of some of the ``size`` rows that count.
        """
        dense = sampled._replace(best=max(sampled.best, float(cosines.max(initial=-np.inf))))
        here = np.isin(bonus[0], rows)
        places = np.searchsorted(rows, bonus[0][here])
        cosines = _with_bonus(cosines, places, bonus[1][here])
        return cls(rows, cosines, words[rows], dense, Spread.of_sparse(words, size))


def _with_bonus(cosines: Floats, places: NDArray[np.int64], gains: Floats) -> Floats:
    if not len(places):
        return cosines
    cosines = cosines.copy()
    cosines[places] += gains
    return cosines


class Evidence(NamedTuple):
    """The evidence for how sure the hits of one query are.

    Attributes:
        z: (n,) scores of the best rows in standard deviations over all rows.
        best: the largest cosine of a row that may be a hit.
        mean: of the cosines of all rows.
        covered: largest share of the query's words, by their rarity, in such a row; None where
            words do not count.
        rows: how many rows the index has.
    """

    z: Floats
    best: float
    mean: float
    covered: float | None
    rows: int


@dataclass(frozen=True, slots=True)
class Found:
    """Rows found for one query, best first, (k,) each."""

    rows: NDArray[Any]
    scores: Floats
    cosines: Floats
    words: Floats
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Ranker:
    """How a query finds rows; kept in the index."""

    # Share of words, in [0, 1], where words and vectors single out their best row equally clearly;
    # 0 searches by vectors alone.
    word_weight: float = KNOWN_WEIGHT
    # What was learned, see :mod:`contrasent.search.learned`; nothing by default.
    map_share: float = 0.0  # share of the map in a query's vector, the rest is the query's own
    smoothing: float = 0.0  # weight of the mean of a row's neighbours
    taught: float = 0.0  # weight of the bonus of documents that queries like this were answered by
    taught_from: float = 0.8  # cosine of two queries from which that counts

    def __post_init__(self) -> None:
        if not 0.0 <= self.word_weight <= 1.0:
            raise OptionError("--word-weight", self.word_weight, "must be from 0 to 1")
        if not (0.0 <= self.map_share <= 1.0 and self.smoothing >= 0.0 and self.taught >= 0.0):
            raise OptionError("ranker", self, "has a share or weight out of range")

    @property
    def uses_words(self) -> bool:
        """Whether words count."""
        return self.word_weight > 0.0

    @property
    def uses_learned(self) -> bool:
        """Whether anything that was learned counts."""
        return bool(self.map_share or self.smoothing or self.taught)

    @property
    def plain(self) -> bool:
        """Whether nothing counts but the cosines of the model's own vectors."""
        return self == Ranker(0.0)

    @property
    def without_words(self) -> "Ranker":
        """The same by vectors alone."""
        return replace(self, word_weight=0.0)

    @property
    def summary(self) -> str:
        """How it searches, in a few words."""
        parts = [f"words {self.word_weight:g}" if self.uses_words else "vectors alone"]
        learned = {"map": self.map_share, "smoothing": self.smoothing, "taught": self.taught}
        return ", ".join(parts + [f"{name} {share:g}" for name, share in learned.items() if share])

    def with_words(self, weight: float | None) -> "Ranker":
        """With another share of words, None for the same; 0 is vectors alone, as they are."""
        if weight is None:
            return self
        return replace(self, word_weight=weight) if weight else Ranker(0.0)

    def rank(self, candidates: Candidates, k: int) -> Found:
        """The best k candidates; of equal scores the first come first."""
        scores = self.fuse(candidates)
        best = best_rows(scores, k)
        near, words = candidates.cosines[best], candidates.words[best]
        return Found(candidates.rows[best], scores[best], near, words)

    def fuse(self, candidates: Candidates) -> Floats:
        """(n,) scores: cosines as they are, or, where words count, z-scores of both, weighed."""
        if not self.uses_words:
            return candidates.cosines
        dense, sparse = candidates.dense, candidates.sparse
        share = np.float32(self.share(dense, sparse))
        scaled = dense.scaled(candidates.cosines), sparse.scaled(candidates.words)
        return (1 - share) * scaled[0] + share * scaled[1]

    def share(self, dense: Spread, sparse: Spread) -> float:
        """Share of words in one query's scores."""
        words = self.word_weight * sparse.clearness
        both = words + (1 - self.word_weight) * dense.clearness
        return words / both if both > 0.0 else self.word_weight

    def to_json(self) -> dict[str, Any]:
        """The record that the index stores: the share of words and what is not the default."""
        plain = asdict(Ranker())
        return {
            name: value
            for name, value in asdict(self).items()
            if name == "word_weight" or value != plain[name]
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Ranker":
        """Read a record that an index stored; a ``DataError`` if this version does not know it."""
        known = {field.name for field in fields(cls)}
        if not set(data) <= known:
            raise DataError(
                f"the index is searched by {sorted(set(data) - known)}, which this version does "
                "not know; install a newer one or build the index again"
            )
        return cls(**data)
