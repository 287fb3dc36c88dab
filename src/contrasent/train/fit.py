"""The training loop, in plain torch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from contrasent import parallel, processes, progress
from contrasent.engine.objective import Objective
from contrasent.errors import UserError
from contrasent.files import write_json
from contrasent.model.card import CardMetadata, card
from contrasent.report import Report
from contrasent.text.cache import TokenCache
from contrasent.text.corpus import Corpus, open_corpus
from contrasent.train import checkpoint
from contrasent.train.clock import Clock
from contrasent.train.defaults import Defaults
from contrasent.train.monitor import Drift, Monitor
from contrasent.train.outcome import Keep, Run
from contrasent.train.prepare import configure
from contrasent.train.rows import collator, fit_poolers, total_steps
from contrasent.train.run import RunFolder, run_config
from contrasent.train.scores import Evaluate, ModelSelector
from contrasent.train.settings import Settings
from contrasent.train.step import WINDOW, StepMetrics, StepRunner, interruptible

LOG_EVERY = 10


def fit(
    objective: Objective,
    corpus: Corpus | str | Path | Sequence[str] | Sequence[tuple[str, ...]],
    settings: Settings,
    *,
    folder: str | Path,
    evaluate: Evaluate | None = None,
    geometry: Evaluate | None = None,
    keep: Keep = "proven",
    rows: NDArray[np.int64] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    facts: CardMetadata | None = None,
    clock: Clock | None = None,
    defaults: Defaults | None = None,
    on_start: Callable[[], None] | None = None,
    tokens: Path | None = None,
) -> Run:
    """Train an objective's encoder on a corpus and leave a model folder.

    Order, views, dropout and learning rate are functions of (seed, step, rank): a run that was
    killed and is resumed ends, on CPU, in the same bits as one that was not.

    Args:
        objective: the method, with the encoder in it.
        corpus: what to learn from, as :func:`contrasent.text.corpus.open_corpus` takes it.
        settings: how.
        folder: where the model and the record of the run go.
        evaluate: called every ``evaluate_every`` steps with the encoder's ``encode``; the first
            row of its report decides which model is the best (higher is better). Those of
            :mod:`contrasent.evaluate.validation` also say, on items that took no part in choosing,
            how far it is from the base.
        geometry: called every ``geometry_every`` steps in the same way, before the first and after
            the last too; its report goes to the run's log and decides nothing.
        keep: the model to leave where there is an evaluation: "proven" the best step if it improves
            on the base (:attr:`Run.improved`), else the base; "trained" the best step in any case,
            as the papers do; "last" the last step.
        rows: which rows of the corpus to train on; all if None.
        resume: go on with the run in the folder.
        overwrite: discard what the folder holds.
        facts: more for the model card.
        clock: if given, its table, which is where the time since its start went, is written to
            ``run/profile.json``.
        defaults: which of the settings were chosen rather than stated, for ``run/settings.json``.
        on_start: called when all is read and checked, before the first step.
        tokens: folder in which runs on one machine share what they have tokenised, and leave it; a
            run by itself keeps it in its own folder until it ends.

    Returns:
        What happened.

    Raises:
        UserError: bad input, a target that cannot be written, NaN, collapse.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after a checkpoint was written.
    """
    place, counted = RunFolder(Path(folder)), clock or Clock()
    if clock is not None and objective.encoder.device.type == "cuda":
        clock.settle = torch.cuda.synchronize
    shape = geometry if settings.geometry_every else None
    with parallel.processes():
        with processes.retain_freed_memory():
            loop = _Loop(
                objective,
                open_corpus(corpus) if not isinstance(corpus, Corpus) else corpus,
                settings,
                place,
                ModelSelector(objective.encoder, place, evaluate, shape, counted, keep),
                facts or CardMetadata(),
                counted,
                defaults,
                on_start,
                tokens,
            )
            run = loop.run(rows, resume=resume, overwrite=overwrite)
        if clock is not None and loop.trained and parallel.is_main():
            write_json(place.profile, clock.table())
    return run


@dataclass
class _Loop:
    """One run in progress; see :func:`fit`."""

    objective: Objective
    corpus: Corpus
    settings: Settings
    place: RunFolder
    selector: ModelSelector
    facts: CardMetadata
    clock: Clock
    defaults: Defaults | None
    on_start: Callable[[], None] | None
    tokens: Path | None
    monitor: Monitor = field(default_factory=Monitor)
    training_seconds: float = 0.0
    trained: bool = False

    def __post_init__(self) -> None:
        self.encoder = self.objective.encoder

    def run(self, rows: NDArray[np.int64] | None, *, resume: bool, overwrite: bool) -> Run:
        began = time.monotonic()
        corpus = self.corpus
        self.objective.check(corpus.width, ordered=corpus.documents, scored=corpus.scored)
        going_on = self._open(rows, resume=resume, overwrite=overwrite)
        if (done := parallel.by_main(self.place.finished)) is not None:
            return done
        configure(self.objective, self.settings)
        self.trained = True
        with self.clock.part("tokenise"):
            batches = collator(
                self.objective,
                self.corpus,
                self.settings,
                self.tokens or self.place.tokens,
                rows,
                shared=self.tokens is not None,
            )
            fit_poolers(self.objective, batches)
        self.facts = self.facts.with_data(self.corpus.source, len(batches.plan.rows), batches.cache)
        optimizer = torch.optim.AdamW(
            [p for p in self.objective.parameters() if p.requires_grad],
            lr=self.settings.lr,
            weight_decay=self.settings.weight_decay,
            fused=True,
        )
        self.scaler = torch.amp.GradScaler(
            self.encoder.device.type, enabled=self.settings.precision == "fp16"
        )
        total = total_steps(batches.plan, self.settings)
        self.drift = Drift.of(self.objective, batches, total)
        first = self._restore(optimizer) if going_on else 0
        if parallel.is_main():
            # A run that was killed may have written lines of steps after its last checkpoint.
            self.place.cut_log(first if going_on else -1)
        steps = StepRunner(
            self.objective,
            parallel.wrap(self.objective),
            batches,
            optimizer,
            self.scaler,
            self.settings,
            total,
            self.monitor,
            self.clock,
            window=1 if self.encoder.device.type == "cpu" else WINDOW,
        )
        if self.on_start is not None:
            self.on_start()
        last = self._steps(steps, first)
        return self._finish(last, began, (last - first) * batches.plan.batch, batches.cache)

    def _open(self, rows: NDArray[np.int64] | None, *, resume: bool, overwrite: bool) -> bool:
        config = run_config(
            self.settings,
            self.objective.describe(),
            self.corpus,
            rows,
            base=self.facts.base,
            evaluated=self.selector.evaluator is not None,
            processes=parallel.world(),
            defaults=self.defaults,
            keep=self.selector.keep,
        )
        needed = 7 * sum(p.numel() * p.element_size() for p in self.objective.parameters())
        going_on = parallel.by_main(
            lambda: self.place.open(config, resume=resume, overwrite=overwrite, needed=needed)
        )
        # Machines that share no disk have a copy of the corpus each.
        names = ("settings", "objective", "corpus", "rows")
        first = parallel.from_main({name: config[name] for name in names})
        if other := [name for name in names if first[name] != config[name]]:
            raise UserError(
                f"process {parallel.rank()} has another {' and '.join(other)} than process 0; give "
                "every machine the same command and the same copy of the text"
            )
        return going_on

    def _restore(self, optimizer: torch.optim.Optimizer) -> int:
        tensors: dict[str, torch.Tensor] = {}

        def read() -> Any:
            found, state = checkpoint.read(self.place.checkpoint)
            tensors.update(found)
            return state

        state = parallel.by_main(read)
        tensors = parallel.tensors_from_main(tensors)
        checkpoint.restore(tensors, self.objective, optimizer)
        self.scaler.load_state_dict(state["scaler"])
        self.monitor.high = state["collapse"]
        self.selector.restore(state)
        self.drift.restore(state.get("drift"))
        return int(state["step"])

    def _checkpoint(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        state = {
            "step": step,
            "scaler": self.scaler.state_dict(),
            "collapse": self.monitor.high,
            "drift": self.drift.state(),
            **self.selector.state(),
        }
        with self.clock.part("checkpoint"):
            if parallel.is_main():
                checkpoint.save(self.place.checkpoint, self.objective, optimizer, state)
            parallel.barrier()

    def _steps(self, steps: StepRunner, first: int) -> int:
        plan, settings, total = steps.collator.plan, self.settings, steps.total
        batch, optimizer = plan.batch, steps.optimizer
        selector = self.selector
        stopping = selector.out_of(settings.patience)
        if selector.evaluator is not None and first == 0 and not selector.history:
            selector.evaluate(0, self._write)
        if first == 0:
            selector.measure(0)
            self._look(0)
        self.objective.train()
        step = first
        with (
            interruptible() as interrupted,
            progress.task("train", total * batch, "sentences", first * batch) as advance,
        ):
            while step < total and not stopping:
                begun = time.monotonic()
                metrics = steps.take(step)
                step += 1
                evaluating = selector.evaluator is not None and (
                    step % settings.evaluate_every == 0 or step == total
                )
                if evaluating:
                    metrics += steps.known()
                self.training_seconds += time.monotonic() - begun
                self._look(step)  # before the lines are written: the last one has the last drift
                self._log(metrics, total)
                shown = {"loss": metrics[-1].terms["loss"]} if metrics else {}
                best = selector.best()
                advance(batch, **shown, **({"best": best[1]} if best else {}))
                if evaluating:
                    selector.evaluate(step, self._write)
                    stopping = selector.out_of(settings.patience)
                every = settings.geometry_every
                if every and (step % every == 0 or step == total or stopping):
                    selector.measure(step)
                # Asked once and agreed on: processes that disagree would wait for one another.
                leaving = parallel.anywhere(interrupted())
                due = step % settings.checkpoint_every == 0 or step == total
                if leaving or stopping or due:
                    self._log(steps.known(), total)
                    self._checkpoint(step, optimizer)
                if leaving:
                    raise KeyboardInterrupt(f"step {step} of {total} is kept")
        return step

    def _look(self, step: int) -> None:
        if parallel.is_main():
            with self.clock.part("evaluation"):
                self.drift.look(step, self.settings.lr)

    def _log(self, metrics: list[StepMetrics], total: int) -> None:
        """Write log lines: of the first steps, of every tenth, and of the last."""
        for one in metrics:
            wanted = one.step % LOG_EVERY == 0 or one.step < LOG_EVERY or one.step == total - 1
            if wanted and parallel.is_main():
                self.place.write_log(one.line() | self.drift.values)

    def _write(self, target: Path, step: int, report: Report | None) -> None:
        facts = self.facts.with_training(
            self.objective.describe(), asdict(self.settings), step, report
        )
        with self.clock.part("checkpoint"):
            self.encoder.save(target, card=card(self.encoder, facts))

    def _finish(self, step: int, began: float, sentences: int, cache: TokenCache) -> Run:
        best = self.selector.best()
        outcome = self.selector.outcome(step)
        run = Run(
            folder=self.place.model,
            steps=step,
            seconds=time.monotonic() - began,
            sentences_per_second=sentences / self.training_seconds if sentences else 0.0,
            score=best[1] if best else None,
            best_step=best[0] if best else None,
            history=self.selector.history,
            improved=outcome.improved,
            kept=outcome.kept,
            base_score=outcome.base_score,
            gain=outcome.gain,
            metric=outcome.metric,
        )
        if parallel.is_main():
            self._write(self.place.last, step, self.selector.latest)
            self.place.publish(run)
        parallel.barrier()
        if parallel.local_rank() == 0:
            if self.tokens is None:
                cache.discard()
            if not parallel.is_main():
                self.place.remove_empty()
        return run
