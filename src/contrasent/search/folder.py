"""The files of an index: where they are, what may be in them, and who may write them."""

import json
import logging
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import InputError, ModelError, OptionError, OutputError, see
from contrasent.files import check_writable, only_process, write_json
from contrasent.metrics import normalize
from contrasent.search.filters import canonical
from contrasent.types import Vectors

log = logging.getLogger(__name__)

DATABASE, CHECKSUM = "index.db", "index.sum"
FILES = (CHECKSUM, "vectors-*.f32", "codes-*.u64")
MILVUS = "milvus.json"  # the file of an index in Milvus
METRICS = ("cosine", "dot")
BUSY = 10.0  # seconds that SQLite waits for another process's transaction
VERIFIED = 192 << 20
"""Bytes up to which a file is verified whole when an index is opened; larger ones by doctor."""


def is_index(folder: str | Path) -> bool:
    """Whether a folder is an index of this kind, one whose first writer was not killed."""
    place = Path(folder)
    if not (place / DATABASE).is_file() or (place / f"{DATABASE}-journal").exists():
        return False  # there is a journal only before the first table
    try:
        with closing(reading(place)) as connection:
            return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error:
        return True  # a damaged one


def in_milvus(folder: str | Path) -> bool:
    """Whether an index folder names a collection of Milvus, where its rows are."""
    return (Path(folder) / MILVUS).is_file()


def is_any_index(folder: str | Path) -> bool:
    """Whether a folder is an index of this kind, of an earlier format, or in Milvus."""
    return is_index(folder) or in_milvus(folder) or (Path(folder) / "index.json").is_file()


def reading(folder: Path) -> sqlite3.Connection:
    """A connection that reads; of a folder that cannot be written, without a log."""
    log = folder / f"{DATABASE}-wal"
    kept = log.exists() and log.stat().st_size > 0
    how = "ro" if kept or os.access(folder, os.W_OK) else "ro&immutable=1"
    path = f"{(folder / DATABASE).absolute().as_uri()}?mode={how}"
    return sqlite3.connect(path, uri=True, timeout=BUSY, check_same_thread=False)


def not_an_index(folder: Path) -> str:
    """Why a folder is no index that can be read."""
    if not folder.exists():
        return "no such folder; 'contrasent index SOURCE -o INDEX' makes an index"
    if (folder / DATABASE).is_file():
        return "is an index whose making was cut short; build it again with 'contrasent index'"
    if (folder / "index.json").is_file():
        return "is an index of an earlier format; build it again with 'contrasent index'"
    return "is no index (no index.db in it); 'contrasent index SOURCE -o INDEX' makes one"


