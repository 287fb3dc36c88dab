"""``contrasent adapt SOURCE|INDEX -o OUT``, and with --update an OUT learns again."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options
from contrasent.errors import UserError, see
from contrasent.files import check_file

if TYPE_CHECKING:
    from contrasent.adapt.run import Adaptation
    from contrasent.documents.folder import Documents

DEFAULT_BASE = "all-MiniLM-L6-v2"
NOT_IMPROVED = 3
Resume = Annotated[bool, typer.Option("--resume", help="Continue a killed run.")]
Paths = Annotated[list[Path] | None, typer.Option()]


@options.command
def adapt(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE|INDEX")],
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    model: str | None = None,
    queries: Paths = None,
    collection: Paths = None,
    clicks: Paths = None,
    budget: str = "30m",
    update: bool = False,
    train_encoder: bool = False,
    columns: str | None = None,
    max_file_text: Annotated[int, typer.Option(min=1, metavar="CHARACTERS")] = 5_000_000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    report: Path | None = None,
    require_improvement: bool = False,
    resume: Resume = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Make documents searchable, and improve the search with your text and user queries.

    The search of 'contrasent index' is the default. With 40 user queries or more, a search trained
    on them replaces it if cross-validation proves a gain. With fewer queries, what is learned from
    the text alone is saved, but not measured.

    Options:
        source: Folder, zip archive, file or index; with --update the output of an earlier adapt.
        output: Folder for the index and the report.
        model: Model to encode with. [default: the installed base for the language]
        queries: User queries to learn from: csv, tsv or jsonl with query, document and optionally
            gain; can be repeated.
        collection: The same as a folder in BEIR's layout.
        clicks: Documents that users opened: csv, tsv or jsonl with query, document and count.
        budget: Time limit: 90s, 30m, 2h.
        update: Follow changed documents and learn again in place, including earlier queries.
        train_encoder: Train the base on the queries first; needs the extra 'train' and additional
            time.
        columns: Columns of tables to read, separated by commas; title first.
        max_file_text: Skip files with more text than this many characters.
        seed: Random seed.
        report: Copy the page OUT/report.html there.
        require_improvement: Exit with status 3 unless a gain is proven.
    """
    within = output is not None and output.absolute() in getattr(report, "parents", ())
    if report is not None and not within:  # OUT is checked later, and must not be made here
        check_file(report)
    people: dict[str, Any] = {"queries": queries, "collection": collection, "clicks": clicks}
    people |= {"budget": options.parse_budget(budget), "seed": seed}
    if update:
        allowed = (*people, "source", "update", "resume", "report", "require_improvement")
        options.check_alone(context, "--update", *allowed)
        done = carry_out(Path(source), None, **people)
    elif output is None:
        raise UserError("--output/-o (folder for the index and the report) is missing")
    else:
        done = carry_out(
            source,
            output,
            model=model,
            columns=options.listed(columns) or None,
            max_file_text=max_file_text,
            train_encoder=train_encoder,
            resume=resume,
            overwrite=overwrite,
            **people,
        )
    if report is not None:
        from contrasent.files import write_text

        write_text(report, (done.folder / "report.html").read_text("utf-8"))
    status = 0 if done.improved or not require_improvement else NOT_IMPROVED
    return options.Output({**done.facts, "folder": str(done.folder)}, summary(done), status=status)


def carry_out(source: "str | Path | Documents", output: Path | None, **given: Any) -> "Adaptation":
    """Adapt, with a line for each step and its time on standard error."""
    from contrasent.adapt.run import STATE, adapt_index, update_adaptation

    began = time.monotonic()

    def log(line: str) -> None:
        options.note(f"[{time.monotonic() - began:4.0f} s] {line}")

    if output is None:
        return update_adaptation(source, log=log, **given)  # type: ignore[arg-type]
    try:
        return adapt_index(source, output, log=log, **given)
    except KeyboardInterrupt:
        how = f"--resume continues {output}"
        if given.get("overwrite") and not (output / STATE).is_file():  # documents are being read
            how = f"{output} is as it was; the same command begins again"
        with options.resumable(how):
            raise


def summary(done: "Adaptation") -> str:
    """The verdict, the evidence, and the next commands."""
    verdict = f"{done.folder}: {done.reason}{'' if done.improved else see('no-gain')}"
    evidence = [f"    {name:34s} {text}" for name, text in done.facts["statements"]]
    search = f'search: contrasent search {done.folder} "..."'
    return "\n".join([verdict, *evidence, search, f"report: {done.folder}/report.html"])
