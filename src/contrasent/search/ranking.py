"""How a query finds rows: by vectors, by BM25, or by both in one hybrid ranking.

Both scores of a row become z-scores over all rows for that query; their weighted mean ranks them.
The weight of BM25 grows where it separates its best row more clearly than vectors do theirs.

The confidence of a hit is the product of two logistic regressions: whether the texts are about the
query at all, and whether the hit answers if they are. Both are fitted for each base by
``benchmarks/confidence.py``; hits of other models have no confidence.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, OptionError
from contrasent.nearest import best_rows
from contrasent.types import Numbers

KNOWN_WEIGHT, OTHER_WEIGHT = 0.12, 0.4
"""Weight of BM25 where the model knows the language of the texts, and where it does not; both
were measured on whole collections, see research/log.md, 2026-11-23."""

EXACT = 3.0
"""Standard deviations that a row is raised by if it has all of a query exactly."""

BEST = 6  # hits that each is compared with for its confidence

Floats = NDArray[np.float32]


class Spread(NamedTuple):
    """Mean, standard deviation and largest of one query's scores over all rows."""

    mean: float
    deviation: float
    best: float = 0.0

    @classmethod
    def of(cls, scores: Floats) -> "Spread":
        """The spread of the scores of all rows, or of a sample."""
        if not len(scores):
            return cls(0.0, 0.0)
        mean, deviation = scores.mean(dtype=np.float64), scores.std(dtype=np.float64)
        return cls(float(mean), float(deviation), float(scores.max()))

    @classmethod
    def of_sparse(cls, scores: Floats, rows: int) -> "Spread":
        """The spread of ``rows`` scores, all 0 except the given ones."""
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


Bonus = tuple[Numbers, Floats]
"""Rows of an index, rising, and what is added to the cosine of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Candidates for one query's hits, with everything that a ranker may weigh."""

    rows: NDArray[Any]  # (n,) their numbers or ids, rising
    cosines: Floats  # (n,) with the query, both as learned, plus a bonus for some
    words: Floats  # (n,) BM25 scores
    dense: Spread  # of the cosines of all rows of the index, without a bonus
    sparse: Spread  # of the BM25 scores of all rows
    exact: Floats  # (n,) share of the query that a row has exactly, such as a number

    @classmethod
    def of(
        cls,
        rows: Numbers,
        cosines: Floats,
        words: Floats,
        exact: Floats,
        bonus: Bonus,
        dense: Spread,
        size: int,
    ) -> "Candidates":
        """Some rows (n,) with their cosines (n,), of ``size`` that count; words are of all rows.

        ``dense`` is the spread of the cosines of all, or of a sample.
        """
        dense = dense._replace(best=max(dense.best, float(cosines.max(initial=-np.inf))))
        sparse = Spread.of_sparse(words, size)
        if len(bonus[0]):
            here, cosines = np.isin(bonus[0], rows), cosines.copy()
            cosines[np.searchsorted(rows, bonus[0][here])] += bonus[1][here]
        return cls(rows, cosines, words[rows], dense, sparse, exact[rows])


