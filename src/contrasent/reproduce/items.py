"""Items: tables and figures of documents as plain data, and what their rows become at a scale."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import Field

from contrasent.engine.registry import check, methods, parameters
from contrasent.errors import InputError, OptionError, suggestion
from contrasent.reproduce import tables
from contrasent.train import settings as run_settings


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A measure of a model, and its options."""

    name: str
    kind: str
    options: Mapping[str, tables.Value | tuple[str, ...]]


class TableRow(tables.RowKeys):
    """A row of the table: a method, a baseline, or somebody else's number."""

    name: str
    kind: tables.RowKind
    source: str
    blocked: str  # why the row cannot be made by anybody
    # by scale, and so ``sentences`` (None for the item's or the scale's own number, 0 for all) and
    # ``evaluations`` (those that are made of this row)
    settings: Mapping[tables.ScaleName, tables.Settings]
    sentences: Mapping[tables.ScaleName, int | None]
    evaluations: Mapping[tables.ScaleName, tables.Names]
    fit: tables.Fit | None  # the transform of its vectors
    expected: Mapping[str, tables.Expected]
    also: Mapping[str, float]  # a second document's values by column, for the reader
    facts: Mapping[str, str]
    point: tables.Settings  # values of the axes that made it

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        return self.kind == "train" or (self.fit is not None and self.fit.kind == "flow")


class Item(tables.ItemKeys):
    """One table or figure."""

    file: Path
    paper: str
    evaluations: Mapping[str, Evaluation]
    columns: Mapping[str, tables.Column]
    rows: tuple[TableRow, ...]
    claims: tuple[tables.Claim, ...]
    scale: Mapping[tables.ScaleName, tables.ScaleChanges]

    @property
    def name(self) -> str:
        """As it is named on the command line, such as "simcse:table1"."""
        return f"{self.file.parent.name}:{self.file.stem}"

    @property
    def folder(self) -> Path:
        """The folder of items that it belongs to."""
        return self.file.parents[1]

    def row(self, name: str) -> TableRow:
        """A row by name."""
        return next(row for row in self.rows if row.name == name)


MODELS = ("generator", "filler", "copy_filler", "language_head")
"""Parameters that name a model: "@base" is the base, other names are checkpoints."""

AUTO = "auto"  # A precision: bf16 where the machine computes in it, else fp32
ANY = "simcse"  # an objective; settings of a run are checked with its parameters


class Scale(tables.Strict):
    """How large the runs are."""

    name: tables.ScaleName
    title: str
    base: str
    select: tables.Selection  # which model of a run is measured
    set: tables.Settings = Field(default_factory=dict)  # settings of a run, for all items
    sentences: int | None = None  # rows sampled from a corpus; None for all
    changes: tables.Settings = Field(default_factory=dict)
    # settings and parameters of the runs of one objective, by its name; see ``of``
    own: dict[str, tables.Settings] = Field(default_factory=dict)

    def changed(self, settings: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences."""
        # Items and rows that say something of their own about a setting still do.
        own: dict[str, tables.Settings] = {}
        for name in [name for name in settings if "." in name]:
            objective, _, inner = name.partition(".")
            found = run_settings.choose({inner: settings[name]}, objective, option="--set")
            own.setdefault(objective, {}).update({**found.run, **found.objective})
        of_all = {name: value for name, value in settings.items() if "." not in name}
        known = run_settings.choose(of_all, ANY, option="--set")
        for name in known.objective:
            problem = "belongs to an objective; the rows say what theirs are, or OBJECTIVE.NAME"
            raise OptionError("--set", name, problem)
        whole = {k: v for k, v in {**self.set, **known.run}.items() if v != AUTO}
        run_settings.Settings(**run_settings.choose(whole, ANY).run)
        for objective, values in own.items():
            run_settings.Settings(**run_settings.choose({**whole, **values}, objective).run)
        changes = dict(known.run) | ({} if sentences is None else {"sentences": sentences})
        changes |= {f"{name}.{k}": v for name, values in own.items() for k, v in values.items()}
        count = self.sentences if sentences is None else sentences or None
        changed = {**self.set, **known.run}
        update = {"set": changed, "sentences": count, "changes": changes, "own": own}
        return self.model_copy(update=update)

    def of(self, objective: str) -> tables.Settings:
        """The settings for an objective; for a combination, those for its parts as well."""
        # Its own settings go before those of its parts, an earlier part's before a later one's.
        names = [*reversed([method.name for method in methods(objective)]), objective]
        return {k: v for name in names for k, v in self.own.get(name, {}).items()}


def read_scales(folder: Path = tables.HERE) -> dict[tables.ScaleName, Scale]:
    """The scales of a folder of items: of its ``scales.toml``, or the package's if it has none."""
    path = tables.shared(folder, "scales.toml")
    data = tables.read_toml(path)
    for name in data:
        if name not in tables.SCALES:
            raise InputError(path, f"no such scale {name!r}{suggestion(name, tables.SCALES)}")
    return {
        name: tables.decode(Scale, {"name": name, **data.get(name, {})}, path, name)
        for name in tables.SCALES
    }


@dataclass(frozen=True, slots=True)
class Resolved:
    """The training run of a row."""

    objective: str
    given: Mapping[str, object]
    defaults: Mapping[str, object]
    settings: Mapping[str, object]
    select: tables.Selection
    sentences: int | None  # rows sampled from the corpus; None for all


def resolve_row(item: Item, row: TableRow, scale: Scale, *, seed: int = 0) -> Resolved:
    """The settings of a row at a scale: the scale's, its objective's, the item's, the row's own."""
    changes = item.scale[scale.name]
    own = scale.of(row.objective)
    given = {**scale.set, **own, **changes.set, **row.settings[scale.name], "seed": seed}
    if given.get("precision") == AUTO:
        given["precision"] = precision()
    found = run_settings.choose(given, row.objective, option="set")
    settings = run_settings.Settings(**found.run)
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
