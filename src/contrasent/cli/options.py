"""Options that several commands share, with one name and one help text each."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from contrasent import progress
from contrasent.errors import OptionError, OutputError
from contrasent.files import check_writable

ModelName = Annotated[str, typer.Argument(help="Model folder or name.")]
IndexFolder = Annotated[Path, typer.Argument(help="Index folder.")]
Column = Annotated[
    str | None, typer.Option(help="Column with the text, by name or position from 0.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")]
BatchSize = Annotated[int, typer.Option("--batch", min=1, help="Sentences a forward pass.")]
Pooler = Annotated[
    str | None,
    typer.Option(help="How a bare encoder, which does not say, pools: cls, mean, max, ..."),
]
MaxTokens = Annotated[
    int | None, typer.Option(help="Cut texts at this many tokens; the model's own if not given.")
]
Runtime = Annotated[
    str | None,
    typer.Option(
        help="What computes: torch, onnx, onnx-int8, openvino, openvino-int8 (see 'contrasent "
        "export'), or auto: the fastest, by a short measurement, of those with torch's vectors."
    ),
]
BatchInvariant = Annotated[
    bool,
    typer.Option(
        "--batch-invariant",
        help="The same bits whatever the batch and the order; slower, see docs.",
    ),
]
Invariant = Annotated[bool, typer.Option("--invariant", hidden=True)]
"""The former name of --batch-invariant."""
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Data folder, instead of CONTRASENT_DATA's.")
]
StsForm = Annotated[
    str, typer.Option("--form", help="STS text: senteval (tokenised, lower-cased) or raw.")
]
StsTask = Annotated[
    list[str] | None, typer.Option("--task", help="STS set, such as STSB; can be repeated.")
]
StsSplit = Annotated[str, typer.Option("--split", help="STS split: test, dev or train.")]
NewModel = Annotated[Path, typer.Option("--output", "-o", help="Model folder to make.")]
Hybrid = Annotated[
    bool | None,
    typer.Option(
        "--hybrid/--dense",
        help="Search by words (BM25) and vectors together, or by vectors alone. [default: as the "
        "index was made]",
    ),
]
LexicalWeight = Annotated[
    float | None,
    typer.Option(min=0.0, max=1.0, help="Share of BM25 in hybrid search. [default: 0.2]"),
]


def quieten(quiet: bool) -> None:
    """Choose progress for the process."""
    progress.show("silent" if quiet else "auto")


def emit(data: Any) -> None:
    """Print JSON on standard output."""
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False))


def note_to_stderr(text: str, *, quiet: bool) -> None:
    """A line for people, on standard error."""
    if not quiet:
        typer.echo(text, err=True)


def parse_budget(text: str) -> float:
    """Seconds of a time such as "90", "90s", "30m", "1h30m" or "2d".

    Raises:
        OptionError: it is none.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    plain = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd]?)", plain)
    if not parts or re.sub(r"\s", "", plain) != "".join(n + u for n, u in parts):
        raise OptionError("--budget", text, "write a time such as 90s, 30m or 1h30m")
    return sum(float(number) * units[unit or "s"] for number, unit in parts)


def check_folder(folder: Path | None) -> None:
    """Refuse a data folder that is not there."""
    if folder is not None and not folder.is_dir():
        raise OptionError("--data", str(folder), "no such folder")


def shortened(text: str, width: int = 90) -> str:
    """A text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def check_new(output: Path, replace: bool, what: str = "file") -> None:
    """Refuse, before any work, a target that is not to be replaced or cannot be written."""
    if output.exists() and not replace:
        raise OutputError(f"{output}: exists; choose another {what} or use --overwrite")
    check_writable(output.absolute().parent)


def column_list(names: str | list[str | int] | None) -> list[str | int] | None:
    """Columns by name or position, from "text,2" or a recipe's list."""
    if names is None:
        return None
    parts = names.split(",") if isinstance(names, str) else names
    return [int(p) if str(p).strip().isdigit() else str(p).strip() for p in parts]
