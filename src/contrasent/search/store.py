"""The rows of an index in SQLite, their vectors in a mapped file next to it.

    index.db            ids, texts, metadata, checksums, postings of BM25, and what the index is
    vectors-000001.f32  rows of float32, in sequence; the database says how many
    index.sum           generation and checksum of index.db as the last writer left it

A change is one transaction (:mod:`contrasent.search.writer`). A reader holds a read
transaction and so sees one state for as long as it lives.
"""

import json
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, ModelError, OptionError, OutputError, check_choice, see
from contrasent.files import recover_folder
from contrasent.progress import check_deadline, deadline_passed
from contrasent.search.codes import BinaryCodes
from contrasent.search.filters import (
    Where,
    canonical,
    check_fields,
    check_where,
    compares,
    sql_condition,
)
from contrasent.search.folder import (
    DATABASE,
    METRICS,
    VERIFIED,
    check_vectors,
    checksum,
    damaged,
    database_sum,
    file_number,
    is_index,
    left_checksum,
    not_an_index,
    reading,
    unlocked,
    vector_sum,
    wrap_os_errors,
    wrap_sqlite_errors,
)
from contrasent.search.learned import Learned, read_learned
from contrasent.search.ranking import Ranker
from contrasent.search.words import Posting
from contrasent.types import EncodeFn, Mask, Numbers, Vectors, encoder_of, for_task

