"""From stored results to a report as plain data: values of rows, and verdicts in numbers."""

import csv
import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from statistics import fmean
from typing import Any

from contrasent.errors import InputError
from contrasent.evaluate.transfer import SOLVERS
from contrasent.report import Report, key_text, read_reports
from contrasent.report import Row as ReportRow
from contrasent.reproduce import console, tables
from contrasent.reproduce import table_verdicts as verdicts
from contrasent.reproduce.figures import figure_data
from contrasent.reproduce.store import Json, ResultStore
from contrasent.reproduce.table_verdicts import SeedScores, TableVerdicts, Verdict, bounds
from contrasent.reproduce.tables import Claim, Item, ItemFolder, Row, ScaleName, TableColumn
from contrasent.stats.seeds import EffectEstimate

ORDER = ("batch_size", "gradient_accumulation_steps", "buckets", "max_steps", "num_train_epochs")
"""Settings that rows must share to see their sentences in the same order."""
FORMS = {"form", "geometry_form", "retrieval_form", "bias_form"}  # notes on the data of a suite

_PATH = r"(?:/[\w.@+-]+)+/([\w.@+-]+)"  # only the last part of a local path is shown


class ItemResults:
    """An item's manifest, reports and values."""

    def __init__(self, item: Item, store: ResultStore, scale: ScaleName | None) -> None:
        self.item, self.store = item, store
        self.scale: ScaleName = scale or ("paper" if "paper" in store.scales(item.name) else "lab")
        self.manifest = store.manifest(item.name, self.scale) or {}
        self.planned: dict[str, Json] = {row["name"]: row for row in self.manifest.get("rows", ())}
        self.records: dict[str, Json] = {}  # of measurements and training runs, by their keys
        # by row and evaluation: the measurements by seed, and their reports
        self.units: dict[tuple[str, str], dict[int, Json]] = {}
        self.reports: dict[tuple[str, str], dict[int, Report]] = {}
        for row in item.rows:
            for name, about in self.planned.get(row.name, {}).get("measured", {}).items():
                units = self.units[row.name, name] = {}
                for seed, key in about["units"].items():
                    if (unit := store.read("units", key)) is None:
                        continue
                    units[int(seed)] = self.records[key] = unit
                    if (record := store.read("units", f"train-{unit['model']}")) is not None:
                        self.records[unit["model"]] = record
                reports = {seed: Report.from_json(unit["report"]) for seed, unit in units.items()}
                self.reports[row.name, name] = reports
        self.scores: dict[str, dict[str, SeedScores]] = {}
        for column in item.columns.values():
            scores_of = {row.name: self._scores(row, column) for row in item.rows}
            if known := {row: scores for row, scores in scores_of.items() if scores}:
                self.scores[column.name] = known
        for row in item.rows:
            self._derive(row)
        self.forms: dict[str, dict[str, str]] = {}  # the number formats of each column
        for name, column in item.columns.items():
            published = [row.expected[name].value for row in item.rows if name in row.expected]
            ours = [scores.mean for scores in self.scores.get(name, {}).values()]
            self.forms[name] = console.forms(published, ours, points=column.factor == 100)

    def _scores(self, row: Row, column: TableColumn) -> SeedScores | None:
        place, factor = (row.name, column.evaluation), column.factor
        found: dict[int, ReportRow] = {}
        for seed, report in self.reports.get(place, {}).items():
            rows = report.select(**column.select).rows
            if len(rows) == 1:
                found[seed] = rows[0]
        if not found:
            return None
        seeds, last = tuple(sorted(found)), [*found.values()][-1]
        over_items = None
        if last.low is not None and last.high is not None:
            over_items = factor * last.low, factor * last.high
        values = tuple(factor * found[seed].value for seed in seeds)
        # The mean of the runs moves by the mean of their moves.
        drawn_by = {seed: self.units[place][seed].get("draws", {}) for seed in seeds}
        by_run = [drawn_by[seed].get(key_text(found[seed].key), "").split() for seed in seeds]
        alike = len({len(run) for run in by_run}) == 1
        moves = zip(*by_run, strict=True) if alike else ()
        draws = tuple(factor * fmean(map(float, drawn)) for drawn in moves)
        return SeedScores(values, row.seeded, seeds, over_items, draws, self._order(place))

    def _derive(self, row: Row) -> None:
        """The values of a row that is made of others, where all of these have some."""
        for column in self.item.columns.values():
            about = [self.scores.get(name, {}) for name in (column.front or (column.name,))]
            rows = row.front if column.front else row.tuned
            if not rows or not all(name in scores for name in rows for scores in about):
                continue
            if column.front:
                signs = [self.item.columns[name].sign for name in column.front]
                of_rows = [[scores[name].by_seed() for scores in about] for name in rows]
                derived = verdicts.on_one_front(of_rows, signs)
            else:
                derived = verdicts.tuned(
                    [about[0][name] for name in rows], column.better == "higher"
                )
            if derived is not None:
                self.scores.setdefault(column.name, {})[row.name] = derived

    def _order(self, place: tuple[str, str]) -> Hashable:
        """All that determines the order of a row's training sentences, except the seed."""
        record = next(iter(self.units[place].values()))
        if "corpus" not in record:
            return None
        settings = [record["settings"].get(name) for name in ORDER]
        # Rows without a following sentence are left out of a run that reads it.
        chosen = record.get("parameters", {})
        follows = chosen.get("view") == "next_sentence" or chosen.get("target", "same") != "same"
        corpus = record["corpus"]
        return json.dumps([corpus["digest"], corpus["documents"], follows, *settings])

    def share(self, claim: Claim) -> float | None:
        """The largest share of a statement's term in its rows; None if some row may have more."""
        # The training runs behind the rows that it names.
        rows = {claim.subject, claim.row, *claim.than} & self.planned.keys()
        measured = [about for row in rows for about in self.planned[row]["measured"].values()]
        units = {unit for about in measured for unit in about["units"].values()}
        models = {self.records[unit]["model"] for unit in units & self.records.keys()}
        trained = [self.records[model] for model in models & self.records.keys()]
        # The largest share logged in any of them; a run without a log may have had more.
        lines = [line for record in trained for line in record.get("shares", ())]
        largest = max((line[claim.term] for line in lines if claim.term in line), default=None)
        known = all("shares" in record for record in trained)
        return largest if known or (largest or 0.0) >= verdicts.INERT_SHARE else None

    def verdicts(self) -> TableVerdicts:
        """The verdicts on its statements and values."""
        shares = {claim.name: self.share(claim) for claim in self.item.claims}
        return verdicts.decide(self.item, self.scale, self.scores, shares)

    def skipped(self, row: Row) -> str:
        """Why a row lacks values; "" if it has them all."""
        if row.kind in ("blocked", "quote", "facts"):
            return row.blocked
        if row.kind == "derived":  # of rows that say themselves what they lack
            here = self.scale in row.scales
            return "" if here else f"belongs to --scale {' or '.join(row.scales)}"
        if not self.manifest:
            return "was not run"
        if row.name not in self.planned:
            return "is newer than the results"
        planned = self.planned[row.name]
        left = [*self._unmeasured(planned), *self._lacking(row)]
        reasons = [planned["skipped"]] if planned.get("skipped") else left
        return "; ".join(dict.fromkeys(re.sub(_PATH, r"\1", reason) for reason in reasons))

    def _unmeasured(self, planned: Json) -> Iterator[str]:
        """Why measurements of a row are not stored."""
        left: dict[str, str] = {}
        for name, about in planned["measured"].items():
            if about.get("skipped"):
                yield f"{name}: {about['skipped']}"
            missing = [seed for seed, key in about["units"].items() if not self.store.has(key)]
            for seed in missing:
                key = planned["models"].get(name, {}).get(seed, "")
                record = self.store.read("units", f"train-{key}") or {}
                skipped = self.store.read("skipped", key) or {}
                if reason := record.get("failed") or skipped.get("reason"):
                    yield reason
                else:
                    left[name] = f"{len(missing)} of {len(about['units'])} seeds are still to run"
        alike = len(left) == len(planned["measured"]) and len(set(left.values())) == 1
        if alike:
            yield from set(left.values())
        else:
            yield from (f"{name}: {text}" for name, text in left.items())

    def _lacking(self, row: Row) -> Iterator[str]:
        """The columns missing from a row's measurements."""
        for column in self.item.columns.values():
            there = self.reports.get((row.name, column.evaluation))
            if there and row.name not in self.scores.get(column.name, {}):
                wanted = ", ".join(f"{k} {v}" for k, v in column.select.items())
                yield f"{column.evaluation}: the results have no {wanted}"
        here = row.at(self.scale).evaluations
        for scale in tables.SCALES:
            names = row.at(scale).evaluations
            yield from (f"{name}: belongs to --scale {scale}" for name in names if name not in here)

    def remarks(self) -> Iterator[str]:
        """A line about the rows that the item says now to run in another way, if there are any."""
        changed = [
            row.name
            for row in self.item.rows
            if (then := self.planned.get(row.name, {}).get("recipe"))
            and then != tables.recipe_digest(self.item, row, self.scale)
        ]
        if changed:
            yield f"{'; '.join(changed)}: run with another recipe than the item has now"


