"""The rows of an index in SQLite, their vectors in a mapped file next to it.

    index.db            ids, texts, metadata, checksums, postings of words, and what the index is
    vectors-000001.f32  rows of float32, one behind another; the database says how many there are
    index.sum           generation and checksum of index.db as the last writer left it

A change is one transaction (:mod:`contrasent.search.transaction`). A reader holds a read
transaction and so sees one state for as long as it lives.
"""

import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, OutputError
from contrasent.search.integrity import (
    VERIFIED,
    checksum,
    database_sum,
    left_checksum,
    vector_sum,
)
from contrasent.search.words import Posting
from contrasent.types import Vectors

DATABASE, LOCK = "index.db", ".lock"
MILVUS = "milvus.json"
"""The file of an index in Milvus."""
FORMAT = 3
ROWS_AT_ONCE = 4096
WAIT = 10.0  # seconds that SQLite waits for another process's transaction

_TABLES = """
CREATE TABLE facts (one INTEGER PRIMARY KEY CHECK (one = 1), json TEXT, sum INTEGER);
CREATE TABLE rows (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL,
    metadata TEXT NOT NULL, vector_sum INTEGER NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE dead (row INTEGER PRIMARY KEY);
CREATE TABLE blocks (first INTEGER PRIMARY KEY, count INTEGER NOT NULL,
    vector_sum INTEGER NOT NULL, lengths BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE postings (first INTEGER, term TEXT, held BLOB NOT NULL, counts BLOB NOT NULL,
    sum INTEGER NOT NULL, PRIMARY KEY (first, term)) WITHOUT ROWID;
CREATE TABLE documents (name TEXT PRIMARY KEY, facts TEXT NOT NULL)
"""


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty index."""
    for table in _TABLES.split(";"):
        connection.execute(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts of an index."""

    format: int = FORMAT
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)  # drawn when it was made
    generation: int = 1  # rises with each change
    model: str = ""  # identity of the model that made the vectors
    source: str = ""  # how that is loaded
    metric: str = "cosine"
    dimension: int = 0
    vectors: str = "vectors-000001.f32"
    rows: int = 0  # of the vector file, dead ones included
    dead: int = 0
    next_id: int = 0
    language: str = ""  # how words are analysed; "" until the first rows are there
    ranker: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, Any] = field(default_factory=dict)  # of the binary codes
    # where its rows came from: kind, path, root that names of documents are relative to, options
    origin: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A row, verified."""

    row: int
    id: str
    text: str
    metadata: Any


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
            ) from error
        if "full" in said or "readonly" in said or "disk I/O" in said:
            raise OutputError(f"{folder}: cannot write ({error}); free some space") from error
        raise damaged(folder, error) from error


def damaged(folder: Path | None, what: object) -> InputError:
    """The error of an index whose files are not what was written."""
    where = folder if folder is not None else "the index"
    return InputError(where, f"is damaged ({what}); 'contrasent doctor {where}' says what is left")


class Store:
    """A state of an index, to read."""

    def __init__(self, connection: sqlite3.Connection, folder: Path | None, facts: Facts) -> None:
        connection.isolation_level = None  # no transaction begins by itself
        self.connection, self.folder, self.facts = connection, folder, facts
        self.vectors: Vectors = np.empty((0, facts.dimension), dtype=np.float32)
        self.stated: dict[str, Any] = {}

    @classmethod
    def in_memory(cls, facts: Facts) -> Self:
        """An empty one without a folder."""
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        make_tables(connection)
        return cls(connection, None, facts)

    @classmethod
    def open(cls, folder: Path, *, verify: bool = True) -> "Store":
        """A snapshot of an index folder; of what is left of a damaged one without ``verify``."""
        if not is_index(folder):
            raise InputError(folder, _not_an_index(folder))
        for attempt in range(3):
            stated = left_checksum(folder)  # before the state, which is as new then
            with translated(folder):
                store = cls(_reading(folder), folder, Facts())
                try:
                    store.stated, store.facts = stated, store._read_facts()
                    if verify:
                        store.verify_database()
                    store._map(verify)
                    return store
                except FileNotFoundError:  # a writer compacted the index since the facts were read
                    store.close()
                    if attempt == 2:
                        raise damaged(folder, f"{store.facts.vectors} is missing") from None
                except BaseException:
                    store.close()
                    raise
        raise AssertionError("unreachable")

    @classmethod
    def state(cls, folder: Path) -> Facts:
        """The facts of an index folder now."""
        if not (folder / DATABASE).is_file():
            raise InputError(folder, _not_an_index(folder))
        with translated(folder), closing(cls(_reading(folder), folder, Facts())) as store:
            return store._read_facts()

    @property
    def path(self) -> Path:
        """The file of the vectors."""
        assert self.folder is not None
        return self.folder / Path(self.facts.vectors).name

    def close(self) -> None:
        """End the read transaction."""
        self.connection.close()

    def _read_facts(self) -> Facts:
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN")
        found = self.connection.execute("SELECT json, sum FROM facts").fetchone()
        if found is None or checksum(found[0]) != found[1]:
            raise damaged(self.folder, "its description")
        data = json.loads(found[0])
        if (made := data.get("format")) != FORMAT:
            problem = f"is of format {made!r} and this version reads {FORMAT}; build it again"
            raise InputError(str(self.folder), problem)
        return Facts(**data)

    def _map(self, verify: bool) -> None:
        """Map the vectors, and verify what is small enough to."""
        path, facts = self.path, self.facts
        size = path.stat().st_size if facts.rows else 0  # without rows there need be no file
        there = size // (4 * max(1, facts.dimension))
        if verify and there < facts.rows:
            raise damaged(self.folder, f"{path.name} is too short")
        shape = (min(facts.rows, there), facts.dimension)
        if all(shape):
            self.vectors = np.memmap(path, dtype="<f4", mode="r", shape=shape)
        if verify and self.vectors.nbytes <= VERIFIED:
            for first in self.damaged_blocks():
                raise damaged(self.folder, f"{path.name}, rows from {first:,} on")

    def verify_database(self) -> None:
        """Compare the database with what its writer left, as it was before the state was read."""
        assert self.folder is not None
        stated, facts = self.stated, self.facts
        if stated.get("identity") == facts.identity and stated["generation"] > facts.generation:
            raise damaged(self.folder, f"its last change is lost from {DATABASE}-wal")
        if stated.get("generation") != facts.generation:
            stated = left_checksum(self.folder)  # left since then, or never
        own = {"identity": facts.identity, "generation": facts.generation}
        if own.items() <= stated.items() and stated["database"] != database_sum(self.connection):
            raise damaged(self.folder, DATABASE)

    def damaged_blocks(self) -> Iterator[int]:
        """First rows of the blocks whose vectors are not what was written."""
        found = self.connection.execute("SELECT first, count, vector_sum FROM blocks")
        for first, count, stated in found.fetchall():
            if vector_sum(self.vectors[first : first + count]) != stated:
                yield first

    # ------------------------------------------------------------------ reading

    def every(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of an answer of the database."""
        with translated(self.folder):
            return self.connection.execute(sql, values).fetchall()

    def alive(self) -> NDArray[np.bool_]:
        """(rows,) which rows are not deleted."""
        mask = np.ones(self.facts.rows, dtype=bool)
        if self.facts.dead:
            dead = [row for (row,) in self.every("SELECT row FROM dead")]
            if len(dead) != self.facts.dead or max(dead) >= len(mask):
                raise damaged(self.folder, "its deleted rows")
            mask[dead] = False
        return mask

    def _row(self, row: int, id: str, text: str, metadata: str, vector: int, sum_: int) -> Row:
        if checksum(row, id, text, metadata, vector) != sum_:
            raise damaged(self.folder, f"the text of row {row}")
        return Row(row, id, text, json.loads(metadata))

    def read(self, numbers: Sequence[int]) -> list[Row]:
        """Rows by their numbers, verified: id, text, metadata and vector as they were written."""
        found = []
        for number in numbers:
            stored = self.every("SELECT * FROM rows WHERE row = ?", (number,))
            if not stored:
                raise damaged(self.folder, f"row {number} is missing")
            found.append(self._row(*stored[0]))
            if vector_sum(self.vectors[number : number + 1]) != stored[0][4]:
                raise damaged(self.folder, f"the vector of row {number}")
        return found

    def after(self, row: int) -> list[Row]:
        """The next rows behind one, up to 4,096 of them; their vectors are not verified."""
        sql = f"SELECT * FROM rows WHERE row > ? ORDER BY row LIMIT {ROWS_AT_ONCE}"
        return [self._row(*stored) for stored in self.every(sql, (row,))]

    def find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """(n,) row of each id, -1 where there is none."""
        sql = "SELECT row FROM rows WHERE id = ?"
        return np.array([next(iter(self.every(sql, (i,))), (-1,))[0] for i in ids], np.int64)

    def rows_of(self, document: str) -> list[Row]:
        """Rows whose ids are those of a document, or of the rows of a table, verified."""
        sql = "SELECT row FROM rows WHERE id > ? AND id < ? ORDER BY row"
        return self.read([row for (row,) in self.every(sql, (f"{document}#", f"{document}$"))])

    def matching(self, condition: str, values: Sequence[Any]) -> NDArray[np.bool_]:
        """(rows,) which rows a condition of SQL is true of."""
        mask = np.zeros(self.facts.rows, dtype=bool)
        found = self.every(f"SELECT row FROM rows WHERE {condition}", values)
        mask[[row for (row,) in found]] = True
        return mask

    def lengths(self) -> NDArray[np.float32]:
        """(rows,) terms of each row."""
        parts = [np.empty(0, dtype=np.float32)]
        for first, data, sum_ in self.every("SELECT first, lengths, sum FROM blocks ORDER BY 1"):
            if checksum(first, data) != sum_:
                raise damaged(self.folder, f"the words of rows from {first:,} on")
            parts.append(np.frombuffer(data, "<u4").astype(np.float32))
        return np.concatenate(parts)

    def posting(self, term: str) -> Posting | None:
        """The rows that hold a term, dead ones included, and how often."""
        found = self.every(
            "SELECT postings.* FROM blocks CROSS JOIN postings "
            "ON postings.first = blocks.first AND term = ? ORDER BY blocks.first",
            (term,),
        )
        parts = [self.read_posting(*stored)[1] for stored in found]
        if not parts:
            return None
        held, counts = zip(*parts, strict=True)
        return np.concatenate(held), np.concatenate(counts)

    def read_posting(
        self, first: int, term: str, held: bytes, counts: bytes, sum_: int
    ) -> tuple[str, Posting]:
        """A term and the rows of a block that hold it, verified."""
        if checksum(first, term, held, counts) != sum_:
            raise damaged(self.folder, f"the rows of the word {str(term)[:60]!r}")
        return term, (np.frombuffer(held, "<i4"), np.frombuffer(counts, "<u2"))

    def documents(self) -> dict[str, dict[str, Any]]:
        """Facts of the files that the rows came from, by name."""
        found = self.every("SELECT name, facts FROM documents")
        return {name: json.loads(facts) for name, facts in found}


