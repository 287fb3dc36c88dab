"""Rankings of evidence's queries by a way to search, and nDCG@10 of each."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.evidence import Evidence, Floats, Query
from contrasent.metrics import ndcg_at_k
from contrasent.search.index import PROPOSED
from contrasent.search.ranking import Ranker, Spread, best_rows
from contrasent.search.words import Bm25
from contrasent.types import Vectors

CUT = 10  # nDCG is cut at this rank


class WordScores(Protocol):
    """Gives each row's BM25 score for a query."""

    def scores(self, query: str, /) -> NDArray[np.float32]:
        """(rows,) scores."""


class Remembered:
    """BM25 scores that are computed once a query, for measuring many fusions on little text."""

    def __init__(self, lexical: Bm25) -> None:
        self.lexical = lexical
        self._known: dict[str, NDArray[np.float32]] = {}

    def scores(self, query: str, /) -> NDArray[np.float32]:
        """(rows,) scores."""
        if query not in self._known:
            self._known[query] = self.lexical.scores(query)
        return self._known[query]


def measure(
    evidence: Evidence,
    *,
    queries: Vectors | None = None,
    rows: Vectors | None = None,
    lexical: WordScores | None = None,
    fusions: Sequence[Ranker] = (Ranker(),),
) -> Floats:
    """nDCG@10 of each way to put vectors and words together, (f, q); queries None: words alone."""
    values = np.zeros((len(fusions), len(evidence.queries)))
    for number, query in enumerate(evidence.queries):
        vector = None if queries is None else queries[number]
        found = rankings(evidence, query, vector, rows, lexical, fusions)
        for way, ranked in enumerate(found):
            values[way, number] = _ndcg(evidence.units[ranked], query.relevant)
    return values


def rankings(
    evidence: Evidence,
    query: Query,
    vector: Vectors | None,
    rows: Vectors | None,
    lexical: WordScores | None,
    fusions: Sequence[Ranker],
) -> list[NDArray[np.int64]]:
    """Rows of the best results for one query, best first, by each fusion; see :func:`measure`."""
    shown = np.zeros(len(evidence.texts), dtype=bool)
    shown[: evidence.passages] = not query.apart
    shown[list(query.hidden)] = False
    shown[list(query.shown)] = True
    at = np.flatnonzero(shown)
    if vector is None or rows is None:
        if lexical is None:
            raise ValueError("nothing to rank by")
        words = lexical.scores(query.text)[at]
        best = best_rows(words, PROPOSED)
        return [at[best[words[best] > 0]]]
    dense = (rows @ vector)[at]
    if lexical is None:
        return [at[best_rows(dense, PROPOSED)]]
    words = lexical.scores(query.text)[at]
    spreads = Spread.of(dense), Spread.of(words)
    fused = (fusion.fuse(dense, words, *spreads) for fusion in fusions)
    return [at[best_rows(scores, PROPOSED)] for scores in fused]


def _ndcg(ranked: NDArray[np.int64], relevant: Mapping[int, float]) -> float:
    """nDCG@10 of units in the order of their best rows."""
    found = list(dict.fromkeys(ranked.tolist()))
    ranks = {unit: rank for rank, unit in enumerate(found, 1)}
    beyond = len(found) + CUT + 1  # what was not found has no rank that counts
    places = sorted((ranks.get(unit, beyond), gain) for unit, gain in relevant.items())
    return float(ndcg_at_k(np.array([g for _, g in places]), np.array([r for r, _ in places]), CUT))


def haystack(
    evidence: Evidence,
    *,
    queries: Vectors,
    rows: Vectors,
    lexical: Bm25,
    size: int,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Passages on which candidates differ nearly as on all: high ranks, answers, random others."""
    count = evidence.passages
    if count <= size:
        return np.arange(count)
    kept: set[int] = set()
    each = max(2, min(20, size // (2 * len(evidence.queries))))
    for query, vector in zip(evidence.queries, queries, strict=True):
        if query.apart:  # it sees no passage
            continue
        kept.update(best_rows(rows[:count] @ vector, each).tolist())
        kept.update(best_rows(lexical.scores(query.text)[:count], each).tolist())
        kept.update(np.flatnonzero(np.isin(evidence.units[:count], list(query.relevant))).tolist())
    others = np.setdiff1d(np.arange(count), list(kept))
    drawn = np.random.default_rng(seed).permutation(others)[: max(0, size - len(kept))]
    return np.sort(np.concatenate([np.array(sorted(kept), dtype=np.int64), drawn]))
