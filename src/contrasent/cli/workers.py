"""Encoding in shards, on this machine or on a cluster: what --engine and --shard do."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contrasent import progress
from contrasent.cli.loading import (
    Counting,
    check_dimensions,
    find_model,
    open_model,
    untrained_dimensions,
)
from contrasent.cli.options import Loading, Output, Workers
from contrasent.errors import MissingExtraError, OptionError, UserError, check_choice
from contrasent.processes import threads

if TYPE_CHECKING:
    from contrasent.encoding.engines import Engine
    from contrasent.encoding.job import Done, Job, Opened
    from contrasent.encoding.shards import Manifest
    from contrasent.model.prompts import Model
    from contrasent.types import EncodeFn, Task, Vectors

SHARD_ROWS, INDEX_ROWS = 250_000, 50_000  # rows a shard of `encode` by default, and of `index`


class Form(NamedTuple):
    """How vectors are made of texts."""

    unit: bool = False  # whether they are scaled to length one
    dimensions: int | None = None  # how many are kept, scaled to length one; all if None
    prompt: str | None = None  # name of a prompt; the default if None

    def of(self, vectors: "Vectors") -> "Vectors":
        """The model's vectors, so made."""
        if not self.unit and self.dimensions is None:
            return vectors
        from contrasent.metrics import normalize

        return normalize(vectors[:, : self.dimensions])


@dataclass(frozen=True, slots=True)
class OpenModel:
    """Opens a model in a worker; equal ones open equal models."""

    folder: str
    loading: Loading
    form: Form
    task: "Task | None" = None  # whose prompt is put before each text, if no prompt is named
    threads: int | None = None  # to compute with; as the process has them if None

    def __call__(self) -> "Opened":
        """Open it."""
        from contrasent.encoding.job import Opened

        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)  # for what is not torch
        function = open_model(Path(self.folder), self.loading)
        if self.threads is not None and function.runtime == "torch":
            import torch

            torch.set_num_threads(self.threads)
        form, encoder = self.form, function.encoder
        if form.prompt is not None:
            function.prompt = encoder.prompts.text(form.prompt)
        elif self.task is not None:
            function.prompt = encoder.prompts.of_task(self.task)
        check_dimensions(form.dimensions, encoder.dimension)
        return Opened(
            lambda texts: form.of(function(texts)),
            form.dimensions or encoder.dimension,
            lambda: function.truncated,
            settings(function, form),
            untrained_dimensions(form.dimensions, encoder),
        )


def settings(function: "Counting[Model]", form: Form) -> dict[str, Any]:
    """The settings that decide the vectors, as manifests have them."""
    facts = {
        "model": function.encoder.identity,
        "runtime": function.runtime,
        "invariant": function.loading.batch_invariant,
        "unit": form.unit,
        "dimensions": form.dimensions,
        "prompt": function.prompt,
    }
    return {key: value for key, value in facts.items() if value is not None}


def make_engine(workers: Workers) -> "Engine":
    """The engine that is named, local if none is."""
    from contrasent.encoding.engines import ENGINES, Local, OnRay

    name = workers.engine or "local"
    check_choice("--engine", name, ENGINES)
    if name == "ray":
        if find_spec("ray") is None:
            raise MissingExtraError("ray", "ray", "--engine ray")
        cpus = workers.worker_cpus or 1
        return OnRay(workers.workers, cpus, workers.worker_gpus, workers.timeout)
    if workers.worker_gpus:
        raise OptionError("--worker-gpus", workers.worker_gpus, "goes with --engine ray")
    return Local(workers.workers or 1)


