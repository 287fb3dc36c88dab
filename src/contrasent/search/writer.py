"""The one writer of an index folder: add, update, delete, compact, in one transaction."""

import json
import os
import socket
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from contrasent.errors import OptionError, OutputError
from contrasent.files import remove_temporaries, writing
from contrasent.search.binary import make_codes
from contrasent.search.checks import check_metadata, check_metric, check_vectors, row_ids
from contrasent.search.filters import Where, check_where, sql_condition
from contrasent.search.index import Index
from contrasent.search.integrity import CHECKSUM
from contrasent.search.ranking import Ranker
from contrasent.search.store import LOCK, Facts, is_index
from contrasent.search.transaction import Transaction, VectorsOf
from contrasent.types import EncodeFn, Vectors, for_task

WAIT = 30.0
"""Seconds to wait for another writer before saying who it is."""
HOLDER = ".writer"
FILES = (CHECKSUM, "vectors-*.f32", "codes-*.u64")
ROWS_AT_ONCE = 4096
CODED = 200_000
"""Rows from which binary codes are faster than looking at all vectors."""


IndexRow = tuple[str, str | None, Any]
"""A text, its id (None: the number of the row), its metadata (None: none)."""


class Block(NamedTuple):
    """Rows with their vectors (n, d)."""

    vectors: Vectors
    texts: list[str]
    ids: list[str]
    metadata: list[Any]


