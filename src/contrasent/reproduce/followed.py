"""What is measured of a training run, from its record: its speed, and where it went on its way."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from contrasent.report import Report, Row
from contrasent.reproduce.digests import departing
from contrasent.reproduce.store import Record

FOLLOWING = ("trace", "curve")
"""Measures that a run is evaluated by on its way; its key names which one."""


def fingerprint(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is evaluated by on its way, as its key has it."""
    departed = departing(options, "measures", kind)
    return departed if kind == "trace" else {"kind": kind, **departed}


def trace(record: Record, **options: Any) -> Report:
    """The path of a training run: alignment and uniformity first, last, and their change.

    The notes hold it as [step, uniformity, alignment], step 0 first.
    """
    points = [(step, Report.from_json(report)) for step, report in record["trace"]]
    path = [
        [step, r.one(metric="uniformity").value, r.one(metric="alignment").value]
        for step, r in points
    ]
    rows = []
    count = points[0][1].one(metric="uniformity").count
    for name, place in (("alignment", 2), ("uniformity", 1)):
        first, last = path[0][place], path[-1][place]
        values = {"first": first, "last": last, "change": last - first}
        rows += [Row("trace", "", f"{name}_{k}", "", v, count) for k, v in values.items()]
    return Report(tuple(rows), {"path": path})


def curve(record: Record, **options: Any) -> Report:
    """Spearman's correlation while a run goes on: after so many steps, at its best, and at the end.

    The notes hold all of it as [step, correlation], step 0 first.
    """
    points = [(step, Report.from_json(report)) for step, report in record["trace"]]
    rows, curves = [], {}
    for task in options["tasks"]:
        scored = [
            (step, r.one(task=task, metric="spearman", aggregate="all")) for step, r in points
        ]
        named = {str(step): row for step, row in scored}
        named |= {"best": max(named.values(), key=lambda row: row.value), "last": scored[-1][1]}
        rows += [replace(row, aggregate=name) for name, row in named.items()]
        curves[task] = [[step, row.value] for step, row in scored]
    return Report(tuple(rows), {"curves": curves})


def speed(record: Record) -> Report:
    """The speed of a training run, evaluations excluded."""
    rate = float(record["sentences_per_second"])
    steps, batch = int(record["steps"]), int(record["batch"])
    rows = (
        Row("training", "", "sentences_per_second", "", rate, steps * batch),
        Row("training", "", "seconds_per_step", "", batch / rate if rate else 0.0, steps),
    )
    return Report(rows, {})
