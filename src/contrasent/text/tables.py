"""The one reader of tables: files of txt, csv, tsv, jsonl, json, parquet and arrow.

The delimiter, quotes and header of csv and tsv are found by :mod:`contrasent.text.dialect`;
jsonl has strings, arrays or objects, json a list of them, whose rows count as lines. Rows are
streamed (json aside), UTF-8 with or without a byte order mark, and every complaint names file and
line.
"""

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, TypeVar

from contrasent.errors import HALF, InputError, OptionError, import_extra
from contrasent.text import dialect as dialects
from contrasent.text.dialect import Dialect
from contrasent.text.sources import ARROW, JSON, Lines, Source, reading

Columns = Sequence[str | int]  # columns by name, or by position from 0

Record = tuple[int, Sequence[Any] | None]
"""A line's number, from 1, and its cells; None where the line is blank."""

_Rows = Iterator[tuple[int, Sequence[Any] | InputError | None]]  # with what is wrong with a row

MEMORY = "memory"  # the form of rows that no file holds
ABSENT = object()  # the cell of a jsonl object that lacks the key
LONG: tuple[Any, ...] = ()  # the cells of a row that has more of them than there are columns
UNREAD: list[Any] = []  # the cells of a row that cannot be read, where that is no error
AHEAD = 200  # rows of jsonl whose keys are columns, as later ones may lack some or have more

MISSING = {"NULL", "\\N", "NaN", "<NA>", "#N/A", "N/A", "None"}
"""Cells of csv and tsv that databases write for nothing, and pandas reads so."""

Absent = TypeVar("Absent", str, None)


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose head has been read; its rows can be reread at will."""

    source: str  # its name in messages
    form: str
    names: tuple[str, ...] | None  # of its columns; None where they only have positions
    # the first row, of parquet without its cells; None where there is none
    first: Sequence[Any] | None
    stream: Callable[[], Iterator[Record]]  # starts to read all rows, without the header
    content: Callable[[], Iterator[bytes]]  # starts to read the bytes behind them
    file: Source | None = None
    above: tuple[str, ...] = ()  # lines above the names of the columns, such as a title
    header: bool | None = True  # whether the first row names columns; None if it may be either
    uneven: Counter[str] = field(default_factory=Counter)  # rows whose negatives did not all fit

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns' names, or their positions."""
        return self.names or tuple(map(str, range(len(self.first or ()))))

    def position(self, column: str | int, option: str = "columns") -> int:
        """The position of a column, from 0."""
        width = len(self.columns)
        if not isinstance(column, str):
            if not 0 <= column < width:
                problem = f"{self.source} has columns 0 to {width - 1}"
                raise OptionError(option, column, problem)
            return column
        if self.names is None:
            listed = f"choose by position, 0 to {width - 1}"
            problem = f"the columns of {self.source} have no names; {listed}"
            raise OptionError(option, column, problem)
        if column not in self.names:
            problem = f"unknown column of {self.source}"
            raise OptionError(option, column, problem, choices=self.names)
        return self.names.index(column)

    def rows(self, chosen: Sequence[int]) -> Iterator[Record]:
        """Some columns of all rows."""
        if self.file is not None and self.form in COLUMNAR:  # other columns are not even read
            return COLUMNAR[self.form](self.file, [self.columns[at] for at in chosen])
        return (
            (number, [cells[at] for at in chosen] if cells else cells)
            for number, cells in self.stream()
        )

    def part(self, chosen: Sequence[int], first: int, count: int) -> Iterator[Record]:
        """Some columns of ``count`` rows from number ``first`` on, blank lines not counted."""
        if self.file is not None and self.form == ".parquet":
            return _parquet_rows(self.file, [self.columns[at] for at in chosen], first, count)
        full = (record for record in self.rows(chosen) if record[1] is not None)
        return islice(full, first, first + count)

    def count(self) -> int:
        """Rows, blank lines not counted."""
        if self.file is not None and self.form == ".parquet":
            with parquet_file(self.file) as opened:
                return int(opened.metadata.num_rows)
        return sum(1 for _, cells in self.stream() if cells is not None)


