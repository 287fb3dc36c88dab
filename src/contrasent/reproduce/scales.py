"""Scales: how large the runs of a folder of items are, and the settings of each row at a scale."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import Field

from contrasent.engine.registry import check, methods, parameters
from contrasent.errors import InputError, OptionError, suggestion
from contrasent.reproduce.tables import (
    HERE,
    SCALES,
    Item,
    ScaleName,
    Selection,
    Settings,
    Strict,
    TableRow,
    decode,
    read_toml,
    shared,
)
from contrasent.train import settings as run_settings

MODELS = ("generator", "filler", "copy_filler", "language_head")
"""Parameters that name a model: "@base" is the base, other names are checkpoints."""

AUTO = "auto"  # A precision: bf16 where the machine computes in it, else fp32
ANY = "simcse"  # an objective; settings of a run are checked with its parameters


class Scale(Strict):
    """How large the runs are."""

    name: ScaleName
    title: str
    base: str
    select: Selection  # which model of a run is measured
    set: Settings = Field(default_factory=dict)  # settings of a run, for all items
    sentences: int | None = None  # rows sampled from a corpus; None for all
    changes: Settings = Field(default_factory=dict)
    # settings and parameters of the runs of one objective, by its name; see ``of``
    own: dict[str, Settings] = Field(default_factory=dict)

    def changed(self, settings: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences."""
        # Items and rows that say something of their own about a setting still do.
        own: dict[str, Settings] = {}
        for name in [name for name in settings if "." in name]:
            objective, _, inner = name.partition(".")
            for part in run_settings.choose({inner: settings[name]}, objective, option="--set"):
                own.setdefault(objective, {}).update(part)
        of_all = {name: value for name, value in settings.items() if "." not in name}
        known, foreign = run_settings.choose(of_all, ANY, option="--set")
        for name in foreign:
            problem = "belongs to an objective; the rows say what theirs are, or OBJECTIVE.NAME"
            raise OptionError("--set", name, problem)
        whole = {k: v for k, v in {**self.set, **known}.items() if v != AUTO}
        run_settings.Settings(**run_settings.choose(whole, ANY)[0])
        for objective, values in own.items():
            run_settings.Settings(**run_settings.choose({**whole, **values}, objective)[0])
        changes = dict(known) | ({} if sentences is None else {"sentences": sentences})
        changes |= {f"{name}.{k}": v for name, values in own.items() for k, v in values.items()}
        count = self.sentences if sentences is None else sentences or None
        changed = {**self.set, **known}
        update = {"set": changed, "sentences": count, "changes": changes, "own": own}
        return self.model_copy(update=update)

    def of(self, objective: str) -> Settings:
        """The settings for an objective; for a combination, those for its parts as well."""
        # Its own settings go before those of its parts, an earlier part's before a later one's.
        names = [*reversed([method.name for method in methods(objective)]), objective]
        return {k: v for name in names for k, v in self.own.get(name, {}).items()}


def read_scales(folder: Path = HERE) -> dict[ScaleName, Scale]:
    """The scales of a folder of items: of its ``scales.toml``, or the package's if it has none."""
    path = shared(folder, "scales.toml")
    data = read_toml(path)
    for name in data:
        if name not in SCALES:
            raise InputError(path, f"no such scale {name!r}{suggestion(name, SCALES)}")
    return {
        name: decode(Scale, {"name": name, **data.get(name, {})}, path, name) for name in SCALES
    }


@dataclass(frozen=True, slots=True)
class Resolved:
    """The training run of a row."""

    objective: str
    given: Mapping[str, object]
    defaults: Mapping[str, object]
    settings: Mapping[str, object]
    select: Selection
    sentences: int | None  # rows sampled from the corpus; None for all


def resolve_row(item: Item, row: TableRow, scale: Scale, *, seed: int = 0) -> Resolved:
    """The settings of a row at a scale: the scale's, its objective's, the item's, the row's own."""
    changes = item.scale[scale.name]
    of_objective = scale.of(row.objective)
    given = {**scale.set, **of_objective, **changes.set, **row.settings[scale.name], "seed": seed}
    if given.get("precision") == AUTO:
        given["precision"] = precision()
    of_run, parts = run_settings.choose(given, row.objective, option="set")
    settings = run_settings.Settings(**of_run)
    check(row.objective, parts, models=False)
    defaults = {name: p.default for name, p in parameters(row.objective).items()}
    counts = (row.sentences.get(scale.name), changes.sentences, scale.sentences)
    return Resolved(
        row.objective,
        parts,
        defaults,
        asdict(settings),
        changes.select or scale.select,
        next((n for n in counts if n is not None), None),
    )


def models_of(values: Mapping[str, object]) -> dict[str, str]:
    """The parameters that name a model, and the names."""
    return {k: str(v) for k, v in values.items() if k in MODELS and v and v != "new"}


def precision() -> str:
    """The precision that this machine computes fast in: "bf16" or "fp32"."""
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return "fp32"
    return "bf16" if "avx512_bf16" in flags or "amx_bf16" in flags else "fp32"
