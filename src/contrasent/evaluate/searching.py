"""Retrieval as a search gives it, whatever ranks there: the first documents of judged queries."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from contrasent.datasets.beir import Judged, places_of
from contrasent.errors import DataError
from contrasent.evaluate.retrieval import Ranking, ranking_report
from contrasent.report import Report
from contrasent.stats.bootstrap import digest, item_keys

Search = Callable[[Sequence[str], int], Sequence[Sequence[str]]]
"""Queries and a number in; for each query the names of so many documents, best first."""


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

    ``search`` takes queries and a number, and returns names of ``documents``. A judged document
    that is not there is not found; a note counts them. The rows are those of
    :func:`contrasent.evaluate.retrieval.retrieval`.
    """
    places, most = places_of(documents), max(k)
    positive = {
        query: (text, {name: gain for name, gain in gains.items() if gain > 0})
        for query, (text, gains) in judged.items()
    }
    sought = {query: entry for query, entry in positive.items() if entry[1]}
    wanted = {name for _, gains in sought.values() for name in gains}
    lacking = wanted - places.keys()
    if lacking == wanted:
        raise DataError(
            f"{task}: no judged document is there (for example {min(wanted, default='')!r}; "
            f"documents are named such as {next(iter(documents), '')!r})"
        )
    texts = [text for text, _ in sought.values()]
    ranks, found_gains, left_out, beyond = [], [], 0, len(documents) + most
    found = search(texts, most if own_ids else most + 1)
    for (query, (_, gains)), names in zip(sought.items(), found, strict=True):
        itself = None if own_ids or query in gains else places.get(query)
        numbers = [places[name] for name in names]
        left_out += itself in numbers
        rank = {n: at for at, n in enumerate((n for n in numbers if n != itself), 1)}
        at = np.array([rank.get(places.get(name, -1), beyond) for name in gains], np.int64)
        order = np.argsort(at, kind="stable")
        ranks.append(at[order])
        found_gains.append(np.array([*gains.values()])[order])
    report = ranking_report(
        Ranking(tuple(ranks), tuple(found_gains), len(documents)),
        k=k,
        task=task,
        keys=item_keys(texts),
        context=digest(sorted(documents)),
        **options,
    )
    notes = {**report.notes, "ties": "as the search orders them"}
    if lacking:
        notes["judged documents that are not there"] = len(lacking)
    if left_out:
        notes["document with the query's own id"] = f"left out for {left_out:,} queries"
    return Report(report.rows, notes, report.items)