@contextmanager
def translated(folder: Path | None) -> Iterator[None]:
    """Turn SQLite's complaints about an index into one line."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        said = str(error) if isinstance(error, sqlite3.OperationalError) else ""
        if "locked" in said or "busy" in said:
            raise OutputError(
                f"{folder}: another process is writing to this index; try again when it has ended"
                f"{see('index-locked')}"
            ) from error
        if "full" in said or "readonly" in said or "disk I/O" in said:
            problem = f"cannot write ({error}); free some space{see('disk-full')}"
            raise OutputError(f"{folder}: {problem}") from error
        raise damaged(folder, error) from error


def damaged(folder: Path | None, what: object) -> InputError:
    """The error of an index whose files are not what was written."""
    where = folder if folder is not None else "the index"
    return InputError(where, f"is damaged ({what}){advice(folder)}")


def advice(folder: Path | None) -> str:
    """The end of the message about a damaged index."""
    return f"; 'contrasent doctor {folder}' says what is left" if folder is not None else ""


def database_sum(connection: sqlite3.Connection) -> list[int]:
    """Bytes of a database in the state that a connection sees, and their CRC-32 up to a size."""
    (pages,), (size,) = (
        connection.execute(f"PRAGMA page_{of}").fetchone() for of in ("count", "size")
    )
    total = int(pages) * int(size)
    return [total, zlib.crc32(connection.serialize()) if total <= VERIFIED else 0]


def leave_checksum(
    connection: sqlite3.Connection, folder: Path, identity: str, generation: int
) -> None:
    """Write the newest state of a database next to it; nothing where that fails."""
    with suppress(sqlite3.Error, OutputError):
        stated = {"identity": identity, "generation": generation}
        stated |= {"database": database_sum(connection)}
        write_json(folder / CHECKSUM, {**stated, "sum": checksum(canonical(stated))})


def left_checksum(folder: Path) -> dict[str, Any]:
    """The facts that the last writer left with the database; nothing where that cannot be read."""
    try:
        found = json.loads((folder / CHECKSUM).read_text("utf-8"))
        sum_ = found.pop("sum")
        return dict(found) if checksum(canonical(found)) == sum_ else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def only_writer(folder: Path, wait: float) -> AbstractContextManager[None]:
    """Wait until nobody else writes to a folder, which is made, and keep others out."""
    return only_process(folder, "is writing to this index", wait)


def remove_files(
    folder: Path,
    patterns: Sequence[str] = ("index.db*", *FILES),
    spared: Collection[object] = (),
) -> None:
    """Remove files of an index, but for those of some names."""
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        if path.name not in spared:
            with suppress(OSError):  # a reader may hold it where the system forbids that
                path.unlink()


def file_number(folder: Path | None) -> int:
    """The file system's number of the database, whatever its name; 0 if it is not there."""
    with suppress(OSError):
        return 0 if folder is None else (folder / DATABASE).stat().st_ino
    return 0


# ---------------------------------------------------------------------- what is given and kept


def check_target(target: Path, overwrite: bool) -> None:
    """Reject a folder to write that exists, unless an index may be overwritten."""
    if overwrite and in_milvus(target):
        raise OutputError(
            f"{target}: is an index in Milvus, which --overwrite does not replace; drop its "
            "collection and remove the folder, or choose another target"
        )
    empty = not target.exists() or (target.is_dir() and not any(target.iterdir()))
    if not empty and not overwrite:
        raise OutputError(f"{target}: exists; choose another target or use --overwrite")
    if not empty and not is_any_index(target):
        raise OutputError(f"{target}: exists and is no index; choose another target")
    check_writable(target.parent)


def row_ids(ids: Sequence[str] | None, count: int, first: int) -> list[str]:
    """The ids given, or row numbers from ``first`` on; one distinct string a row."""
    if ids is None:
        return [str(first + row) for row in range(count)]
    if len(ids) != count:
        raise OptionError("ids", len(ids), f"is not one id for each of {count} texts")
    seen: set[str] = set()
    for row, name in enumerate(ids):
        if not isinstance(name, str):
            raise OptionError("ids", name, "is not a string")
        if name in seen:
            raise OptionError("ids", name, f"is there twice, the second time for text {row}")
        seen.add(name)
    return list(ids)


def check_vectors(vectors: Vectors, count: int, dimension: int | None, metric: str) -> Vectors:
    """Vectors of the right shape, finite, float32, of length one where the metric is cosine."""
    array = np.asarray(vectors)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or len(array) != count:
        raise ModelError(f"vectors must be numbers of shape ({count}, d), not {array.shape}")
    if dimension is not None and array.shape[1] != dimension:
        raise ModelError(
            f"vectors have {array.shape[1]} dimensions and the index has {dimension}: "
            "they come from different models"
        )
    array = array.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise ModelError(f"{len(bad)} of {count} vectors hold NaN or infinity, first row {bad[0]}")
    return normalize(array) if metric == "cosine" else array


def checksum(*parts: Any) -> int:
    """CRC-32 of some values; a blob differs from any text, which a damaged database may give."""
    return zlib.crc32(
        b"\0".join(
            b"\1" + part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
            for part in parts
        )
    )


def vector_sum(vectors: Vectors, before: int = 0) -> int:
    """CRC-32 of vectors, or of one, behind those of ``before``."""
    return zlib.crc32(np.ascontiguousarray(vectors, dtype="<f4").data, before)
