"""All that an index holds, to be compared with another's."""

import sqlite3
from contextlib import closing

import numpy as np

from contrasent.search.doctor import examine
from contrasent.search.index import Index

# All tables, without the checksums of vectors, whose last bits may differ.
TABLES = {
    "rows": "row, id, text, metadata", "dead": "*", "blocks": "first, count, lengths, sum",
    "postings": "*", "documents": "*",
}  # fmt: skip


def state(folder):
    """All of an index but its names, numbers and times: of itself, its changes and its files."""
    with closing(sqlite3.connect(folder / "index.db")) as database:
        parts = {
            name: database.execute(f"SELECT {columns} FROM {name}").fetchall()
            for name, columns in TABLES.items()
        }
        parts["tables"] = sorted(database.execute("SELECT name FROM sqlite_master").fetchall())
    with closing(Index.open(folder)) as index:
        facts = {key: getattr(index.facts, key) for key in index.facts.__dataclass_fields__}
        vectors = np.array(index.vectors)
    for key in ("identity", "generation", "change", "vectors"):
        del facts[key]
    facts["origin"].pop("listed", None)
    files = [path.name for path in folder.glob("*") if path.name.startswith(("vectors", "codes"))]
    return {**parts, "facts": facts, "files": len(files)}, vectors


def assert_same(folder, whole):
    """That an index holds what another does, and its vectors but for the last bits.

    A processor adds in an order that depends on the shape of a block, and so does rounding.
    """
    (parts, vectors), (others, same) = state(folder), whole
    assert parts == others
    assert all(finding.good for finding in examine(folder))
    np.testing.assert_allclose(vectors, same, rtol=0, atol=1e-6)


def logged(folder):
    """Bytes of changes that are in the log of an index and not in its database."""
    log = folder / "index.db-wal"
    return log.stat().st_size if log.exists() else 0
