"""Vectors of texts, and texts that are alike: ``contrasent encode``, ``similarity``, ``dedupe``."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent import progress
from contrasent.cli import options
from contrasent.errors import OptionError, UserError, check_choice, import_extra
from contrasent.files import real_path

if TYPE_CHECKING:
    from contrasent.encoding.engines import Local, OnRay
    from contrasent.encoding.job import Opened
    from contrasent.model.base import TaskEncoder
    from contrasent.text.corpus import Corpus
    from contrasent.types import Vectors

FORMATS = (".npy", ".parquet")
SHOWN = 10  # near-duplicates that are printed
AT_ONCE = 16_384  # texts of a stream: what a kill costs at most, and what memory holds

Batched = Annotated[
    options.Loading, "runtime", "batch_invariant", "pooling", "max_seq_length", "batch_size"
]


@dataclass(frozen=True, slots=True)
class OpenModel:
    """Opens a model, here or in a worker, with the form that its vectors are to have."""

    folder: str
    loading: options.Loading
    unit: bool = False  # whether vectors are scaled to length one
    dimensions: int | None = None  # how many are kept, scaled to length one; all if None
    prompt: str | None = None  # name of a prompt
    threads: int | None = None  # to compute with; as the process has them if None
    light: bool = False  # numpy without a GPU: it starts sooner, but large inputs take it longer

    def __call__(self) -> "Opened":
        """The model as a worker needs it."""
        return self.open()[1]

    def open(self) -> "tuple[TaskEncoder, Opened]":
        """The model, and the function that gives its vectors in this form."""
        from contrasent.encoding.job import Opened
        from contrasent.metrics import normalize

        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)  # for what is not torch
        model = options.open_model(self.folder, self.loading, light=self.light)
        encoder = model.encoder
        if self.threads is not None and encoder.runtime == "torch":
            import torch

            torch.set_num_threads(self.threads)
        document = encoder.prompts.of_task("document")  # as `index` encodes rows
        if self.prompt is not None:
            model.prompt = encoder.prompts.text(self.prompt)
        elif document != encoder.prompts.text():
            model.prompt = document
        kept, notes = self.dimensions, list[str]()
        if kept is not None and kept > encoder.dimension:
            raise OptionError("--dimensions", kept, f"the model has {encoder.dimension}")
        if kept not in (None, encoder.dimension, *encoder.matryoshka_dims):
            nested = ", ".join(map(str, encoder.matryoshka_dims[1:]))
            known = f"for {nested or 'the full dimensions only'}"
            notes = [f"--dimensions {kept}: the model was trained {known}"]

        def encode(texts: Sequence[str]) -> "Vectors":
            vectors = model(texts)
            formed = self.unit or kept is not None
            return normalize(vectors[:, :kept]) if formed else vectors

        settings = {
            "model": encoder.identity,
            "runtime": encoder.runtime,
            "invariant": self.loading.batch_invariant,
            "unit": self.unit,
            "dimensions": kept,
            "prompt": model.prompt,
        }
        settings = {key: value for key, value in settings.items() if value is not None}
        dimension = kept or encoder.dimension
        return model, Opened(encode, dimension, lambda: model.truncated, settings, notes)


@options.command
def encode(
    context: typer.Context,
    model: str,
    input_: Annotated[str, typer.Argument(metavar="INPUT")],
    output: Annotated[str, typer.Option("--output", "-o")],
    loading: Batched,
    engine: str | None = None,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    worker_cpus: Annotated[int | None, typer.Option(min=1)] = None,
    worker_gpus: Annotated[float, typer.Option(min=0)] = 0.0,
    timeout: Annotated[float, typer.Option(min=1)] = 600.0,
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

    A .npy file contains float32 rows in the order of the input; a .parquet file also the texts. A
    folder contains parquet shards and a manifest, written independently by one process, by several,
    or by a Ray cluster. Memory stays bounded. After an interruption, the same command continues
    from the finished shards, or from .NAME.encoded next to the file.

    Options:
        model: Model folder or name, or an exported model.
        input_: File, folder, or - for standard input; for shards also a pattern with *, or a URL.
        output: FILE.npy, FILE.parquet, or a folder or URL for shards.
        engine: What writes shards: local (this machine) or ray (a Ray cluster, docs/export.md).
            [default: local]
        workers: For shards: number of workers. [default: local 1, ray as many as fit]
        worker_cpus: For shards: cores per worker. [default: local all, ray 1]
        worker_gpus: With --engine ray: GPUs per worker; may be a fraction such as 0.5.
        timeout: With --engine ray: stop after this many seconds without a report from any worker.
        column: Column with the text, by name or position from 0.
        id_column: For shards: column with the ids. [default: row numbers]
        keep_text: For shards: store the texts with the vectors.
        dtype: For shards: float32, float16, int8 (with a scale per row) or binary (signs, as bits).
        shard_rows: Texts per shard. [default: 250000]
        shard: Write this part of the shards, such as 3/64, for independent jobs; the job that
            writes the last shard checks them all.
        unit: Scale vectors to length one.
        dimensions: Keep this many leading dimensions, scaled to length one.
        prompt: Name of a prompt of the model, such as query. [default: its prompt for documents]
    """
    from contrasent.encoding.engines import make_engine
    from contrasent.encoding.inputs import is_url

    began = time.monotonic()
    opener = OpenModel(model, loading, unit, dimensions, prompt)
    shards = (engine, shard, workers, worker_cpus, id_column, keep_text, dtype != "float32")
    file = Path(output).suffix in FORMATS and not is_url(output)
    if engine != "ray":
        options.check_used(context, dict.fromkeys(("worker_gpus", "timeout"), "--engine ray"))
    source, target = (real_path(Path(one)) for one in (input_.partition("**")[0], output))
    below = target.relative_to(source).parts if source in target.parents else (".",)
    if target.suffix != ".npy" and not any(part.startswith(".") for part in below):
        problem = "is inside INPUT, and the next run would read it as text; choose another place"
        raise OptionError("-o", output, problem)
    streamed = file and not (any(shards) or shard_rows or is_url(input_) or "*" in input_)
    again = " without --overwrite" if overwrite and not streamed else ""
    with options.resumable(f"the same command{again} continues"):
        if streamed:
            return _as_stream(opener, input_, Path(output), began, column, overwrite)
        return _in_shards(
            *(opener, input_, output, began),
            make_engine(engine or "local", workers, worker_cpus, worker_gpus, timeout),
            columns=(column, id_column),
            keep_text=keep_text,
            dtype=dtype,
            shard_rows=shard_rows or 250_000,
            share=shard,
            overwrite=overwrite,
        )


