"""The files of an index: where they are, what may be in them, and who may write them."""

import json
import logging
import os
import shutil
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import (
    InputError,
    ModelError,
    OptionError,
    OutputError,
    UserError,
    see,
    texts_of,
)
from contrasent.files import HOLDER, LOCK, check_writable, remedy, write_json
from contrasent.metrics import normalize
from contrasent.search.filters import canonical
from contrasent.types import Vectors

log = logging.getLogger(__name__)

DATABASE, CHECKSUM = "index.db", "index.sum"
FILES = (CHECKSUM, "vectors-*.f32", "codes-*.u64")
KEPT = ".encoded"  # the folder of vectors that a stopped run left, or the end of its name
OWN = (DATABASE, f"{DATABASE}-*", *FILES, f".{CHECKSUM}.*", LOCK, HOLDER, KEPT)
OF_SYSTEM = (".DS_Store", "Thumbs.db", "desktop.ini", ".nfs*")  # which nobody would miss
MILVUS = "milvus.json"  # the file of an index in Milvus
METRICS = ("cosine", "dot")
LOG = 1 << 16  # bytes of a log and its index, at least
BUSY = 10.0  # seconds that SQLite waits for another process's transaction
VERIFIED = 192 << 20
"""Bytes up to which a file is verified whole when an index is opened; larger ones by doctor."""


def is_index(folder: str | Path) -> bool:
    """True if a folder is an index of this kind whose first writer was not killed."""
    return _has_table(Path(folder), "1")


def _has_table(place: Path, condition: str) -> bool:
    """True if the database of a folder has such a table, or is damaged."""
    if not _is_file(place / DATABASE) or (place / f"{DATABASE}-journal").exists():
        return False  # there is a journal only before the first table
    sql = f"SELECT count(*) FROM sqlite_master WHERE {condition}"
    try:
        with closing(reading(place)) as connection:
            return bool(connection.execute(sql).fetchone()[0])
    except (sqlite3.Error, UnicodeDecodeError):
        return True


def in_milvus(folder: str | Path) -> bool:
    """True if an index folder names a Milvus collection that holds its rows."""
    return _is_file(Path(folder) / MILVUS)


def is_any_index(folder: str | Path) -> bool:
    """True if a folder is an index of this kind, or in Milvus."""
    return is_index(folder) or in_milvus(folder)


def may_write(folder: Path) -> bool:
    """True if files may be made in a folder."""
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def unlocked(folder: Path) -> tuple[int, int] | None:
    """Size and time of a database that is read without a lock; None if there can be one.

    A lock needs a log, which only who may write to the folder can make, and on no full disk.
    """
    with suppress(OSError):  # a writer that ends removes its log at any moment
        if (folder / f"{DATABASE}-wal").stat().st_size > 0:
            return None
    with suppress(OSError):
        if shutil.disk_usage(folder).free <= LOG or not may_write(folder):
            about = (folder / DATABASE).stat()
            return about.st_size, about.st_mtime_ns
    return None


def reading(folder: Path, *, lock: bool | None = None) -> sqlite3.Connection:
    """A connection for reading, with a lock if there can be one."""
    lock = unlocked(folder) is None if lock is None else lock
    how = "ro" if lock else "ro&immutable=1"
    path = f"{(folder / DATABASE).absolute().as_uri()}?mode={how}"
    return sqlite3.connect(path, uri=True, timeout=BUSY, check_same_thread=False)


def not_an_index(folder: Path) -> str:
    """Why a folder is not a readable index."""
    if not folder.exists():
        return "no such folder; 'contrasent index SOURCE -o INDEX' makes an index"
    if (folder / DATABASE).is_file():
        return "is an unfinished index; rebuild it with 'contrasent index'"
    return "is not an index (no index.db in it); 'contrasent index SOURCE -o INDEX' makes one"


@contextmanager
def wrap_sqlite_errors(folder: Path | None) -> Iterator[None]:
    """Turn SQLite's complaints about an index into one line."""
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite's complaint quotes the file
        raise damaged(folder, error) from error
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            raise InputError(folder or "the index", "is closed; open it again") from error
        said = str(error) if isinstance(error, sqlite3.OperationalError) else ""
        if "unable to open" in said and folder is not None:
            for file in folder.glob(f"{DATABASE}*"):
                with wrap_os_errors(file):
                    file.open("rb").close()
            problem = "cannot be read (its last change is in a log, which needs a writable folder)"
            raise InputError(folder, problem) from error
        if "locked" in said or "busy" in said:
            raise OutputError(
                f"{folder}: another process is writing to this index; try again when it has ended"
                f"{see('index-locked')}"
            ) from error
        if problem := cannot_write(said):
            raise OutputError(f"{folder}: {problem}") from error
        raise damaged(folder, error) from error


def cannot_write(said: str) -> str:
    """What to do about what SQLite said, if it could not write; otherwise ""."""
    if any(part in said for part in ("full", "readonly", "disk I/O")):
        return f"cannot write ({said}); {remedy(full='readonly' not in said)}"
    return ""


def unreadable(path: object, error: OSError) -> InputError:
    """The error for an existing file that cannot be read."""
    return InputError(str(path), f"cannot be read ({error.strerror or error})")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # the folder may not be entered
        raise unreadable(path.parent, error) from error


