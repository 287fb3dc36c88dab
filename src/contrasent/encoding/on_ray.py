"""Shards on a Ray cluster: a task a shard, which Ray places, and places again if its worker dies.

Plain tasks, not ``ray.data``: there an actor holds its CPUs for as long as the job lasts, and all
else that the job does needs CPUs beside the actors: as many actors as CPUs never end (docs/log.md).
And a task belongs to its actor. A task of ours holds its CPUs for one shard, and can be made anew
anywhere. The model stays open in Ray's worker process, which Ray gives the next task.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from contrasent.encoding.engines import RETRIES
from contrasent.encoding.job import Advance, Done, Job
from contrasent.errors import UserError, import_extra

POLL = 1.0


class Board:
    """Where workers report; an actor on the driver's node that needs no CPU."""

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()
        self.rows = self.reports = 0

    def report(self, shard: int, rows: int) -> None:
        """Note that a shard was begun, or how many rows were encoded of it."""
        self.begun[shard] += rows == 0
        self.rows += rows
        self.reports += 1

    def read(self) -> tuple[dict[int, int], int, int]:
        """What is on it."""
        return dict(self.begun), self.rows, self.reports


def _task(job: Job, shard: int, board: Any) -> Done:
    """What a worker does; its reports are not waited for."""
    board.report.remote(shard, 0)
    return job.run(shard, lambda rows: board.report.remote(shard, rows))


def _connect(ray: Any) -> None:
    """Join the cluster that there is, or start one here."""
    try:
        ray.init(logging_level="error", log_to_driver=False, include_dashboard=False)
    except Exception as error:  # Ray's own are of many kinds, one of them plain Exception
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"no Ray cluster can be reached or started ({reason}); start one with 'ray start "
            "--head', or name one by RAY_ADDRESS=HOST:PORT"
        ) from error


@dataclass(frozen=True, slots=True)
class OnRay:
    """A Ray cluster: the one that RAY_ADDRESS names or that runs here, else one of this machine.

    Attributes:
        workers: shards at once; None for as many as the cluster has room for.
        gpus: that a worker computes with; 0.5 lets two share one.
        patience: seconds without a report from any worker after which the run ends.
    """

    workers: int | None = None
    cpus: int = 1
    gpus: float = 0.0
    patience: float = 600.0

    def run(self, job: Job, shards: Sequence[int], advance: Advance) -> Iterator[Done]:
        """Make shards, as :class:`contrasent.encoding.engines.Engine` says."""
        ray = import_extra("ray", "ray", "--engine ray")
        own = not ray.is_initialized()
        if own:
            _connect(ray)
        try:
            yield from self._run(ray, job, shards, advance)
        finally:
            if own:
                ray.shutdown()

    def _run(self, ray: Any, job: Job, shards: Sequence[int], advance: Advance) -> Iterator[Done]:
        here = ray.get_runtime_context().get_node_id()
        near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        board = ray.remote(num_cpus=0)(Board).options(scheduling_strategy=near).remote()
        # By default Ray ends a worker with a GPU after one task, and the model with it.
        make = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES, max_calls=0)(
            _task
        )
        shared = ray.put(job)
        left = list(reversed(shards))
        running: dict[Any, int] = {}
        watch = Watch(self, ray, board, advance)
        try:
            while left or running:
                while left and len(running) < self._room(ray):
                    shard = left.pop()
                    running[make.remote(shared, shard, board)] = shard
                ended, _ = ray.wait(list(running), timeout=POLL)
                for task in ended:
                    yield self._ended(ray, task, running.pop(task))
                watch.look(running.values(), heard=bool(ended))
        finally:
            for task in running:
                ray.cancel(task, force=True)

    def _room(self, ray: Any) -> int:
        """Tasks to have at once: one more than there is room for, so that none is waited for."""
        if self.workers is not None:
            return self.workers
        found = ray.cluster_resources()
        room = found.get("CPU", 0) // max(self.cpus, 1e-9)
        if self.gpus:
            room = min(room, found.get("GPU", 0) // self.gpus)
        return int(room) + 1

    def _ended(self, ray: Any, task: Any, shard: int) -> Done:
        try:
            done: Done = ray.get(task)
        except ray.exceptions.RayTaskError:
            raise  # a fault of the program, with its stack
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(
                f"shard {shard}: its worker died {RETRIES + 1} times, the last time: {reason}; "
                "the others are whole: give the same command again to go on"
            ) from error
        return done

    def fits(self, nodes: Sequence[dict[str, Any]]) -> bool:
        """Whether any node that is alive is large enough for a worker, all of it free."""
        return any(
            node["Alive"]
            and node["Resources"].get("CPU", 0) >= self.cpus
            and node["Resources"].get("GPU", 0) >= self.gpus
            for node in nodes
        )


class Watch:
    """Ends a run in which nothing happens, with the reason.

    ``clock``: seconds.
    """

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
        self.heard, self.rows, self.reports = clock(), 0, 0
        self.begun: dict[int, int] = {}

    def look(self, running: Any, *, heard: bool) -> None:
        """Read the board."""
        try:
            self.begun, rows, reports = self.ray.get(self.board.read.remote(), timeout=30)
        except self.ray.exceptions.RayError:  # busy, or about to be started: no news
            rows, reports = self.rows, self.reports
        if heard or reports != self.reports:
            self.heard = self.clock()
        self.advance(max(0, rows - self.rows))
        self.rows, self.reports = max(rows, self.rows), reports
        often = [shard for shard in running if self.begun.get(shard, 0) > RETRIES + 2]
        if often:  # Ray itself repeats without end what it stopped for want of memory
            raise UserError(
                f"shard {often[0]} was begun {self.begun[often[0]]} times and never ended; does "
                "a worker need more memory than its node has?"
            )
        waited = self.clock() - self.heard
        if waited > self.engine.patience:
            raise UserError(f"no worker has reported for {waited:.0f} s: {self._why(running)}")

    def _why(self, running: Any) -> str:
        need = f"{self.engine.cpus} CPUs and {self.engine.gpus:g} GPUs"
        nodes = self.ray.nodes()
        waiting = [shard for shard in running if shard not in self.begun]
        if not self.engine.fits(nodes):
            alive = [node["Resources"] for node in nodes if node["Alive"]]
            most = max((r.get("CPU", 0), r.get("GPU", 0)) for r in alive) if alive else (0, 0)
            return (
                f"a worker needs {need} and the largest of {len(alive)} nodes has {most[0]:g} and "
                f"{most[1]:g}; change --worker-cpus or --worker-gpus, or add a node"
            )
        if waiting:
            free = self.ray.available_resources()
            return (
                f"{len(waiting)} shards wait for {need} each, and the cluster has "
                f"{free.get('CPU', 0):g} and {free.get('GPU', 0):g} free; does another job hold "
                "them?"
            )
        shown = ", ".join(map(str, list(running)[:5]))
        return f"shards {shown} were begun and are silent; see the logs of their workers"
