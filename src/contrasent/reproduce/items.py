"""Items: tables and figures of documents as plain data, and what their rows become at a scale."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from contrasent.engine.parameters import Count, Positive
from contrasent.engine.registry import check, methods, parameters
from contrasent.errors import InputError, OptionError, suggestion
from contrasent.reproduce.tables import (
    HERE,
    SCALES,
    Cost,
    Expected,
    Figure,
    Fit,
    Kind,
    Relation,
    RowKind,
    ScaleChanges,
    ScaleName,
    Selection,
    Settings,
    Strict,
    Value,
    decode,
    read_toml,
    shared,
)
from contrasent.train import settings as run_settings


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is measured on a model."""

    name: str
    kind: str
    options: Mapping[str, Value | tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: one row of an evaluation's report.

    Attributes:
        evaluation: whose report; "" of a column that only quotations have values in.
        select: fields of the report's row: task, split, metric, aggregate.
        factor: what a value is multiplied by to stand in the document's units.
        margin: a difference that does not matter, in the document's units; None if unknown.
    """

    name: str
    title: str
    evaluation: str
    select: Mapping[str, str]
    better: Literal["higher", "lower"]
    factor: float
    margin: Positive | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table: a method, a baseline, or somebody else's number.

    Attributes:
        sentences: rows of the corpus, by scale; None for the item's or the scale's own number, 0
            for all.
        encoder: what is measured as it is, of kind "encoder".
        evaluations: those that are made of this row, by scale.
        also: a second document's values by column, for the reader.
        blocked: why the row cannot be made by anybody.
        point: values of the axes that made it.
    """

    name: str
    group: str
    kind: RowKind
    objective: str
    base: str
    corpus: str
    settings: Mapping[ScaleName, Settings]
    sentences: Mapping[ScaleName, int | None]
    encoder: str
    pooler: str
    fit: Fit | None
    evaluations: Mapping[ScaleName, tuple[str, ...]]
    expected: Mapping[str, Expected]
    also: Mapping[str, float]
    facts: Mapping[str, str]
    source: str
    blocked: str
    scales: tuple[ScaleName, ...]
    note: str
    point: Settings

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        return self.kind == "train" or (self.fit is not None and self.fit.kind == "flow")


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the document that our runs can support or contradict.

    Attributes:
        columns: whose values it is about; it must hold in each.
        than: the rows that it is better than, or no worse, or no better, or equal to.
        margin: a difference that does not matter; None for the column's.
        row: the row whose value has a sign.
        rests_on: claims of other items, as "paper:item#name"; it holds where they do.
    """

    name: str
    text: str
    columns: tuple[str, ...] = ()
    relation: Relation | Literal[""] = ""
    subject: str = ""
    than: tuple[str, ...] = ()
    margin: Positive | None = None
    row: str = ""
    sign: Literal["", "positive", "negative"] = ""
    rests_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One table or figure.

    Attributes:
        needs: what it needs beyond data, checkpoints and packages that its rows name.
        reference: the row that others are compared with.
        sweep: the settings along the figure's axes, of a sweep.
        also_source: where the rows' ``also`` values are printed.
    """

    file: Path
    paper: str
    evaluations: Mapping[str, Evaluation]
    columns: Mapping[str, Column]
    rows: tuple[TableRow, ...]
    claims: tuple[Claim, ...]
    scale: Mapping[ScaleName, ScaleChanges]
    title: str
    source: str
    kind: Kind
    about: str
    cost: Cost
    needs: tuple[str, ...] = ()
    seeds: Count = 3
    reference: str = ""
    figure: Figure = ""
    sweep: str = ""
    also_source: str = ""

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

AUTO = "auto"
"""A precision: bf16 where the machine computes in it, else fp32."""

ANY = "simcse"
"""An objective; settings of a run are checked with its parameters."""


class Scale(Strict):
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
    set: Settings = Field(default_factory=dict)
    sentences: int | None = None
    changes: Settings = Field(default_factory=dict)
    own: dict[str, Settings] = Field(default_factory=dict)

    def changed(self, settings: Mapping[str, str], sentences: int | None) -> "Scale":
        """The same with other settings of the run, or another number of sentences.

        Items and rows that say something of their own about a setting still do.
        """
        own: dict[str, Settings] = {}
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
        return self.model_copy(
            update={"set": changed, "sentences": count, "changes": changes, "own": own}
        )

    def of(self, objective: str) -> Settings:
        """What is set for an objective: for a combination, what is set for its parts as well.

        Its own settings go before those of its parts, and an earlier part's before a later one's.
        """
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
