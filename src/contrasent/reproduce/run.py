"""The queue: what is missing is computed, the most informative first, by one process or several.

The queue is the folder of results itself: a job is done when its files are there. It can be
stopped at any time and started again, with more items or seeds, and nothing is computed twice; a
training run that was under way goes on from its checkpoint. Several processes, also ones that were
started by hand, share the work by locks.
"""

import logging
import multiprocessing
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent import progress
from contrasent.errors import OptionError, UserError
from contrasent.report import shown
from contrasent.reproduce.jobs import Job, Plan
from contrasent.reproduce.store import Store

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

POLL = 1.0
"""Seconds between two looks at a job that another process has in hand."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What became of a plan.

    Attributes:
        made: measurements that were made.
        skipped: labels of jobs that could not be done, and why.
        left: jobs that were left when the budget was used up.
        seconds: that it took.
    """

    made: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    left: int = 0
    seconds: float = 0.0


def run(
    plan: Plan,
    store: Store,
    data: Path | None,
    *,
    jobs: int = 1,
    budget: float | None = None,
    keep: bool = False,
    say: Say = lambda line: None,
) -> Outcome:
    """Do what is missing of a plan.

    Args:
        plan: the work.
        store: where results go.
        data: the data folder.
        jobs: processes.
        budget: seconds after which no job is begun; also none that past ones of its kind say would
            end later.
        keep: keep the models.
        say: told of each job.

    Raises:
        KeyboardInterrupt: Ctrl-C; what is finished is stored.
    """
    for manifest in plan.manifests.values():
        store.write_manifest(manifest)
    for job in plan.jobs:
        # What was missing may be there now.
        store.skip(job.model.key, None)
    began = time.monotonic()
    if jobs == 1:
        outcome = _Queue(store, data, budget, keep).work(plan.jobs, say)
    else:
        outcome = _share(plan.jobs, _Queue(store, data, budget, keep), say, jobs)
    outcome.seconds = time.monotonic() - began
    return outcome


def missing(jobs: list[Job], store: Store) -> list[Job]:
    """The jobs of which a measurement is not stored."""
    return [job for job in jobs if not _done(job, store)]


def _done(job: Job, store: Store) -> bool:
    return all(store.has(key) for key in job.units)


@dataclass(slots=True)
class _Queue:
    """One process's way through the jobs.

    Attributes:
        store: where results go.
        data: the data folder.
        budget: seconds after which nothing is begun.
        keep: keep the models.
    """

    store: Store
    data: Path | None
    budget: float | None
    keep: bool

    def work(self, jobs: list[Job], say: Say) -> Outcome:
        """Do all that is missing, or wait for whoever does it."""
        outcome = Outcome()
        began = time.monotonic()
        clock = _Clock()
        waiting = missing(jobs, self.store)
        clock.total = total = len(waiting)
        with progress.task("reproduce", total, "jobs") as advance:
            while waiting:
                busy: list[Job] = []
                for job in waiting:
                    left = len(missing(waiting, self.store)) - 1
                    gone = time.monotonic() - began
                    if not self._needed(job, outcome):
                        advance(1)
                    elif self.budget is not None and gone + clock.expects(job) > self.budget:
                        outcome.left += 1
                    elif self._try(job, outcome, clock, say, f"{total - left}/{total}", left):
                        advance(1)
                    else:
                        busy.append(job)
                waiting = busy
                if waiting:
                    # All that is left is in other processes' hands; if one dies, its job is ours.
                    time.sleep(POLL)
        return outcome

    def _needed(self, job: Job, outcome: Outcome) -> bool:
        reason = self.store.skipped(job.model.key)
        if reason is not None:
            outcome.skipped[job.label] = reason
        return reason is None and not _done(job, self.store)

    def _try(
        self, job: Job, outcome: Outcome, clock: "_Clock", say: Say, number: str, left: int
    ) -> bool:
        """Do a job, unless another process has it in hand."""
        from contrasent.reproduce.work import do

        with self.store.locked(job.model.key) as ours:
            if not ours:
                return False
            if _done(job, self.store):
                return True
            began = time.monotonic()
            try:
                found = do(job, self.store, self.data, keep=self.keep)
            except UserError as error:
                self.store.skip(job.model.key, str(error))
                outcome.skipped[job.label] = str(error)
                say(f"[{number}] {job.label}: skipped, {error}")
                return True
        seconds = time.monotonic() - began
        clock.note(job, seconds)
        outcome.made += len(found)
        first = next((r.rows[0] for r in found.values() if r.rows), None)
        told = f"{first.task} {shown(first.metric, first.value)}" if first is not None else "done"
        say(f"[{number}] {job.label}: {told} ({seconds:.0f} s{clock.left(left)})")
        return True


