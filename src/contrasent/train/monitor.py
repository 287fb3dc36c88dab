"""Watching a run: alarms, and the scores that choose its best model."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from contrasent import metrics, parallel
from contrasent.encoder.encoder import TorchEncoder
from contrasent.engine.objective import Objective
from contrasent.errors import OptionError, TrainingError, see
from contrasent.files import read_object
from contrasent.model.base import BUDGET, TaskEncoder, by_budget, in_calls
from contrasent.model.description import describe
from contrasent.report import Report, Row
from contrasent.text.batches import Collator
from contrasent.train.run import Evaluate, Gain, Keep, RunFolder
from contrasent.train.settings import SENTENCE_ENCODER, base_kind

log = logging.getLogger(__name__)

COLLAPSED = 0.995
CALM_STEPS = 100
LASTING = 25

TEXTS = 500
FEWEST_TEXTS = 50
NEIGHBORS = 10
ROWS_BETWEEN = 3200
LOOKS = 20

LEAST_OVERLAP = 0.7
"""Share of a sentence encoder's neighbors; 0.65 and 0.50 searched worse (research/results.md)."""

MOST_COSINE_GAIN = 0.1
"""How much the mean cosine of random pairs may rise above the base's; it fell in every run."""

LEAST_RANK_SHARE = 0.8
"""How much of the base's effective rank must be left, as a share; it rose in every run."""


GRADIENT = "the gradient"
STILL = 3  # steps without a gradient after which a warning is logged
NO_GRADIENT = (
    "all gradients are zero, so nothing is learned: check that queries, answers and scores differ"
)


@dataclass(slots=True)
class Monitor:
    """Watches the numbers of every step."""

    high: int = 0  # number of steps with so high a cosine
    still: int = 0  # steps without a gradient, before the first that has one
    moved: bool = False  # whether a step had a gradient

    def check(self, step: int, terms: dict[str, float], learning_rate: float) -> None:
        """Look at one step."""
        wrong = [name for name, value in terms.items() if not math.isfinite(value)]
        if wrong:
            raise TrainingError(
                f"step {step}: {wrong[0]} is not a finite number; the last checkpoint is safe. "
                f"Try a smaller learning_rate than {learning_rate:.1e}, or precision fp32 or bf16"
                f"{see('training-stopped')}"
            )
        self.moved = self.moved or terms.get(GRADIENT, 1.0) > 0.0
        self.still += not self.moved
        if self.still == STILL and not self.moved:
            log.warning("step %d: %s", step + 1, NO_GRADIENT)
        near = terms.get("cosine_negative", 0.0) > COLLAPSED
        self.high = self.high + 1 if near and step >= CALM_STEPS else 0
        if self.high >= LASTING:
            raise TrainingError(
                f"step {step}: the model has collapsed: different sentences have a mean cosine of "
                f"{terms['cosine_negative']:.4f}; the last checkpoint is safe. Try a smaller "
                f"learning_rate than {learning_rate:.1e}, a larger batch, or text with less "
                f"repetition{see('training-stopped')}"
            )


