"""One file, or rows in memory, with its columns chosen; and what a single cell may hold."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrasent.errors import InputError, OptionError
from contrasent.text.readers import ABSENT, Reading, Record, brief, content, read, read_parquet
from contrasent.text.sources import Source

Columns = Sequence[str | int]
"""Columns by name, or by position from 0."""

MEMORY = "rows in memory"

HEADER_LENGTH = 80
"""Characters in a column's name: beyond it a first row is taken for data, not for a header."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is read anew as often as one likes.

    Attributes:
        source: what the user called it, for messages.
        names: of the chosen columns; their positions where they have no names.
        choice: what was chosen and how it is read, for a digest.
        rows: starts to read the rows, chosen columns only.
        content: starts to read the bytes behind them.
    """

    source: str
    names: tuple[str, ...]
    named: bool
    choice: str
    rows: Callable[[], Iterator[Record]]
    content: Callable[[], Iterator[bytes]]


def checked(columns: Columns | None) -> Columns | None:
    """Take one name for a list of one, and refuse a list of none."""
    if isinstance(columns, str):
        return (columns,)
    if columns is not None and len(columns) == 0:
        raise OptionError("columns", list(columns), "choose at least one column")
    return columns


def open_table(
    file: Source,
    columns: Columns | None,
    *,
    text_only: bool,
    score: str | int | None = None,
) -> Table | None:
    """Read the head of a file and choose its columns."""
    header = columns is None or any(isinstance(column, str) for column in (*columns, score))

    def again() -> Reading:
        return read(file.path, file.form, header=header, source=file.shown)

    head = again()
    first = next((cells for _, cells in head.rows if cells is not None), None)
    if first is None:
        if head.names and file.form in (".csv", ".tsv"):
            problem = "one row only, the header; choose columns by position if it has none"
            raise InputError(file.shown, problem)
        return None
    last = _scores_column(head, first, score, file.shown)
    chosen = (
        _every_column(head, first, file, text_only, last)
        if columns is None
        else tuple(position(head, len(first), one, file.shown) for one in columns)
    ) + last
    names = tuple(head.names[i] if head.names else str(i) for i in chosen)

    def rows() -> Iterator[Record]:
        if file.form == ".parquet":  # other columns are not even read
            return read_parquet(file.path, file.shown, names).rows
        return _pick(again().rows, chosen)

    return Table(
        source=file.shown,
        names=names,
        named=head.names is not None,
        choice=f"{file.form} {names if head.names else chosen}",
        rows=rows,
        content=lambda: content(file.path, file.shown),
    )


def memory_table(
    texts: Iterable[str | Sequence[Any]], columns: Columns | None, score: str | int | None = None
) -> Table:
    """Rows that are in memory already, as a table without names; ``score`` as in ``open_table``."""
    held = [
        tuple(row) if isinstance(row, Iterable) and not isinstance(row, str) else (row,)
        for row in texts
    ]
    if not held:
        raise InputError(MEMORY, "there are none")
    width = len(held[0])
    head = Reading(None, iter(()))
    last = _scores_column(head, held[0], score, MEMORY)
    chosen = tuple(at for at in range(width) if at not in last)
    if columns is not None:
        chosen = tuple(position(head, width, one, MEMORY) for one in columns)
    chosen += last

    def rows() -> Iterator[Record]:
        for number, row in enumerate(held, 1):
            if len(row) != width:
                problem = f"{len(row)} columns where the first row has {width}"
                raise InputError(MEMORY, problem, line=number)
            yield number, [row[at] for at in chosen]

    def hashed() -> Iterator[bytes]:
        for row in held:
            for text in row:
                data = str(text).encode(errors="surrogatepass")
                yield len(data).to_bytes(8, "little") + data

    names = tuple(map(str, chosen))
    return Table(MEMORY, names, False, f"memory {width} {chosen}", rows, hashed)


def check_same_columns(first: Table, other: Table) -> None:
    """Refuse a file of a folder whose columns are not those of the folder's first file."""
    same = len(first.names) == len(other.names)
    if same and first.named and other.named:
        same = first.names == other.names
    if not same:
        raise InputError(
            other.source,
            f"the file gives {_listed(other.names)} where {Path(first.source).name} gives "
            f"{_listed(first.names)}; files of one folder must have the same columns",
        )


