"""Does jobs: makes each model, measures it and stores the numbers, in one process or several.

The queue of jobs is the folder of results itself: a job is done when its files are there. It can be
stopped at any time and started again, also with more items or seeds, and nothing is computed twice;
an interrupted training run resumes from its checkpoint. Processes share the work by locks.
"""

import hashlib
import logging
import multiprocessing
import os
import platform
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence, Set
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from contrasent import __version__, processes, progress
from contrasent.errors import OutputError, TrainingError, UserError
from contrasent.evaluate.geometry import geometry
from contrasent.evaluate.sts import AVERAGE, CORRELATIONS, add_correlations, check_subsets, sts
from contrasent.evaluate.vectors import Cached, ReportBuilder
from contrasent.report import Report, Row, key_text, shown
from contrasent.reproduce.corpora import open_built
from contrasent.reproduce.measures import MEASURES, STS, scored_pairs
from contrasent.reproduce.plan import Job, Measurement, WorkPlan
from contrasent.reproduce.store import Json, ResultStore, manifest_key
from contrasent.reproduce.tables import TARGET, FittedTransform, Training
from contrasent.stats.influence import shared_draws
from contrasent.types import EncodeFn, Vectors

POLL = 1.0  # seconds between two checks of a job that another process is doing
CALL = 512  # sentences of a forward pass: more than 64 keep a GPU busy
DRAWS = 400  # resamples of test items stored with a report
CODE = ("losses", "engine", "objectives", "encoder", "model", "train", "text")
"""Folders of the package that the numbers of a training run depend on."""

Log = Callable[[str], object]


def run(
    plan: WorkPlan,
    store: ResultStore,
    data: Path | None,
    *,
    jobs: int = 1,
    budget: float | None = None,
    log: Log = str,
) -> tuple[int, int]:
    """Do the missing jobs of a plan; numbers of measurements made by anybody, and of jobs left.

    No job is started after ``budget`` seconds; ``jobs`` processes share them.
    """
    for name, manifest in plan.manifests.items():
        store.write("items", manifest_key(name, manifest["scale"]), manifest)
    for job in plan.jobs:
        # What was missing may exist now.
        store.path("skipped", job.key).unlink(missing_ok=True)
        left = store.model(job.key)
        if left.is_dir() and not (left / "modules.json").exists() and not missing([job], store):
            with store.locked(job.key) as ours:
                # A kill left it half removed. Other items may still measure one that is whole.
                if ours and not (left / "run").exists():
                    _drop(left)

    def unmeasured() -> int:
        return sum(not store.has(key) for job in plan.jobs for key in job.measurements)

    before = unmeasured()
    work = partial(do_all, plan.jobs, store, data, budget=budget, log=log)
    if jobs == 1:
        work()
    else:
        _share(work, jobs)
    return before - unmeasured(), sum(_is_open(job, store) for job in plan.jobs)


def missing(jobs: Sequence[Job], store: ResultStore) -> list[Job]:
    """The jobs with a measurement that is not stored."""
    return [job for job in jobs if not all(store.has(key) for key in job.measurements)]


def _is_open(job: Job, store: ResultStore) -> bool:
    """Whether a job is neither done nor impossible."""
    return bool(missing([job], store)) and store.read("skipped", job.key) is None


def do_all(
    jobs: Sequence[Job], store: ResultStore, data: Path | None, *, budget: float | None, log: Log
) -> None:
    """Do all missing jobs, or wait for the processes that do them."""
    began, waiting = time.monotonic(), missing(jobs, store)
    total = len(waiting)
    with progress.task("reproduce", total, "jobs") as advance:
        while waiting:
            busy: list[Job] = []
            for job in waiting:
                if _is_open(job, store):
                    if budget is not None and time.monotonic() - began > budget:
                        return
                    with store.locked(job.key) as ours:
                        if not ours:
                            busy.append(job)
                            continue
                        if missing([job], store):
                            done = total - len(missing(waiting, store)) + 1
                            log(f"[{done}/{total}] {job.label}: {_outcome(job, store, data)}")
                advance(1)
            waiting = busy
            if waiting:
                # Other processes are doing the remaining jobs; if one dies, we take its job.
                time.sleep(POLL)


