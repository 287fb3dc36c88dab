"""What the stored results say: each item beside its document, as plain data.

Nothing is computed here but statistics: a report can be made again from a folder of results on a
machine that has neither the data nor a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contrasent.reproduce import verdict
from contrasent.reproduce.cells import number
from contrasent.reproduce.item import Item, times
from contrasent.reproduce.reading import find_recipes, scales
from contrasent.reproduce.recipe import PAPERS, Claim, Recipe, Row
from contrasent.reproduce.store import Store
from contrasent.reproduce.verdict import ABSENT, Arm, Gap, Verdict

Find = Callable[[str], Item]


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
    shelf = {recipe.name: Item(recipe, store, scale) for recipe in recipes}

    def find(name: str) -> Item:
        if name not in shelf:
            (recipe,) = find_recipes([name], recipes[0].folder)
            shelf[name] = Item(recipe, store, scale)
        return shelf[name]

    asked = list(shelf.values())
    records = {key: record for item in asked for key, record in item.records.items()}
    return {"items": [_told(item, find) for item in asked], "run": times(records)}


def _told(item: Item, find: Find) -> dict[str, Any]:
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
        "rows": [_row(item, row) for row in recipe.rows],
        "order": _orders(item),
        "claims": [_claim(item, claim, find) for claim in recipe.claims],
        "figure": drawn_from(recipe, item.scale, item.reports, item.arms),
        "listings": _listings(item),
        "run": item.times(),
    }


def _row(item: Item, row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "group": row.group,
        "kind": row.kind,
        "note": row.note,
        "source": row.source if row.kind == "quote" else "",
        "skipped": item.skipped(row),
        "facts": row.facts,
        "cells": {c: cell for c in item.recipe.columns if (cell := _cell(item, row, c))},
    }


def _cell(item: Item, row: Row, column: str) -> dict[str, Any]:
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
    if row.kind in ("train", "encoder", "blocked"):
        found = _verdict(item, row, column, arm)
        if found is not None:
            cell["verdict"] = found.to_json()
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
    bounds = arm.bounds() or (None, None)
    low, high = (None if b is None else b - expected.value for b in bounds)
    return {**_gap(Gap(arm.mean - expected.value, low, high)), "tolerance": expected.tolerance}


def _from_reference(item: Item, row: Row, column: str, arm: Arm) -> dict[str, Any]:
    """The row less the reference row: ours, and the document's."""
    reference = item.recipe.reference
    other = item.arms.get(column, {}).get(reference)
    if other is None or row.name == reference:
        return {}
    told = _gap(verdict.gap(other, arm))
    apart = _apart(item.recipe, row, column)
    return told if apart is None else {**told, "paper": round(apart, 6)}


def _gap(gap: Gap) -> dict[str, Any]:
    told: dict[str, Any] = {"ours": round(gap.mean, 4)}
    if gap.low is not None and gap.high is not None:
        told |= {"low": round(gap.low, 4), "high": round(gap.high, 4)}
    if gap.needed and not gap.side():
        told["needed"] = gap.needed
    return told


def _apart(recipe: Recipe, row: Row, column: str) -> float | None:
    """The published difference of a row from the reference row."""
    if not recipe.reference or row.name == recipe.reference:
        return None
    values = [r.expected.get(column) for r in (row, recipe.row(recipe.reference))]
    here, there = values
    return here.value - there.value if here is not None and there is not None else None


def _verdict(item: Item, row: Row, column: str, arm: Arm | None) -> Verdict | None:
    """At scale paper the value's, at scale lab that of the direction from the reference."""
    expected, form = row.expected.get(column), item.forms[column]
    if expected is None:
        return None
    if arm is None:
        return Verdict(ABSENT, "")
    if item.scale == "paper":
        return verdict.value(arm, expected.value, expected.tolerance, form=form["ours"])
    other = item.arms.get(column, {}).get(item.recipe.reference)
    apart = _apart(item.recipe, row, column)
    if other is None or apart is None:
        return None
    found = verdict.direction(verdict.gap(other, arm), apart, form=form["ours"])
    published = number(apart, form["paper"], signed=True)
    return replace(found, why=f"{found.why}; published {published}")


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


def _claim(item: Item, claim: Claim, find: Find) -> dict[str, Any]:
    """A claim with its verdict and the parts that it consists of."""
    parts: list[tuple[str, Verdict]] = []
    columns = item.recipe.columns
    for other in claim.rests_on:
        name, _, inner = other.partition("#")
        there = find(name)
        told = _claim(there, next(c for c in there.recipe.claims if c.name == inner), find)
        parts.append((f"{name}: {told['text']}", Verdict(**told["verdict"])))
    for column in claim.columns:
        where = f", {columns[column].title}" if len(claim.columns) > 1 else ""
        arms, form = item.arms.get(column, {}), item.forms[column]["ours"]
        if claim.sign:
            found = verdict.signed(arms.get(claim.row), claim.sign, form=form)
            parts.append((f"{claim.row} is {claim.sign}{where}", found))
        sign = 1.0 if columns[column].better == "higher" else -1.0
        for other in claim.than:
            found = Verdict(ABSENT, "")
            if claim.better in arms and other in arms:
                gap = verdict.gap(arms[other], arms[claim.better])
                found = verdict.direction(gap, sign, form=form)
            parts.append((f"{claim.better} against {other}{where}", found))
    whole = verdict.together([v for _, v in parts])
    return {
        "name": claim.name,
        "text": claim.text,
        "columns": [columns[c].title for c in claim.columns],
        "verdict": whole.to_json(),
        "parts": [{"text": text, **v.to_json()} for text, v in parts],
    }


def _listings(item: Item) -> dict[str, Any]:
    """What each row's model finds for each query; of the first seed."""
    found = {}
    for (row, _), reports in item.reports.items():
        first = next((r for r in reports.values() if "listing" in r.notes), None)
        if first is not None:
            found[row] = first.notes["listing"]
    return found
