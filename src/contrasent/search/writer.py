"""The one writer of an index: add, update, delete, rewrite, in one transaction.

New vectors are written behind the old ones and fsynced before the transaction that counts them, so
that a writer killed at any moment leaves the old state or the new one: what lies behind the counted
rows is overwritten by the next.
"""

import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from contrasent.errors import OptionError, OutputError, UserError, texts_of
from contrasent.files import LOCK, atomic_folder, flush, only_process, remove_temporaries, writing
from contrasent.search.codes import make_codes
from contrasent.search.filters import Where, canonical, check_where
from contrasent.search.folder import (
    BUSY,
    CHECKSUM,
    DATABASE,
    FILES,
    checksum,
    file_number,
    is_index,
    leave_checksum,
    remove_files,
    row_ids,
    vector_sum,
    wrap_sqlite_errors,
)
from contrasent.search.learned import write_learned
from contrasent.search.ranking import Ranker
from contrasent.search.store import ROWS_AT_ONCE, Facts, NewRows, Store, check_finished, check_rows
from contrasent.search.words import Analyzer, Postings, language_of, name_of
from contrasent.types import EncodeFn, Numbers, Vectors

TABLES = """
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
DECIDING = 100  # rows from which the language stays as it is
WAIT = 30.0  # seconds to wait for another writer before saying who it is


class Writer:
    """A context manager that changes an index folder, in one transaction.

    Its end commits the changes, an exception drops them. Each method sees the changes before it.
    """

    coded_from = 200_000  # rows from which binary codes are faster than looking at all vectors
    block = 1 << 16  # rows whose postings are kept together
    small = 1024  # rows below which the last block is written again with those that follow

    def __init__(
        self,
        folder: str | Path | None,
        *,
        new: Facts | None = None,
        of: Store | None = None,
        wait: float = WAIT,
    ) -> None:
        """Open ``folder``, or memory if None; ``new`` describes a new index.

        ``of`` is what to copy into memory, or a reader of the folder to close after the commit.
        """
        self._stack, self._reader = ExitStack(), of
        if folder is None:
            self._begin(None, new, of)
            return
        place = Path(folder)
        if new is None:
            Store.open(place).close()  # reject a folder that is not an index before locking it
        with ExitStack() as stack:
            stack.enter_context(only_process(place, "is writing to this index", wait))
            if is_index(place):
                new = None
            else:
                remove_files(place)  # of a writer killed before its first commit
            with wrap_sqlite_errors(place):
                self._begin(place, new)
            self._stack = stack.pop_all()
        self._sweep()

    def __enter__(self) -> Self:
        return self

    @property
    def facts(self) -> Facts:
        """The description of the index as this change leaves it."""
        return self.store.facts

    def _begin(self, folder: Path | None, new: Facts | None, of: Store | None = None) -> None:
        database = ":memory:" if folder is None else folder / DATABASE
        connection = sqlite3.connect(database, timeout=BUSY, check_same_thread=False)
        self.store, self.folder = Store(connection, folder, new or Facts()), folder
        self.before: Facts | None = None
        self.committed = self._touched = False
        self._whole = True  # False once a change failed in the middle
        self._stream: Any = None
        self._parts: list[Vectors] = []
        self._analyzer: Analyzer | None = None
        try:
            # Texts that are deleted are overwritten, which is not every SQLite's default.
            for line in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                connection.execute(f"PRAGMA {line}")
            if of is not None:
                of.connection.backup(connection)
                self._parts = [of.vectors]
            connection.execute("BEGIN IMMEDIATE")
            if new is None:
                self.store.facts = self.before = self.store.read_facts()
            else:
                for table in TABLES.split(";"):
                    connection.execute(table)
            # Rows since the last block: the first, their terms, the checksum of their vectors.
            self._first, self._terms, self._sum = self.facts.rows, Postings(), 0
            self._file = file_number(self.folder)
            self._map()
        except BaseException:
            connection.close()
            raise

    def _sync(self) -> None:
        """Write and fsync what was added."""
        self._flush()
        if self._stream is not None and self.folder is not None:
            with writing(self.folder):
                self._stream.flush()
                os.fsync(self._stream.fileno())
                flush(self.folder)

    def _map(self) -> None:
        """Map the vectors, including those of this change."""
        self._sync()
        if self._parts:
            self.store.vectors = np.concatenate(self._parts)
            self._parts = [self.store.vectors]
        elif self.folder is not None and self.facts.rows:
            self.store.map_vectors(verify=False)

    def commit(self) -> None:
        """Commit everything in one transaction; the writer cannot be used afterwards."""
        if self.committed:
            return
        if not self._whole:
            raise OutputError(f"{self.folder or 'the index'}: a change failed; nothing was written")
        # An index whose rows without vectors were all deleted is encoded.
        if self.facts.encoding and not self.store.unfinished:
            rest = self.facts.rows - self.store.encoded
            self.put_vectors(np.zeros((rest, self.facts.dimension), np.float32))
        # Deleted rows go when they are more than half.
        if self.facts.dead * 2 > self.facts.rows and not self.facts.encoding:
            self.rewrite()
        # Many rows get codes, made again when the last ones lack more than half of ``coded_from``.
        facts = self.facts
        many, coded = self.coded_from, facts.codes.get("rows", 0)
        stale = coded < max(1, facts.rows - many // 2) and not facts.encoding
        if self.folder is not None and facts.metric == "cosine" and facts.rows >= many and stale:
            self._map()
            self.set(codes=make_codes(self.folder, self.store.vectors))
        # Vectors are on the disk before the rows that have them.
        self._sync()
        if self.facts == self.before and not self._touched:
            return
        # The description, with the number and the name of this state.
        generation = 1 if self.before is None else self.before.generation + 1
        self.store.facts = replace(self.facts, generation=generation, change=uuid.uuid4().hex)
        described = asdict(self.facts)
        if not self.facts.encoding:
            del described["encoding"]
        # A path may have any bytes, which are half surrogates here, and escaped in JSON.
        stored = canonical(described).encode("utf-8", "backslashreplace").decode()
        self.store.query("REPLACE INTO facts VALUES (1, ?, ?)", (stored, checksum(stored)))
        # An index that was replaced or removed meanwhile is not written to.
        if file_number(self.folder) != self._file:
            raise OutputError(f"{self.folder}: was replaced or removed; nothing was written to it")
        self.store.query("COMMIT")
        self.committed, self.before = True, None
        if self.folder is None:
            self._map()
            return
        # Committed: what follows only tidies. The log is written back if no reader needs it.
        if self._reader is not None:
            self._reader.close()
        with suppress(sqlite3.Error):
            self.store.connection.execute("PRAGMA busy_timeout = 0")  # readers may stay for hours
            self.store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        leave_checksum(self.store.connection, self.folder, self.facts.identity, generation)
        self.close()
        self._sweep()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            try:
                if kind is None:
                    self.commit()
            finally:
                if not self.committed:
                    with suppress(sqlite3.Error):
                        self.store.connection.execute("ROLLBACK")
                    self.close()
                    new = self.before is None and file_number(self.folder) == self._file
                    if new and self.folder is not None:
                        remove_files(self.folder)

    def close(self) -> None:
        """Let go of the files."""
        if self._stream is not None:
            with suppress(OSError):  # a full disk has no room for what was not committed
                self._stream.close()
        self.store.close()

    def add(self, texts: Sequence[str], vectors: Vectors | EncodeFn, **more: Any) -> int:
        """Add rows, as :meth:`contrasent.Index.add` does; the number added."""
        return self.write_rows(NewRows(texts, vectors, **more), replace=False)[1]

    def update(
        self, texts: Sequence[str], vectors: Vectors | EncodeFn, **more: Any
    ) -> tuple[int, int]:
        """Replace rows and add others, as :meth:`contrasent.Index.update` does."""
        return self.write_rows(NewRows(texts, vectors, **more), replace=True)

    def write_rows(self, rows: NewRows, *, replace: bool) -> tuple[int, int]:
        """Write rows; an id that is there is rejected unless ``replace``."""
        rows = rows._replace(texts=texts_of("texts", rows.texts))
        count = len(rows.texts)
        if not count:
            return 0, 0
        if self.before is not None:
            check_finished(self.folder, self.store.unfinished, "adding rows")
        names = row_ids(rows.ids, count, self.facts.next_id)
        while ((there := self.store.numbers_of(names)) >= 0).any() and rows.ids is None:
            self.set(next_id=self.facts.next_id + count)
            names = row_ids(None, count, self.facts.next_id)
        if not replace and (there >= 0).any():
            problem = "is in the index already; update it, or delete it first"
            problem = "is repeated" if self.before is None else problem
            raise OptionError("ids", names[int((there >= 0).argmax())], problem)
        vectors = None if self.facts.encoding else check_rows(self.facts, self.folder, rows)
        whole, self._whole = self._whole, False  # until all of it is there
        replaced = self.delete_rows(there[there >= 0])
        if rows.ids is None:
            self.set(next_id=self.facts.next_id + count)
        self.append(vectors, rows.texts, names, rows.metadata)
        self._whole = whole
        return replaced, count - replaced

    def delete(self, ids: Sequence[str]) -> int:
        """Delete the rows with these ids; an id that is not in the index is an error."""
        rows = self.store.numbers_of(ids := texts_of("ids", ids))
        if (rows < 0).any():
            raise OptionError("ids", ids[int(np.argmax(rows < 0))], "is not in the index")
        return self.delete_rows(np.unique(rows))

    def delete_where(self, where: Where) -> int:
        """Delete the rows whose metadata matches a filter."""
        return self.delete_rows(np.flatnonzero(self.store.filtered(check_where(where))))

    def delete_rows(self, numbers: Numbers) -> int:
        """Delete rows by their numbers; their vectors stay until all rows are rewritten."""
        rows = [(row,) for row in numbers.tolist()]
        self._put("DELETE FROM rows WHERE row = ?", rows)
        self._put("INSERT INTO dead VALUES (?)", rows)
        self.set(dead=self.facts.dead + len(rows))
        return len(rows)

    def rewrite(self, encode: EncodeFn | None = None) -> None:
        """Rewrite all rows that are not deleted, optionally with the vectors of another model."""
        self._map()
        if self._stream is not None:
            self._stream.close()
        self._stream, self._parts, old, before = None, [], self.store.vectors, self.facts
        kept = np.array(self.store.query("SELECT row FROM rows ORDER BY row"), np.int64).ravel()
        self.set(learned=self.store.stored_learned().renumbered(kept, before.rows))
        whole, self._whole = self._whole, False  # until all of it is there
        self.store.query("CREATE TEMP TABLE old AS SELECT * FROM rows ORDER BY row")
        for table in ("rows", "dead", "blocks", "postings"):
            self.store.query(f"DELETE FROM {table}")
        name = f"vectors-{int(self.facts.vectors[8:14]) + 1:06d}.f32"
        self.set(vectors=name, rows=0, dead=0, dimension=0, codes={}, encoding={})
        self._first, self.store.vectors = 0, old[:0]
        with wrap_sqlite_errors(self.folder):
            cursor = self.store.connection.execute("SELECT * FROM temp.old")
            while part := cursor.fetchmany(ROWS_AT_ONCE):
                if encode is None:
                    vectors = old[[stored[0] for stored in part]]
                    rows = [*map(self.store.verified, part, vectors)]
                    texts = [row.text for row in rows]
                else:
                    rows = [*map(self.store.verified, part)]
                    texts = [row.text for row in rows]
                    vectors = check_rows(self.facts, self.folder, NewRows(texts, encode))
                self.append(
                    vectors, texts, [row.id for row in rows], [row.metadata for row in rows]
                )
            self.store.connection.execute("DROP TABLE temp.old")
        self.set(dimension=self.facts.dimension or before.dimension)
        self._whole = whole

    def put_vectors(self, vectors: Vectors) -> None:
        """Set the vectors (n, d) of the next rows that have none."""
        first, data = self.store.encoded, np.ascontiguousarray(vectors, dtype="<f4")
        stop = first + len(data)
        self._write(data)
        sums = []
        sql = "SELECT row, id, text, metadata FROM rows WHERE row >= ? AND row < ?"
        for row, *values in self.store.query(sql, (first, stop)):
            sum_ = vector_sum(data[row - first])
            sums.append((sum_, checksum(row, *values, sum_), row))
        self._put("UPDATE rows SET vector_sum = ?, sum = ? WHERE row = ?", sums)
        sql = "SELECT first, count, vector_sum FROM blocks WHERE first < ? AND first + count > ?"
        for start, count, sum_ in self.store.query(sql, (stop, first)):
            part = data[max(0, start - first) : start + count - first]
            values = [(vector_sum(part, sum_), start)]
            self._put("UPDATE blocks SET vector_sum = ? WHERE first = ?", values)
        left = stop < self.facts.rows
        self.set(encoding={**self.facts.encoding, "rows": stop} if left else {})

    def put_files(self, changed: dict[str, dict[str, Any] | None]) -> None:
        """Keep facts about the files of documents, or delete them where None."""
        self._touched = True
        self._put("DELETE FROM documents WHERE name = ?", [(name,) for name in changed])
        records = ((name, canonical(facts)) for name, facts in changed.items() if facts is not None)
        self._put("INSERT INTO documents VALUES (?, ?)", records)

    def set(self, **changes: Any) -> None:
        """Change facts about the index: its model, source, ranker, settings, or what it learned."""
        if (learned := changes.pop("learned", None)) is not None:
            write_learned(self.store.query, learned, self.facts.dimension, self.facts.metric)
            self._touched = True
        if isinstance(changes.get("ranker"), Ranker):
            changes["ranker"] = changes["ranker"].to_json()
        self.store.facts = replace(self.facts, **changes)

    def append(
        self,
        vectors: Vectors | None,
        texts: Sequence[str],
        ids: Sequence[str],
        metadata: Sequence[Any] | None,
    ) -> None:
        """Add rows with vectors (n, d), checked and scaled, or None yet; the ids must be new."""
        if vectors is None:
            vectors = np.empty((len(texts), 0), np.float32)  # its bytes and checksum are nothing
        elif not self.facts.dimension:
            self.set(dimension=vectors.shape[1])
        if self._analyzer is None:
            self._analyzer = self._reopen(texts)
        start, extra = 0, [None] * len(texts) if metadata is None else metadata
        while start < len(texts):
            part = slice(start, start + self.block - len(self._terms))
            data = np.ascontiguousarray(vectors[part], dtype="<f4")
            self._write(data)
            self._sum = vector_sum(data, self._sum)
            stored = []
            rows = zip(data, texts[part], ids[part], extra[part], strict=True)
            for row, (vector, text, name, facts) in enumerate(rows, self.facts.rows):
                values = (row, name, text, canonical(facts), vector_sum(vector))
                stored.append((*values, checksum(*values)))
                self._terms.add(self._analyzer(text), self._analyzer(name_of(facts)))
            try:
                self._put("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", stored)
            except UnicodeEncodeError as error:
                problem = "contains a lone surrogate, which is not a character; remove it"
                raise UserError(f"{error.object[:60]!r} {problem}") from error
            self.set(rows=self.facts.rows + len(stored))
            start = part.stop
            if len(self._terms) == self.block:
                self._flush()

    def _write(self, data: Vectors) -> None:
        if self.folder is None:
            self._parts.append(data)
            return
        with writing(self.folder):
            if self._stream is None:
                self._stream = self.store.path.open("r+b" if self.store.path.exists() else "w+b")
                self._stream.truncate(self.store.encoded * self.facts.dimension * 4)
                self._stream.seek(0, os.SEEK_END)
            self._stream.write(data)

    def _reopen(self, texts: Sequence[str]) -> Analyzer:
        """Take a small last block back, so that many small changes leave few blocks.

        While there are few rows, they and the new texts decide the language.
        """
        sql = "SELECT first, count, vector_sum FROM blocks ORDER BY first DESC LIMIT 1"
        for first, count, sum_ in self.store.query(sql):
            if count < self.small:
                self._first, self._sum = first, sum_
        sql = "SELECT row, text, metadata FROM rows WHERE row >= ?"
        stored = {row: some for row, *some in self.store.query(sql, (self._first,))}
        language = self.facts.language
        if not language or (self._first == 0 < len(stored) < DECIDING):
            language = language_of([*(text for text, _ in stored.values()), *texts])
            self.set(language=language)
        analyzer = Analyzer(language)
        for row in range(self._first, self.facts.rows):
            text, facts = stored.get(row, ("", "null"))
            with suppress(ValueError):  # a damaged row has no name
                facts = json.loads(facts)
            self._terms.add(analyzer(text), analyzer(name_of(facts)))
        for table in ("blocks", "postings"):
            self.store.query(f"DELETE FROM {table} WHERE first = ?", (self._first,))
        return analyzer

    def _flush(self) -> None:
        """Write the postings of the rows since the last block."""
        if not self._terms:
            return
        first = self._first
        lengths = np.array(self._terms.lengths, dtype="<u4").tobytes()
        block = (first, len(self._terms), self._sum, lengths, checksum(first, lengths))
        self._put("INSERT INTO blocks VALUES (?, ?, ?, ?, ?)", [block])

        def stored() -> Iterator[tuple[Any, ...]]:
            for term, (numbers, counts) in self._terms.by_term(first):
                rows, often = numbers.astype("<i4").tobytes(), counts.astype("<u2").tobytes()
                yield first, term, rows, often, checksum(first, term, rows, often)

        self._put("INSERT INTO postings VALUES (?, ?, ?, ?, ?)", stored())
        self._first, self._terms, self._sum = self.facts.rows, Postings(), 0

    def _put(self, sql: str, values: Any) -> None:
        with wrap_sqlite_errors(self.folder):
            self.store.connection.executemany(sql, values)

    def _sweep(self) -> None:
        """Remove our files that the index names neither now nor before this change."""
        assert self.folder is not None
        remove_temporaries(self.folder, CHECKSUM)
        states = self.facts, self.before or self.facts
        named = {name for state in states for name in (state.vectors, state.codes.get("file"))}
        remove_files(self.folder, FILES[1:], named)


@contextmanager
def new_index(target: Path, facts: Facts) -> Iterator[Writer]:
    """The writer of a new index, which takes the place of a folder when it is complete."""
    with atomic_folder(target) as temporary:
        with Writer(temporary, new=facts) as writer:
            yield writer
        (temporary / LOCK).unlink(missing_ok=True)
