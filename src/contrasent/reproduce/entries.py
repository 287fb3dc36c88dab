"""A book of items as plain data: what ``report.json`` holds, and pages and texts are made of."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict


class Forms(TypedDict):
    """How the numbers of a column are written, as format specifications (``cells.forms``)."""

    paper: str
    ours: str


class Difference(TypedDict, total=False):
    """A row less the reference row (scale lab) or the published value (scale paper)."""

    ours: float
    low: float
    high: float
    paper: float
    tolerance: float


class Effect(TypedDict):
    """A difference, counted so that more of it speaks for the statement, and its 95 % interval.

    Attributes:
        low: lower end; None where nothing is known of it.
        beyond: what it must exceed: 0, or less than that where a margin is allowed.
        points: whether its unit is a point of a score.
    """

    ours: float
    low: float | None
    high: float | None
    beyond: float
    points: bool


class VerdictEntry(TypedDict):
    """What our runs say: one of ``verdict.WORDS``, the numbers behind it, the adjusted p.

    Of a part of a statement also its text, and the difference if it was run.
    """

    word: str
    why: str
    p: float | None
    text: NotRequired[str]
    effect: NotRequired[Effect]


class Cell(TypedDict, total=False):
    """Published value and source, a second document's, ours with spread and 95 % interval."""

    paper: float
    source: str
    also: float
    ours: float
    values: list[float]
    seeds: int
    sd: float
    low: float
    high: float
    interval: Literal["seeds", "items"]
    difference: Difference
    verdict: VerdictEntry


class ColumnEntry(TypedDict):
    """A column."""

    name: str
    title: str
    better: str
    forms: Forms


class RowEntry(TypedDict):
    """A row: its cells by column, or facts, and why values are missing."""

    name: str
    group: str
    kind: str
    note: str
    source: str
    skipped: str
    facts: Mapping[str, str]
    cells: dict[str, Cell]


class Needed(TypedDict):
    """Seeds more of each row, and hours, that would decide if all goes on as it has."""

    seeds: dict[str, int]
    hours: float


class ClaimEntry(TypedDict):
    """A statement, what our runs say of it, the parts that it consists of, and what it needs."""

    name: str
    text: str
    columns: list[str]
    verdict: VerdictEntry
    parts: list[VerdictEntry]
    needed: NotRequired[Needed]


class OrderEntry(TypedDict):
    """Spearman's correlation of our rows' order with the published one."""

    correlation: float
    rows: int


class Resolution(TypedDict):
    """What a column's seeds can show.

    Attributes:
        deviation: standard deviation over seeds, pooled over rows.
        apart: rows that vary more, and rest on their own seeds alone.
        least: the difference from which on two rows are shown to differ, if they vary as most do;
            None where so few seeds show none.
        needed: seeds a row that decide between any two rows at least four times in five, whatever
            their true difference is; None without a margin, and where seeds are added as needed.
        paired: how far differences of two rows vary seed by seed, as a share of what they would if
            rows did not share their seeds; None where no two do.
    """

    deviation: float
    freedom: float
    apart: list[str]
    seeds: int
    least: float | None
    needed: int | None
    paired: float | None


class Point(TypedDict):
    """A value along an axis: ours with its interval, and the published one."""

    x: Any
    line: str
    ours: NotRequired[float]
    low: NotRequired[float | None]
    high: NotRequired[float | None]
    paper: NotRequired[float]


class Panel(TypedDict):
    """The points of a column along an axis."""

    axis: str
    column: str
    points: list[Point]


class FigureEntry(TypedDict, total=False):
    """A figure: reports or paths by row, or the panels of a sweep; empty where there is none."""

    kind: str
    rows: dict[str, Any]
    apart: bool
    panels: list[Panel]


class Times(TypedDict):
    """Seconds, training runs, machines and versions of what is stored."""

    seeds: NotRequired[int]
    seconds: float
    trained: int
    machines: list[str]
    precisions: list[str]
    codes: list[str]
    versions: list[str]


Listing = list[tuple[str, list[tuple[float, str]]]]
"""Queries, each with (cosine, text) of what a model finds."""


class ItemEntry(TypedDict):
    """An item beside its document."""

    name: str
    paper: str
    title: str
    source: str
    kind: str
    about: str
    scale: str
    scale_title: str
    scale_note: str
    base: str
    sequential: bool
    changes: dict[str, Any]
    reference: str
    also_source: str
    needs: list[str]
    columns: list[ColumnEntry]
    rows: list[RowEntry]
    order: dict[str, OrderEntry]
    claims: list[ClaimEntry]
    tests: int
    resolution: dict[str, Resolution]
    figure: FigureEntry
    listings: dict[str, Listing]
    run: Times


class Book(TypedDict):
    """Items; everything that differs from one run to the next is under "run"."""

    items: list[ItemEntry]
    run: Times
