"""What evaluations during a run give, and which of its models is the best."""

from collections.abc import Callable
from typing import Any

from contrasent import parallel
from contrasent.model.encoder import Encoder
from contrasent.report import Report
from contrasent.train.clock import Clock
from contrasent.train.run import RunFolder
from contrasent.types import EncodeFn

Evaluate = Callable[[EncodeFn], Report]


class Scores:
    """The scores of a run so far. The main process evaluates, all of them know the values.

    Args:
        encoder: what is evaluated.
        place: whose log the reports go to.
        judge: the first row of its report decides which model is the best; None for no evaluation.
        geometry: another evaluation, which decides nothing, or None.
        clock: counts their time as "evaluation".

    Attributes:
        history: (step, score) of every evaluation.
        report: of the best one so far; None before the first step.
    """

    def __init__(
        self,
        encoder: Encoder,
        place: RunFolder,
        judge: Evaluate | None,
        geometry: Evaluate | None,
        clock: Clock,
    ) -> None:
        self.encoder, self.place, self.clock = encoder, place, clock
        self.judge, self.geometry = judge, geometry
        self.history: list[tuple[int, float]] = []
        self.report: Report | None = None

    def told(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "history": self.history,
            "report": self.report.to_json() if self.report else None,
        }

    def restore(self, told: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept."""
        self.history = [(int(s), float(v)) for s, v in told["history"]]
        self.report = Report.from_json(told["report"]) if told["report"] else None

    def evaluate(self, step: int, keep: Callable[[int], None]) -> None:
        """Score the encoder after a step; ``keep`` it if it is the best so far."""
        with self.clock.part("evaluation"):
            score = 0.0
            if parallel.is_main() and self.judge is not None:
                report = self.judge(self.encoder.encode)
                score = report.rows[0].value
                self.place.write_log({"step": step, "evaluation": report.to_json()["rows"]})
                if step and (self.report is None or score > max(v for _, v in self.trained())):
                    self.report = report
                    keep(step)
            self.history.append((step, float(parallel.from_main(score))))

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
        """Step and value of the best model, the earliest of equals."""
        return max(self.trained(), key=lambda pair: (pair[1], -pair[0]), default=None)

    def out_of(self, patience: int) -> bool:
        """Whether so many evaluations have passed without a better one; never if 0."""
        values = [value for _, value in self.trained()]
        if not patience or not values:
            return False
        return len(values) - 1 - values.index(max(values)) >= patience
