"""One item of the book: its recipe, and what is stored of it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from contrasent.errors import DataError
from contrasent.report import Report
from contrasent.reproduce import cells
from contrasent.reproduce.recipe import Column, Recipe, Row
from contrasent.reproduce.spread import Arm, with_noise
from contrasent.reproduce.store import Store

_PATH = r"(?:/[\w.@+-]+)+/([\w.@+-]+)"
"""Of a path on this machine only the last part is told."""


class Item:
    """An item's recipe, manifest, reports and values.

    Args:
        recipe: what it should be.
        store: what there is.
        scale: "lab" or "paper"; None for the one that it was run at, "paper" if both.
    """

    def __init__(self, recipe: Recipe, store: Store, scale: str | None) -> None:
        self.recipe, self.store = recipe, store
        there = store.scales(recipe.name)
        self.scale = scale or next((s for s in ("paper", "lab") if s in there), "lab")
        self.manifest = store.manifest(recipe.name, self.scale)
        rows = self.manifest["rows"] if self.manifest else []
        self.planned = {row["name"]: row for row in rows}
        self.records: dict[str, dict[str, Any]] = {}
        self.arms: dict[str, dict[str, Arm]] = {}
        self.reports: dict[tuple[str, str], dict[str, Report]] = {}
        for row in recipe.rows:
            self._read(row)
        self.arms = {column: with_noise(arms) for column, arms in self.arms.items()}
        self.forms = {name: self._forms(column) for name, column in recipe.columns.items()}

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
        reasons = dict.fromkeys([*self._left(planned), *self._lacking(row)])
        return "; ".join(re.sub(_PATH, r"\1", reason) for reason in reasons)

    def _left(self, planned: dict[str, Any]) -> Iterator[str]:
        """Why measurements of a row are not stored."""
        left: dict[str, str] = {}
        for name, about in planned["measured"].items():
            if about.get("skipped"):
                yield f"{name}: {about['skipped']}"
            missing = [seed for seed, key in about["units"].items() if not self.store.has(key)]
            for seed in missing:
                key = planned["models"].get(name, {}).get(seed, "")
                reason = (self.store.record(key) or {}).get("failed") or self.store.skipped(key)
                if reason:
                    yield reason
                else:
                    left[name] = f"{len(missing)} of {len(about['units'])} seeds are still to run"
        if len(left) == len(planned["measured"]) and len(set(left.values())) == 1:
            yield from set(left.values())
        else:
            yield from (f"{name}: {said}" for name, said in left.items())

    def _lacking(self, row: Row) -> Iterator[str]:
        """What a row's measurements do not hold."""
        for column in self.recipe.columns.values():
            there = self.reports.get((row.name, column.evaluation))
            if there and row.name not in self.arms.get(column.name, {}):
                wanted = ", ".join(f"{k} {v}" for k, v in column.select.items())
                yield f"{column.evaluation}: what was measured has no {wanted}"
        for scale, names in row.evaluations.items():
            for name in names:
                if name not in row.evaluations[self.scale]:
                    yield f"{name}: belongs to --scale {scale}"

    def _forms(self, column: Column) -> dict[str, str]:
        """How the numbers of a column are written."""
        rows = self.recipe.rows
        published = [r.expected[column.name].value for r in rows if column.name in r.expected]
        published += [r.also[column.name] for r in rows if column.name in r.also]
        ours = [arm.mean for arm in self.arms.get(column.name, {}).values()]
        return cells.forms(published, ours, points=column.factor == 100)

    def times(self) -> dict[str, Any]:
        """Seconds, machines and versions of what is stored."""
        seeds = self.manifest["seeds"] if self.manifest else 0
        return {"seeds": seeds, **times(self.records)}


def times(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Seconds, machines and versions of stored measurements and training runs.

    Args:
        records: by key; those of measurements name the model that they are of.
    """
    every = list(records.values())
    return {
        "seconds": round(_seconds(records), 1),
        "trained": sum("steps" in r for r in every),
        "machines": sorted({_machine(r["machine"]) for r in every if "machine" in r}),
        "precisions": sorted({r["precision"] for r in every if "precision" in r}),
        "codes": sorted({r["code"] for r in every if "code" in r}),
        "versions": sorted(
            {
                ", ".join(f"{k} {v}" for k, v in r["versions"].items())
                for r in every
                if "versions" in r
            }
        ),
    }


def _seconds(records: Mapping[str, Mapping[str, Any]]) -> float:
    """Time of training runs and measurements, each counted once.

    Measurements that say "seconds" were stored with the training that came before them included.
    """
    total = 0.0
    whole: dict[str, float] = {}
    for record in records.values():
        if "model" in record:
            total += float(record.get("measured_in", 0.0))
            whole.setdefault(record["model"], 0.0)
            whole[record["model"]] += float(record.get("seconds", 0.0))
    for model, seconds in whole.items():
        total += max(seconds, float(records.get(model, {}).get("seconds", 0.0)))
    return total


def _machine(told: str) -> str:
    return told.replace(", 1 threads", ", 1 thread")
