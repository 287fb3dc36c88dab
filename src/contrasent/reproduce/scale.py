"""What a row becomes at a scale: its settings and parameters, chosen and checked without torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from contrasent.errors import OptionError
from contrasent.objectives import _checks
from contrasent.objectives._find import agree, methods, parameters
from contrasent.reproduce.recipe import Recipe, Row
from contrasent.train.settings import Settings, choose

SELECTIONS = ("none", "stsb")
"""Which model of a run is measured: the last one, or the best on STS-B's dev set."""

MODELS = ("generator", "filler", "copy_filler", "language_head")
"""Parameters that name a model: "@base" is the base, other names are checkpoints."""

AUTO = "auto"
"""A precision: bf16 where the machine computes in it, else fp32."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the runs are.

    Attributes:
        name: "lab" or "paper".
        title: for readers.
        base: the encoder that "@base" stands for.
        settings: of a run, for all recipes.
        sentences: rows sampled from a corpus; None for all.
        select: which model of a run is measured.
        changes: what the user changed of it.
    """

    name: str
    title: str
    base: str
    settings: dict[str, Any]
    sentences: int | None
    select: str
    changes: dict[str, Any] = field(default_factory=dict)

    def changed(self, settings: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences.

        Recipes and rows that say something of their own about a setting still do.

        Raises:
            OptionError: no such setting of a run, or a value that it cannot have.
        """
        known = choose(settings, "simcse", option="--set")
        for name in known.objective:
            problem = "belongs to an objective; the rows say what theirs are"
            raise OptionError("--set", name, problem)
        whole = {k: v for k, v in {**self.settings, **known.run}.items() if v != AUTO}
        Settings(**choose(whole, "simcse").run)
        told = dict(known.run)
        if sentences is not None:
            told["sentences"] = sentences
        return replace(
            self,
            settings={**self.settings, **known.run},
            sentences=self.sentences if sentences is None else sentences or None,
            changes=told,
        )


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a row trains.

    Attributes:
        objective: its name.
        given: its parameters that the recipe says.
        defaults: all of its parameters' defaults.
        settings: all of the run's.
        select: which model is measured.
        sentences: rows sampled from the corpus; None for all.
    """

    objective: str
    given: dict[str, Any]
    defaults: dict[str, Any]
    settings: dict[str, Any]
    select: str
    sentences: int | None


def chosen(recipe: Recipe, row: Row, scale: Scale, *, seed: int = 0) -> Resolved:
    """The settings of a row at a scale: the scale's, then the recipe's, then the row's own.

    The number of sentences is the row's, else the recipe's, else the scale's.

    Raises:
        OptionError: a name or a value that cannot be.
    """
    changes = recipe.scale[scale.name]
    given = {**scale.settings, **changes.settings, **row.settings[scale.name], "seed": seed}
    if given.get("precision") == AUTO:
        given["precision"] = precision()
    found = choose(given, row.objective, option="set")
    settings = Settings(**found.run)
    check_parameters(row.objective, found.objective)
    defaults = {name: p.default for name, p in parameters(row.objective).items()}
    counts = (row.sentences.get(scale.name), changes.sentences, scale.sentences)
    return Resolved(
        row.objective,
        found.objective,
        defaults,
        asdict(settings),
        changes.select or scale.select,
        next((n for n in counts if n is not None), None),
    )


def check_parameters(objective: str, given: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be; models that they name are looked for later.

    Raises:
        OptionError: a value out of range, or one that does not belong with the others.
    """
    values = {name: p.default for name, p in parameters(objective).items()} | dict(given)
    _checks.check_values(values)
    agree(objective, given)
    for method in methods(objective):
        own = {name: values[name] for name in parameters(method)}
        if "view" in own:
            _checks.check_view(own)
        if own.get("masks") == "fixed":
            _checks.check_fixed(own)
        if "generator" in own and _checks.check_difference(own) and not own["generator"]:
            _checks.check_generator(None, None, option="generator")


def models_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that name a model, and the names."""
    return {k: v for k, v in values.items() if k in MODELS and v and v != "new"}


def precision() -> str:
    """The precision that this machine computes fast in: "bf16" or "fp32"."""
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return "fp32"
    return "bf16" if "avx512_bf16" in flags or "amx_bf16" in flags else "fp32"
