"""A report as a summary of its verdicts, as an HTML page, and its figures as SVG."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrasent import pictures
from contrasent.files import minus, render, write_text
from contrasent.report import Report
from contrasent.reproduce import console
from contrasent.reproduce.store import Json
from contrasent.reproduce.table_verdicts import (
    ABSENT,
    AGREES,
    CHOSEN,
    DIFFERS,
    EQUIVALENT,
    INERT,
    OPEN,
    RULE,
    WORDS,
)
from contrasent.reproduce.tables import MARGIN

HEADINGS = {
    AGREES: ("What holds", "hold"),
    DIFFERS: ("What does not hold", "do not"),
    EQUIVALENT: ("Where there is no difference that matters", "with no difference that matters"),
    OPEN: ("What cannot be told", "cannot be told"),
    INERT: ("Where the term hardly acts", "are on a term that hardly acts"),
    CHOSEN: ("What rows were chosen for", "are what rows were chosen for, and not tested"),
    ABSENT: ("What was not run", "were not run"),
}
EXPLAINED = (
    "A line is a statement, and what lies to the right of zero speaks for it. Thick: the "
    "comparison that its verdict hangs on, with its 95 % interval; thin: its others. Within "
    "the band differences do not matter."
)
COLOURS = {AGREES: "#2f9e6e", DIFFERS: "#c9533f", EQUIVALENT: "#3d7edb", OPEN: "#8a8f98"}
COLOURS |= {INERT: "#c7a34a", CHOSEN: "#9a7fc4"}
LINEAR = 1.0  # points up to which a picture's axis is linear; a tenth for other units
TICKS = (-10.0, -3.0, -1.0, -MARGIN, MARGIN, 1.0, 3.0, 10.0)
MANY = 60  # statements of several documents; above it each has its own picture
LETTERS = 74  # of a statement, next to its line in the picture
NEAREST = 3  # decided statements listed as the most fragile


class Statement(NamedTuple):
    """A statement of a document and the part that its verdict hangs on."""

    item: console.ItemEntry
    claim: console.ClaimEntry
    word: str
    p: float | None  # adjusted for all of the table
    part: console.PartEntry | None  # the part that differs, else the weakest; None if none was run
    effects: list[console.Effect]  # of all parts that were run, that of `part` first


def statements(book: console.Book) -> list[Statement]:
    """All statements of a report, in its order."""
    return [_statement(item, claim) for item in book["items"] for claim in item["claims"]]


def _statement(item: console.ItemEntry, claim: console.ClaimEntry) -> Statement:
    run = [part for part in claim["parts"] if "effect" in part]
    word = claim["verdict"]["word"]
    differing = [part for part in run if word == part["word"] == DIFFERS]
    part = max(run, key=lambda part: (part["word"] == OPEN, part["p"] or 0.0), default=None)
    part = min(differing, key=lambda part: part["p"] or 0.0, default=part)
    effects = [own["effect"] for own in sorted(run, key=lambda own: own is not part)]
    return Statement(item, claim, word, claim["verdict"]["p"], part, effects)


def summary(found: console.Book, drawn: Mapping[str, str], book: str = "") -> str:
    """The summary as Markdown; ``drawn`` has the files of pictures by document, "" for all."""
    every = statements(found)
    by_word = {word: [one for one in every if one.word == word] for word in HEADINGS}
    by_paper: dict[str, list[str]] = {}
    for one in every:
        by_paper.setdefault(one.item["paper"], []).append(one.word)
    seeds = sorted({item["run"].get("seeds", 0) for item in found["items"]} - {0})
    heads = [word for word in WORDS if by_word[word]]
    decided = [one for one in every if one.word in (AGREES, DIFFERS) and one.part is not None]
    nearest = sorted(decided, key=lambda one: -(one.p or 0.0))[:NEAREST]
    return render(
        "summary.md",
        total=len(every),
        lab_note=console.LAB_NOTE if any(item["scale"] == "lab" for item in found["items"]) else "",
        bases=", ".join(sorted({item["base"] for item in found["items"] if item["base"]})),
        seeds=f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds)),
        book=book,
        book_name=Path(book).name,
        drawn=drawn,
        explained=f"{EXPLAINED} {RULE}",
        heads=heads,
        documents=[(_sentence(p), [own.count(w) for w in heads]) for p, own in by_paper.items()],
        sections=[
            (*HEADINGS[word], len(own), _by_need(own) if word == ABSENT else {"": map(_line, own)})
            for word, own in by_word.items()
            if own
        ],
        nearest=[f"{o.claim['text'].rstrip('.')} ({console.p_value(o.p or 0.0)})" for o in nearest],
        scales=sorted({i["scale_title"] for i in found["items"] if i["base"]}),
        undecided=len(by_word[OPEN]) + len(by_word[INERT]),
        absent=len(by_word[ABSENT]),
    )


def write(target: Path, report: console.Book, book: str = "") -> list[Path]:
    """Write the summary, and its pictures next to it."""
    folders = {item["paper"]: item["name"].partition(":")[0] for item in report["items"]}
    drawn = forests(report) or {"": "<svg xmlns='http://www.w3.org/2000/svg'/>"}
    files = {
        paper: target.with_name(f"{target.stem}{f'-{folders[paper]}' if paper else ''}.svg")
        for paper in drawn
    }
    for paper, picture in drawn.items():
        # As a separate file the picture has no page's text colour: it brings its own colours.
        ink = '<svg style="color:#1c2127;background:#fff" '
        write_text(files[paper], picture.replace("<svg ", ink, 1))
    write_text(target, summary(report, {paper: file.name for paper, file in files.items()}, book))
    return [target, *files.values()]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _line(statement: Statement) -> str:
    about = [statement.item["source"]]
    if statement.effects:
        effect, form = statement.effects[0], ".2f" if statement.effects[0]["points"] else ".3f"
        shown = console.number(effect["ours"], form, signed=True)
        if effect["low"] is not None and effect["high"] is not None:
            shown += f" {console.between(effect['low'], effect['high'], form, signed=True)}"
        shown += f", {console.p_value(statement.p)}" if statement.p is not None else ""
        about.append(shown)
        about += [statement.claim["verdict"]["why"]] if len(statement.claim["parts"]) > 1 else []
    return f"{statement.claim['text']} ({'; '.join(about)})"


def _by_need(absent: list[Statement]) -> dict[str, list[str]]:
    """Statements that were not run, by what their rows need."""
    needing: dict[str, list[str]] = {}
    for statement in absent:
        texts = [part["text"] for part in statement.claim["parts"] if part["word"] == ABSENT]
        rows = (r for r in statement.item["rows"] if any(r["name"] in text for text in texts))
        reasons = (reason for row in rows for reason in row["skipped"].split("; "))
        needs = dict.fromkeys(filter(None, reasons))
        why = "; ".join(needs) or "other tables, which were not run"
        needing.setdefault(_sentence(why), []).append(_line(statement))
    return needing


def forests(book: console.Book) -> dict[str, str]:
    """All statements with their effects and intervals, as SVG, by document; "" for all."""
    every = [statement for statement in statements(book) if statement.effects]
    papers = list(dict.fromkeys(statement.item["paper"] for statement in every))
    if len(every) <= MANY or len(papers) < 2:
        return {"": _forest(every, "holds")} if every else {}
    return {
        paper: _forest([o for o in every if o.item["paper"] == paper], f"holds{place or ''}")
        for place, paper in enumerate(papers)
    }


def _forest(every: list[Statement], name: str) -> str:
    units = ([one for one in every if one.effects[0]["points"] is unit] for unit in (True, False))
    panels = [panel for panel in units if panel]
    heights = [len(panel) + 2 for panel in panels]
    with pictures.canvas(0.19 * sum(heights) + 0.6, len(panels), ratios=heights) as (figure, _):
        for axes, panel in zip(figure.axes, panels, strict=True):
            _panel(axes, panel)
        for word, colour in COLOURS.items():
            if any(statement.word == word for statement in every):
                figure.axes[0].plot([], [], "o", color=colour, markersize=5, label=word)
        pictures.add_legend(figure, figure.axes[0])
        return pictures.as_svg(figure, name)


def _panel(axes: Any, panel: list[Statement]) -> None:
    points = panel[0].effects[0]["points"]
    for place, statement in enumerate(panel):
        colour = COLOURS[statement.word]
        for k, effect in enumerate(statement.effects):
            ends = effect["low"], effect["high"]
            width, alpha = (0.7, 0.6) if k else (2.2, 1)
            if None not in ends:
                axes.plot(ends, [place] * 2, color=colour, linewidth=width, alpha=alpha)
            mark, size = ("|", 4) if k else ("o", 5)
            axes.plot(effect["ours"], place, mark, color=colour, markersize=size)
    axes.axvline(0, color=pictures.INK, linewidth=0.8)
    axes.set_xscale("symlog", linthresh=LINEAR if points else LINEAR / 10)
    if points:
        axes.axvspan(-MARGIN, MARGIN, color=pictures.INK, alpha=0.08, linewidth=0)
        left, right = axes.get_xlim()
        ticks = [tick for tick in TICKS if left <= tick <= right]
        axes.set_xticks(ticks, [minus(f"{tick:g}") for tick in ticks])
    texts = [f"{row.item['name']}  {row.claim['text'].rstrip('.')}" for row in panel]
    texts = [t if len(t) <= LETTERS else f"{t[: LETTERS - 1]}\u2026" for t in texts]
    axes.set_yticks(range(len(panel)), texts)
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.set_ylim(len(panel) - 0.4, -0.6)
    unit = "points" if points else "in its own unit"
    axes.set_xlabel(f"difference in the statement's favour, {unit}")


def page(book: console.Book) -> str:
    """The page's text."""
    items = book["items"]
    names = items[0]["name"] if len(items) == 1 else f"{len(items)} tables and figures"
    return render(
        "reproduction.html",
        window=f" reproduces {names}",
        heading=f"Reproduction of {names}",
        lab_note=console.LAB_NOTE if any(item["scale"] == "lab" for item in items) else "",
        run=book["run"],
        scales=dict(sorted((item["scale"], item["scale_title"]) for item in items)),
        rule=RULE,
        words=WORDS,
        items=[_item(item) for item in items],
        pictures=list(forests(book).values()) if len(items) > 1 else [],
        explained=EXPLAINED,
        console=console,
        draw=draw,
    )


