"""How the numbers of a report are written.

A report (``Book``) is plain data, as ``--json`` writes it: "items", each with its "columns",
"rows" of "cells", "claims" with "verdict" and "parts", and "figure", and "run", under which stands
everything that differs from one run to the next. Pages, pictures and texts are made of it alone.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

Json = dict[str, Any]
"""An object of a report or of a stored file."""

Book = Json

AS_IT_IS = "g"
"""The form of a column whose values are tiny, such as learning rates."""

MOST_DECIMALS = 4
"""That a document prints."""


def forms(published: Iterable[float], ours: Iterable[float], *, points: bool) -> dict[str, str]:
    """The format specifications of a column's numbers, by "paper" and "ours"."""
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


def cell_texts(cell: Json | None, column: Mapping[str, Any]) -> SimpleNamespace:
    """A cell of a report as texts, empty where there is nothing to say."""
    cell = cell or {}
    paper, ours = column["forms"]["paper"], column["forms"]["ours"]
    gap, verdict = cell.get("difference", {}), cell.get("verdict", {"word": "", "p": None})
    difference = number(gap["ours"], ours, signed=True) if gap else ""
    if "low" in gap:
        difference += f" {between(gap['low'], gap['high'], ours, signed=True)}"
    more = [f"tolerance {gap['tolerance']:g}"] if "tolerance" in gap else []
    more += [p_value(verdict["p"])] if verdict["p"] is not None else []
    return SimpleNamespace(
        paper=number(cell["paper"], paper) if "paper" in cell else "",
        also=number(cell["also"], paper) if "also" in cell else "",
        ours=number(cell["ours"], ours) if "ours" in cell else "",
        spread=number(cell["sd"], ours) if "sd" in cell else "",
        interval=between(cell["low"], cell["high"], ours) if "low" in cell else "",
        # "-" where another seed would change nothing.
        seeds=str(cell["seeds"] or "-") if "ours" in cell else "",
        published=number(gap["paper"], paper, signed=True) if "paper" in gap else "",
        difference=difference,
        word=verdict["word"],
        more=", ".join(more),
        verdict=f"{verdict['word']} ({', '.join(more)})" if more else verdict["word"],
    )
