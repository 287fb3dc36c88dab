"""``contrasent index MODEL CORPUS -o INDEX``."""

import time
from dataclasses import asdict
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent import progress
from contrasent.cli.loading import Counting, Model, find_model, lasting_name, open_model
from contrasent.cli.options import (
    BatchSize,
    Column,
    Json,
    LexicalWeight,
    MaxTokens,
    ModelName,
    Overwrite,
    Pooler,
    Quiet,
    emit,
    note_to_stderr,
    quieten,
)
from contrasent.errors import MissingExtraError, OptionError, check_choice

if TYPE_CHECKING:
    from contrasent.search.index import Index
    from contrasent.search.opening import AnyIndex
    from contrasent.search.records import Records

BACKENDS = ("exact", "binary", "faiss", "milvus")


def index(
    model: ModelName,
    corpus: Annotated[str, typer.Argument(help="File, folder, or - for standard input.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Index folder to make.")],
    column: Column = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column with the ids; row numbers if not given.")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(help="Columns to keep as metadata: a,b,c; * for all others.")
    ] = None,
    metric: Annotated[str, typer.Option(help="cosine or dot.")] = "cosine",
    backend: Annotated[
        str,
        typer.Option(help="exact; binary or faiss, approximate, for millions of texts; or milvus."),
    ] = "exact",
    kind: Annotated[
        str, typer.Option(help="Of faiss: hnsw (accurate) or ivfpq (small, on disk).")
    ] = "hnsw",
    uri: Annotated[
        str,
        typer.Option(
            help="Of a Milvus server, http://HOST:19530; a file in the index if not given."
        ),
    ] = "",
    collection: Annotated[
        str, typer.Option(help="Name of the collection in Milvus.")
    ] = "contrasent",
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="To be searched by words (BM25) and vectors together.")
    ] = False,
    lexical_weight: LexicalWeight = None,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    batch: BatchSize = 64,
    add: Annotated[bool, typer.Option("--add", help="Add to an index that exists.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Replace rows of the same id, add the others.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Encode a corpus once and keep vectors, texts, ids and metadata in a folder to search."""
    quieten(quiet)
    from contrasent.search import index as stored
    from contrasent.search.checks import check_approximate, check_metric, check_target
    from contrasent.search.manifest import FORMER_KINDS, read_manifest
    from contrasent.search.records import Records
    from contrasent.search.records import column as position

    check_metric(metric)
    backend = FORMER_KINDS.get(backend, backend)
    check_backend(backend, kind)
    check_hybrid(hybrid, lexical_weight, backend, changing=add or update)
    approximate = {"binary": "binary", "faiss": kind}.get(backend)
    if add or update:
        check_change(
            output, backend, add=add, update=update, overwrite=overwrite, id_column=id_column
        )
    else:
        check_target(output, overwrite)
    if approximate is not None:
        there = read_manifest(output).metric if add or update else metric
        check_approximate(approximate, there, option="--backend")
    rows = Records(
        corpus,
        text=None if column is None else position(column),
        identity=None if id_column is None else position(id_column),
        metadata=[position(name.strip()) for name in metadata.split(",")] if metadata else (),
    )
    folder = find_model(model)
    encode = open_model(folder, batch=batch, pooler=pooler, max_tokens=max_tokens)
    loading: dict[str, Any] = {"pooler": pooler, "max_tokens": max_tokens}
    loading |= fusion_setting(hybrid, lexical_weight)
    recall = None
    began = time.monotonic()
    made: AnyIndex
    if add or update:
        made = change(output, encode, rows, update=update)
    else:
        about: dict[str, Any] = {
            "model": encode.encoder.identity,
            "source": lasting_name(model),
            "metric": metric,
            "settings": loading,
        }
        if backend == "milvus":
            from contrasent.search.milvus_writer import build_milvus

            made = build_milvus(output, encode, rows, uri=uri, collection=collection, **about)
            recall = made.recall
        else:
            made = stored.Index.create(output, encode, rows, overwrite=overwrite, **about)
    few = ""
    if approximate is not None:
        from contrasent.search.approximate import FEWEST, build_approximate

        if len(made) < FEWEST:
            few = f"fewer than {FEWEST:,} texts are searched faster exactly: no {backend} index"
        else:
            built = build_approximate(output, approximate)
            made, part = built, built.manifest.backend
            recall = None if part is None else float(part.facts["recall"])
    if isinstance(made, stored.Index) and made.folder is not None:
        count_words(made)
    seconds = time.monotonic() - began
    facts = {
        "index": str(output),
        "texts": len(made),
        "dimension": made.dimension,
        "metric": made.metric,
        "model": model,
        "identity": made.model,
        "backend": backend_name(made),
        "hybrid": made.manifest.settings.get("hybrid"),
        "recall@10": recall,
        "blank_lines": rows.skipped,
        "truncated": encode.truncated,
        "seconds": round(seconds, 3),
    }
    if as_json:
        emit(facts)
    else:
        typer.echo(
            f"{output}: {len(made):,} texts, {made.dimension} dimensions, {seconds:.1f} s\n"
            + (f"recall@10 against exact search {recall:.4f} ({backend})\n" if recall else "")
            + f'search it: contrasent search {output} "..."'
        )
    if few:
        note_to_stderr(few, quiet=quiet)
    if rows.skipped:
        note_to_stderr(f"{rows.skipped:,} blank lines were passed over", quiet=quiet)
    encode.report_cut(quiet=quiet)


def check_hybrid(
    hybrid: bool, lexical_weight: float | None, backend: str, *, changing: bool
) -> None:
    """Refuse, before any work, a hybrid index that cannot be made."""
    if lexical_weight is not None and not hybrid:
        raise OptionError("--lexical-weight", lexical_weight, "goes with --hybrid")
    if hybrid and backend == "milvus":
        raise OptionError("--hybrid", True, "needs an index in a folder, not one in Milvus")
    if hybrid and changing:
        raise OptionError("--hybrid", True, "is chosen when an index is built, not when it changes")


def fusion_setting(hybrid: bool, lexical_weight: float | None) -> dict[str, Any]:
    """What an index's settings say of the fusion that it is searched with."""
    from contrasent.search.hybrid import SETTING, Fusion

    fusion = Fusion() if lexical_weight is None else Fusion(lexical_weight)
    return {SETTING: asdict(fusion)} if hybrid else {}


def count_words(index: "Index") -> None:
    """Count the words of an index that is searched by them, so that no search has to."""
    from contrasent.search.hybrid import Hybrid, own_fusion

    if own_fusion(index.manifest.settings) is not None:
        Hybrid.open(index)


def check_backend(backend: str, kind: str) -> None:
    """Refuse, before any work, a back end that is unknown, or Milvus that is not installed."""
    from contrasent.search.manifest import FAISS_KINDS

    check_choice("--backend", backend, BACKENDS)
    check_choice("--kind", kind, FAISS_KINDS)
    if backend == "milvus" and find_spec("pymilvus") is None:
        raise MissingExtraError("pymilvus", "milvus", "--backend milvus")


def backend_name(index: "AnyIndex") -> str:
    """The back end that holds an index."""
    from contrasent.search.index import Index

    if not isinstance(index, Index):
        return "milvus"
    part = index.manifest.backend
    kind = None if part is None else part.facts.get("kind")
    return "exact" if kind is None else "binary" if kind == "binary" else f"faiss {kind}"


def check_change(
    output: Path, backend: str, *, add: bool, update: bool, overwrite: bool, id_column: str | None
) -> None:
    """Refuse, before any work, a change of an index that cannot be made."""
    from contrasent.search.manifest import read_manifest
    from contrasent.search.opening import in_milvus

    if add and update:
        raise OptionError("--add", "--update", "choose one of the two")
    if overwrite:
        raise OptionError("--overwrite", True, "replaces an index; --add and --update change one")
    if update and id_column is None:
        raise OptionError("--update", True, "needs --id COLUMN, to know which rows to replace")
    if in_milvus(output):
        if backend in ("binary", "faiss"):
            raise OptionError("--backend", backend, f"{output} is in Milvus, which has its own")
        return
    if backend == "milvus":
        raise OptionError("--backend", backend, f"{output} is no index in Milvus; build one anew")
    read_manifest(output)


def change(output: Path, encode: Counting[Model], rows: "Records", *, update: bool) -> "AnyIndex":
    """Add rows to an index, or replace those of the same ids; in one commit, but for Milvus."""
    from contrasent.search.opening import open_writer
    from contrasent.search.segment_writer import ROWS_AT_ONCE

    stream = iter(rows)
    identity = encode.encoder.identity
    with open_writer(output) as writer, progress.task("index", unit="texts") as advance:
        writer.index.check_model(identity, "the model")
        while block := list(islice(stream, ROWS_AT_ONCE)):
            texts = [text for text, _, _ in block]
            given = [name for _, name, _ in block if name is not None]
            metadata = [value for _, _, value in block]
            if update:
                writer.update(texts, encode, ids=given, metadata=metadata)
            else:
                writer.add(texts, encode, ids=given or None, metadata=metadata)
            advance(len(block))
    return writer.index
