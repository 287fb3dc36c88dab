"""What the stored results say: each item beside its document, as plain data.

Nothing is computed here but statistics: a report can be made again from a folder of results on a
machine that has neither the data nor a model.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contrasent.reproduce import verdict
from contrasent.reproduce.deciding import Decided, decide, published_difference
from contrasent.reproduce.item import Item, times
from contrasent.reproduce.reading import find_recipes, scales
from contrasent.reproduce.recipe import PAPERS, Claim, Recipe, Row
from contrasent.reproduce.spread import Arm, Gap, difference, from_published
from contrasent.reproduce.store import Store
from contrasent.reproduce.verdict import Verdict

Find = Callable[[str], tuple[Item, Decided]]


def book(recipes: Sequence[Recipe], home: Path, scale: str | None) -> dict[str, Any]:
    """Items beside their documents.

    Args:
        recipes: the items.
        home: the folder of results.
        scale: "lab" or "paper"; None for the one that an item was run at, "paper" if both.

    Returns:
        Plain data; everything that differs from one run to the next is under "run".
    """
    store = Store(home)
    asked = [Item(recipe, store, scale) for recipe in recipes]
    shelf: dict[str, tuple[Item, Decided]] = {}

    def find(name: str) -> tuple[Item, Decided]:
        if name not in shelf:
            item = next((i for i in asked if i.recipe.name == name), None)
            if item is None:
                (recipe,) = find_recipes([name], recipes[0].folder)
                item = Item(recipe, store, scale)
            shelf[name] = item, _decided(item, find)
        return shelf[name]

    records = {key: record for item in asked for key, record in item.records.items()}
    return {"items": [_told(*find(item.recipe.name)) for item in asked], "run": times(records)}


def _decided(item: Item, find: Find) -> Decided:
    """The verdicts of an item, and before them those of the statements that its own rest on."""
    rested: dict[str, tuple[str, Verdict]] = {}
    for place in dict.fromkeys(place for c in item.recipe.claims for place in c.rests_on):
        name, _, inner = place.partition("#")
        there, decided = find(name)
        text = next(c.text for c in there.recipe.claims if c.name == inner)
        parts = [part for _, part in decided.claims[inner]]
        rested[place] = f"{name}: {text}", verdict.together(parts)
    return decide(item.recipe, item.scale, item.arms, item.forms, rested)


def _told(item: Item, decided: Decided) -> dict[str, Any]:
    from contrasent.reproduce.figures import drawn_from

    recipe, manifest = item.recipe, item.manifest or {}
    columns = [
        {"name": c.name, "title": c.title, "better": c.better, "forms": item.forms[c.name]}
        for c in recipe.columns.values()
    ]
    return {
        "name": recipe.name,
        "paper": PAPERS[recipe.paper],
        "title": recipe.title,
        "source": recipe.source,
        "kind": recipe.kind,
        "about": recipe.about,
        "scale": item.scale,
        "scale_title": scales(recipe.folder)[item.scale].title,
        "scale_note": recipe.scale[item.scale].note,
        "base": manifest.get("base", ""),
        "changes": manifest.get("changes", {}),
        "reference": recipe.reference,
        "also_source": recipe.also_source,
        "needs": list(recipe.needs),
        "columns": columns,
        "rows": [_row(item, row, decided) for row in recipe.rows],
        "order": _orders(item),
        "claims": [_claim(item, claim, decided) for claim in recipe.claims],
        "tests": decided.tests,
        "resolution": {name: shown.to_json() for name, shown in decided.columns.items()},
        "figure": drawn_from(recipe, item.scale, item.reports, item.arms),
        "listings": _listings(item),
        "run": item.times(),
    }


def _row(item: Item, row: Row, decided: Decided) -> dict[str, Any]:
    return {
        "name": row.name,
        "group": row.group,
        "kind": row.kind,
        "note": row.note,
        "source": row.source if row.kind == "quote" else "",
        "skipped": item.skipped(row),
        "facts": row.facts,
        "cells": {c: cell for c in item.recipe.columns if (cell := _cell(item, row, c, decided))},
    }


def _cell(item: Item, row: Row, column: str, decided: Decided) -> dict[str, Any]:
    arm = item.arms.get(column, {}).get(row.name)
    expected = row.expected.get(column)
    cell: dict[str, Any] = {}
    if expected is not None:
        cell["paper"] = expected.value
        cell["source"] = expected.source
    if column in row.also:
        cell["also"] = row.also[column]
    if arm is not None:
        cell |= _measured(arm)
        difference = _from_paper(row, column, arm)
        if item.scale == "lab":
            difference = _from_reference(item, row, column, arm)
        if difference:
            cell["difference"] = difference
    if (row.name, column) in decided.cells:
        cell["verdict"] = decided.cells[row.name, column].to_json()
    return cell


def _measured(arm: Arm) -> dict[str, Any]:
    told: dict[str, Any] = {
        "ours": round(arm.mean, 4),
        "values": [round(v, 4) for v in arm.values],
        "seeds": len(arm.values) if arm.seeded else 0,
    }
    spread = arm.spread()
    if spread is not None:
        told["sd"] = round(spread, 4)
    bounds = arm.bounds()
    if bounds is not None:
        told["low"], told["high"] = (round(v, 4) for v in bounds)
        told["interval"] = "seeds" if arm.seeded else "items"
    return told


def _from_paper(row: Row, column: str, arm: Arm) -> dict[str, Any]:
    """Our value less the published one."""
    expected = row.expected.get(column)
    if expected is None:
        return {}
    gap = from_published(arm, expected.value, expected.deviation, expected.seeds)
    return {**_gap(gap), "tolerance": expected.tolerance}


def _from_reference(item: Item, row: Row, column: str, arm: Arm) -> dict[str, Any]:
    """The row less the reference row: ours, and the document's."""
    reference = item.recipe.reference
    other = item.arms.get(column, {}).get(reference)
    if other is None or row.name == reference:
        return {}
    told = _gap(difference(other, arm))
    apart = published_difference(item.recipe, row, column)
    return told if apart is None else {**told, "paper": round(apart, 6)}


def _gap(gap: Gap) -> dict[str, Any]:
    told: dict[str, Any] = {"ours": round(gap.mean, 4)}
    bounds = gap.interval()
    if bounds is not None and gap.error:
        told |= {"low": round(bounds[0], 4), "high": round(bounds[1], 4)}
    return told


def _orders(item: Item) -> dict[str, Any]:
    found = {}
    for column in item.recipe.columns:
        pairs = [
            (row.expected[column].value, arm.mean)
            for row in item.recipe.rows
            if column in row.expected
            and (arm := item.arms.get(column, {}).get(row.name)) is not None
        ]
        order = verdict.order([p for p, _ in pairs], [o for _, o in pairs])
        if order is not None:
            found[column] = order
    return found


def _claim(item: Item, claim: Claim, decided: Decided) -> dict[str, Any]:
    """A claim with its verdict and the parts that it consists of."""
    parts = decided.claims[claim.name]
    return {
        "name": claim.name,
        "text": claim.text,
        "columns": [item.recipe.columns[c].title for c in claim.columns],
        "verdict": verdict.together([part for _, part in parts]).to_json(),
        "parts": [{"text": text, **part.to_json()} for text, part in parts],
    }


def _listings(item: Item) -> dict[str, Any]:
    """What each row's model finds for each query; of the first seed."""
    found = {}
    for (row, _), reports in item.reports.items():
        first = next((r for r in reports.values() if "listing" in r.notes), None)
        if first is not None:
            found[row] = first.notes["listing"]
    return found
