"""Items: tables and figures of documents as plain data, and what their rows become at a scale.

``reading.py`` makes them from TOML. What stands in a file as it is used is a :class:`Strict` model.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from contrasent.engine.parameters import Count, Positive, Weight
from contrasent.engine.registry import check, methods, parameters
from contrasent.errors import InputError, OptionError, suggestion
from contrasent.train import settings as run_settings

HERE = Path(__file__).parent / "items"
"""The package's own items."""

Kind = Literal["scores", "analysis", "listing", "figure", "facts", "claims"]
Cost = Literal["none", "light", "medium", "heavy"]
Figure = Literal["", "plane", "trace", "curves", "spectrum", "densities", "sweep"]
RowKind = Literal["train", "encoder", "quote", "facts", "blocked"]
Selection = Literal["none", "stsb"]
"""Which model of a run is measured: the last one, or the best on STS-B's dev set."""

ScaleName = Literal["lab", "paper"]
SCALES: tuple[ScaleName, ...] = get_args(ScaleName)
COSTS: dict[Cost, str] = {
    "none": "nothing is computed",
    "light": "encoders are measured, nothing is trained",
    "medium": "up to a dozen training runs a seed",
    "heavy": "more training runs, or longer ones",
}
BASE = "@base"
"""Stands for the encoder that a scale begins from."""

GLOVE = "glove"
TARGET = "target"
"""Stands for each task's own sentences, as the text that a transform is fitted to."""


def _single(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float):
        raise PydanticCustomError("single", "must be a single value")
    return value


Value = Annotated[str | bool | int | float, PlainValidator(_single)]
"""A single value, such as that of a setting."""

Settings = dict[str, Value]
Relation = Literal["better", "no_worse", "no_better", "equal"]
"""What a statement may say of a row and others."""

BETTER, NO_WORSE, NO_BETTER, EQUAL = RELATIONS = get_args(Relation)
MARGIN = 0.3
"""Points that do not matter, if an item says nothing else."""


class Strict(BaseModel):
    """A table of a TOML file: every key is known, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                problem = f"no such key {key!r}{suggestion(key, cls.model_fields)}"
                raise PydanticCustomError("unknown", "{problem}", {"problem": problem})
        return data


Model = TypeVar("Model", bound=Strict)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; its lists are tuples."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found.group(1)) if found else None
        raise InputError(path, f"not valid TOML ({error})", line=line) from error
    except UnicodeDecodeError as error:
        raise InputError(path, "not UTF-8") from error
    found_tables: dict[str, Any] = _tuples(data)
    return found_tables


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(own) for key, own in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def shared(folder: Path, name: str) -> Path:
    """A file that a folder of items may bring, else the package's of that name."""
    own = folder / name
    return own if own.is_file() else HERE / name


def decode(kind: type[Model], data: Any, path: Path, *where: str) -> Model:
    """A table as a model; a complaint names the file, the key, its value and the nearest name."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        value, problem = first["input"], first["msg"].removeprefix("Value error, ")
        shown = f" {value!r}" if isinstance(value, str | bool | int | float | tuple) else ""
        if first["type"] == "missing":
            shown, problem = "", "is missing"
        elif first["type"] == "literal_error":
            choices = re.findall(r"'([^']*)'", first["ctx"]["expected"])
            problem = f"unknown{suggestion(str(value), choices)}"
        place = ".".join(map(str, (*where, *first["loc"])))
        problem = f"{place}{shown}: {problem[0].lower()}{problem[1:]}".lstrip(": ")
        raise InputError(path, problem) from error


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


class Expected(Strict):
    """A published value.

    Attributes:
        value: as it is printed in the document.
        tolerance: how far ours may lie from it, at the document's own scale.
        sd: the published standard deviation over seeds; None where none is printed.
        seeds: how many runs it is the mean of.
    """

    value: float
    tolerance: float = 1.0
    source: str = ""
    sd: Weight | None = None
    seeds: Count = 1


class Fit(Strict):
    """A transform of vectors that is fitted to text.

    Attributes:
        corpus: the text, a name of the folder's corpora; "target" is each task's own sentences.
        sentences: rows of it; None for the scale's own number.
    """

    kind: Literal["whitening", "flow"]
    corpus: str
    sentences: int | None = None
    dimensions: int | None = None
    epochs: int | None = None

    @model_validator(mode="after")
    def _fits(self) -> "Fit":
        name = "dimensions" if self.kind == "flow" else "epochs"
        if getattr(self, name) is not None:
            raise ValueError(f"{name} does not belong to {self.kind}")
        return self

    @property
    def options(self) -> dict[str, int]:
        """Those that are given, as a result's key names them."""
        named = ("sentences", "dimensions", "epochs")
        return {name: value for name in named if (value := getattr(self, name)) is not None}


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


class ScaleChanges(Strict):
    """What an item changes of a scale; None for the scale's own number, or choice of a model."""

    set: Settings = {}
    sentences: int | None = None
    select: Selection | None = None
    note: str = ""


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
"""An objective; settings of a run are checked beside its parameters."""


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
    set: Settings = {}
    sentences: int | None = None
    changes: Settings = {}
    own: dict[str, Settings] = {}

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