def damaged(folder: Path | None, what: object) -> InputError:
    """The error for an index whose files differ from what was written."""
    where = folder if folder is not None else "the index"
    said = " ".join(str(what).split())  # SQLite quotes the statements of a schema with their lines
    return InputError(where, f"is damaged ({said}){advice(folder)}")


def advice(folder: Path | None) -> str:
    """The end of the message about a damaged index."""
    return f"; 'contrasent doctor {folder}' shows what is left" if folder is not None else ""


def database_sum(connection: sqlite3.Connection) -> list[int]:
    """Bytes of a database in the state that a connection sees, and their CRC-32 up to a size."""
    (pages,), (size,) = (
        connection.execute(f"PRAGMA page_{of}").fetchone() for of in ("count", "size")
    )
    total = int(pages) * int(size)
    return [total, zlib.crc32(connection.serialize()) if total <= VERIFIED else 0]


@contextmanager
def wrap_os_errors(path: Path) -> Iterator[None]:
    """Turn the system's complaint about an existing file into one line."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(error.filename or path, error) from error


def leave_checksum(
    connection: sqlite3.Connection, folder: Path, identity: str, generation: int
) -> None:
    """Write the newest state of a database next to it, if possible."""
    with suppress(sqlite3.Error, OutputError):
        stated = {"identity": identity, "generation": generation}
        stated |= {"database": database_sum(connection)}
        write_json(folder / CHECKSUM, {**stated, "sum": checksum(canonical(stated))})


def left_checksum(folder: Path) -> dict[str, Any]:
    """The facts that the last writer left with the database; empty if missing or damaged."""
    try:
        stated = json.loads((folder / CHECKSUM).read_text("utf-8"))
        sum_ = stated.pop("sum")
        known = isinstance(stated["generation"], int) and isinstance(stated["database"], list)
        return dict(stated) if known and checksum(canonical(stated)) == sum_ else {}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(folder / CHECKSUM, error) from error
    except (UserError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def remove_files(
    folder: Path,
    patterns: Sequence[str] = ("index.db*", *FILES),
    spared: Collection[object] = (),
) -> None:
    """Remove files of an index, except those with some names."""
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        if path.name not in spared:
            with suppress(OSError):  # a reader may hold it where the system forbids that
                path.unlink()


def file_number(folder: Path | None) -> int:
    """The file system's number of the database, independent of its name; 0 if it is not there."""
    with suppress(OSError):
        return 0 if folder is None else (folder / DATABASE).stat().st_ino
    return 0


# ---------------------------------------------------------------------- checks and checksums


def check_target(target: Path, overwrite: bool) -> None:
    """Reject a folder to write that exists, unless it is an index to overwrite and nothing else."""
    if overwrite and in_milvus(target):
        raise OutputError(
            f"{target}: is an index in Milvus, which --overwrite does not replace; drop its "
            "collection and folder, or choose another target"
        )
    empty = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    if not empty and not overwrite:
        raise OutputError(f"{target}: already exists; choose another target or add --overwrite")
    if not empty and not _has_table(target, "name = 'facts'"):
        problem = "already exists and is not an index of this format; choose another target"
        raise OutputError(f"{target}: {problem}")
    for path in target.iterdir() if target.exists() else ():
        if not any(fnmatchcase(path.name, pattern) for pattern in OWN + OF_SYSTEM):
            problem = (
                "is not part of the index and would be deleted by --overwrite; move it elsewhere"
            )
            raise OutputError(f"{path}: {problem}")
    check_writable(target.parent)


def row_ids(ids: Sequence[str] | None, count: int, first: int) -> list[str]:
    """The given ids, or row numbers from ``first`` on; one distinct string per row."""
    if ids is None:
        return [str(first + row) for row in range(count)]
    names, seen = list(texts_of("ids", ids)), set[str]()
    if len(names) != count:
        raise OptionError("ids", len(names), f"must give one id for each of {count} texts")
    for row, name in enumerate(names):
        if name in seen:
            raise OptionError("ids", name, f"is repeated, for text {row}")
        seen.add(name)
    return names


def check_vectors(vectors: Vectors, count: int, dimension: int | None, metric: str) -> Vectors:
    """Vectors of the right shape, finite, float32, of length one where the metric is cosine."""
    array = np.asarray(vectors)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or len(array) != count:
        raise ModelError(f"vectors must be numbers of shape ({count}, d), not {array.shape}")
    if dimension is not None and array.shape[1] != dimension:
        raise ModelError(
            f"vectors have {array.shape[1]} dimensions, the index has {dimension}: the models "
            "differ"
        )
    array = array.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise ModelError(
            f"{len(bad)} of {count} vectors contain NaN or infinity, first in row {bad[0]}"
        )
    return normalize(array) if metric == "cosine" else array


def checksum(*parts: Any) -> int:
    """CRC-32 of some values; a blob never equals a text, which a damaged database may return."""
    return zlib.crc32(
        b"\0".join(
            b"\1" + part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
            for part in parts
        )
    )


def vector_sum(vectors: Vectors, before: int = 0) -> int:
    """CRC-32 of one or more vectors, continued from ``before``."""
    return zlib.crc32(np.ascontiguousarray(vectors, dtype="<f4").data, before)