FORMAT = 4
REPLACING, ATTEMPTS = 1.0, 5  # seconds, and tries, for a reader while an index is being replaced
ROWS_AT_ONCE = 4096
STEPS = 50_000  # SQLite's steps, a few milliseconds, between two looks at the deadline
FILTERED_ROWS = 1024  # that a filter looks at before others get their turn at the database


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The description of an index."""

    format: int = FORMAT
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)  # drawn when it was made
    generation: int = 1  # rises with each change
    change: str = ""  # drawn with each: copies of an index may reach one generation by other ones
    model: str = ""  # identity of the model that made the vectors
    source: str = ""  # how to load that model
    metric: str = "cosine"
    dimension: int = 0
    vectors: str = "vectors-000001.f32"
    rows: int = 0  # of the vector file, dead ones included
    dead: int = 0
    next_id: int = 0
    language: str = ""  # how words are stemmed; "" until the first rows are there
    ranker: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, Any] = field(default_factory=dict)  # the binary codes of the vectors
    # where its rows came from: kind, path, root that names of documents are relative to, options
    origin: dict[str, Any] = field(default_factory=dict)
    # while not all rows are encoded: how many of the first are, and all that was asked for
    encoding: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)


@dataclass(frozen=True, slots=True)
class Row:
    """A row, verified."""

    row: int
    id: str
    text: str
    metadata: Any


class NewRows(NamedTuple):
    """Rows to write, as :meth:`contrasent.Index.add` takes them."""

    texts: Sequence[str]
    vectors: Vectors | EncodeFn | None  # None where they are not known yet
    ids: Sequence[str] | None = None
    metadata: Sequence[Any] | None = None
    model: str | None = None


def check_model(facts: Facts, folder: Path | None, model: str, option: str = "model") -> None:
    """Reject a model other than the one the vectors of an index came from."""
    if model != facts.model:
        where = folder if folder is not None else "the index"
        raise ModelError(
            f"{where} holds vectors of model {facts.model!r} and {option} is {model!r}: "
            "vectors of different models cannot be compared; use the first, or rebuild the index"
            f"{see('another-model')}"
        )


def check_encoder(
    facts: Facts,
    folder: Path | None,
    encode: object,
    model: str | None = None,
    option: str = "the encoder",
) -> None:
    """Reject a model other than an index's: the one that is named, or else the encoder's."""
    encoder = encoder_of(encode)
    if model is not None:
        check_model(facts, folder, model)
    elif facts.model and encoder is not None and _accepted.get(encoder) != facts.model:
        check_model(facts, folder, encoder.identity, option)
        _accepted[encoder] = facts.model


_accepted = WeakKeyDictionary[Any, str]()  # the models of encoders, whose hashes take long


def check_finished(folder: Path | None, unfinished: int, purpose: str) -> None:
    """Reject an index that is not fully encoded; ``purpose`` goes into the message."""
    if unfinished:
        remedy = f"needs all; first 'contrasent index {folder} --sync'"
        problem = f"{unfinished:,} of its rows are not encoded yet; {purpose} {remedy}"
        raise InputError(str(folder), problem)


def check_rows(facts: Facts, folder: Path | None, rows: NewRows) -> Vectors:
    """(n, d) vectors of rows to write, given or made here, checked and scaled."""
    texts, vectors, metadata = rows.texts, rows.vectors, rows.metadata
    check_encoder(facts, folder, vectors, rows.model)
    if metadata is not None and len(metadata) != len(texts):
        raise OptionError(
            "metadata", len(metadata), f"must have one value for each of {len(texts)} texts"
        )
    if hasattr(metadata, "columns"):
        problem = "contains columns; pass frame.to_dict('records')"
        raise OptionError("metadata", f"a {type(metadata).__name__}", problem)
    assert vectors is not None
    for facts_of_row in () if metadata is None else metadata:
        canonical(facts_of_row)  # an error now, not when texts are encoded or rows half written
    if callable(vectors):
        vectors = for_task(vectors, "document")(texts)
    return check_vectors(vectors, len(texts), facts.dimension or None, facts.metric)


class _Comparison:
    """The function of SQL that compares values of metadata; SQLite keeps no error of a function.

    It does not hold the store: the collector of cycles does not see what a connection holds.
    """

    error: OptionError | None = None

    def __call__(self, kind: str | None, have: Any, op: str, want: str | float) -> bool:
        if kind not in ("integer", "real", "text") or have == "":
            return False
        try:
            return compares(have, op, want)
        except OptionError as error:
            self.error = error
            raise


class Store:
    """The rows of an index as they were at a moment; many threads may read it."""

    def __init__(self, connection: sqlite3.Connection, folder: Path | None, facts: Facts) -> None:
        self.folder, self.facts = folder, facts
        self.vectors: Vectors = np.empty((0, facts.dimension), dtype=np.float32)
        self.codes: BinaryCodes | None = None  # of the first rows, where they were worth making
        self.stated: dict[str, Any] = {}
        self._one_query, self._masks = threading.Lock(), dict[str, Mask]()
        self._comparison = _Comparison()
        self._connect(connection)

    def _connect(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA trusted_schema = OFF")  # no function that a file names is called
        connection.execute("PRAGMA cell_size_check = ON")
        connection.isolation_level = None  # no transaction begins by itself
        connection.set_progress_handler(deadline_passed, STEPS)
        connection.create_function("compares", 4, self._comparison, deterministic=True)
        self.connection = connection

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """A snapshot of an index folder; unless it is verified, what is left of a damaged one."""
        place = Path(folder)
        for _ in range(ATTEMPTS):
            recover_folder(place, REPLACING)
            state = file_number(place), unlocked(place)
            try:
                store = cls._snapshot(place, verify, state[1])
            except (FileNotFoundError, InputError, OutputError) as error:
                # A writer compacted the index since the facts were read, or replaced it.
                same = state == (file_number(place), unlocked(place))
                if same and state[0] and not isinstance(error, FileNotFoundError):
                    raise
                problem = error
            else:
                if state == (file_number(place), unlocked(place)):
                    return store
                store.close()
                problem = InputError(place, "changed while it was read; open it again")
        if isinstance(problem, FileNotFoundError):
            raise damaged(place, f"{Path(problem.filename).name} is missing") from None
        raise problem

    @classmethod
    def _snapshot(cls, place: Path, verify: bool, free: tuple[int, int] | None) -> Self:
        """The index in a folder, unless a writer is faster."""
        if not is_index(place):
            raise InputError(place, not_an_index(place))
        stated = left_checksum(place)  # read before the state, which is then as new
        with wrap_sqlite_errors(place), wrap_os_errors(place):
            store = cls(reading(place, lock=free is None), place, Facts())
            try:
                store.stated, store.facts = stated, store.read_facts()
                if verify:
                    store.verify_database()
                store.map_vectors(verify)
                if verify and (codes := store.facts.codes):
                    store.codes = BinaryCodes.open(place, codes, store.facts.dimension)
                if verify and free and free[0] <= VERIFIED:  # from now on what was verified
                    store.detach()
            except BaseException:
                store.close()
                raise
        return store

    def refreshed(self) -> Self:
        """The newest snapshot of the folder: this one if nothing was written since."""
        if self.folder is None:
            return self
        try:
            with wrap_sqlite_errors(self.folder), closing(reading(self.folder)) as connection:
                now = Store(connection, self.folder, Facts()).read_facts()
        except (InputError, OutputError):  # it was replaced, or is no longer an index
            return self.open(self.folder)
        return self if now == self.facts else self.open(self.folder)

    def __len__(self) -> int:
        return self.facts.rows - self.facts.dead

    @property
    def path(self) -> Path:
        """The file of the vectors."""
        assert self.folder is not None
        return self.folder / Path(self.facts.vectors).name

    def detach(self) -> None:
        """Read on from a copy without a name, so that the log of writers need not be kept."""
        with self._one_query, wrap_sqlite_errors(self.folder):
            copy, original = sqlite3.connect("", check_same_thread=False), self.connection
            try:
                original.backup(copy)
            except sqlite3.OperationalError:  # nowhere to put temporary files
                copy.close()
                copy = sqlite3.connect(":memory:", check_same_thread=False)
                original.backup(copy)
            self._connect(copy)
            original.close()

    def close(self) -> None:
        """Let go of the folder."""
        self.connection.close()

    def read_facts(self) -> Facts:
        """The description of the index now, or as it was first read."""
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN")
        stored = self.query("SELECT json, sum FROM facts LIMIT 1")
        if not stored or checksum(stored[0][0]) != stored[0][1]:
            raise damaged(self.folder, "its description")
        data = json.loads(stored[0][0])
        if data["format"] != FORMAT:
            problem = f"is of format {data['format']!r} and this version reads {FORMAT}; "
            raise InputError(str(self.folder), f"{problem}build it again")
        try:
            return Facts(**data)
        except TypeError as error:
            problem = f"is of a newer version ({error}); install that or rebuild the index"
            raise InputError(str(self.folder), problem) from error

    def map_vectors(self, verify: bool) -> None:
        """Map the vectors, and verify them if they are small enough."""
        path, facts = self.path, self.facts
        size = path.stat().st_size if self.encoded else 0  # without rows there need be no file
        row = 4 * max(1, facts.dimension)
        if verify and size < (wanted := self.encoded * row):
            raise damaged(self.folder, f"{path.name} has {size:,} bytes instead of {wanted:,}")
        shape = (min(self.encoded, size // row), facts.dimension)
        if all(shape):
            self.vectors = np.memmap(path, dtype="<f4", mode="r", shape=shape)
        if verify and self.vectors.nbytes <= VERIFIED:
            for first in self.damaged_blocks():
                raise damaged(self.folder, f"{path.name}, rows from {first:,} on")

    @property
    def encoded(self) -> int:
        """Rows at the beginning that have vectors, deleted ones included: all, in the end."""
        return int(self.facts.encoding.get("rows", self.facts.rows))

    @property
    def unfinished(self) -> int:
        """Rows without vectors; as long as there are some, only BM25 searches."""
        if not self.facts.encoding:
            return 0
        ((count,),) = self.query("SELECT count(*) FROM rows WHERE row >= ?", (self.encoded,))
        return int(count)

    def verify_database(self) -> None:
        """Compare the database with what its writer left, as it was before the state was read."""
        assert self.folder is not None
        stated, facts = self.stated, self.facts
        if stated.get("identity") == facts.identity and stated["generation"] > facts.generation:
            raise damaged(self.folder, f"its last change is missing from {DATABASE}-wal")
        if stated.get("generation") != facts.generation:
            stated = left_checksum(self.folder)  # written since then, or never
        state = {"identity": facts.identity, "generation": facts.generation}
        if state.items() <= stated.items() and stated["database"] != database_sum(self.connection):
            raise damaged(self.folder, DATABASE)

    def damaged_blocks(self) -> Iterator[int]:
        """First rows of the blocks whose vectors are not what was written."""
        for first, count, sum_ in self.query("SELECT first, count, vector_sum FROM blocks"):
            vectors = self.vectors[first : first + count] if isinstance(count, int) else None
            if vectors is None or vector_sum(vectors) != sum_:
                yield first

    # ------------------------------------------------------------------ reading

    def query(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that the database answers."""
        with self._one_query, wrap_sqlite_errors(self.folder):
            try:
                return self.connection.execute(sql, values).fetchall()
            except sqlite3.OperationalError:
                check_deadline()  # which may have interrupted it
                if self._comparison.error is not None:
                    error, self._comparison.error = self._comparison.error, None
                    raise error from None
                raise

    @cached_property
    def alive(self) -> Mask:
        """(rows,) which rows are not deleted."""
        mask = np.ones(self.facts.rows, dtype=bool)
        if self.facts.dead:
            mask[[row for (row,) in self.query("SELECT row FROM dead")]] = False
        return mask

    def verified(self, stored: Sequence[Any], vector: Vectors | None = None) -> Row:
        """A row of the database, and its vector if it is given, as they were written."""
        row, id, text, metadata, vector_sum_, sum_ = stored
        if checksum(*stored[:-1]) != sum_:
            raise damaged(self.folder, f"the text of row {row}")
        if vector is not None and vector_sum(vector) != vector_sum_:
            raise damaged(self.folder, f"the vector of row {row}")
        return Row(row, id, text, json.loads(metadata))

    def rows(self, numbers: Sequence[int] | Numbers) -> list[Row]:
        """Rows by their numbers, verified: id, text, metadata and vector as they were written."""
        rows = []
        for number in map(int, numbers):
            check_deadline()
            stored = self.query("SELECT * FROM rows WHERE row = ?", (number,))
            if not stored:
                raise damaged(self.folder, f"row {number} is missing")
            vector = self.vectors[number : number + 1]  # none if it is not encoded yet
            rows.append(self.verified(stored[0], vector))
        return rows

    def every(self) -> Iterator[Row]:
        """All rows in order; their vectors are not verified."""
        sql, last = f"SELECT * FROM rows WHERE row > ? ORDER BY row LIMIT {ROWS_AT_ONCE}", -1
        while rows := [self.verified(stored) for stored in self.query(sql, (last,))]:
            yield from rows
            last = rows[-1].row

    def numbers_of(self, ids: Sequence[str]) -> Numbers:
        """(n,) row of each id, -1 where there is none."""
        sql = "SELECT row FROM rows WHERE id = ?"
        return np.array([next(iter(self.query(sql, (i,))), (-1,))[0] for i in ids], np.int64)

    def rows_of(self, document: str) -> list[Row]:
        """Rows whose ids are those of a document, or of the rows of a table, verified."""
        sql = "SELECT row FROM rows WHERE id > ? AND id < ? ORDER BY row"
        return self.rows([row for (row,) in self.query(sql, (f"{document}#", f"{document}$"))])

    def matching(self, where: Where) -> Mask:
        """(rows,) which rows are there and have metadata that a filter matches."""
        where = check_where(where)
        key = canonical(where)
        if key not in self._masks:
            kept = list(self._masks.items())[-15:]
            self._masks = {**dict(kept), key: self.filtered(where)}
        return self._masks[key]

    def filtered(self, where: Where) -> Mask:
        """(rows,) which rows are there and have metadata that a checked filter matches."""
        if len(self):
            sampled = (row.metadata for row in islice(self.every(), ROWS_AT_ONCE))
            check_fields(where, lambda one: any(map(len, self._filter(one))), sampled)
        mask = np.zeros(self.facts.rows, dtype=bool)
        for rows in self._filter(where):
            mask[rows] = True
        return mask

    def _filter(self, where: Where) -> Iterator[list[int]]:
        """The rows whose metadata a filter matches, some at a time."""
        condition, values = sql_condition(where)
        sql = f"SELECT row FROM rows WHERE row >= :first AND row < :stop AND {condition}"
        for first in range(0, self.facts.rows, FILTERED_ROWS):
            within = {"first": first, "stop": first + FILTERED_ROWS}
            yield [row for (row,) in self.query(sql, {**values, **within})]

    def lengths(self) -> NDArray[np.float32]:
        """(rows,) terms of each row."""
        parts, end = [np.empty(0, dtype=np.float32)], 0
        for first, data, sum_ in self.query("SELECT first, lengths, sum FROM blocks ORDER BY 1"):
            if checksum(first, data) != sum_ or first != end:
                raise damaged(self.folder, f"the BM25 terms from row {end:,} on")
            parts.append(np.frombuffer(data, "<u4").astype(np.float32))
            end += len(parts[-1])
        if end != self.facts.rows:
            raise damaged(self.folder, f"the BM25 terms of {end:,} rows are known")
        return np.concatenate(parts)

    def posting(self, term: str) -> Posting | None:
        """The rows that hold a term, dead ones included, and how often."""
        records = self.query(
            "SELECT postings.* FROM blocks CROSS JOIN postings "
            "ON postings.first = blocks.first AND term = ? ORDER BY blocks.first",
            (term,),
        )
        parts = [self.read_posting(*stored) for stored in records]
        if not parts:
            return None
        rows, counts = zip(*parts, strict=True)
        return np.concatenate(rows), np.concatenate(counts)

    def count_rows(self, terms: Sequence[str]) -> dict[str, int]:
        """How many rows hold each of the terms that occur, dead rows included."""
        sql = (
            "SELECT term, sum(length(counts)) FROM blocks CROSS JOIN postings ON "
            f"postings.first = blocks.first AND term IN ({','.join('?' * len(terms))}) GROUP BY 1"
        )
        return {term: int(size) // 2 for term, size in self.query(sql, terms)}

    def read_posting(self, first: int, term: str, held: bytes, counts: bytes, sum_: int) -> Posting:
        """The rows of a block that hold a term, verified."""
        if checksum(first, term, held, counts) != sum_:
            raise damaged(self.folder, f"the BM25 rows of {str(term)[:60]!r}")
        return np.frombuffer(held, "<i4"), np.frombuffer(counts, "<u2")

    def stored_learned(self) -> Learned:
        """Everything learned, with the numbers of rows as they were written; verified."""
        learned, ranker = read_learned(self.query), Ranker.from_json(self.facts.ranker)
        lacking = "checksum" if learned is None else learned.lacks(ranker)
        if learned is None or lacking:
            raise damaged(self.folder, f"what it learned ({lacking})")
        return learned

    def files(self) -> dict[str, dict[str, Any]]:
        """Facts of the files that the rows came from, by name."""
        try:
            records = self.query("SELECT name, facts FROM documents")
            return {name: json.loads(facts) for name, facts in records}
        except ValueError as error:
            raise damaged(self.folder, "the record of document files") from error
