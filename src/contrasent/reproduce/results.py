"""What is stored of one item: its manifest, reports and values."""

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contrasent.errors import DataError
from contrasent.report import Report, key_text
from contrasent.reproduce import cells, verdict
from contrasent.reproduce.deciding import Decided, decide
from contrasent.reproduce.entries import Forms, Times
from contrasent.reproduce.items import Column, Item, ScaleName, TableRow
from contrasent.reproduce.reading import ItemFolder
from contrasent.reproduce.spread import Arm, with_noise
from contrasent.reproduce.store import PlannedRow, Store, planned_seeds
from contrasent.reproduce.verdict import Verdict

ORDER = ("batch", "accumulate", "buckets", "steps", "epochs")
"""Settings that rows must share to see their sentences in the same order."""

_PATH = r"(?:/[\w.@+-]+)+/([\w.@+-]+)"
"""Of a path on this machine only the last part is shown."""


class ItemResults:
    """An item's manifest, reports and values."""

    def __init__(self, item: Item, store: Store, scale: ScaleName | None) -> None:
        self.item, self.store = item, store
        there = store.scales(item.name)
        self.scale: ScaleName = scale or ("paper" if "paper" in there else "lab")
        self.manifest = store.manifest(item.name, self.scale)
        rows = self.manifest["rows"] if self.manifest else []
        self.sequential = bool(self.manifest and self.manifest.get("sequential"))
        self.planned = {row["name"]: row for row in rows}
        self.records: dict[str, Mapping[str, Any]] = {}
        self.reports: dict[tuple[str, str], dict[str, Report]] = {}
        self.draws: dict[tuple[str, str], Mapping[str, str]] = {}
        for row in item.rows:
            self._read(row)
        self.arms: dict[str, dict[str, Arm]] = {}
        for column in item.columns.values():
            arms = {row.name: arm for row in item.rows if (arm := self._arm(row, column))}
            if arms:
                self.arms[column.name] = with_noise(arms)
        self.forms = {name: self._forms(column) for name, column in item.columns.items()}

    def _read(self, row: TableRow) -> None:
        planned = self.planned.get(row.name)
        for name, about in planned["measured"].items() if planned else ():
            found = self.reports[row.name, name] = {}
            for seed, key in about["units"].items():
                unit = self.store.measurement(key)
                if unit is not None:
                    found[seed] = Report.from_json(unit["report"])
                    self.draws[row.name, name] = unit.get("draws", {})
                    self.records[key] = unit
                    record = self.store.record(unit["model"])
                    if record is not None:
                        self.records[unit["model"]] = record

    def _arm(self, row: TableRow, column: Column) -> Arm | None:
        values: dict[int, float] = {}
        low = high = None
        draws: tuple[float, ...] = ()
        for seed, report in self.reports.get((row.name, column.evaluation), {}).items():
            try:
                found = report.one(**column.select)
            except DataError:
                continue
            values[int(seed)] = column.factor * found.value
            if found.low is not None and found.high is not None:
                low, high = column.factor * found.low, column.factor * found.high
            if not row.seeded:
                stored = self.draws[row.name, column.evaluation].get(key_text(found.key), "")
                draws = tuple(column.factor * float(draw) for draw in stored.split())
        seeds = tuple(sorted(values))
        own = tuple(values[seed] for seed in seeds)
        one = Arm(
            own,
            row.seeded,
            low,
            high,
            seeds=seeds,
            sequential=self.sequential,
            order=self._order(row.name, column.evaluation),
            draws=draws,
        )
        return one if values else None

    def _order(self, row: str, evaluation: str) -> Hashable:
        """What the order of a row's training sentences depends on, but for the seed."""
        planned = self.planned.get(row)
        units = planned["measured"].get(evaluation, {"units": {}})["units"] if planned else {}
        known = (self.records[key]["told"] for key in units.values() if key in self.records)
        told: dict[str, Any] = next(known, {})
        if "corpus" not in told:
            return None
        settings = told.get("settings", {})
        return json.dumps([told["corpus"], *(settings.get(name) for name in ORDER)])

    def awaited(self) -> set[tuple[str, str]]:
        """The columns and rows that are to be run, where seeds are added as needed."""
        measured = {name: row["measured"] for name, row in self.planned.items()}
        return {
            (column.name, name)
            for name, about in measured.items()
            if self.sequential
            for column in self.item.columns.values()
            if about.get(column.evaluation, {"units": {}})["units"]
        }

    @property
    def counts(self) -> dict[str, int]:
        """How many seeds are planned of each row."""
        return {name: planned_seeds(row) for name, row in self.planned.items()}

    def model(self, row: str) -> str:
        """The key of a row's first model; rows of one key share those of all seeds."""
        models = self.planned[row]["models"].values()
        return next((own["0"] for own in models if "0" in own), f"{self.item.name} {row}")

    def seconds(self, row: str) -> float:
        """Mean time of a seed of a row, its training and all that is measured on it."""
        planned = self.planned.get(row)
        models = (
            {m for own in planned["models"].values() for m in own.values()} if planned else set()
        )
        own = {
            key: record
            for key, record in self.records.items()
            if key in models or record.get("model") in models
        }
        made = {record["model"] for record in own.values() if "model" in record}
        return _seconds(own) / len(made) if made else 0.0

    def skipped(self, row: TableRow) -> str:
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
        reasons = [planned.get("skipped", "")]
        if not reasons[0]:
            reasons = [*self._unmeasured(planned), *self._lacking(row)]
        return "; ".join(dict.fromkeys(re.sub(_PATH, r"\1", reason) for reason in reasons))

    def _unmeasured(self, planned: PlannedRow) -> Iterator[str]:
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
            yield from (f"{name}: {text}" for name, text in left.items())

    def _lacking(self, row: TableRow) -> Iterator[str]:
        """What a row's measurements do not hold."""
        for column in self.item.columns.values():
            there = self.reports.get((row.name, column.evaluation))
            if there and row.name not in self.arms.get(column.name, {}):
                wanted = ", ".join(f"{k} {v}" for k, v in column.select.items())
                yield f"{column.evaluation}: what was measured has no {wanted}"
        here = row.evaluations[self.scale]
        for scale, names in row.evaluations.items():
            yield from (f"{name}: belongs to --scale {scale}" for name in names if name not in here)

    def _forms(self, column: Column) -> Forms:
        """How the numbers of a column are written."""
        rows = self.item.rows
        published = [r.expected[column.name].value for r in rows if column.name in r.expected]
        published += [r.also[column.name] for r in rows if column.name in r.also]
        ours = [arm.mean for arm in self.arms.get(column.name, {}).values()]
        return cells.forms(published, ours, points=column.factor == 100)


