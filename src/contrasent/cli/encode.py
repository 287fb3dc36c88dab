"""``contrasent encode MODEL INPUT -o OUTPUT``."""

import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.cli.loading import Counting, find_model, open_model
from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError
from contrasent.files import atomic_file, check_writable

if TYPE_CHECKING:
    from contrasent.encoding.shards import Manifest
    from contrasent.model.prompts import Model
    from contrasent.text.corpus import Corpus
    from contrasent.types import Vectors

FORMATS = (".npy", ".parquet")
SHARD = 16_384
"""Texts a shard: what a kill costs at most, and what memory holds."""


Batched = Annotated[options.Loading, "runtime", "batch_invariant", "pooler", "max_tokens", "batch"]


@options.command
def encode(
    model: str,
    input_: Annotated[str, typer.Argument(metavar="INPUT")],
    output: Annotated[Path, typer.Option("--output", "-o")],
    loading: Batched,
    column: options.Column = None,
    unit: bool = False,
    dimensions: Annotated[int | None, typer.Option(min=1)] = None,
    prompt: str | None = None,
    invariant: Annotated[bool, typer.Option("--invariant", hidden=True)] = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Write the vector of every sentence to a file or a folder.

    A .npy file holds float32 rows in the order of the input; a .parquet file also the texts; a
    folder holds .npy shards and a manifest. Memory stays bounded. If it is killed, the same command
    goes on where it was: shards are kept in the folder, or in .NAME.parts beside the file. Lines
    that repeat are computed once.

    Options:
        model: Model folder or name, or an exported model.
        input_: File, folder, or - for standard input.
        output: FILE.npy, FILE.parquet, or a folder of shards.
        unit: Scale vectors to length one.
        dimensions: Keep the first so many dimensions, scaled to length one.
        prompt: Name of a prompt of the model, such as query. [default: the model's]
    """
    _check_output(output, overwrite)
    corpus = open_texts(input_, column)
    if invariant:  # the former name of --batch-invariant
        loading = replace(loading, batch_invariant=True)
    function = open_model(find_model(model), loading)
    if prompt is not None:
        function.prompt = function.encoder.prompts.text(prompt)
    size = function.encoder.dimension
    if dimensions is not None and dimensions > size:
        raise OptionError("--dimensions", dimensions, f"the model has {size}")
    began = time.monotonic()
    manifest = _write(
        output, corpus, function, unit=unit, overwrite=overwrite, dimensions=dimensions
    )
    seconds = time.monotonic() - began
    notes = [f"{corpus.skipped:,} blank lines were passed over"] if corpus.skipped else []
    nested = getattr(function.encoder, "nested", ())
    if dimensions not in (None, size, *nested):
        known = f"for {', '.join(map(str, nested[1:]))}" if nested else "for no fewer dimensions"
        notes.append(f"--dimensions {dimensions}: the model was trained {known}")
    facts = {
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
    made = f"{manifest.rows:,} vectors of {manifest.dimension} dimensions, {seconds:.1f} s"
    return options.Output(facts, f"{output}: {made}", [*notes, *function.notes])


def _check_output(output: Path, overwrite: bool) -> None:
    """Refuse, before any work, an output that cannot or must not be written."""
    from contrasent.encoding.shards import read_manifest

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
    """Open a corpus of one column.

    Args:
        source: a file, a folder, or "-" for standard input.
        column: by name or position; its only one if None.

    Raises:
        InputError: it has several columns, and none is chosen.
    """
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


def _write(
    output: Path,
    corpus: "Corpus",
    function: "Counting[Model]",
    *,
    unit: bool,
    overwrite: bool,
    dimensions: int | None,
) -> "Manifest":
    """Encode into shards, and put them together if a file is wanted."""
    from contrasent.encoding.shards import encode_shards, read_manifest, read_shards
    from contrasent.search.exact import unit as scaled

    whole = output.suffix in FORMATS
    place = output.with_name(f".{output.name}.parts") if whole else output
    facts: dict[str, Any] = {
        "model": function.encoder.identity,
        "runtime": function.runtime,
        "invariant": function.loading.batch_invariant,
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
        put = _write_npy if output.suffix == ".npy" else _write_parquet
        put(output, read_shards(place, manifest), manifest.dimension)
        shutil.rmtree(place)
    return manifest


Blocks = Iterable[tuple["Vectors", list[str] | None]]


def _write_npy(output: Path, blocks: Blocks, dimension: int) -> None:
    """An .npy file, with memory for one block."""
    from contrasent.search.segment_writer import NpyWriter

    with atomic_file(output, "wb") as stream:
        writer = NpyWriter(stream, "<f4", dimension)
        for vectors, _ in blocks:
            writer.append(vectors)
        writer.finish()


def _write_parquet(output: Path, blocks: Blocks, dimension: int) -> None:
    """A parquet file of texts and vectors, a row group a block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    vector = pa.list_(pa.float32(), dimension)
    schema = pa.schema([("text", pa.string()), ("vector", vector)])
    with atomic_file(output, "wb") as stream, pq.ParquetWriter(stream, schema) as writer:
        for vectors, texts in blocks:
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dimension)
            writer.write_table(pa.Table.from_arrays([pa.array(texts), flat], schema=schema))
