"""Hybrid search: BM25 and cosine, fused into one ranking.

Vectors find what is said in other words, BM25 what is said in the same ones. Each proposes its best
rows; the rows that either proposed are scored by both, and the two scores are put together:

- "weighted": each score is brought to [0, 1] over the proposed rows, 0 being that of the last
  proposal and 1 that of the best, and the two are averaged with a weight (convex combination;
  Bruch, Gai and Ingber, 2023, An Analysis of Fusion Functions for Hybrid Retrieval, eq. 3).
- "ranks": reciprocal-rank fusion, sum of 1 / (60 + rank) (Cormack, Clarke and Büttcher, 2009). It
  has no weight, and looks at no score.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, OptionError, OutputError, UserError
from contrasent.search.exact import largest
from contrasent.search.index import Index
from contrasent.search.manifest import SETTING as SETTING
from contrasent.search.opening import AnyIndex
from contrasent.search.query import Hit, IndexBase, Wanted
from contrasent.types import Vectors

if TYPE_CHECKING:
    from contrasent.search.lexical import Lexical
    from contrasent.search.milvus import MilvusIndex

PROPOSED = 100
"""Rows that each side proposes, and at least ten for each row wanted."""
RANK_OFFSET = 60.0
METHODS = ("weighted", "ranks")
FOLDER = "lexical"

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Fusion:
    """How two scores become one.

    Attributes:
        lexical_weight: share of BM25 in [0, 1], the rest is the cosine's; of "weighted" alone.
    """

    lexical_weight: float = 0.2
    method: str = "weighted"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise OptionError("fusion", self.method, "is unknown", choices=METHODS)
        if not 0.0 <= self.lexical_weight <= 1.0:
            raise OptionError("lexical_weight", self.lexical_weight, "must be from 0 to 1")

    def __call__(self, dense: Floats, lexical: Floats, proposed: int = PROPOSED) -> Floats:
        """Fused scores (n,) of n proposed rows, from their cosines and their BM25 scores.

        ``dense``: (n,) cosines. ``lexical``: (n,) BM25 scores; 0 for rows that share no term with
        the query.
        """
        if self.method == "ranks":
            ranks = _reciprocal(dense) + np.where(lexical > 0, _reciprocal(lexical), 0.0)
            return ranks.astype(np.float32)
        weight = np.float32(self.lexical_weight)
        left = _scaled(dense, proposed)
        return (1 - weight) * left + weight * _scaled(lexical, proposed)


def own_fusion(settings: Mapping[str, Any]) -> Fusion | None:
    """The fusion that an index's settings say it is searched with; None if there is none."""
    stored = settings.get(SETTING)
    if stored is None:
        return None
    try:
        return Fusion(**stored)
    except TypeError as error:
        raise DataError(
            f"the index says that it is searched by {stored!r}, which this version does not know; "
            "choose --hybrid with --lexical-weight, or --dense, or make the index again"
        ) from error


def _scaled(scores: Floats, proposed: int) -> Floats:
    """Scores with the best at 1 and the last that was proposed at 0; all 0 where they are equal."""
    last = len(scores) - min(proposed, len(scores))
    low, high = np.partition(scores, last)[last], scores.max()
    return np.zeros_like(scores) if high == low else (scores - low) / (high - low)


