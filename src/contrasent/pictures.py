"""Pictures of reports, as the papers draw them: SVG that takes the text color of its page.

Text and axes take CSS's currentColor, to read on light and dark pages.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from contrasent.errors import import_extra
from contrasent.report import Report
from contrasent.types import Vectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#012345"  # placeholder for the page's text color until the picture is done
COLORS = (
    "#3d7edb", "#d9822b", "#2f9e6e", "#c0508f", "#8a6bd1", "#a88a1d", "#2a9fb5", "#c9533f",
)  # fmt: skip
"""Readable on white and on near-black, and apart for most kinds of color vision."""

MARKS = "osD^vP*X"
WIDTH = 7.2

Reports = Mapping[str, Report]
Point = tuple[float, float, float, float]
"""A step, a value, and the ends of its interval."""


def color(i: int) -> str:
    """The color of the i-th model; colors repeat after eight."""
    return COLORS[i % len(COLORS)]


def mark(i: int) -> str:
    """The mark of the i-th model; with the color it is one of 64."""
    return MARKS[(i + i // len(COLORS)) % len(MARKS)]


def check_matplotlib() -> None:
    """Check that pictures can be drawn."""
    import_extra("matplotlib", "report", "a page with pictures")


def plane(reports: Reports) -> str | None:
    """Alignment against uniformity (SimCSE, Figures 2 and 3), as SVG; None without geometry."""
    points = {
        name: (report.one(metric="uniformity").value, report.one(metric="alignment").value)
        for name, report in reports.items()
        if report.select(metric="uniformity").rows and report.select(metric="alignment").rows
    }
    if not points:
        return None
    with canvas(4.2) as (figure, axes):
        for i, (name, (x, y)) in enumerate(points.items()):
            axes.plot(x, y, mark(i), color=color(i), markersize=9, label=name)
        axes.margins(0.25)
        _label_geometry(figure, axes)
        return as_svg(figure, "plane")


def trajectories(paths: Mapping[str, Sequence[Mapping[str, float]]]) -> str | None:
    """Alignment and uniformity during training (SimCSE, Figure 2), as SVG."""
    drawn = {name: path for name, path in paths.items() if path}
    if not drawn:
        return None
    labeled: set[str] = set()
    with canvas(4.4) as (figure, axes):
        for i, (name, path) in enumerate(drawn.items()):
            x = [point["uniformity"] for point in path]
            y = [point["alignment"] for point in path]
            shade = color(i)
            axes.plot(x, y, color=shade, linewidth=1, alpha=0.5)
            axes.plot(x, y, mark(i), color=shade, markersize=5, label=name)
            axes.plot(x[0], y[0], mark(i), color=INK, markersize=9, fillstyle="none")
            for before, after in pairwise(path):
                ends = [(p["uniformity"], p["alignment"]) for p in (before, after)]
                axes.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "->", "color": shade})
            last = f"step {path[-1]['step']:.0f}"
            if last not in labeled:  # one label is enough for runs of one length
                axes.annotate(last, (x[-1], y[-1]), xytext=(6, 6), textcoords="offset points")
            labeled.add(last)
        axes.margins(0.2)
        _label_geometry(figure, axes)
        return as_svg(figure, "trajectories")


def _label_geometry(figure: "Figure", axes: "Axes") -> None:
    axes.set_xlabel("uniformity (smaller is better)")
    axes.set_ylabel("alignment (smaller is better)")
    add_legend(figure, axes)


def panels(curves: Mapping[str, Mapping[str, Sequence[Point]]]) -> str | None:
    """Curves over steps, a panel each with its lines by name and their intervals, as SVG."""
    if not curves:
        return None
    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    with canvas(2.4 * rows, rows, columns, layout=None) as (figure, grid):
        # Margins in shares of a figure whose panels are alike; to compute them takes half the time
        figure.subplots_adjust(
            left=0.08, right=0.98, top=1 - 0.1 / rows, bottom=0.17 / rows, hspace=0.4, wspace=0.2
        )
        places = np.atleast_1d(grid).ravel()
        for axes, (title, lines) in zip(places, curves.items(), strict=False):
            for i, (name, points) in enumerate(lines.items()):
                steps, values, low, high = zip(*points, strict=True)
                axes.plot(steps, values, color=color(i), linewidth=1.2, label=_short(name, 32))
                axes.fill_between(steps, low, high, color=color(i), alpha=0.2, linewidth=0)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("step", fontsize=8)
            if len(lines) > 1:
                axes.legend(frameon=False, fontsize=7)
        for axes in places[len(curves) :]:
            axes.set_visible(False)
        return as_svg(figure, "panels")


def maps(sides: Mapping[str, tuple[Vectors, Vectors]]) -> str:
    """Vectors of pairs, one panel per model, in the plane of most variance (PCA), as SVG."""
    with canvas(3.4, 1, len(sides), layout=None) as (figure, grid):
        figure.subplots_adjust(left=0.01, right=0.99, top=0.92, bottom=0.02, wspace=0.03)
        for axes, (title, pair) in zip(np.atleast_1d(grid).ravel(), sides.items(), strict=True):
            every = np.concatenate(pair)
            every = every - every.mean(axis=0)
            flat = every @ np.linalg.svd(every, full_matrices=False)[2][:2].T
            first, second = flat[: len(pair[0])], flat[len(pair[0]) :]
            ends = np.stack([first, second], axis=1)
            axes.plot(*ends.T, color=INK, linewidth=0.5, alpha=0.3)
            for i, (name, points) in enumerate({"summary": first, "explanation": second}.items()):
                axes.plot(*points.T, "o", color=color(i), markersize=3, label=name)
            axes.set_title(title, fontsize=9)
            axes.set_xticks([])
            axes.set_yticks([])
        axes.legend(frameon=False, fontsize=8)
        return as_svg(figure, "maps")


def spectrum(reports: Reports) -> str | None:
    """Singular values over the largest (SimCSE, Figure F.1), as SVG; None without geometry."""
    spectra = {n: v for n, r in reports.items() if (v := _note(r, "singular_values"))}
    if not spectra:
        return None
    with canvas(3.4) as (figure, axes):
        for i, (name, values) in enumerate(spectra.items()):
            axes.plot(np.arange(1, len(values) + 1), values, color=color(i), label=name)
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(1e-4, min(min(v) for v in spectra.values())))
        axes.set_xlabel("rank")
        axes.set_ylabel("singular value / largest")
        add_legend(figure, axes)
        return as_svg(figure, "spectrum")


def densities(reports: Reports) -> str | None:
    """Density of cosine for each band of ratings (SimCSE, Figure G.1), as SVG."""
    densities_of = {n: v for n, r in reports.items() if (v := _note(r, "cosine_by_rating"))}
    if not densities_of:
        return None
    columns = min(2, len(densities_of))
    rows = -(-len(densities_of) // columns)
    with canvas(2.6 * rows + 0.3, rows, columns) as (figure, grid):
        panels = np.atleast_1d(grid).ravel()
        for panel, (name, bands) in zip(panels, densities_of.items(), strict=False):
            _ridges(panel, bands)
            panel.set_title(_short(name, 44), fontsize=9)
        for panel in panels[len(densities_of) :]:
            panel.set_visible(False)
        return as_svg(figure, "densities")


def scores(
    reports: Reports, tasks: Sequence[str], wanted: Mapping[str, str], title: str
) -> str | None:
    """Values of several tasks with their 95 % intervals, one mark per model, as SVG."""
    rows = {n: r.select(**dict(wanted)) for n, r in reports.items()}
    known = [t for t in tasks if any(r.select(task=t).rows for r in rows.values())]
    if not known:
        return None
    with canvas(0.7 + (0.2 + 0.13 * len(rows)) * len(known)) as (figure, axes):
        for i, (name, report) in enumerate(rows.items()):
            shift = (i - (len(rows) - 1) / 2) * 0.7 / len(rows)
            for j, row in enumerate(r for t in known for r in report.select(task=t).rows[:1]):
                place = known.index(row.task) + shift
                axes.plot(
                    100 * row.value,
                    place,
                    mark(i),
                    color=color(i),
                    markersize=5,
                    label=name if j == 0 else None,
                )
                if row.low is not None and row.high is not None:
                    ends = [100 * row.low, 100 * row.high]
                    axes.plot(ends, [place] * 2, color=color(i), linewidth=1.4)
        axes.set_yticks(range(len(known)), known)
        axes.invert_yaxis()
        axes.set_xlabel(title)
        add_legend(figure, axes)
        return as_svg(figure, "scores" + title)


def _ridges(axes: "Axes", bands: Mapping[str, Sequence[int]]) -> None:
    for i, counts in enumerate(bands.values()):
        total = max(sum(counts), 1)
        edges = np.linspace(-1, 1, len(counts) + 1)
        middle = (edges[:-1] + edges[1:]) / 2
        height = 3.2 * np.array(counts) / total
        axes.fill_between(middle, i, i + height, color=COLORS[0], alpha=0.35 + 0.1 * i)
        axes.plot(middle, i + height, color=COLORS[0], linewidth=1)
    axes.set_yticks(range(len(bands)), list(bands))
    axes.set_xlim(-0.3, 1)
    axes.set_xlabel("cosine")
    axes.set_ylabel("rating")


@contextmanager
def canvas(
    height: float,
    rows: int = 1,
    columns: int = 1,
    *,
    layout: Literal["constrained"] | None = "constrained",
) -> "Iterator[tuple[Figure, Any]]":
    """A figure of the page's width, inches high, and its panels, in the style of all pictures."""
    check_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    colors = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = {
        **dict.fromkeys(colors, INK),
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        figure = Figure((WIDTH, height), layout=layout)
        yield figure, figure.subplots(rows, columns)


def add_legend(figure: "Figure", axes: "Axes") -> None:
    """A legend below a figure."""
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if len(labels) > 1 else 1
    figure.legend(
        handles,
        [_short(label, 50) for label in labels],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def as_svg(figure: "Figure", salt: str) -> str:
    """A figure as SVG that takes the page's text color; the salt is the picture's own name."""
    import matplotlib as mpl

    stream = io.StringIO()
    # Its own salt keeps a picture's identifiers apart from those of its neighbors.
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    return text.replace("<svg ", '<svg role="img" ', 1)


def _note(report: Report, name: str) -> Any:
    """A note of a report, or of the geometry suite inside it."""
    inner = report.notes.get("geometry", {})
    return report.notes.get(name) or (inner.get(name) if isinstance(inner, dict) else None)


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else "…" + name[-(most - 1) :]
