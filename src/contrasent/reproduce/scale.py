"""What a row becomes at a scale: its settings and parameters, chosen and checked without torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from contrasent.engine.registry import check, methods, parameters
from contrasent.errors import OptionError
from contrasent.reproduce.items import SCALES, Item, ScaleName, Selection, TableRow
from contrasent.reproduce.items import Settings as Values
from contrasent.reproduce.toml import HERE, shared
from contrasent.train.settings import Settings, choose

MODELS = ("generator", "filler", "copy_filler", "language_head")
"""Parameters that name a model: "@base" is the base, other names are checkpoints."""

AUTO = "auto"
"""A precision: bf16 where the machine computes in it, else fp32."""

ANY = "simcse"
"""An objective; settings of a run are checked beside its parameters."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the runs are.

    Attributes:
        select: which model of a run is measured.
        set: settings of a run, for all items.
        sentences: rows sampled from a corpus; None for all.
        own: settings and parameters of the runs of one objective, by its name; see ``of``.
    """

    name: ScaleName
    title: str
    base: str
    select: Selection
    set: Values = field(default_factory=dict)
    sentences: int | None = None
    changes: Values = field(default_factory=dict)
    own: Mapping[str, Values] = field(default_factory=dict)

    def changed(self, settings: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences.

        Items and rows that say something of their own about a setting still do.
        """
        own: dict[str, Values] = {}
        for name in [name for name in settings if "." in name]:
            objective, _, inner = name.partition(".")
            found = choose({inner: settings[name]}, objective, option="--set")
            own.setdefault(objective, {}).update({**found.run, **found.objective})
        of_all = {name: value for name, value in settings.items() if "." not in name}
        known = choose(of_all, ANY, option="--set")
        for name in known.objective:
            problem = "belongs to an objective; the rows say what theirs are, or OBJECTIVE.NAME"
            raise OptionError("--set", name, problem)
        whole = {k: v for k, v in {**self.set, **known.run}.items() if v != AUTO}
        Settings(**choose(whole, ANY).run)
        for objective, values in own.items():
            Settings(**choose({**whole, **values}, objective).run)
        changes = dict(known.run) | ({} if sentences is None else {"sentences": sentences})
        changes |= {f"{name}.{k}": v for name, values in own.items() for k, v in values.items()}
        count = self.sentences if sentences is None else sentences or None
        changed = {**self.set, **known.run}
        return replace(self, set=changed, sentences=count, changes=changes, own=own)

    def of(self, objective: str) -> Values:
        """What is set for an objective: for a combination, what is set for its parts as well.

        Its own settings go before those of its parts, and an earlier part's before a later one's.
        """
        names = [*reversed([method.name for method in methods(objective)]), objective]
        return {k: v for name in names for k, v in self.own.get(name, {}).items()}


def read_scales(folder: Path = HERE) -> dict[ScaleName, Scale]:
    """The scales of a folder of items: of its ``scales.toml``, or the package's if it has none."""
    top = shared(folder, "scales.toml")
    found = {name: top.table(name).fill(Scale, name=name, changes={}, own={}) for name in SCALES}
    top.done()
    return found


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a row trains.

    Attributes:
        sentences: rows sampled from the corpus; None for all.
    """

    objective: str
    given: Mapping[str, object]
    defaults: Mapping[str, object]
    settings: Mapping[str, object]
    select: Selection
    sentences: int | None


def resolve_row(item: Item, row: TableRow, scale: Scale, *, seed: int = 0) -> Resolved:
    """The settings of a row at a scale: the scale's, its objective's, the item's, the row's own.

    The number of sentences is the row's, else the item's, else the scale's.
    """
    changes = item.scale[scale.name]
    own = scale.of(row.objective)
    given = {**scale.set, **own, **changes.set, **row.settings[scale.name], "seed": seed}
    if given.get("precision") == AUTO:
        given["precision"] = precision()
    found = choose(given, row.objective, option="set")
    settings = Settings(**found.run)
    check(row.objective, found.objective, models=False)
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