def worker_threads(workers: Workers) -> int | None:
    """Threads of each worker; None for a single process, which has all cores anyhow."""
    if workers.worker_cpus is not None or workers.engine == "ray":
        return workers.worker_cpus or 1
    count = workers.workers or 1
    return None if count == 1 else max(1, threads() // count)


def check_workers(workers: Workers, *, changing: bool = False) -> None:
    """Reject options of workers where there are none, and an engine for an index that changes."""
    if workers.engine is not None and changing:
        raise OptionError("--engine", workers.engine, "is for a new index")
    for name in ("workers", "worker_cpus", "worker_gpus"):
        if workers.engine is None and (value := getattr(workers, name)):
            raise OptionError(f"--{name.replace('_', '-')}", value, "goes with --engine")


def run_job(
    job: "Job", engine: "Engine", *, share: str | None = None, begun: "Manifest | None" = None
) -> tuple["Done", int]:
    """Make the shards of a job that are missing, or one machine's share of them."""
    from contrasent.encoding.job import begin, chosen_shards, gather, total

    missing = chosen_shards(share, begin(job, begun))
    rows = sum(job.plan.size(shard) for shard in missing)
    ended = []
    with progress.task("encode", rows, "sentences") as advance:
        for done in engine.run(job, missing, advance):
            if done.problem:
                raise UserError(done.problem)
            ended.append(done)
    left = len(job.missing()) if share else 0
    if not left:
        gather(job.output)
    return total(ended), left


def encode_sharded(
    model: str,
    source: str,
    output: str,
    loading: Loading,
    workers: Workers,
    form: Form,
    *,
    column: str | None,
    id_column: str | None,
    keep_text: bool,
    dtype: str,
    shard_rows: int | None,
    shard: str | None,
    overwrite: bool,
) -> Output:
    """``contrasent encode`` into shards of parquet."""
    from contrasent.encoding.inputs import Folder, plan
    from contrasent.encoding.job import Job, chosen_shards, opened, plan_before, read_begun
    from contrasent.encoding.table import TYPES
    from contrasent.text.tables import column as position

    if find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "encoding in shards")
    engine = make_engine(workers)
    check_choice("--dtype", dtype, TYPES)
    try:
        chosen_shards(shard, [])
    except ValueError as error:
        raise OptionError("--shard", shard, str(error)) from None
    if shard and overwrite:
        raise OptionError("--overwrite", True, "would remove the shards of others; leave it out")
    if Path(output).suffix in (".npy", ".parquet"):
        raise OptionError("-o", output, "must be a folder with --engine: it holds a file a shard")
    folder = Folder(output)
    begun = read_begun(folder)
    if overwrite and begun is not None:
        folder.remove()
        begun = None
    rows = plan(
        source,
        shard_rows=shard_rows or SHARD_ROWS,
        text=position(column),
        identity=position(id_column),
        before=plan_before(begun, folder.name),
    )
    where = str(find_model(model).absolute())
    opener = OpenModel(where, loading, form, threads=worker_threads(workers))
    here = opened(opener)
    job = Job(folder.name, rows, opener, here.dimension, dtype, keep_text, here.settings)
    began = time.monotonic()
    done, left = run_job(job, engine, share=shard, begun=begun)
    seconds = time.monotonic() - began
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
    text = (
        f"{output}: {done.rows:,} vectors of {here.dimension} dimensions in {done.shard:,} of "
        f"{rows.shards:,} shards, {seconds:.1f} s"
    )
    if done.shard:
        text += f"\na shard: {each:.2f} s, of these {overhead:.3f} s to read and write"
    if left:
        text += f"\n{left:,} shards are still missing; the run that makes the last checks all"
    else:
        text += f"\ncomplete: all {rows.shards:,} shards checked, {rows.rows:,} rows of one model"
    notes = list(here.notes)
    if done.truncated:
        notes.append(f"{done.truncated:,} of {done.rows:,} texts were cut (--max-tokens)")
    return Output(facts, text, notes)


@contextmanager
def index_vectors(
    folder: Path,
    source: str,
    output: Path,
    encode: "Counting[Model]",
    workers: Workers,
    column: str | None,
) -> "Iterator[EncodeFn]":
    """The vectors of a new index: by the model, or as ``--engine`` has stored them next to it."""
    if workers.engine is None:
        yield encode
        return
    from contrasent.encoding.inputs import Folder, plan
    from contrasent.encoding.job import Job, Stored, opened, plan_before, read_begun
    from contrasent.text.tables import column as position

    engine = make_engine(workers)
    place = Folder(str(output.with_name(f".{output.name}.vectors")))
    begun = read_begun(place)
    rows = plan(
        source, shard_rows=INDEX_ROWS, text=position(column), before=plan_before(begun, place.name)
    )
    count = worker_threads(workers)
    opener = OpenModel(str(folder.absolute()), encode.loading, Form(), "document", count)
    here = opened(opener)
    job = Job(place.name, rows, opener, here.dimension, "float32", True, here.settings)
    done, _ = run_job(job, engine, begun=begun)
    encode.texts += done.rows
    encode.truncated += done.truncated
    yield Stored(place.name)
    place.remove()
