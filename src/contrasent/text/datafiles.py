"""Finding and reading the files of named data sets; every problem names file and line."""

import os
from collections.abc import Sequence
from pathlib import Path

from contrasent.errors import DataError

VARIABLE = "CONTRASENT_DATA"
ROOTS = ("SentEval/downstream", "SentEval/data/downstream", "downstream")


def data_folder() -> Path | None:
    """The folder that ``CONTRASENT_DATA`` names, or None."""
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    path = Path(value)
    if not path.is_dir():
        raise DataError(f"{VARIABLE}={value}: no such folder; unset it or name the data's folder")
    return path


def find(places: Sequence[str], folder: Path | None) -> Path | None:
    """The first of several places below the data folder that is a file, or None."""
    root = folder if folder is not None else data_folder()
    if root is None:
        return None
    return next((root / place for place in places if (root / place).is_file()), None)


def need(task: str, places: Sequence[str], folder: Path | None, why: str) -> Path:
    """The file of a data set that has no copy on the hub."""
    path = find(places, folder)
    if path is None:
        raise DataError(missing(task, places[0], why))
    return path


def missing(task: str, place: str, why: str) -> str:
    """The message for a data set that is nowhere: what to put where."""
    root = data_folder()
    where = f"{root}/{place}" if root else f"{place} in a folder that {VARIABLE} names"
    return f"{task}: not found, and {why}; put the file at {where}"


def read_lines(path: Path, *, fallback: str | None = None) -> list[str]:
    """The lines of a UTF-8 file without their ends; only a line feed ends a line."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if fallback is None:
            line = data.count(b"\n", 0, error.start) + 1
            raise DataError(f"{path}:{line}: not UTF-8; convert the file") from error
        text = data.decode(fallback)
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def check_count(path: Path, found: int, expected: int, unit: str) -> None:
    """Refuse a file that has not the official number of rows."""
    if found != expected:
        raise DataError(
            f"{path}: {found:,} {unit}, the official file has {expected:,}; fetch it again"
        )
