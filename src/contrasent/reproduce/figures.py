"""The documents' figures, drawn from what was measured; as SVG, in the style of ``pictures``."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrasent.evaluate import pictures
from contrasent.files import write_text
from contrasent.report import Report
from contrasent.reproduce.console import Book
from contrasent.reproduce.items import Item
from contrasent.reproduce.store import Json
from contrasent.reproduce.table_verdicts import Scores

Reports = Mapping[tuple[str, str], Mapping[str, Report]]


def drawn_from(item: Item, scale: str, reports: Reports, scores: Scores) -> Json:
    """The data of an item's figure, plain; empty without a figure or results."""
    if item.figure == "sweep":
        return _sweep(item, scale, scores)
    found: Json = {}
    for row in item.rows if item.figure else ():
        for name in item.evaluations:
            some = list(reports.get((row.name, name), {}).values())
            if item.figure == "curves":
                own = [r.notes["curves"] for r in some if "curves" in r.notes]
                if own:
                    found[row.name] = [next(iter(curves.values())) for curves in own]
            elif item.figure == "trace":
                paths = [r.notes["path"] for r in some if "path" in r.notes]
                if paths:
                    found[row.name] = _mean_path(paths)
            elif some:
                found.setdefault(row.name, some[0].to_json())
    return {"kind": item.figure, "rows": found} if found else {}


def _mean_path(paths: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """[step, uniformity, alignment] at each stop, averaged over seeds."""
    stops = zip(*paths, strict=False)
    return [
        [at[0][0], *(round(sum(point[k] for point in at) / len(at), 5) for k in (1, 2))]
        for at in stops
    ]


def _sweep(item: Item, scale: str, scores: Scores) -> Json:
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
                own = scores.get(name, {}).get(row.name)
                if own is not None:
                    low, high = (own.interval() if own.seeded else None) or (None, None)
                    points[-1] |= {"ours": own.mean, "low": low, "high": high}
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
    found: str | None
    if kind in ("sweep", "curves"):
        found = (sweep if kind == "sweep" else curves)(figure)
    elif kind == "trace":
        names = ("step", "uniformity", "alignment")
        found = pictures.trajectories(
            {row: [dict(zip(names, p, strict=True)) for p in path] for row, path in rows.items()}
        )
    else:
        drawn = {row: Report.from_json(data) for row, data in rows.items()}
        found = getattr(pictures, kind)(drawn)
    # Identifiers of a figure's own: several stand on one page.
    own = re.sub(r"[^A-Za-z0-9]+", "-", name)
    return re.sub(r'((?:id|xlink:href)="#?|url\(#)', rf"\g<1>{own}-", found) if found else None


def write_figures(folder: Path, found: Book) -> list[Path]:
    """Write the figures of a book into a folder, one SVG file an item."""
    written = []
    for item in found["items"]:
        drawn = draw(item["figure"], item["name"])
        if drawn is not None:
            written.append(folder / f"{item['name'].replace(':', '-')}.svg")
            write_text(written[-1], drawn)
    return written


def sweep(figure: Json) -> str:
    """Values along an axis: ours with intervals, the published ones hollow; a panel each."""
    # Where the values are not comparable, the published ones have an axis of their own, at the
    # right.
    panels = figure["panels"]
    with pictures.canvas(2.9 * len(panels), len(panels)) as (drawing, grid):
        axes = [grid] if len(panels) == 1 else list(grid)
        for place, panel in zip(axes, panels, strict=True):
            other = _panel(place, panel["points"], apart=figure.get("apart", False))
            place.set_ylabel(panel["column"])
            place.set_xlabel(panel["axis"])
            place.ticklabel_format(axis="y", useOffset=False)
            if other is not None:
                other.set_ylabel("published")
        pictures.add_legend(drawing, axes[0])
        return pictures.as_svg(drawing, "sweep")


def _panel(axes: Any, points: Sequence[Json], *, apart: bool) -> Any | None:
    """Draw a panel; the axes of the published values if they have their own."""
    both = any("ours" in p for p in points) and any("paper" in p for p in points)
    other = axes.twinx() if apart and both else None
    if other is not None:
        other.spines["right"].set_visible(True)
    places = list(dict.fromkeys(point["x"] for point in points))
    lines = list(dict.fromkeys(point["line"] for point in points))
    for i, line in enumerate(lines):
        colour = pictures.COLOURS[i % len(pictures.COLOURS)]
        own = [p for p in points if p["line"] == line]
        ours, published = ([p for p in own if key in p] for key in ("ours", "paper"))
        x = [places.index(p["x"]) for p in ours]
        if ours:
            values = [p["ours"] for p in ours]
            axes.plot(x, values, "o-", color=colour, label=f"ours {line}".strip())
        for place, p in zip(x, ours, strict=True):
            if p.get("low") is not None:
                axes.plot([place] * 2, [p["low"], p["high"]], color=colour, linewidth=1.4)
        if published:
            style = {"color": colour, "markerfacecolor": "none", "alpha": 0.7}
            label = f"published {line}".strip() + (", right axis" if other is not None else "")
            x, y = [places.index(p["x"]) for p in published], [p["paper"] for p in published]
            (other or axes).plot(x, y, "o--", **style)
            # The legend is that of the panel's own axes.
            axes.plot([], [], "o--", label=label, **style)
    axes.set_xticks(range(len(places)), [str(p) for p in places])
    return other


def curves(figure: Json) -> str:
    """Quality against steps: a thick line a row, the mean of its seeds, and a thin one each."""
    with pictures.canvas(4.4) as (drawing, axes):
        for i, (name, seeds) in enumerate(figure["rows"].items()):
            steps = sorted(set.intersection(*({step for step, _ in seed} for seed in seeds)))
            values = [[100 * dict(seed)[step] for step in steps] for seed in seeds]
            colour = pictures.colour(i)
            for own in values if len(values) > 1 else ():
                axes.plot(steps, own, color=colour, linewidth=0.5, alpha=0.5)
            mean = [sum(at) / len(at) for at in zip(*values, strict=True)]
            axes.plot(steps, mean, color=colour, linewidth=1.8, label=name)
            axes.plot(steps[-1:], mean[-1:], pictures.mark(i), color=colour, markersize=5)
        axes.set_xlabel("steps")
        axes.set_ylabel("Spearman's correlation, points")
        pictures.add_legend(drawing, axes)
        return pictures.as_svg(drawing, "curves")
