"""Files of text, a row at a time: txt, csv, tsv, jsonl and parquet, gzip included.

Each format is one function from a file to a :class:`Reading`: the names of its columns and a stream
of rows. Memory does not grow with the file, and every complaint names the file and the line (in
parquet: the row).
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from contrasent.errors import InputError, import_extra

Record = tuple[int, Sequence[Any] | None]
"""A line's number, from 1, and its cells; None where the line is blank."""

Lines = Iterator[tuple[int, str]]

FORMATS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
PACKED = (".txt", ".csv", ".tsv", ".jsonl")
"""The formats that are also read as gzip: ".txt.gz"."""

LONGEST = 1 << 26
"""Characters in one line: beyond it a file is taken for something else than text."""

ABSENT = object()
"""The cell of a jsonl object that lacks the key."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that has been opened.

    Attributes:
        names: the columns' names; None where they only have positions.
        rows: the rows, each with all columns; the header is not among them.
        text: for each column whether its type is text; None where the format has no types.
    """

    names: tuple[str, ...] | None
    rows: Iterator[Record]
    text: tuple[bool, ...] | None = None


def form_of(path: Path) -> str | None:
    """The format that a file's suffix stands for, such as ".csv" for "a.csv.gz", or None."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in FORMATS:
        return suffixes[-1]
    if len(suffixes) > 1 and suffixes[-1] == ".gz" and suffixes[-2] in PACKED:
        return suffixes[-2]
    return None


def read(path: Path, form: str, *, header: bool, source: str) -> Reading:
    """Open a file of one of ``FORMATS``."""
    if form == ".parquet":
        return read_parquet(path, source)
    lines = _lines(path, source)
    if form == ".jsonl":
        return _jsonl(lines, source)
    if form == ".txt":
        return Reading(None, ((n, None if line.isspace() else (line,)) for n, line in lines))
    rows = _csv_rows(lines, source) if form == ".csv" else _tsv_rows(lines)
    return _even(rows, header, source)


def _tsv_rows(lines: Lines) -> Iterator[Record]:
    # Quotes are letters here, as in the STS files, whose stray quotes would swallow lines.
    for number, line in lines:
        blank = line.isspace() and "\t" not in line
        yield number, None if blank else line.rstrip("\n").split("\t")


def _csv_rows(lines: Lines, source: str) -> Iterator[Record]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    rows = csv.reader((line for _, line in lines), strict=True)
    while True:
        number = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                source, f"the row is no csv ({error}); check its quotes", line=number
            ) from None
        yield number, cells or None


def _even(rows: Iterator[Record], header: bool, source: str) -> Reading:
    """Take the header off, and hold every row to the number of fields of the first."""
    first = next((row for row in rows if row[1] is not None), None)
    if first is None or first[1] is None:
        return Reading(None, iter(()))
    width = len(first[1])

    def checked() -> Iterator[Record]:
        for number, cells in rows if header else chain([first], rows):
            if cells is not None and len(cells) != width:
                raise _uneven(source, number, len(cells), width)
            yield number, cells

    names = tuple(cell.strip() for cell in first[1]) if header else None
    return Reading(names, checked())


def _jsonl(lines: Lines, source: str) -> Reading:
    """Every line a string, an array, or an object; the first line decides for all."""
    values = _json_values(lines, source)
    start = next((row for row in values if row[1] is not None), None)
    if start is None:
        return Reading(None, iter(()))
    first: Any = start[1]
    kinds: dict[type, str] = {str: "string", list: "array", dict: "object"}
    kind = kinds.get(type(first))
    if kind is None:
        problem = f"{brief(first)} is neither a string, nor an array, nor an object"
        raise InputError(source, problem, line=start[0])
    names = tuple(first) if kind == "object" else None

    def rows() -> Iterator[Record]:
        for number, value in chain([start], values):
            if value is None:
                yield number, None
            elif type(value) is not type(first):
                problem = f"{brief(value)} is no {kind}, as the first row is"
                raise InputError(source, problem, line=number)
            elif kind == "object":
                yield number, [value.get(name, ABSENT) for name in names or ()]
            elif kind == "array" and len(value) != len(first):
                raise _uneven(source, number, len(value), len(first))
            else:
                yield number, value if kind == "array" else (value,)

    return Reading(names, rows())


def _json_values(lines: Lines, source: str) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        if line.isspace():
            yield number, None
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            problem = f"the line is no JSON ({error.msg} at character {error.colno})"
            raise InputError(source, problem, line=number) from None
        except (RecursionError, ValueError) as error:  # nested too deep; a number of 5,000 digits
            problem = f"the line is no JSON that can be read ({error})"
            raise InputError(source, problem, line=number) from None
        if value is None:
            raise InputError(source, "null is no text", line=number)
        yield number, value


def read_parquet(
    path: Path | IO[bytes], source: str, columns: Sequence[str] | None = None
) -> Reading:
    """Open a parquet file, all columns or some of them in the order given."""
    pa = import_extra("pyarrow", "parquet", f"reading {source}")
    import pyarrow.parquet as pq

    with reading(source), _parquet_errors(source, pa.ArrowException):
        # Column chunks are streamed: a file may be one row group, larger than memory.
        file = pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
        schema = file.schema_arrow
    names = tuple(schema.names if columns is None else columns)
    text = tuple(_is_text(schema.field(name).type) for name in names)

    def rows() -> Iterator[Record]:
        number = 0
        with reading(source), _parquet_errors(source, pa.ArrowException), file:
            for batch in file.iter_batches(1024, columns=list(names), use_threads=False):
                series = [batch.column(name).to_pylist() for name in names]
                for cells in zip(*series, strict=True):
                    number += 1
                    yield number, cells

    return Reading(names, rows(), text)


@contextmanager
def _parquet_errors(source: str, broken: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (broken, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(source, f"this is no whole parquet file ({reason})") from error


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Turn an operating system's complaint about a file into an ``InputError``."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(source, f"this is no whole gzip file ({error})") from error
    except OSError as error:
        raise InputError(source, f"cannot read ({error.strerror or error})") from error


def content(path: Path, source: str) -> Iterator[bytes]:
    """The bytes of a file, block by block."""
    with reading(source), path.open("rb") as stream:
        while block := stream.read(1 << 20):
            yield block


def _lines(path: Path, source: str) -> Lines:
    r"""Numbered lines; they end in "\n", "\r\n" or "\r", and a byte order mark is cut off."""
    with reading(source), _binary(path) as raw:
        # Undecodable bytes come through as surrogates, so that their line can be named.
        stream = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape")
        number = 0
        while line := stream.readline(LONGEST):
            number += 1
            if not line.isascii():
                _check_decoded(line, source, number)
            if len(line) == LONGEST:
                problem = f"a line of {LONGEST:,} characters or more: this is not a text file"
                raise InputError(source, problem, line=number)
            yield number, line


def _binary(path: Path) -> IO[bytes]:
    if path.suffix.lower() == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


def _check_decoded(line: str, source: str, number: int) -> None:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        problem = (
            f"byte 0x{ord(line[error.start]) - 0xDC00:02x} at character {error.start + 1} is not "
            "UTF-8; convert the file, for instance: iconv -f LATIN1 -t UTF-8 FILE"
        )
        if number == 1 and line.startswith(("\udcff\udcfe", "\udcfe\udcff")):
            problem = "the file is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 FILE"
        raise InputError(source, problem, line=number) from None


def _uneven(source: str, number: int, found: int, wanted: int) -> InputError:
    problem = f"{found} columns where the first row has {wanted}"
    return InputError(source, problem, line=number)


def brief(value: object) -> str:
    """A value as Python writes it, cut to what fits in a message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