def text_cell(value: Any, column: str, source: str, line: int) -> str:
    """A cell's text, without the white space around it."""
    if not isinstance(value, str):
        where = f"column {column!r}" if column else "the row"
        what = (
            "is missing" if value is None or value is ABSENT else f"holds {brief(value)}, no text"
        )
        raise InputError(source, f"{where} {what}", line=line)
    text = value.strip()
    if not text:
        where = f" in column {column!r}" if column else ""
        raise InputError(source, f"blank sentence{where}; remove the row", line=line)
    if "\0" in text:
        raise InputError(source, "the text holds a NUL byte; is this a text file?", line=line)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            problem = f"half a surrogate pair, {text[error.start]!r}, is no character"
            raise InputError(source, problem, line=line) from None
    return text


def number_cell(value: Any, column: str, source: str, line: int) -> float:
    """A cell's number."""
    number = _as_number(value)
    if number is None:
        problem = f"label {brief(value)} is not a number (column {column!r})"
        if value is ABSENT or value is None:
            problem = f"the label is missing (column {column!r})"
        elif line == 1:
            problem += "; if the first line is a header, choose columns by name"
        raise InputError(source, problem, line=line)
    if not math.isfinite(number):
        raise InputError(source, f"label {brief(value)} is not a finite number", line=line)
    return number


def _as_number(value: Any) -> float | None:
    if isinstance(value, str) and "_" in value:  # Python reads 1_000, data files do not mean it
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _pick(rows: Iterator[Record], chosen: tuple[int, ...]) -> Iterator[Record]:
    for number, cells in rows:
        yield number, None if cells is None else [cells[at] for at in chosen]


def _scores_column(
    head: Reading, first: Sequence[Any], score: str | int | None, source: str
) -> tuple[int, ...]:
    """The position of the scores, or none."""
    return () if score is None else (position(head, len(first), score, source, "score"),)


def _every_column(
    head: Reading, first: Sequence[Any], file: Source, text_only: bool, last: tuple[int, ...]
) -> tuple[int, ...]:
    others = [i for i in range(len(first)) if i not in last]
    if file.form in (".csv", ".tsv"):
        names = head.names or ()
        _check_header(names, file.shown)
        for i in others:
            if text_only and _as_number(first[i]) is not None:
                problem = f"column {names[i]!r} holds numbers ({first[i]!r}); choose columns of "
                raise InputError(file.shown, problem + _listed(names))
        return tuple(others)
    text = head.text or tuple(isinstance(cell, str) for cell in first)
    chosen = tuple(i for i in others if text[i] or not text_only)
    if not chosen:
        names = head.names or tuple(str(i) for i in range(len(first)))
        raise InputError(file.shown, f"no column of {_listed(names)} holds text")
    return chosen


def _check_header(names: Sequence[str], source: str) -> None:
    """Refuse a first row that reads like data, which would be lost without a word."""
    if len(names) == 1 and (other := next((c for c in "\t;,|" if c in names[0]), None)):
        problem = (
            f"the first row is one column with {other!r} in it, {brief(names[0])}; columns are "
            "separated by a comma in .csv, by a tab in .tsv"
        )
        raise InputError(source, problem)
    for name in names:
        sentence = " " in name and name.endswith((".", "!", "?"))
        if not name:
            doubt = "holds an empty name"
        elif names.count(name) > 1:
            doubt = f"holds {brief(name)} twice"
        elif sentence or len(name) > HEADER_LENGTH or _as_number(name) is not None:
            doubt = f"reads like data, {brief(name)}"
        else:
            continue
        problem = f"the first row must name the columns but {doubt}; choose columns by position "
        raise InputError(source, f"{problem}(0, 1, ...) if it is no header, by name if it is one")


def position(
    head: Reading, width: int, column: str | int, source: str, option: str = "columns"
) -> int:
    """Where a column stands."""
    if not isinstance(column, str):
        if not 0 <= column < width:
            problem = f"{source} has columns 0 to {width - 1}"
            raise OptionError(option, column, problem)
        return column
    if head.names is None:
        problem = f"the columns of {source} have no names; choose by position, 0 to {width - 1}"
        raise OptionError(option, column, problem)
    if column not in head.names:
        raise OptionError(option, column, f"no such column in {source}", choices=head.names)
    return head.names.index(column)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
