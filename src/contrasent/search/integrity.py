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


def file_sum(path: Path) -> int:
    """CRC-32 of a file.

    Never of the database: closing a file drops the locks that SQLite holds on it in this process.
    """
    found = 0
    with path.open("rb") as stream:
        while part := stream.read(1 << 20):
            found = zlib.crc32(part, found)
    return found


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
    """Store the checksum of a database in its newest state; nothing where that fails."""
    with suppress(sqlite3.Error, OutputError):
        stated = {
            "identity": identity,
            "generation": generation,
            "database": database_sum(connection),
        }
        write_json(folder / CHECKSUM, {**stated, "sum": checksum(canonical(stated))})


def left_checksum(folder: Path) -> dict[str, Any]:
    """The checksum that the last writer stored; empty where it cannot be read."""
    try:
        found = json.loads((folder / CHECKSUM).read_text("utf-8"))
        sum_ = found.pop("sum")
        return dict(found) if checksum(canonical(found)) == sum_ else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
