"""Finding and reading the files of named data sets; every problem names file and line."""

import os
from collections.abc import Sequence
from pathlib import Path

from contrasent.errors import DataError

VARIABLE = "CONTRASENT_DATA"
ROOTS = ("SentEval/downstream", "SentEval/data/downstream", "downstream")


def data_folder() -> Path | None:
    """The folder that ``CONTRASENT_DATA`` names, or None.

    Raises:
        DataError: the variable names something that is no folder.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    path = Path(value)
    if not path.is_dir():
        raise DataError(f"{VARIABLE}={value}: no such folder; unset it or name the data's folder")
    return path


def find(places: Sequence[str], folder: Path | None) -> Path | None:
    """The first of several places below the data folder that is a file, or None.

    Args:
        places: below the data folder, the usual one first.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.
    """
    root = folder if folder is not None else data_folder()
    if root is None:
        return None
    return next((root / place for place in places if (root / place).is_file()), None)


def need(task: str, places: Sequence[str], folder: Path | None, why: str) -> Path:
    """The file of a data set that has no copy on the hub.

    Args:
        task: its name, for messages.
        places: below the data folder, the usual one first.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.
        why: that there is no copy, for messages.

    Raises:
        DataError: it is in none of the places.
    """
    path = find(places, folder)
    if path is None:
        raise DataError(missing(task, places[0], why))
    return path


def missing(task: str, place: str, why: str) -> str:
    """The message for a data set that is nowhere: what to put where.

    Args:
        task: its name.
        place: where it belongs.
        why: no copy was fetched.
    """
    root = data_folder()
    where = f"{root}/{place}" if root else f"{place} in a folder that {VARIABLE} names"
    return f"{task}: not found, and {why}; put the file at {where}"


def read_lines(path: Path, *, fallback: str | None = None) -> list[str]:
    """The lines of a UTF-8 file without their ends; only a line feed ends a line.

    Args:
        path: the file.
        fallback: another encoding to try, for files whose publisher used it.

    Raises:
        DataError: bytes that are no UTF-8; file and line are named.
    """
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
    """Refuse a file that has not the official number of rows.

    Args:
        path: the file.
        found: its rows.
        expected: official rows.
        unit: what a row is, for the message.
    """
    if found != expected:
        raise DataError(
            f"{path}: {found:,} {unit}, the official file has {expected:,}; fetch it again"
        )
