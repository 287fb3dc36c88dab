"""The numbers of a cell as people read them, for the terminal and for the page."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from contrasent.reproduce.entries import Cell, ColumnEntry, Forms, ItemEntry, RowEntry

AS_IT_IS = "g"
"""The form of a column whose values are tiny, such as learning rates."""

_MOST = 4
"""Decimals that a document prints at most."""


def forms(published: Iterable[float], ours: Iterable[float], *, points: bool) -> Forms:
    """How the numbers of a column are written, as format specifications."""
    printed = list(published)
    places = max(map(_places, printed), default=0)
    if places > _MOST:
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


def should_transpose(columns: int, rows: int) -> bool:
    """Whether a table reads better with its columns as lines: they are many, the rows few."""
    return columns > 4 and rows <= 3


@dataclass(frozen=True, slots=True)
class CellTexts:
    """A cell as texts, empty where there is nothing to say.

    Attributes:
        interval: 95 %, of the mean over seeds; over test items where there are no seeds.
        seeds: how many; "-" where another seed would change nothing.
        published: the published difference from the reference row.
        difference: ours, from the reference row (scale lab) or the published value (scale paper).
        more: its p value, adjusted for the table's comparisons, and the tolerance.
    """

    paper: str = ""
    also: str = ""
    ours: str = ""
    spread: str = ""
    interval: str = ""
    seeds: str = ""
    published: str = ""
    difference: str = ""
    bounds: str = ""
    word: str = ""
    more: str = ""

    @property
    def gap(self) -> str:
        """The difference with its interval."""
        return f"{self.difference} {self.bounds}".strip()

    @property
    def verdict(self) -> str:
        """The word with what belongs to it."""
        return f"{self.word} ({self.more})" if self.more else self.word


def cell_texts(cell: Cell | None, column: ColumnEntry) -> CellTexts:
    """A cell of ``report.book`` as texts."""
    if not cell:
        return CellTexts()
    paper, ours = column["forms"]["paper"], column["forms"]["ours"]
    gap = cell.get("difference", {})
    verdict, p = "", None
    if "verdict" in cell:
        verdict, p = cell["verdict"]["word"], cell["verdict"]["p"]
    more = [f"tolerance {gap['tolerance']:g}"] if "tolerance" in gap else []
    if p is not None:
        more.append(p_value(p))
    made = "ours" in cell
    return CellTexts(
        paper=number(cell["paper"], paper) if "paper" in cell else "",
        also=number(cell["also"], paper) if "also" in cell else "",
        ours=number(cell["ours"], ours) if made else "",
        spread=number(cell["sd"], ours) if "sd" in cell else "",
        interval=between(cell["low"], cell["high"], ours) if "low" in cell else "",
        seeds=str(cell["seeds"] or "-") if made else "",
        published=number(gap["paper"], paper, signed=True) if "paper" in gap else "",
        difference=number(gap["ours"], ours, signed=True) if gap else "",
        bounds=between(gap["low"], gap["high"], ours, signed=True) if "low" in gap else "",
        word=verdict,
        more=", ".join(more),
    )


def blocks(item: ItemEntry) -> Iterator[tuple[str, list[tuple[RowEntry, str, CellTexts]]]]:
    """A table for each column, or for each row where there are fewer of these."""
    rows = [row for row in item["rows"] if row["cells"]]
    columns = [c for c in item["columns"] if any(c["name"] in row["cells"] for row in rows)]
    cells = [(r, c, cell_texts(r["cells"].get(c["name"]), c)) for r in rows for c in columns]
    there = [(r, c, cell) for r, c, cell in cells if c["name"] in r["cells"]]
    if should_transpose(len(columns), len(rows)):
        for row in rows:
            yield row["name"], [(r, c["title"], cell) for r, c, cell in there if r is row]
    else:
        for column in columns:
            yield column["title"], [(r, r["name"], cell) for r, c, cell in there if c is column]
