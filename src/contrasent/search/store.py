"""The rows of an index in SQLite, their vectors in a mapped file beside it.

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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, OutputError
from contrasent.files import writing
from contrasent.search.filters import canonical
from contrasent.search.integrity import (
    VERIFIED,
    blob_sum,
    checksum,
    database_size,
    database_sum,
    leave_checksum,
    left_checksum,
    vector_sum,
)
from contrasent.search.words import Posting
from contrasent.types import Vectors

DATABASE, LOCK = "index.db", ".lock"
MILVUS = "milvus.json"
"""What an index in Milvus has in its folder."""
FORMAT = 2
BLOCK = 1 << 16  # rows whose postings are kept together
ROWS_AT_ONCE = 4096
WAIT = 10.0  # seconds that SQLite waits for another process's transaction
MERGED = 8  # blocks of a like size that are merged into one

_TABLES = """
CREATE TABLE facts (one INTEGER PRIMARY KEY CHECK (one = 1), json TEXT, sum INTEGER);
CREATE TABLE rows (row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL,
    metadata TEXT NOT NULL, vector_sum INTEGER NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE dead (row INTEGER PRIMARY KEY);
CREATE TABLE blocks (first INTEGER PRIMARY KEY, count INTEGER NOT NULL,
    vector_sum INTEGER NOT NULL, lengths BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE postings (term TEXT, first INTEGER, held BLOB NOT NULL, counts BLOB NOT NULL,
    sum INTEGER NOT NULL, PRIMARY KEY (term, first)) WITHOUT ROWID;
CREATE TABLE documents (name TEXT PRIMARY KEY, facts TEXT NOT NULL);
"""


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty index."""
    for table in filter(str.strip, _TABLES.split(";")):
        connection.execute(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What an index is."""

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
    codes: dict[str, Any] = field(default_factory=dict)  # the binary codes beside the vectors


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
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise OutputError(
                f"{folder}: another process is writing to this index; try again when it has ended"
            ) from error
        if "full" in str(error) or "readonly" in str(error) or "disk I/O" in str(error):
            raise OutputError(f"{folder}: cannot write ({error}); free some space") from error
        raise damaged(folder, error) from error
    except sqlite3.DatabaseError as error:
        raise damaged(folder, error) from error


def damaged(folder: Path | None, what: object) -> InputError:
    """The error of an index whose files are not what was written."""
    where = folder if folder is not None else "the index"
    return InputError(where, f"is damaged ({what}); 'contrasent doctor {where}' says what is left")


class Store:
    """A state of an index, to read."""

    def __init__(self, connection: sqlite3.Connection, folder: Path | None, facts: Facts) -> None:
        self.connection, self.folder, self.facts = connection, folder, facts
        self.vectors: Vectors = np.empty((0, facts.dimension), dtype=np.float32)
        self.stated: dict[str, Any] = {}
        self.verified = False  # that the database is what was written, or too large to be compared

    @classmethod
    def in_memory(cls, facts: Facts) -> Self:
        """An empty one without a folder."""
        connection = connected(sqlite3.connect(":memory:", check_same_thread=False))
        make_tables(connection)
        return cls(connection, None, facts)

    @classmethod
    def open(cls, folder: Path, *, verify: bool = True) -> "Store":
        """A snapshot of an index folder; of what is left of a damaged one without ``verify``.

        Raises:
            InputError: the folder is no index, or is damaged.
        """
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
        """What an index folder is now."""
        if not (folder / DATABASE).is_file():
            raise InputError(folder, _not_an_index(folder))
        with translated(folder):
            store = cls(_reading(folder), folder, Facts())
            try:
                return store._read_facts()
            finally:
                store.close()

    def copy(self, folder: Path) -> None:
        """Write this state into an empty folder, without binary codes."""
        facts = replace(self.facts, codes={})
        stored = canonical(asdict(facts))
        with translated(folder), closing(sqlite3.connect(folder / DATABASE)) as other:
            self.connection.backup(other)
            other.execute("UPDATE facts SET json = ?, sum = ?", (stored, checksum(stored)))
            other.commit()
            other.execute("PRAGMA journal_mode = WAL")  # else a reader would keep writers waiting
            leave_checksum(other, folder, facts.identity, facts.generation)
        with writing(folder):
            np.ascontiguousarray(self.vectors, dtype="<f4").tofile(folder / facts_file(self.facts))

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
        if data.get("format") != FORMAT:
            raise InputError(
                str(self.folder),
                f"is of format {data.get('format')!r} and this version reads {FORMAT}; "
                "build the index again",
            )
        return Facts(**data)

    def _map(self, verify: bool) -> None:
        """Map the vectors, and verify what is small enough to."""
        assert self.folder is not None
        path, facts = self.folder / facts_file(self.facts), self.facts
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
        stated, own = self.stated, (self.facts.identity, self.facts.generation)
        if stated.get("identity") == own[0] and stated["generation"] > own[1]:
            raise damaged(self.folder, f"its last change is lost from {DATABASE}-wal")
        if stated.get("generation") != own[1]:
            stated = left_checksum(self.folder)  # left since then, or never
        size = database_size(self.connection)
        self.verified = size > VERIFIED
        if not self.verified and (stated.get("identity"), stated.get("generation")) == own:
            if (stated["bytes"], stated["crc32"]) != (size, database_sum(self.connection)):
                raise damaged(self.folder, DATABASE)
            self.verified = True

    def damaged_blocks(self) -> Iterator[int]:
        """First rows of the blocks whose vectors are not what was written."""
        found = self.connection.execute("SELECT first, count, vector_sum FROM blocks")
        for first, count, stated in found.fetchall():
            if vector_sum(self.vectors[first : first + count]) != stated:
                yield first

    # ------------------------------------------------------------------ reading

    def alive(self) -> NDArray[np.bool_]:
        """(rows,) which rows are not deleted."""
        mask = np.ones(self.facts.rows, dtype=bool)
        if self.facts.dead:
            with translated(self.folder):
                dead = [row for (row,) in self.connection.execute("SELECT row FROM dead")]
            if len(dead) != self.facts.dead or max(dead) >= len(mask):
                raise damaged(self.folder, "its deleted rows")
            mask[dead] = False
        return mask

    def read(self, numbers: Sequence[int]) -> list[Row]:
        """Rows by their numbers, verified: id, text, metadata and vector as they were written.

        Raises:
            InputError: a row is damaged.
        """
        found = []
        with translated(self.folder):
            for number in numbers:
                stored = self.connection.execute(
                    "SELECT id, text, metadata, vector_sum, sum FROM rows WHERE row = ?",
                    (int(number),),
                ).fetchone()
                if stored is None:
                    raise damaged(self.folder, f"row {number} is missing")
                name, text, metadata, stated, sum_ = stored
                if checksum(number, name, text, metadata, stated) != sum_:
                    raise damaged(self.folder, f"the text of row {number}")
                if number >= len(self.vectors) or vector_sum(self.vectors[number]) != stated:
                    raise damaged(self.folder, f"the vector of row {number}")
                found.append(Row(int(number), name, text, json.loads(metadata)))
        return found

    def after(self, row: int) -> list[Row]:
        """The next rows behind one, up to 4,096 of them; their vectors are not verified."""
        with translated(self.folder):
            found = self.connection.execute(
                "SELECT row, id, text, metadata, vector_sum, sum FROM rows WHERE row > ? "
                "ORDER BY row LIMIT ?",
                (row, ROWS_AT_ONCE),
            ).fetchall()
        rows = []
        for number, name, text, metadata, stated, sum_ in found:
            if checksum(number, name, text, metadata, stated) != sum_:
                raise damaged(self.folder, f"the text of row {number}")
            rows.append(Row(number, name, text, json.loads(metadata)))
        return rows

    def find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """(n,) row of each id, -1 where there is none."""
        found = np.full(len(ids), -1, dtype=np.int64)
        with translated(self.folder):
            for at, name in enumerate(ids):
                row = self.connection.execute("SELECT row FROM rows WHERE id = ?", (name,))
                found[at] = (row.fetchone() or (-1,))[0]
        return found

    def matching(self, condition: str, values: Sequence[Any]) -> NDArray[np.bool_]:
        """(rows,) which rows a condition of SQL is true of."""
        mask = np.zeros(self.facts.rows, dtype=bool)
        with translated(self.folder):
            found = self.connection.execute(f"SELECT row FROM rows WHERE {condition}", values)
            mask[[row for (row,) in found]] = True
        return mask

    def lengths(self) -> NDArray[np.float32]:
        """(rows,) terms of each row."""
        parts = []
        with translated(self.folder):
            found = self.connection.execute("SELECT first, lengths, sum FROM blocks ORDER BY first")
            for first, data, sum_ in found:
                if checksum(first, blob_sum(data)) != sum_:
                    raise damaged(self.folder, f"the words of rows from {first:,} on")
                parts.append(np.frombuffer(data, "<u4").astype(np.float32))
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)

    def posting(self, term: str) -> Posting | None:
        """The rows that hold a term, dead ones included, and how often."""
        held, counts = [], []
        with translated(self.folder):
            found = self.connection.execute(
                "SELECT first, held, counts, sum FROM postings WHERE term = ? ORDER BY first",
                (term,),
            )
            for first, rows, often, sum_ in found:
                if checksum(term, first, blob_sum(rows), blob_sum(often)) != sum_:
                    raise damaged(self.folder, f"the rows of the word {term!r}")
                held.append(np.frombuffer(rows, "<i4"))
                counts.append(np.frombuffer(often, "<u2"))
        return (np.concatenate(held), np.concatenate(counts)) if held else None

    def documents(self) -> dict[str, dict[str, Any]]:
        """What is known of the files that the rows came from, by name."""
        with translated(self.folder):
            found = self.connection.execute("SELECT name, facts FROM documents").fetchall()
        return {name: json.loads(facts) for name, facts in found}


def facts_file(facts: Facts) -> str:
    """The name of the vector file, which leads nowhere else."""
    name = Path(facts.vectors).name
    if name != facts.vectors:
        raise InputError("index", f"names a file {facts.vectors!r} outside its folder")
    return name


def is_index(folder: str | Path) -> bool:
    """Whether a folder is an index of this kind, one whose first writer was not killed."""
    place = Path(folder)
    if not (place / DATABASE).is_file() or (place / f"{DATABASE}-journal").exists():
        return False  # there is a journal only before the first table
    try:
        with closing(_reading(place)) as connection:
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return bool(tables)
    except sqlite3.Error:
        return True  # a damaged one


def is_any_index(folder: str | Path) -> bool:
    """Whether a folder is an index of this kind, of an earlier format, or in Milvus."""
    place = Path(folder)
    return is_index(place) or any((place / name).is_file() for name in ("index.json", MILVUS))


def connected(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A connection that begins no transaction by itself."""
    connection.isolation_level = None
    return connection


def _reading(folder: Path) -> sqlite3.Connection:
    """A connection that reads; of a folder that cannot be written, without a log."""
    path = (folder / DATABASE).absolute().as_uri()
    log = folder / f"{DATABASE}-wal"
    kept = log.exists() and log.stat().st_size > 0
    plain = "?mode=ro" if kept or os.access(folder, os.W_OK) else "?mode=ro&immutable=1"
    connection = sqlite3.connect(path + plain, uri=True, timeout=WAIT, check_same_thread=False)
    return connected(connection)


def _not_an_index(folder: Path) -> str:
    if not folder.exists():
        return "no such folder; 'contrasent index SOURCE -o INDEX' makes an index"
    if (folder / DATABASE).is_file():
        return "is an index whose making was cut short; build it again with 'contrasent index'"
    if (folder / "index.json").is_file():
        return "is an index of an earlier format; build it again with 'contrasent index'"
    return "is no index (no index.db in it); 'contrasent index SOURCE -o INDEX' makes one"
