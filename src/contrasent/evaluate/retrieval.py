"""Retrieval: the ranks of each query's relevant documents, in any collection and in named ones.

Exact, in blocks. Ties count against the model: a document that scores as high as the relevant one
stands before it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import metrics
from contrasent.datasets.beir import Collection, Judged, places_of, read_collection
from contrasent.datasets.labeled import Captions
from contrasent.datasets.sts import sts_pairs
from contrasent.errors import DataError, OptionError, check_choice
from contrasent.evaluate.vectors import ReportBuilder, encode_distinct, encode_search
from contrasent.nearest import nearest
from contrasent.report import Report
from contrasent.stats.bootstrap import RESAMPLES, Keys, digest, item_keys
from contrasent.types import EncodeFn, Vectors

Relevant = int | Iterable[int] | Mapping[int, float]
"""The position of a query's relevant document, several of them, or their gains."""

BLOCK = 16_000_000  # similarities in memory at once (64 MB)

TIE = 1e-6
"""Cosines nearer than this are equal: a product of rows varies with their place in a block."""

MISSING = "relevant documents missing from the corpus"  # the note that counts them
NEVER = np.iinfo(np.int64).max  # the rank of a document that is not there, or was not found
CUTS = (1, 5, 10)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Where each query's relevant documents were found."""

    # one (m,) array a query: the rank from 1 of each of its relevant documents, ascending
    ranks: tuple[NDArray[np.int64], ...]
    gains: tuple[Floats, ...]  # one (m,) array a query: the gain of each, in the same order
    documents: int

    def by_query(self, of_query: metrics.OfQuery, k: int) -> Floats:
        """(q,) a metric of each query."""
        pairs = zip(self.gains, self.ranks, strict=True)
        return np.array([of_query(gains, ranks, k) for gains, ranks in pairs])


