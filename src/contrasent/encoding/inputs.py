"""Files here or behind URLs, and inputs divided into shards by counting their rows.

Planning reads only the footers of parquet; other formats are counted once and read from their
beginning.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from contrasent.errors import InputError, MissingExtraError, OptionError, OutputError, import_extra
from contrasent.files import atomic_file
from contrasent.text.columns import text_column
from contrasent.text.sources import Source, find, form_of, reading
from contrasent.text.tables import Table, id_cell, open_tables, text_cell

PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
"""Packages of the extra ``cloud``, by the scheme of a URL."""


def is_url(name: str) -> bool:
    """True if a name is a URL such as s3://bucket/key."""
    return "://" in name


def absolute(name: str) -> str:
    """A name that means the same in another process: a URL as it is, a path from the root."""
    return name if is_url(name) else str(Path(name).absolute())


def locate(name: str) -> tuple[Any, str]:
    """The file system of a name and its path there."""
    fsspec = import_extra("fsspec", "cloud", f"reading {name}")
    try:
        system, path = fsspec.core.url_to_fs(name)
    except ImportError as error:
        scheme = name.partition("://")[0]
        package = PACKAGES.get(scheme, f"fsspec for {scheme}")
        raise MissingExtraError(package, "cloud", name) from error
    except (ValueError, OSError) as error:
        raise InputError(name, f"cannot be reached ({error})") from error
    return system, str(path)


@contextmanager
def open_binary(name: str) -> Iterator[IO[bytes]]:
    """A seekable file or object to read."""
    system, path = locate(name)
    with reading(name), system.open(path, "rb") as stream:
        yield stream


