"""Items, and their TOML files: every key is known, nothing is converted."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from contrasent import files
from contrasent.engine.parameters import Count, Positive, Size, Weight
from contrasent.errors import InputError, suggestion

HERE = Path(__file__).parent / "items"  # the package's own items
Kind = Literal["scores", "analysis", "listing", "figure", "facts"]
Cost = Literal["none", "light", "medium", "heavy"]
Figure = Literal["", "plane", "trace", "curves", "spectrum", "densities", "sweep"]
RowKind = Literal["train", "encoder", "derived", "quote", "facts", "blocked"]
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
BASE = "@base"  # stands for the encoder that a scale begins from
NEW = "@new"  # for the same with random weights
GLOVE = "glove"
TARGET = "target"  # stands for each task's own sentences, as the text to fit a transform to
Relation = Literal["better", "no_worse", "no_better", "equal"]
"""How a statement may relate a row to others."""

SELECTED = ("task", "split", "metric", "aggregate")  # keys by which a column chooses a report's row
MARGIN = 0.3  # negligible points, unless an item states its own
Names = tuple[str, ...]


def _single(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float):
        raise PydanticCustomError("single", "must be a single value")
    return value


Value = Annotated[str | bool | int | float, PlainValidator(_single)]
"""A single value, such as that of a setting."""

Settings = dict[str, Value]


BETTER, NO_WORSE, NO_BETTER, EQUAL = RELATIONS = get_args(Relation)


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
    table: dict[str, Any] = _tuples(files.read_toml(path))
    return table


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(entry) for key, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def shared(folder: Path, name: str) -> Path:
    """A folder's own file of a name, else the package's."""
    brought = folder / name
    return brought if brought.is_file() else HERE / name


def decode(kind: type[Model], data: Any, path: Path, *where: str) -> Model:
    """A table as a model; errors name the file, the key, its value and the nearest name."""
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
        place = ".".join((*where, *_named(data, first["loc"])))
        problem = f"{place}{shown}: {problem[0].lower()}{problem[1:]}".lstrip(": ")
        raise InputError(path, problem) from error


def _named(data: Any, keys: tuple[int | str, ...]) -> Iterator[str]:
    """The keys of a place in a table, with rows and claims by their names."""
    for key in keys:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            data = None
        name = data.get("name", key) if isinstance(data, dict) and isinstance(key, int) else key
        yield str(name)


class Expected(Strict):
    """A published value."""

    value: float  # as printed in the document
    tolerance: float = 1.0  # how far ours may differ from it, at the document's own scale
    source: str = ""
    # the published standard deviation over seeds; None if not printed
    sd: Weight | None = None
    seeds: Count = 1  # number of runs that it averages


class FittedTransform(Strict):
    """A transform of vectors that is fitted to text."""

    kind: Literal["whitening", "flow"]
    corpus: str  # the text, a name of the folder's corpora; "target" is each task's own sentences
    sentences: int | None = None  # rows of it; None for the scale's own number
    dimensions: int | None = None
    epochs: int | None = None

    @model_validator(mode="after")
    def _fits(self) -> "FittedTransform":
        name = "dimensions" if self.kind == "flow" else "epochs"
        if getattr(self, name) is not None:
            raise ValueError(f"{name} does not belong to {self.kind}")
        return self

    @property
    def options(self) -> dict[str, int]:
        """The given options, as named in a result's key."""
        named = ("sentences", "dimensions", "epochs")
        return {name: value for name in named if (value := getattr(self, name)) is not None}


class ScaleChanges(Strict):
    """The changes of an item to a scale; None for the scale's own number, or choice of a model."""

    set: Settings = {}
    sentences: int | None = None
    select: Selection | None = None
    note: str = ""


class AtScale(Strict):
    """The keys of a row or template for one scale."""

    set: Settings = Field(default_factory=dict)
    evaluations: Names | None = None
    sentences: Size | None = None


class RowKeys(Strict):
    """Keys of a template, and of a row both as written and as read."""

    objective: str = ""
    base: str = BASE
    corpus: str = ""
    encoder: str = ""
    pooler: str = ""
    group: str = ""
    note: str = ""
    scales: tuple[ScaleName, ...] = SCALES


class Template(RowKeys):
    """Keys that several rows share, and that a row has as well."""

    set: Settings = Field(default_factory=dict)
    lab: AtScale = AtScale()
    paper: AtScale = AtScale()
    sentences: Size | None = None
    postprocess: FittedTransform | None = None
    evaluations: Names | None = None


class RowTable(Template):
    """One [[rows]]: a row, or a row of each point of its axes."""

    name: str
    use: str = ""
    quote: bool = False
    blocked: str = ""
    facts: Settings = Field(default_factory=dict)
    source: str = ""
    tuned: Names = ()  # rows of which the best at the first seed is shown, by its other seeds
    front: Names = ()  # rows of which those are counted that no other beats in both columns
    axes: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    expected: dict[str, Any] = Field(default_factory=dict)


