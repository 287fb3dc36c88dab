"""``contrasent encode MODEL INPUT -o OUTPUT``."""

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrasent.cli import options
from contrasent.cli.loading import (
    Counting,
    check_dimensions,
    find_model,
    open_model,
    untrained_dimensions,
)
from contrasent.cli.workers import Form, check_workers, encode_sharded, settings
from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError
from contrasent.files import atomic_file, check_writable

if TYPE_CHECKING:
    from contrasent.encoding.shards import Manifest
    from contrasent.model.prompts import Model
    from contrasent.text.corpus import Corpus
    from contrasent.types import Vectors

FORMATS = (".npy", ".parquet")
SHARD = 16_384  # texts a shard: what a kill costs at most, and what memory holds


Batched = Annotated[options.Loading, "runtime", "batch_invariant", "pooler", "max_tokens", "batch"]


@options.command
def encode(
    model: str,
    input_: Annotated[str, typer.Argument(metavar="INPUT")],
    output: Annotated[str, typer.Option("--output", "-o")],
    loading: Batched,
    workers: options.Computing,
    column: Annotated[str | None, typer.Option("--column", "--text")] = None,
    id_column: Annotated[str | None, typer.Option("--id")] = None,
    keep_text: bool = False,
    dtype: str = "float32",
    shard_rows: Annotated[int | None, typer.Option(min=1)] = None,
    shard: str | None = None,
    unit: bool = False,
    dimensions: Annotated[int | None, typer.Option(min=1)] = None,
    prompt: str | None = None,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Write the vector of every sentence to a file or a folder.

    A .npy file holds float32 rows in the order of the input; a .parquet file also the texts; a
    folder holds .npy shards and a manifest. Memory stays bounded. If it is killed, the same command
    goes on where it was: shards are kept in the folder, or in .NAME.parts next to the file. Lines
    that repeat are computed once.

    With --engine or --shard, or where a place is a URL (s3://, gs://), the folder holds shards of
    parquet that are made independently, by one process, by several, or by a Ray cluster.

    Options:
        model: Model folder or name, or an exported model.
        input_: File, folder, or - for standard input; with --engine also a pattern with *, or a
            URL.
        output: FILE.npy, FILE.parquet, or a folder of shards; with --engine a folder or a URL.
        column: Column with the text, by name or position from 0.
        id_column: With --engine: column with the ids; row numbers if not given.
        keep_text: With --engine: keep the texts with the vectors.
        dtype: With --engine: float32, float16, int8 (with a scale a row) or binary (signs, as
            bits).
        shard_rows: With --engine: texts a shard. [default: 250000]
        shard: Make this share of the shards, such as 3/64: for independent jobs;
            the one that makes the last shard checks them all.
        unit: Scale vectors to length one.
        dimensions: Keep the first so many dimensions, scaled to length one.
        prompt: Name of a prompt of the model, such as query. [default: the model's]
    """
    from contrasent.encoding.inputs import is_url

    form = Form(unit, dimensions, prompt)
    if workers.engine or shard or is_url(output) or is_url(input_) or "*" in input_:
        return encode_sharded(
            *(model, input_, output, loading, workers, form),
            column=column,
            id_column=id_column,
            keep_text=keep_text,
            dtype=dtype,
            shard_rows=shard_rows,
            shard=shard,
            overwrite=overwrite,
        )
    check_workers(workers)
    wrong = {"--id": id_column, "--keep-text": keep_text, "--shard-rows": shard_rows}
    wrong["--dtype"] = dtype if dtype != "float32" else None
    for option, value in wrong.items():
        if value:
            raise OptionError(option, value, "goes with --engine")
    return _as_stream(model, input_, Path(output), loading, form, column, overwrite)


def _as_stream(
    model: str,
    input_: str,
    output: Path,
    loading: options.Loading,
    form: Form,
    column: str | None,
    overwrite: bool,
) -> options.Output:
    """One process, one text after the other; each is computed once."""
    _check_output(output, overwrite)
    corpus = open_texts(input_, column)
    function = open_model(find_model(model), loading, light=True)
    if form.prompt is not None:
        function.prompt = function.encoder.prompts.text(form.prompt)
    check_dimensions(form.dimensions, function.encoder.dimension)
    began = time.monotonic()
    manifest = _write(output, corpus, function, form, overwrite=overwrite)
    seconds = time.monotonic() - began
    notes = [f"{corpus.skipped:,} blank lines were passed over"] if corpus.skipped else []
    notes += untrained_dimensions(form.dimensions, function.encoder)
    facts = {
        "output": str(output),
        "model": model,
        "identity": function.encoder.identity,
        "runtime": function.runtime,
        "texts": manifest.rows,
        "computed": function.texts,
        "dimension": manifest.dimension,
        "unit": form.unit,
        "blank_lines": corpus.skipped,
        "truncated": function.truncated,
        "seconds": round(seconds, 3),
    }
    made = f"{manifest.rows:,} vectors of {manifest.dimension} dimensions, {seconds:.1f} s"
    return options.Output(facts, f"{output}: {made}", [*notes, *function.notes])


def _check_output(output: Path, overwrite: bool) -> None:
    """Reject, before any work, an output that cannot or must not be written."""
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
    """Open a corpus of one column."""
    from contrasent.text.corpus import open_corpus
    from contrasent.text.tables import column as position

    columns = None if column is None else [position(column)]
    corpus = open_corpus(source, columns=columns, at_least=1)
    if corpus.width != 1:
        listing = ", ".join(corpus.names)
        raise InputError(
            source, f"has {corpus.width} columns ({listing}); choose one with --column"
        )
    return corpus


def _write(
    output: Path, corpus: "Corpus", function: "Counting[Model]", form: Form, *, overwrite: bool
) -> "Manifest":
    """Encode into shards, and put them together if a file is wanted."""
    from contrasent.encoding.shards import encode_shards, read_manifest, read_shards

    whole = output.suffix in FORMATS
    place = output.with_name(f".{output.name}.parts") if whole else output
    facts = settings(function, form)
    begun = read_manifest(place)
    if begun is not None and overwrite:
        same = all(begun.facts.get(key) == value for key, value in facts.items())
        if not same or (begun.complete and not whole):
            shutil.rmtree(place)
    manifest = encode_shards(
        place,
        lambda texts: form.of(function(texts)),
        (row[0] for row in corpus),
        facts=facts,
        dimension=form.dimensions or function.encoder.dimension,
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
    from contrasent.encoding.table import NpyWriter

    with atomic_file(output, "wb") as stream:
        writer = NpyWriter(stream, dimension)
        for vectors, _ in blocks:
            writer.append(vectors)
        writer.finish()


def _write_parquet(output: Path, blocks: Blocks, dimension: int) -> None:
    """A parquet file of texts and vectors."""
    from contrasent.encoding.table import TableWriter

    with (
        atomic_file(output, "wb") as stream,
        TableWriter(stream, dimension, ids=False, texts=True) as writer,
    ):
        for vectors, texts in blocks:
            writer.append(vectors, texts=texts or ())
        writer.finish({"dimension": dimension})