def _item(item: console.ItemEntry) -> Json:
    """An item, its columns and rows with values, and the number of rows that were run."""
    wanted = [row for row in item["rows"] if row["kind"] in ("train", "encoder", "blocked")]
    count = sum(any("ours" in c for c in row["cells"].values()) for row in wanted)
    rows = [row for row in item["rows"] if row["cells"] or row["facts"]]
    named = {name for row in rows for name in (*row["cells"], *row["facts"])}
    return {
        **item,
        "words": [claim["verdict"]["word"] for claim in item["claims"]],
        "made": count,
        "wanted": len(wanted),
        "tabled": rows,
        "shown": [column for column in item["columns"] if column["name"] in named],
    }


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


def write_figures(folder: Path, book: console.Book) -> list[Path]:
    """Write the figures of a book into a folder, one SVG file an item."""
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
        colour = pictures.COLOURS[i % len(pictures.COLOURS)]
        line_points = [p for p in points if p["line"] == line]
        ours, published = ([p for p in line_points if key in p] for key in ("ours", "paper"))
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
            # The legend belongs to the panel's own axes.
            axes.plot([], [], "o--", label=label, **style)
    axes.set_xticks(range(len(places)), [str(p) for p in places])


def curves(figure: Json) -> str:
    """Quality against steps: a thick line a row, the mean of its seeds, and a thin one each."""
    with pictures.canvas(4.4) as (drawing, axes):
        for i, (name, seeds) in enumerate(figure["rows"].items()):
            steps = sorted(set.intersection(*({step for step, _ in seed} for seed in seeds)))
            values = [[100 * dict(seed)[step] for step in steps] for seed in seeds]
            colour = pictures.colour(i)
            for run_values in values if len(values) > 1 else ():
                axes.plot(steps, run_values, color=colour, linewidth=0.5, alpha=0.5)
            mean = [sum(scores) / len(scores) for scores in zip(*values, strict=True)]
            axes.plot(steps, mean, color=colour, linewidth=1.8, label=name)
            axes.plot(steps[-1:], mean[-1:], pictures.mark(i), color=colour, markersize=5)
        axes.set_xlabel("steps")
        axes.set_ylabel("Spearman's correlation, points")
        pictures.add_legend(drawing, axes)
        return pictures.as_svg(drawing, "curves")
