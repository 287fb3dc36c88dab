"""Items, and their TOML files: every key is known, nothing is converted."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from contrasent import files
from contrasent.engine.parameters import Count, Positive, Size, Weight
from contrasent.errors import InputError, suggestion

HERE = Path(__file__).parent / "items"  # the package's own items
Cost = Literal["none", "light", "medium", "heavy"]
Figure = Literal["", "plane", "trace", "curves", "spectrum", "densities", "sweep"]
RowKind = Literal["train", "encoder", "derived", "quote", "facts", "blocked"]
Selection = Literal["none", "stsb"]
"""Which model of a run is measured: the last one, or the best on STS-B's dev set."""

ScaleName = Literal["lab", "paper"]
SCALES: tuple[ScaleName, ...] = get_args(ScaleName)
COSTS: dict[Cost, str] = {
    "none": "nothing is computed",
    "light": "encoders are evaluated, nothing is trained",
    "medium": "up to a dozen training runs per seed",
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
                problem = f"unknown key {key!r}{suggestion(key, cls.model_fields)}"
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


class Problem(ValueError):
    """What is wrong with a file that is being read, without its name."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file of a problem."""
    try:
        yield
    except Problem as error:
        raise InputError(path, str(error)) from error


def decode(kind: type[Model], data: Any, *where: str) -> Model:
    """A table as a model; problems name the key, its value and the nearest name."""
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
        raise Problem(problem) from error


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
    num_train_epochs: int | None = None

    @model_validator(mode="after")
    def _fits(self) -> "FittedTransform":
        name = "dimensions" if self.kind == "flow" else "num_train_epochs"
        if getattr(self, name) is not None:
            raise ValueError(f"{name} does not belong to {self.kind}")
        return self

    @property
    def options(self) -> dict[str, int]:
        """The given options, as named in a result's key."""
        named = ("sentences", "dimensions", "num_train_epochs")
        return {name: value for name in named if (value := getattr(self, name)) is not None}


class Changes(Strict):
    """Settings and sizes of runs: those of a scale, and what an item or a row changes of them."""

    set: Settings = Field(default_factory=dict)
    sentences: Size | None = None  # rows that a corpus is sampled to; 0 for all
    select: Selection | None = None
    evaluations: Names | None = None  # those that are made

    def over(self, below: "Changes") -> "Changes":
        """Both: settings one by one, the rest where it is stated."""
        stated = {
            key: v
            for key in ("sentences", "select", "evaluations")
            if (v := getattr(self, key)) is not None
        }
        changes = {"set": {**below.set, **self.set}, **stated}
        return Changes.model_construct(
            **{key: getattr(below, key) for key in Changes.model_fields} | changes
        )


class Row(Changes):
    """A row of the table: a method, a baseline, or somebody else's number.

    A file may write several at once, with ``use`` and ``axes``; here each has its own keys.
    """

    name: str
    objective: str = ""
    base: str = BASE
    corpus: str = ""
    encoder: str = ""
    pooling: str = ""
    postprocess: FittedTransform | None = None  # the transform of its vectors
    fresh_samples: bool = False  # whether each seed draws sentences of its own
    scales: tuple[ScaleName, ...] = SCALES
    lab: Changes = Changes()
    paper: Changes = Changes()
    point: Settings = Field(default_factory=dict)  # values of the axes that made it
    quote: bool = False
    blocked: str = ""  # why nobody can compute the row
    facts: Settings = Field(default_factory=dict)
    tuned: Names = ()  # rows of which the best at the first seed is shown, by its other seeds
    front: Names = ()  # rows of which those are counted that no other beats in both columns
    expected: dict[str, Expected] = Field(default_factory=dict)
    source: str = ""
    group: str = ""
    note: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> "Row":
        said = (self.objective, self.encoder, self.tuned, self.front, self.quote or self.facts)
        if not self.blocked and sum(map(bool, said)) != 1:
            problem = "a row needs exactly one of: an objective (trained), an encoder (evaluated), "
            raise ValueError(problem + "tuned, front, quote = true, blocked or facts")
        if self.kind == "train" and not self.corpus:
            raise ValueError("corpus is missing: set what to train on")
        return self

    @property
    def kind(self) -> RowKind:
        """How its values come about."""
        if self.blocked:
            return "blocked"
        if self.quote or self.facts:
            return "quote" if self.quote else "facts"
        if self.tuned or self.front:
            return "derived"
        return "train" if self.objective else "encoder"

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        fit = self.postprocess
        if self.kind == "train" or fit is None:
            return self.kind == "train"
        return fit.kind == "flow" or (self.fresh_samples and fit.corpus != TARGET)

    def at(self, scale: ScaleName) -> Changes:
        """What it says of its runs at a scale."""
        return Changes(set=self.point).over(getattr(self, scale).over(self))


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
    # the columns it is about, or the one; it must hold in each
    column: Annotated[
        Names, BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
    ]
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


class ScaleChanges(Changes):
    """The changes of an item to a scale."""

    note: str = ""


class ItemKeys(Strict):
    """The keys of an item as a whole."""

    title: str
    source: str
    about: str
    cost: Cost
    needs: Names = ()  # needs beyond the data, checkpoints and packages that its rows name
    seeds: Count = 3
    first_seed: Size = 0
    fresh_samples: bool = False  # the runs of each seed draw sentences of their own
    reference: str = ""  # the row that others are compared with
    base: str = BASE  # the encoder that its rows begin from, if they name no other
    figure: Figure = ""
    sweep: str = ""  # the settings along the figure's axes, of a sweep


class ItemTable(ItemKeys):
    """A file; evaluations depend on their kind, and rows on templates: both are read later."""

    tolerance: float = 1.0
    margin: Positive = MARGIN
    evaluations: dict[str, dict[str, Any]] = Field(default_factory=dict)
    columns: dict[str, TableColumn] = Field(default_factory=dict)
    templates: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    claims: tuple[Claim, ...] = ()
    scale: dict[ScaleName, ScaleChanges] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A measure of a model, and its options."""

    kind: str
    options: Mapping[str, Value | Names]
    changes: Mapping[ScaleName, Mapping[str, Value | Names]] = field(default_factory=dict)

    def at(self, scale: ScaleName) -> dict[str, Value | Names]:
        """The options at a scale."""
        return {**self.options, **self.changes.get(scale, {})}


class Item(ItemKeys):
    """One table or figure."""

    file: Path
    paper: str
    evaluations: Mapping[str, Evaluation]
    columns: Mapping[str, TableColumn]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    scale: Mapping[ScaleName, ScaleChanges]

    @property
    def name(self) -> str:
        """The name on the command line, such as "simcse:table1"."""
        return f"{self.file.parent.name}:{self.file.stem}"

    def row(self, name: str) -> Row:
        """A row by name."""
        return next(row for row in self.rows if row.name == name)
