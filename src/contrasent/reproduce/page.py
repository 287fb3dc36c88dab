"""The book as one self-contained HTML page that can be sent to a colleague."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from contrasent.pages import minus, render
from contrasent.reproduce.cells import CellTexts, blocks, cell_texts, should_transpose
from contrasent.reproduce.entries import Book, ItemEntry, RowEntry
from contrasent.reproduce.figures import draw
from contrasent.reproduce.holds import forests
from contrasent.reproduce.run import duration
from contrasent.reproduce.text import LAB_NOTE, about, missing, resolved, still_needed
from contrasent.reproduce.verdict import DEFINITIONS, RULE, SEQUENTIAL_RULE, WORDS

FEW = 2
"""So many columns have their numbers side by side; more columns have them one below another."""

Shown = dict[str, Any]
"""Part of a page, as its template takes it."""


def page(found: Book) -> str:
    """The page's text."""
    items = found["items"]
    names = items[0]["name"] if len(items) == 1 else f"{len(items)} tables and figures"
    scales = [scale for scale in DEFINITIONS if any(item["scale"] == scale for item in items)]
    return render(
        "reproduction.html",
        window=f" reproduces {names}",
        heading=f"Reproduction of {names}",
        lab_note=LAB_NOTE if any(item["scale"] == "lab" for item in items) else "",
        run=_run(found),
        rule=f"{RULE} {SEQUENTIAL_RULE}" if any(i["sequential"] for i in items) else RULE,
        rules=[
            [
                (term, f" (scale {scale})" if len(scales) > 1 and scale else "", text)
                for term, text in DEFINITIONS[scale].items()
            ]
            for scale in [*scales, ""]
        ],
        words=WORDS,
        items=[_item(item) for item in items],
        holds=list(forests(found).values()) if len(items) > 1 else [],
    )


def _run(found: Book) -> list[tuple[str, str]]:
    run, items, codes = found["run"], found["items"], found["run"]["codes"]
    facts = {
        "base": ", ".join(sorted({item["base"] for item in items if item["base"]})),
        "scale": "; ".join(sorted({f"{i['scale']}: {i['scale_title']}" for i in items})),
        "training runs": str(run["trained"] or ""),
        "computing time": duration(run["seconds"]) if run["seconds"] else "",
        "machine": "; ".join(run["machines"]),
        "precision": ", ".join(run["precisions"]),
        "versions": "; ".join(run["versions"]),
        "source of training": ", ".join(codes[:2])
        + (f" and {len(codes) - 2} other states of it" if len(codes) > 2 else ""),
    }
    return [(name, text) for name, text in facts.items() if text]


def _item(item: ItemEntry) -> Shown:
    words = [claim["verdict"]["word"] for claim in item["claims"]]
    wanted = [row for row in item["rows"] if row["kind"] in ("train", "encoder", "blocked")]
    made = sum(any("ours" in c for c in row["cells"].values()) for row in wanted)
    titles = {column["name"]: column["title"] for column in item["columns"]}
    return {
        "item": item,
        "made": f"{made} of {len(wanted)}" if wanted else "",
        "counts": [(word, words.count(word)) for word in WORDS],
        "about": list(about(item)),
        "shown": _numbers(item),
        "drawn": draw(item["figure"], item["name"]),
        "resolved": list(resolved(item)),
        "needed": {
            claim["name"]: still_needed(claim["needed"])
            for claim in item["claims"]
            if "needed" in claim
        },
        "orders": [
            f"{titles[name] + ' ' if len(titles) > 1 else ''}"
            f"{minus(format(order['correlation'], '.2f'))}"
            for name, order in item["order"].items()
        ],
        "missing": list(missing(item)),
    }


def _numbers(item: ItemEntry) -> Shown:
    """The document's table: facts, or published and measured numbers."""
    stated = [row for row in item["rows"] if row["facts"]]
    if stated:
        names = [column["name"] for column in item["columns"]]
        stated_lines = [
            {**_named(item, row), "texts": [row["facts"].get(name, "") for name in names]}
            for row in stated
        ]
        return {
            "kind": "facts",
            "heads": [c["title"] for c in item["columns"]],
            "lines": stated_lines,
        }
    rows = [row for row in item["rows"] if row["cells"]]
    columns = [c for c in item["columns"] if any(c["name"] in row["cells"] for row in rows)]
    transposed = should_transpose(len(columns), len(rows))
    if len(columns) > FEW and not transposed:
        return _stacked(item)
    shown = []
    for title, block in blocks(item):
        lines = [
            {
                **(_named(item, row) if not transposed else {"name": name, "remark": ""}),
                "cell": cell,
                "group": "",
            }
            for row, name, cell in block
        ]
        top = _named(item, block[0][0]) if transposed else {"name": title, "remark": ""}
        if not transposed:
            _group(lines, [row for row, _, _ in block])
        shown.append({"title": top, "lines": lines, "heads": _heads(item, lines)})
    return {"kind": "wide", "blocks": shown}


def _heads(item: ItemEntry, lines: list[Shown]) -> list[tuple[str, str]]:
    """Columns of a table with a cell a line: those that any cell fills."""
    heads = {
        "paper": "paper",
        "also": item["also_source"],
        "ours": "ours",
        "interval": "95 %",
        "seeds": "seeds",
        "published": "paper's difference",
        "difference": "our difference",
        "word": "verdict",
    }
    cells = [asdict(line["cell"]) for line in lines]
    return [(key, head) for key, head in heads.items() if any(cell[key] for cell in cells)]


def _group(lines: list[Shown], rows: list[RowEntry]) -> None:
    """Note the headings that several lines share at the first of them."""
    group = ""
    for line, row in zip(lines, rows, strict=True):
        line["group"] = row["group"] if row["group"] != group else ""
        group = row["group"]


def _stacked(item: ItemEntry) -> Shown:
    """A table with all of a cell's numbers one below another."""
    rows = [row for row in item["rows"] if row["cells"]]
    columns = [c for c in item["columns"] if any(c["name"] in row["cells"] for row in rows)]
    texts = [[cell_texts(row["cells"].get(c["name"]), c) for c in columns] for row in rows]
    every: list[CellTexts] = [cell for cells in texts for cell in cells]
    counts = Counter(cell.seeds for cell in every if cell.seeds not in ("", "-"))
    usual = counts.most_common(1)[0][0] if counts else ""
    lines = []
    for row, cells in zip(rows, texts, strict=True):
        unchanged = {cell.seeds for cell in cells} - {""} == {"-"}
        named = _named(item, row, "no seed changes it" if unchanged else "")
        lines.append({**named, "cells": cells})
    _group(lines, rows)
    notes = []
    if usual:
        more = ", where nothing else is said" if len(counts) > 1 else ""
        notes.append(f"{usual} seed{'' if usual == '1' else 's'} a value{more}")
    if any(cell.also for cell in every):
        notes.append(f"In brackets: {item['also_source']}")
    if any(cell.difference for cell in every):
        against = "the published value" if item["scale"] == "paper" else repr(item["reference"])
        notes.append(f"\N{GREEK CAPITAL LETTER DELTA}: difference from {against}")
    heads = [column["title"] for column in columns]
    return {"kind": "stacked", "heads": heads, "lines": lines, "notes": notes, "usual": usual}


def _named(item: ItemEntry, row: RowEntry, *more: str) -> Shown:
    remarks = [row["note"], *more]
    if row["kind"] == "quote":
        own = row["source"] == item["source"]
        remarks.append("quoted" if own else f"quoted from {row['source']}")
    return {"name": row["name"], "remark": "; ".join(filter(None, remarks))}
