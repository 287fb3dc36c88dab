"""What the stored results say: each item beside its document, as plain data.

Nothing is computed here but statistics: a report can be made again from a folder of results on a
machine that has neither the data nor a model.
"""

from collections.abc import Sequence
from pathlib import Path

from contrasent.reproduce import verdict
from contrasent.reproduce.allocation import needed
from contrasent.reproduce.deciding import Decided, published_difference
from contrasent.reproduce.entries import (
    Book,
    Cell,
    ClaimEntry,
    Difference,
    Effect,
    ItemEntry,
    Listing,
    OrderEntry,
    RowEntry,
)
from contrasent.reproduce.figures import drawn_from
from contrasent.reproduce.items import (
    EQUAL,
    NO_BETTER,
    NO_WORSE,
    Claim,
    Item,
    ScaleName,
    TableRow,
)
from contrasent.reproduce.reading import ItemFolder
from contrasent.reproduce.results import ItemResults, times, verdicts_on
from contrasent.reproduce.sequential import Sequential
from contrasent.reproduce.spread import Arm, Gap, difference, from_published
from contrasent.reproduce.verdict import Comparison


def book(items: Sequence[Item], home: Path, scale: ScaleName | None) -> Book:
    """Items beside their documents."""
    folder = ItemFolder(items[0].folder)
    found = verdicts_on(items, home, scale)
    records = {key: record for one, _ in found.values() for key, record in one.records.items()}
    return {
        "items": [_entry(*own, folder) for own in found.values()],
        "run": times(records),
    }


def _entry(found: ItemResults, decided: Decided, folder: ItemFolder) -> ItemEntry:
    item, manifest = found.item, found.manifest
    return {
        "name": item.name,
        "paper": item.paper,
        "title": item.title,
        "source": item.source,
        "kind": item.kind,
        "about": item.about,
        "scale": found.scale,
        "scale_title": folder.scales[found.scale].title,
        "scale_note": item.scale[found.scale].note,
        "base": manifest["base"] if manifest else "",
        "sequential": found.sequential,
        "changes": manifest.get("changes", {}) if manifest else {},
        "reference": item.reference,
        "also_source": item.also_source,
        "needs": list(item.needs),
        "columns": [
            {"name": c.name, "title": c.title, "better": c.better, "forms": found.forms[c.name]}
            for c in item.columns.values()
        ],
        "rows": [_row(found, row, decided) for row in item.rows],
        "order": _orders(found),
        "claims": [_claim(found, claim, decided) for claim in item.claims],
        "tests": decided.tests,
        "resolution": decided.columns,
        "figure": drawn_from(item, found.scale, found.reports, found.arms),
        "listings": _listings(found),
        "run": {"seeds": manifest["seeds"] if manifest else 0, **times(found.records)},
    }


def _row(found: ItemResults, row: TableRow, decided: Decided) -> RowEntry:
    cells = {column: _cell(found, row, column, decided) for column in found.item.columns}
    return {
        "name": row.name,
        "group": row.group,
        "kind": row.kind,
        "note": row.note,
        "source": row.source if row.kind == "quote" else "",
        "skipped": found.skipped(row),
        "facts": row.facts,
        "cells": {column: cell for column, cell in cells.items() if cell},
    }


def _cell(found: ItemResults, row: TableRow, column: str, decided: Decided) -> Cell:
    arm = found.arms.get(column, {}).get(row.name)
    expected = row.expected.get(column)
    cell: Cell = {}
    if expected is not None:
        cell = {"paper": expected.value, "source": expected.source}
    if column in row.also:
        cell["also"] = row.also[column]
    if arm is not None:
        cell |= _measured(arm)
        compare = _from_reference if found.scale == "lab" else _from_paper
        apart = compare(found, row, column, arm)
        if apart:
            cell["difference"] = apart
    if (row.name, column) in decided.cells:
        cell["verdict"] = decided.cells[row.name, column].to_json()
    return cell


