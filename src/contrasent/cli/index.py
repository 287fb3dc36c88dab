"""``contrasent index MODEL CORPUS -o INDEX``, ``index INDEX --model NEW`` and ``--remove ID``."""

import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from contrasent.cli import options
from contrasent.cli.index_changes import (
    Mapping,
    change,
    change_model,
    check_change,
    count_words,
    remove_rows,
)
from contrasent.cli.loading import find_model, lasting_name, open_model
from contrasent.cli.workers import check_workers, index_vectors
from contrasent.errors import MissingExtraError, OptionError, UserError, check_choice

if TYPE_CHECKING:
    from contrasent.search.encoded import EncodedRecords
    from contrasent.search.index import Index
    from contrasent.search.opening import AnyIndex
    from contrasent.search.records import Records

BACKENDS = ("exact", "binary", "faiss", "milvus")


@options.command
def index(
    model: str,
    loading: options.Encoding,
    workers: options.Computing,
    corpus: Annotated[str | None, typer.Argument()] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    new_model: Annotated[str | None, typer.Option("--model", metavar="NEW")] = None,
    mapped: Annotated[bool, typer.Option("--map")] = False,
    map_limit: Annotated[float, typer.Option(min=0, max=1)] = 0.1,
    sample: Annotated[int, typer.Option(min=300)] = 5000,
    column: options.Column = None,
    id_column: Annotated[str | None, typer.Option("--id")] = None,
    metadata: str | None = None,
    metric: str = "cosine",
    backend: str = "exact",
    kind: str = "hnsw",
    uri: str = "",
    collection: str = "contrasent",
    encoded: bool = False,
    hybrid: bool = False,
    lexical_weight: options.LexicalWeight = None,
    add: bool = False,
    update: bool = False,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="ID")] = None,
    remove_where: Annotated[
        list[str] | None, typer.Option("--remove-where", metavar="CONDITION")
    ] = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Encode a corpus once and keep vectors, texts, ids and metadata in a folder to search.

    Options:
        model: Model folder or name; with --model or --remove the index that changes.
        corpus: File, folder, or - for standard input.
        output: Index folder to make.
        new_model: Give the index the vectors of this model, in place: a run that was killed goes
            on, and the old vectors answer until all are there.
        mapped: With --model: map the vectors linearly instead of encoding.
        map_limit: With --map: stop if more than this share of the ten nearest may be lost.
        sample: With --map: texts to encode, to fit and to measure the map.
        id_column: Column with the ids; row numbers if not given.
        metadata: Columns to keep as metadata: a,b,c; * for all others.
        metric: cosine or dot.
        backend: exact; binary or faiss, approximate, for millions of texts; or milvus.
        kind: With faiss: hnsw (accurate) or ivfpq (small, on disk).
        uri: Milvus server, http://HOST:19530; a file in the index if not given.
        collection: Name of the collection in Milvus.
        encoded: CORPUS is parquet with vectors in it, as encode writes it: nothing is encoded.
        hybrid: Search it by words (BM25) and vectors together.
        add: Add to an index that exists.
        update: Replace rows of the same id, add the others.
        remove: Remove the row with this id from an index; can be repeated.
        remove_where: Remove rows whose metadata matches: year<2000, or a JSON filter.
    """
    building = {"CORPUS": corpus, "-o": output, "--add": add or None}
    mapping = Mapping(map_limit, sample) if mapped else None
    if remove or remove_where:
        given = building | {"--model": new_model, "--map": mapped or None}
        return remove_rows(Path(model), remove or [], remove_where or [], given)
    if new_model is not None or mapping is not None:
        return change_model(Path(model), new_model, loading, mapping, building)
    if corpus is None or output is None:
        missing = "CORPUS (File, folder, or -)" if corpus is None else "--output/-o (Index folder)"
        raise UserError(f"{missing} is missing; see 'contrasent index --help'")
    from contrasent.search import index as stored
    from contrasent.search.checks import check_approximate, check_metric, check_target
    from contrasent.search.manifest import FORMER_KINDS, LOADED, read_manifest

    check_metric(metric)
    backend = FORMER_KINDS.get(backend, backend)
    _check_backend(backend, kind)
    _check_hybrid(hybrid, lexical_weight, changing=add or update)
    approximate = {"binary": "binary", "faiss": kind}.get(backend)
    if add or update:
        check_change(
            output, backend, add=add, update=update, overwrite=overwrite, id_column=id_column
        )
    elif backend != "milvus" or not (output / LOADED).is_file():  # a load that was killed
        check_target(output, overwrite)
    if approximate is not None:
        there = read_manifest(output).metric if add or update else metric
        check_approximate(approximate, there, option="--backend")
    check_workers(workers, changing=add or update)
    _check_encoded(encoded, workers.engine, changing=add or update)
    rows = _rows(corpus, column, id_column, metadata, encoded=encoded)
    folder = find_model(model)
    encode = open_model(folder, loading, light=True)
    rows.check(encode.encoder.identity, model, words=hybrid)
    recall = None
    began = time.monotonic()
    made: AnyIndex
    if add or update:
        made = change(output, encode, cast("Records", rows), update=update)
    else:
        about: dict[str, Any] = {
            "model": encode.encoder.identity,
            "source": lasting_name(model),
            "metric": metric,
            "settings": {
                "pooler": loading.pooler,
                "max_tokens": loading.max_tokens,
                **_fusion_setting(hybrid, lexical_weight),
            },
        }
        with index_vectors(folder, corpus, output, encode, workers, column) as vectors:
            if backend == "milvus":
                from contrasent.search.milvus_writer import build_milvus

                made = build_milvus(output, vectors, rows, uri=uri, collection=collection, **about)
                recall = made.recall
            else:
                made = stored.Index.create(output, vectors, rows, overwrite=overwrite, **about)
    notes = []
    if approximate is not None:
        from contrasent.search.approximate import FEWEST, build_approximate

        if len(made) < FEWEST:
            few = f"fewer than {FEWEST:,} texts are searched faster exactly"
            notes.append(f"{few}: no {backend} index")
        else:
            made = build_approximate(output, approximate)
            recall = _recall(made)
    count_words(made)
    seconds = time.monotonic() - began
    facts = {
        "index": str(output),
        "texts": len(made),
        "dimension": made.dimension,
        "metric": made.metric,
        "model": model,
        "identity": made.model,
        "backend": _backend_name(made),
        "hybrid": made.manifest.settings.get("hybrid"),
        "recall@10": recall,
        "blank_lines": rows.skipped,
        "truncated": encode.truncated,
        "seconds": round(seconds, 3),
    }
    if rows.skipped:
        notes.append(f"{rows.skipped:,} blank lines were passed over")
    return options.Output(
        facts,
        f"{output}: {len(made):,} texts, {made.dimension} dimensions, {seconds:.1f} s\n"
        + (f"recall@10 against exact search {recall:.4f} ({backend})\n" if recall else "")
        + f'search it: contrasent search {output} "..."',
        [*notes, *encode.notes],
    )


def _rows(
    corpus: str, column: str | None, id_column: str | None, metadata: str | None, *, encoded: bool
) -> "Records | EncodedRecords":
    """The rows to index: of any file, or of parquet with their vectors."""
    from contrasent.search.encoded import EncodedRecords
    from contrasent.search.records import Records
    from contrasent.text.tables import column as position

    names = [name.strip() for name in metadata.split(",")] if metadata else []
    if encoded:
        return EncodedRecords(corpus, text=column, identity=id_column, metadata=names)
    return Records(
        corpus,
        text=position(column),
        identity=position(id_column),
        metadata=[position(name) for name in names],
    )


def _check_encoded(encoded: bool, engine: str | None, *, changing: bool) -> None:
    """Reject vectors for a change of an index, and an engine that has nothing to encode."""
    if encoded and changing:
        raise OptionError("--encoded", True, "is for an index that is built, not for a change")
    if encoded and engine is not None:
        raise OptionError(
            "--engine", engine, "encodes, and --encoded is for vectors that are there"
        )


def _check_hybrid(hybrid: bool, lexical_weight: float | None, *, changing: bool) -> None:
    """Refuse, before any work, a hybrid index that cannot be made."""
    if lexical_weight is not None and not hybrid:
        raise OptionError("--lexical-weight", lexical_weight, "goes with --hybrid")
    if hybrid and changing:
        raise OptionError("--hybrid", True, "is chosen when an index is built, not when it changes")


def _fusion_setting(hybrid: bool, lexical_weight: float | None) -> dict[str, Any]:
    """The fusion that an index's settings name."""
    from contrasent.search.hybrid import SETTING, Fusion

    fusion = Fusion() if lexical_weight is None else Fusion(lexical_weight)
    return {SETTING: asdict(fusion)} if hybrid else {}


def _check_backend(backend: str, kind: str) -> None:
    """Refuse, before any work, a back end that is unknown, or Milvus that is not installed."""
    from contrasent.search.manifest import FAISS_KINDS

    check_choice("--backend", backend, BACKENDS)
    check_choice("--kind", kind, FAISS_KINDS)
    if backend == "milvus" and find_spec("pymilvus") is None:
        raise MissingExtraError("pymilvus", "milvus", "--backend milvus")


def _backend_name(index: "AnyIndex") -> str:
    """The back end that holds an index."""
    from contrasent.search.index import Index

    if not isinstance(index, Index):
        return "milvus"
    part = index.manifest.backend
    kind = None if part is None else part.facts.get("kind")
    return "exact" if kind is None else "binary" if kind == "binary" else f"faiss {kind}"


def _recall(index: "Index") -> float | None:
    """Recall@10 of an approximate index against exact search."""
    part = index.manifest.backend
    return None if part is None else float(part.facts["recall"])
