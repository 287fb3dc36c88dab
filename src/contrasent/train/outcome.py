"""What came of a run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Keep = Literal["proven", "trained", "last"]
"""The model a run gives: the best step if it is proven better, else the base; the best step in any
case; the last."""


@dataclass(frozen=True, slots=True)
class Gain:
    """A paired difference from the base, on items that took no part in choosing the step.

    Attributes:
        low: lower end of its 95 % interval.
    """

    value: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run.

    Attributes:
        improved: whether the best step beats the base: by its score, and where there is a gain, by
            an interval above zero. None if nothing was evaluated, or by what cannot see it.
        kept: the step after which the model at the top of the folder was taken; 0 for the base.
        base_score: the evaluation's first value before the first step.
        gain: the best step's over the base, where the evaluation has paired items.
        metric: of the scores, such as "mrr@10".
    """

    improved: bool | None = None
    kept: int | None = None
    base_score: float | None = None
    gain: Gain | None = None
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class Run(Outcome):
    """What is known of a finished run, beside its outcome.

    Attributes:
        sentences_per_second: corpus rows a second of training, evaluations excluded.
        score: the best first value of an evaluation after a step, or None.
        best_step: the step after which it was reached, or None.
        history: (step, score) of every evaluation.
    """

    folder: Path
    steps: int
    seconds: float
    sentences_per_second: float
    score: float | None
    best_step: int | None
    history: list[tuple[int, float]] = field(default_factory=list)