class _Clock:
    """How long jobs take, by kind of model and objective, and all of them together."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, ...], list[float]] = {}
        self._began = time.monotonic()
        self.total = 0

    @staticmethod
    def _kind(job: Job) -> tuple[str, ...]:
        resolved = job.model.resolved
        return (job.model.kind, resolved.objective if resolved else "", str(bool(job.model.trace)))

    def note(self, job: Job, seconds: float) -> None:
        self._seconds.setdefault(self._kind(job), []).append(seconds)

    def expects(self, job: Job) -> float:
        """Seconds that a job will take; 0 if nothing like it was seen."""
        known = self._seconds.get(self._kind(job))
        return sum(known) / len(known) if known else 0.0

    def left(self, jobs: int) -> str:
        """The time for the jobs that are left, at the pace of all processes that share them."""
        finished = self.total - jobs
        if finished < 3 or not jobs:
            return ""
        return f", about {duration(jobs * (time.monotonic() - self._began) / finished)} left"


def _share(jobs: list[Job], work: _Queue, say: Say, count: int) -> Outcome:
    """The same in several processes, which share by locks."""
    threads = max(1, (os.cpu_count() or 1) // count)
    context = multiprocessing.get_context("spawn")
    given = "OMP_NUM_THREADS" in os.environ
    if not given:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    channel = context.SimpleQueue()
    try:
        workers = [
            context.Process(target=_worker, args=(jobs, work, channel)) for _ in range(count)
        ]
        for worker in workers:
            worker.start()
    finally:
        if not given:
            del os.environ["OMP_NUM_THREADS"]
    outcome = Outcome()
    ended = 0
    stopped = False
    while ended < count:
        try:
            while channel.empty() and any(worker.is_alive() for worker in workers):
                time.sleep(0.1)
            if channel.empty():
                break
            kind, value = channel.get()
        except KeyboardInterrupt:
            # The workers were interrupted too, and write their checkpoints.
            stopped = True
            continue
        if kind == "said":
            say(value)
        else:
            ended += 1
            outcome.made += value.made
            outcome.skipped |= value.skipped
            outcome.left = max(outcome.left, value.left)
    for worker in workers:
        worker.join()
    if stopped or any(worker.exitcode for worker in workers):
        raise KeyboardInterrupt
    return outcome


def _worker(jobs: list[Job], work: _Queue, channel: "SimpleQueue[Any]") -> None:
    logging.getLogger("contrasent.model.encoder").setLevel(logging.ERROR)
    try:
        outcome = work.work(jobs, lambda line: channel.put(("said", line)))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    channel.put(("ended", outcome))


def seconds_of(text: str) -> float:
    """Seconds of a time such as "90", "30m", "1h30m" or "2d".

    Raises:
        OptionError: it is none.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    plain = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", plain)
    if not parts or "".join(n + u for n, u in parts) != plain:
        raise OptionError("--budget", text, "write a time such as 30m, 2h or 1h30m")
    return sum(float(number) * units[unit or "s"] for number, unit in parts)


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