def book(items: Sequence[Item], home: Path, scale: ScaleName | None) -> Json:
    """A report of items, from their stored results alone: no data, no model, only statistics."""
    store = ResultStore(home)
    every = [ItemResults(item, store, scale) for item in items]
    records = {key: record for found in every for key, record in found.records.items()}
    return {"items": [_entry(found) for found in every], "run": times(records)}


def stored_book(home: Path) -> Json:
    """A report of the package's items that have stored results in a folder."""
    return book([item for item in ItemFolder().all() if is_stored(item.name, home)], home, None)


def is_stored(item: str, home: Path) -> bool:
    """Whether a folder has results of an item, at any scale."""
    return bool(ResultStore(home).scales(item))


def times(records: Mapping[str, Json]) -> Json:
    """Seconds, machines and versions of stored measurements and training runs."""

    def values(key: str) -> list[Any]:
        return [r[key] for r in records.values() if key in r]

    # Each run and each measurement once, however many tables share it.
    total = sum(values("measured_in")) + sum(values("seconds"))
    versions = {", ".join(f"{k} {v}" for k, v in entry.items()) for entry in values("versions")}
    return {
        "seconds": round(float(total), 1),
        "trained": len(values("steps")),
        "machines": sorted(set(values("machine"))),
        "precisions": sorted(set(values("precision"))),
        "codes": sorted(set(values("code"))),
        "versions": sorted(versions),
    }


