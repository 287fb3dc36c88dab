"""What ``contrasent pretrain`` makes, and how: options that are checked without torch."""

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from contrasent.engine.parameters import Count, Range, Size, check_values, parameters_of
from contrasent.errors import OptionError
from contrasent.train.settings import Settings, assignments, run_settings

DEFAULTS: dict[str, Any] = {
    "batch": 128,
    "max_tokens": 128,
    "lr": 5e-4,
    "warmup": 0.05,
    "weight_decay": 0.01,
}
"""Where nothing else is stated; other settings as :class:`Settings` has them."""

SETTABLE = (
    *("batch", "accumulate", "max_tokens", "epochs", "steps", "lr", "warmup", "weight_decay"),
    *("clip", "dropout", "attention_dropout", "precision", "padding", "checkpoint_every", "seed"),
)
"""Settings of a run that mean something here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is pre-trained.

    Attributes:
        hidden: size of its vectors; feed-forward layers are four times as wide.
        heads: of attention; 0 for one for every 64 of ``hidden``, and at least one.
    """

    layers: Count = 4
    hidden: Annotated[int, Range(least=2)] = 256
    heads: Size = 0
    vocabulary: Annotated[int, Range(least=16)] = 16000
    lower_case: bool = True

    def __post_init__(self) -> None:
        check_values(parameters_of(type(self)).values(), asdict(self))
        if self.heads and self.hidden % self.heads:
            problem = f"does not divide the {self.hidden} dimensions of --hidden"
            raise OptionError("--heads", self.heads, problem)
        if not self.heads:
            object.__setattr__(self, "heads", max(1, self.hidden // 64))
            if self.hidden % self.heads:
                problem = f"is not divided by {self.heads} heads; name their number with --heads"
                raise OptionError("--hidden", self.hidden, problem)


def pretraining_settings(texts: list[str], seed: int | None) -> Settings:
    """The settings of a run of pretraining."""
    known = run_settings()
    given: dict[str, Any] = {}
    for name, value in assignments(texts).items():
        if name not in SETTABLE:
            raise OptionError("--set", name, "no such setting of pretraining", choices=SETTABLE)
        given[name] = known[name].read(value)
    settings = Settings(**{**DEFAULTS, **given})
    return settings if seed is None else replace(settings, seed=seed)
