"""Engines, which compute shards: this process, several of this machine, or a Ray cluster.

On Ray a shard is a plain task, not ray.data: there an actor holds its CPUs for as long as the job
lasts, and as many actors as CPUs never end (research/log.md).
"""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrasent import processes
from contrasent.encoding.inputs import is_url
from contrasent.encoding.job import Advance, Done, Job, shard_name
from contrasent.errors import UserError, brief, check_choice, import_extra, see
from contrasent.files import remove_temporaries

RETRIES = 3  # how often a shard is restarted if its worker died
POLL = 1.0
GO_ON = "repeat the command, without --overwrite, to continue"


@dataclass(frozen=True, slots=True)
class Local:
    """This process or, with several workers, others on this machine."""

    workers: int = 1
    cpus: int | None = None  # cores a worker; None shares all of them

    @property
    def threads(self) -> int | None:
        """Threads of each worker; None for a single process, which has all cores anyhow."""
        if self.cpus is not None or self.workers == 1:
            return self.cpus
        return max(1, processes.threads() // self.workers)

    def run(self, job: Job, shards: Sequence[int], advance: Advance) -> Generator[Done]:
        """Make shards, in any order."""
        if self.workers == 1:
            for shard in shards:
                yield job.run(shard, advance)
            return
        left = list(shards)
        for _ in range(RETRIES + 1):
            try:
                for done in self._pooled(job, left):
                    left.remove(done.shard)
                    advance(done.rows)
                    yield done
                return
            except BrokenProcessPool:  # a process died, and its pool with it: begin another
                continue
        raise UserError(
            f"a worker died {RETRIES + 1} times (out of memory?); {len(left):,} shards are "
            f"left; use fewer --workers and {GO_ON}{see('out-of-memory')}"
        )

    def _pooled(self, job: Job, shards: Sequence[int]) -> Generator[Done]:
        context, others = multiprocessing.get_context("spawn"), {*multiprocessing.active_children()}
        pool = ProcessPoolExecutor(self.workers, context, initializer=processes.end_with_parent)
        try:
            # Rows are counted when their shard has ended; until then `int` takes the count.
            running: set[Future[Done]] = {pool.submit(job.run, n, int) for n in shards}
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in sorted(ended, key=lambda one: one.exception() is not None):
                    yield future.result()
        finally:  # after Ctrl-C or an error too: no worker goes on, and no part of a shard stays
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in {*multiprocessing.active_children()} - others:
                worker.terminate()
                worker.join()
            if shards and not is_url(job.output):
                remove_temporaries(Path(job.output), *map(shard_name, shards))


class Board:
    """Where workers report; an actor on the driver's node that needs no CPU."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()
        self.rows = 0

    def report(self, shard: int, rows: int) -> None:
        """Note that a shard was begun, or how many of its rows were encoded."""
        self.begun[shard] += rows == 0
        self.rows += rows

    def read(self) -> tuple[dict[int, int], int]:
        """How often shards were begun, and rows; every report changes one of them."""
        return dict(self.begun), self.rows


def _task(job: Job, shard: int, board: Any) -> Done:
    """Make a shard in a worker, without waiting for its reports."""
    board.report.remote(shard, 0)
    return job.run(shard, lambda rows: board.report.remote(shard, rows))


@dataclass(frozen=True, slots=True)
class OnRay:
    """A Ray cluster: the one that RAY_ADDRESS names or that runs here, else one of this machine."""

    workers: int | None = None  # shards at once; None for as many as the cluster has room for
    threads: int = 1  # threads of a worker, and its CPUs
    gpus: float = 0.0  # GPUs of a worker; 0.5 lets two share one
    patience: float = 600.0  # seconds without a report from any worker after which the run ends

    def run(self, job: Job, shards: Sequence[int], advance: Advance) -> Generator[Done]:
        """Make shards, in any order."""
        ray = import_extra("ray", "ray", "--engine ray")
        starts_ray = not ray.is_initialized()
        if starts_ray:
            try:
                ray.init(logging_level="error", log_to_driver=False, include_dashboard=False)
            except Exception as error:  # Ray raises many kinds, one of them plain Exception
                raise UserError(
                    f"cannot reach or start a Ray cluster ({brief(error)}); start one with "
                    "'ray start --head' or set RAY_ADDRESS=HOST:PORT"
                ) from error
        try:
            yield from self._run(ray, job, shards, advance)
        except ray.exceptions.RayTaskError:
            raise  # a fault of the program, with its stack
        except ray.exceptions.RayError as error:
            raise UserError(
                f"Ray crashed ({brief(error)}; its logs are in "
                f"/tmp/ray/session_latest/logs); finished shards are safe: {GO_ON}"
            ) from error
        finally:
            if starts_ray:
                ray.shutdown()

    def _run(self, ray: Any, job: Job, shards: Sequence[int], advance: Advance) -> Generator[Done]:
        here = ray.get_runtime_context().get_node_id()
        near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        board = ray.remote(num_cpus=0)(Board).options(scheduling_strategy=near).remote()
        # By default Ray ends a worker with a GPU after one task, and the model with it.
        needs = {"num_cpus": self.threads, "num_gpus": self.gpus}
        make = ray.remote(**needs, max_retries=RETRIES, max_calls=0)(_task)
        shared = ray.put(job)
        left = list(reversed(shards))
        running: dict[Any, int] = {}
        watch, errors = Watch(self, ray, board, advance), ray.exceptions
        lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError)
        try:
            while left or running:
                while left and len(running) < self._room(ray):
                    shard = left.pop()
                    running[make.remote(shared, shard, board)] = shard
                ended, _ = ray.wait(list(running), timeout=POLL)
                for task in ended:
                    shard = running.pop(task)
                    try:
                        yield ray.get(task)
                    except lost as error:
                        raise UserError(
                            f"shard {shard}: its worker died {RETRIES + 1} times, the last time: "
                            f"{brief(error)}; the others are finished: {GO_ON}"
                        ) from error
                watch.look(running.values(), heard=bool(ended))
        finally:
            for task in running:
                ray.cancel(task, force=True)

    def _room(self, ray: Any) -> int:
        """Tasks to have at once: one more than there is room for, so that workers never wait."""
        available, needs = ray.cluster_resources(), {"CPU": self.threads, "GPU": self.gpus}
        rooms = (available.get(kind, 0) // need for kind, need in needs.items() if need)
        return self.workers or int(min(rooms)) + 1


class Watch:
    """Ends a run in which nothing happens, with the reason; ``clock`` gives seconds."""

    def __init__(
        self,
        engine: OnRay,
        ray: Any,
        board: Any,
        advance: Advance,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.ray, self.board, self.advance = engine, ray, board, advance
        self.clock = clock
        self.heard, self.rows = clock(), 0
        self.begun: dict[int, int] = {}

    def look(self, running: Any, *, heard: bool) -> None:
        """Read the board."""
        with suppress(self.ray.exceptions.RayError):  # busy, or about to be started: no news
            begun, rows = self.ray.get(self.board.read.remote(), timeout=30)
            heard = heard or (begun, rows) != (self.begun, self.rows)
            self.advance(max(0, rows - self.rows))
            self.begun, self.rows = begun, max(rows, self.rows)
        if heard:
            self.heard = self.clock()
        for shard in running:
            # Ray itself endlessly repeats what it stopped for lack of memory.
            if (often := self.begun.get(shard, 0)) > RETRIES + 2:
                raise UserError(
                    f"shard {shard} was started {often} times and never finished; does a worker "
                    "need more memory than its node has?"
                )
        if (waited := self.clock() - self.heard) > self.engine.patience:
            engine, silent = self.engine, sum(shard not in self.begun for shard in running)
            raise UserError(
                f"no worker has reported for {waited:.0f} s, and {silent} shards did not start: "
                f"no node has {engine.threads} CPUs and {engine.gpus:g} GPUs free per worker "
                "('ray status' shows them; --worker-cpus, --worker-gpus), or the workers hang"
            )


def make_engine(
    name: str, workers: int | None, cpus: int | None, gpus: float, patience: float
) -> Local | OnRay:
    """The engine that is named."""
    check_choice("--engine", name, ("local", "ray"))
    if name == "ray":
        import_extra("ray", "ray", "--engine ray")  # before anything is read
        return OnRay(workers, cpus or 1, gpus, patience)
    return Local(workers or 1, cpus)