def _as_stream(
    opener: OpenModel, source: str, output: Path, began: float, column: str | None, overwrite: bool
) -> options.Output:
    """One process, one text after the other; each is computed once."""
    from contrasent.encoding.shards import write_vectors
    from contrasent.model.opening import find_model
    from contrasent.search.opening import KeptVectors
    from contrasent.search.store import Facts
    from contrasent.types import batched

    options.check_new(output, overwrite)
    if output.suffix == ".parquet":
        import_extra("pyarrow", "parquet", f"writing {output}")
    corpus = open_texts(source, column)
    name = opener.folder
    opener = replace(opener, folder=str(find_model(name)), light=True)
    model, here = opener.open()
    settings = json.dumps(here.settings, sort_keys=True)
    maker = Facts(model=here.settings["model"], source=settings)
    with (
        progress.task("encode", unit="sentences") as advance,
        KeptVectors(output, here.encode, maker, advance, at_once=AT_ONCE) as cached,
    ):
        blocks = batched((row[0] for row in corpus), AT_ONCE)
        rows = write_vectors(output, ((texts, cached(texts)) for texts in blocks), here.dimension)
    seconds = time.monotonic() - began
    facts = {
        "output": str(output),
        "model": name,
        "identity": here.settings["model"],
        "runtime": here.settings["runtime"],
        "texts": rows,
        "computed": model.texts,
        "dimension": here.dimension,
        "unit": opener.unit,
        "blank_lines": corpus.skipped,
        "truncated": model.truncated,
        "seconds": round(seconds, 3),
    }
    summary = f"{rows:,} vectors of {here.dimension} dimensions, {seconds:.1f} s"
    notes = [f"{corpus.skipped:,} blank lines skipped"] if corpus.skipped else []
    notes += [*corpus.notes(), *here.notes, *model.notes]
    return options.Output(facts, f"{output}: {summary}", notes)