def is_index(folder: str | Path) -> bool:
    """Whether a folder is an index of this kind, one whose first writer was not killed."""
    place = Path(folder)
    if not (place / DATABASE).is_file() or (place / f"{DATABASE}-journal").exists():
        return False  # there is a journal only before the first table
    try:
        with closing(_reading(place)) as connection:
            return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error:
        return True  # a damaged one


def is_any_index(folder: str | Path) -> bool:
    """Whether a folder is an index of this kind, of an earlier format, or in Milvus."""
    place = Path(folder)
    return is_index(place) or any((place / name).is_file() for name in ("index.json", MILVUS))


def _reading(folder: Path) -> sqlite3.Connection:
    """A connection that reads; of a folder that cannot be written, without a log."""
    log = folder / f"{DATABASE}-wal"
    kept = log.exists() and log.stat().st_size > 0
    how = "ro" if kept or os.access(folder, os.W_OK) else "ro&immutable=1"
    path = f"{(folder / DATABASE).absolute().as_uri()}?mode={how}"
    return sqlite3.connect(path, uri=True, timeout=WAIT, check_same_thread=False)


def _not_an_index(folder: Path) -> str:
    if not folder.exists():
        return "no such folder; 'contrasent index SOURCE -o INDEX' makes an index"
    if (folder / DATABASE).is_file():
        return "is an index whose making was cut short; build it again with 'contrasent index'"
    if (folder / "index.json").is_file():
        return "is an index of an earlier format; build it again with 'contrasent index'"
    return "is no index (no index.db in it); 'contrasent index SOURCE -o INDEX' makes one"
