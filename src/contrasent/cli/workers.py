"""What commands share that encode in shards, on this machine or on a cluster (``--engine``)."""

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
    open_model,
    untrained_dimensions,
)
from contrasent.cli.options import Loading, Workers
from contrasent.errors import MissingExtraError, OptionError, UserError, check_choice
from contrasent.processes import threads

if TYPE_CHECKING:
    from contrasent.encoding.engines import Engine
    from contrasent.encoding.job import Done, Job, Opened
    from contrasent.encoding.shards import Manifest
    from contrasent.model.prompts import Model
    from contrasent.types import EncodeFn, Task, Vectors

INDEX_ROWS = 50_000


class Form(NamedTuple):
    """What vectors are made of texts.

    Attributes:
        unit: whether they are scaled to length one.
        dimensions: how many are kept, scaled to length one; all if None.
        prompt: name of a prompt; the default if None.
    """

    unit: bool = False
    dimensions: int | None = None
    prompt: str | None = None

    def of(self, vectors: "Vectors") -> "Vectors":
        """The model's vectors, so made."""
        if not self.unit and self.dimensions is None:
            return vectors
        from contrasent.search.exact import unit

        return unit(vectors[:, : self.dimensions])


@dataclass(frozen=True, slots=True)
class OpenModel:
    """Opens a model in a worker; equal ones open equal models.

    Attributes:
        task: whose prompt is put before each text, if no prompt is named.
        threads: to compute with; as the process has them if None.
    """

    folder: str
    loading: Loading
    form: Form
    task: "Task | None" = None
    threads: int | None = None

    def __call__(self) -> "Opened":
        """Open it."""
        from contrasent.encoding.job import Opened

        if self.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)  # for what is not torch
        function = open_model(Path(self.folder), self.loading)
        if self.threads is not None and function.runtime == "torch":
            import torch

            torch.set_num_threads(self.threads)
        prompts = function.encoder.prompts
        if self.form.prompt is not None:
            function.prompt = prompts.text(self.form.prompt)
        elif self.task is not None:
            function.prompt = prompts.of_task(self.task)

        size = self.form.dimensions or function.encoder.dimension
        check_dimensions(self.form.dimensions, function.encoder.dimension)
        return Opened(
            lambda texts: self.form.of(function(texts)),
            function.encoder.identity,
            size,
            lambda: function.truncated,
            settings(function, self.form),
            untrained_dimensions(self.form.dimensions, function.encoder),
        )


def settings(function: "Counting[Model]", form: Form) -> dict[str, Any]:
    """What decides the vectors, as manifests have it."""
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
    from contrasent.encoding.engines import ENGINES, Local
    from contrasent.encoding.on_ray import OnRay

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
    """Refuse options of workers where there are none, and an engine for an index that changes."""
    if workers.engine is not None and changing:
        raise OptionError("--engine", workers.engine, "is for a new index")
    for name in ("workers", "worker_cpus", "worker_gpus"):
        if workers.engine is None and (value := getattr(workers, name)):
            raise OptionError(f"--{name.replace('_', '-')}", value, "goes with --engine")


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did.

    Attributes:
        manifest: of the folder; None if shards of others are still to come.
        left: shards that are still missing, of other machines.
    """

    manifest: "Manifest | None"
    left: int
    done: "Done"
    seconds: float


def run_job(
    job: "Job", engine: "Engine", *, share: str | None = None, begun: "Manifest | None" = None
) -> Ran:
    """Make the shards of a job that are missing, or one machine's share of them.

    Where all are there then, they are checked and the folder is marked complete.
    """
    from contrasent.encoding.gathering import gather
    from contrasent.encoding.job import begin, chosen_shards, missing_shards, total

    missing = chosen_shards(share, begin(job, begun))
    rows = sum(job.plan.size(shard) for shard in missing)
    began, ended = time.monotonic(), []
    with progress.task("encode", rows, "sentences") as advance:
        for done in engine.run(job, missing, advance):
            if done.problem:
                raise UserError(done.problem)
            ended.append(done)
    seconds = time.monotonic() - began
    left = len(missing_shards(job)) if share else 0
    return Ran(None if left else gather(job.output), left, total(ended), seconds)


@contextmanager
def index_vectors(
    folder: Path,
    source: str,
    output: Path,
    encode: "Counting[Model]",
    workers: Workers,
    column: str | None,
) -> "Iterator[EncodeFn]":
    """What encodes an index: the model, or vectors that ``--engine`` has made beside it."""
    if workers.engine is None:
        yield encode
        return
    from contrasent.encoding.gathering import Stored
    from contrasent.encoding.inputs import plan
    from contrasent.encoding.job import Job, opened, plan_before, read_begun
    from contrasent.encoding.places import Folder
    from contrasent.text.tables import column as position

    engine = make_engine(workers)
    place = Folder(str(output.with_name(f".{output.name}.vectors")))
    begun = read_begun(place)
    rows = plan(
        source, shard_rows=INDEX_ROWS, text=position(column), before=plan_before(begun, place.name)
    )
    threads = worker_threads(workers)
    opener = OpenModel(str(folder.absolute()), encode.loading, Form(), "document", threads)
    here = opened(opener)
    job = Job(place.name, rows, opener, here.dimension, "float32", True, here.settings)
    ran = run_job(job, engine, begun=begun)
    encode.texts += ran.done.rows
    encode.truncated += ran.done.truncated
    yield Stored(place.name)
    place.remove()
