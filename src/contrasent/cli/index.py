"""``contrasent index MODEL CORPUS -o INDEX``."""

import time
from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli.loading import find_model, lasting_name, load_model
from contrasent.cli.options import (
    BatchSize,
    Json,
    MaxTokens,
    Overwrite,
    Pooler,
    Quiet,
    emit,
    quieten,
    remark,
)


def index(
    model: Annotated[str, typer.Argument(help="Model folder or name.")],
    corpus: Annotated[str, typer.Argument(help="File, folder, or - for standard input.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Index folder to make.")],
    column: Annotated[
        str | None, typer.Option(help="Column with the text, by name or position from 0.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column with the ids; row numbers if not given.")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(help="Columns to keep as metadata: a,b,c; * for all others.")
    ] = None,
    metric: Annotated[str, typer.Option(help="cosine or dot.")] = "cosine",
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    batch: BatchSize = 64,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Encode a corpus once and keep vectors, texts, ids and metadata in a folder to search."""
    quieten(quiet)
    from contrasent.search.checks import check_metric, check_target
    from contrasent.search.records import Records
    from contrasent.search.records import column as position

    check_metric(metric)
    check_target(output, overwrite)
    rows = Records(
        corpus,
        text=None if column is None else position(column),
        identity=None if id_column is None else position(id_column),
        metadata=[position(name.strip()) for name in metadata.split(",")] if metadata else (),
    )
    folder = find_model(model)
    encode = load_model(folder, batch=batch, pooler=pooler, max_tokens=max_tokens)
    from contrasent.search.index import Index

    began = time.monotonic()
    made = Index.create(
        output,
        encode,
        rows,
        model=encode.encoder.identity,
        source=lasting_name(model),
        metric=metric,
        settings={"pooler": pooler, "max_tokens": max_tokens},
        overwrite=overwrite,
    )
    seconds = time.monotonic() - began
    facts = {
        "index": str(output),
        "texts": len(made),
        "dimension": made.dimension,
        "metric": metric,
        "model": model,
        "identity": made.model,
        "blank_lines": rows.skipped,
        "truncated": encode.truncated,
        "seconds": round(seconds, 3),
    }
    if as_json:
        emit(facts)
    else:
        typer.echo(
            f"{output}: {len(made):,} texts, {made.dimension} dimensions, {seconds:.1f} s\n"
            f'search it: contrasent search {output} "..."'
        )
    if rows.skipped:
        remark(f"{rows.skipped:,} blank lines were passed over", quiet=quiet)
    line = encode.remark()
    if line:
        remark(line, quiet=quiet)
