"""``contrasent adapt SOURCE -o MODEL``."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrasent.cli import options

if TYPE_CHECKING:
    from contrasent.adapt.shipping import Adaptation
    from contrasent.documents.folder import Documents

DEFAULT_BASE = "all-MiniLM-L6-v2"
NOT_IMPROVED = 3
AdaptedModel = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for the model, its index and its report.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a killed run.")]


@options.command
def adapt(
    source: Path,
    output: AdaptedModel,
    base: str | None = None,
    update: Path | None = None,
    budget: str = "30m",
    queries: Path | None = None,
    collection: Path | None = None,
    clicks: Path | None = None,
    columns: str | None = None,
    max_file_text: Annotated[int, typer.Option(min=1, metavar="CHARACTERS")] = 5_000_000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    report: Path | None = None,
    require_improvement: bool = False,
    resume: Resume = False,
    overwrite: options.Overwrite = False,
) -> options.Output:
    """Try to improve search in your documents, and keep what is proven better.

    No labels are needed: queries are made of the documents. Tried are words (BM25) with the base's
    vectors, the base whitened, and the base with a linear map learnt from the documents. The best
    is kept only if it beats the base on documents that nothing has used until then. With --queries
    or --collection, from 40 queries on, these teach instead, and each is judged by a map that it
    did not teach.

    Options:
        source: Documents: a folder, a zip archive or a file. See the docs.
        base: Model to begin from (left out: the installed base for the language).
        update: Begin from the folder of an earlier adapt instead. SOURCE is new text; little
            is forgotten.
        budget: Time to spend at most, about: 90s, 30m, 2h.
        queries: User queries, which teach: csv, tsv or jsonl, query, document and perhaps gain.
        collection: The same as a folder in BEIR's layout.
        clicks: Documents that people opened: csv, tsv or jsonl, query, document and count.
        columns: Columns of tables to read, with commas; title first.
        max_file_text: Leave out files with more text than so many characters.
        seed: Seed of everything random.
        report: Copy the report's page there (MODEL/report.html).
        require_improvement: Exit with 3 if the base is kept.
    """
    done = carry_out(
        source,
        output,
        base=base,
        update=update,
        budget=options.parse_budget(budget),
        queries=queries,
        collection=collection,
        clicks=clicks,
        columns=[part.strip() for part in columns.split(",")] if columns else None,
        max_file_text=max_file_text,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
    )
    if report is not None:
        from contrasent.files import write_text

        write_text(report, (done.folder / "report.html").read_text("utf-8"))
    status = 0 if done.improved or not require_improvement else NOT_IMPROVED
    return options.Output({**done.facts, "folder": str(done.folder)}, summary(done), status=status)


def carry_out(source: "Path | Documents", output: Path, **given: Any) -> "Adaptation":
    """Adapt, with a line for each step and its time on standard error."""
    from contrasent.adapt.run import adapt as run

    began = time.monotonic()

    def say(line: str) -> None:
        options.note(f"[{time.monotonic() - began:4.0f} s] {line}")

    with options.resumable(f"--resume goes on with {output}"):
        return run(source, output, say=say, **given)


def summary(done: "Adaptation") -> str:
    """The outcome: numbers, what to type next, and the verdict in the last line."""
    verdict, lines = done.verdict, []
    for kind, one in verdict.kinds.items():
        line = f"{kind:32s} {one.before:.3f} -> {one.after:.3f}"
        if (gain := one.difference) is not None:
            line += f"  {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
        lines.append(f"{line}  ({one.queries} queries)")
    if (general := verdict.general) is not None:
        lines.append(f"{general.task:32s} {general.before:.3f} -> {general.after:.3f}")
    base = "base" if verdict.old is None else "earlier model"
    what = f"{done.shipped.name} is shipped"
    if not done.improved:
        words = done.shipped.fusion
        how = "unchanged" if words is None else f"with BM25 {words.word_weight:g}"
        what = f"the {base} is shipped, {how}"
    return "\n".join(
        [
            *lines,
            *(f"note: {line}" for line in done.facts["advice"]),
            f'search it: contrasent search {done.folder}/index "..."',
            f"report: {done.folder}/report.html",
            f"{done.folder}: {what}: {verdict.reason}",
        ]
    )