def _outcome(job: Job, store: ResultStore, data: Path | None) -> str:
    """Do a job; what came of it, in words."""
    began = time.monotonic()
    try:
        reports = do(job, store, data)
    except OutputError:  # such as a full disk: no job can be done
        raise
    except UserError as error:
        store.write("skipped", job.key, {"reason": str(error)})
        return f"skipped, {error}"
    first = next((r.rows[0] for r in reports if r.rows), None)
    result = f"{first.task} {shown(first.metric, first.value)}" if first is not None else "done"
    return f"{result} ({time.monotonic() - began:.0f} s)"


def _share(work: Callable[[], None], count: int) -> None:
    """Work in several processes, which share it by locks; this one is one of them."""
    import torch

    stated = os.environ.get("OMP_NUM_THREADS")
    threads = max(1, (os.cpu_count() or 1) // count)
    os.environ["OMP_NUM_THREADS"] = stated or str(threads)
    context = multiprocessing.get_context("spawn")
    arguments = work, "silent" if progress.silent() else "remarks"
    helpers = [context.Process(target=_help, args=arguments) for _ in range(count - 1)]
    try:
        for helper in helpers:
            helper.start()
        if stated is None:
            del os.environ["OMP_NUM_THREADS"]
            torch.set_num_threads(threads)
        work()
        for helper in helpers:
            helper.join()
    except BaseException:  # Ctrl-C, or a fault of this process: they write their checkpoints
        for helper in helpers:
            if helper.pid is not None and helper.is_alive():
                os.kill(helper.pid, signal.SIGINT)
        for helper in helpers:
            if helper.pid is not None:
                helper.join()
        raise


def _help(work: Callable[[], None], shown: str) -> None:
    """Work beside the first process; what this one leaves undone, that one does."""
    os.setpgrp()  # the first process passes on Ctrl-C of a terminal, once
    signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup and & leave it ignored
    processes.end_with_parent()
    progress.show(shown)
    logging.getLogger("contrasent.model.base").setLevel(logging.ERROR)
    try:
        work()
    except (KeyboardInterrupt, UserError):
        raise SystemExit(2) from None


def do(job: Job, store: ResultStore, folder: Path | None) -> list[Report]:
    """Make a job's model, unless it exists, and its missing measurements; then delete it."""
    left = [one for one in job.measurements.values() if not store.has(one.key)]
    record: Json = {}
    if job.training is not None:
        record = _trained(job, job.training, store, folder, {one.kind for one in left})

    @lru_cache(maxsize=1)
    def bare(precision: str) -> EncodeFn:
        return Cached(_load(job, store, precision, normalize=False))

    @lru_cache(maxsize=1)
    def encoder(precision: str, fit: FittedTransform | None, file: str, seed: int) -> EncodeFn:
        if fit is None:
            return Cached(_load(job, store, precision))
        texts = dict.fromkeys(text for row in open_built(file) for text in row)
        encode = _load(job, store, precision, normalize=False)
        return _transformed(bare(precision), fit, seed, encode(list(texts)))

    # Measurements of the same vectors follow each other, and encode each sentence once; so do those
    # of several transforms.
    left.sort(key=lambda one: (one.fit is not None, one.text, one.seed))
    reports: list[Report] = []
    failed: UserError | None = None
    for one in left:
        began = time.monotonic()
        try:
            if MEASURES[one.kind].of_training:
                report = MEASURES[one.kind].run(record, **one.options)
            elif one.fit is not None and one.fit.corpus == TARGET:
                report = _measured_on_own_sentences(job, one, one.fit, store, folder)
            else:
                encode = encoder(one.precision, one.fit, one.text, one.seed if one.fit else 0)
                report = MEASURES[one.kind].run(encode, folder=folder, **one.options)
        except OutputError:
            raise
        except UserError as error:
            # Another measurement may not need the data that one lacks.
            failed = failed or error
            continue
        seconds = round(time.monotonic() - began, 1)
        stored = {**job.describe(), "report": report.to_json(), "model": job.key}
        stored["measured_in"] = seconds
        # How far each row moves in resamples of the test items that all reports share.
        stored["draws"] = {
            key_text(row): " ".join(f"{v:.3g}" for v in values)
            for row, values in shared_draws(report, DRAWS).items()
        }
        store.write("units", one.key, stored)
        reports.append(report)
    if failed is not None:
        raise failed
    if job.training is not None:
        _drop(store.model(job.key))
    return reports


def _drop(model: Path) -> None:
    (model / "modules.json").unlink(missing_ok=True)  # first: what a kill leaves is no model
    shutil.rmtree(model, ignore_errors=True)


def _load(
    job: Job, store: ResultStore, precision: str, *, normalize: bool | None = None
) -> EncodeFn:
    if job.kind == "glove":
        from contrasent.postprocess import Glove

        return Glove.load(Path(job.base))
    from contrasent.encoder.encoder import TorchEncoder

    folder = Path(job.base) if job.training is None else store.model(job.key)
    encoder = TorchEncoder.load(folder, pooling=job.pooling or None, normalize=normalize)
    encode = partial(encoder.encode, batch_size=CALL)
    return encode if precision == "fp32" else partial(_in_bf16, encode)


def _in_bf16(encode: EncodeFn, sentences: Sequence[str]) -> Vectors:
    import torch

    from contrasent.encoder import products

    with products.autocast("cuda" if torch.cuda.is_available() else "cpu", torch.bfloat16):
        return encode(sentences)


def _measured_on_own_sentences(
    job: Job, one: Measurement, fit: FittedTransform, store: ResultStore, folder: Path | None
) -> Report:
    """STS of vectors that are transformed as fitted to each task's own sentences."""
    encode = Cached(_load(job, store, one.precision, normalize=False))
    options: Json = dict(one.options)
    split, form, aggregates = options["split"], options["form"], options["aggregate"]
    builder, tasks = ReportBuilder(), options["tasks"]
    for task in tasks:
        every = scored_pairs(folder, tasks=(task,), split="all", form=form)
        texts = dict.fromkeys(s for p in every for side in (p.first, p.second) for s in side)
        encoded = Cached(_transformed(encode, fit, one.seed, encode(list(texts))))
        parts = scored_pairs(folder, tasks=(task,), split=split, form=form)
        check_subsets({task: parts}, aggregates, options["subsets"])
        add_correlations(builder, task, split, parts, encoded, aggregates, options["subsets"])
    if set(STS) <= set(tasks):
        for metric, aggregate in product(CORRELATIONS, aggregates):
            builder.average(AVERAGE, STS, split, metric, aggregate, aggregate)
    return builder.report({"fitted": "to each task"})


def _transformed(encode: EncodeFn, fit: FittedTransform, seed: int, fitted: Vectors) -> EncodeFn:
    from contrasent.encoder import flow
    from contrasent.postprocess import whiten

    transform: Callable[[Vectors], Vectors]
    if fit.kind == "whitening":
        transform = whiten(fitted)
    else:
        transform = flow.fit(fitted, flow.FlowSettings(seed=seed)).transform
    return lambda sentences: transform(encode(sentences))


def _trained(
    job: Job, training: Training, store: ResultStore, folder: Path | None, kinds: Set[str]
) -> Json:
    """The record of a job's training, done first if it or the model lacks what measures read."""
    target, key = store.model(job.key), f"train-{job.key}"
    record = store.read("units", key)
    if record is not None and "failed" in record:
        raise TrainingError(record["failed"])
    model = not all(MEASURES[kind].of_training for kind in kinds)
    known = record is not None and ("terms" not in kinds or "late_terms" in record)
    if record is not None and known and (not model or (target / "modules.json").is_file()):
        return record
    try:
        record = train(training, Path(job.base), target, folder, store.home / "tokens")
    except TrainingError as error:
        store.write("units", key, {**job.describe(), "failed": str(error)})
        raise
    store.write("units", key, {**job.describe(), **record})
    shutil.rmtree(target / "run", ignore_errors=True)
    return record


def train(training: Training, base: Path, target: Path, folder: Path | None, tokens: Path) -> Json:
    """Train a model into a folder, resuming a stopped run of the same; return the run's record."""
    from contrasent.train.fit import fit_plan
    from contrasent.train.plan import Plan
    from contrasent.train.prepare import prepare
    from contrasent.train.run import RunFolder
    from contrasent.train.settings import Settings

    assert training.corpus is not None
    values: dict[str, Any] = dict(training.settings)
    if training.trace is not None:
        values["eval_steps"] = training.trace["every"]
    settings = Settings(**values)
    learner = prepare(base, training.objective, dict(training.given), settings)
    corpus = open_built(training.corpus.path, documents=training.corpus.documents)
    plan = Plan(
        objective=learner,
        corpus=corpus,
        settings=settings,
        base=base.name,
        evaluate=_evaluator(training, folder),
        keep="trained",  # the papers choose among trained steps
    )
    try:
        RunFolder(target).check_same(plan.config(learner.describe(), 1))
    except OutputError:
        # Another run, such as by its generator's path, or none, but what a kill left.
        shutil.rmtree(target, ignore_errors=True)
    run = fit_plan(plan, target, resume=True, tokens=tokens)
    return {
        "steps": run.steps,
        "batch_size": settings.batch_size,
        "precision": settings.precision,
        "seconds": round(run.seconds, 1),
        "sentences_per_second": run.sentences_per_second,
        "best_step": run.best_step,
        "history": run.history,
        "shares": run.shares,
        "late_terms": _late_terms(run.log, learner.weights),
        "trace": sorted(
            (line["step"], {"rows": line["evaluation"], "notes": {}})
            for line in (run.log if training.trace is not None else ())
            if "evaluation" in line
        ),
        **environment(),
    }


def _late_terms(log: list[Json], terms: Iterable[str]) -> dict[str, float]:
    """The mean of each term, before its weight, over the logged steps of a run's second half."""
    lines = [line for line in log if "loss" in line]
    # By step: the first ten are all logged, later ones every tenth.
    late = [line for line in lines if 2 * line["step"] > lines[-1]["step"]]
    return {
        term: sum(line[term] for line in late) / len(late)
        for term in terms
        if late and term in late[0]
    }


def _evaluator(training: Training, folder: Path | None) -> Callable[[EncodeFn], Report] | None:
    """The evaluation of a run: its trace, the score that selects, or nothing."""
    if training.trace is None:
        options = MEASURES["sts"].complete({"tasks": ("STSB",), "split": "dev"})
        evaluator = partial(MEASURES["sts"].run, folder=folder, **options)
        return evaluator if training.select == "stsb" else None
    trace: Json = {k: v or None for k, v in training.trace.items() if k != "every"}
    # The first row is always the same, so that no checkpoint counts as better than another.
    same = Row("trace", trace["split"], "followed", "", 0.0, 0)
    follow: Callable[..., Report] = sts if "tasks" in trace else geometry

    def evaluate(encode: EncodeFn) -> Report:
        report = follow(encode, **trace, resamples=0, folder=folder)
        wanted = ("alignment", "uniformity", "spearman")
        return Report((same, *(r for r in report if r.metric in wanted)), {})

    return evaluate


def environment() -> Json:
    """Machine, versions, and the source text that a training run's numbers depend on."""
    import torch

    name = platform.machine()
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
    elif (cpuinfo := Path("/proc/cpuinfo")).is_file():
        model_name = re.search(r"^model name[^:\n]*:(.*)$", cpuinfo.read_text("utf-8"), re.M)
        name = model_name.group(1).strip() if model_name else name
    code = hashlib.sha256()
    for folder in CODE:
        for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
            code.update(path.read_bytes())
    threads = torch.get_num_threads()
    return {
        "machine": f"{name}, {os.cpu_count()} cores, {threads} thread{'s' if threads > 1 else ''}",
        "versions": {
            "contrasent": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "code": code.hexdigest()[:12],
    }
