"""What the stored results say: each item beside its document, as plain data and as text.

Nothing is computed here but statistics: a report can be made again from a folder of results on a
machine that has neither the data nor a model.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from contrasent.errors import DataError
from contrasent.report import Report
from contrasent.reproduce import verdict
from contrasent.reproduce.reading import find_recipes, scales
from contrasent.reproduce.recipe import PAPERS, Claim, Column, Recipe, Row
from contrasent.reproduce.store import Store
from contrasent.reproduce.verdict import ABSENT, Arm, Verdict

_PATH = r"(?:/[\w.@+-]+)+/([\w.@+-]+)"
"""Of a path on this machine only the last part is told."""


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
    shelf: dict[str, _Item] = {}

    def find(name: str) -> "_Item":
        if name not in shelf:
            (recipe,) = find_recipes([name], recipes[0].folder)
            shelf[name] = _Item(recipe, store, scale)
        return shelf[name]

    for recipe in recipes:
        shelf[recipe.name] = _Item(recipe, store, scale)
    items = [shelf[recipe.name].told(find) for recipe in recipes]
    return {"items": items, "run": _run(items)}


class _Item:
    """One item, its manifest, and its values."""

    def __init__(self, recipe: Recipe, store: Store, scale: str | None) -> None:
        self.recipe, self.store = recipe, store
        there = store.scales(recipe.name)
        self.scale = scale or next((s for s in ("paper", "lab") if s in there), "lab")
        self.manifest = store.manifest(recipe.name, self.scale)
        rows = self.manifest["rows"] if self.manifest else []
        self.planned = {row["name"]: row for row in rows}
        self.records: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, str] = {}
        self.arms: dict[str, dict[str, Arm]] = {}
        self.reports: dict[tuple[str, str], dict[str, Report]] = {}
        for row in recipe.rows:
            self._read(row)

    def _read(self, row: Row) -> None:
        planned = self.planned.get(row.name, {})
        for name, about in planned.get("measured", {}).items():
            found = {}
            for seed, key in about["units"].items():
                unit = self.store.unit(key)
                if unit is not None:
                    found[seed] = Report.from_json(unit["report"])
                    self.records[key] = unit
                    record = self.store.record(unit["model"])
                    if record is not None:
                        self.records[unit["model"]] = record
            self.reports[row.name, name] = found
        for column in self.recipe.columns.values():
            arm = self._arm(row, column)
            if arm is not None:
                self.arms.setdefault(column.name, {})[row.name] = arm

    def _arm(self, row: Row, column: Column) -> Arm | None:
        values, low, high = [], None, None
        for report in self.reports.get((row.name, column.evaluation), {}).values():
            try:
                found = report.one(**column.select)
            except DataError:
                continue
            values.append(column.factor * found.value)
            if found.low is not None and found.high is not None:
                low, high = column.factor * found.low, column.factor * found.high
        return Arm(tuple(values), row.seeded, low, high) if values else None

    def skipped(self, row: Row) -> str:
        """Why a row has no values, or not all of them; "" if it has."""
        if row.kind == "blocked":
            return row.blocked
        if row.kind in ("quote", "facts"):
            return ""
        if self.manifest is None:
            return "was not run"
        planned = self.planned.get(row.name)
        if planned is None:
            return "is newer than the results"
        if planned.get("skipped"):
            return re.sub(_PATH, r"\1", str(planned["skipped"]))
        reasons: dict[str, None] = {}
        for name, about in planned["measured"].items():
            if about.get("skipped"):
                reasons.setdefault(f"{name}: {about['skipped']}")
            missing = [seed for seed, key in about["units"].items() if not self.store.has(key)]
            for seed in missing:
                key = planned["models"].get(name, {}).get(seed, "")
                record = self.store.record(key) or {}
                reason = record.get("failed") or self.store.skipped(key)
                left = f"{len(missing)} of {len(about['units'])} seeds are still to run"
                reasons.setdefault(reason or left)
        return "; ".join(re.sub(_PATH, r"\1", reason) for reason in reasons)

    def told(self, find: "Callable[[str], _Item]") -> dict[str, Any]:
        """The item as plain data."""
        recipe = self.recipe
        columns = [
            {"name": c.name, "title": c.title, "better": c.better} for c in recipe.columns.values()
        ]
        return {
            "name": recipe.name,
            "paper": PAPERS[recipe.paper],
            "title": recipe.title,
            "source": recipe.source,
            "kind": recipe.kind,
            "about": recipe.about,
            "scale": self.scale,
            "scale_title": scales(recipe.folder)[self.scale].title,
            "scale_note": recipe.scale[self.scale].note,
            "base": self.manifest["base"] if self.manifest else "",
            "changes": self.manifest.get("changes", {}) if self.manifest else {},
            "reference": recipe.reference,
            "also_source": recipe.also_source,
            "needs": list(recipe.needs),
            "columns": columns,
            "rows": [self._row(row) for row in recipe.rows],
            "order": self._orders(),
            "claims": [self.claim(claim, find) for claim in recipe.claims],
            "figure": self._figure(),
            "listings": self._listings(),
            "run": self._times(),
        }

    def _row(self, row: Row) -> dict[str, Any]:
        return {
            "name": row.name,
            "group": row.group,
            "kind": row.kind,
            "note": row.note,
            "source": row.source if row.kind == "quote" else "",
            "skipped": self.skipped(row),
            "facts": row.facts,
            "cells": {c: cell for c in self.recipe.columns if (cell := self._cell(row, c))},
        }

    def _cell(self, row: Row, column: str) -> dict[str, Any]:
        arm = self.arms.get(column, {}).get(row.name)
        expected = row.expected.get(column)
        cell: dict[str, Any] = {}
        if expected is not None:
            cell["paper"] = expected.value
            cell["tolerance"] = expected.tolerance
            cell["source"] = expected.source
        if column in row.also:
            cell["also"] = row.also[column]
        if arm is not None:
            bounds = arm.interval()
            cell["ours"] = round(arm.mean, 4)
            cell["values"] = [round(v, 4) for v in arm.values]
            cell["seeds"] = len(arm.values) if arm.seeded else 0
            if bounds is not None:
                cell["low"], cell["high"] = (round(v, 4) for v in bounds)
            if expected is not None and self.scale == "paper":
                cell["difference"] = round(arm.mean - expected.value, 4)
        found = self._verdict(row, column, arm)
        if found is not None and row.kind not in ("quote", "facts"):
            cell["verdict"] = found.to_json()
        return cell

    def _verdict(self, row: Row, column: str, arm: Arm | None) -> Verdict | None:
        """At scale paper the value's, at scale lab that of the direction from the reference."""
        expected = row.expected.get(column)
        if expected is None:
            return None
        if arm is None:
            return Verdict(ABSENT, "")
        if self.scale == "paper":
            return verdict.value(arm, expected.value, expected.tolerance)
        if not self.recipe.reference or row.name == self.recipe.reference:
            return None
        reference = self.recipe.row(self.recipe.reference)
        other = self.arms.get(column, {}).get(reference.name)
        published = reference.expected.get(column)
        if other is None or published is None:
            return None
        apart = expected.value - published.value
        found = verdict.direction(verdict.gap(other, arm), apart)
        return replace(found, why=f"{found.why}; published {apart:+.3g}")

    def _orders(self) -> dict[str, Any]:
        found = {}
        for column in self.recipe.columns:
            pairs = [
                (row.expected[column].value, arm.mean)
                for row in self.recipe.rows
                if column in row.expected
                and (arm := self.arms.get(column, {}).get(row.name)) is not None
            ]
            order = verdict.order([p for p, _ in pairs], [o for _, o in pairs])
            if order is not None:
                found[column] = order
        return found

    def claim(self, claim: Claim, find: "Callable[[str], _Item]") -> dict[str, Any]:
        """A claim with its verdict and the parts that it consists of."""
        parts: list[tuple[str, Verdict]] = []
        if claim.rests_on:
            for other in claim.rests_on:
                item, _, name = other.partition("#")
                there = find(item)
                inner = next(c for c in there.recipe.claims if c.name == name)
                told = there.claim(inner, find)
                parts.append((f"{item}: {inner.text}", Verdict(**told["verdict"])))
        elif claim.sign:
            for column in claim.columns:
                arm = self.arms.get(column, {}).get(claim.row)
                said = f"{claim.row} is {claim.sign}{self._where(claim, column)}"
                parts.append((said, verdict.signed(arm, claim.sign)))
        else:
            for column, other in product(claim.columns, claim.than):
                said = f"{claim.better} against {other}{self._where(claim, column)}"
                parts.append((said, self._better(claim.better, other, column)))
        whole = verdict.together([v for _, v in parts])
        return {
            "name": claim.name,
            "text": claim.text,
            "columns": [self.recipe.columns[c].title for c in claim.columns],
            "verdict": whole.to_json(),
            "parts": [{"text": text, **v.to_json()} for text, v in parts],
        }

    def _where(self, claim: Claim, column: str) -> str:
        return f", {self.recipe.columns[column].title}" if len(claim.columns) > 1 else ""

    def _better(self, better: str, other: str, column: str) -> Verdict:
        arms = self.arms.get(column, {})
        if better not in arms or other not in arms:
            return Verdict(ABSENT, "")
        sign = 1.0 if self.recipe.columns[column].better == "higher" else -1.0
        return verdict.direction(verdict.gap(arms[other], arms[better]), sign)

    def _figure(self) -> dict[str, Any]:
        """What the item's figure is drawn from."""
        from contrasent.reproduce.figures import drawn_from

        return drawn_from(self.recipe, self.reports, self.arms)

    def _listings(self) -> dict[str, Any]:
        """What each row's model finds for each query; of the first seed."""
        found = {}
        for (row, _), reports in self.reports.items():
            first = next((r for r in reports.values() if "listing" in r.notes), None)
            if first is not None:
                found[row] = first.notes["listing"]
        return found

    def _times(self) -> dict[str, Any]:
        """Seconds, machines and versions of what is stored."""
        records = list(self.records.values())
        return {
            "seeds": self.manifest["seeds"] if self.manifest else 0,
            "seconds": round(sum(float(r.get("seconds", 0.0)) for r in records), 1),
            "trained": sum("steps" in r for r in records),
            "machines": sorted({r["machine"] for r in records if "machine" in r}),
            "precisions": sorted({r["precision"] for r in records if "precision" in r}),
            "codes": sorted({r["code"] for r in records if "code" in r}),
            "versions": sorted(
                {
                    ", ".join(f"{k} {v}" for k, v in r["versions"].items())
                    for r in records
                    if "versions" in r
                }
            ),
        }


def _run(items: list[dict[str, Any]]) -> dict[str, Any]:
    every = [item["run"] for item in items]
    return {
        "seconds": round(sum(r["seconds"] for r in every), 1),
        "machines": sorted({m for r in every for m in r["machines"]}),
        "precisions": sorted({p for r in every for p in r["precisions"]}),
        "versions": sorted({v for r in every for v in r["versions"]}),
        "codes": sorted({c for r in every for c in r["codes"]}),
    }