def open_texts(source: str, column: str | None) -> "Corpus":
    """Open a corpus of one column."""
    from contrasent.text.corpus import open_corpus
    from contrasent.text.tables import column as position

    columns = None if column is None else [position(column)]
    corpus = open_corpus(source, columns=columns, score=False, at_least=1, single=True)
    for line in corpus.roles:
        options.note(line)
    return corpus


def _in_shards(
    opener: OpenModel,
    source: str,
    output: str,
    began: float,
    engine: "Local | OnRay",
    *,
    columns: tuple[str | None, str | None],
    keep_text: bool,
    dtype: str,
    shard_rows: int,
    share: str | None,
    overwrite: bool,
) -> options.Output:
    """Independent shards of parquet, by ``--engine`` and ``--shard``."""
    from contrasent.encoding import job as jobs
    from contrasent.encoding.inputs import Folder, is_url, plan
    from contrasent.encoding.shards import TYPES
    from contrasent.model.opening import find_model
    from contrasent.text.tables import column as position

    import_extra("pyarrow", "parquet", "encoding in shards")
    check_choice("--dtype", dtype, TYPES)
    jobs.chosen_shards(share, [])
    if share and overwrite:
        raise OptionError("--overwrite", True, "would delete the shards of other jobs; omit it")
    if not is_url(output) and (Path(output).suffix or Path(output).is_file()):
        problem = "must end in .npy or .parquet, or be a folder without a suffix"
        if Path(output).suffix in FORMATS:
            problem = "must be a folder: --engine, --shard, --id, --keep-text, --dtype, "
            problem += "--workers and an INPUT that is a URL or a pattern write shards"
        raise OptionError("-o", output, problem)
    folder = Folder(output)
    text, identity = map(position, columns)
    rows = plan(source, shard_rows=shard_rows, text=text, identity=identity)
    model = opener.folder
    path = str(find_model(model).absolute())
    opener = replace(opener, folder=path, threads=engine.threads)
    here = jobs.opened(opener)
    job = jobs.Job(folder.name, rows, opener, here.dimension, dtype, keep_text, here.settings)
    if overwrite:  # now that all that was named is known to be there
        jobs.remove_vectors(folder)
    missing = jobs.chosen_shards(share, jobs.begin(job))
    ended = list[jobs.Done]()
    with (
        progress.task("encode", sum(map(rows.size, missing)), "sentences") as advance,
        closing(engine.run(job, missing, advance)) as results,  # workers end with the command
    ):
        for result in results:
            if result.problem:
                raise UserError(result.problem)
            ended.append(result)
    left = len(job.missing()) if share else 0
    if not left:
        jobs.gather(job.output)
    seconds, done = time.monotonic() - began, jobs.total(ended)
    each = (done.seconds - done.opening) / max(1, done.shard)
    overhead = each - done.encoding / max(1, done.shard)
    facts = {
        "output": output,
        "model": model,
        "identity": here.settings["model"],
        "texts": rows.rows,
        "shards": rows.shards,
        "encoded": done.rows,
        "encoded_shards": done.shard,
        "complete": not left,
        "dimension": here.dimension,
        "dtype": dtype,
        "truncated": done.truncated,
        "seconds": round(seconds, 3),
        "seconds_a_shard": round(each, 3),
        "overhead_a_shard": round(overhead, 3),
    }
    lines = [
        f"{output}: {done.rows:,} vectors of {here.dimension} dimensions in {done.shard:,} of "
        f"{rows.shards:,} shards, {seconds:.1f} s"
    ]
    if done.shard:
        lines.append(f"seconds per shard: {each:.2f} ({overhead:.3f} to read and write)")
    lines.append(
        f"{left:,} shards are still missing; the run that writes the last one checks all"
        if left
        else f"complete: all {rows.shards:,} shards checked, {rows.rows:,} rows"
    )
    notes = list(here.notes)
    if done.truncated:
        notes.append(f"{done.truncated:,} of {done.rows:,} texts were truncated (--max-seq-length)")
    return options.Output(facts, "\n".join(lines), notes)


