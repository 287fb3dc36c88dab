"""Inputs that are divided into shards by counting: any part is read without the parts before it.

Of parquet only the footers are read to plan, and only a shard's row groups to encode it. Other
formats are counted once, and read from their beginning up to the shard's last row.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from contrasent.encoding.places import absolute, is_url, locate, open_binary
from contrasent.errors import InputError, OptionError, import_extra
from contrasent.text.readers import Reading, Record, form_of, read, read_parquet
from contrasent.text.sources import find
from contrasent.text.tables import position, text_cell

TEXT_NAMES = ("text", "sentence")
SHOWN = 3

Row = tuple[str, str | None]
"""A text and its id; None where there is no column of ids."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an input.

    Attributes:
        size: bytes.
        stamp: what changes with the content: an object's ETag, else the time it was written.
    """

    name: str
    size: int
    stamp: str
    rows: int = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rows of which files make which shard: a pure function of the files' row counts.

    Attributes:
        shard_rows: rows a shard; the last one has what is left.
        text: column with the text; None for the only one, or the one called text or sentence.
        identity: column with the ids; None numbers the rows.
    """

    parts: tuple[Part, ...]
    shard_rows: int
    text: str | int | None = None
    identity: str | int | None = None

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(part.rows for part in self.parts)

    @property
    def shards(self) -> int:
        """How many there are."""
        return -(-self.rows // self.shard_rows)

    def size(self, shard: int) -> int:
        """Rows of a shard."""
        return min(self.shard_rows, self.rows - shard * self.shard_rows)

    def read(self, shard: int) -> Iterator[tuple[str, str]]:
        """The rows of a shard, in order; those without an id have their number in the input."""
        first = shard * self.shard_rows
        last, begins, number = first + self.size(shard), 0, first
        for part in self.parts:
            start, end = max(first, begins), min(last, begins + part.rows)
            if start < end:
                found = 0
                for text, name in read_rows(part, self, start - begins, end - start):
                    yield text, str(number) if name is None else name
                    number += 1
                    found += 1
                if found != end - start:
                    raise InputError(part.name, "has fewer rows than when the run began")
            begins += part.rows


def list_parts(source: str) -> list[Part]:
    """The files that a name stands for, uncounted: a file, a folder, a pattern with * or a URL."""
    if source == "-":
        problem = "standard input cannot be divided into shards; write it to a file first"
        raise OptionError("INPUT", source, problem)
    if is_url(source) or "*" in source:
        system, path = locate(absolute(source))
        try:
            # What is found below a file is the file itself.
            found = sorted(system.glob(path) if "*" in source else system.find(path))
        except (OSError, ValueError) as error:
            raise InputError(source, f"cannot be listed ({error})") from error
        names = [system.unstrip_protocol(name) if is_url(source) else name for name in found]
        names = [name for name in names if form_of(Path(name)) is not None]
    else:
        names = [absolute(str(file.path)) for file in find(source)]
    if not names:
        raise InputError(source, "no such file, or none of a known format")
    return [_part(name) for name in names]


def _part(name: str) -> Part:
    system, path = locate(name)
    facts = system.info(path)
    stamp = next((facts[k] for k in ("ETag", "etag", "mtime", "LastModified", "updated", "created")
                  if facts.get(k)), "")  # fmt: skip
    return Part(name, int(facts["size"]), str(stamp))


def plan(
    source: str,
    *,
    shard_rows: int,
    text: str | int | None = None,
    identity: str | int | None = None,
    before: Plan | None = None,
) -> Plan:
    """Count the rows of an input and divide them."""
    known = {} if before is None else {(p.name, p.size, p.stamp): p for p in before.parts}
    chosen = Plan((), shard_rows, text, identity)
    parts = []
    for part in list_parts(source):
        counted = known.get((part.name, part.size, part.stamp))
        if counted is None:
            counted = Part(part.name, part.size, part.stamp, _count(part, chosen))
        parts.append(counted)
    found = Plan(tuple(parts), shard_rows, text, identity)
    if found.rows == 0:
        raise InputError(source, "holds no text")
    return found


def _count(part: Part, chosen: Plan) -> int:
    """Rows of a file whose columns are there."""
    with _opened(part, chosen) as (reading, _, _, stream):
        if stream is None:
            return sum(1 for _, cells in reading.rows if cells is not None)
        pq = import_extra("pyarrow.parquet", "parquet", part.name, package="pyarrow")
        return int(pq.ParquetFile(stream).metadata.num_rows)


def read_rows(part: Part, chosen: Plan, first: int, count: int) -> Iterator[Row]:
    """Some rows of a file: text and id."""
    with _opened(part, chosen) as (reading, text, identity, stream):
        if stream is None:
            full = (record for record in reading.rows if record[1] is not None)
            records: Iterator[Record] = islice(full, first, first + count)
            name = reading.names[text] if reading.names else ""
        else:
            names = reading.names or ()
            name = names[text]
            wanted = [name] if identity is None else [name, names[identity]]
            text, identity = 0, None if identity is None else 1
            records = _parquet_rows(stream, part.name, wanted, first, count)
        for number, cells in records:
            cells = cells or ()
            yield (
                text_cell(cells[text], name, part.name, number),
                None if identity is None else id_cell(cells[identity], part.name, number),
            )


@contextmanager
def _opened(
    part: Part, chosen: Plan
) -> Iterator[tuple[Reading, int, int | None, IO[bytes] | None]]:
    """A file's rows, where text and id stand, and for parquet its stream."""
    form = form_of(Path(part.name)) or ""
    by_name = any(isinstance(column, str) for column in (chosen.text, chosen.identity))
    header = by_name or (chosen.text is None and chosen.identity is None)
    if form == ".parquet":
        with open_binary(part.name) as stream:
            reading = read_parquet(stream, part.name)
            names = reading.names or ()
            yield reading, *_columns(reading, names, chosen, part.name), stream
        return
    path = local_copy(part.name)
    head = read(path, form, header=header, source=part.name)
    first = next((cells for _, cells in head.rows if cells is not None), ())
    names = head.names or tuple(map(str, range(len(first))))
    columns = _columns(head, names, chosen, part.name) if names else (0, None)
    yield read(path, form, header=header, source=part.name), *columns, None


def local_copy(name: str) -> Path:
    """A file on this machine; of a URL a temporary copy, made once a process."""
    if not is_url(name):
        return Path(name)
    fsspec = import_extra("fsspec", "cloud", f"reading {name}")
    try:
        return Path(fsspec.open_local(f"simplecache::{name}", simplecache={"same_names": True}))
    except OSError as error:
        raise InputError(name, f"cannot read ({error})") from error


def _columns(
    reading: Reading, names: tuple[str, ...], chosen: Plan, source: str
) -> tuple[int, int | None]:
    def at(column: str | int, option: str) -> int:
        return position(reading, len(names), column, source, option)

    text = text_column(names, source) if chosen.text is None else at(chosen.text, "--column")
    return text, None if chosen.identity is None else at(chosen.identity, "--id")


def column(value: str | None) -> str | int | None:
    """A column as it is named on the command line: digits are a position from 0."""
    return int(value) if value is not None and value.isdecimal() else value


def text_column(names: Sequence[str], source: str) -> int:
    """Where the text stands if nobody says: the only column, or that called text or sentence."""
    if len(names) == 1:
        return 0
    for name in TEXT_NAMES:
        if name in names:
            return names.index(name)
    problem = f"{source} has {len(names)} columns; name the one with the text"
    raise OptionError("--column", "", problem, choices=names)


def id_cell(cell: Any, source: str, line: int) -> str:
    """A cell's id: a string, or a whole number as one."""
    if isinstance(cell, str) and cell:
        return cell
    if isinstance(cell, int) and not isinstance(cell, bool):
        return str(cell)
    raise InputError(source, "the id must be a string or a whole number", line=line)


def _parquet_rows(
    stream: IO[bytes], source: str, names: list[str], first: int, count: int
) -> Iterator[Record]:
    """Rows of a parquet file by number, of the row groups that hold them."""
    pa = import_extra("pyarrow", "parquet", f"reading {source}")
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
        begins, before, groups = 0, 0, []
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if begins + rows <= first:
                before += rows
            elif begins < first + count:
                groups.append(group)
            begins += rows
        number = before
        for batch in file.iter_batches(1024, row_groups=groups, columns=names, use_threads=False):
            if number + len(batch) > first:
                lead = max(0, first - number)
                part = batch.slice(lead, first + count - number - lead)
                series = [part.column(name).to_pylist() for name in names]
                yield from enumerate(zip(*series, strict=True), number + lead + 1)
            number += len(batch)
            if number >= first + count:
                return
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise InputError(source, f"this is no whole parquet file ({reason})") from error