def add_row(made: Json, items: Sequence[Item], path: Path) -> None:
    """Add the scores of a file to every table with a column for one of them.

    A report of ``evaluate --json-file`` is a row for each model. A table with a header
    ``task,value`` names columns, or tasks that one column alone has, and gives values in the
    table's units.
    """
    fitting = False
    for name, scores in _scores_in(path).items():
        for item, entry in zip(items, made["items"], strict=True):
            cells = {c.name: _own_cell(item, entry, c, scores) for c in item.columns.values()}
            if any(cells.values()):
                row = Row(name=name or path.stem, quote=True, source=path.name)
                entry["rows"].append(_row(row, "", cells))
                fitting = True
    if not fitting:
        known = (
            " ".join(_wanted(item, entry["scale"], column).values())
            if path.suffix == ".json"
            else _names(item, column)[-1]
            for item, entry in zip(items, made["items"], strict=True)
            for column in item.columns.values()
        )
        names = ", ".join(filter(None, dict.fromkeys(known)))
        raise InputError(path, f"has no score for a column of these tables: {names}")


def _scores_in(path: Path) -> dict[str, Report | dict[str, float]]:
    """The reports of a file by model, or the values of a table by task."""
    if path.suffix == ".json":
        return dict(read_reports(path))
    try:
        head, *rows = [*csv.reader(path.read_text("utf-8-sig").splitlines())] or [[]]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, f"cannot be read ({error})") from error
    if [cell.strip() for cell in head] != ["task", "value"]:
        problem = "is neither from evaluate --json-file nor a table with the header task,value"
        raise InputError(path, problem, line=1)
    values: dict[str, float] = {}
    for line, row in enumerate(rows, 2):
        task, text = (cell.strip() for cell in (row if len(row) == 2 else (",".join(row), "")))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or task in values:
            problem = "appears twice" if task in values else f"is not a number: {text!r}"
            raise InputError(path, f"{task!r} {problem}", line=line)
        values[task] = value
    return {"": values}


def _wanted(item: Item, scale: ScaleName, column: TableColumn) -> dict[str, str]:
    """The fields of the report row for a column; none for a column of quotations."""
    if not column.evaluation:
        return {}
    split = item.options(column.evaluation, scale).get("split")
    return column.select | ({"split": str(split)} if split else {})


def _names(item: Item, column: TableColumn) -> list[str]:
    """What a table of scores may call a column: also its task, if no other column has it."""
    alone = [c.task for c in item.columns.values()].count(column.task) == 1
    return [column.title, column.name, *([column.task] if column.task and alone else [])]


