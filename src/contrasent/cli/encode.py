"""``contrasent encode MODEL INPUT -o OUTPUT``."""

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli.loading import Counting, Model, find_model, open_model
from contrasent.cli.options import (
    BatchInvariant,
    BatchSize,
    Column,
    Invariant,
    Json,
    MaxTokens,
    Overwrite,
    Pooler,
    Quiet,
    Runtime,
    emit,
    note_to_stderr,
    quieten,
)
from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError
from contrasent.files import atomic_file, check_writable
from contrasent.types import Vectors

if TYPE_CHECKING:
    from contrasent.search.shards import Manifest
    from contrasent.text.corpus import Corpus

FORMATS = (".npy", ".parquet")
SHARD = 16_384
"""Texts a shard: what a kill costs at most, and what memory holds."""


def encode(
    model: Annotated[str, typer.Argument(help="Model folder or name, or an exported model.")],
    input_: Annotated[
        str, typer.Argument(metavar="INPUT", help="File, folder, or - for standard input.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="FILE.npy, FILE.parquet, or a folder of shards.")
    ],
    column: Column = None,
    unit: Annotated[bool, typer.Option("--unit", help="Scale vectors to length one.")] = False,
    dimensions: Annotated[
        int | None,
        typer.Option(min=1, help="Keep the first so many dimensions, scaled to length one."),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(help="Name of a prompt of the model, such as query. [default: the model's]"),
    ] = None,
    runtime: Runtime = None,
    batch_invariant: BatchInvariant = False,
    invariant: Invariant = False,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    batch: BatchSize = 64,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the vector of every sentence to a file or a folder.

    A .npy file holds float32 rows in the order of the input; a .parquet file also the texts; a
    folder holds .npy shards and a manifest. Memory stays bounded. If it is killed, the same command
    goes on where it was: shards are kept in the folder, or in .NAME.parts beside the file. Lines
    that repeat are computed once.
    """
    quieten(quiet)
    check_output(output, overwrite)
    corpus = open_texts(input_, column)
    function = open_model(
        find_model(model),
        runtime=runtime,
        batch=batch,
        pooler=pooler,
        max_tokens=max_tokens,
        batch_invariant=batch_invariant or invariant,
    )
    if prompt is not None:
        function.prompt = function.encoder.prompts.text(prompt)
    size = function.encoder.dimension
    if dimensions is not None and dimensions > size:
        raise OptionError("--dimensions", dimensions, f"the model has {size}")
    began = time.monotonic()
    manifest = write(
        output, corpus, function, unit=unit, overwrite=overwrite, dimensions=dimensions
    )
    seconds = time.monotonic() - began
    if as_json:
        emit(
            {
                "output": str(output),
                "model": model,
                "identity": function.encoder.identity,
                "runtime": function.runtime,
                "texts": manifest.rows,
                "computed": function.texts,
                "dimension": manifest.dimension,
                "unit": unit,
                "blank_lines": corpus.skipped,
                "truncated": function.truncated,
                "seconds": round(seconds, 3),
            }
        )
    else:
        typer.echo(
            f"{output}: {manifest.rows:,} vectors of {manifest.dimension} dimensions, "
            f"{seconds:.1f} s"
        )
    if corpus.skipped:
        note_to_stderr(f"{corpus.skipped:,} blank lines were passed over", quiet=quiet)
    nested = getattr(function.encoder, "nested", ())
    if dimensions not in (None, size, *nested):
        known = f"for {', '.join(map(str, nested[1:]))}" if nested else "for no fewer dimensions"
        note_to_stderr(f"--dimensions {dimensions}: the model was trained {known}", quiet=quiet)
    function.report_cut(quiet=quiet)


def check_output(output: Path, overwrite: bool) -> None:
    """Refuse, before any work, an output that cannot or must not be written."""
    from contrasent.search.shards import read_manifest

    if output.suffix in FORMATS:
        if output.is_dir():
            raise OutputError(f"{output}: is a folder; name a file")
        if output.exists() and not overwrite:
            raise OutputError(f"{output}: exists; choose another file or use --overwrite")
    elif output.suffix or output.is_file():
        raise OptionError(
            "-o", str(output), "must end in .npy or .parquet, or be a folder without a suffix"
        )
    elif output.is_dir() and any(output.iterdir()):
        begun = read_manifest(output)
        ours = begun is not None or all(path.name.startswith(".") for path in output.iterdir())
        if not ours:
            raise OutputError(f"{output}: exists and holds no vectors; choose another folder")
        if begun is not None and begun.complete and not overwrite:
            raise OutputError(f"{output}: exists; choose another folder or use --overwrite")
    check_writable(output.parent)
    if output.suffix == ".parquet":
        from importlib.util import find_spec

        if find_spec("pyarrow") is None:
            raise MissingExtraError("pyarrow", "parquet", f"writing {output}")


def open_texts(source: str, column: str | None) -> "Corpus":
    """A corpus of one column."""
    from contrasent.search.records import column as position
    from contrasent.text.corpus import open_corpus

    columns = None if column is None else [position(column)]
    corpus = open_corpus(source, columns=columns, at_least=1)
    if corpus.width != 1:
        listing = ", ".join(corpus.names)
        raise InputError(
            source, f"has {corpus.width} columns ({listing}); choose one with --column"
        )
    return corpus


def write(
    output: Path,
    corpus: "Corpus",
    function: Counting[Model],
    *,
    unit: bool,
    overwrite: bool,
    dimensions: int | None = None,
) -> "Manifest":
    """Encode into shards, and put them together if a file is wanted.

    Args:
        output: file or folder.
        corpus: of one column.
        function: the model.
        unit: scale vectors to length one.
        overwrite: replace vectors of something else.
        dimensions: keep the first so many, scaled to length one; all if None.
    """
    from contrasent.search.exact import unit as scaled
    from contrasent.search.shards import encode_shards, read_manifest, read_shards

    whole = output.suffix in FORMATS
    place = output.with_name(f".{output.name}.parts") if whole else output
    facts: dict[str, Any] = {
        "model": function.encoder.identity,
        "runtime": function.runtime,
        "invariant": function.batch_invariant,
        "unit": unit,
        **({} if dimensions is None else {"dimensions": dimensions}),
        **({} if function.prompt is None else {"prompt": function.prompt}),
    }
    begun = read_manifest(place)
    if begun is not None and overwrite:
        same = all(begun.facts.get(key) == value for key, value in facts.items())
        if not same or (begun.complete and not whole):
            shutil.rmtree(place)
    manifest = encode_shards(
        place,
        (lambda texts: scaled(function(texts)[:, :dimensions]))
        if unit or dimensions is not None
        else function,
        (row[0] for row in corpus),
        facts=facts,
        dimension=dimensions or function.encoder.dimension,
        rows=SHARD,
        keep_texts=output.suffix == ".parquet",
    )
    if whole:
        put = write_npy if output.suffix == ".npy" else write_parquet
        put(output, read_shards(place, manifest), manifest.dimension)
        shutil.rmtree(place)
    return manifest


def write_npy(
    output: Path, blocks: Iterable[tuple[Vectors, list[str] | None]], dimension: int
) -> None:
    """Write vectors to an .npy file, with memory for one block."""
    from contrasent.search.segment_writer import NpyWriter

    with atomic_file(output, "wb") as stream:
        writer = NpyWriter(stream, "<f4", dimension)
        for vectors, _ in blocks:
            writer.append(vectors)
        writer.finish()


def write_parquet(
    output: Path, blocks: Iterable[tuple[Vectors, list[str] | None]], dimension: int
) -> None:
    """Write texts and vectors to a parquet file, a row group a block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    vector = pa.list_(pa.float32(), dimension)
    schema = pa.schema([("text", pa.string()), ("vector", vector)])
    with atomic_file(output, "wb") as stream, pq.ParquetWriter(stream, schema) as writer:
        for vectors, texts in blocks:
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dimension)
            writer.write_table(pa.Table.from_arrays([pa.array(texts), flat], schema=schema))
