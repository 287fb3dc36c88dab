"""Retrieval: how high does a model rank the right document among all of them?

Exact: every query is compared with every document, in blocks of a matrix product, so memory is
bounded by the block and not by queries x documents. Ties count against the model: a document that
scores as high as the relevant one stands before it, and of relevant ones that score the same the
less relevant stands first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import metrics
from contrasent.errors import DataError, OptionError
from contrasent.evaluate.sheet import Sheet
from contrasent.evaluate.vectors import encode_search
from contrasent.report import Report
from contrasent.stats.bootstrap import RESAMPLES, Keys, digest, item_keys
from contrasent.types import EncodeFn, Vectors

Relevant = int | Iterable[int] | Mapping[int, float]
"""Of one query: the relevant document's position, several of them, or their gains."""

BLOCK = 16_000_000
"""Similarities held at once (64 MB)."""

TIE = 1e-6
"""Cosines nearer than this are equal: a product of rows varies with their place in a block."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Where each query's relevant documents were found.

    Attributes:
        ranks: one (m,) array a query: the rank from 1 of each of its relevant documents, ascending.
        gains: one (m,) array a query: the gain of each, in the same order.
    """

    ranks: tuple[NDArray[np.int64], ...]
    gains: tuple[Floats, ...]
    documents: int

    def __len__(self) -> int:
        return len(self.ranks)

    def first(self) -> NDArray[np.int64]:
        """(q,) rank of each query's first relevant document."""
        return np.array([r[0] for r in self.ranks], dtype=np.int64)

    def reciprocal(self, k: int = 10) -> Floats:
        """(q,) reciprocal rank of each query, 0 beyond k: what a paired comparison takes."""
        return metrics.reciprocal_ranks(self.first(), k)

    def recall(self, k: int) -> Floats:
        """(q,) share of each query's relevant documents among the first k."""
        return np.array([(r <= k).mean() for r in self.ranks])

    def ndcg(self, k: int) -> Floats:
        """(q,) normalised discounted cumulative gain of each query."""
        pairs = zip(self.gains, self.ranks, strict=True)
        return np.array([metrics.ndcg_at_k(g, r, k) for g, r in pairs])


