"""Inputs that are divided into shards by counting: any part is read without the parts before it."""

# Of parquet only footers are read to plan; other formats are counted once and read from their
# beginning.

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from contrasent.encoding.places import absolute, is_url, locate, open_binary
from contrasent.errors import InputError, OptionError, import_extra
from contrasent.text.sources import Source, find, form_of
from contrasent.text.tables import Table, by_name, id_cell, open_table, text_cell

STAMPS = ("ETag", "etag", "mtime", "LastModified", "updated", "created")
"""Facts of a file, of which the first that there is changes with its content."""

Row = tuple[str, str | None]
"""A text and its id; None where there is no column of ids."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an input."""

    name: str
    size: int  # bytes
    stamp: str  # what changes with the content: an object's ETag, else the time it was written
    rows: int = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rows of which files make which shard: a pure function of the files' row counts."""

    parts: tuple[Part, ...]
    shard_rows: int  # rows a shard; the last one has what is left
    # column with the text; None for the only one, or the one called text or sentence
    text: str | int | None = None
    identity: str | int | None = None  # column with the ids; None numbers the rows

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
                until = number + end - start
                for text, name in read_rows(part, self, start - begins, end - start):
                    yield text, str(number) if name is None else name
                    number += 1
                if number != until:
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
            # Below a file is the file itself.
            found = sorted(system.glob(path) if "*" in source else system.find(path))
        except (OSError, ValueError) as error:
            raise InputError(source, f"cannot be listed ({error})") from error
        names = [system.unstrip_protocol(name) if is_url(source) else name for name in found]
        names = [name for name in names if form_of(Path(name)) is not None]
    else:
        names = [absolute(str(file.path)) for file in find(source)]
    if not names:
        raise InputError(source, "no such file, or none of a known format")
    parts = []
    for name in names:
        system, path = locate(name)
        facts = system.info(path)
        stamp = next((facts[key] for key in STAMPS if facts.get(key)), "")
        parts.append(Part(name, int(facts["size"]), str(stamp)))
    return parts


def plan(
    source: str,
    *,
    shard_rows: int,
    text: str | int | None = None,
    identity: str | int | None = None,
    before: Plan | None = None,
) -> Plan:
    """Count the rows of an input, of files that are as ``before`` not again, and divide them."""
    known = {replace(part, rows=-1): part for part in (before.parts if before else ())}
    chosen = Plan((), shard_rows, text, identity)
    parts = [
        known.get(part) or replace(part, rows=_count(part, chosen)) for part in list_parts(source)
    ]
    found = replace(chosen, parts=tuple(parts))
    if found.rows == 0:
        raise InputError(source, "holds no text")
    return found


def _count(part: Part, chosen: Plan) -> int:
    """Rows of a file whose columns are there."""
    return _opened(part, chosen)[0].count()


def read_rows(part: Part, chosen: Plan, first: int, count: int) -> Iterator[Row]:
    """Some rows of a file: text and id."""
    table, text, identity = _opened(part, chosen)
    name = table.columns[text] if table.names else ""
    for number, cells in table.part(
        (text,) if identity is None else (text, identity), first, count
    ):
        cells = cells or ()
        yield (
            text_cell(cells[0], name, part.name, number),
            None if identity is None else id_cell(cells[1], part.name, number),
        )


def _opened(part: Part, chosen: Plan) -> tuple[Table, int, int | None]:
    """A file, and where text and id stand."""
    form = form_of(Path(part.name)) or ""
    path = (lambda: open_binary(part.name)) if form == ".parquet" else local_copy(part.name)
    header = by_name((chosen.text, chosen.identity))
    table = open_table(Source(path, form, part.name), header=header)
    if not table.columns:  # an empty file
        return table, 0, None
    text = table.text_column() if chosen.text is None else table.position(chosen.text, "--column")
    return table, text, None if chosen.identity is None else table.position(chosen.identity, "--id")


def local_copy(name: str) -> Path:
    """A file on this machine; of a URL a temporary copy, made once a process."""
    if not is_url(name):
        return Path(name)
    fsspec = import_extra("fsspec", "cloud", f"reading {name}")
    try:
        return Path(fsspec.open_local(f"simplecache::{name}", simplecache={"same_names": True}))
    except OSError as error:
        raise InputError(name, f"cannot read ({error})") from error
