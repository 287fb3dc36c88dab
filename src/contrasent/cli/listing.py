"""Rows of results in a JSON-lines file, as the commands write them that look at a whole index."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from contrasent.cli.options import check_new
from contrasent.errors import OptionError
from contrasent.files import atomic_file

Listing = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write all of it to FILE.jsonl.")
]


def check_listing(output: Path | None, overwrite: bool, threshold: float | None = None) -> None:
    """Refuse, before any work, what cannot be."""
    if threshold is not None and not -1 <= threshold <= 1:
        raise OptionError("--threshold", threshold, "must lie in -1 to 1")
    if output is not None:
        if output.suffix != ".jsonl":
            raise OptionError("-o", str(output), "must end in .jsonl")
        check_new(output, overwrite)


def write_listing(output: Path | None, rows: Iterable[Any]) -> None:
    """Write one JSON value a line, atomically."""
    if output is not None:
        with atomic_file(output) as stream:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
