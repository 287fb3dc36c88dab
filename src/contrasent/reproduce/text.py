"""A book of items as text for a terminal."""

from collections.abc import Callable
from typing import Any

LAB_NOTE = (
    "Scale lab: a smaller encoder and fewer steps. Only directions and orders of rows are judged, "
    "values are not comparable with the document's."
)


def text(found: dict[str, Any]) -> str:
    """A book for a terminal."""
    return "\n\n".join(_item_text(item) for item in found["items"])


def _item_text(item: dict[str, Any]) -> str:
    lines = [f"{item['name']}  {item['title']} ({item['source']})"]
    if item["scale"] == "lab" and item["base"]:
        lines.append(f"{LAB_NOTE} Base: {item['base']}.")
    for column in item["columns"]:
        lines += ["", *_column_text(item, column)]
    for name, order in item["order"].items():
        lines.append(
            f"order of {order['rows']} rows, {name}: rank correlation {order['correlation']:.2f}"
        )
    for claim in item["claims"]:
        said = claim["verdict"]
        lines.append(f"{said['word']:<14} {claim['text']} ({said['why']})")
    reasons: dict[str, list[str]] = {}
    for row in item["rows"]:
        if row["skipped"]:
            reasons.setdefault(row["skipped"], []).append(row["name"])
    for reason, names in reasons.items():
        rows = names[0] if len(names) == 1 else f"{len(names)} rows from {names[0]} on"
        lines.append(f"missing: {rows}: {reason}")
    return "\n".join(lines)


def _column_text(item: dict[str, Any], column: dict[str, Any]) -> list[str]:
    head = (column["title"], "paper", "ours", "95 %", "seeds", "difference", "verdict")
    table = [head]
    for row in item["rows"]:
        cell = row["cells"].get(column["name"])
        if cell is None and not row["facts"].get(column["name"]):
            continue
        table.append((row["name"], *cell_texts(cell or {})))
    used = [i for i in range(len(head)) if i < 2 or any(line[i] for line in table[1:])]
    widths = {i: max(len(line[i]) for line in table) for i in used}
    return [
        "  ".join(
            line[i].ljust(widths[i]) if i in (0, 6) else line[i].rjust(widths[i]) for i in used
        ).rstrip()
        for line in table
    ]


def cell_texts(cell: dict[str, Any]) -> tuple[str, str, str, str, str, str]:
    """Paper, ours, interval, seeds, difference and verdict of a cell, as texts."""
    number = number_text(cell)
    interval = f"{number(cell['low'])} to {number(cell['high'])}" if "low" in cell else ""
    said = cell.get("verdict", {})
    why = f" {said['why']}" if said.get("why") else ""
    return (
        f"{cell['paper']:g}" if "paper" in cell else "",
        number(cell["ours"]) if "ours" in cell else "",
        interval,
        str(cell["seeds"] or "-") if "ours" in cell else "",
        f"{cell['difference']:+.2f}" if "difference" in cell else "",
        said.get("word", "") + why,
    )


def number_text(cell: dict[str, Any]) -> Callable[[float], str]:
    """How the numbers of a cell are written: two decimals where they are large."""
    size = abs(cell.get("ours", cell.get("paper", 0.0)))
    digits = 2 if size >= 5 else 3
    return lambda value: f"{value:.{digits}f}"
