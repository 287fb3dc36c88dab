"""The queue of jobs: make each model, measure it and store the numbers, in one process or several.

The queue is the folder of results itself: a job is done when its files are there. It can be stopped
at any time and started again, also with more items or seeds, and nothing is computed twice; a
training run that was under way goes on from its checkpoint. Processes share the work by locks.
"""

import json
import logging
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from contrasent import processes, progress
from contrasent.errors import OutputError, TrainingError, UserError
from contrasent.evaluate.geometry import geometry
from contrasent.evaluate.sts import AVERAGE, CORRELATIONS, sts
from contrasent.evaluate.vectors import Cached
from contrasent.report import Report, Row, key_text, shown
from contrasent.reproduce.corpora import open_built
from contrasent.reproduce.measures import MEASURES, STS, measure, scored_pairs
from contrasent.reproduce.plan import ModelJob, Training, Unit, WorkPlan
from contrasent.reproduce.store import Json, ResultStore, environment
from contrasent.reproduce.tables import TARGET
from contrasent.stats.bootstrap import RESAMPLES, interval
from contrasent.stats.influence import row_draws, shared_draws
from contrasent.types import EncodeFn, Vectors

POLL = 1.0  # seconds between two checks of a job that another process is doing
Log = Callable[[str], object]
CALL = 512  # sentences of a forward pass in evaluations
DRAWS = 400  # resamples of test items stored for an encoder without seeds


class RunOutcome(NamedTuple):
    """The outcome of a plan: measurements made by any process, and remaining jobs."""

    made: int
    left: int
    seconds: float


def run(
    plan: WorkPlan,
    store: ResultStore,
    data: Path | None,
    *,
    jobs: int = 1,
    budget: float | None = None,
    log: Log = str,
) -> RunOutcome:
    """Do the missing jobs of a plan; start none after ``budget`` seconds."""
    for manifest in plan.manifests.values():
        store.write_manifest(manifest)
    for job in plan.jobs:
        # What was missing may exist now.
        store.skip(job.model.key, None)
    queue = _Queue(store, data, budget, log)

    def unmeasured() -> int:
        return sum(not store.has(key) for job in plan.jobs for key in job.units)

    before, began = unmeasured(), time.monotonic()
    if jobs == 1:
        queue.work(plan.jobs)
    else:
        _share(plan.jobs, queue, jobs)
    return RunOutcome(before - unmeasured(), queue.left(plan.jobs), time.monotonic() - began)


def missing(jobs: list[ModelJob], store: ResultStore) -> list[ModelJob]:
    """The jobs with a measurement that is not stored."""
    return [job for job in jobs if not all(store.has(key) for key in job.units)]


@dataclass(slots=True)
class _Queue:
    """One process's way through the jobs; ``log`` takes a line about each, and can be pickled."""

    store: ResultStore
    data: Path | None
    budget: float | None
    log: Log

    def left(self, jobs: list[ModelJob]) -> int:
        """Number of jobs that are neither done nor impossible."""
        return sum(not self.store.skipped(job.model.key) for job in missing(jobs, self.store))

    def work(self, jobs: list[ModelJob]) -> None:
        """Do all missing jobs, or wait for the processes that do them."""
        began, waiting = time.monotonic(), missing(jobs, self.store)
        total = len(waiting)
        with progress.task("reproduce", total, "jobs") as advance:
            while waiting:
                busy: list[ModelJob] = []
                for job in waiting:
                    done = total - len(missing(waiting, self.store)) + 1
                    if self.left([job]):
                        if self.budget is not None and time.monotonic() - began > self.budget:
                            return
                        if not self._try(job, f"[{done}/{total}] {job.label}"):
                            busy.append(job)
                            continue
                    advance(1)
                waiting = busy
                if waiting:
                    # Other processes are doing the remaining jobs; if one dies, we take its job.
                    time.sleep(POLL)

    def _try(self, job: ModelJob, name: str) -> bool:
        """Do a job, unless another process is doing it."""
        with self.store.locked(job.model.key) as ours:
            if not ours or not missing([job], self.store):
                return ours
            began = time.monotonic()
            try:
                reports = do(job, self.store, self.data)
            except UserError as error:
                self.store.skip(job.model.key, str(error))
                self.log(f"{name}: skipped, {error}")
                return True
        first = next((r.rows[0] for r in reports.values() if r.rows), None)
        result = f"{first.task} {shown(first.metric, first.value)}" if first is not None else "done"
        self.log(f"{name}: {result} ({time.monotonic() - began:.0f} s)")
        return True