def _reciprocal(scores: Floats) -> NDArray[np.float64]:
    """1 / (60 + rank), ranks from 1; equal scores in the order of rows."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return 1.0 / (RANK_OFFSET + ranks)


class Hybrid(IndexBase):
    """An index searched by vectors and words together; queries are texts."""

    def __init__(self, index: Index, lexical: "Lexical", fusion: Fusion) -> None:
        super().__init__(index.manifest, index.folder)
        self.index, self.lexical, self.fusion = index, lexical, fusion

    @classmethod
    def open(
        cls, index: Index, fusion: Fusion | None = None, *, language: str = "auto"
    ) -> "Hybrid":
        """Read the index's words, or count them now and keep the counts in its folder."""
        from contrasent.search.lexical import Lexical  # its library loads scipy

        fusion = fusion or own_fusion(index.manifest.settings) or Fusion()
        place = None if index.folder is None else index.folder / FOLDER
        parts = [asdict(part) for part in index.manifest.segments]  # deleted rows count as well
        fingerprint = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        lexical = None if place is None else Lexical.open(place, fingerprint)
        if lexical is None:
            texts = [text for segment in index.segments for text in segment.texts]
            lexical = Lexical.build(texts, language=language)
            if place is not None:
                # A folder that cannot be written is searched all the same.
                with suppress(OutputError):
                    lexical.save(place, fingerprint)
        return cls(index, lexical, fusion)

    def _hits(
        self, texts: Sequence[str] | Vectors, vectors: Vectors, wanted: Wanted
    ) -> list[list[Hit]]:
        if isinstance(texts, np.ndarray):
            raise UserError("hybrid search needs the queries' texts; give vectors beside them")
        allowed, proposed = self._allowed(wanted), max(PROPOSED, 10 * wanted.k)
        return [
            self._one(text, vector, wanted, allowed, proposed)
            for text, vector in zip(texts, vectors, strict=True)
        ]

    def _allowed(self, wanted: Wanted) -> Any:
        """What says which rows count."""
        return self.index.alive() if wanted.where is None else self.index.matching(wanted.where)

    def _one(
        self, text: str, vector: Vectors, wanted: Wanted, allowed: Any, proposed: int
    ) -> list[Hit]:
        _, near = self.index.nearest(vector[None], proposed, allowed=allowed, exact=wanted.exact)
        by_words = np.where(allowed, self.lexical.scores(text), 0.0).astype(np.float32)
        shared = np.flatnonzero(by_words)
        best = shared[largest(by_words[shared], proposed)] if len(shared) > proposed else shared
        rows = np.union1d(near[0][near[0] >= 0], best)
        if not len(rows):
            return []
        scores = self.fusion(self.index.vectors_of(rows) @ vector, by_words[rows], proposed)
        order = np.argsort(-scores, kind="stable")[: wanted.k]
        return [
            self.index.hit(int(rows[at]), float(scores[at]))
            for at in order
            if wanted.threshold is None or scores[at] >= wanted.threshold
        ]


class MilvusHybrid(Hybrid):
    """A collection in Milvus searched by its vectors and by its own BM25 together.

    Milvus analyses the texts (its standard analyzer: lower case, no stems) and scores by each
    segment's own counts. It does not tell the score of a text that it did not propose: that counts
    as the last proposal's, or as 0 where all that share a word were proposed.
    """

    def __init__(self, index: "MilvusIndex", fusion: Fusion) -> None:
        IndexBase.__init__(self, index.manifest, index.folder)
        self.collection, self.fusion = index, fusion

    def _allowed(self, wanted: Wanted) -> Any:
        return self.collection.condition(wanted)

    def _one(
        self, text: str, vector: Vectors, wanted: Wanted, allowed: Any, proposed: int
    ) -> list[Hit]:
        near = self.collection.nearest([vector], proposed, allowed)[0]
        # A local file calls a better match a lower number.
        by_words = {
            hit.id: replace(hit, score=abs(hit.score))
            for hit in self.collection.nearest([text], proposed, allowed, words=True)[0]
        }
        found = {hit.id: hit for hit in near}
        others = [name for name in by_words if name not in found]
        found |= {hit.id: hit for hit in self.collection.scored(vector, others)}
        if not found:
            return []
        names = sorted(found)
        rest = min((hit.score for hit in by_words.values()), default=0.0)
        rest = rest if len(by_words) >= proposed else 0.0
        scores = self.fusion(
            np.array([found[name].score for name in names], dtype=np.float32),
            np.array([by_words[n].score if n in by_words else rest for n in names], np.float32),
            proposed,
        )
        hits = [
            replace(found[names[at]], score=float(scores[at]))
            for at in np.argsort(-scores, kind="stable")
        ]
        least = -np.inf if wanted.threshold is None else wanted.threshold
        return [hit for hit in hits[: wanted.k] if hit.score >= least]


def searcher(
    index: AnyIndex, *, hybrid: bool | None = None, lexical_weight: float | None = None
) -> "AnyIndex | Hybrid":
    """What searches an index: itself, or with its words beside its vectors."""
    own = own_fusion(index.manifest.settings)
    if hybrid is None:
        hybrid = own is not None or lexical_weight is not None
    if not hybrid:
        if lexical_weight is not None:
            raise OptionError("--lexical-weight", lexical_weight, "is of hybrid search alone")
        return index
    weighted = None if lexical_weight is None else Fusion(lexical_weight)
    if isinstance(index, Index):
        return Hybrid.open(index, weighted)
    if own is None:
        problem = (
            "this collection in Milvus has no words; build it with 'contrasent index --hybrid'"
        )
        raise OptionError("--hybrid", True, problem)
    return MilvusHybrid(index, weighted or own)