def retrieval(
    encode: EncodeFn,
    queries: Sequence[str],
    documents: Sequence[str],
    relevant: Sequence[Relevant],
    *,
    exclude: Sequence[int] | None = None,
    missing: int = 0,
    k: Sequence[int] = (1, 10),
    task: str = "heldout",
    split: str = "heldout",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Report:
    """Evaluate a model on ranking each query's relevant documents by cosine.

    Args:
        encode: the model, a function from texts to vectors.
        queries: q queries.
        documents: n documents.
        relevant: for each query, the position of its relevant document in ``documents``, several
            positions, or a mapping from position to gain.
        exclude: for each query, the position of a document to leave out, such as the query itself,
            or -1.
        missing: how many relevant documents are not there, and so not found; their positions are
            after all others.
        k: cutoffs of recall; the largest is that of MRR and nDCG.
        task: name of the task in the report.
        split: name of the split in the report.
        resamples: bootstrap resamples over queries for the 95 % intervals; 0 for none.
        seed: seed of the bootstrap.

    Returns:
        Rows "mrr@K", "ndcg@K" and, for each k, "recall@k", from 0 to 1; K is the largest k.

    Raises:
        DataError: there are no queries, a query has no relevant document, a position does not
            exist, or vectors are not finite.
        OptionError: a cutoff is below 1.
    """
    judged = check_relevant(relevant, len(queries), len(documents) + missing)
    queried, read = encode_search(encode, [queries], [documents])
    keys, excluded = item_keys(queries), [-1] * len(queries) if exclude is None else exclude
    ranking = rank_vectors(queried(queries), read(documents), judged, exclude=excluded)
    context = _context(documents, keys, judged, excluded)
    how: dict[str, Any] = {"task": task, "split": split, "resamples": resamples, "seed": seed}
    return ranking_report(ranking, k=k, keys=keys, context=context, **how)


def rank_vectors(
    queries: Vectors,
    documents: Vectors,
    relevant: Sequence[Mapping[int, float]],
    *,
    exclude: Sequence[int] | None = None,
) -> Ranking:
    """Rank the relevant documents of each query (q, d) among documents (n, d) by cosine."""
    left = metrics.normalize(queries).astype(np.float32)
    right = metrics.normalize(documents).astype(np.float32).T
    rows = max(1, BLOCK // max(len(documents), 1))
    ranks: list[NDArray[np.int64]] = []
    gains: list[Floats] = []
    for start in range(0, len(queries), rows):
        for query, scores in enumerate(left[start : start + rows] @ right, start):
            if exclude is not None and exclude[query] >= 0:
                scores[exclude[query]] = -np.inf
            judged, n = relevant[query], len(scores)
            lost = [gain for place, gain in judged.items() if place >= n]
            rank, gain = _ranks(scores, {p: gain for p, gain in judged.items() if p < n})
            ranks.append(np.append(rank, np.full(len(lost), NEVER)))
            gains.append(np.append(gain, lost))
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
    keyed: bool = False,
    context: str = "",
) -> Report:
    """The rows of a ranking; ``keyed`` resamples queries of equal keys (q,) as one item."""
    if not k or min(k) < 1:
        raise OptionError("k", list(k), "must be numbers from 1")
    builder, cuts = ReportBuilder(resamples, seed), sorted(set(k))
    for metric in metrics.METRICS.values():
        if metric.of_query is None:
            continue
        for cut in cuts if metric.every_cut else cuts[-1:]:
            name = metric.name.replace("@k", f"@{cut}")
            values = ranking.by_query(metric.of_query, cut)
            builder.mean(task, split, name, values, keys=keys, keyed=keyed, context=context)
    return builder.report({"documents": ranking.documents, "ties": "against the model"})


def _context(
    documents: Sequence[str],
    keys: Keys,
    judged: Iterable[Mapping[Any, float]],
    excluded: Iterable[object],
) -> str:
    """A digest of what queries with keys (q,) are measured against, independent of their order."""
    queries = zip(keys.tolist(), judged, excluded, strict=True)
    return digest([*documents, *sorted(f"{q} {sorted(g.items())} {own}" for q, g, own in queries)])


def check_relevant(
    relevant: Sequence[Relevant], queries: int, documents: int
) -> list[dict[int, float]]:
    """Relevant documents as {position: gain} for each query."""
    if not queries:
        raise DataError("no queries to evaluate")
    if len(relevant) != queries:
        raise DataError(f"{queries:,} queries, but relevant documents for {len(relevant):,}")
    judged = []
    for number, entry in enumerate(relevant):
        places = entry if isinstance(entry, Iterable) else [entry]
        gains = entry if isinstance(entry, Mapping) else dict.fromkeys(places, 1.0)
        judged.append({int(position): float(gain) for position, gain in gains.items()})
        if not gains:
            raise DataError(f"query {number} has no relevant documents")
        for position, gain in judged[-1].items():
            if not 0 <= position < documents:
                problem = f"relevant document {position}, but there are {documents:,}"
                raise DataError(f"query {number}: {problem}")
            if not gain > 0:
                raise DataError(f"query {number}: document {position} has gain {gain}, not above 0")
    return judged


def _ranks(
    scores: NDArray[np.float32], judged: Mapping[int, float]
) -> tuple[NDArray[np.int64], Floats]:
    """Ranks of one query's relevant documents, best first, with their gains."""
    places = np.fromiter(judged, np.int64, len(judged))
    gains = np.fromiter(judged.values(), np.float64, len(judged))
    relevant = scores[places]
    if len(relevant) < 2:
        return np.array([np.count_nonzero(scores >= s - TIE) for s in relevant], np.int64), gains
    # Relevant documents by their scores, best first.
    order = np.argsort(-relevant, kind="stable")
    relevant, gains = relevant[order], gains[order]
    # Those with equal scores form a group, larger gains last.
    group = np.concatenate([[0], np.cumsum(-np.diff(relevant) > TIE)])
    gains = gains[np.lexsort((gains, group))]
    # Documents that are not relevant and stand before a group: as good as its lowest, or better.
    last_of_group = np.append(np.flatnonzero(np.diff(group)), len(relevant) - 1)
    lowest = relevant[last_of_group]
    ahead = np.array([np.count_nonzero(scores >= score - TIE) for score in lowest])
    ahead -= np.array([np.count_nonzero(relevant >= score - TIE) for score in lowest])
    # Before each of the group also stand the relevant ones that come first.
    return ahead[group] + np.arange(1, len(relevant) + 1), gains


def stsb_retrieval(
    encode: EncodeFn,
    *,
    directions: str = "both",
    form: str = "senteval",
    split: str = "test",
    folder: str | Path | None = None,
    **options: Any,
) -> Report:
    """Recall on STS-B (DiffCSE, Section 6.2 and Table 10).

    The documents are the distinct sentences of the split. The positives are the pairs with score 5,
    97 in the test split. The paper does not say whether pairs are used in both directions.

    Args:
        encode: the model.
        directions: "first" (find the second sentence with the first) or "both".
        form: "senteval" or "raw".
        split: "train", "dev" or "test".
        folder: the data folder; that of ``CONTRASENT_DATA`` by default.
        options: see :func:`ranking_report`; k is (1, 5, 10).

    Raises:
        OptionError: a value is unknown.
        DataError: data is missing or not official, or vectors are not finite.
    """
    check_choice("directions", directions, ("first", "both"))
    (pairs,) = sts_pairs("STSB", split=split, form=form, folder=folder)
    encoded = encode_distinct(encode, [pairs.first, pairs.second])
    best = np.flatnonzero(pairs.scores == 5)
    queries, answers = ([side[i] for i in best] for side in (pairs.first, pairs.second))
    if directions == "both":
        queries, answers = queries + answers, answers + queries
    query, answer = encoded.rows(queries), encoded.rows(answers)
    relevant = [{int(a): 1.0} for a in answer]
    # A pair of equal sentences is the same row: it must stay.
    exclude = np.where(query == answer, -1, query).tolist()
    ranking = rank_vectors(encoded.vectors[query], encoded.vectors, relevant, exclude=exclude)
    report = ranking_report(
        ranking,
        task="STSB-retrieval",
        split=split,
        # The two directions of a pair are one item.
        keys=item_keys(queries, answers),
        keyed=True,
        context=digest([*pairs.first, *pairs.second]),
        **{"k": CUTS, **options},
    )
    notes = {"directions": directions, "pairs": len(best), "retrieval_form": form}
    return Report(report.rows, {**report.notes, **notes, **encoded.notes}, report.items)


def caption_retrieval(encode: EncodeFn, captions: Captions, **options: Any) -> Report:
    """Evaluate a model on finding a picture's other captions by its first one.

    Args:
        encode: the model.
        captions: pictures with two captions or more each.
        options: see :func:`retrieval`; k is (1, 5, 10).
    """
    groups: dict[str, list[str]] = {}
    for text, picture in zip(captions.texts, captions.pictures, strict=True):
        groups.setdefault(picture, []).append(text)
    several = [texts for texts in groups.values() if len(texts) > 1]
    queries = [texts[0] for texts in several]
    documents = [text for texts in several for text in texts[1:]]
    ends = [0, *accumulate(len(texts) - 1 for texts in several)]
    relevant = [range(*bounds) for bounds in pairwise(ends)]
    settings: dict[str, Any] = {"task": "Flickr30k", "split": "test", "k": CUTS, **options}
    return retrieval(encode, queries, documents, relevant, **settings)


def folder_retrieval(
    encode: EncodeFn,
    path: str | Path,
    *,
    split: str = "test",
    own_ids: bool = False,
    found: Collection | None = None,
    **options: Any,
) -> Report:
    """Evaluate a model on a collection, a folder in BEIR's layout.

    A document with the id of the query is the query itself. It is left out of that query's ranking,
    as in BEIR, unless it is judged relevant; a note counts these. A relevant document that is not
    there is not found; a note counts them.

    Args:
        encode: the model.
        path: the folder.
        split: split of the relevance judgments.
        own_ids: keep these documents, for a collection whose queries and documents share ids by
            chance.
        found: content of the folder, if it was read already.
        options: see :func:`retrieval`.

    Raises:
        DataError: a file is missing or a line is invalid.
    """
    path = Path(path)
    found = found or read_collection(path, split=split)
    left_out = sum(position >= 0 for position in found.own)
    named: dict[str, Any] = {"task": path.absolute().name, "split": split, **options}
    own = None if own_ids else found.own
    named |= {"exclude": own, "missing": found.missing}
    report = retrieval(encode, found.queries, found.documents, found.relevant, **named)
    if found.missing:
        report.notes[MISSING] = found.missing
    if left_out and not own_ids:
        report.notes["document with the query's own id"] = f"excluded for {left_out:,} queries"
    return report


def nearest_documents(
    encode: EncodeFn, queries: Sequence[str], documents: Sequence[str], *, k: int = 3
) -> list[tuple[str, list[tuple[float, str]]]]:
    """Each query with its k nearest documents, (cosine, text); a query is not its own answer."""
    texts = list(dict.fromkeys(documents))
    places = {text: row for row, text in enumerate(texts)}
    queried, read = encode_search(encode, [queries], [texts])
    right = metrics.normalize(read(texts)).astype(np.float32)
    listing = []
    for query in queries:
        left = metrics.normalize(queried([query])).astype(np.float32)
        own = np.array([places.get(query, -1)])
        (rows,), (scores,) = nearest(left, right, k, own=own)
        hits = zip(scores.tolist(), rows.tolist(), strict=True)
        listing.append((query, [(score, texts[row]) for score, row in hits if row >= 0]))
    return listing


Search = Callable[[Sequence[str], int], Sequence[Sequence[str]]]
"""Queries and a number in; for each query the names of that many documents, best first."""


def search_retrieval(
    search: Search,
    documents: Sequence[str],
    judged: Judged,
    *,
    k: Sequence[int] = (1, 10),
    own_ids: bool = False,
    task: str = "search",
    **options: Any,
) -> Report:
    """Score a search on finding each query's relevant documents.

    ``search`` takes queries and a number, and returns names of ``documents``. A relevant document
    that is not there is not found; a note counts them. The rows are those of
    :func:`contrasent.evaluate.retrieval.retrieval`.
    """
    places, most = places_of(documents), max(k)
    sought = {
        query: (text, positive)
        for query, (text, gains) in judged.items()
        if (positive := {name: gain for name, gain in gains.items() if gain > 0})
    }
    wanted = {name for _, gains in sought.values() for name in gains}
    lacking = wanted - places.keys()
    if lacking == wanted:
        raise DataError(
            f"{task}: unknown documents in the judgments, such as "
            f"{min(wanted, default='')!r}; the corpus has documents such as "
            f"{next(iter(documents), '')!r}"
        )
    texts, of_queries = zip(*sought.values(), strict=True)
    ranks, found_gains, excluded, left_out = [], [], [], 0
    keys = item_keys(texts)
    results = search(texts, most if own_ids else most + 1)
    for query, gains, names in zip(sought, of_queries, results, strict=True):
        itself = None if own_ids or query in gains else places.get(query)
        excluded.append(None if itself is None else query)
        numbers = [places[name] for name in names]
        left_out += itself in numbers
        rank = {n: position for position, n in enumerate((n for n in numbers if n != itself), 1)}
        position = np.array([rank.get(places.get(name, -1), NEVER) for name in gains], np.int64)
        order = np.argsort(position, kind="stable")
        ranks.append(position[order])
        found_gains.append(np.array([*gains.values()])[order])
    ranking = Ranking(tuple(ranks), tuple(found_gains), len(documents))
    context = _context(sorted(documents), keys, of_queries, excluded)
    report = ranking_report(ranking, k=k, task=task, keys=keys, context=context, **options)
    notes = {**report.notes, "ties": "as the search orders them"}
    if lacking:
        notes[MISSING] = len(lacking)
    if left_out:
        notes["document with the query's own id"] = f"excluded for {left_out:,} queries"
    return Report(report.rows, notes, report.items)
