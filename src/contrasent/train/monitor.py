"""Alarms: a run that cannot come to anything is stopped with a message that says why."""

import math
from dataclasses import dataclass

from contrasent.errors import TrainingError

COLLAPSED = 0.995
CALM_STEPS = 100
LASTING = 25


@dataclass(slots=True)
class Monitor:
    """Watches the numbers of every step.

    Collapse means that all sentences have nearly the same vector: the mean cosine of different
    sentences stays above 0.995 for 25 steps, after the first 100. (Some pretrained encoders begin
    there, which is why the first steps are left alone.)

    Attributes:
        high: for how many steps the cosine has been that high.
    """

    high: int = 0

    def check(self, step: int, terms: dict[str, float], lr: float) -> None:
        """Look at one step.

        Raises:
            TrainingError: the loss is not a finite number, or the vectors have collapsed.
        """
        wrong = [name for name, value in terms.items() if not math.isfinite(value)]
        if wrong:
            raise TrainingError(
                f"step {step}: {wrong[0]} is not a finite number; the last checkpoint is kept. "
                f"Try a smaller lr than {lr:.1e}, or precision fp32 or bf16"
            )
        near = terms.get("cosine_negative", 0.0) > COLLAPSED
        self.high = self.high + 1 if near and step >= CALM_STEPS else 0
        if self.high >= LASTING:
            raise TrainingError(
                f"step {step}: the model has collapsed, different sentences have a mean cosine of "
                f"{terms['cosine_negative']:.4f}; the last checkpoint is kept. Try a smaller lr "
                f"than {lr:.1e}, a larger batch, or text with less repetition"
            )
