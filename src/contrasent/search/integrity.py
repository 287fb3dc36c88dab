"""Checksums of what an index keeps."""

import json
import sqlite3
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import OutputError
from contrasent.files import write_json
from contrasent.search.filters import canonical
from contrasent.types import Vectors

CHECKSUM = "index.sum"
VERIFIED = 192 << 20
"""Bytes up to which a file is verified whole when an index is opened; larger ones by doctor."""


def checksum(*parts: Any) -> int:
    """CRC-32 of some values."""
    return zlib.crc32("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"))


def vector_sum(vectors: Vectors, before: int = 0) -> int:
    """CRC-32 of vectors, or of one, behind those of ``before``."""
    return zlib.crc32(np.ascontiguousarray(vectors, dtype="<f4").tobytes(), before)


def blob_sum(data: Any) -> int:
    """CRC-32 of a blob; -1 where a damaged database gives something else."""
    return zlib.crc32(data) if isinstance(data, bytes) else -1


def file_sum(path: Path) -> int:
    """CRC-32 of a file.

    Never of the database: closing a file drops the locks that SQLite holds on it in this process.
    """
    found = 0
    with path.open("rb") as stream:
        while part := stream.read(1 << 20):
            found = zlib.crc32(part, found)
    return found


def database_size(connection: sqlite3.Connection) -> int:
    """Bytes of a database in the state that a connection sees."""
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    return int(pages) * int(size)


def database_sum(connection: sqlite3.Connection) -> int:
    """CRC-32 of a database in the state that a connection sees, its log included."""
    return zlib.crc32(connection.serialize())


def leave_checksum(
    connection: sqlite3.Connection, folder: Path, identity: str, generation: int
) -> None:
    """Leave beside a database, in its newest state, what that is; or nothing where that fails."""
    stated: dict[str, Any] = {"identity": identity, "generation": generation}
    with suppress(sqlite3.Error, OutputError):
        size = database_size(connection)
        sum_ = database_sum(connection) if size <= VERIFIED else 0
        stated |= {"bytes": size, "crc32": sum_}
        write_json(folder / CHECKSUM, {**stated, "sum": checksum(canonical(stated))})


def left_checksum(folder: Path) -> dict[str, Any]:
    """What the last writer left beside the database; nothing where that cannot be read."""
    try:
        found = json.loads((folder / CHECKSUM).read_text("utf-8"))
        sum_ = found.pop("sum")
        return dict(found) if checksum(canonical(found)) == sum_ else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
