"""A report of items as plain data, and how its numbers are written.

``report.json`` holds a :class:`Book`; pages, pictures and texts are made of it alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict

AS_IT_IS = "g"
"""The form of a column whose values are tiny, such as learning rates."""

MOST_DECIMALS = 4
"""That a document prints."""


class Forms(TypedDict):
    """How the numbers of a column are written, as format specifications."""

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
        beyond: what it must exceed: 0, or less than that where a margin is allowed.
        points: whether its unit is a point of a score.
    """

    ours: float
    low: float | None
    high: float | None
    beyond: float
    points: bool


class VerdictEntry(TypedDict):
    """One of ``table_verdicts.WORDS``, the numbers behind it, and p; of a part also its text."""

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


class ClaimEntry(TypedDict):
    """A statement, its verdict, and the parts that it consists of."""

    name: str
    text: str
    columns: list[str]
    verdict: VerdictEntry
    parts: list[VerdictEntry]


class OrderEntry(TypedDict):
    """Spearman's correlation of our rows' order with the published one."""

    correlation: float
    rows: int


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
    """An item with what its document says."""

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
    changes: dict[str, Any]
    reference: str
    also_source: str
    needs: list[str]
    columns: list[ColumnEntry]
    rows: list[RowEntry]
    order: dict[str, OrderEntry]
    claims: list[ClaimEntry]
    figure: FigureEntry
    listings: dict[str, Listing]
    run: Times


class Book(TypedDict):
    """Items; everything that differs from one run to the next is under "run"."""

    items: list[ItemEntry]
    run: Times


def forms(published: Iterable[float], ours: Iterable[float], *, points: bool) -> Forms:
    """How the numbers of a column are written."""
    printed = list(published)
    places = max(map(_places, printed), default=0)
    if places > MOST_DECIMALS:
        return {"paper": AS_IT_IS, "ours": AS_IT_IS}
    largest = max(map(abs, [*printed, *ours]), default=0.0)
    wanted = 3 if largest < 10 else 2 if largest < 100 else 1 if largest < 10_000 else 0
    if points or places:
        wanted = 2
    return {"paper": f".{places}f", "ours": f".{max(places, wanted)}f"}


def _places(value: float) -> int:
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def number(value: float, form: str, *, signed: bool = False) -> str:
    """A number in a form, with its sign if it is ``signed``; there is no negative zero."""
    text = format(value, f"{'+' if signed else ''}{form}")
    if not any(digit in text for digit in "123456789"):
        return text.lstrip("+-")
    return text.replace("e-0", "e-").replace("e+0", "e+")


def between(low: float, high: float, form: str, *, signed: bool = False) -> str:
    """An interval in a form."""
    return f"[{number(low, form, signed=signed)}, {number(high, form, signed=signed)}]"


def p_value(p: float) -> str:
    """A p value in a few digits."""
    return "p < 0.001" if p < 0.001 else f"p {p:.2f}" if p >= 0.1 else f"p {p:.3f}"


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@dataclass(frozen=True, slots=True)
class CellTexts:
    """A cell as texts, empty where there is nothing to say.

    Attributes:
        interval: 95 %, of the mean over seeds; over test items where there are no seeds.
        seeds: how many; "-" where another seed would change nothing.
        published: the published difference from the reference row.
        difference: ours, from the reference row (scale lab) or the published value (scale paper).
        more: its adjusted p value, and the tolerance.
    """

    paper: str = ""
    also: str = ""
    ours: str = ""
    spread: str = ""
    interval: str = ""
    seeds: str = ""
    published: str = ""
    difference: str = ""
    word: str = ""
    more: str = ""

    @property
    def verdict(self) -> str:
        """The word with what belongs to it."""
        return f"{self.word} ({self.more})" if self.more else self.word


def cell_texts(cell: Cell | None, column: ColumnEntry) -> CellTexts:
    """A cell of a report as texts."""
    if not cell:
        return CellTexts()
    paper, ours = column["forms"]["paper"], column["forms"]["ours"]
    gap = cell.get("difference", {})
    difference = number(gap["ours"], ours, signed=True) if gap else ""
    if "low" in gap:
        difference += f" {between(gap['low'], gap['high'], ours, signed=True)}"
    word, p = "", None
    if "verdict" in cell:
        word, p = cell["verdict"]["word"], cell["verdict"]["p"]
    more = [f"tolerance {gap['tolerance']:g}"] if "tolerance" in gap else []
    made = "ours" in cell
    return CellTexts(
        paper=number(cell["paper"], paper) if "paper" in cell else "",
        also=number(cell["also"], paper) if "also" in cell else "",
        ours=number(cell["ours"], ours) if made else "",
        spread=number(cell["sd"], ours) if "sd" in cell else "",
        interval=between(cell["low"], cell["high"], ours) if "low" in cell else "",
        seeds=str(cell["seeds"] or "-") if made else "",
        published=number(gap["paper"], paper, signed=True) if "paper" in gap else "",
        difference=difference,
        word=word,
        more=", ".join([*more, *([p_value(p)] if p is not None else [])]),
    )
