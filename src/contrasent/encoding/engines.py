"""What computes the shards of a job: this process, several of this machine, or a Ray cluster."""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Protocol

from contrasent import processes
from contrasent.encoding.job import Advance, Done, Job
from contrasent.errors import UserError

ENGINES = ("local", "ray")
RETRIES = 3
"""How often a shard is begun again whose worker died."""


class Engine(Protocol):
    """What runs a job."""

    def run(self, job: Job, shards: Sequence[int], advance: Advance) -> Iterator[Done]:
        """Make shards, in any order."""


@dataclass(frozen=True, slots=True)
class Local:
    """This process, or several of this machine.

    Attributes:
        workers: how many; one is this process itself.
    """

    workers: int = 1

    def run(self, job: Job, shards: Sequence[int], advance: Advance) -> Iterator[Done]:
        """Make shards, as :class:`Engine` says."""
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
            f"a worker died {RETRIES + 1} times (out of memory?); {len(left):,} shards are left; "
            "use fewer --workers, and give the same command again to go on"
        )

    def _pooled(self, job: Job, shards: Sequence[int]) -> Iterator[Done]:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.workers, context, initializer=processes.end_with_parent)
        try:
            running: set[Future[Done]] = {pool.submit(_run, job, shard) for shard in shards}
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in sorted(ended, key=lambda one: one.exception() is not None):
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(job: Job, shard: int) -> Done:
    return job.run(shard, lambda rows: None)
