"""The candidates, and how each is measured on the selection part."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from contrasent import progress
from contrasent.adapt.evidence import Evidence, Floats, mean_over_kinds
from contrasent.adapt.measuring import WordScores, measure
from contrasent.evaluate.vectors import check_vectors
from contrasent.search.ranking import Ranker
from contrasent.types import EncodeFn, Vectors, batched, for_task

WEIGHTS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # shares of BM25 that are tried


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to search."""

    name: str
    model: str = "base"  # "base", "whitened", "mapped", or "" for words alone
    share: float = 1.0  # of the map, mixed with the identity
    fusion: Ranker | None = None  # how words are added to vectors


@dataclass(slots=True)
class Trial:
    """A candidate and what came of it."""

    candidate: Candidate
    score: float  # :func:`selection_score`
    # nDCG@10 of each kind, and "all", their mean
    kinds: dict[str, float] = field(default_factory=dict)
    overlap: float = 1.0  # share of the base's ten nearest neighbours that are left


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Vectors of an evidence's queries and rows by one model."""

    queries: Vectors
    rows: Vectors

    def by(self, layer: Callable[[Vectors], Vectors]) -> "Encoded":
        """Both after a layer."""
        return Encoded(layer(self.queries), layer(self.rows))


def encode_evidence(encode: EncodeFn, evidence: Evidence, passages: Vectors) -> Encoded:
    """Encode queries and rows; ``passages`` are vectors of the first rows, encoded already."""
    queries = [query.text for query in evidence.queries]
    texts = list(evidence.texts[evidence.passages :])
    vectors = check_vectors(for_task(encode, "query")(queries), queries)
    rows = np.asarray(passages)
    if texts:
        rows = np.concatenate([rows, check_vectors(for_task(encode, "document")(texts), texts)])
    return Encoded(vectors, rows)


BLOCK = 512  # texts that are encoded, and in a run kept, at once


def encode_all(encode: EncodeFn, texts: Sequence[str]) -> Vectors:
    """Vectors of all texts, with progress."""
    blocks = []
    with progress.task("encode", len(texts), "texts") as advance:
        for block in batched(texts, BLOCK):
            blocks.append(encode(block))
            advance(len(blocks[-1]))
    return np.concatenate(blocks)


SMALL = 0.01
"""Added to both sides of a ratio, so that a kind which nothing can answer does not decide."""


def selection_score(evidence: Evidence, before: Floats, after: Floats) -> float:
    """How much better than the base: the mean over kinds of the log ratio of nDCG@10."""
    # Ratios, so that a kind of hard queries, whose scores are small, counts as much as an easy one.
    ratios = [
        (after[chosen].mean() + SMALL) / (before[chosen].mean() + SMALL)
        for kind in evidence.kinds
        for chosen in [evidence.of_kind(kind)]
    ]
    return float(np.mean(np.log(ratios)))


def selection_error(evidence: Evidence, before: Floats, after: Floats) -> float:
    """Standard error of :func:`selection_score` over the queries, to first order (delta method)."""
    variance = 0.0
    for kind in evidence.kinds:
        chosen = evidence.of_kind(kind)
        moved = [
            (values[chosen] - values[chosen].mean()) / (values[chosen].mean() + SMALL)
            for values in (after, before)
        ]
        variance += float(np.mean((moved[0] - moved[1]) ** 2)) / len(chosen)
    return float(np.sqrt(variance)) / len(evidence.kinds)


def kind_means(evidence: Evidence, values: Floats) -> dict[str, float]:
    """nDCG@10 of each kind of query, and "all", the mean of them."""
    means = {kind: float(values[evidence.of_kind(kind)].mean()) for kind in evidence.kinds}
    return {**means, "all": mean_over_kinds(evidence, values)}


def measure_candidate(
    evidence: Evidence, encoded: Encoded | None, lexical: WordScores | None = None, *fusions: Ranker
) -> Floats:
    """nDCG@10 of each query for vectors, words, or both by each fusion, (max(1, f), q)."""
    return measure(
        evidence,
        queries=None if encoded is None else encoded.queries,
        rows=None if encoded is None else encoded.rows,
        lexical=lexical,
        fusions=fusions or (Ranker(),),
    )
