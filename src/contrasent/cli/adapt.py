"""``contrasent adapt SOURCE -o MODEL``."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli.options import (
    Json,
    Overwrite,
    Quiet,
    emit,
    note_to_stderr,
    parse_budget,
    quieten,
)

if TYPE_CHECKING:
    from contrasent.adapt.documents import Documents
    from contrasent.adapt.shipping import Adaptation

DEFAULT_BASE = "all-MiniLM-L6-v2"
NOT_IMPROVED = 3


def adapt(
    source: Annotated[
        Path, typer.Argument(help="Documents: a folder, a zip archive or a file. See the docs.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the model, its index and its report.")
    ],
    base: Annotated[str, typer.Option(help="Model to begin from.")] = DEFAULT_BASE,
    update: Annotated[
        Path | None,
        typer.Option(
            help="Instead: what an earlier adapt left. SOURCE is new text; little is forgotten."
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time to spend, about: 90s, 30m, 2h.")] = "30m",
    queries: Annotated[
        Path | None,
        typer.Option(help="Queries of people: csv, tsv or jsonl with columns query, document."),
    ] = None,
    collection: Annotated[
        Path | None, typer.Option(help="The same as a folder in BEIR's layout.")
    ] = None,
    clicks: Annotated[
        Path | None,
        typer.Option(help="What people opened: csv, tsv or jsonl, query, document and count."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of tables to read, with commas; title first.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    report: Annotated[
        Path | None, typer.Option(help="Copy the report's page there (MODEL/report.html).")
    ] = None,
    require_improvement: Annotated[
        bool, typer.Option("--require-improvement", help="Exit 3 if the base is what is shipped.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a killed run.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make search in your documents better, prove it, and leave what is better, or say no.

    No labels are needed: queries are made of the documents. What is tried: words (BM25) beside the
    base's vectors, the base whitened, trained on the documents, and averaged with what was
    trained. The best is shipped only if it beats the base on documents kept sealed until then.
    """
    quieten(quiet)
    seconds = parse_budget(budget)
    done = carry_out(
        source,
        output,
        quiet=quiet,
        base=base,
        update=update,
        budget=seconds,
        queries=queries,
        collection=collection,
        clicks=clicks,
        columns=[part.strip() for part in columns.split(",")] if columns else None,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
    )
    if report is not None:
        from contrasent.files import atomic_file

        with atomic_file(report) as stream:
            stream.write((done.folder / "report.html").read_text("utf-8"))
    if as_json:
        emit({**done.facts, "folder": str(done.folder)})
    else:
        show(done)
    if require_improvement and not done.improved:
        raise typer.Exit(NOT_IMPROVED)


def carry_out(
    source: "Path | Documents", output: Path, *, quiet: bool, **options: Any
) -> "Adaptation":
    """Adapt, with a line for each step and its time on standard error."""
    from contrasent.adapt.run import adapt as run

    began = time.monotonic()

    def say(line: str) -> None:
        note_to_stderr(f"[{time.monotonic() - began:4.0f} s] {line}", quiet=quiet)

    try:
        return run(source, output, say=say, **options)
    except KeyboardInterrupt:
        note_to_stderr(f"contrasent: stopped; --resume goes on with {output}", quiet=quiet)
        raise


def show(done: "Adaptation") -> None:
    """Print what came of it: numbers, what to type next, and the verdict in the last line."""
    verdict = done.verdict
    for kind, one in verdict.kinds.items():
        line = f"{kind:32s} {one.before:.3f} -> {one.after:.3f}"
        if (gain := one.difference) is not None:
            line += f"  {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
        typer.echo(f"{line}  ({one.queries} queries)")
    if verdict.general is not None:
        general = verdict.general
        typer.echo(f"{general.task:32s} {general.before:.3f} -> {general.after:.3f}")
    for line in done.facts["advice"]:
        typer.echo(f"note: {line}")
    typer.echo(f'search it: contrasent search {done.folder}/index "..."')
    typer.echo(f"report: {done.folder}/report.html")
    base = "base" if verdict.old is None else "earlier model"
    what = (
        f"{done.shipped.name} is shipped" if done.improved else f"the {base} is shipped, unchanged"
    )
    typer.echo(f"{done.folder}: {what}: {verdict.reason}")
