"""Writing rows of results to a JSON-lines file, as several commands do."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from contrasent.cli.options import check_new
from contrasent.errors import OptionError
from contrasent.files import atomic_file

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write all of it to FILE.jsonl.")
]


def check_listing(output: Path | None, overwrite: bool) -> None:
    """Refuse, before any work, a file that cannot or must not be written."""
    if output is None:
        return
    if output.suffix != ".jsonl":
        raise OptionError("-o", str(output), "must end in .jsonl")
    check_new(output, overwrite)


def write_listing(output: Path, rows: Iterable[Any]) -> None:
    """One JSON value a line, atomically."""
    with atomic_file(output) as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
