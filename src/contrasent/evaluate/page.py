"""Evaluation reports as one HTML page: tables with intervals, and the papers' pictures."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contrasent import pictures
from contrasent.datasets.official import STS_TASKS
from contrasent.evaluate.sts import AVERAGE as STS_AVERAGE
from contrasent.evaluate.transfer import AVERAGE as TRANSFER_AVERAGE
from contrasent.evaluate.transfer import FEW_SHOT_AVERAGE
from contrasent.evaluate.transfer import TASKS as TRANSFER_TASKS
from contrasent.files import render
from contrasent.metrics import metric
from contrasent.pictures import Reports
from contrasent.report import Row, shown

AVERAGES = (STS_AVERAGE, TRANSFER_AVERAGE, FEW_SHOT_AVERAGE)
TABLES = ("sts", "other_sts", "protocols", "transfer", "decisions", "geometry", "retrieval", "bias")


def page(reports: Reports) -> str:
    """The page's text."""
    pictures.check_matplotlib()
    named = dict(zip(titles(tuple(reports)), reports.values(), strict=True))
    names = ", ".join(named) if len(reports) < 4 else f"{len(reports)} models"
    sts = {"metric": "spearman", "aggregate": "all"}
    transfer = {"metric": "accuracy", "split": "test"}
    protocols = [r.notes.get("protocols", {}).get("protocols", {}) for r in named.values()]
    paths = {name: report.notes.get("trajectory", ()) for name, report in named.items()}
    tasks = (*TRANSFER_TASKS, TRANSFER_AVERAGE)
    drawn = {
        "sts": pictures.scores(named, (*STS_TASKS, STS_AVERAGE), sts, "Spearman x 100, STS"),
        "transfer": pictures.scores(named, tasks, transfer, "accuracy x 100, transfer"),
        "plane": pictures.plane(named),
        "trajectories": pictures.trajectories(paths),
        "spectrum": pictures.spectrum(named),
        "densities": pictures.densities(named),
    }
    return render(
        "evaluation.html",
        window=f": {names}",
        heading=f"Evaluation of {names}",
        names=list(named),
        tables={kind: _table(named, kind) for kind in TABLES},
        drawn=drawn,
        protocols=list(next(filter(None, protocols), {}).items()),
        listings={n: r.notes["listing"] for n, r in named.items() if "listing" in r.notes},
        notes=_notes(named),
    )


def titles(names: Sequence[str]) -> list[str]:
    """Names of models without their common folders."""
    parts = [Path(name).parts or (name,) for name in names]
    for count in range(1, max(map(len, parts), default=1) + 1):
        short = [str(Path(*path[-count:])) for path in parts]
        if len(set(short)) == len(short):
            # A hub's name, "owner/model", stays whole.
            return [
                n if n.count("/") == 1 and not n.startswith((".", "/")) else f
                for n, f in zip(names, short, strict=True)
            ]
    return list(names)


def _kind(row: Row) -> str:
    """The table that a row belongs to; "" for none."""
    if row.task.startswith("protocol "):
        return "protocols"
    table = metric(row.metric).table
    whole = (row.metric, row.aggregate) == ("spearman", "all")
    return "other_sts" if table == "sts" and not whole else table


def _table(reports: Reports, kind: str) -> list[dict[str, Any]]:
    """Lines by task, split, metric and aggregate, with a cell for each model."""
    cells: dict[tuple[str, ...], dict[str, Row]] = {}
    for name, report in reports.items():
        for row in report:
            if _kind(row) == kind:
                key = (row.task, row.metric, row.aggregate, row.split)
                cells.setdefault(key, {})[name] = row
    # Grouped by kind, each in the order of its tasks.
    kinds = list(dict.fromkeys(key[1:] for key in cells))
    return [
        {
            "task": key[0],
            "kind": " ".join(filter(None, key[1:])),
            "total": key[0] in AVERAGES,
            "cells": [_cell(by_model.get(name)) for name in reports],
            "count": next(iter(by_model.values())).count,
        }
        for key, by_model in sorted(cells.items(), key=lambda cell: kinds.index(cell[0][1:]))
    ]


def _cell(row: Row | None) -> dict[str, str] | None:
    if row is None:
        return None
    bounds = [shown(row.metric, end) for end in (row.low, row.high) if end is not None]
    interval = " – ".join(bounds) if len(bounds) == 2 else ""
    return {"value": shown(row.metric, row.value), "interval": interval}


def _notes(reports: Reports) -> list[tuple[str, list[tuple[str, Any]]]]:
    """The notes: first those that all models share, then each model's own."""
    notes_of = {name: dict(_flat(report.notes)) for name, report in reports.items()}
    first = next(iter(notes_of.values()), {})
    shared = {k: v for k, v in first.items() if all(n.get(k) == v for n in notes_of.values())}
    whole = "All models" if len(notes_of) > 1 else next(iter(notes_of), "")
    separate = [
        (name, [(key, value) for key, value in notes.items() if key not in shared])
        for name, notes in notes_of.items()
    ]
    return [(whole, list(shared.items())), *separate]


def _flat(notes: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in notes.items():
        if isinstance(value, dict):
            # Histograms are drawn, and the papers of protocols are with their table.
            if not (prefix and key in ("cosine_by_rating", "protocols")):
                yield from _flat(value, f"{prefix}{key} ")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", f"{value:,}" if type(value) is int else value