def _own_cell(
    item: Item, entry: Json, column: TableColumn, scores: Report | dict[str, float]
) -> Json:
    """A score of a file in a column, with its difference from our reference at scale lab."""
    cell: Json = {}
    if isinstance(scores, dict):
        if named := [key for key in _names(item, column) if key in scores]:
            cell = {"ours": scores[named[0]], "seeds": 0}
    elif wanted := _wanted(item, entry["scale"], column):
        options = item.options(column.evaluation, entry["scale"])
        form, solver = options.get("form"), str(options.get("solver", ""))
        matches = scores.select(**wanted).rows
        # The sets in other languages have one form, regardless of the others.
        any_form = form is None or wanted.get("task", "").startswith("STSB-")
        fits = any_form or _noted(scores.notes, FORMS) <= {form}
        fits &= not solver or _noted(scores.notes, {"classifier"}) <= {SOLVERS[solver]}
        if len(matches) == 1 and fits:
            (found,) = matches
            cell = {"ours": round(column.factor * found.value, 4), "seeds": 0}
            if found.low is not None and found.high is not None:
                ends = (round(column.factor * end, 4) for end in (found.low, found.high))
                cell["low"], cell["high"] = ends
                cell["interval"] = "items"
    references = [row["cells"] for row in entry["rows"] if row["name"] == item.reference]
    ours = references[0].get(column.name, {}).get("ours") if references else None
    if cell and ours is not None and entry["scale"] == "lab":
        cell["difference"] = {"ours": round(cell["ours"] - ours, 4)}
    return cell


def _noted(notes: Mapping[str, object], keys: Set[str]) -> set[str]:
    """What a report's notes say under some keys, its suites' own notes included."""
    found: set[str] = set()
    for key, note in notes.items():
        if isinstance(note, Mapping):
            found |= _noted(note, keys)
        elif key in keys:
            found.add(str(note).partition(";")[0])
    return found


def _entry(found: ItemResults) -> Json:
    item, manifest, decided = found.item, found.manifest, found.verdicts()
    # The hits of each row's first seed for each query, as (cosine, text).
    listings: Json = {}
    for (name, _), reports in found.reports.items():
        listed = [r.notes["listing"] for r in reports.values() if "listing" in r.notes]
        if listed:
            listings[name] = listed[0]
    return {
        "name": item.name,
        "paper": item.paper,
        "title": item.title,
        "source": item.source,
        "about": item.about,
        "scale": found.scale,
        "scale_note": item.scale.get(found.scale, tables.Changes()).note,
        "base": manifest.get("base", ""),
        "changes": manifest.get("changes", {}),
        "reference": item.reference,
        "needs": [*item.needs, *found.remarks()],
        "columns": [
            {"name": c.name, "title": c.title, "better": c.better, "forms": found.forms[c.name]}
            for c in item.columns.values()
        ],
        "rows": [
            _row(row, found.skipped(row), {c: _cell(found, row, c, decided) for c in item.columns})
            for row in item.rows
        ],
        "claims": [_claim(found, claim, decided.claims[claim.name]) for claim in item.claims],
        "figure": figure_data(item, found.scale, found.reports, found.scores),
        "listings": listings,
        "run": {"seeds": manifest.get("seeds", 0), **times(found.records)},
    }


def _row(row: Row, skipped: str, cells: Mapping[str, Json]) -> Json:
    return {
        "name": row.name,
        "group": row.group,
        "kind": row.kind,
        "note": row.note,
        "source": row.source if row.kind == "quote" else "",
        "skipped": skipped,
        "facts": {name: str(value) for name, value in row.facts.items()},
        "cells": {column: cell for column, cell in cells.items() if cell},
    }


