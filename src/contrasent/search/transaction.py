"""A change of an index: rows that are added or deleted, and what is made of them.

New vectors are written behind the old ones and fsynced before the transaction that counts them, so
that a writer killed at any moment leaves the old state or the new one: what lies behind the counted
rows is overwritten by the next.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
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
    DATABASE,
    ROWS_AT_ONCE,
    WAIT,
    Facts,
    Store,
    make_tables,
    translated,
)
from contrasent.search.words import Analyzer, language_of, postings
from contrasent.types import Vectors

BLOCK = 1 << 16  # rows whose postings are kept together
SMALL = 1024  # rows below which the last block is written again with those that follow

VectorsOf = Callable[[NDArray[np.int64], Sequence[str]], Vectors]
"""From the numbers and texts of some rows to their (n, d) vectors."""


class Transaction(Store):
    """A change of an index, in sight of nobody until it is committed."""

    def __init__(self, connection: sqlite3.Connection, folder: Path | None, facts: Facts) -> None:
        super().__init__(connection, folder, facts)
        self.before: Facts | None = None
        self.committed = False
        self._stream: Any = None
        self._parts: list[Vectors] = []
        # Of the rows since the last block: the first, their terms, the checksum of their vectors.
        self._first, self._terms, self._sum = facts.rows, list[list[str]](), 0
        self._analyzer: Analyzer | None = None
        self._touched = False
        self._file = _file_number(folder)

    @classmethod
    def begin(cls, folder: Path, new: Facts | None = None) -> "Transaction":
        """Change an index folder, or begin a ``new`` one in it; the caller holds its lock."""
        with translated(folder):
            made = cls(sqlite3.connect(folder / DATABASE, timeout=WAIT), folder, new or Facts())
            try:
                for line in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"):
                    made.connection.execute(line)
                made.connection.execute("BEGIN IMMEDIATE")
                if new is None:
                    made.facts = made.before = made._read_facts()
                    made._first = made.facts.rows
                    made.remap()
                else:
                    make_tables(made.connection)
                    made._file = _file_number(folder)
            except BaseException:
                made.connection.close()
                raise
        return made

    def remap(self) -> None:
        """Map the vectors, those of this change as well."""
        self._flush()
        self._sync()
        if self.folder is None:
            self.vectors = np.concatenate(self._parts) if self._parts else self.vectors
            self._parts = [self.vectors]
        elif self.facts.rows:
            shape = (self.facts.rows, self.facts.dimension)
            self.vectors = np.memmap(self.path, dtype="<f4", mode="r", shape=shape)

    # ------------------------------------------------------------------ changing

    def append(
        self,
        vectors: Vectors,
        texts: Sequence[str],
        ids: Sequence[str],
        metadata: Sequence[Any] | None,
    ) -> None:
        """Add rows with vectors (n, d), checked and scaled; the ids are not there yet."""
        if not self.facts.dimension:
            self.facts = replace(self.facts, dimension=vectors.shape[1])
        if self._analyzer is None:
            language = self.facts.language or language_of(texts)
            self.facts = replace(self.facts, language=language)
            self._analyzer = Analyzer(self.facts.language)
            self._reopen(self._analyzer)
        start = 0
        while start < len(texts):
            part = slice(start, min(start + BLOCK - len(self._terms), len(texts)))
            extra = [None] * (part.stop - start) if metadata is None else metadata[part]
            self._append(vectors[part], texts[part], ids[part], extra, self._analyzer)
            start = part.stop
            if len(self._terms) == BLOCK:
                self._flush()

    def _append(
        self,
        vectors: Vectors,
        texts: Sequence[str],
        ids: Sequence[str],
        metadata: Sequence[Any],
        analyzer: Analyzer,
    ) -> None:
        data = np.ascontiguousarray(vectors, dtype="<f4")
        self._write(data)
        self._sum = vector_sum(data, self._sum)
        stored = []
        rows = enumerate(zip(data, texts, ids, metadata, strict=True), self.facts.rows)
        for row, (vector, text, name, extra) in rows:
            values = (row, name, text, canonical(extra), vector_sum(vector))
            stored.append((*values, checksum(*values)))
            self._terms.append(analyzer(text))
        try:
            self._put("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", stored)
        except UnicodeEncodeError as error:
            start = f"{error.object[:60]!r} holds a lone surrogate"
            raise UserError(f"{start}, which is no character; remove it") from error
        self.facts = replace(self.facts, rows=self.facts.rows + len(texts))

    def _write(self, data: Vectors) -> None:
        if self.folder is None:
            self._parts.append(data)
            return
        with writing(self.folder):
            if self._stream is None:
                self._stream = self.path.open("r+b" if self.path.exists() else "w+b")
                self._stream.truncate(self.facts.rows * self.facts.dimension * 4)
                self._stream.seek(0, os.SEEK_END)
            self._stream.write(data)

    def _reopen(self, analyzer: Analyzer) -> None:
        """Take a small last block back, so that many small changes leave few blocks."""
        last = self.every("SELECT first, count, vector_sum FROM blocks ORDER BY first DESC LIMIT 1")
        if not last or last[0][1] >= SMALL:
            return
        self._first, count, self._sum = last[0]
        texts = dict(self.every("SELECT row, text FROM rows WHERE row >= ?", (self._first,)))
        rows = range(self._first, self._first + count)
        self._terms = [analyzer(texts.get(row, "")) for row in rows]
        for table in ("blocks", "postings"):
            self.every(f"DELETE FROM {table} WHERE first = ?", (self._first,))

    def _flush(self) -> None:
        """Write the postings of the rows since the last block."""
        if not self._terms:
            return
        first = self._first
        lengths = np.array([len(terms) for terms in self._terms], dtype="<u4").tobytes()
        block = (first, len(self._terms), self._sum, lengths, checksum(first, lengths))
        self._put("INSERT INTO blocks VALUES (?, ?, ?, ?, ?)", [block])

        def stored() -> Iterator[tuple[Any, ...]]:
            for term, (held, counts) in sorted(postings(self._terms, first), key=lambda p: p[0]):
                rows, often = held.astype("<i4").tobytes(), counts.astype("<u2").tobytes()
                yield first, term, rows, often, checksum(first, term, rows, often)

        self._put("INSERT INTO postings VALUES (?, ?, ?, ?, ?)", stored())
        self._first, self._terms, self._sum = self.facts.rows, [], 0

    def _put(self, sql: str, values: Any) -> None:
        with translated(self.folder):
            self.connection.executemany(sql, values)

    def delete(self, numbers: NDArray[np.int64]) -> None:
        """Delete rows; their vectors stay until the next compaction."""
        one = [(int(row),) for row in numbers]
        self._put("DELETE FROM rows WHERE row = ?", one)
        self._put("INSERT INTO dead VALUES (?)", one)
        self.facts = replace(self.facts, dead=self.facts.dead + len(one))

    def rewrite(self, vectors_of: VectorsOf | None = None) -> None:
        """Write all rows anew, without dead ones, perhaps with other vectors."""
        self.remap()
        if self._stream is not None:
            self._stream.close()
        self._stream, self._parts = None, []
        old, before = self.vectors, self.facts
        self.every("CREATE TEMP TABLE old AS SELECT row, id, text, metadata FROM rows ORDER BY row")
        for table in ("rows", "dead", "blocks", "postings"):
            self.every(f"DELETE FROM {table}")
        number = int(before.vectors[8:14]) + 1
        self.facts = replace(
            before, vectors=f"vectors-{number:06d}.f32", rows=0, dead=0, dimension=0, codes={}
        )
        self._first, self.vectors = 0, old[:0]
        with translated(self.folder):
            found = self.connection.execute("SELECT * FROM temp.old")
            while part := found.fetchmany(ROWS_AT_ONCE):
                numbers, names, texts, extra = zip(*part, strict=True)
                rows = np.array(numbers, dtype=np.int64)
                vectors = old[rows] if vectors_of is None else vectors_of(rows, texts)
                self.append(vectors, texts, names, [*map(json.loads, extra)])
            self.connection.execute("DROP TABLE temp.old")
        self.facts = replace(self.facts, dimension=self.facts.dimension or before.dimension)

    def put_documents(self, changed: dict[str, dict[str, Any] | None]) -> None:
        """Keep what is known of files, or forget it where that is None."""
        self._touched = True
        self._put("DELETE FROM documents WHERE name = ?", [(name,) for name in changed])
        kept = ((name, canonical(facts)) for name, facts in changed.items() if facts is not None)
        self._put("INSERT INTO documents VALUES (?, ?)", kept)

    # ------------------------------------------------------------------ ending

    def _sync(self) -> None:
        if self._stream is not None:
            with writing(Path(str(self.folder))):
                self._stream.flush()
                os.fsync(self._stream.fileno())

    def commit(self) -> None:
        """Make the change visible, in one transaction."""
        if self.folder is None:
            self.remap()
            self._put_facts()
            return
        if self.facts == self.before and not self._touched:
            self.rollback()
            return
        self._flush()
        self._sync()
        generation = 1 if self.before is None else self.before.generation + 1
        self.facts = replace(self.facts, generation=generation)
        self._put_facts()
        if _file_number(self.folder) != self._file:
            self.rollback()
            problem = "was replaced or removed meanwhile; nothing was written to it"
            raise OutputError(f"{self.folder}: {problem}")
        self.every("COMMIT")
        self.committed, self.before = True, None
        with suppress(sqlite3.Error):  # the log is written back if no reader needs it
            self.connection.execute("PRAGMA busy_timeout = 0")  # readers may stay for hours
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        leave_checksum(self.connection, self.folder, self.facts.identity, generation)
        self.close()

    def _put_facts(self) -> None:
        stored = canonical(asdict(self.facts))
        self.every("REPLACE INTO facts VALUES (1, ?, ?)", (stored, checksum(stored)))

    def rollback(self) -> None:
        """Leave the index as it was."""
        with suppress(sqlite3.Error):
            self.connection.execute("ROLLBACK")
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        if self._stream is not None:
            self._stream.close()
        super().close()


def _file_number(folder: Path | None) -> int:
    """The inode of the database's file; 0 if it is not there."""
    with suppress(OSError):
        return 0 if folder is None else (folder / DATABASE).stat().st_ino
    return 0
