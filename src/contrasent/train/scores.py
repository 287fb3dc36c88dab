"""What evaluations during a run give, which of its models is the best, and if it beats the base."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from contrasent import parallel
from contrasent.model.encoder import Encoder
from contrasent.model.prompts import TaskEncoder
from contrasent.report import Report
from contrasent.train.run import Clock, Gain, Keep, RunFolder
from contrasent.types import EncodeFn

Evaluate = Callable[[EncodeFn], Report]


@runtime_checkable
class Paired(Protocol):
    """An evaluation that also compares with its own report of the base (`evaluate.validation`)."""

    # With an attribute `floor` it measures how much of the base is left, not what was gained: the
    # last model is given if its score is at least that, else the base.

    def __call__(self, encode: EncodeFn) -> Report:
        """Of the base."""

    def against(self, encode: EncodeFn, base: Report) -> Report:
        """Of a later model; a row "gain_..." is the paired difference, with its interval."""


class ModelSelector:
    """The scores of a run so far. The main process evaluates, all of them know the values."""

    # `history`: (step, score) of every evaluation. `base`: the report before the first step, and
    # None before that. `report`: of the best step so far; None before the first. `latest`: of the
    # latest step that was evaluated; None before the first.

    def __init__(
        self,
        encoder: Encoder,
        place: RunFolder,
        evaluator: Evaluate | None,
        geometry: Evaluate | None,
        clock: Clock,
        keep: Keep = "proven",
    ) -> None:
        self.encoder, self.place, self.clock = encoder, place, clock
        self.evaluator, self.geometry, self.keep = evaluator, geometry, keep
        self.floor: float | None = getattr(evaluator, "floor", None)
        self.history: list[tuple[int, float]] = []
        self.base: Report | None = None
        self.report: Report | None = None
        self.latest: Report | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        reports = {"base": self.base, "report": self.report, "latest": self.latest}
        stored = {name: report and report.to_json() for name, report in reports.items()}
        return {"history": self.history, **stored}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept."""
        self.history = [(int(s), float(v)) for s, v in state["history"]]
        stored = [state.get(name) for name in ("base", "report", "latest")]
        self.base, self.report, self.latest = (r and Report.from_json(r) for r in stored)

    def evaluate(self, step: int, save: Callable[[Path, int, Report], None]) -> None:
        """Score the encoder after a step; save the base, and a step that is the best so far."""
        with self.clock.part("evaluation"):
            score = 0.0
            if parallel.is_main() and self.evaluator is not None:
                report = self._measured()
                score = report.rows[0].value
                self.place.write_log({"step": step, "evaluation": report.to_json()["rows"]})
                if step == 0:
                    self.base = report
                    if self.keep == "proven":
                        save(self.place.base, step, report)
                elif self.floor is not None:
                    self.report = self.latest = report
                else:
                    self.latest = report
                    if self.report is None or score > max(v for _, v in self.trained()):
                        self.report = report
                        save(self.place.best, step, report)
            self.history.append((step, float(parallel.from_main(score))))

    def _measured(self) -> Report:
        if self.base is not None and isinstance(self.evaluator, Paired):
            return self.evaluator.against(TaskEncoder(self.encoder), self.base)
        return cast(Evaluate, self.evaluator)(TaskEncoder(self.encoder))

    def measure(self, step: int) -> None:
        """Write the geometry of the encoder's space to the log."""
        if parallel.is_main() and self.geometry is not None:
            with self.clock.part("evaluation"):
                report = self.geometry(self.encoder.encode)
            self.place.write_log({"step": step, "geometry": report.to_json()["rows"]})

    def trained(self) -> list[tuple[int, float]]:
        """The history without the model before training."""
        return [(step, value) for step, value in self.history if step]

    def best(self) -> tuple[int, float] | None:
        """Step and value of the best trained model, the earliest of equals."""
        # The last one where the score says what is left of the base, which training can only lower.
        if self.floor is not None:
            return next(reversed(self.trained()), None)
        return max(self.trained(), key=lambda pair: (pair[1], -pair[0]), default=None)

    def outcome(self, last: int) -> dict[str, Any]:
        """What a :class:`Run` says of its scores, the same in all processes."""
        best, base = self.best(), self.history[0][1] if self.history else None
        if best is None or base is None:
            return {"score": None, "best_step": None, "kept": last}
        rows = self.report.rows if self.report else ()
        row = next((row for row in rows if row.metric.startswith("gain_")), None)
        gain = Gain(row.value, row.low, row.high, row.count) if row else None
        improved: bool | None = best[1] > base and (not gain or gain.low is None or gain.low > 0)
        if self.floor is not None:
            improved = None if best[1] >= self.floor else False
        kept = best[0] if improved is not False or self.keep == "trained" else 0
        found = {
            "improved": improved,
            "kept": last if self.keep == "last" else kept,
            "base_score": base,
            "gain": gain,
            "metric": rows[0].metric if rows else None,
            "score": best[1],
            "best_step": best[0],
        }
        return cast(dict[str, Any], parallel.from_main(found))

    def out_of(self, patience: int) -> bool:
        """Whether so many evaluations have passed without a better one; never if 0."""
        values = [value for _, value in self.trained()]
        if not patience or not values or self.floor is not None:
            return False
        return len(values) - 1 - values.index(max(values)) >= patience