def open_table(
    file: Source,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    lenient: bool = False,
    all_keys: bool = False,
    join: bool = False,
    rows: Sequence[Any] | None = None,
    each: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Table:
    """Read the head of a file.

    Args:
        file: what to read.
        header: whether the first row of a csv or tsv names its columns; found if None.
        delimiter: of a csv or tsv; found if None.
        lenient: the cells of an unreadable row are ``UNREAD``; else it is an error.
        all_keys: read all of a jsonl, since the columns are then the keys of all rows.
        join: the cells of a row beyond the last column are text of the last one; else its cells
            are ``LONG``.
        rows: those of a jsonl that have been read.
        each: what is made of each object of jsonl.
    """
    if file.form in COLUMNAR:
        return _columnar_table(file)
    form = dialects.sniffed(file)
    if form in (".csv", ".tsv"):
        return _delimited(file, form, header, delimiter, lenient=lenient, join=join)
    objects, keys, uneven = form in (".jsonl", JSON), dict[str, None](), Counter[str]()

    def values() -> Iterator[Record]:
        read = _json_values if form == ".jsonl" else _json_list
        found = read(file.lines(), file.shown) if rows is None else _listed(rows, file.shown)
        for number, value in _sound(found, lenient):
            yield number, each(value) if each and isinstance(value, dict) else value

    for _, value in values() if objects and all_keys else ():
        keys |= dict.fromkeys(value if isinstance(value, dict) else ())

    def opened() -> tuple[tuple[str, ...] | None, _Rows]:
        if objects:
            return _jsonl(values(), file.shown, AHEAD, keys, uneven)
        return None, ((n, None if line.isspace() else (line,)) for n, line in file.lines())

    return _headed(file.shown, form, opened, file.content, file, uneven, lenient=lenient)


def _delimited(
    file: Source,
    form: str,
    header: bool | None,
    delimiter: str | None,
    *,
    lenient: bool,
    join: bool,
) -> Table:
    """The table of a csv or tsv."""
    how = dialects.find(file, form, delimiter)

    def read() -> Iterator[Record]:
        return _sound(_cells_of(file.lines(), file.shown, how, strict=not lenient), lenient)

    head, sample = 0, list[Record]()
    if delimiter is None or header is None:
        sample = list(islice((row for row in read() if row[1]), dialects.SAMPLE))
        head = dialects.head([row[1] or () for row in sample])
    first = next((row for row in (sample[head:] or read()) if row[1]), None)
    if first is None or first[1] is None:
        return Table(file.shown, form, None, None, read, file.content, file)
    cells = [cell.strip() for cell in first[1]]
    below = [row[1] or () for row in sample[head + 1 :]]
    named = dialects.is_header(cells, below) if header is None else header
    width = len(cells)
    names = None if named is False else dialects.names(cells)

    def rows() -> Iterator[Record]:
        for number, row in read():
            if number < first[0] or (number == first[0] and names):
                continue
            if not row or len(row) == width:
                yield number, row
            elif len(row) < width:
                yield number, [*row, *[""] * (width - len(row))]
            elif not any(cell.strip() for cell in row[width:]):
                yield number, row[:width]
            elif join or width == 1:
                yield number, [*row[: width - 1], how.delimiter.join(row[width - 1 :])]
            else:
                yield number, LONG

    begins = next((row for _, row in rows() if row), None)
    lines = (how.delimiter.join(filter(None, row or ())) for _, row in sample[:head])
    above = [line for line in lines if not line.startswith(dialects.STATED)]
    head_facts: dict[str, Any] = {"above": tuple(above), "header": named}
    return Table(file.shown, form, names, begins, rows, file.content, file, **head_facts)


def memory_table(rows: Sequence[Any], shown: str) -> Table:
    """A table of rows in memory: texts, sequences of cells, or mappings, whose keys are columns."""
    records: list[Any] = []
    for row in rows:
        if isinstance(row, str):
            records.append(str(row))  # numpy has a class of its own
            continue
        whole = not isinstance(row, Iterable)
        records.append(row if whole else dict(row) if isinstance(row, Mapping) else list(row))
    uneven, width = Counter[str](), len(records[0]) if isinstance(records[0], list) else None
    for number, row in enumerate(records, 1):
        if width is not None and isinstance(row, list) and len(row) != width:
            problem = f"{len(row)} columns, and the first row has {width}"
            raise InputError(shown, problem, line=number)

    def opened() -> tuple[tuple[str, ...] | None, _Rows]:
        values = (
            (n, InputError(shown, "None is not a text", line=n) if row is None else row)
            for n, row in enumerate(records, 1)
        )
        return _jsonl(_sound(values, lenient=False), shown, len(records), {}, uneven)

    def content() -> Iterator[bytes]:
        for row in records:
            for text in row if isinstance(row, list) else [row]:
                data = str(text).encode(errors="surrogatepass")
                yield len(data).to_bytes(8, "little") + data

    return _headed(shown, MEMORY, opened, content, None, uneven)


def _headed(
    shown: str,
    form: str,
    opened: Callable[[], tuple[tuple[str, ...] | None, _Rows]],
    content: Callable[[], Iterator[bytes]],
    file: Source | None,
    uneven: Counter[str],
    *,
    lenient: bool = False,
) -> Table:
    """The table of a function that starts to read names and rows, by its first row."""

    def stream() -> Iterator[Record]:
        return _sound(opened()[1], lenient)

    names, records = opened()
    rows = _sound(records, lenient)
    first = next((cells for _, cells in rows if cells is not None and cells is not UNREAD), None)
    return Table(shown, form, names, first, stream, content, file, uneven=uneven)


def _sound(rows: _Rows, lenient: bool) -> Iterator[Record]:
    for number, cells in rows:
        if isinstance(cells, InputError) and not lenient:
            raise cells
        yield number, UNREAD if isinstance(cells, InputError) else cells


def open_tables(
    files: Iterable[Source], columns: Iterable[str | int | None], **options: Any
) -> list[Table]:
    """Open tables; a wanted column by name says that there is a header."""
    chosen = [column for column in columns if column is not None]
    named = any(isinstance(column, str) for column in chosen)
    tables = []
    for file in files:
        table = open_table(file, header=True if named else None, **options)
        if chosen and not named and table.header is None:
            table = open_table(file, header=False, **options)
        tables.append(table)
    return tables


def column(value: str | Absent) -> str | int | Absent:
    """A column as it is named on the command line: digits are a position from 0."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


# ---------------------------------------------------------------------- cells


def is_empty(cell: Any) -> bool:
    """Whether a cell holds nothing: no text, null, or NaN, as pandas has it."""
    if isinstance(cell, str):
        return not cell or cell.isspace()
    return cell is None or cell is ABSENT or (isinstance(cell, float) and math.isnan(cell))


def is_missing(cell: Any) -> bool:
    """Whether a cell of a csv or tsv holds nothing, or stands for it."""
    return is_empty(cell) or cell.strip() in MISSING


def text_cell(value: Any, column: str, source: str, line: int) -> str:
    """A cell's text, without the white space around it."""
    if not isinstance(value, str):
        where = f"column {column!r}" if column else "the row"
        absent = value is None or value is ABSENT
        what = "is missing" if absent else f"contains {brief(value)}, not text"
        raise InputError(source, f"{where} {what}", line=line)
    text = value.strip()
    if not text:
        where = f" in column {column!r}" if column else ""
        raise InputError(source, f"blank sentence{where}; remove the row", line=line)
    if "\0" in text:
        raise InputError(source, "the text contains a NUL byte; is this a text file?", line=line)
    return _storable(text, source, line)


def _storable(text: str, source: str, line: int) -> str:
    """A text without halves of surrogate pairs, which cannot be stored."""
    if not text.isascii() and (half := HALF.search(text)):
        problem = f"half a surrogate pair, {half[0]!r}, is not a character"
        raise InputError(source, problem, line=line)
    return text


def number_cell(value: Any, column: str, source: str, line: int) -> float:
    """A cell's number."""
    number = as_number(value)
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


def id_cell(value: Any, source: str, line: int) -> str:
    """A cell's id: a string, or a whole number as one."""
    if isinstance(value, str) and value:
        return _storable(value, source, line)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    empty = "the id is empty; give every row one"
    problem = empty if is_empty(value) else "the id must be a string or a whole number"
    raise InputError(source, problem, line=line)


def as_number(value: Any) -> float | None:
    """A number, or None, also for ``1_000``, which Python reads but data files do not mean."""
    if isinstance(value, str) and "_" in value:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def brief(value: object) -> str:
    """A value as Python writes it, cut to what fits in a message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


# ---------------------------------------------------------------------- formats


def _cells_of(lines: Lines, source: str, how: Dialect, *, strict: bool) -> _Rows:
    if not how.quoted:
        for number, line in lines:
            cells = line.rstrip("\r\n").split(how.delimiter)
            yield number, cells if len(cells) > 1 or cells[0].strip() else None
        return
    rows = how.reader((line for _, line in lines), strict=strict)
    while True:
        number = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"the row is not valid csv ({error}); check its quotes"
            yield number, InputError(source, problem, line=number)
            continue
        yield number, cells if any(map(str.strip, cells)) or len(cells) > 1 else None


def _jsonl(
    values: Iterator[Record], source: str, ahead: int, known: Iterable[str], uneven: Counter[str]
) -> tuple[tuple[str, ...] | None, _Rows]:
    """Rows of the first value's kind; columns are known keys, and those of ``ahead`` rows."""
    above = list[Record]()
    for start in values:
        if start[1] is not None and start[1] is not UNREAD:
            break
        above.append(start)
    else:
        return None, iter(above)
    first: Any = start[1]
    kinds: dict[type, str] = {str: "string", list: "array", dict: "object"}
    kind = kinds.get(type(first))
    if kind is None:
        problem = f"{brief(first)} is neither a string, nor an array, nor an object"
        raise InputError(source, problem, line=start[0])
    head: list[tuple[int, Any]] = [*above, start, *islice(values, ahead)]
    listed = kind == "object" and any(isinstance(first.get(key), list) for key in ("pos", "neg"))
    if listed and "query" in first:
        sizes = Counter(filter(None, (len(_cells(value, "neg")) for _, value in head)))
        width = sizes.most_common(1)[0][0] if _cells(first, "neg") else 0
        uneven.clear()  # as rows are read again
        rows_of = partial(_group_rows, width=width, source=source, uneven=uneven)
        numbers = range(1, width + 1) if width > 1 else [""] * width
        groups = (row for value in chain(head, values) for row in rows_of(*value))
        return ("query", "pos", *(f"neg{n}" for n in numbers)), groups
    keys = (key for _, value in head if isinstance(value, dict) for key in value)
    names = tuple(dict.fromkeys(chain(known, keys))) if kind == "object" else None

    def rows() -> _Rows:
        value: Any
        for number, value in chain(head, values):
            if value is None or value is UNREAD:
                yield number, value
            elif type(value) is not type(first):
                problem = f"{brief(value)} is not of type {kind}, unlike the first row"
                yield number, InputError(source, problem, line=number)
            elif kind == "object":
                yield number, [value.get(name, ABSENT) for name in names or ()]
            elif kind == "array" and len(value) > len(first):
                yield number, LONG
            elif kind == "array" and len(value) < len(first):
                yield number, [*value, *[ABSENT] * (len(first) - len(value))]
            else:
                yield number, value if kind == "array" else (value,)

    return names, rows()


def _group_rows(number: int, value: Any, *, width: int, source: str, uneven: Counter[str]) -> _Rows:
    """Rows {query, pos, neg}, as BGE trains on: one for each positive, negatives in turn."""
    if value is None:
        yield number, None
        return
    positives, negatives = (_cells(value, key) for key in ("pos", "neg"))
    if not positives or bool(negatives) != bool(width):
        problem = "needs query, pos" + ", and neg as the first row has" * bool(width)
        if positives and negatives:
            problem = "has negatives, unlike the first row; all rows need them, or none"
        yield number, InputError(source, problem, line=number)
    if positives and 0 < len(negatives) < width:
        uneven[f"with fewer than {width} negatives, which are repeated"] += 1
    elif width and len(negatives) > width * len(positives):
        uneven[f"with more than {width} negatives for each pos; the rest is left out"] += 1
    taken = cycle(negatives)
    for positive in positives if negatives or not width else ():
        yield number, [value.get("query", ABSENT), positive, *islice(taken, width)]


def _cells(value: Any, key: str) -> list[Any]:
    """A list of an object, or a text as one; empty if it is neither."""
    cells = value.get(key) if isinstance(value, dict) else None
    return cells if isinstance(cells, list) else [cells] if isinstance(cells, str) else []


def _json_list(lines: Lines, source: str) -> _Rows:
    """A list of rows, or one row per line, as many files of this name have them."""
    read = list(lines)
    try:
        whole = json.loads("".join(line for _, line in read))
    except (RecursionError, ValueError):
        return _json_values(iter(read), source)
    if isinstance(whole, list):
        return _listed(whole, source)
    raise InputError(source, f"{brief(whole)} is neither a list of rows nor one row per line")


def _listed(values: Sequence[Any], source: str) -> _Rows:
    absent = InputError(source, "null is not a text")
    return ((n, absent if value is None else value) for n, value in enumerate(values, 1))


def _json_values(lines: Lines, source: str) -> _Rows:
    for number, line in lines:
        problem, value = "", None
        try:
            value = None if line.isspace() else json.loads(line)
            problem = "" if value is not None or line.isspace() else "null is not a text"
        except json.JSONDecodeError as error:
            problem = f"the line is not JSON ({error.msg} at character {error.colno})"
        except (RecursionError, ValueError) as error:  # nested too deep; a number of 5,000 digits
            problem = f"the line is not readable JSON ({error})"
        yield number, InputError(source, problem, line=number) if problem else value


@contextmanager
def _whole(source: Source, kind: str) -> Iterator[Any]:
    """The package pyarrow; what is broken in a file of it raises an ``InputError``."""
    pa = import_extra("pyarrow", "parquet", f"reading {source.shown}")
    with reading(source.shown):
        try:
            yield pa
        except (pa.ArrowException, UnicodeDecodeError) as error:
            problem = f"not a complete {kind} file ({str(error).splitlines()[0]})"
            raise InputError(source.shown, problem) from error


@contextmanager
def parquet_file(source: Source) -> Iterator[Any]:
    """An open ``pyarrow.parquet.ParquetFile``."""
    with _whole(source, "parquet"), ExitStack() as stack:
        import pyarrow.parquet as pq

        path: Any = source.path
        if not isinstance(path, Path):
            path = stack.enter_context(path())
        # Column chunks are streamed: a file may be one row group, larger than memory.
        yield stack.enter_context(pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False))


