"""Damage in an index folder, and what is left intact; reads everything."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import OutputError, UserError
from contrasent.search.codes import BinaryCodes
from contrasent.search.folder import advice, is_index
from contrasent.search.store import Store
from contrasent.search.words import in_name
from contrasent.types import Finding

NAMED = 5  # damaged rows that are named
FAULTS = (UserError, sqlite3.Error, ValueError, TypeError, LookupError, OSError)


def examine(folder: Path) -> list[Finding]:
    """Read an index folder and compare all of it with its checksums."""
    try:
        store = Store.open(folder, verify=False)
    except UserError as error:
        if isinstance(error, OutputError) or not is_index(folder):
            raise  # it is held by another process, or something else than damage
        return [Finding("description", False, str(error).removesuffix(advice(folder)))]
    with closing(store):
        findings = [Finding(check, False, problem) for check, problem in _problems(store)]
        total, bad = len(store), _damaged_rows(store)
    if bad:
        named = ", ".join(map(str, bad[:NAMED])) + (", ..." if len(bad) > NAMED else "")
        findings.append(Finding("rows", False, f"{len(bad):,} are damaged: {named}"))
    left = f"{total - len(bad):,} of {total:,} rows are intact"
    return [*findings, Finding("content", not findings, left)]


def _damaged_rows(store: Store) -> list[int]:
    """Numbers of the rows whose id, text, metadata or vector is not what was written."""
    damaged = []
    try:
        numbers = np.flatnonzero(store.alive)
    except FAULTS:
        numbers = np.arange(store.facts.rows)
    for number in numbers.tolist():
        try:
            store.rows([number])
        except FAULTS:
            damaged.append(number)
    return damaged


def _problems(store: Store) -> Iterator[tuple[str, str]]:
    """Damage apart from single rows: the part, and the problem."""
    for check, of in _CHECKS.items():
        try:
            faults = of(store)
            yield from ((check, text) for text in (faults if isinstance(faults, Iterator) else ()))
        except UserError as error:
            yield check, str(error).removesuffix(advice(store.folder))
        except FAULTS as error:
            yield check, f"cannot be read ({' '.join(str(error).split())})"


def _database(store: Store) -> Iterator[str]:
    for (line,) in store.query("PRAGMA integrity_check(3)"):
        if line != "ok":
            yield " ".join(str(line).split())
    store.verify_database()


def _deleted(store: Store) -> Iterator[str]:
    rows, dead = store.facts.rows, int((~store.alive).sum())
    ((count, first, last),) = store.query("SELECT count(*), min(row), max(row) FROM rows")
    if count != rows - dead or (count and not 0 <= first <= last < rows):
        yield f"{count:,} rows remain and {dead:,} are deleted, of {rows:,}"


def _vectors(store: Store) -> Iterator[str]:
    name = store.facts.vectors
    if len(store.vectors) < store.encoded:
        yield f"{name} is missing or too short"
        return
    yield from (f"{name}, in the rows from {n:,}" for n in store.damaged_blocks())


def _words(store: Store) -> Iterator[str]:
    """Check every posting, and that they add up to the terms of each row."""
    lengths, end = store.lengths(), 0
    for first, count in store.query("SELECT first, count FROM blocks ORDER BY first"):
        if first != end:
            yield f"missing from row {end:,} on"
        end = first + count
    if end != store.facts.rows or len(lengths) != end:
        yield f"{end:,} of {store.facts.rows:,} rows"
        return
    counted, most = np.zeros(end, dtype=np.float32), np.iinfo(np.uint16).max
    last: tuple[Any, ...] = ()
    for stored in store.connection.execute("SELECT * FROM postings"):
        rows, often = store.read_posting(*stored)
        if stored[:2] <= last:
            yield f"out of order from row {stored[0]:,} on"
            return
        last = stored[:2]
        if stored[1] == in_name(stored[1][1:]):
            continue
        counted[rows] += np.where(often == most, np.nan, often)  # NaN: there were more
    for row in np.flatnonzero((counted != lengths) & ~np.isnan(counted))[:1]:
        yield f"incomplete in row {row:,}"


def _codes(store: Store) -> None:
    if store.folder is not None and (codes := store.facts.codes):
        BinaryCodes.open(store.folder, codes, store.facts.dimension, whole=True)


# Each yields problems one by one, or reads a part and raises.
_CHECKS: dict[str, Callable[[Store], object]] = {
    "database": _database,
    "deleted rows": _deleted,
    "vectors": _vectors,
    "BM25 terms": _words,
    "documents": Store.files,
    "codes": _codes,
    "learned": Store.stored_learned,
}
