"""The figures of items: their plain data, and from these the pictures as SVG."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from contrasent import pictures
from contrasent.files import write_text
from contrasent.report import Report
from contrasent.reproduce.store import Json
from contrasent.reproduce.table_verdicts import Scores
from contrasent.reproduce.tables import Item


def figure_data(
    item: Item,
    scale: str,
    reports: Mapping[tuple[str, str], Mapping[int, Report]],
    scores: Scores,
) -> Json:
    """Plain data of an item's figure; empty without a figure or results."""
    if item.figure == "sweep":
        return _sweep_data(item, scale, scores)
    rows: Json = {}
    for row in item.rows if item.figure else ():
        for name in item.evaluations:
            some = list(reports.get((row.name, name), {}).values())
            if item.figure == "curves":
                curves_of = [r.notes["curves"] for r in some if "curves" in r.notes]
                if curves_of:
                    rows[row.name] = [next(iter(curves.values())) for curves in curves_of]
            elif item.figure == "trace":
                paths = [r.notes["path"] for r in some if "path" in r.notes]
                if paths:
                    # [step, uniformity, alignment] at each stop, averaged over seeds.
                    rows[row.name] = [
                        [ps[0][0], *(round(sum(p[k] for p in ps) / len(ps), 5) for k in (1, 2))]
                        for ps in zip(*paths, strict=False)
                    ]
            elif some and item.evaluations[name].kind == "geometry":
                drawn = _mean(some) if item.figure == "plane" else some[0]
                rows.setdefault(row.name, drawn.to_json())
    return {"kind": item.figure, "rows": rows} if rows else {}


def _mean(reports: Sequence[Report]) -> Report:
    """A report of the means over seeds, without intervals."""
    tables = [{row.key: row.value for row in report} for report in reports]
    return Report(
        tuple(
            replace(row, value=fmean(table[row.key] for table in tables), low=None, high=None)
            for row in reports[0]
            if all(row.key in table for table in tables)
        )
    )


def _sweep_data(item: Item, scale: str, scores: Scores) -> Json:
    """A panel for each axis and column: our values with intervals, and the published ones."""
    panels: list[Json] = []
    for axis in item.sweep.split(","):
        for name, column in item.columns.items():
            points: list[Json] = []
            for row in item.rows:
                if axis not in row.point or scale not in row.scales:
                    continue
                line = ", ".join(f"{k} {v}" for k, v in row.point.items() if k != axis)
                points.append({"x": row.point[axis], "line": line})
                if (ours := scores.get(name, {}).get(row.name)) is not None:
                    low, high = (ours.interval() if ours.seeded else None) or (None, None)
                    points[-1] |= {"ours": ours.mean, "low": low, "high": high}
                if name in row.expected:
                    points[-1]["paper"] = row.expected[name].value
            if any("ours" in point or "paper" in point for point in points):
                panels.append({"axis": axis, "column": column.title, "points": points})
    return {"kind": "sweep", "apart": scale == "lab", "panels": panels} if panels else {}


def draw(figure: Json, name: str = "figure") -> str | None:
    """A figure as SVG, or None if there is nothing to draw."""
    if not figure:
        return None
    kind, rows = figure["kind"], figure.get("rows", {})
    picture: str | None
    if kind in ("sweep", "curves"):
        picture = (sweep if kind == "sweep" else curves)(figure)
    elif kind == "trace":
        names = ("step", "uniformity", "alignment")
        paths = {
            row: [dict(zip(names, p, strict=True)) for p in path] for row, path in rows.items()
        }
        picture = pictures.trajectories(paths)
    else:
        drawn = {row: Report.from_json(data) for row, data in rows.items()}
        picture = getattr(pictures, kind)(drawn)
    # Each figure has its own identifiers, as a page has several.
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", name)
    return picture and re.sub(r'((?:id|xlink:href)="#?|url\(#)', rf"\g<1>{prefix}-", picture)


def write_figures(folder: Path, book: Json) -> list[Path]:
    """Write the figures of a book into a folder, one SVG file per item."""
    written = []
    for item in book["items"]:
        drawn = draw(item["figure"], item["name"])
        if drawn is not None:
            written.append(folder / f"{item['name'].replace(':', '-')}.svg")
            write_text(written[-1], drawn)
    return written


def sweep(figure: Json) -> str:
    """Values along an axis: ours with intervals, the published ones hollow; a panel each.

    If the values are not comparable, the published ones have their own axis, at the right.
    """
    panels = figure["panels"]
    with pictures.canvas(2.9 * len(panels), len(panels)) as (drawing, _):
        for axes, panel in zip(drawing.axes, panels, strict=True):
            _sweep_panel(axes, panel["points"], apart=figure.get("apart", False))
            axes.set_ylabel(panel["column"])
            axes.set_xlabel(panel["axis"])
            axes.ticklabel_format(axis="y", useOffset=False)
        pictures.add_legend(drawing, drawing.axes[0])
        return pictures.as_svg(drawing, "sweep")


def _sweep_panel(axes: Any, points: Sequence[Json], *, apart: bool) -> None:
    """Draw a panel, the published values on their own axes if ``apart`` from ours."""
    both = any("ours" in p for p in points) and any("paper" in p for p in points)
    other = axes.twinx() if apart and both else None
    if other is not None:
        other.spines["right"].set_visible(True)
        other.set_ylabel("published")
    places = list(dict.fromkeys(point["x"] for point in points))
    lines = list(dict.fromkeys(point["line"] for point in points))
    for i, line in enumerate(lines):
        color = pictures.COLORS[i % len(pictures.COLORS)]
        line_points = [p for p in points if p["line"] == line]
        ours, published = ([p for p in line_points if key in p] for key in ("ours", "paper"))
        x = [places.index(p["x"]) for p in ours]
        if ours:
            values = [p["ours"] for p in ours]
            axes.plot(x, values, "o-", color=color, label=f"ours {line}".strip())
        for place, p in zip(x, ours, strict=True):
            if p.get("low") is not None:
                axes.plot([place] * 2, [p["low"], p["high"]], color=color, linewidth=1.4)
        if published:
            style = {"color": color, "markerfacecolor": "none", "alpha": 0.7}
            label = f"published {line}".strip() + (", right axis" if other is not None else "")
            x, y = [places.index(p["x"]) for p in published], [p["paper"] for p in published]
            (other or axes).plot(x, y, "o--", **style)
            # The legend belongs to the panel's own axes.
            axes.plot([], [], "o--", label=label, **style)
    axes.set_xticks(range(len(places)), [str(p) for p in places])


def curves(figure: Json) -> str:
    """Quality against steps: a thick line a row, the mean of its seeds, and a thin one each."""
    with pictures.canvas(4.4) as (drawing, axes):
        for i, (name, seeds) in enumerate(figure["rows"].items()):
            steps = sorted(set.intersection(*({step for step, _ in seed} for seed in seeds)))
            values = [[100 * dict(seed)[step] for step in steps] for seed in seeds]
            color = pictures.color(i)
            for run_values in values if len(values) > 1 else ():
                axes.plot(steps, run_values, color=color, linewidth=0.5, alpha=0.5)
            mean = [sum(scores) / len(scores) for scores in zip(*values, strict=True)]
            axes.plot(steps, mean, color=color, linewidth=1.8, label=name)
            axes.plot(steps[-1:], mean[-1:], pictures.mark(i), color=color, markersize=5)
        axes.set_xlabel("steps")
        axes.set_ylabel("Spearman's correlation, points")
        pictures.add_legend(drawing, axes)
        return pictures.as_svg(drawing, "curves")