@options.command
def similarity(
    model: options.ModelName,
    first: Annotated[str, typer.Argument(metavar='"A"')],
    second: Annotated[str, typer.Argument(metavar='"B"')],
    loading: options.Reading,
) -> options.Output:
    """Print how similar two texts are: the cosine of their vectors, from -1 to 1.

    Options:
        first: One text.
        second: The other text.
    """
    encode = options.open_model(model, loading, light=True)
    from contrasent.search.folder import check_vectors

    left, right = check_vectors(encode([first, second]), 2, None, "cosine")
    facts = {"model": model, "a": first, "b": second, "similarity": float(left @ right)}
    return options.Output(
        {**facts, "truncated": encode.truncated}, f"{facts['similarity']:.4f}", encode.notes
    )


@options.command
def dedupe(
    index: Path,
    min_cosine: Annotated[float, typer.Option(min=-1, max=1)] = 0.95,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    remove: bool = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Find texts that nearly repeat an earlier text.

    The file of -o has one line for each text: its id, its text, and for a near-duplicate the id of
    the text it repeats and their score.

    Options:
        index: Index folder.
        min_cosine: Cosine from which two texts count as the same.
        output: Write all of it to FILE.jsonl.
        remove: Remove the near-duplicates from the index.
    """
    if output is not None:
        if output.suffix != ".jsonl":
            raise OptionError("-o", str(output), "must end in .jsonl")
        options.check_new(output, overwrite)
    from contrasent.files import atomic_file, short
    from contrasent.indexing.changes import remove_rows
    from contrasent.indexing.contents import near_duplicates
    from contrasent.search.opening import numbered_rows, open_index

    opened = numbered_rows(open_index(index))
    total = len(opened)
    kept_rows, duplicates = near_duplicates(opened, min_cosine)

    def named(row: int) -> dict[str, Any]:
        (one,) = opened.rows([row])
        return {"id": one.id, "text": one.text, "metadata": one.metadata}

    if output is not None:
        repeats = {pair.second: pair for pair in duplicates}
        with atomic_file(output) as stream:
            for row in sorted([*kept_rows.tolist(), *repeats]):
                one = repeats.get(row)
                original = {"repeats": opened.rows([one.first])[0].id if one else None}
                line = {**named(row), **original, "score": one.score if one else None}
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    pairs: list[dict[str, Any]] = [
        {"score": pair.score, "kept": named(pair.first), "repeat": named(pair.second)}
        for pair in sorted(duplicates, key=lambda pair: -pair.score)
    ]
    if remove and pairs:
        opened.close()  # a reader would keep the log of the change
        remove_rows(index, [pair["repeat"]["id"] for pair in pairs])
    lines = [
        f"{pair['score']:.4f}  {short(pair['repeat']['text'], 90)}\n"
        f"        {short(pair['kept']['text'], 90)}"
        for pair in pairs[:SHOWN]
    ]
    if len(pairs) > SHOWN:
        lines.append(f"... and {len(pairs) - SHOWN:,} more: -o FILE.jsonl writes all")
    done = "removed" if remove else "found"
    lines.append(
        f"{len(pairs):,} near-duplicates {done} among {total:,} texts at {min_cosine:g} and more"
    )
    facts = {
        "index": str(index),
        "min_cosine": min_cosine,
        "texts": total,
        "kept": len(kept_rows),
        "near_duplicates": len(pairs),
        "removed": len(pairs) if remove else 0,
        "pairs": pairs,
    }
    return options.Output(facts, "\n".join(lines))
