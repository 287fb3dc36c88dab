"""Retrieval on named collections, and listings to look at.

- STS-B as a collection (DiffCSE, Table 10): its test sentences are searched with one side of each
  pair whose score is 5.
- Captions (SimCSE, Table 8; SimCSE++, Table 7): what two models find, side by side; and, since the
  captions of a picture belong together, the numbers as well.
- Any folder in BEIR's layout.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contrasent import metrics
from contrasent.errors import check_choice
from contrasent.evaluate.retrieval import rank_vectors, ranking_report, retrieval
from contrasent.evaluate.vectors import encode_distinct, encode_search
from contrasent.report import Report
from contrasent.stats.bootstrap import digest, item_keys
from contrasent.text.captions import Captions
from contrasent.text.datasets import sts_pairs
from contrasent.text.qrels import Collection, read_collection
from contrasent.types import EncodeFn

DIRECTIONS = ("first", "both")
CUTS = (1, 5, 10)

Listing = dict[str, dict[str, list[tuple[float, str]]]]
"""Of each query, what each model found: (cosine, document), best first."""


def stsb_retrieval(
    encode: EncodeFn,
    *,
    directions: str = "both",
    form: str = "senteval",
    split: str = "test",
    folder: Path | None = None,
    **options: Any,
) -> Report:
    """Recall on STS-B (DiffCSE, Section 6.2 and Table 10).

    The corpus is every distinct sentence of the split. Pairs with score 5 are the positives, 97 in
    the test split; a query is not its own answer. The paper does not say whether each pair is used
    in one direction or in both.

    Args:
        encode: the model.
        directions: "first" (find the second sentence with the first) or "both".
        form: "senteval" or "raw".
        split: "train", "dev" or "test".
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.
        options: see :func:`contrasent.evaluate.retrieval.ranking_report`; k is (1, 5, 10).

    Raises:
        OptionError: an unknown value.
        DataError: data that are missing or not official, or vectors that are not finite.
    """
    check_choice("directions", directions, DIRECTIONS)
    (pairs,) = sts_pairs("STSB", split=split, form=form, folder=folder)
    encoded = encode_distinct(encode, [pairs.first, pairs.second])
    best = np.flatnonzero(pairs.scores == 5)
    query_pairs = [(pairs.first[i], pairs.second[i]) for i in best]
    if directions == "both":
        query_pairs += [(b, a) for a, b in query_pairs]
    query = encoded.rows([q for q, _ in query_pairs])
    answer = encoded.rows([a for _, a in query_pairs])
    ranking = rank_vectors(
        encoded.vectors[query],
        encoded.vectors,
        [{int(a): 1.0} for a in answer],
        # A pair of equal sentences is the same row: it must stay.
        exclude=[-1 if q == a else int(q) for q, a in zip(query, answer, strict=True)],
    )
    found = ranking_report(
        ranking,
        task="STSB-retrieval",
        split=split,
        # The two directions of a pair are one item.
        keys=item_keys([q for q, _ in query_pairs], [a for _, a in query_pairs]),
        context=digest([*pairs.first, *pairs.second]),
        **{"k": CUTS, **options},
    )
    notes = {"directions": directions, "pairs": len(best), "retrieval_form": form}
    return Report(found.rows, {**found.notes, **notes, **encoded.notes}, found.items)


def caption_retrieval(encode: EncodeFn, captions: Captions, **options: Any) -> Report:
    """Find a picture's other captions with its first one.

    Args:
        encode: the model.
        captions: several pictures with two captions or more.
        options: see :func:`contrasent.evaluate.retrieval.retrieval`; k is (1, 5, 10).
    """
    groups: dict[str, list[str]] = {}
    for text, picture in zip(captions.texts, captions.pictures, strict=True):
        groups.setdefault(picture, []).append(text)
    queries: list[str] = []
    documents: list[str] = []
    relevant: list[range] = []
    for texts in groups.values():
        if len(texts) < 2:
            continue
        queries.append(texts[0])
        relevant.append(range(len(documents), len(documents) + len(texts) - 1))
        documents += texts[1:]
    given: dict[str, Any] = {"task": "Flickr30k", "split": "test", "k": CUTS, **options}
    return retrieval(encode, queries, documents, relevant, **given)


def folder_retrieval(
    encode: EncodeFn,
    path: Path,
    *,
    split: str = "test",
    own_ids: bool = False,
    found: Collection | None = None,
    **options: Any,
) -> Report:
    """Retrieval on a folder in BEIR's layout; see :func:`contrasent.text.qrels.read_collection`.

    A document whose id is the query's is the query itself, and no answer: it is left out of that
    query's ranking (BEIR's rule), unless it is judged relevant. A note counts them.

    Args:
        encode: the model.
        path: the folder.
        split: of the judgements.
        own_ids: keep such documents, for a collection whose queries and documents have equal ids by
            chance.
        found: what the folder holds, if it was read already.
        options: see :func:`contrasent.evaluate.retrieval.retrieval`.

    Raises:
        DataError: a file is missing or a line is not of its form.
    """
    found = found or read_collection(path, split=split)
    left_out = sum(position >= 0 for position in found.own)
    report = retrieval(
        encode,
        found.queries,
        found.documents,
        found.relevant,
        exclude=None if own_ids else found.own,
        task=path.absolute().name,
        split=split,
        **options,
    )
    if left_out and not own_ids:
        rule = f"left out for {left_out:,} queries"
        report.notes["document with the query's own id"] = rule
    return report


def side_by_side(
    models: Mapping[str, EncodeFn], queries: Sequence[str], documents: Sequence[str], *, k: int = 3
) -> Listing:
    """What each model finds for each query, best first; a query is not its own answer.

    Args:
        models: names and models, two or more to compare.
        queries: q texts.
        documents: the texts to search; equal ones count once.
        k: how many to list.
    """
    texts = list(dict.fromkeys(documents))
    listing: Listing = {query: {} for query in queries}
    for name, encode in models.items():
        queried, read = encode_search(encode, [queries], [texts])
        right = metrics.unit(read(texts)).astype(np.float32)
        for query in queries:
            own = metrics.unit(queried([query])).astype(np.float32)
            scores = (right @ own[0]).astype(np.float64)
            scores[[i for i, text in enumerate(texts) if text == query]] = -np.inf
            best = np.argsort(-scores, kind="stable")[:k]
            listing[query][name] = [(float(scores[i]), texts[i]) for i in best]
    return listing