class Evidence(NamedTuple):
    """The evidence for the confidence of one query's hits."""

    z: Floats  # (n,) scores of the best rows in standard deviations over all rows
    best: float  # the largest cosine of a row that may be a hit
    mean: float  # mean cosine of all rows
    covered: float | None  # largest share of the query's words in such a row, with BM25
    rows: int  # in the index


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows found for one query, best first, (k,) each."""

    rows: NDArray[Any]
    scores: Floats
    cosines: Floats
    words: Floats
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Ranker:
    """How a search ranks rows; saved with the index.

    Attributes:
        bm25_weight: share of BM25 in a score, in [0, 1], for a query whose best row stands out
            equally in BM25 and in cosine; 0 searches by vectors alone.
        map_share: share of the learned query map in a query's vector; the rest is the vector
            itself.
        smoothing: weight of the mean of a row's nearest neighbors.
        known: weight of the bonus for documents that answered similar queries.
        known_from: least cosine of two queries that count as similar.
    """

    bm25_weight: float = KNOWN_WEIGHT
    map_share: float = 0.0
    smoothing: float = 0.0
    known: float = 0.0
    known_from: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 <= self.bm25_weight <= 1.0:
            raise OptionError("--bm25-weight", self.bm25_weight, "must be from 0 to 1")
        if not (0.0 <= self.map_share <= 1.0 and self.smoothing >= 0.0 and self.known >= 0.0):
            raise OptionError("ranker", self, "has a value out of range")

    @property
    def uses_bm25(self) -> bool:
        """True if BM25 has a weight."""
        return self.bm25_weight > 0.0

    @property
    def uses_learned(self) -> bool:
        """True if anything that was learned counts."""
        return bool(self.map_share or self.smoothing or self.known)

    @property
    def plain(self) -> bool:
        """True if only the cosines of the model's own vectors count."""
        return self == Ranker(0.0)

    @property
    def summary(self) -> str:
        """How it searches, in a few words."""
        parts = [f"BM25 {self.bm25_weight:g}" if self.uses_bm25 else "vectors alone"]
        learned = {"query map": self.map_share, "smoothing": self.smoothing}
        learned["known queries"] = self.known
        return ", ".join(parts + [f"{name} {share:g}" for name, share in learned.items() if share])

    def with_bm25(self, weight: float | None) -> "Ranker":
        """The ranker with another share of BM25; unchanged for None, and plain cosines for 0."""
        if weight is None:
            return self
        return replace(self, bm25_weight=weight) if weight else Ranker(0.0)

    def rank(self, candidates: Candidates, k: int) -> RankedRows:
        """The best k candidates; of equal scores the first come first."""
        scores = self.fuse(candidates)
        best = best_rows(scores, k)
        near, words = candidates.cosines[best], candidates.words[best]
        return RankedRows(candidates.rows[best], scores[best], near, words)

    def fuse(self, candidates: Candidates) -> Floats:
        """(n,) scores: cosines as they are; with BM25, the weighted mean of both as z-scores."""
        if not self.uses_bm25:
            return candidates.cosines
        dense, sparse = candidates.dense, candidates.sparse
        share = np.float32(self.share(dense, sparse))
        scaled = dense.scaled(candidates.cosines), sparse.scaled(candidates.words)
        fused: Floats = (1 - share) * scaled[0] + share * scaled[1]
        return fused + np.float32(EXACT) * candidates.exact

    def share(self, dense: Spread, sparse: Spread) -> float:
        """Weight of BM25 in one query's scores."""
        words = self.bm25_weight * sparse.clearness
        both = words + (1 - self.bm25_weight) * dense.clearness
        return words / both if both > 0.0 else self.bm25_weight

    def to_json(self) -> dict[str, Any]:
        """The record that the index stores: the weight of BM25, and what is not the default."""
        plain = asdict(Ranker()) | {"bm25_weight": None}
        return {name: value for name, value in asdict(self).items() if value != plain[name]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Ranker":
        """Read a record that an index stored; a ``DataError`` if it is damaged or newer."""
        known = {field.name for field in fields(cls)}
        if not set(data) <= known:
            raise DataError(
                f"the index is searched by {sorted(set(data) - known)}, unknown to this version; "
                "install a newer one or rebuild the index"
            )
        try:
            return cls(**data)
        except OptionError as error:
            raise DataError(f"the index is damaged ({error}); build it again") from error


class Calibration(NamedTuple):
    """The regressions of a base: intercepts, and the weights of features."""

    about: tuple[float, ...]  # for whether the texts are about a query
    answers: tuple[float, ...]  # for whether a hit answers if they are
    about_by_vectors: tuple[float, ...]  # both for searches in which words do not count
    answers_by_vectors: tuple[float, ...]
    # Percent below which nothing matches well, by collections and folders of mixed files.
    well: float = 1.0

    def confidence(self, evidence: Evidence) -> Floats:
        """(n,) percent for the best hits, in order."""
        words = evidence.covered is not None
        about = self.about if words else self.about_by_vectors
        answers = self.answers if words else self.answers_by_vectors
        chances = [
            1 / (1 + np.exp(-(weights[0] + features @ np.array(weights[1:]))))
            for weights, features in ((about, about_features(evidence)),
                                      (answers, answer_features(evidence)))
        ]  # fmt: skip
        return np.asarray(100 * chances[0] * chances[1], dtype=np.float32)


def about_features(evidence: Evidence) -> NDArray[np.float64]:
    """Best cosine, log of the number of rows, and with BM25 the share of words covered."""
    known = [evidence.best, math.log(max(2, evidence.rows))]
    return np.array(known if evidence.covered is None else [*known, evidence.covered])


def answer_features(evidence: Evidence) -> NDArray[np.float64]:
    """(n, 3) z-scores by the largest of chance, their lead, and the best cosine above the mean."""
    z = evidence.z.astype(np.float64)
    chance = math.sqrt(2 * math.log(max(2, evidence.rows)))
    # Above the mean of the five best others.
    first = z[:BEST].sum()
    others = np.where(np.arange(len(z)) < BEST, first - z, first - z[BEST - 1 : BEST].sum())
    lead = z - others / max(1, min(BEST, len(z)) - 1)
    over = np.full(len(z), evidence.best - evidence.mean)
    return np.stack([z / chance, lead, over], axis=1)


CALIBRATIONS = {
    # all-MiniLM-L6-v2
    "4025883746da52e94f2bfe25e9164e56396d6bd171f02f67f48ef6eedb40fa38": Calibration(
        about=(-9.6726, 28.442, -0.86622, 10.9097),
        answers=(-3.4298, -0.071613, 1.19341, 5.2328),
        about_by_vectors=(-10.0375, 32.2347, -0.74127),
        answers_by_vectors=(-3.6175, -0.15926, 1.42472, 5.6311),
    ),
    # multilingual-e5-small
    "f7c578fbec8a45e136cd67f21f77a22737789ecd3bc113f14867bdd6c89a4b60": Calibration(
        about=(-112.0275, 130.3196, -0.51843, 18.2202),
        answers=(-3.297, 0.4463, 1.00431, 21.4476),
        about_by_vectors=(-127.1965, 149.9843, -0.21659),
        answers_by_vectors=(-3.5468, 0.66582, 1.23576, 20.9145),
        well=0.3,
    ),
}
"""By the identity of the model."""
