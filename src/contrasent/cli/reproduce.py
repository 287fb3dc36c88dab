"""``contrasent reproduce ITEM...``."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.errors import InputError, OptionError

if TYPE_CHECKING:
    from contrasent.reproduce.plan import Planner
    from contrasent.reproduce.tables import Item, ItemFolder, ScaleName

RESULTS = Path("reproduction")
OF_A_RUN = ("assign", "sentences", "seeds", "jobs", "budget", "base", "checkpoint", "results")
FOLDER: Any = {"exists": True, "file_okay": False}


@options.command
def reproduce(
    context: typer.Context,
    items: Annotated[list[str] | None, typer.Argument(metavar="ITEM...")] = None,
    listing: Annotated[bool, typer.Option("--list")] = False,
    check: bool = False,
    scale: str | None = None,
    assign: Annotated[list[str] | None, typer.Option("--set")] = None,
    sentences: Annotated[int | None, typer.Option(min=0)] = None,
    seeds: Annotated[int | None, typer.Option(min=1)] = None,
    jobs: Annotated[int, typer.Option(min=1)] = 1,
    budget: str | None = None,
    base: str | None = None,
    checkpoint: list[str] | None = None,
    results: Path = RESULTS,
    stored: Annotated[Path | None, typer.Option("--from", metavar="RESULTS", **FOLDER)] = None,
    row: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    report: Annotated[list[Path] | None, typer.Option(metavar="FILE")] = None,
    figures: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    json_file: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    own: Annotated[Path | None, typer.Option("--recipes", **FOLDER)] = None,
) -> None:
    """Run tables and figures of the papers, and show which statements hold.

    Can be stopped at any time; the same command continues. At scale lab only directions and orders
    are compared, not values.

    Options:
        items: simcse:table1, a paper's name, or all.
        listing: List every table and figure, and exit.
        check: Read and check the items, or all of them, and exit without computing.
        scale: lab or paper. [default: paper with a GPU, lab without]
        assign: Change the scale's runs, such as max_steps=500; can be repeated.
        sentences: Rows drawn from each corpus; 0 for all.
        seeds: Runs of each row. [default: each item's own]
        jobs: Number of processes.
        budget: Start nothing after this time, such as 30m or 2h.
        base: Encoder to start from. [default: the scale's own]
        checkpoint: NAME=FOLDER for a checkpoint that an item names; can be repeated.
        results: Folder of results, created or continued.
        stored: Report stored results from this folder, or from its folder results, without
            computing.
        row: Add a row with your own scores: a report of evaluate --json-file, or a csv with the
            header task,value; can be repeated.
        report: Write the tables and statements as Markdown (.md), the tables for LaTeX with
            booktabs (.tex), or every cell (.csv); can be repeated.
        figures: Write every figure as an SVG file.
        json_file: Write all numbers as JSON.
        own: Folder of items, instead of the package's own.
    """
    for name in ("contrasent.model.base", "contrasent.train.prepare"):
        logging.getLogger(name).setLevel(logging.ERROR)
    from contrasent.files import write_text
    from contrasent.reproduce.tables import SCALES, ItemFolder

    folder = ItemFolder(own) if own else ItemFolder()
    if listing or check:
        options.echo(_listed(folder) if listing else _checked(folder, items or ()))
        return
    if not items:
        raise OptionError("ITEM", "", "name a table or figure, a paper, or all (--list shows them)")
    wanted = folder.find(items)
    if scale is not None and scale not in SCALES:
        raise OptionError("--scale", scale, "unknown", choices=SCALES)
    most = options.parse_budget(budget) if budget is not None else None
    files = _checked_targets(report or (), json_file, figures)
    chosen: ScaleName | None = scale
    if stored is not None:
        options.check_used(context, dict.fromkeys(OF_A_RUN, "a run; --from computes nothing"))
        stored = _results_in(stored)
    else:
        import torch

        chosen = chosen or ("paper" if torch.cuda.is_available() else "lab")
        from contrasent.datasets.official import data_folder
        from contrasent.reproduce.plan import Planner
        from contrasent.train.settings import assignments

        named = assignments(checkpoint or [], "--checkpoint", "NAME=FOLDER")
        size = folder.scales[chosen].with_changes(assignments(assign or []), sentences)
        planner = Planner(
            results, data_folder(), size, folder.corpora, base=base or "", checkpoints=named
        )
        _compute(wanted, planner, seeds, jobs=jobs, budget=most)
    from contrasent.reproduce.console import text
    from contrasent.reproduce.results import add_row, book

    if stored is not None:
        wanted = _stored(wanted, items, stored, folder)
    contents = book(wanted, stored or results, chosen)
    for path in row or ():
        add_row(contents, wanted, path)
    options.echo(text(contents))
    for path, form in files.items():
        write_text(path, form(contents))
    if figures is not None:
        from contrasent.reproduce.figures import write_figures

        files |= dict.fromkeys(write_figures(figures, contents))
    for path in files:
        options.note(f"wrote {path}")


def _checked_targets(
    reports: Sequence[Path], json_file: Path | None, figures: Path | None
) -> "dict[Path, Any]":
    """The files that are requested, each with the form of its report, before any work."""
    from contrasent.files import check_file
    from contrasent.reproduce.console import REPORTS, numbers

    for target in reports:
        if target.suffix not in REPORTS:
            problem = "unknown kind of report (by its suffix)"
            raise OptionError("--report", str(target), problem, choices=REPORTS)
    files = {json_file: numbers} if json_file is not None else {}
    files |= {target: REPORTS[target.suffix] for target in reports}
    for target in files:
        check_file(target)
    if figures is not None:
        from contrasent.pictures import check_matplotlib

        check_matplotlib()
    return files


def _listed(folder: "ItemFolder") -> str:
    from contrasent.reproduce.tables import COSTS

    lines, paper = list[str](), ""
    # Without the settings of rows, which would import every objective and torch.
    items = folder.all(settings=False)
    for item in items:
        if item.paper != paper:
            paper = item.paper
            lines += ["", paper]
        runs = sum(row.kind == "train" for row in item.rows)
        size = f"{len(item.rows):>3} rows {runs:>3} trained"
        lines.append(f"  {item.name:<26} {item.cost:<7} {size}  {item.title}")
    costs = "; ".join(f"{name}: {text}" for name, text in COSTS.items())
    return "\n".join([*lines[1:], "", f"{len(items)} items. Cost {costs}."])


def _results_in(folder: Path) -> Path:
    """The folder of results that was named, or the one inside it."""
    for place in (folder, folder / "results"):
        if (place / "items").is_dir():
            return place
    raise InputError(folder, "contains no results of reproduce, nor does its folder results")


def _stored(
    wanted: "list[Item]", names: Sequence[str], results: Path, folder: "ItemFolder"
) -> "list[Item]":
    """The items that a folder has results of; there must be some for each name."""
    from contrasent.reproduce.results import is_stored

    there = [item for item in wanted if is_stored(item.name, results)]
    for name in names:
        if not any(name in ("all", item.name, item.name.split(":")[0]) for item in there):
            known = ", ".join(filter(lambda one: is_stored(one, results), folder.files()))
            problem = f"has no results of {name}; it has {known or 'those of other items'}"
            raise InputError(results, problem)
    return there


def _checked(folder: "ItemFolder", names: Sequence[str]) -> str:
    items = folder.find(names) if names else folder.all()
    rows = [row for item in items for row in item.rows]
    values, claims = sum(len(row.expected) for row in rows), sum(len(item.claims) for item in items)
    return (
        f"checked {len(items):,} items, {len(rows):,} rows, {values:,} published values, "
        f"{claims:,} claims"
    )


def _compute(items: "list[Item]", planner: "Planner", seeds: int | None, **choices: Any) -> None:
    from contrasent.files import check_writable
    from contrasent.progress import duration
    from contrasent.reproduce.run import missing, run

    store = planner.store
    check_writable(store.home)
    with options.resumable("the same command continues"):
        plan = planner.plan(items, seeds)
        todo = missing(plan.jobs, store)
        options.note(f"{len(todo)} of {len(plan.jobs)} jobs to do in {store.home}")
        began = time.monotonic()
        made, left = run(plan, store, planner.data, log=options.note, **choices)
    rest = f"; {left} jobs remain" if left else ""
    options.note(f"{made} measurements in {duration(time.monotonic() - began)}{rest}")
