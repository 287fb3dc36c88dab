"""``contrasent search INDEX "query"``."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.cli.loading import Counting, find_model, open_model
from contrasent.errors import InputError, ModelError, OptionError

if TYPE_CHECKING:
    from contrasent.model.prompts import Model
    from contrasent.search.index import Index

WIDTH = 100


@options.command
def search(
    index: Path,
    loading: Annotated[options.Loading, "runtime"],
    query: Annotated[list[str] | None, typer.Argument(metavar='"QUERY"...')] = None,
    k: Annotated[int, typer.Option("-k")] = 10,
    threshold: float | None = None,
    where: list[str] | None = None,
    exact: bool = False,
    word_weight: options.WordWeight = None,
    vectors_only: options.VectorsOnly = False,
    queries: Path | None = None,
    model: str | None = None,
) -> options.Output:
    """Find the texts of an index that answer a query best, by words and vectors.

    Options:
        index: Index folder, made by 'contrasent index'.
        query: What to find.
        k: Results for each query.
        threshold: Leave out results whose cosine with the query is smaller.
        where: Only rows whose metadata matches: year>=2000, or a JSON filter.
        exact: Look at every row, even of a large index.
        queries: File with one query a line, besides those named.
        model: Where the index's model is now, if it has moved.
    """
    from contrasent.search.filters import parse_where
    from contrasent.search.index import check_k
    from contrasent.search.opening import open_index
    from contrasent.search.ranking import Ranker

    check_k(k)
    condition = parse_where(where or [])
    wanted = list(query or [])
    if queries is not None:
        wanted += read_queries(queries)
    if not wanted:
        raise OptionError("QUERY", "", "name at least one query, or --queries FILE")
    weight = options.chosen_weight(word_weight, vectors_only)
    opened = open_index(index)
    ranker = opened.ranker if weight is None else Ranker(weight)
    encode = model_of(opened, model, loading)
    began = time.monotonic()
    found = opened.search(
        wanted,
        encode=encode,
        k=k,
        threshold=threshold,
        where=condition,
        ranker=ranker,
        exact=exact,
    )
    seconds = time.monotonic() - began
    facts = {
        "index": str(index),
        "model": opened.model,
        "k": k,
        "word_weight": ranker.word_weight,
        "threshold": threshold,
        "where": condition,
        "seconds": round(seconds, 4),
        "truncated": encode.truncated,
        "results": [
            {"query": text, "hits": [asdict(hit) for hit in hits]}
            for text, hits in zip(wanted, found, strict=True)
        ],
    }
    lines = []
    for text, hits in zip(wanted, found, strict=True):
        lines += [text] if len(wanted) > 1 else []
        lines += [
            f"{rank:>3}  {hit.score:.4f}  {hit.id}  {options.shortened(hit.text, WIDTH)}"
            for rank, hit in enumerate(hits, 1)
        ] or ["nothing found"]
    return options.Output(facts, "\n".join(lines), encode.notes)


def model_of(index: "Index", model: str | None, loading: options.Loading) -> "Counting[Model]":
    """Load the model that an index was built with."""
    name = model or index.facts.source
    if not name:
        raise ModelError(f"{index.folder}: does not say which model made it; name it with --model")
    try:
        folder = find_model(name)
    except ModelError as error:
        if model is not None:
            raise
        raise ModelError(f"{error} (the index's model; if it has moved, use --model)") from error
    stored: dict[str, Any] = {
        key: index.facts.settings.get(key) for key in ("pooler", "max_tokens")
    }
    encode = open_model(folder, replace(loading, **stored), light=True)
    index.check_model(encode.encoder.identity, f"the model {name}")
    return encode


def read_queries(path: Path) -> list[str]:
    """One query a line; blank lines are left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(path, f"is not UTF-8 at byte {error.start}") from error
    return [line.strip() for line in lines if line.strip()]
