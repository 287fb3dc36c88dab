"""An index searched and measured with the model that made it."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contrasent.datasets.beir import read_judged
from contrasent.errors import check_count
from contrasent.evaluate.retrieval import search_retrieval
from contrasent.indexing.models import find_hits, open_index_model
from contrasent.report import Report
from contrasent.search.filters import Where
from contrasent.search.index import Hit, document_of
from contrasent.search.opening import open_index
from contrasent.stats.bootstrap import RESAMPLES

log = logging.getLogger(__name__)


def search_index(
    index: str | Path,
    queries: str | Sequence[str],
    *,
    k: int = 10,
    where: Where | None = None,
    threshold: float | None = None,
    rows: bool = False,
    exact: bool = False,
    all_rows: bool = False,
    bm25_weight: float | None = None,
    model: str | Path | None = None,
    runtime: str | None = None,
) -> list[list[Hit]]:
    """Search an index by BM25 and vectors.

    Each call opens the index and its model. For many calls use :meth:`contrasent.Index.open`, which
    keeps both open.

    Args:
        index: folder of an index, or the output of ``adapt``.
        queries: one query or several.
        k: number of documents for each query; of rows with ``rows``.
        where: a filter on metadata, such as ``{"year": {"$gte": 2024}}``.
        threshold: least confidence in percent (``Hit.confidence``), or least cosine for a model
            without calibration.
        rows: rank rows instead of documents.
        exact: leave typing errors in queries; by default they are corrected, which is logged.
        all_rows: compare every row of a large index, without binary codes.
        bm25_weight: share of BM25 in a score; the index's own if None, 0 for vectors alone.
        model: folder or name of the index's model, if it has moved.
        runtime: what runs the model; numpy by default without an accelerator.

    Returns:
        A list of hits for each query, best first. A document may have several hits, one for each
        good passage.

    Raises:
        InputError: the folder is not an index, or is damaged.
        OptionError: an option has an invalid value.
        ModelError: the index's model cannot be found.

    Examples:
        >>> from contrasent import index_folder, search_index
        >>> made = index_folder("examples/notes.jsonl", "my-notes", metadata=["year"])
        >>> hits = search_index("my-notes", ["a leak", "visitors"], k=2, where={"year": 2024})
        >>> [hit.text for hit in hits[0]][0]
        'The roof above the workshop leaks near the skylight. Two offers asked for.'
        >>> hits[0][0].metadata
        {'year': 2024}
    """
    check_count("k", k)
    texts = [queries] if isinstance(queries, str) else list(queries)
    opened = open_index(index)
    encode = open_index_model(opened, None if model is None else str(model), runtime=runtime)
    how: dict[str, Any] = {"k": k, "threshold": threshold, "where": where, "all_rows": all_rows}
    how |= {"ranker": opened.ranker.with_bm25(bm25_weight)}
    searched, _, hits = find_hits(opened, texts, encode, rows=rows, exact=exact, **how)
    for before, text in zip(texts, searched, strict=True):
        if text != before:
            log.warning("searched for %r, not %r", text, before)
    return hits


def evaluate_index(
    index: str | Path,
    collection: str | Path,
    *,
    bm25_weight: float | None = None,
    own_ids: bool = False,
    runtime: str | None = None,
    batch_size: int = 64,
    batch_invariant: bool = False,
    resamples: int = RESAMPLES,
) -> Report:
    """Evaluate an index on a collection with relevance judgments.

    Args:
        index: folder of an index, or the output of ``adapt``.
        collection: folder with queries and relevance judgments in BEIR's layout. Its documents are
            rows, or the documents whose passages are rows.
        bm25_weight: share of BM25 in a score; the index's own if None.
        own_ids: also rank a document whose id is the query's.
        runtime: what runs the model; numpy by default without an accelerator.
        batch_size: queries in a forward pass.
        batch_invariant: compute the same bits for any batch.
        resamples: bootstrap resamples of the 95 % intervals; 0 for none.

    Returns:
        nDCG, recall and MRR over the documents of the index; the notes count judged documents that
        are not in it.

    Raises:
        DataError: none of the judged documents is in the index.
        ModelError: the index's model cannot be found.
    """
    judged, opened = read_judged(Path(collection)), open_index(index)
    ranker = opened.ranker.with_bm25(bm25_weight)
    encode = open_index_model(
        opened, runtime=runtime, batch_size=batch_size, batch_invariant=batch_invariant
    )
    report = search_retrieval(
        lambda queries, k: opened.documents(queries, encode, k, ranker),
        [*dict.fromkeys(document_of(row.id, row.metadata) for row in opened.every())],
        judged,
        own_ids=own_ids,
        task=Path(collection).absolute().name,
        split="test",
        resamples=resamples,
    )
    notes = {**report.notes, "BM25 weight": ranker.bm25_weight, "rows": len(opened)}
    if encode.truncated:
        notes["cut"] = " ".join(encode.notes)
    if opened.bm25_only:
        notes["not encoded yet"] = opened.bm25_only
    return replace(report, notes=notes)