def _cell(found: ItemResults, row: Row, column: str, decided: TableVerdicts) -> Json:
    """A row's value in a column: published and ours, difference and verdict, as far as known."""
    column_scores = found.scores.get(column, {})
    scores, other = column_scores.get(row.name), column_scores.get(found.item.reference)
    expected = row.expected.get(column)
    cell: Json = {}
    if expected is not None:
        cell = {"paper": expected.value, "source": expected.source}
    if scores is not None:
        cell["ours"] = round(scores.mean, 4)
        cell["values"] = [round(v, 4) for v in scores.values]
        cell["seeds"] = len(scores.values) if scores.seeded else 0
        if (spread := scores.deviation()) is not None:
            cell["sd"] = round(spread, 4)
        if (ends := scores.interval()) is not None:  # over seeds, or test items
            cell["low"], cell["high"] = (round(end, 4) for end in ends)
            cell["interval"] = "seeds" if scores.seeded else "items"
        if found.scale == "lab" and other is not None and row.name != found.item.reference:
            cell["difference"] = _difference(verdicts.difference(other, scores))
            apart = verdicts.published_difference(found.item, row, column)
            if apart is not None:
                cell["difference"]["paper"] = round(apart, 6)
        if found.scale == "paper" and expected is not None:
            gap = verdicts.from_published(scores, expected.value)
            cell["difference"] = {**_difference(gap), "tolerance": expected.tolerance}
    if (verdict := decided.cells.get((row.name, column))) is not None:
        why = _why(found, verdict.parts[0], verdict.p)
        cell["verdict"] = _verdict(verdict.word, why, verdict.p)
    return cell


def _difference(effect: EffectEstimate) -> dict[str, float]:
    ends = (bounds(effect) if effect.error else None) or ()
    low_high = {k: round(v, 4) for k, v in zip(("low", "high"), ends, strict=False)}
    return {"ours": round(effect.mean, 4), **low_high}


def _claim(found: ItemResults, claim: Claim, verdict: Verdict) -> Json:
    own = [part.decide() for part in verdict.parts]
    if claim.chosen:
        own = [(word if word == verdicts.ABSENT else verdicts.CHOSEN, None) for word, _ in own]
    why = verdicts.counted([word for word, _ in own])
    if verdict.word == verdicts.CHOSEN:
        shown = [_why(found, part, None) for part in verdict.parts]
        why = "; ".join([claim.chosen, *filter(None, shown)])
    elif claim.term and verdict.word != verdicts.ABSENT and verdict.share is None:
        why += f"; the share of {claim.term} in the gradient was not measured"
    elif claim.term and verdict.word != verdicts.ABSENT:
        why += f"; {claim.term} has at most {verdict.share:.2%} of the gradient"
    parts: list[Json] = []
    for part, (word, p) in zip(verdict.parts, own, strict=True):
        # The words of a statement's only part are shown as its own, with its adjusted p.
        numbers = _why(found, part, verdict.p if len(own) == 1 else p)
        parts.append(_verdict(word, numbers, p) | {"text": part.text})
        if part.effect is not None:
            parts[-1]["effect"] = _effect(found, part, part.effect)
    return {
        "name": claim.name,
        "text": claim.text,
        "columns": [found.item.columns[c].title for c in claim.column],
        "verdict": _verdict(verdict.word, why, verdict.p),
        "parts": parts,
    }


def _effect(found: ItemResults, part: verdicts.RowComparison, effect: EffectEstimate) -> Json:
    """An effect, signed so that larger values support the statement: it holds above "beyond"."""
    ends = bounds(effect) if effect.error else None
    low, high = sorted(round(part.favor * end, 4) for end in ends) if ends else (None, None)
    within = part.kind in (tables.NO_WORSE, tables.NO_BETTER, tables.EQUAL)
    return {
        "ours": round(part.favor * effect.mean, 4),
        "low": low,
        "high": high,
        "beyond": -(part.margin or 0.0) if within else 0.0,
        "points": found.item.columns[part.column].factor == 100,
    }


def _verdict(word: str, why: str, p: float | None) -> Json:
    return {"word": word, "why": why, "p": None if p is None else float(f"{p:.3g}")}


def _why(found: ItemResults, comparison: verdicts.RowComparison, p: float | None) -> str:
    """The numbers behind a comparison's word, in a few words; "" if there are none."""
    if comparison.effect is None:
        return ""
    form = found.forms[comparison.column]["ours"]
    parts = [console.number(comparison.effect.mean, form, signed=True)]
    interval = bounds(comparison.effect)
    if interval is None:
        parts[0] += ", no interval"
    elif comparison.effect.error:
        parts[0] += f" {console.between(*interval, form, signed=True)}"
    if comparison.over_items is not None and (ends := bounds(comparison.over_items)):
        parts.append(f"{console.between(*ends, form, signed=True)} over test items")
    if comparison.kind != tables.BETTER:
        limit = "tolerance" if comparison.kind == verdicts.VALUE else "margin"
        parts.append(f"{limit} {comparison.margin:g}")
    return ", ".join([*parts, *([console.p_value(p)] if p is not None else [])])
