"""The training loop, in plain torch."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasent import parallel, processes, progress
from contrasent.encoder import products
from contrasent.encoder.card import CardMetadata, card
from contrasent.encoder.tensors import read_checkpoint, restore_checkpoint, write_checkpoint
from contrasent.engine.objective import Objective
from contrasent.engine.registry import needs_scores
from contrasent.errors import OptionError, UserError
from contrasent.files import check_writable, write_text
from contrasent.model.pretrained import resolve
from contrasent.report import Report
from contrasent.text.corpus import Corpus
from contrasent.train import prepare
from contrasent.train.monitor import NO_GRADIENT, STILL, Drift, ModelSelector, Monitor
from contrasent.train.plan import Plan, geometry_on_stsb, make_plan, open_corpora
from contrasent.train.run import Evaluate, Keep, OnStep, Run, RunFolder, choose_keep, run_page
from contrasent.train.settings import Settings, choose
from contrasent.train.step import WINDOW, StepMetrics, StepRunner, interruptible

log = logging.getLogger(__name__)

LOG_EVERY = 10


def fit(
    objective: Objective | str,
    corpus: Corpus | str | Path | Sequence[str] | Sequence[Path] | Sequence[tuple[str, ...]],
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    output_dir: str | Path,
    base: str | Path | None = None,
    evaluate: Evaluate | str | None = None,
    keep: Keep | None = None,
    rows: NDArray[np.int64] | NDArray[np.bool_] | Sequence[int] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_step: OnStep | None = None,
    tensorboard: bool = False,
    **given: Any,
) -> Run:
    """Train an encoder on a corpus, and write it to a folder.

    With a method's name this is the command ``contrasent train``: settings that are not given are
    chosen for the base and the method, and a part of the corpus is held out to choose the best
    step.

    With an :class:`~contrasent.engine.Objective` no setting is chosen for you, and nothing is
    evaluated without ``evaluate``. Settings of its model (``pooling``, ``dropout``, ...) are an
    error, except in a ``Settings``, which may be the one that the objective was made with.

    Order, views, dropout and learning rate depend on (seed, step, rank) alone. On a CPU, a run that
    was killed and resumed therefore ends in the same bits as one that was not.

    Args:
        objective: name of a method, such as "simcse" or "esimcse+simcse_plus_plus"; a file with
            your own method; or an objective, which holds its encoder.
        corpus: sentences, pairs, or files, as for :func:`contrasent.open_corpus`, or a data set of
            the hub, "owner/name@commit#config/split". :meth:`~contrasent.text.corpus.Corpus.join`
            joins several corpora, whose shares are the setting ``weights``.
        settings: settings of the run and of the method; keyword arguments add to them.
        output_dir: folder to write the model and the run's log to.
        base: folder or name of the model to start from; with a method's name only.
        evaluate: with a method's name, "heldout", "documents", "neighbors", "stsb", "none" or a
            file of labeled pairs. Or a function that is called every ``eval_steps`` steps with the
            encoder's ``encode``, and returns a number or a :class:`~contrasent.Report`, whose first
            row counts. The best step is that of the highest score.
        keep: which model to save after an evaluation. "proven", the default: the best step if it
            improves on the base (:attr:`Run.improved`), else the base. "unharmed", the default for
            "neighbors": the last step if enough of the base's neighbors are unchanged, else the
            base. "trained": the best step in any case, as in the papers. "last": the last step.
        rows: rows of the corpus to train on, as numbers or as a mask; all if None. Held-out rows
            are never trained on.
        resume: resume the run in the folder.
        overwrite: replace the model or run in the folder.
        on_step: called with a step's number, from 1, and its numbers by name ("loss",
            "learning_rate", "shares/contrast", "evaluation/heldout/mrr_at_10"), after every step
            and evaluation.
        tensorboard: write the same numbers to ``run/tensorboard``; needs the extra "tensorboard".
        **given: settings by name, such as ``max_steps=500``.

    Returns:
        The outcome: the model as ``encoder``, its scores as ``report``, the steps as ``log``.

    Raises:
        UserError: invalid input, a folder that cannot be written, a loss of NaN, collapsed vectors.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after a checkpoint was written.

    Examples:
        >>> from contrasent import fit, open_corpus
        >>> pairs = open_corpus("examples/asked.csv", columns=["query", "answer"])
        >>> settings = {"max_steps": 2, "batch_size": 16}
        >>> base = "all-MiniLM-L6-v2"
        >>> run = fit("simcse_supervised", pairs, settings, output_dir="my-model", base=base)
        >>> run.metric, run.report.one(metric="mrr@10").count
        ('mrr@10', 31)
        >>> run.encoder.encode("a broken drill").shape
        (384,)
    """
    _check_types(objective, base)
    graded = needs_scores(objective) if isinstance(objective, str) else objective.graded
    source = corpus if isinstance(corpus, Corpus) else open_corpora(corpus, score=graded)
    chosen = None if rows is None else row_numbers(rows, sum(1 for _ in source))
    named = dict(given)
    if isinstance(settings, Settings):
        stated = {name: v for name, v in asdict(settings).items() if v is not None} | given
    else:
        stated = named = dict(settings or {}) | given
    if isinstance(objective, str):
        stored = RunFolder(Path(output_dir)).defaults() if resume else None
        plan = make_plan(
            source, stated, method=objective, base=base, evaluate=evaluate, keep=keep, stored=stored
        )
        for line in plan.notices():
            log.log(logging.WARNING if line.startswith("warning") else logging.INFO, "%s", line)
        if chosen is not None:
            left = chosen if plan.rows is None else np.intersect1d(chosen, plan.rows)
            if not len(left):
                problem = "all of them are held out; choose others, or evaluate='none'"
                raise OptionError("rows", chosen.tolist(), problem)
            plan = replace(plan, rows=left)
    else:
        _check_own(base, evaluate, named)
        evaluator = evaluate if callable(evaluate) else None
        plan = Plan(
            objective=objective,
            corpus=source,
            settings=Settings(**choose(stated, None, option="settings")[0]),
            base=None,
            evaluate=evaluator,
            keep=choose_keep(keep, evaluator),
            rows=chosen,
        )
    return fit_plan(
        plan,
        Path(output_dir),
        resume=resume,
        overwrite=overwrite,
        on_step=on_step,
        tensorboard=tensorboard,
    )


def _check_types(objective: Any, base: Any) -> None:
    """Reject a class in place of an objective, and an encoder in place of a base."""
    if not isinstance(objective, str | Objective):
        problem = "must be the name of a method or an Objective"
        raise OptionError("objective", objective, problem)
    if base is not None and not isinstance(base, str | Path):
        problem = "must be the name or the folder of a model; to use an Encoder, save it first"
        raise OptionError("base", type(base).__name__, problem)


def _check_own(base: Any, evaluate: Any, named: Mapping[str, Any]) -> None:
    """Reject, for an objective, arguments that need the name of a method."""
    refused = {"base": base, "evaluate": None if callable(evaluate) else evaluate}
    refused |= {name: named.get(name) for name in ("eval_size", *prepare.OF_MODEL)}
    for option, value in refused.items():
        if value is not None and value != getattr(Settings(), option, None):
            trained = option in prepare.OF_MODEL
            remedy = "whose encoder is trained as it is" if trained else "pass a function"
            problem = f"needs the name of a method; this is an objective, {remedy}"
            raise OptionError(option, value, problem)


def row_numbers(rows: Any, count: int) -> NDArray[np.int64]:
    """Numbers of rows, given as such or as a mask of all ``count``."""
    given = stated = np.asarray(rows)
    if given.dtype == np.bool_ and given.shape == (count,):
        given = np.flatnonzero(given)
    numbers = given.ndim == 1 and given.dtype.kind in "iu" and len(given) > 0
    if not numbers or given.min() < 0 or given.max() >= count:
        problem = f"must be from 0 to {count - 1}, or a mask of {count:,} with at least one true"
        shown: object = f"{stated.dtype} of shape {stated.shape}"
        if numbers:
            shown = int(given[np.argmax((given < 0) | (given >= count))])
        raise OptionError("rows", shown, problem)
    return given.astype(np.int64)


def fit_plan(
    plan: Plan,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    on_start: Callable[[], None] | None = None,
    tokens: Path | None = None,
    on_step: OnStep | None = None,
    tensorboard: bool = False,
) -> Run:
    """Carry out a plan, see :func:`fit`; a complete run is returned without loading a model.

    ``on_start`` is called before the first step, after all checks. ``tokens`` is a folder in which
    several runs on a machine share the tokenized corpus; else a run removes its own at its end.
    """
    settings, objective, base = plan.settings, plan.objective, None
    if isinstance(objective, str):
        if resume and (done := plan.finished(folder)) is not None:
            return done
        check_writable(folder)
        base = resolve(str(plan.base))
        objective = prepare.prepare(base, objective, dict(plan.parameters), settings)
    place = RunFolder(folder)
    place.listen(on_step, tensorboard=tensorboard)
    with parallel.processes(), closing(place):
        objective.check(plan.corpus.width, ordered=plan.corpus.documents, scored=plan.corpus.scored)
        prepare.configure(objective, settings)
        shape = geometry_on_stsb() if settings.geometry_every else None
        selector = ModelSelector(objective.encoder, place, plan.evaluate, shape, plan.keep, base)
        described = objective.describe()
        stored = (place.begun() or {}).get("products") if resume else None
        library = products.use(parallel.from_main(stored or products.used()))
        if stored not in (None, library):
            problem = "the last digits will differ from an uninterrupted run"
            log.warning("matrix products now use %s, not %s: %s", library, stored, problem)
        config = plan.config(described, parallel.world()) | {"products": library}
        needed = 7 * sum(p.numel() * p.element_size() for p in objective.parameters())
        again = {"resume": resume, "overwrite": overwrite}
        resumed = parallel.by_main(lambda: place.open(config, **again, needed=needed))
        _check_same(config)
        if (done := parallel.by_main(place.finished)) is not None:
            return done
        with processes.retain_freed_memory():
            return _train(objective, plan, selector, tokens, on_start, resumed)


def _train(  # noqa: C901, PLR0915 - one flat loop, to be read from top to bottom
    objective: Objective,
    plan: Plan,
    selector: ModelSelector,
    tokens: Path | None,
    on_start: Callable[[], None] | None,
    resumed: bool,
) -> Run:
    """A run from its first step, or from its checkpoint, to its last."""
    began, trained_seconds, before = time.monotonic(), 0.0, 0.0
    encoder, place = objective.encoder, selector.place
    corpus, settings, shared = plan.corpus, plan.settings, tokens is not None
    where = tokens or place.tokens
    batches = prepare.collator(objective, corpus, settings, where, plan.rows, shared=shared)
    prepare.fit_poolers(objective, batches)
    if parallel.is_main():
        prepare.warn_of_cuts(batches, settings, encoder.max_seq_length)
        prepare.warn_of_equal_rows(batches, objective)
    prepare.check_scores(batches, objective)
    data = {"source": corpus.source.rsplit("/", 1)[-1], "rows": len(batches.plan.rows)}
    data |= {"sha256": batches.cache.digest, "cut": batches.cache.cut}
    if corpus.roles:
        data["columns"] = "; ".join(corpus.roles)
    if corpus.notes():
        data["left out"] = "; ".join(corpus.notes())
    if settings.hard_negatives:
        data["hard negatives"] = (
            f"{settings.hard_negatives} per pair, mined by the base among the answers"
        )
    facts = CardMetadata(base=plan.base_name, data=data, settings=asdict(settings))
    optimizer = objective.optimizer(
        learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
    )
    scaler = torch.amp.GradScaler(encoder.device.type, enabled=settings.precision == "fp16")
    total = prepare.total_steps(objective, batches.plan, settings)
    if parallel.is_main():
        prepare.warn_of_views(batches, objective, settings, total)
    batch = batches.plan.batch_size
    monitor, drift = Monitor(), Drift(objective, batches, total)
    first = 0
    if resumed:
        state = _restore(place, objective, optimizer)
        first, before = int(state["step"]), state.get("seconds", 0.0)
        trained_seconds = state.get("trained_seconds", before)
        scaler.load_state_dict(state["scaler"])
        monitor.high, monitor.moved = state["collapse"], state["moved"]
        selector.restore(state)
        drift.restore(state["drift"])
    if parallel.is_main():
        # A run that was killed may have left lines and a model of steps after its last checkpoint.
        place.cut_log(first if resumed else -1)
        place.promote(selector.best())
    wrapped = parallel.wrap(objective)
    window = 1 if encoder.device.type == "cpu" else WINDOW
    steps = StepRunner(
        objective, wrapped, batches, optimizer, scaler, settings, total, monitor, window=window
    )

    def save_model(target: Path, step: int, report: Report | None) -> None:
        shares = place.shares(step)
        metadata = replace(
            facts, objective=objective.describe(), step=step, report=report, shares=shares
        )
        encoder.save(target, card=card(encoder, metadata))

    def save_checkpoint(step: int) -> None:
        state = {
            "step": step,
            "seconds": before + time.monotonic() - began,
            "trained_seconds": trained_seconds,
            "scaler": scaler.state_dict(),
            "collapse": monitor.high,
            "moved": monitor.moved,
            "drift": drift.state(),
            **selector.state(),
        }
        if parallel.is_main():
            write_checkpoint(place.checkpoint, objective, optimizer, state)
            place.promote(selector.best())
        parallel.barrier()

    def write_log(metrics: list[StepMetrics]) -> None:
        """Lines of the first steps, of every tenth, and of the last."""
        for m in metrics:
            wanted = m.step % LOG_EVERY == 0 or m.step < LOG_EVERY or m.step in steps.moments
            if parallel.is_main():
                place.write_log(m.line() | drift.values, kept=wanted)

    if on_start is not None:
        on_start()
    stopping = selector.out_of(settings.early_stopping_patience, objective.warmup_steps)
    if first == 0:
        if selector.evaluator is not None and not selector.history:
            selector.evaluate(0, save_model)
        selector.measure(0)
        drift.look(0, settings.learning_rate)
    objective.train()
    step = first
    with (
        interruptible() as interrupted,
        progress.task("train", total * batch, "sentences", first * batch) as advance,
    ):
        while step < total and not stopping:
            begun = time.monotonic()
            metrics = steps.take(step)
            step += 1
            last = step == total
            evaluating = selector.evaluator is not None and (
                step % settings.eval_steps == 0 or last
            )
            if evaluating:
                metrics += steps.known()
            trained_seconds += time.monotonic() - begun
            # Before the lines, so that the last has the latest drift.
            drift.look(step, settings.learning_rate)
            write_log(metrics)
            shown = {"loss": metrics[-1].terms["loss"]} if metrics else {}
            best = selector.best()
            advance(batch, **shown, **({"best": best[1]} if best else {}))
            if evaluating:
                selector.evaluate(step, save_model)
                stopping = selector.out_of(settings.early_stopping_patience, objective.warmup_steps)
            every = settings.geometry_every
            if every and (step % every == 0 or last or stopping):
                selector.measure(step)
            # One decision for all: processes that disagree would wait for each other.
            leaving = parallel.anywhere(interrupted())
            if leaving or stopping or last or step % settings.save_steps == 0:
                write_log(steps.known())
                save_checkpoint(step)
            if leaving:
                raise KeyboardInterrupt(f"saved step {step} of {total}")

    if monitor.still and not monitor.moved:
        facts = replace(facts, data=facts.data | {"warning": NO_GRADIENT})
        if monitor.still < STILL and parallel.is_main():
            log.warning("%s", NO_GRADIENT)
    run = Run(
        folder=place.model,
        steps=step,
        seconds=before + time.monotonic() - began,
        sentences_per_second=step * batch / trained_seconds if trained_seconds else 0.0,
        history=selector.history,
        shares=parallel.by_main(place.shares),
        **selector.outcome(step),
    )
    if parallel.is_main():
        save_model(place.last, step, selector.latest)
        facts = replace(facts, objective=objective.describe())
        near = (drift.base["neighbors"], drift.latest) if drift.base and drift.latest else ()
        texts = [batches.cache.text(0, int(row)) for row in drift.places]
        write_text(place.model / "report.html", run_page(run, facts, texts, *near))
        place.publish(run)  # last: its result marks a run as complete
    parallel.barrier()
    if parallel.local_rank() == 0:
        if not shared:
            batches.cache.discard()
        if not parallel.is_main():
            for folder in (place.home, place.model):  # on a machine that wrote no model
                with suppress(OSError):
                    folder.rmdir()
    return run


def _check_same(config: dict[str, Any]) -> None:
    """Check that all processes have the same run; without a shared disk each needs the text."""
    names = ("settings", "objective", "corpus", "rows")
    first = parallel.from_main({name: config[name] for name in names})
    if other := [name for name in names if first[name] != config[name]]:
        raise UserError(
            f"process {parallel.rank()} differs from process 0 in {' and '.join(other)}; "
            "every machine needs the same command and the same copy of the text"
        )


def _restore(place: RunFolder, objective: Objective, optimizer: torch.optim.Optimizer) -> Any:
    """Restore weights and moments from the checkpoint; return its other state."""
    tensors: dict[str, Tensor] = {}

    def read() -> Any:
        loaded, state = read_checkpoint(place.checkpoint)
        tensors.update(loaded)
        return state

    state = parallel.by_main(read)
    restore_checkpoint(parallel.tensors_from_main(tensors), objective, optimizer)
    return state