def retrieval(
    encode: EncodeFn,
    queries: Sequence[str],
    documents: Sequence[str],
    relevant: Sequence[Relevant],
    *,
    exclude: Sequence[int] | None = None,
    k: Sequence[int] = (1, 10),
    task: str = "heldout",
    split: str = "heldout",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Report:
    """Score a model on finding each query's relevant documents by cosine.

    Args:
        encode: the model.
        queries: q queries.
        documents: the documents to search.
        relevant: for each query, the position of its relevant document in ``documents``, several
            positions, or a mapping from position to gain.
        exclude: for each query, the position of a document that is no answer (itself), or -1.
        k: cuts of recall; MRR and nDCG are cut at the largest.
        task: name of the task in the report.
        split: name of the split in the report.
        resamples: bootstrap resamples over queries for the 95 % intervals; 0 for none.
        seed: of the bootstrap.

    Returns:
        Rows "mrr@K", "recall@k" for each k, and "ndcg@K", K being the largest k.

    Raises:
        DataError: no queries, a query without a relevant document, a position that does not exist,
            or vectors that are not finite.
        OptionError: a k below 1.
    """
    ranking = rank_documents(encode, queries, documents, relevant, exclude=exclude)
    return ranking_report(
        ranking,
        k=k,
        task=task,
        split=split,
        resamples=resamples,
        seed=seed,
        keys=item_keys(queries),
        context=digest(documents),
    )


def rank_documents(
    encode: EncodeFn,
    queries: Sequence[str],
    documents: Sequence[str],
    relevant: Sequence[Relevant],
    *,
    exclude: Sequence[int] | None = None,
) -> Ranking:
    """The ranks of each query's relevant documents."""
    judged = check_relevant(relevant, len(queries), len(documents))
    queried, read = encode_search(encode, [queries], [documents])
    return rank_vectors(queried(queries), read(documents), judged, exclude=exclude)


def rank_vectors(
    queries: Vectors,
    documents: Vectors,
    relevant: Sequence[Mapping[int, float]],
    *,
    exclude: Sequence[int] | None = None,
) -> Ranking:
    """Rank the relevant documents of each query by cosine.

    ``queries``: (q, d) vectors. ``documents``: (n, d) vectors.
    """
    left = metrics.unit(queries).astype(np.float32)
    right = metrics.unit(documents).astype(np.float32).T
    rows = max(1, BLOCK // max(len(documents), 1))
    ranks: list[NDArray[np.int64]] = []
    gains: list[Floats] = []
    for start in range(0, len(queries), rows):
        block = left[start : start + rows] @ right
        if exclude is not None:
            for scores, own in zip(block, exclude[start : start + rows], strict=True):
                if own >= 0:
                    scores[own] = -np.inf
        for scores, judged in zip(block, relevant[start : start + rows], strict=True):
            found, gain = _ranks(scores, judged)
            ranks.append(found)
            gains.append(gain)
    return Ranking(tuple(ranks), tuple(gains), len(documents))


def ranking_report(
    ranking: Ranking,
    *,
    k: Sequence[int] = (1, 10),
    task: str = "heldout",
    split: str = "heldout",
    resamples: int = RESAMPLES,
    seed: int = 0,
    keys: Keys | None = None,
    context: str = "",
) -> Report:
    """The rows of a ranking; see :func:`retrieval`.

    ``keys``: (q,) of the queries; with them the report can be compared with others by query.
    """
    if not k or min(k) < 1:
        raise OptionError("k", list(k), "give numbers from 1")
    last = max(k)
    values = {f"mrr@{last}": ranking.reciprocal(last)}
    values |= {f"recall@{cut}": ranking.recall(cut) for cut in sorted(set(k))}
    values[f"ndcg@{last}"] = ranking.ndcg(last)
    sheet = Sheet()
    options: dict[str, Any] = {"resamples": resamples, "seed": seed, "keyed": False}
    for m, v in values.items():
        sheet.mean(task, split, m, v, keys=keys, context=context, **options)
    return sheet.report({"documents": ranking.documents, "ties": "against the model"})


def check_relevant(
    relevant: Sequence[Relevant], queries: int, documents: int
) -> list[dict[int, float]]:
    """Relevant documents as {position: gain} for each query."""
    if not queries:
        raise DataError("there are no queries to evaluate")
    if len(relevant) != queries:
        raise DataError(f"{queries:,} queries, but relevant documents for {len(relevant):,}")
    judged = []
    for number, entry in enumerate(relevant):
        found = _as_gains(entry)
        if not found:
            raise DataError(f"query {number} has no relevant document")
        for position, gain in found.items():
            if not 0 <= position < documents:
                raise DataError(
                    f"query {number}: relevant document {position}, but there are {documents:,}"
                )
            if not gain > 0:
                raise DataError(f"query {number}: document {position} has gain {gain}, not above 0")
        judged.append(found)
    return judged


def _as_gains(entry: Relevant) -> dict[int, float]:
    if isinstance(entry, Mapping):
        return {int(position): float(gain) for position, gain in entry.items()}
    if isinstance(entry, Iterable):
        return {int(position): 1.0 for position in entry}
    return {int(entry): 1.0}


def _ranks(
    scores: NDArray[np.float32], judged: Mapping[int, float]
) -> tuple[NDArray[np.int64], Floats]:
    """Ranks of one query's relevant documents, best first, with their gains."""
    places = np.fromiter(judged, np.int64, len(judged))
    gains = np.fromiter(judged.values(), np.float64, len(judged))
    own = scores[places]
    if len(own) == 1:
        return np.array([np.count_nonzero(scores >= own[0] - TIE)]), gains
    order = np.argsort(-own, kind="stable")
    own, gains = own[order], gains[order]
    # Relevant ones whose scores are equal are a group, its larger gains last.
    group = np.concatenate([[0], np.cumsum(-np.diff(own) > TIE)])
    gains = gains[np.lexsort((gains, group))]
    lowest = own[np.append(np.flatnonzero(np.diff(group)), len(own) - 1)]
    ahead = np.array([np.count_nonzero(scores >= s - TIE) for s in lowest])
    ahead -= np.array([np.count_nonzero(own >= s - TIE) for s in lowest])
    return ahead[group] + np.arange(1, len(own) + 1), gains