@contextmanager
def _arrow_file(source: Source) -> Iterator[Any]:
    """The record batches of a file that ``save_to_disk`` wrote."""
    with (
        _whole(source, "arrow") as pa,
        pa.memory_map(str(source.path)) as file,
        pa.ipc.open_stream(file) as opened,
    ):
        yield opened


def _columnar_table(file: Source) -> Table:
    """The head of a file of columns; and whether it has rows."""
    if file.form == ARROW:
        with _arrow_file(file) as opened:
            schema, filled = opened.schema, any(batch.num_rows for batch in opened)
    else:
        with parquet_file(file) as opened:
            schema, filled = opened.schema_arrow, opened.metadata.num_rows > 0
    names = tuple(schema.names)
    rows, first = partial(COLUMNAR[file.form], file, names), () if filled else None
    return Table(file.shown, file.form, names, first, rows, file.content, file)


def _parquet_rows(
    file: Source, names: Sequence[str], first: int = 0, count: int | None = None
) -> Iterator[Record]:
    """Some columns of some rows, by way of the row groups that hold them."""
    with parquet_file(file) as opened:
        footer = opened.metadata
        last = footer.num_rows if count is None else first + count
        begin, number, groups = 0, 0, []
        for group in range(footer.num_row_groups):
            end = begin + footer.row_group(group).num_rows
            if end <= first:
                number = end
            elif begin < last:
                groups.append(group)
            begin = end
        options = {"columns": list(names), "row_groups": groups, "use_threads": False}
        for batch in opened.iter_batches(1024, **options):
            series = [batch.column(name).to_pylist() for name in names]
            for cells in zip(*series, strict=True):
                number += 1
                if first < number <= last:
                    yield number, cells
            if number >= last:
                return


def _arrow_rows(file: Source, names: Sequence[str]) -> Iterator[Record]:
    with _arrow_file(file) as opened:
        rows = (row for batch in opened for row in batch.select(names).to_pylist())
        for number, row in enumerate(rows, 1):
            yield number, [row[name] for name in names]


COLUMNAR: dict[str, Callable[[Source, Sequence[str]], Iterator[Record]]] = {
    ".parquet": _parquet_rows,
    ARROW: _arrow_rows,
}
"""Files of which some columns can be read without the others, by format."""
