"""Queries with known answers, measured on an index: nDCG@10 of each by any ranker."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from contrasent.metrics import ndcg_at_k
from contrasent.search.index import PROPOSED, Index
from contrasent.search.learned import Learned, bonus, mapped, smoothed
from contrasent.search.ranking import Candidates, Ranker, Spread
from contrasent.stats.bootstrap import clustered_mean
from contrasent.stats.seeds import LEVEL
from contrasent.types import Numbers, Vectors

Floats = NDArray[np.float64]
Values = dict[str, Floats]
"""By kind of folds: nDCG@10, (strategies, queries) or (queries,)."""

CUT = 10  # nDCG is cut at this rank
AT_ONCE = 64  # queries whose cosines are computed together


@dataclass(frozen=True, slots=True)
class Query:
    """A query and the documents that answer it, by their numbers, with gains."""

    text: str
    relevant: Mapping[int, float]
    document: int  # its main answer: queries about the same document are not independent


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference, after minus before, with its interval and two-sided p."""

    value: float
    low: float
    high: float
    p: float
    level: float = LEVEL

    def __str__(self) -> str:
        interval = f"{100 * self.level:g} % CI [{self.low:+.3f}, {self.high:+.3f}]"
        return f"{self.value:+.3f}, {interval}"


def difference(
    queries: Sequence[Query], values: Floats, *, seed: int = 0, level: float = LEVEL
) -> Difference:
    """Mean of (q,) differences; its interval is over the documents that queries are about."""
    documents, where = np.unique([query.document for query in queries], return_inverse=True)
    sums, counts = np.zeros((2, len(documents), 1))
    np.add.at(sums[:, 0], where, values)
    np.add.at(counts[:, 0], where, 1.0)
    estimate = clustered_mean(sums, counts, seed=seed, level=level)
    return Difference(estimate.mean, estimate.low, estimate.high, estimate.p, level)


def queries_of(user_queries: Sequence[tuple[str, Mapping[int, float]]]) -> list[Query]:
    """User queries; the main answer is the one that a query shares with most others."""
    shared = Counter(document for _, gains in user_queries for document in gains)
    return [
        Query(text, gains, max(gains, key=lambda at: (shared[at], -at)))
        for text, gains in user_queries
    ]


@dataclass(eq=False)
class Bench:
    """Queries on an index, ranked as :meth:`Index.search` ranks without filters or codes."""

    index: Index
    queries: list[Query]
    vectors: Vectors  # (q, d) of the queries, by the base
    learned: Learned = field(default_factory=Learned)

    def __post_init__(self) -> None:
        self.of_rows = self.index.row_documents
        self.documents, self.units = [*self.of_rows.numbers], self.of_rows.units
        self._words: dict[str, tuple[Numbers, *tuple[NDArray[np.float32], ...], float]] = {}

    def values(
        self,
        rankers: Sequence[Ranker],
        numbers: Numbers | None = None,
        learned: Learned | None = None,
    ) -> Floats:
        """(rankers, numbers) nDCG@10 over documents, a document by its best row."""
        chosen = np.arange(len(self.queries)) if numbers is None else numbers
        scores = np.empty((len(rankers), len(chosen)))
        for start in range(0, len(chosen), AT_ONCE):
            batch = chosen[start : start + AT_ONCE]
            for offset, best in enumerate(self._ranked(batch, rankers, learned or self.learned)):
                relevant = self.queries[batch[offset]].relevant
                gained = dict[bytes, float]()  # few of a hundred rankers differ
                for row, rows in enumerate(best):
                    key = rows.tobytes()
                    if key not in gained:
                        gained[key] = _ndcg(self.units[rows], relevant)
                    scores[row, start + offset] = gained[key]
        return scores

    def best_rows(self, number: int, ranker: Ranker, learned: Learned | None = None) -> Numbers:
        """Numbers of the best rows for a query, best first."""
        ((rows,),) = self._ranked(np.array([number]), [ranker], learned or self.learned)
        return rows

    def _ranked(
        self, numbers: Numbers, rankers: Sequence[Ranker], learned: Learned
    ) -> list[list[Numbers]]:
        """The best rows of each query by each ranker."""
        query_vectors, rows = self.vectors[numbers], self.index.numbers()
        # Rankers that differ only in the weight of BM25 share their candidates.
        bare = [replace(ranker, bm25_weight=0.0) for ranker in rankers]
        products = {
            share: np.asarray(self.index.vectors @ mapped(ranker, learned, query_vectors).T).T
            for share, ranker in {ranker.map_share: ranker for ranker in bare}.items()
        }
        rankings, weighed = [], dict[float, list[Ranker]]()
        for place, number in enumerate(numbers):
            words, exact, share = self._bm25(self.queries[number].text)
            candidates = dict[Ranker, Candidates]()
            for ranker in dict.fromkeys(bare):
                cosines = smoothed(ranker, learned, products[ranker.map_share][place])
                added = bonus(ranker, learned, query_vectors[place], self.of_rows.rows_of)
                found = rows, cosines[rows], words, exact, added, Spread.of(cosines[rows])
                candidates[ranker] = Candidates.of(*found, len(rows))
            if share not in weighed:
                weighed[share] = [replace(r, bm25_weight=share * r.bm25_weight) for r in rankers]
            pairs = zip(weighed[share], bare, strict=True)
            rankings.append([r.rank(candidates[plain], PROPOSED).rows for r, plain in pairs])
        return rankings

    def _bm25(self, text: str) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
        """(rows,) BM25 scores, exact shares, and what of their weight they keep, once a query."""
        if text not in self._words:
            scores, exact, _ = self.index.bm25.weigh(text)
            rows = np.flatnonzero(scores)
            share = self.index.ranker_for(text, Ranker(1.0)).bm25_weight
            self._words[text] = rows, scores[rows], exact[rows], share
        words, exact = np.zeros((2, self.index.facts.rows), dtype=np.float32)
        rows, *stored, share = self._words[text]
        words[rows], exact[rows] = stored
        return words, exact, share


def _ndcg(ranked: Numbers, relevant: Mapping[int, float]) -> float:
    """nDCG@10 of documents in the order of their best rows."""
    documents = list(dict.fromkeys(ranked.tolist()))
    ranks = {unit: rank for rank, unit in enumerate(documents, 1)}
    beyond = len(documents) + CUT + 1  # a rank beyond the cut for documents not found
    places = sorted((ranks.get(unit, beyond), gain) for unit, gain in relevant.items())
    return float(ndcg_at_k(np.array([g for _, g in places]), np.array([r for r, _ in places]), CUT))