class Folder:
    """A folder of files that are there as a whole or not at all."""

    def __init__(self, name: str) -> None:
        self.name = absolute(name)
        self._system, self._path = locate(self.name)
        self._local = not is_url(self.name)

    def file(self, name: str) -> str:
        """The name of a file in it, to open it by."""
        return f"{self.name.rstrip('/')}/{name}"

    def names(self) -> set[str]:
        """Names of all files in it, by one listing; none if it is not there."""
        self._system.invalidate_cache()
        try:
            listed = self._system.ls(self._path, detail=False)
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise InputError(self.name, f"cannot be listed ({error})") from error
        return {str(path).rstrip("/").rpartition("/")[2] for path in listed}

    def read(self, name: str) -> bytes | None:
        """All of a file; None if it is not there."""
        try:
            return bytes(self._system.cat_file(f"{self._path.rstrip('/')}/{name}"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(self.file(name), f"cannot be read ({error})") from error

    @contextmanager
    def put(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write, which appears when the block ends without an error."""
        # On this machine it is renamed into its place; elsewhere it is written here and put as one
        # object, which other readers see whole or not at all.
        if self._local:
            with atomic_file(Path(self.name, name), "wb") as stream:
                yield stream
            return
        with tempfile.TemporaryDirectory(prefix="contrasent-") as home:
            path = Path(home, name)
            with path.open("wb") as stream:
                yield stream
            try:
                self._system.makedirs(self._path, exist_ok=True)
                self._system.put_file(str(path), f"{self._path.rstrip('/')}/{name}")
            except OSError as error:
                raise OutputError(f"{self.file(name)}: cannot be written ({error})") from error

    def remove(self) -> None:
        """Delete it with all that is in it."""
        if self._system.exists(self._path):
            self._system.rm(self._path, recursive=True)


Column = str | int | None  # by name, by position, or none
STAMPS = ("ETag", "etag", "mtime", "LastModified", "updated", "created")
"""Facts of a file, of which the first that there is changes with its content."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an input."""

    name: str
    size: int  # bytes
    stamp: str  # what changes with the content: an object's ETag, else the time it was written
    rows: int = -1


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Which rows of which files make which shard: a pure function of the files' row counts."""

    parts: tuple[Part, ...]
    shard_rows: int  # rows a shard; the last one has what is left
    # column with the text; None for the only one, or the one called text or sentence
    text: Column = None
    identity: Column = None  # column with the ids; None numbers the rows

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(part.rows for part in self.parts)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return -(-self.rows // self.shard_rows)

    def size(self, shard: int) -> int:
        """Rows of a shard."""
        return min(self.shard_rows, self.rows - shard * self.shard_rows)

    def read(self, shard: int) -> Iterator[tuple[str, str]]:
        """The rows of a shard, in order; those without an id have their number in the input."""
        number = shard * self.shard_rows
        last, begins = number + self.size(shard), 0
        for part in self.parts:
            ends = begins + part.rows
            if begins <= number < min(last, ends):
                until = min(last, ends)
                table, text, identity = _opened(part, self)
                name = table.columns[text] if table.names else ""
                chosen = (text,) if identity is None else (text, identity)
                for line, cells in table.part(chosen, number - begins, until - number):
                    if not cells:  # blank lines are not rows
                        problem = "more cells than in the first row"
                        raise InputError(part.name, problem, line=line)
                    row_id = str(number) if identity is None else id_cell(cells[1], part.name, line)
                    yield text_cell(cells[0], name, part.name, line), row_id
                    number += 1
                # After its rows, so that what is written while they are read is seen too.
                if number != until or _stamped(part.name) != replace(part, rows=-1):
                    problem = "has changed since the run started; restore it or use a new folder"
                    raise InputError(part.name, problem)
            begins = ends


def list_parts(source: str) -> list[Part]:
    """The files that a name stands for, uncounted: a file, a folder, a pattern with * or a URL."""
    if source == "-":
        problem = "standard input cannot be split into shards; write it to a file first"
        raise OptionError("INPUT", source, problem)
    if is_url(source) or "*" in source:
        system, path = locate(absolute(source))
        try:
            # Below a file is the file itself.
            paths = sorted(system.glob(path) if "*" in source else system.find(path))
        except (OSError, ValueError) as error:
            raise InputError(source, f"cannot be listed ({error})") from error
        names = [system.unstrip_protocol(name) if is_url(source) else name for name in paths]
        names = [name for name in names if form_of(Path(name)) is not None]
    else:
        names = [absolute(str(file.path)) for file in find(source)]
    if not names:
        raise InputError(source, "no such file, or not a supported format")
    return [_stamped(name) for name in names]


def _stamped(name: str) -> Part:
    """A file as it is now, uncounted."""
    system, path = locate(name)
    with reading(name):
        facts = system.info(path)
    stamp = next((facts[key] for key in STAMPS if facts.get(key)), "")
    return Part(name, int(facts["size"]), str(stamp))


def plan(
    source: str, *, shard_rows: int, text: Column = None, identity: Column = None
) -> ShardPlan:
    """Count the rows of an input, and divide them."""
    chosen = ShardPlan((), shard_rows, text, identity)
    counted = (replace(one, rows=_opened(one, chosen)[0].count()) for one in list_parts(source))
    result = replace(chosen, parts=tuple(counted))
    if result.rows == 0:
        raise InputError(source, "contains no text")
    return result


def _opened(part: Part, chosen: ShardPlan) -> tuple[Table, int, int | None]:
    """A file, and the positions of text and id."""
    form = form_of(Path(part.name)) or ""
    path = (lambda: open_binary(part.name)) if form == ".parquet" else local_copy(part.name)
    wanted = (chosen.text, chosen.identity)
    (table,) = open_tables([Source(path, form, part.name)], wanted, join=True)
    if not table.columns:  # an empty file
        return table, 0, None
    text = text_column(table) if chosen.text is None else table.position(chosen.text, "--column")
    return table, text, None if chosen.identity is None else table.position(chosen.identity, "--id")


def local_copy(name: str) -> Path:
    """A file on this machine; for a URL a temporary copy, made once per process."""
    if not is_url(name):
        return Path(name)
    fsspec = import_extra("fsspec", "cloud", f"reading {name}")
    try:
        return Path(fsspec.open_local(f"simplecache::{name}", simplecache={"same_names": True}))
    except OSError as error:
        raise InputError(name, f"cannot read ({error})") from error
