"""``contrasent data list`` and ``contrasent data get NAME -o FILE``."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from contrasent.cli.options import (
    DataFolder,
    Json,
    Overwrite,
    Quiet,
    check_folder,
    check_new,
    emit,
    note_to_stderr,
    quieten,
)
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
def list_(folder: DataFolder = None, as_json: Json = False) -> None:
    """Show every named data set: its rows by split, and where it would be read from."""
    from contrasent.text.catalogue import entries, locate

    check_folder(folder)
    found = [(entry, locate(entry, folder)) for entry in entries()]
    if as_json:
        emit(
            [
                {"name": e.name, "kind": e.kind, "rows": e.rows, "hub": e.hub, "places": places}
                for e, places in found
            ]
        )
        return
    for entry, places in found:
        rows = ", ".join(f"{split} {count:,}" for split, count in entry.rows.items())
        typer.echo(f"{entry.name:10}  {entry.kind:10}  {rows}")
        for form, place in places.items():
            where = place or f"not here; put it at {entry.places[0]} in CONTRASENT_DATA's folder"
            if not place and form == "raw":
                where = "not here, and no pinned copy on the hub"
            typer.echo(f"{'':12}{form + ': ' if form else ''}{where}")


@data.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A data set, as `contrasent data list` names it.")],
    output: Annotated[Path, typer.Option("-o", "--output", help=".tsv, .csv, .jsonl or .txt")],
    split: Annotated[
        str | None, typer.Option(help="train, dev, test or all; test if it has one.")
    ] = None,
    form: Annotated[
        str | None, typer.Option(help="Similarity text: senteval (the default) or raw.")
    ] = None,
    folder: DataFolder = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write a named data set to a file, checked against the official counts and scores.

    A table keeps all columns under a header; a .txt file holds each distinct sentence once, as
    `train`, `postprocess` and `index` take it.
    """
    quieten(quiet)
    if output.suffix not in SUFFIXES:
        raise OptionError("-o", str(output), "must end in .tsv, .csv, .jsonl or .txt")
    check_folder(folder)
    check_new(output, overwrite)
    from contrasent.text.catalogue import table

    columns, rows = table(name, split=split, form=form, folder=folder)
    written = _write(output, columns, rows)
    note_to_stderr(f"wrote {output}: {written:,} rows", quiet=quiet)


def _write(output: Path, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> int:
    from contrasent.files import atomic_file

    lines = list(_lines(output.suffix, columns, rows))
    with atomic_file(output) as stream:
        stream.writelines(lines)
    return len(lines) - (output.suffix in (".tsv", ".csv"))


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
