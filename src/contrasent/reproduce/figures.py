"""The documents' figures, drawn from what was measured; as SVG, in the style of ``pictures``."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from contrasent.evaluate import pictures
from contrasent.files import atomic_file
from contrasent.report import Report
from contrasent.reproduce.recipe import Recipe, Row
from contrasent.reproduce.verdict import Arm

Reports = Mapping[tuple[str, str], Mapping[str, Report]]


def drawn_from(
    recipe: Recipe, reports: Reports, arms: Mapping[str, Mapping[str, Arm]]
) -> dict[str, Any]:
    """What a recipe's figure shows, as plain data; empty without a figure or results.

    Returns:
        Of a trace: the mean path of each row over its seeds. Of a sweep: each row's mean, interval
        and published value along the axis. Of other figures: one report of each row, the first
        seed's.
    """
    if not recipe.figure:
        return {}
    if recipe.figure == "sweep":
        return _sweep(recipe, arms)
    found: dict[str, Any] = {}
    for row in recipe.rows:
        for name in recipe.evaluations:
            some = reports.get((row.name, name), {})
            if not some:
                continue
            if recipe.figure == "trace":
                paths = [r.notes["path"] for r in some.values() if "path" in r.notes]
                if paths:
                    found[row.name] = _mean_path(paths)
            else:
                first = next(iter(some.values()))
                found.setdefault(row.name, first.to_json())
    return {"kind": recipe.figure, "rows": found} if found else {}


def _mean_path(paths: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """[step, uniformity, alignment] at each stop, averaged over seeds."""
    shortest = min(len(path) for path in paths)
    return [
        [
            paths[0][i][0],
            *(round(sum(path[i][k] for path in paths) / len(paths), 5) for k in (1, 2)),
        ]
        for i in range(shortest)
    ]


def _sweep(recipe: Recipe, arms: Mapping[str, Mapping[str, Arm]]) -> dict[str, Any]:
    """A panel for each axis and column."""
    panels = []
    for axis in recipe.sweep.split(","):
        for name, column in recipe.columns.items():
            points = [
                _point(recipe, row, axis, name, arms.get(name, {}).get(row.name))
                for row in recipe.rows
                if axis in row.point
            ]
            if points:
                panels.append({"axis": axis, "column": column.title, "points": points})
    return {"kind": "sweep", "panels": panels} if panels else {}


def _point(recipe: Recipe, row: Row, axis: str, column: str, arm: Arm | None) -> dict[str, Any]:
    line = ", ".join(f"{k} {v}" for k, v in row.point.items() if k != axis)
    point: dict[str, Any] = {"x": row.point[axis], "line": line}
    if arm is not None:
        low, high = arm.interval() or (None, None)
        point |= {"ours": arm.mean, "low": low, "high": high}
    if column in row.expected:
        point["paper"] = row.expected[column].value
    return point


def draw(figure: Mapping[str, Any]) -> str | None:
    """A figure as SVG, or None if there is nothing to draw.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if not figure:
        return None
    if figure["kind"] == "trace":
        return trace(figure["rows"])
    if figure["kind"] == "sweep":
        return sweep(figure)
    reports = {name: Report.from_json(data) for name, data in figure["rows"].items()}
    return {
        "plane": pictures.plane,
        "spectrum": pictures.spectrum,
        "densities": pictures.densities,
    }[figure["kind"]](reports)


def write_figures(folder: Path, found: Mapping[str, Any]) -> list[Path]:
    """Write the figures of a book into a folder, one SVG file an item.

    Returns:
        The files.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: the folder cannot be written.
    """
    written = []
    for item in found["items"]:
        drawn = draw(item["figure"])
        if drawn is not None:
            target = folder / f"{item['name'].replace(':', '-')}.svg"
            with atomic_file(target) as stream:
                stream.write(drawn)
            written.append(target)
    return written


def trace(paths: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Alignment against uniformity along training runs, an arrow from stop to stop."""
    with pictures.canvas(4.4) as (figure, axes):
        for i, (name, path) in enumerate(paths.items()):
            colour = pictures.COLOURS[i % len(pictures.COLOURS)]
            mark = pictures.MARKS[i % len(pictures.MARKS)]
            x, y = [p[1] for p in path], [p[2] for p in path]
            axes.plot(x, y, mark, color=colour, markersize=5, label=name)
            for a, b in pairwise(path):
                arrow = {"arrowstyle": "->", "color": colour, "alpha": 0.8}
                axes.annotate("", (b[1], b[2]), (a[1], a[2]), arrowprops=arrow)
            axes.annotate(
                str(int(path[-1][0])),
                (x[-1], y[-1]),
                fontsize=7,
                xytext=(4, 3),
                textcoords="offset points",
            )
        axes.margins(0.1)
        axes.set_xlabel("uniformity (smaller is better)")
        axes.set_ylabel("alignment (smaller is better)")
        pictures.add_legend(figure, axes)
        return pictures.as_svg(figure, "trace")


def sweep(figure: Mapping[str, Any]) -> str:
    """Values along an axis: ours with intervals, the published ones hollow; a panel each."""
    panels = figure["panels"]
    with pictures.canvas(2.9 * len(panels), len(panels)) as (drawing, grid):
        axes = [grid] if len(panels) == 1 else list(grid)
        for place, panel in zip(axes, panels, strict=True):
            _panel(place, panel["points"])
            place.set_ylabel(panel["column"])
            place.set_xlabel(panel["axis"])
        pictures.add_legend(drawing, axes[0])
        return pictures.as_svg(drawing, "sweep")


def _panel(axes: Any, points: Sequence[Mapping[str, Any]]) -> None:
    places = list(dict.fromkeys(point["x"] for point in points))
    lines = list(dict.fromkeys(point["line"] for point in points))
    for i, line in enumerate(lines):
        colour = pictures.COLOURS[i % len(pictures.COLOURS)]
        own = [p for p in points if p["line"] == line]
        ours = [p for p in own if "ours" in p]
        x = [places.index(p["x"]) for p in ours]
        axes.plot(x, [p["ours"] for p in ours], "o-", color=colour, label=f"ours {line}".strip())
        for place, p in zip(x, ours, strict=True):
            if p.get("low") is not None:
                axes.plot([place] * 2, [p["low"], p["high"]], color=colour, linewidth=1.4)
        said = [p for p in own if "paper" in p]
        if said:
            axes.plot(
                [places.index(p["x"]) for p in said],
                [p["paper"] for p in said],
                "o--",
                color=colour,
                markerfacecolor="none",
                alpha=0.7,
                label=f"published {line}".strip(),
            )
    axes.set_xticks(range(len(places)), [str(p) for p in places])