class Writer:
    """Change an index folder, or make one: a context, whose end commits all of it as one change.

    An exception drops the change. Each method sees what those before it did.
    """

    def __init__(self, folder: str | Path, *, new: Facts | None = None, wait: float = WAIT) -> None:
        """``new``: what to make where there is no index yet. ``wait``: seconds for another."""
        self.folder, self.new = Path(folder), new
        self._lock = FileLock(self.folder / LOCK, timeout=wait)

    def __enter__(self) -> "Writer":
        if self.new is None:
            Index.open(self.folder).close()  # reject what is no index before a lock is made in it
        else:
            check_metric(self.new.metric)
            with writing(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
        with writing(self.folder):
            try:
                self._lock.acquire()
            except Timeout as error:  # an OSError as well
                raise OutputError(f"{self.folder}: {self._holder()}") from error
            about = {"process": os.getpid(), "machine": socket.gethostname()}
            (self.folder / HOLDER).write_text(json.dumps(about), "utf-8")
        try:
            new = None if is_index(self.folder) else self.new
            if new is not None:
                self._remove(("index.db*", *FILES))  # of a writer killed before its first commit
            self.change = Transaction.begin(self.folder, new)
        except BaseException:
            self._release()
            raise
        self._sweep()
        return self

    def commit(self) -> None:
        """Make what was done visible now; nothing more can be done afterwards."""
        if not self.change.committed:
            self._tidy()
            self.change.commit()
            self._sweep()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with ExitStack() as stack:
            stack.callback(self._release)
            stack.callback(self._undo)
            if kind is None:
                self.commit()

    def _undo(self) -> None:
        if not self.change.committed:
            self.change.rollback()
            if self.change.before is None:
                self._remove(("index.db*", *FILES))

    def _holder(self) -> str:
        holder = "another process"
        with suppress(OSError, ValueError, KeyError):
            about = json.loads((self.folder / HOLDER).read_text("utf-8"))
            holder = f"process {about['process']} on {about['machine']}"
        return f"{holder} is writing to this index; try again when it has ended"

    def _release(self) -> None:
        with suppress(OSError):
            (self.folder / HOLDER).unlink(missing_ok=True)
        self._lock.release()

    @property
    def facts(self) -> Facts:
        """The facts of the index after the changes so far."""
        return self.change.facts

    def __len__(self) -> int:
        return self.facts.rows - self.facts.dead

    # ------------------------------------------------------------------ changes

    def add(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> int:
        """Add rows, with (n, d) vectors or what makes them; an id that is there is rejected."""
        if not texts:
            return 0
        names = row_ids(ids, len(texts), self.facts.next_id)
        while (taken := self.change.find(names) >= 0).any() and ids is None:
            self.set(next_id=self.facts.next_id + len(texts))
            names = row_ids(None, len(texts), self.facts.next_id)
        if taken.any():
            problem = "is in the index already; update it, or delete it first"
            problem = "is there twice" if self.change.before is None else problem
            raise OptionError("ids", names[int(taken.argmax())], problem)
        if ids is None:
            self.set(next_id=self.facts.next_id + len(texts))
        self._append(texts, vectors, names, metadata, model)
        return len(texts)

    def update(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        *,
        ids: Sequence[str],
        metadata: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> tuple[int, int]:
        """Replace the rows of these ids, and add those that are not there yet; counts of both."""
        if not texts:
            return 0, 0
        names = row_ids(ids, len(texts), 0)
        rows = self.change.find(names)
        self.change.delete(rows[rows >= 0])
        self._append(texts, vectors, names, metadata, model)
        replaced = int((rows >= 0).sum())
        return replaced, len(texts) - replaced

    def delete(self, ids: Sequence[str], *, missing: str = "reject") -> int:
        """Delete the rows of these ids; ids that are not there are an error, or "ignore"d."""
        if missing not in ("reject", "ignore"):
            raise OptionError("missing", missing, "is unknown", choices=("reject", "ignore"))
        rows = self.change.find(ids)
        if missing == "reject" and (rows < 0).any():
            raise OptionError("ids", ids[int(np.argmax(rows < 0))], "is not in the index")
        there = np.unique(rows[rows >= 0])
        self.change.delete(there)
        return len(there)

    def delete_where(self, where: Where) -> int:
        """Delete the rows whose metadata matches a filter."""
        rows = np.flatnonzero(self.change.matching(*sql_condition(check_where(where))))
        self.change.delete(rows)
        return len(rows)

    def compact(self) -> None:
        """Write all rows that are left anew, without the deleted ones."""
        self.change.rewrite()

    def replace_vectors(self, vectors_of: VectorsOf, **changes: Any) -> None:
        """Put other vectors in the place of all."""
        metric = self.facts.metric
        self.change.rewrite(lambda r, t: check_vectors(vectors_of(r, t), len(r), None, metric))
        self.set(**changes)

    def set(self, **changes: Any) -> None:
        """Change what the index is: its model, source, ranker or settings."""
        if isinstance(changes.get("ranker"), Ranker):
            changes["ranker"] = changes["ranker"].to_json()
        self.change.facts = replace(self.facts, **changes)

    # ------------------------------------------------------------------ inside

    def _append(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        names: list[str],
        metadata: Sequence[Any] | None,
        model: str | None,
    ) -> None:
        if model is not None and model != self.facts.model:
            Index(self.change).check_model(model)
        check_metadata(metadata, len(texts))
        given = for_task(vectors, "document")(texts) if callable(vectors) else vectors
        dimension = self.facts.dimension or None
        array = check_vectors(given, len(texts), dimension, self.facts.metric)
        self.change.append(array, texts, names, metadata)

    def _tidy(self) -> None:
        """Compact where most rows are deleted, and keep binary codes."""
        facts = self.facts
        if facts.dead * 2 > facts.rows:
            self.change.rewrite()
        covered = int(self.facts.codes.get("rows", 0))
        stale = not covered or covered < self.facts.rows - CODED // 2
        if facts.metric == "cosine" and self.facts.rows >= CODED and stale:
            self.change.remap()
            self.set(codes=make_codes(self.folder, self.change))

    def _sweep(self) -> None:
        """Remove files of ours that the index names neither now nor before this change."""
        remove_temporaries(self.folder, CHECKSUM)
        states = [state for state in (self.facts, self.change.before) if state is not None]
        named = {name for state in states for name in (state.vectors, state.codes.get("file"))}
        self._remove(FILES[1:], named)

    def _remove(self, patterns: Sequence[str], spared: Collection[object] = ()) -> None:
        for path in (path for pattern in patterns for path in self.folder.glob(pattern)):
            if path.name not in spared:
                with suppress(OSError):  # a reader may hold it where the system forbids that
                    path.unlink()
