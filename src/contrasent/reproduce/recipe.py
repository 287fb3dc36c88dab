"""A recipe: one table or figure of a document, what it shows, and how its rows are made.

Everything here is plain data and reads without torch or numpy. ``reading.py`` makes recipes from
TOML, ``scale.py`` says what a row becomes at a scale.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAPERS = {
    "simcse": "SimCSE (Gao et al., 2021)",
    "esimcse": "ESimCSE (Wu et al., 2022)",
    "diffcse": "DiffCSE (Chuang et al., 2022)",
    "simcse_plus_plus": "SimCSE++ (Xu et al., 2023)",
    "study": "the reproducibility study of SimCSE (Pandey and Sholokhov)",
}
"""Folders of recipes, in the order of the book, and what they stand for."""

KINDS = {
    "scores": "a table of scores",
    "analysis": "an analysis of vectors",
    "listing": "texts that models find",
    "figure": "a figure",
    "facts": "facts that are not measured",
    "claims": "statements that rest on other items",
}
COSTS = {
    "none": "nothing is computed",
    "light": "encoders are measured, nothing is trained",
    "medium": "up to a dozen training runs a seed",
    "heavy": "more training runs, or longer ones",
}
FIGURES = ("plane", "trace", "spectrum", "densities", "sweep")
SCALES = ("lab", "paper")
BASE = "@base"
"""Stands for the encoder that a scale begins from."""

GLOVE = "glove"
TARGET = "target"
"""Stands for each task's own sentences, as the text that a transform is fitted to."""

FITTED = ("whitening", "flow")
BETTER, NO_WORSE, NO_BETTER, EQUAL = RELATIONS = ("better", "no_worse", "no_better", "equal")
"""What a statement may say of a row and others."""

MARGIN = 0.3
"""Points that do not matter, if a recipe says nothing else."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is measured on a model.

    Attributes:
        name: in the recipe.
        kind: a name of ``kinds.MEASURES``.
        options: for it.
    """

    name: str
    kind: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: one row of an evaluation's report.

    Attributes:
        name: in the recipe.
        title: for readers.
        evaluation: whose report; "" of a column that only quotations have values in.
        select: fields of the report's row: task, split, metric, aggregate.
        better: "higher" or "lower".
        factor: what a value is multiplied by to stand in the document's units.
        margin: a difference that does not matter, in the document's units; None if nobody says.
    """

    name: str
    title: str
    evaluation: str
    select: dict[str, str]
    better: str
    factor: float
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """A published value.

    Attributes:
        value: as it is printed in the document.
        tolerance: how far ours may lie from it, at the document's own scale.
        source: where it is printed.
        deviation: the published standard deviation over seeds; None where none is printed.
        seeds: how many runs it is the mean of.
    """

    value: float
    tolerance: float
    source: str
    deviation: float | None = None
    seeds: int = 1


@dataclass(frozen=True, slots=True)
class Fit:
    """A transform of vectors that is fitted to text: whitening or a flow.

    Attributes:
        kind: one of ``FITTED``.
        corpus: the text, a name of ``corpora.CORPORA``; "target" is each task's own sentences.
        options: of the fit.
    """

    kind: str
    corpus: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: a method, a baseline, or somebody else's number.

    Attributes:
        name: unique in the recipe.
        group: a heading that several rows share.
        place: where it stands in the file, for messages.
        kind: "train", "encoder", "quote", "facts" or "blocked".
        objective: what is learnt, of kind "train".
        base: what training begins from.
        corpus: a name of ``corpora.CORPORA``.
        settings: of run and objective, by scale.
        sentences: rows of the corpus, by scale; None for the recipe's or the scale's own number,
            0 for all.
        encoder: what is measured as it is, of kind "encoder".
        pooler: of the encoder.
        fit: what is done to its vectors.
        evaluations: those that are made of this row, by scale.
        expected: published values by column.
        also: a second document's values by column, for the reader.
        facts: texts by column.
        source: of a quotation.
        blocked: why the row cannot be made by anybody.
        scales: at which it is made.
        note: for the reader.
        point: values of the axes that made it.
    """

    name: str
    group: str
    place: int
    kind: str
    objective: str = ""
    base: str = BASE
    corpus: str = ""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    sentences: dict[str, int | None] = field(default_factory=dict)
    encoder: str = ""
    pooler: str = ""
    fit: Fit | None = None
    evaluations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    expected: dict[str, Expected] = field(default_factory=dict)
    also: dict[str, float] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    source: str = ""
    blocked: str = ""
    scales: tuple[str, ...] = SCALES
    note: str = ""
    point: dict[str, Any] = field(default_factory=dict)

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        return self.kind == "train" or (self.fit is not None and self.fit.kind == "flow")


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the document that our runs can support or contradict.

    Attributes:
        name: unique in the recipe.
        text: the statement, in our words.
        columns: whose values it is about; it must hold in each.
        relation: "better", "no_worse", "no_better" or "equal"; "" of a sign.
        subject: the row that is so.
        than: the rows that it is better than, or no worse, or no better, or equal to.
        margin: a difference that does not matter; None for the column's.
        row: the row whose value has a sign.
        sign: "positive" or "negative".
        rests_on: claims of other items, as "paper:item#name"; it holds where they do.
    """

    name: str
    text: str
    columns: tuple[str, ...] = ()
    relation: str = ""
    subject: str = ""
    than: tuple[str, ...] = ()
    margin: float | None = None
    row: str = ""
    sign: str = ""
    rests_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleChanges:
    """What a recipe changes of a scale.

    Attributes:
        settings: of the run.
        sentences: rows of a corpus; None for the scale's own number.
        select: how the model is chosen; "" for the scale's own way.
        note: for the reader.
    """

    settings: dict[str, Any]
    sentences: int | None
    select: str
    note: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """One item of the book.

    Attributes:
        paper: a key of ``PAPERS``.
        item: the file's name, such as "table1".
        title: for readers.
        source: document and number.
        kind: a key of ``KINDS``.
        about: what the item says, in our words.
        cost: a key of ``COSTS``.
        needs: what it needs beyond data, checkpoints and packages that its rows name.
        seeds: how many it asks for.
        reference: the row that others are compared with.
        figure: one of ``FIGURES``, or "".
        sweep: the setting along the figure's axis, of a sweep.
        evaluations: by name.
        columns: by name, in order.
        rows: in order.
        claims: in order.
        scale: changes by scale.
        also_source: where the rows' ``also`` values are printed.
        file: where it was read from.
    """

    paper: str
    item: str
    title: str
    source: str
    kind: str
    about: str
    cost: str
    needs: tuple[str, ...]
    seeds: int
    reference: str
    figure: str
    sweep: str
    evaluations: dict[str, Evaluation]
    columns: dict[str, Column]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    scale: dict[str, ScaleChanges]
    also_source: str
    file: str

    @property
    def name(self) -> str:
        """As it is named on the command line."""
        return f"{self.paper}:{self.item}"

    @property
    def folder(self) -> Path:
        """The folder of recipes that it belongs to."""
        return Path(self.file).parents[1]

    def row(self, name: str) -> Row:
        """A row by name."""
        return next(row for row in self.rows if row.name == name)
