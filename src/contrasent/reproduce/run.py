"""The queue: what is missing is computed, the most informative first, by one process or several.

The queue is the folder of results itself: a job is done when its files are there. It can be
stopped at any time and started again, with more items or seeds, and nothing is computed twice; a
training run that was under way goes on from its checkpoint. Several processes, also ones that were
started by hand, share the work by locks.
"""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from contrasent import processes, progress
from contrasent.errors import UserError
from contrasent.report import shown
from contrasent.reproduce.plan import Job, Plan
from contrasent.reproduce.store import Store

POLL = 1.0  # seconds between two looks at a job that another process has in hand
Log = Callable[[str], object]


class Outcome(NamedTuple):
    """The outcome of a plan: measurements made, by whichever process; jobs that are left."""

    made: int
    left: int
    seconds: float


def run(
    plan: Plan,
    store: Store,
    data: Path | None,
    *,
    jobs: int = 1,
    budget: float | None = None,
    log: Log = str,
) -> Outcome:
    """Do what is missing of a plan; begin nothing after ``budget`` seconds."""
    for manifest in plan.manifests.values():
        store.write_manifest(manifest)
    for job in plan.jobs:
        # What was missing may be there now.
        store.skip(job.model.key, None)
    queue = _Queue(store, data, budget, log)

    def unmeasured() -> int:
        return sum(not store.has(key) for job in plan.jobs for key in job.units)

    before, began = unmeasured(), time.monotonic()
    if jobs == 1:
        queue.work(plan.jobs)
    else:
        _share(plan.jobs, queue, jobs)
    return Outcome(before - unmeasured(), queue.left(plan.jobs), time.monotonic() - began)


def missing(jobs: list[Job], store: Store) -> list[Job]:
    """The jobs of which a measurement is not stored."""
    return [job for job in jobs if not all(store.has(key) for key in job.units)]


@dataclass(slots=True)
class _Queue:
    """One process's way through the jobs; ``log`` takes a line about each, and can be pickled."""

    store: Store
    data: Path | None
    budget: float | None
    log: Log

    def left(self, jobs: list[Job]) -> int:
        """How many jobs are neither done nor impossible."""
        return sum(not self.store.skipped(job.model.key) for job in missing(jobs, self.store))

    def work(self, jobs: list[Job]) -> None:
        """Do all that is missing, or wait for whoever does it."""
        began, waiting = time.monotonic(), missing(jobs, self.store)
        total = len(waiting)
        with progress.task("reproduce", total, "jobs") as advance:
            while waiting:
                busy: list[Job] = []
                for job in waiting:
                    done = total - len(missing(waiting, self.store)) + 1
                    if self.store.skipped(job.model.key) or not missing([job], self.store):
                        advance(1)
                    elif self.budget is not None and time.monotonic() - began > self.budget:
                        return
                    elif self._try(job, f"[{done}/{total}] {job.label}"):
                        advance(1)
                    else:
                        busy.append(job)
                waiting = busy
                if waiting:
                    # All that is left is in other processes' hands; if one dies, its job is ours.
                    time.sleep(POLL)

    def _try(self, job: Job, name: str) -> bool:
        """Do a job, unless another process has it in hand."""
        from contrasent.reproduce.work import do

        with self.store.locked(job.model.key) as ours:
            if not ours or not missing([job], self.store):
                return ours
            began = time.monotonic()
            try:
                found = do(job, self.store, self.data)
            except UserError as error:
                self.store.skip(job.model.key, str(error))
                self.log(f"{name}: skipped, {error}")
                return True
        first = next((r.rows[0] for r in found.values() if r.rows), None)
        result = f"{first.task} {shown(first.metric, first.value)}" if first is not None else "done"
        self.log(f"{name}: {result} ({time.monotonic() - began:.0f} s)")
        return True


def _share(jobs: list[Job], queue: _Queue, count: int) -> None:
    """The same in several processes, which share by locks."""
    given = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = given or str(max(1, (os.cpu_count() or 1) // count))
    context = multiprocessing.get_context("spawn")
    arguments = queue, jobs, "silent" if progress.silent() else "remarks"
    started = [context.Process(target=_work, args=arguments) for _ in range(count)]
    try:
        for worker in started:
            worker.start()
    finally:
        if given is None:
            del os.environ["OMP_NUM_THREADS"]
    stopped = False
    total = seen = len(missing(jobs, queue.store))
    with progress.task("reproduce", total, "jobs") as advance:
        while any(worker.is_alive() for worker in started):
            try:
                for worker in started:
                    worker.join(POLL)
                left = queue.left(jobs)
                advance(seen - left)
                seen = left
            except KeyboardInterrupt:
                stopped = True
                for worker in started:
                    if worker.is_alive() and worker.pid is not None:
                        # It writes its checkpoint; at a second signal it leaves at once.
                        os.kill(worker.pid, signal.SIGINT)
    if stopped or any(worker.exitcode for worker in started):
        raise KeyboardInterrupt


def _work(queue: _Queue, jobs: list[Job], shown: str) -> None:
    os.setpgrp()  # Ctrl-C in a terminal is the first process's to pass on, once
    processes.end_with_parent()
    progress.show(shown)
    logging.getLogger("contrasent.model.base").setLevel(logging.ERROR)
    try:
        queue.work(jobs)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