Found = tuple[ItemResults, Decided]


def verdicts_on(items: Sequence[Item], home: Path, scale: ScaleName | None) -> dict[str, Found]:
    """What is stored of items, and the verdicts on it, by their names."""
    store, folder = Store(home), ItemFolder(items[0].folder)
    wanted = {item.name: ItemResults(item, store, scale) for item in items}
    shelf: dict[str, Found] = {}

    def find(name: str) -> Found:
        if name not in shelf:
            found = wanted.get(name) or ItemResults(folder.find([name])[0], store, scale)
            shelf[name] = found, _decided(found, find)
        return shelf[name]

    return {name: find(name) for name in wanted}


def _decided(found: ItemResults, find: Callable[[str], Found]) -> Decided:
    """The verdicts of an item, and before them those of the statements that its own rest on."""
    rested: dict[str, tuple[str, Verdict]] = {}
    for place in dict.fromkeys(place for c in found.item.claims for place in c.rests_on):
        name, _, inner = place.partition("#")
        there, decided = find(name)
        text = next(c.text for c in there.item.claims if c.name == inner)
        parts = [part for _, part in decided.claims[inner]]
        rested[place] = f"{name}: {text}", verdict.together(parts)
    awaited = found.awaited()
    return decide(found.item, found.scale, found.arms, found.forms, rested, awaited)


def times(records: Mapping[str, Mapping[str, Any]]) -> Times:
    """Seconds, machines and versions of stored measurements and training runs."""

    def distinct(key: str) -> list[Any]:
        return [r[key] for r in records.values() if key in r]

    versions = [", ".join(f"{k} {v}" for k, v in own.items()) for own in distinct("versions")]
    return {
        "seconds": round(_seconds(records), 1),
        "trained": len(distinct("steps")),
        "machines": sorted({m.replace(", 1 threads", ", 1 thread") for m in distinct("machine")}),
        "precisions": sorted(set(distinct("precision"))),
        "codes": sorted(set(distinct("code"))),
        "versions": sorted(set(versions)),
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
