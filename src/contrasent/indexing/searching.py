"""An index searched and measured with the model that made it."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contrasent.datasets.beir import read_judged
from contrasent.evaluate.retrieval import search_retrieval
from contrasent.indexing.models import find_hits, open_index_model
from contrasent.report import Report
from contrasent.search.filters import Where
from contrasent.search.index import Hit, check_k, document_of
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
    word_weight: float | None = None,
    model: str | Path | None = None,
    runtime: str | None = None,
) -> list[list[Hit]]:
    """Find the texts of an index that answer queries best, by words and vectors.

    The model of the index is opened at each call; for many calls, open both once with
    :meth:`contrasent.Index.open` and :meth:`contrasent.Encoder.load`.

    Args:
        index: folder of an index, or one that ``adapt`` left.
        queries: one text or several.
        k: documents to find for each query; rows with ``rows``.
        where: only rows whose metadata matches, see :mod:`contrasent.search.filters`.
        threshold: smallest sureness in percent that counts (``Hit.sure``); smallest cosine where
            the model is not calibrated.
        rows: find rows, however many are of one document.
        exact: search for the words as they are; else typing errors are repaired, which is logged.
        all_rows: compare every row, even of a large index.
        word_weight: share of words in a score; the index's own if None, 0 for vectors alone.
        model: where the model of the index is now, if it has moved.
        runtime: what computes the model; numpy where there is no accelerator.

    Returns:
        For each query its hits, best first; several of one document if its passages are good.

    Raises:
        InputError: there is no index, or it is damaged.
        OptionError: an option has a value that it cannot have.
        ModelError: the model of the index is not there.

    Examples:
        >>> from contrasent import index_folder, search_index
        >>> made = index_folder("examples/notes.jsonl", "my-notes", metadata=["year"])
        >>> hits = search_index("my-notes", ["a leak", "visitors"], k=2, where={"year": 2024})
        >>> [hit.text for hit in hits[0]][0]
        'The roof above the workshop leaks near the skylight. Two offers asked for.'
        >>> hits[0][0].metadata
        {'year': 2024}
    """
    check_k(k)
    texts = [queries] if isinstance(queries, str) else list(queries)
    opened = open_index(index)
    encode = open_index_model(opened, None if model is None else str(model), runtime=runtime)
    how: dict[str, Any] = {"k": k, "threshold": threshold, "where": where, "all_rows": all_rows}
    how |= {"ranker": opened.ranker.with_words(word_weight)}
    searched, _, hits = find_hits(opened, texts, encode, rows=rows, exact=exact, **how)
    for before, text in zip(texts, searched, strict=True):
        if text != before:
            log.warning("searched for %r, not %r", text, before)
    return hits


def evaluate_index(
    index: str | Path,
    collection: str | Path,
    *,
    word_weight: float | None = None,
    own_ids: bool = False,
    runtime: str | None = None,
    batch_size: int = 64,
    batch_invariant: bool = False,
    resamples: int = RESAMPLES,
) -> Report:
    """Measure an index as it is searched, by the judged queries of a collection.

    Args:
        index: folder of an index, or one that ``adapt`` left.
        collection: queries and relevance judgments in BEIR's layout; judged documents are rows,
            or the documents that rows are passages of.
        word_weight: share of words in a score; the index's own if None.
        own_ids: rank a document with the query's own id too.
        runtime: what computes the model; numpy where there is no accelerator.
        batch_size: queries a forward pass.
        batch_invariant: the same bits whatever the batch.
        resamples: bootstrap resamples of the 95 % intervals; 0 for none.

    Returns:
        nDCG, recall and MRR over the documents of the index; the notes count what is not there.

    Raises:
        DataError: no judged document is in the index.
        ModelError: the model of the index is not there.
    """
    judged, opened = read_judged(Path(collection)), open_index(index)
    ranker = opened.ranker.with_words(word_weight)
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
    notes = {**report.notes, "word weight": ranker.word_weight, "rows": len(opened)}
    if encode.truncated:
        notes["cut"] = " ".join(encode.notes)
    if opened.words_only:
        notes["not encoded yet"] = opened.words_only
    return replace(report, notes=notes)
