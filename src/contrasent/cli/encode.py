"""``contrasent encode MODEL INPUT -o FILE``."""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent import progress
from contrasent.cli.loading import Counting, find_model, load_model
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
from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError
from contrasent.files import atomic_file, check_writable
from contrasent.types import Vectors

if TYPE_CHECKING:
    from contrasent.text.corpus import Corpus

FORMATS = (".npy", ".parquet")
BLOCK = 4096


def encode(
    model: Annotated[str, typer.Argument(help="Model folder or name.")],
    input_: Annotated[
        str, typer.Argument(metavar="INPUT", help="File, folder, or - for standard input.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="FILE.npy or FILE.parquet.")],
    column: Annotated[
        str | None, typer.Option(help="Column with the text, by name or position from 0.")
    ] = None,
    unit: Annotated[bool, typer.Option("--unit", help="Scale vectors to length one.")] = False,
    pooler: Pooler = None,
    max_tokens: MaxTokens = None,
    batch: BatchSize = 64,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the vector of every sentence to a file.

    A .npy file holds float32 rows in the order of the input; a .parquet file also the texts.
    """
    quieten(quiet)
    check_output(output, overwrite)
    corpus = open_texts(input_, column)
    folder = find_model(model)
    function = load_model(folder, batch=batch, pooler=pooler, max_tokens=max_tokens)
    began = time.monotonic()
    blocks = encoded(corpus, function, unit)
    write = write_npy if output.suffix == ".npy" else write_parquet
    count = write(output, blocks, function.encoder.dimension)
    seconds = time.monotonic() - began
    if as_json:
        emit(
            {
                "output": str(output),
                "model": model,
                "identity": function.encoder.identity,
                "texts": count,
                "dimension": function.encoder.dimension,
                "unit": unit,
                "blank_lines": corpus.skipped,
                "truncated": function.truncated,
                "seconds": round(seconds, 3),
            }
        )
    else:
        typer.echo(
            f"{output}: {count:,} vectors of {function.encoder.dimension} dimensions, "
            f"{seconds:.1f} s"
        )
    if corpus.skipped:
        remark(f"{corpus.skipped:,} blank lines were passed over", quiet=quiet)
    line = function.remark()
    if line:
        remark(line, quiet=quiet)


def check_output(output: Path, overwrite: bool) -> None:
    """Refuse, before any work, an output that cannot or must not be written."""
    if output.suffix not in FORMATS:
        raise OptionError("-o", str(output), "must end in .npy or .parquet")
    if output.is_dir():
        raise OutputError(f"{output}: is a folder; name a file")
    if output.exists() and not overwrite:
        raise OutputError(f"{output}: exists; choose another file or use --overwrite")
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


def encoded(
    corpus: "Corpus", function: Counting, unit: bool
) -> Iterator[tuple[list[str], Vectors]]:
    """Texts and vectors, a block at a time."""
    from contrasent.search.exact import unit as scaled

    rows = iter(corpus)
    with progress.task("encode", unit="sentences") as advance:
        while block := [row[0] for row in islice(rows, BLOCK)]:
            vectors = function(block)
            yield block, scaled(vectors) if unit else vectors
            advance(len(block))


def write_npy(output: Path, blocks: Iterable[tuple[list[str], Vectors]], dimension: int) -> int:
    """Write vectors to an .npy file, with memory for one block; returns their number."""
    from contrasent.search.segment import NpyWriter

    with atomic_file(output, "wb") as stream:
        writer = NpyWriter(stream, "<f4", dimension)
        for _, vectors in blocks:
            writer.append(vectors)
        writer.finish()
    return writer.rows


def write_parquet(output: Path, blocks: Iterable[tuple[list[str], Vectors]], dimension: int) -> int:
    """Write texts and vectors to a parquet file, a row group a block; returns their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    vector = pa.list_(pa.float32(), dimension)
    schema = pa.schema([("text", pa.string()), ("vector", vector)])
    count = 0
    with atomic_file(output, "wb") as stream, pq.ParquetWriter(stream, schema) as writer:
        for texts, vectors in blocks:
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dimension)
            writer.write_table(pa.Table.from_arrays([pa.array(texts), flat], schema=schema))
            count += len(texts)
    return count