def _measured(arm: Arm) -> Cell:
    cell: Cell = {
        "ours": round(arm.mean, 4),
        "values": [round(v, 4) for v in arm.values],
        "seeds": len(arm.values) if arm.seeded else 0,
    }
    spread, bounds = arm.spread(), arm.bounds()
    if spread is not None:
        cell["sd"] = round(spread, 4)
    if bounds is not None:
        cell["low"], cell["high"] = (round(v, 4) for v in bounds)
        cell["interval"] = "seeds" if arm.seeded else "items"
    return cell


def _from_paper(found: ItemResults, row: TableRow, column: str, arm: Arm) -> Difference:
    """Our value less the published one."""
    expected = row.expected.get(column)
    if expected is None:
        return {}
    gap = from_published(arm, expected.value, expected.sd, expected.seeds)
    return {**_gap(gap), "tolerance": expected.tolerance}


def _from_reference(found: ItemResults, row: TableRow, column: str, arm: Arm) -> Difference:
    """The row less the reference row: ours, and the document's."""
    reference = found.item.reference
    other = found.arms.get(column, {}).get(reference)
    if other is None or row.name == reference:
        return {}
    apart = published_difference(found.item, row, column)
    gap = _gap(difference(other, arm))
    return gap if apart is None else {**gap, "paper": round(apart, 6)}


def _gap(gap: Gap | Sequential) -> Difference:
    found: Difference = {"ours": round(gap.mean, 4)}
    bounds = gap.interval()
    if bounds is not None and gap.error:
        found["low"], found["high"] = (round(v, 4) for v in bounds)
    return found


def _orders(found: ItemResults) -> dict[str, OrderEntry]:
    orders = {}
    for column in found.item.columns:
        arms = found.arms.get(column, {})
        rows = [r for r in found.item.rows if column in r.expected and r.name in arms]
        published = [row.expected[column].value for row in rows]
        order = verdict.order(published, [arms[row.name].mean for row in rows])
        if order is not None:
            orders[column] = order
    return orders


def _claim(found: ItemResults, claim: Claim, decided: Decided) -> ClaimEntry:
    """A claim with its verdict, the parts that it consists of, and what it still needs."""
    parts = decided.claims[claim.name]
    entry: ClaimEntry = {
        "name": claim.name,
        "text": claim.text,
        "columns": [found.item.columns[c].title for c in claim.columns],
        "verdict": verdict.together([part for _, part in parts]).to_json(),
        "parts": [{"text": text, **part.to_json()} for text, part in parts],
    }
    for part, one in zip(entry["parts"], decided.compared[claim.name], strict=False):
        effect = _effect(one, points=found.item.columns[one.column].factor == 100)
        if effect is not None:
            part["effect"] = effect
    if found.sequential and entry["verdict"]["word"] == verdict.OPEN:
        more = needed(found, decided, claim.name)
        if more is not None:
            hours = sum(count * found.seconds(row) for row, count in more.items()) / 3600
            entry["needed"] = {"seeds": more, "hours": round(hours, 2)}
    return entry


def _effect(one: Comparison, *, points: bool) -> Effect | None:
    """A part's difference, turned so that more of it speaks for the statement."""
    if one.gap is None:
        return None
    sign = -one.sign if one.kind == NO_BETTER else one.sign
    bounds = one.gap.interval() if one.gap.error else None
    low, high = sorted(sign * end for end in bounds) if bounds else (None, None)
    return {
        "ours": round(sign * one.gap.mean, 4),
        "low": None if low is None else round(low, 4),
        "high": None if high is None else round(high, 4),
        "beyond": -(one.margin or 0.0) if one.kind in (NO_WORSE, NO_BETTER, EQUAL) else 0.0,
        "points": points,
    }


def _listings(found: ItemResults) -> dict[str, Listing]:
    """What each row's model finds for each query; of the first seed."""
    every = (((row, r) for r in own.values()) for (row, _), own in found.reports.items())
    first = (next((o for o in own if "listing" in o[1].notes), None) for own in every)
    return {one[0]: one[1].notes["listing"] for one in first if one is not None}
