"""A change of an index: rows that are added or deleted, and what is made of them.

New vectors are written behind the old ones and fsynced before the transaction that counts them, so
that a writer killed at any moment leaves the old state or the new one: what lies behind the counted
rows is overwritten by the next.
"""

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OutputError, UserError
from contrasent.files import writing
from contrasent.search.filters import canonical
from contrasent.search.integrity import checksum, leave_checksum, vector_sum
from contrasent.search.store import (
    BLOCK,
    DATABASE,
    MERGED,
    ROWS_AT_ONCE,
    WAIT,
    Facts,
    Store,
    connected,
    facts_file,
    make_tables,
    translated,
)
from contrasent.search.words import Analyzer, Posting, postings
from contrasent.types import Vectors


class Transaction(Store):
    """A change of an index, in sight of nobody until it is committed."""

    def __init__(self, connection: sqlite3.Connection, folder: Path | None, facts: Facts) -> None:
        super().__init__(connection, folder, facts)
        self.before: Facts | None = facts
        self._stream: Any = None
        self._parts: list[Vectors] = []
        self._terms: list[list[str]] = []
        self._first = facts.rows
        self._sum = 0
        self._analyzer: Analyzer | None = None
        self._touched = False
        self.committed = False
        self._file = _file_number(folder)

    @classmethod
    def begin(cls, folder: Path) -> "Transaction":
        """Change an index folder; the caller holds its lock."""
        with translated(folder):
            made = cls(connected(sqlite3.connect(folder / DATABASE, timeout=WAIT)), folder, Facts())
            made.connection.execute("PRAGMA journal_mode = WAL")
            made.connection.execute("PRAGMA synchronous = FULL")
            made.connection.execute("BEGIN IMMEDIATE")
            try:
                made.facts = made._read_facts()
            except BaseException:
                made.connection.close()
                raise
        made.before, made._first = made.facts, made.facts.rows
        made.remap()
        return made

    @classmethod
    def create(cls, folder: Path, facts: Facts) -> "Transaction":
        """Begin a new index in a folder."""
        with translated(folder):
            connection = connected(sqlite3.connect(folder / DATABASE, timeout=WAIT))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            make_tables(connection)
        made = cls(connection, folder, facts)
        made.before = None
        return made

    def remap(self) -> None:
        """Map the vectors, those of this change as well."""
        self._flush()
        self._sync()
        if self.folder is None:
            self.vectors = np.concatenate([*self._parts]) if self._parts else self.vectors
            self._parts = [self.vectors]
        elif self.facts.rows:
            shape = (self.facts.rows, self.facts.dimension)
            path = self.folder / facts_file(self.facts)
            self.vectors = np.memmap(path, dtype="<f4", mode="r", shape=shape)

    # ------------------------------------------------------------------ changing

    def append(
        self,
        vectors: Vectors,
        texts: Sequence[str],
        ids: Sequence[str],
        metadata: Sequence[Any] | None,
        language: str,
    ) -> None:
        """Add rows; the ids are not there yet.

        ``vectors``: (n, d), checked and scaled.
        """
        if not self.facts.dimension:
            self.facts = replace(self.facts, dimension=vectors.shape[1])
        if self._analyzer is None:
            self.facts = replace(self.facts, language=self.facts.language or language)
            self._analyzer = Analyzer(self.facts.language)
        start = 0
        while start < len(texts):
            part = slice(start, min(start + BLOCK - len(self._terms), len(texts)))
            extra = [None] * (part.stop - start) if metadata is None else metadata[part]
            self._append(vectors[part], texts[part], ids[part], extra)
            start = part.stop
            if len(self._terms) == BLOCK:
                self._flush()

    def _append(
        self, vectors: Vectors, texts: Sequence[str], ids: Sequence[str], metadata: Sequence[Any]
    ) -> None:
        assert self._analyzer is not None
        data = np.ascontiguousarray(vectors, dtype="<f4")
        self._write(data)
        self._sum = vector_sum(data, self._sum)
        first, stored = self.facts.rows, []
        for at, (text, name, extra) in enumerate(zip(texts, ids, metadata, strict=True)):
            own, row, vector = canonical(extra), first + at, vector_sum(data[at])
            stored.append((row, name, text, own, vector, checksum(row, name, text, own, vector)))
            self._terms.append(self._analyzer(text))
        with translated(self.folder):
            try:
                self.connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", stored)
            except sqlite3.IntegrityError as error:
                raise UserError(f"an id is there twice; ids must differ ({error})") from error
            except UnicodeEncodeError as error:
                raise UserError(
                    f"{error.object[:60]!r} holds a lone surrogate, which is no character; "
                    "remove it"
                ) from error
        self.facts = replace(self.facts, rows=first + len(texts))

    def _write(self, data: Vectors) -> None:
        if self.folder is None:
            self._parts.append(data)
            return
        with writing(self.folder):
            if self._stream is None:
                path = self.folder / facts_file(self.facts)
                self._stream = path.open("r+b" if path.exists() else "w+b")
                self._stream.truncate(self.facts.rows * self.facts.dimension * 4)
                self._stream.seek(0, os.SEEK_END)
            self._stream.write(data)

    def _flush(self) -> None:
        """Write the postings of the rows since the last flush."""
        if not self._terms:
            return
        lengths = np.array([len(terms) for terms in self._terms], dtype="<u4").tobytes()
        self._put_block(self._first, len(self._terms), self._sum, lengths)
        self._put_postings(postings(self._terms, self._first), self._first)
        self._first, self._terms, self._sum = self.facts.rows, [], 0

    def _put_block(self, first: int, count: int, vector_sum: int, lengths: bytes) -> None:
        sum_ = checksum(first, zlib.crc32(lengths))
        with translated(self.folder):
            block = (first, count, vector_sum, lengths, sum_)
            self.connection.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?)", block)

    def _put_postings(self, found: Iterable[tuple[str, Posting]], first: int) -> None:
        def stored() -> Iterator[tuple[Any, ...]]:
            for term, (held, counts) in found:
                rows, often = held.astype("<i4").tobytes(), counts.astype("<u2").tobytes()
                sum_ = checksum(term, first, zlib.crc32(rows), zlib.crc32(often))
                yield term, first, rows, often, sum_

        with translated(self.folder):
            self.connection.executemany("INSERT INTO postings VALUES (?, ?, ?, ?, ?)", stored())

    def delete(self, numbers: NDArray[np.int64]) -> None:
        """Delete rows; their vectors stay until the next compaction."""
        if any(row >= self._first for row in numbers):
            self._flush()
        one = [(int(row),) for row in numbers]
        with translated(self.folder):
            self.connection.executemany("DELETE FROM rows WHERE row = ?", one)
            self.connection.executemany("INSERT INTO dead VALUES (?)", one)
        self.facts = replace(self.facts, dead=self.facts.dead + len(one))

    def rewrite(self, vectors_of: Callable[[NDArray[np.int64]], Vectors] | None = None) -> None:
        """Write all rows anew into another file, without dead ones, perhaps with other vectors.

        ``vectors_of``: from the numbers of some rows to their (n, d) vectors.
        """
        self.remap()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._parts = []
        old, before = self.vectors, self.facts
        with translated(self.folder):
            self.connection.execute("CREATE TEMP TABLE old AS SELECT * FROM rows ORDER BY row")
            for table in ("rows", "dead", "blocks", "postings"):
                self.connection.execute(f"DELETE FROM {table}")
        number = int(before.vectors[8:14]) + 1
        self.facts = replace(
            before, vectors=f"vectors-{number:06d}.f32", rows=0, dead=0, dimension=0, codes={}
        )
        self._first, self.vectors = 0, old[:0]
        with translated(self.folder):
            found = self.connection.execute("SELECT row, id, text, metadata FROM temp.old")
            while part := found.fetchmany(ROWS_AT_ONCE):
                rows = np.array([row for row, *_ in part], dtype=np.int64)
                names, texts = [name for _, name, *_ in part], [text for _, _, text, _ in part]
                vectors = old[rows] if vectors_of is None else vectors_of(rows)
                extra = [json.loads(data) for *_, data in part]
                self.append(vectors, texts, names, extra, before.language)
            self.connection.execute("DROP TABLE temp.old")
        self.facts = replace(self.facts, dimension=self.facts.dimension or before.dimension)

    def put_documents(self, changed: dict[str, dict[str, Any] | None]) -> None:
        """Keep what is known of files, or forget it where that is None."""
        self._touched = True
        with translated(self.folder):
            for name, facts in changed.items():
                if facts is None:
                    self.connection.execute("DELETE FROM documents WHERE name = ?", (name,))
                else:
                    stored = (name, canonical(facts))
                    self.connection.execute("REPLACE INTO documents VALUES (?, ?)", stored)

    def merge_blocks(self) -> None:
        """Join the last blocks while there are many of a like size, so that a word has few."""
        self._flush()
        with translated(self.folder):
            found = self.connection.execute("SELECT first, count FROM blocks ORDER BY first")
            blocks = found.fetchall()
        at, total = len(blocks), 0
        while at and blocks[at - 1][1] < BLOCK and blocks[at - 1][1] <= MERGED * max(1, total):
            at -= 1
            total += blocks[at][1]
            if total >= BLOCK:
                break
        if len(blocks) - at < MERGED:
            return
        self._join(blocks[at][0], total)

    def _join(self, first: int, count: int) -> None:
        with translated(self.folder):
            lengths = b"".join(
                data
                for (data,) in self.connection.execute(
                    "SELECT lengths FROM blocks WHERE first >= ? ORDER BY first", (first,)
                )
            )
            parts = self.connection.execute(
                "SELECT term, held, counts FROM postings WHERE first >= ? ORDER BY term, first",
                (first,),
            ).fetchall()
            self.connection.execute("DELETE FROM postings WHERE first >= ?", (first,))
            self.connection.execute("DELETE FROM blocks WHERE first >= ?", (first,))
        joined: dict[str, tuple[list[bytes], list[bytes]]] = {}
        for term, held, counts in parts:
            rows, often = joined.setdefault(term, ([], []))
            rows.append(held)
            often.append(counts)
        found = (
            (term, (np.frombuffer(b"".join(a), "<i4"), np.frombuffer(b"".join(b), "<u2")))
            for term, (a, b) in joined.items()
        )
        self.remap()
        self._put_block(first, count, vector_sum(self.vectors[first : first + count]), lengths)
        self._put_postings(found, first)

    def _sync(self) -> None:
        if self._stream is not None:
            with writing(Path(str(self.folder))):
                self._stream.flush()
                os.fsync(self._stream.fileno())

    def commit(self) -> Facts:
        """Make the change visible, in one transaction."""
        self._flush()
        if self.folder is None:
            self.remap()
            self._put_facts()
            return self.facts
        if self.facts == self.before and not self._touched:
            self.rollback()
            return self.facts
        self._sync()
        number = self.before.generation if self.before is not None else 0
        self.facts = replace(self.facts, generation=number + 1)
        self._put_facts()
        if _file_number(self.folder) != self._file:
            self.rollback()
            problem = "was replaced or removed meanwhile; nothing was written to it"
            raise OutputError(f"{self.folder}: {problem}")
        with translated(self.folder):
            self.connection.execute("COMMIT")
        self.committed = True
        self.before = None
        with suppress(sqlite3.Error):  # the log is written back if no reader needs it
            self.connection.execute("PRAGMA busy_timeout = 0")  # readers may stay for hours
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        leave_checksum(self.connection, self.folder, self.facts.identity, self.facts.generation)
        self._close()
        return self.facts

    def _put_facts(self) -> None:
        stored = canonical(asdict(self.facts))
        with translated(self.folder):
            self.connection.execute(
                "REPLACE INTO facts VALUES (1, ?, ?)", (stored, checksum(stored))
            )

    def rollback(self) -> None:
        """Leave the index as it was."""
        with suppress(sqlite3.Error):
            self.connection.execute("ROLLBACK")
        self._close()

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self.connection.close()


def _file_number(folder: Path | None) -> int:
    """What the database's file is to the file system, whatever its name; 0 if it is not there."""
    with suppress(OSError):
        return 0 if folder is None else (folder / DATABASE).stat().st_ino
    return 0