def _share(jobs: list[ModelJob], queue: _Queue, count: int) -> None:
    """The same in several processes, which share by locks."""
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = threads or str(max(1, (os.cpu_count() or 1) // count))
    context = multiprocessing.get_context("spawn")
    arguments = queue, jobs, "silent" if progress.silent() else "remarks"
    started = [context.Process(target=_work, args=arguments) for _ in range(count)]
    try:
        for worker in started:
            worker.start()
    finally:
        if threads is None:
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
    if stopped:
        raise KeyboardInterrupt
    failed = [worker.exitcode for worker in started if worker.exitcode not in (0, 130)]
    if failed and queue.left(jobs):
        memory = ", with fewer --jobs if memory ran out" if failed[0] == -signal.SIGKILL else ""
        raise UserError(
            f"a process ended with exit code {failed[0]}; the same command continues{memory}"
        )


def _work(queue: _Queue, jobs: list[ModelJob], shown: str) -> None:
    os.setpgrp()  # The first process passes on Ctrl-C of a terminal, once
    processes.end_with_parent()
    progress.show(shown)
    logging.getLogger("contrasent.model.base").setLevel(logging.ERROR)
    try:
        queue.work(jobs)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except UserError as error:
        queue.log(str(error))
        raise SystemExit(2) from None


def do(job: ModelJob, store: ResultStore, folder: Path | None) -> dict[str, Report]:
    """Make a job's model, unless it exists, and its missing measurements; then delete it."""
    about, key = job.describe(), job.model.key
    loaded = _Loaded(job, store, folder)
    reports: dict[str, Report] = {}
    failed: UserError | None = None
    for unit in [unit for unit in job.units.values() if not store.has(unit.key)]:
        began = time.monotonic()
        try:
            report = loaded.measure(unit)
        except TrainingError as error:
            store.write_unit(f"train-{key}", {**about, "failed": str(error)})
            raise
        except OutputError:
            raise
        except UserError as error:
            # Another measurement may not need the data that one lacks.
            failed = failed or error
            continue
        # The run's record counts the seconds of training.
        seconds = round(time.monotonic() - began - loaded.training_seconds, 1)
        loaded.training_seconds = 0.0
        stored = {**about, "report": report.to_json(), "model": key, "measured_in": seconds}
        if job.model.kind != "train":
            # How far each row moves in resamples of the test items that all reports share.
            stored["draws"] = {
                key_text(row): " ".join(f"{v:.3g}" for v in values)
                for row, values in shared_draws(report, DRAWS).items()
            }
        store.write_unit(unit.key, stored)
        reports[unit.key] = report
    if failed is not None:
        raise failed
    if job.model.kind == "train":
        store.drop_model(key)
    return reports


class _Loaded:
    """A model that is made when first needed by a measurement."""

    def __init__(self, job: ModelJob, store: ResultStore, folder: Path | None) -> None:
        self.job, self.model, self.store, self.folder = job, job.model, store, folder
        self.training_seconds = 0.0
        self._plain: EncodeFn | None = None
        self._record: Json | None = None

    def measure(self, unit: Unit) -> Report:
        entry = MEASURES[unit.kind]
        if entry.of_training:
            return entry.run(self._trained(), **unit.options)
        if unit.fit is not None and unit.fit.corpus == TARGET:
            return self._on_targets(unit)
        if unit.fit is not None:
            texts = dict.fromkeys(text for row in open_built(unit.text) for text in row)
            return measure(self._fitted(unit, list(texts)), unit.kind, unit.options, self.folder)
        if self._plain is None:
            # Each sentence is encoded once for all measurements.
            self._plain = Cached(self._load(normalize=None))
        return measure(self._plain, unit.kind, unit.options, self.folder)

    def _on_targets(self, unit: Unit) -> Report:
        """A transform for each task, fitted to all of its own sentences."""
        reports: list[Report] = []
        options: Json = dict(unit.options)
        for task in options["tasks"]:
            parts = scored_pairs(self.folder, tasks=(task,), split="all", form=options["form"])
            texts = [s for p in parts for side in (p.first, p.second) for s in side]
            encode = self._fitted(unit, list(dict.fromkeys(texts)))
            reports.append(measure(encode, unit.kind, {**options, "tasks": (task,)}, self.folder))
        joined = with_sts7_mean(Report.join(reports), options)
        return Report(joined.rows, {"fitted": "to each task"}, joined.items)

    def _load(self, *, normalize: bool | None) -> EncodeFn:
        if self.model.kind == "glove":
            from contrasent.postprocess import Glove

            return Glove.load(Path(self.model.base))
        from contrasent.encoder.encoder import TorchEncoder

        if self.model.kind == "train":
            self._trained(again=True)
            encoder = TorchEncoder.load(self.store.model(self.model.key), normalize=normalize)
        else:
            pooling = self.model.pooling or None
            encoder = TorchEncoder.load(Path(self.model.base), pooling=pooling, normalize=normalize)
        # More than 64 keep a GPU busy; on CPU a call is bounded by its tokens in any case.
        return partial(encoder.encode, batch_size=CALL)

    def _fitted(self, unit: Unit, texts: list[str]) -> EncodeFn:
        from contrasent.encoder import flow
        from contrasent.postprocess import whiten

        encode = self._load(normalize=False)
        vectors = encode(texts)
        assert unit.fit is not None
        transform: Callable[[Vectors], Vectors]
        if unit.fit.kind == "whitening":
            transform = whiten(vectors, dimensions=unit.fit.dimensions)
        else:
            settings = flow.FlowSettings(
                num_train_epochs=unit.fit.num_train_epochs or 1, seed=unit.seed
            )
            transform = flow.fit(vectors, settings).transform
        return lambda sentences: transform(encode(sentences))

    def _trained(self, *, again: bool = False) -> Json:
        """The record of the training, which is done first if necessary."""
        key = self.model.key
        record = self._record or self.store.unit(f"train-{key}")
        target = self.store.model(key)
        if record is not None and "failed" in record:
            raise TrainingError(record["failed"])
        if record is None or (again and not (target / "modules.json").is_file()):
            assert self.model.training is not None
            began = time.monotonic()
            tokens = self.store.home / "tokens"
            record = train(self.model.training, Path(self.model.base), target, self.folder, tokens)
            self.training_seconds += time.monotonic() - began
            self.store.write_unit(f"train-{key}", {**self.job.describe(), **record})
            shutil.rmtree(target / "run", ignore_errors=True)
        self._record = record
        return record


def train(training: Training, base: Path, target: Path, folder: Path | None, tokens: Path) -> Json:
    """Train a model into a folder, resuming a stopped run; return the run's record."""
    from contrasent.train.fit import fit_plan
    from contrasent.train.plan import Plan
    from contrasent.train.prepare import prepare
    from contrasent.train.run import RunFolder
    from contrasent.train.settings import Settings

    resolved, trace = training.resolved, training.trace
    values: dict[str, Any] = dict(resolved.settings)
    if trace is not None:
        values["eval_steps"] = trace["every"]
    settings = Settings(**values)
    learner = prepare(base, resolved.objective, dict(resolved.given), settings)
    corpus = open_built(training.corpus.path, documents=training.corpus.documents)
    resume = _same_settings(RunFolder(target).settings, settings)
    began = time.monotonic()
    plan = Plan(
        objective=learner,
        corpus=corpus,
        settings=settings,
        base=base.name,
        evaluate=_evaluator(training, folder),
        keep="trained",  # the papers choose among trained steps
    )
    run = fit_plan(plan, target, resume=resume, overwrite=not resume, tokens=tokens)
    return {
        "steps": run.steps,
        "batch_size": settings.batch_size,
        "precision": settings.precision,
        "seconds": round(time.monotonic() - began, 1),
        "sentences_per_second": run.sentences_per_second,
        "best_step": run.best_step,
        "history": run.history,
        "shares": run.shares,
        "terms": _late_terms(run.log, learner.weights),
        "trace": sorted(
            (line["step"], {"rows": line["evaluation"], "notes": {}})
            for line in (run.log if trace is not None else ())
            if "evaluation" in line
        ),
        **environment(),
    }


def _late_terms(log: list[Json], terms: Iterable[str]) -> dict[str, float]:
    """The mean of each term, before its weight, over the logged steps of a run's second half."""
    lines = [line for line in log if "loss" in line]
    late = lines[len(lines) // 2 :]
    return {
        term: sum(line[term] for line in late) / len(late)
        for term in terms
        if late and term in late[0]
    }


def _same_settings(stored: Path, settings: Any) -> bool:
    """Whether a run can be resumed with its stored settings, if any."""
    try:
        before = json.loads(stored.read_text("utf-8"))["settings"]
    except (OSError, ValueError, KeyError):
        return True
    return bool(before == json.loads(json.dumps(asdict(settings))))


def _evaluator(training: Training, folder: Path | None) -> Callable[[EncodeFn], Report] | None:
    """The evaluation of a run: its trace, the score that selects, or nothing."""
    if training.trace is None:
        options = MEASURES["sts"].complete({"tasks": ("STSB",), "split": "dev"})
        evaluator = partial(measure, kind="sts", options=options, folder=folder)
        return evaluator if training.resolved.select == "stsb" else None
    trace: Json = {k: v or None for k, v in training.trace.items() if k != "every"}
    # The first row is always the same, so that no checkpoint counts as better than another.
    same = Row("trace", trace["split"], "followed", "", 0.0, 0)
    follow: Callable[..., Report] = sts if "tasks" in trace else geometry

    def evaluate(encode: EncodeFn) -> Report:
        report = follow(encode, **trace, resamples=0, folder=folder)
        wanted = ("alignment", "uniformity", "spearman")
        return Report((same, *(r for r in report if r.metric in wanted)), {})

    return evaluate


def with_sts7_mean(report: Report, options: Json) -> Report:
    """A report, and the plain mean over the seven STS sets, each measured with its own vectors."""
    joined = report
    for metric in CORRELATIONS if set(STS) <= set(options["tasks"]) else ():
        for name in options["aggregate"]:
            rows = [report.one(task=t, metric=metric, aggregate=name) for t in STS]
            value, count = sum(r.value for r in rows) / len(rows), sum(r.count for r in rows)
            row = Row(AVERAGE, options["split"], metric, name, value, count)
            items = {**joined.items, row.key: tuple(r.key for r in rows)}
            moves = row_draws(Report((), {}, items), row.key, RESAMPLES)
            low, high = interval(value + moves)
            joined = Report((*joined.rows, replace(row, low=low, high=high)), report.notes, items)
    return joined