class Drift:
    """Measures, without dropout, how far a model has moved; every line of the log carries it."""

    def __init__(self, objective: Objective, batches: Collator, total: int) -> None:
        """Choose the texts, evenly over the corpus, of pairs the first ones."""
        cache, plan = batches.cache, batches.plan
        # Rows of the texts in the corpus, at most 500: held-out ones, or of all.
        rows = np.setdiff1d(np.arange(len(cache)), plan.rows)
        rows = rows if len(rows) >= TEXTS else np.arange(len(cache))
        count = min(TEXTS, len(rows))
        self.places = rows[np.arange(count) * len(rows) // count]
        few = len(cache) < FEWEST_TEXTS
        self.tokens = None if few else cache.tokens(0, self.places)
        # Rarely, as it costs training time: about twenty times in a long run.
        self.every = max(10, math.ceil(ROWS_BETWEEN / plan.batch_size), total // LOOKS)
        self.total = total  # steps of the run; the last one is measured too
        self.encoder = objective.encoder
        self.labeled = objective.labeled
        # Whether the base's neighbors should stay: those of a sentence encoder, unless pairs say
        # what is near. A language model's are meant to change.
        self.guards = base_kind(self.encoder.source) == SENTENCE_ENCODER and not self.labeled
        self.warned = False  # which a run does once
        # The last measurement: "mean_cosine" of random pairs, "effective_rank", the
        # "neighbor_overlap" with the base, and "measured_at", its step.
        self.values: dict[str, float] = {}
        # The first one, and the texts' neighbors there; None before it.
        self.base: dict[str, Any] | None = None
        self.latest: Any = ()  # the texts' neighbors at the last measurement

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {name: getattr(self, name) for name in ("values", "base", "warned", "latest")}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        vars(self).update(state)

    def look(self, step: int, learning_rate: float) -> None:
        """Measure if it is time; warn, once in a run, if the model has moved too far."""
        due = step % self.every == 0 or step == self.total
        if self.tokens is None or not due or not parallel.is_main():
            return
        budget = BUDGET if self.encoder.device.type == "cpu" else None
        calls = by_budget(self.tokens.lengths, 64, budget=budget)
        vectors = in_calls(self.encoder.embed, self.tokens, self.encoder.dimension, calls)
        near = metrics.neighbors(vectors, NEIGHBORS)
        self.latest = near.tolist()
        numbers = {
            "mean_cosine": metrics.anisotropy(vectors),
            "effective_rank": metrics.effective_rank(vectors),
        }
        if self.base is None:
            self.base = {**numbers, "neighbors": near.tolist()}
        shared = metrics.shared_share(np.array(self.base["neighbors"]), near)
        numbers["neighbor_overlap"] = float(shared.mean())
        self.values = {k: round(v, 6) for k, v in numbers.items()} | {"measured_at": step}
        problem = self._problem(self.base)
        if problem and not self.warned:
            self.warned = True
            remedy = ", take fewer steps, or train on matching pairs"
            remedy = " or take fewer steps" if self.labeled else remedy
            message = "step %d: %s. Search may be worse; lower learning_rate (now %.1e)%s"
            log.warning(message, step, problem, learning_rate, remedy)

    def _problem(self, base: dict[str, Any]) -> str | None:
        overlap, cosine = self.values["neighbor_overlap"], self.values["mean_cosine"]
        rank = self.values["effective_rank"]
        if self.guards and overlap < LEAST_OVERLAP:
            left = "of the base's nearest neighbors remain"
            return f"{100 * overlap:.0f} % {left} (below {100 * LEAST_OVERLAP:.0f} %)"
        if cosine > base["mean_cosine"] + MOST_COSINE_GAIN:
            return (
                f"the mean cosine of random pairs is {cosine:.2f}, more than {MOST_COSINE_GAIN} "
                f"above the base's {base['mean_cosine']:.2f}"
            )
        if rank < base["effective_rank"] * LEAST_RANK_SHARE:
            return (
                f"the effective rank is {rank:.0f}, less than {100 * LEAST_RANK_SHARE:.0f} % "
                f"of the base's {base['effective_rank']:.0f}"
            )
        return None


def as_report(given: Any) -> Report:
    """A report of an evaluation, which may give a number alone."""
    if isinstance(given, Report) and given.rows:
        return given
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        problem = "must give a Report with a row or more, or a finite number"
        raise OptionError("evaluate", given, problem)
    return Report((Row("evaluation", "", "score", "", value, 1),))


class ModelSelector:
    """The scores of a run so far. The main process evaluates, and all processes get the values."""

    def __init__(
        self,
        encoder: TorchEncoder,
        place: RunFolder,
        evaluator: Evaluate | None,
        geometry: Evaluate | None,
        keep: Keep,
        base: Path | None = None,
    ) -> None:
        """``base``: the folder that the encoder is from, where training may compare otherwise."""
        self.encoder, self.place = encoder, place
        self.evaluator, self.geometry, self.keep = evaluator, geometry, keep
        self.floor: float | None = getattr(evaluator, "floor", None)
        config = read_object(encoder.source / "config.json") if encoder.source else {}
        self.base_sizes = tuple(config.get("matryoshka_dimensions") or ())
        prompts = encoder.prompts if base is None else describe(base).prompts
        self.base_similarity = prompts.similarity
        self.history: list[tuple[int, float]] = []  # (step, score) of every evaluation
        self.base: Report | None = None  # before the first step
        self.report: Report | None = None  # of the best step so far
        self.latest: Report | None = None

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        reports = {"base": self.base, "report": self.report, "latest": self.latest}
        stored = {name: report and report.to_json() for name, report in reports.items()}
        return {"history": self.history, **stored}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint's state."""
        self.history = [(int(s), float(v)) for s, v in state["history"]]
        stored = [state[name] for name in ("base", "report", "latest")]
        self.base, self.report, self.latest = (r and Report.from_json(r) for r in stored)

    def evaluate(self, step: int, save: Callable[[Path, int, Report], None]) -> None:
        """Score the encoder after a step; save the base, and a step that is the best so far."""
        score = 0.0
        if parallel.is_main() and self.evaluator is not None:
            evaluator: Any = self.evaluator
            encode = TaskEncoder(self.encoder)
            compares = self.base is not None and hasattr(evaluator, "against")
            given = evaluator.against(encode, self.base) if compares else evaluator(encode)
            report = as_report(given)
            score = report.rows[0].value
            self.place.write_log({"step": step, "evaluation": report.to_json()["rows"]})
            if step == 0:
                self.base = report
                if self.keep in ("proven", "unharmed"):
                    # The base has its own nested sizes and similarity, not those of this run.
                    encoder = self.encoder
                    trained = encoder.matryoshka_dims, encoder.prompts
                    encoder.matryoshka_dims = self.base_sizes
                    encoder.prompts = replace(encoder.prompts, similarity=self.base_similarity)
                    save(self.place.base, step, report)
                    encoder.matryoshka_dims, encoder.prompts = trained
            elif self.floor is not None:
                self.report = self.latest = report
            else:
                self.latest = report
                if self.report is None or score > max(v for _, v in self.trained()):
                    self.report = report
                    save(self.place.new_best(step), step, report)
        self.history.append((step, float(parallel.from_main(score))))

    def measure(self, step: int) -> None:
        """Write the geometry of the encoder's space to the log."""
        if parallel.is_main() and self.geometry is not None:
            report = self.geometry(self.encoder.encode)
            self.place.write_log({"step": step, "geometry": report.to_json()["rows"]})

    def trained(self) -> list[tuple[int, float]]:
        """The history without the model before training."""
        return [(step, value) for step, value in self.history if step]

    def best(self) -> tuple[int, float] | None:
        """Step and value of the best trained model, the earliest of equals."""
        # The last one if the score measures what is left of the base, which training only lowers.
        if self.floor is not None:
            return next(reversed(self.trained()), None)
        return max(self.trained(), key=lambda pair: (pair[1], -pair[0]), default=None)

    def outcome(self, last: int) -> dict[str, Any]:
        """The fields of a :class:`Run` on its scores, the same in all processes."""
        best, base = self.best(), self.history[0][1] if self.history else None
        if best is None or base is None:
            return {"score": None, "best_step": None, "kept": last}
        rows = self.report.rows if self.report else ()
        row = next((row for row in rows if row.metric.startswith("gain_")), None)
        gain = Gain(row.value, row.low, row.high, row.count) if row else None
        improved: bool | None = best[1] > base and (not gain or gain.low is None or gain.low > 0)
        if self.floor is not None:
            improved = None if best[1] >= self.floor else False
        wins = improved if self.keep == "proven" else improved is not False
        kept_step = best[0] if wins or self.keep == "trained" else 0
        fields = {
            "improved": improved,
            "kept": last if self.keep == "last" else kept_step,
            "base_score": base,
            "gain": gain,
            "metric": rows[0].metric if rows else None,
            "score": best[1],
            "best_step": best[0],
        }
        return cast(dict[str, Any], parallel.from_main(fields))

    def out_of(self, patience: int, warmup: int) -> bool:
        """Whether the last ``patience`` evaluations brought no better one; never if 0.

        Those up to step ``warmup``, in which the encoder does not learn, do not count.
        """
        values = [value for step, value in self.trained() if step > warmup]
        if not patience or not values:
            return False
        return len(values) - 1 - values.index(max(values)) >= patience