class TableColumn(Strict):
    """One [columns.NAME]: one row of an evaluation's report."""

    name: str = ""
    title: str = ""
    evaluation: str = ""  # whose report; "" for a column of quotations only
    task: str | None = None
    split: str | None = None
    metric: str | None = None
    aggregate: str | None = None
    front: Names = ()  # the columns of a count of rows on one Pareto front
    factor: float = 1.0  # converts a value to the document's units
    better: Literal["higher", "lower"] = "higher"
    # a negligible difference, in the document's units; None if unknown
    margin: Positive | None = None

    @property
    def select(self) -> dict[str, str]:
        """The fields of the report's row."""
        return {key: v for key in SELECTED if (v := getattr(self, key)) is not None}


class Claim(Strict):
    """One [[claims]]: a statement of the document that our runs can support or contradict."""

    name: str
    text: str
    column: str = ""
    columns: Names = ()  # the columns it is about; it must hold in each
    better: str = ""
    no_worse: str = ""
    no_better: str = ""
    equal: str = ""
    than: Names = ()  # the rows that it is better than, or no worse, or no better, or equal to
    margin: Positive | None = None  # a negligible difference; None for the column's
    row: str = ""  # the row whose value has a sign
    sign: Literal["", "positive", "negative"] = ""
    beyond: float = 0.0  # the number that a value with a sign is compared with
    level: float = Field(0.05, gt=0, lt=1)  # p that it must reach
    chosen: str = ""  # why its rows were chosen for what it says: shown, not tested
    term: str = ""  # the term of the loss that it is about; it must act in some row

    @property
    def relation(self) -> Relation | Literal[""]:
        """Its relation of the subject to other rows; "" if none."""
        return next((key for key in RELATIONS if getattr(self, key)), "")

    @property
    def subject(self) -> str:
        """The row that is compared with others."""
        return getattr(self, self.relation) if self.relation else ""


class Scales(Strict):
    """[scale.lab] and [scale.paper]."""

    lab: ScaleChanges = ScaleChanges()
    paper: ScaleChanges = ScaleChanges()


class ItemKeys(Strict):
    """The keys of an item as a whole."""

    title: str
    source: str
    kind: Kind
    about: str
    cost: Cost
    needs: Names = ()  # needs beyond the data, checkpoints and packages that its rows name
    seeds: Count = 3
    first_seed: Size = 0
    fresh_samples: bool = False  # the runs of each seed draw sentences of their own
    reference: str = ""  # the row that others are compared with
    figure: Figure = ""
    sweep: str = ""  # the settings along the figure's axes, of a sweep


class ItemTable(ItemKeys):
    """A file; the keys of an evaluation depend on its kind, and are decoded separately."""

    tolerance: float = 1.0
    margin: Positive = MARGIN
    evaluations: dict[str, dict[str, Any]] = Field(default_factory=dict)
    columns: dict[str, TableColumn] = Field(default_factory=dict)
    templates: dict[str, Template] = Field(default_factory=dict)
    rows: tuple[RowTable, ...] = ()
    claims: tuple[Claim, ...] = ()
    scale: Scales = Scales()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A measure of a model, and its options."""

    kind: str
    options: Mapping[str, Value | Names]
    changes: Mapping[ScaleName, Mapping[str, Value | Names]] = field(default_factory=dict)

    def at(self, scale: ScaleName) -> dict[str, Value | Names]:
        """The options at a scale."""
        return {**self.options, **self.changes.get(scale, {})}


class TableRow(RowKeys):
    """A row of the table: a method, a baseline, or somebody else's number."""

    name: str
    kind: RowKind
    source: str
    blocked: str  # why nobody can compute the row
    tuned: Names
    front: Names
    # by scale, and so ``sentences`` (None for the item's or the scale's own number, 0 for all) and
    # ``evaluations`` (those that are made of this row)
    settings: Mapping[ScaleName, Settings]
    sentences: Mapping[ScaleName, int | None]
    evaluations: Mapping[ScaleName, Names]
    fit: FittedTransform | None  # the transform of its vectors
    fresh: bool  # whether each seed draws sentences of its own
    expected: Mapping[str, Expected]
    facts: Mapping[str, str]
    point: Settings  # values of the axes that made it

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        if self.kind == "train" or self.fit is None:
            return self.kind == "train"
        return self.fit.kind == "flow" or (self.fresh and self.fit.corpus != TARGET)


class Item(ItemKeys):
    """One table or figure."""

    file: Path
    paper: str
    evaluations: Mapping[str, Evaluation]
    columns: Mapping[str, TableColumn]
    rows: tuple[TableRow, ...]
    claims: tuple[Claim, ...]
    scale: Mapping[ScaleName, ScaleChanges]

    @property
    def name(self) -> str:
        """The name on the command line, such as "simcse:table1"."""
        return f"{self.file.parent.name}:{self.file.stem}"

    @property
    def folder(self) -> Path:
        """The folder that contains the item."""
        return self.file.parents[1]

    def row(self, name: str) -> TableRow:
        """A row by name."""
        return next(row for row in self.rows if row.name == name)
