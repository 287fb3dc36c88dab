"""What is damaged in an index folder, and what is left of it: everything is read."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from contrasent.errors import UserError
from contrasent.search.binary import BinaryCodes
from contrasent.search.integrity import blob_sum, checksum, file_sum
from contrasent.search.store import DATABASE, Store, damaged, is_index
from contrasent.types import Finding

NAMED = 5
"""Damaged rows that are named."""
SMALL = 16 << 20
"""Bytes of vectors and database up to which every row is verified when no checksum of the whole
is there: its writer was killed before it left one."""


def examine(folder: Path) -> list[Finding]:
    """Read an index folder and compare all of it with its checksums.

    Raises:
        InputError: the folder is no index.
    """
    try:
        store = Store.open(folder, verify=False)
    except UserError as error:
        if not is_index(folder):
            raise
        return [Finding("description", False, str(error))]
    try:
        found = [Finding(check, False, problem) for check, problem in problems(store)]
        bad = damaged_rows(store)
    finally:
        store.close()
    facts = store.facts
    if bad:
        named = ", ".join(str(row) for row in bad[:NAMED]) + (", ..." if len(bad) > NAMED else "")
        found.append(Finding("rows", False, f"{len(bad):,} are damaged: {named}"))
    total = facts.rows - facts.dead
    left = f"{total - len(bad):,} of {total:,} rows are whole"
    return [*found, Finding("content", not found, left)]


def verify(store: Store) -> None:
    """Reject a state that differs from what was written, where opening it could not tell.

    Raises:
        InputError: something of it is damaged.
    """
    if store.verified or store.folder is None or store.vectors.nbytes > SMALL:
        return
    if (store.folder / DATABASE).stat().st_size > SMALL:
        return
    for _, problem in problems(store):
        raise damaged(store.folder, problem)
    for row in damaged_rows(store):
        raise damaged(store.folder, f"row {row}")


def damaged_rows(store: Store) -> list[int]:
    """Numbers of the rows whose id, text, metadata or vector is not what was written."""
    found = []
    try:
        numbers = np.flatnonzero(store.alive())
    except UserError:
        numbers = np.arange(store.facts.rows)
    for number in numbers.tolist():
        try:
            store.read([number])
        except UserError:
            found.append(number)
    return found


def problems(store: Store) -> Iterator[tuple[str, str]]:
    """What is damaged apart from single rows: the part, and what it is."""
    for check, of in _CHECKS.items():
        try:
            for problem in of(store):
                yield check, problem
        except UserError as error:
            yield check, str(error)
        except (sqlite3.Error, ValueError, TypeError, LookupError, OSError) as error:
            yield check, f"cannot be read ({error})"


def _database(store: Store) -> Iterator[str]:
    for (line,) in store.connection.execute("PRAGMA integrity_check(3)").fetchall():
        if line != "ok":
            yield " ".join(str(line).split())
    try:
        store.verify_database()
    except UserError as error:
        yield str(error)


def _deleted(store: Store) -> Iterator[str]:
    facts, rows = store.facts, "SELECT count(*), min(row), max(row) FROM rows"
    store.alive()
    (count, first, last) = store.connection.execute(rows).fetchone()
    if count != facts.rows - facts.dead or (count and not 0 <= first <= last < facts.rows):
        yield f"{count:,} rows are kept and {facts.dead:,} deleted of {facts.rows:,}"


def _vectors(store: Store) -> Iterator[str]:
    if len(store.vectors) < store.facts.rows:
        yield f"{store.facts.vectors} is missing or too short"
        return
    for first in store.damaged_blocks():
        yield f"{store.facts.vectors}, somewhere in the rows from {first:,} on"


def _words(store: Store) -> Iterator[str]:
    """Every posting, and that together they are as many terms as each row has."""
    blocks = "SELECT first, count FROM blocks ORDER BY first"
    known = store.connection.execute(blocks).fetchall()
    end = 0
    for first, count in known:
        if first != end:
            yield f"rows from {end:,} on have none"
        end = first + count
    lengths = store.lengths()
    if end != store.facts.rows or len(lengths) != end:
        yield f"those of {end:,} rows are known, of {store.facts.rows:,}"
        return
    counted = np.zeros(end, dtype=np.float32)
    most = np.iinfo(np.uint16).max
    capped = np.zeros(end, dtype=bool)
    for term, first, held, counts, sum_ in store.connection.execute("SELECT * FROM postings"):
        if checksum(term, first, blob_sum(held), blob_sum(counts)) != sum_:
            yield f"the rows of {str(term)[:60]!r}"
            continue
        rows, often = np.frombuffer(held, "<i4"), np.frombuffer(counts, "<u2")
        counted[rows] += often
        capped[rows] |= often == most
    for row in np.flatnonzero((counted != lengths) & ~capped)[:1]:
        yield f"some of row {row:,} are missing"


def _documents(store: Store) -> Iterator[str]:
    for name, facts in store.connection.execute("SELECT name, facts FROM documents"):
        if not isinstance(json.loads(facts), dict):
            yield f"{name!r} is not as it was written"


def _codes(store: Store) -> Iterator[str]:
    if store.folder is not None and store.facts.codes:
        BinaryCodes.open(store.folder, store.facts)
        name = Path(str(store.facts.codes["file"])).name
        if file_sum(store.folder / name) != store.facts.codes["sum"]:
            yield f"{name} is not as it was written"


_CHECKS: dict[str, Callable[[Store], Iterator[str]]] = {
    "database": _database,
    "deleted rows": _deleted,
    "vectors": _vectors,
    "words": _words,
    "documents": _documents,
    "codes": _codes,
}
