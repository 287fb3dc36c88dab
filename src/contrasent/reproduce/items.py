"""An item: one table or figure of a document, what it shows, and how its rows are made.

Everything here is plain data and reads without torch or numpy. ``reading.py`` makes items from
TOML, ``scale.py`` says what a row becomes at a scale. Fields that are keys of the files have the
types that these are checked against (:meth:`contrasent.reproduce.toml.Table.fill`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from contrasent.engine.parameters import Count, Positive, Weight
from contrasent.errors import OptionError
from contrasent.reproduce.toml import Value

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

Settings = dict[str, Value]
Relation = Literal["better", "no_worse", "no_better", "equal"]
"""What a statement may say of a row and others."""

BETTER, NO_WORSE, NO_BETTER, EQUAL = RELATIONS = get_args(Relation)
MARGIN = 0.3
"""Points that do not matter, if an item says nothing else."""


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
class Expected:
    """A published value.

    Attributes:
        value: as it is printed in the document.
        tolerance: how far ours may lie from it, at the document's own scale.
        sd: the published standard deviation over seeds; None where none is printed.
        seeds: how many runs it is the mean of.
    """

    value: float
    tolerance: float
    source: str
    sd: Weight | None = None
    seeds: Count = 1


@dataclass(frozen=True, slots=True)
class Fit:
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

    def __post_init__(self) -> None:
        name = "dimensions" if self.kind == "flow" else "epochs"
        if getattr(self, name) is not None:
            raise OptionError(name, getattr(self, name), f"does not belong to {self.kind}")

    @property
    def options(self) -> dict[str, int]:
        """Those that are given, as a result's key names them."""
        named = ("sentences", "dimensions", "epochs")
        return {name: value for name in named if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table: a method, a baseline, or somebody else's number.

    Attributes:
        place: where it stands in the file, for messages.
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
    place: int
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
class ScaleChanges:
    """What an item changes of a scale.

    Attributes:
        sentences: rows of a corpus; None for the scale's own number.
        select: how the model is chosen; None for the scale's own way.
    """

    set: Settings = field(default_factory=dict)
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

    def __post_init__(self) -> None:
        if self.figure == "sweep" and not self.sweep:
            problem = 'needs sweep = "SETTING", the axis of the figure'
            raise OptionError("figure", self.figure, problem)

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
