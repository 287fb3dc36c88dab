"""A report of items as plain data, as ``--json`` writes it.

Pages, pictures and texts are made of it alone. Under "run" stands everything that differs from one
run to the next.
"""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from contrasent.reproduce.store import Json


class VerdictEntry(TypedDict):
    """A verdict in words: the word, the numbers behind it, and the adjusted p."""

    word: str
    why: str
    p: float | None


class Cell(TypedDict, total=False):
    """A row's value in a column; a key is left out where there is nothing to say."""

    paper: float
    source: str
    also: float  # the value of a second document
    ours: float
    values: list[float]  # by seed
    seeds: int
    sd: float
    low: float
    high: float
    interval: str  # what `low` and `high` are over: "seeds" or "items"
    difference: dict[str, float]
    verdict: VerdictEntry


class Effect(TypedDict):
    """A comparison's effect, counted so that more of it speaks for the statement."""

    ours: float
    low: float | None
    high: float | None
    beyond: float  # the statement holds where the effect exceeds this
    points: bool


class PartEntry(VerdictEntry):
    """A part of a statement."""

    text: str
    effect: NotRequired[Effect]  # left out where one of the two rows was not run


class ClaimEntry(TypedDict):
    """A statement of the document."""

    name: str
    text: str
    columns: list[str]
    verdict: VerdictEntry
    parts: list[PartEntry]


class ColumnEntry(TypedDict):
    """A column, with the formats of its numbers by "paper" and "ours"."""

    name: str
    title: str
    better: str
    forms: dict[str, str]


class RowEntry(TypedDict):
    """A row of a table."""

    name: str
    group: str
    kind: str
    note: str
    source: str
    skipped: str  # why it has no values, or not all of them
    facts: Mapping[str, str]
    cells: dict[str, Cell]


class ItemEntry(TypedDict):
    """A table or figure."""

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
    changes: Json
    reference: str
    also_source: str
    needs: list[str]
    columns: list[ColumnEntry]
    rows: list[RowEntry]
    claims: list[ClaimEntry]
    figure: Json
    listings: Json
    run: Json


class Book(TypedDict):
    """All items, and what the computation took."""

    items: list[ItemEntry]
    run: Json
