"""``contrasent data list`` and ``contrasent data get NAME -o FILE``."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli import options
from contrasent.cli.usage import Commands
from contrasent.errors import OptionError

data = typer.Typer(
    name="data",
    cls=Commands,
    help="Named data sets: what there is, where it is, and as files.",
    no_args_is_help=True,
)

SUFFIXES = (".tsv", ".csv", ".jsonl", ".txt")


@data.command("list")
@options.command
def list_(folder: options.DataFolder = None) -> options.Output:
    """Show every named data set: its rows by split, and where it would be read from."""
    from contrasent.text.catalogue import entries, locate

    options.check_folder(folder)
    found = [(entry, locate(entry, folder)) for entry in entries()]
    lines = []
    for entry, places in found:
        rows = ", ".join(f"{split} {count:,}" for split, count in entry.rows.items())
        lines.append(f"{entry.name:10}  {entry.kind:10}  {rows}")
        for form, place in places.items():
            where = place or f"not here; put it at {entry.places[0]} in CONTRASENT_DATA's folder"
            if not place and form == "raw":
                where = "not here, and no pinned copy on the hub"
            lines.append(f"{'':12}{form + ': ' if form else ''}{where}")
    facts = [
        {"name": e.name, "kind": e.kind, "rows": e.rows, "hub": e.hub, "places": places}
        for e, places in found
    ]
    return options.Output(facts, "\n".join(lines))


@data.command("get")
@options.command
def get(
    name: str,
    output: Annotated[Path, typer.Option("-o", "--output")],
    split: str | None = None,
    form: str | None = None,
    folder: options.DataFolder = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a named data set to a file, checked against the official counts and scores.

    A table keeps all columns under a header; a .txt file holds each distinct sentence once, as
    `train`, `postprocess` and `index` take it.

    Options:
        name: A data set, as `contrasent data list` names it.
        output: .tsv, .csv, .jsonl or .txt
        split: train, dev, test or all; test if it has one.
        form: Similarity text: senteval (the default) or raw.
    """
    if output.suffix not in SUFFIXES:
        raise OptionError("-o", str(output), "must end in .tsv, .csv, .jsonl or .txt")
    options.check_folder(folder)
    options.check_new(output, overwrite)
    from contrasent.files import atomic_file
    from contrasent.text.catalogue import table

    columns, rows = table(name, split=split, form=form, folder=folder)
    lines = list(_lines(output.suffix, columns, rows))
    with atomic_file(output) as stream:
        stream.writelines(lines)
    written = len(lines) - (output.suffix in (".tsv", ".csv"))
    options.note(f"wrote {output}: {written:,} rows")


def _lines(suffix: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    import csv
    import io
    import json

    if suffix == ".txt":
        texts = [i for i, column in enumerate(columns) if column in ("first", "second", "text")]
        yield from dict.fromkeys(row[i] + "\n" for row in rows for i in texts if row[i])
    elif suffix == ".jsonl":
        for row in rows:
            yield json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n"
    else:
        for row in (columns, *rows):
            line = io.StringIO()
            csv.writer(
                line, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n"
            ).writerow(row)
            yield line.getvalue()
