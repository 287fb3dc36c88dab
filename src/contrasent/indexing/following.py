"""An index that follows its documents: only what was added or changed is encoded."""

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from contrasent import progress
from contrasent.documents.archives import Entry, Reason
from contrasent.documents.folder import (
    PASSING,
    DocumentSource,
    Origin,
    ReadReport,
    facts_of,
    file_of,
)
from contrasent.documents.passages import CountTokens, cut
from contrasent.documents.sections import Document
from contrasent.errors import InputError, OutputError, UserError, brief, import_extra
from contrasent.files import real_path
from contrasent.indexing.models import open_index_model
from contrasent.indexing.remaining import finish
from contrasent.model.base import TaskEncoder
from contrasent.search.folder import CHECKSUM, in_milvus, is_index
from contrasent.search.index import Index, document_of
from contrasent.search.opening import KeptVectors, resolve_index
from contrasent.search.records import IndexRow, blocks
from contrasent.search.store import ROWS_AT_ONCE, Row, Store, check_encoder
from contrasent.search.writer import Writer
from contrasent.types import EncodeFn, Log

LONGEST_WAIT = 60.0  # seconds between two tries of a synchronization or a watcher that fails
UNSEEN = 3600.0  # seconds after which a watch looks for changes that nothing reported
NAMED = {"gitignore": "no-ignore", "uri": "milvus-uri"}  # as options of the command
TICK = 2_000_000_000  # nanoseconds, of the coarsest clock of a file system

FileFacts = dict[str, Any]
"""Facts of a file: size, modified and digest; its rows, or why it was skipped."""


@dataclass(slots=True)
class Changes:
    """The changes to the documents of an index; files without text are not counted."""

    added: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    unchanged: int = 0
    removed: int = 0  # unchanged files with rows removed by hand
    refreshed: dict[str, FileFacts] = field(default_factory=dict)  # new time, same content

    @property
    def none(self) -> bool:
        """True if there is nothing to do."""
        return not (self.added or self.changed or self.deleted or self.refreshed)

    def stays(self, facts: FileFacts) -> None:
        """Count an unchanged file."""
        self.removed += bool(facts.get("removed"))
        self.unchanged += bool(facts["rows"] and not facts.get("removed"))


def compare(index: Store, source: DocumentSource, checksum: bool) -> Changes:
    """Find what was added, changed or deleted; files with a new time are read and compared."""
    # So are files of the same size and time if checksums are wanted, or if that time is less than a
    # tick before the last listing: within a clock tick a file may be written again.
    origin = Origin.read(index.facts.origin)
    trusted = -math.inf if checksum or origin is None else origin.listed - TICK
    known, changes, seen = index.files(), Changes(), dict[str, Entry]()
    for entry in source.listed():
        seen[entry.name] = entry
        facts = known.get(entry.name)
        if facts is None:
            changes.added.append(entry)
            continue
        # What was left of a file may be readable now; rows that were removed stay away.
        if facts.get("skipped") in PASSING and not facts.get("removed"):
            changes.changed.append(entry)
            continue
        same = (facts["size"], facts["modified"]) == (entry.size, entry.modified)
        if same and entry.modified < trusted:
            changes.stays(facts)
        else:
            fresh: FileFacts = {"digest": ""}
            with suppress(OSError):  # it will be reported when it is read
                fresh = facts_of(entry, whole=bool(facts.get("digest")))
            if fresh["digest"] == facts.get("digest") and (same or fresh["digest"]):
                if not same:
                    changes.refreshed[entry.name] = facts | fresh
                changes.stays(facts)
            else:
                changes.changed.append(entry)
    hidden = source.report.skipped.get(Reason.UNREADABLE)
    away = tuple(hidden.names) if hidden else ()  # folders that cannot be read now keep their rows
    changes.deleted = [name for name in known if name not in seen and not name.startswith(away)]
    if known and len(changes.deleted) == len(known) and not changes.added:
        problem = "contains none of the index's documents; nothing was changed"
        raise InputError(source.source, problem)
    return changes


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The outcome of a synchronization, in files.

    Attributes:
        added: new files with text; likewise ``changed``, ``deleted`` and ``unchanged``.
        rows: number of rows in the index.
        report: what was read, and what was skipped.
        notes: lines about skipped files.
        removed: unchanged files whose rows were removed by hand.
    """

    added: int
    changed: int
    deleted: int
    unchanged: int
    rows: int
    report: ReadReport
    notes: tuple[str, ...] = ()
    removed: int = 0

    def __str__(self) -> str:
        """One line."""
        by_hand = f", {self.removed:,} removed manually before" if self.removed else ""
        shown = f"{self.added:,} added, {self.changed:,} changed, {self.deleted:,} deleted"
        return f"{shown}, {self.unchanged:,} unchanged{by_hand}"


def sync_index(
    index: str | Path,
    source: str | Path | None = None,
    *,
    batch_size: int = 64,
    checksum: bool = False,
) -> SyncResult:
    """Update an index to its documents: only new and changed files are encoded.

    An index that is not fully encoded is completed first. The change is one transaction. A call
    that was killed resumes when it is repeated.

    Args:
        index: folder of an index of documents, or the output of ``adapt``.
        source: folder of the documents, if they have moved.
        batch_size: sentences in a forward pass.
        checksum: compare the content of every file. By default size and time decide, except for
            files changed after, or less than two seconds before, the last synchronization.

    Returns:
        The number of files added, changed, deleted and unchanged.

    Raises:
        InputError: the index was not made from documents, or they are gone.
        OutputError: the index is in Milvus, or cannot be written.
    """
    return _Follower(index, source, batch_size).sync(checksum=checksum)


def resume_index(
    folder: Path,
    model: str | None,
    asked: Mapping[str, Any],
    *,
    batch_size: int,
    log: Log,
) -> TaskEncoder | None:
    """Resume an index of this source that is not fully encoded; None if there is none."""
    if not is_index(folder):
        return None
    with closing(Index.open(folder)) as index:
        before = index.facts.encoding
        if before.get("source") != asked["source"]:
            return None
        if other := [name for name, value in asked.items() if before.get(name, value) != value]:
            named = " and ".join(f"--{NAMED.get(name, name).replace('_', '-')}" for name in other)
            problem = f"was started with another {named}; use the same, or --overwrite"
            raise OutputError(f"{folder}: {problem}")
        encode = open_index_model(index, model, batch_size=batch_size)
        log(f"{folder}: {index.unfinished:,} of {len(index):,} rows remain to be encoded")
    _Follower(folder, None, batch_size, encode).sync()
    return encode


def watch_index(
    index: str | Path,
    source: str | Path | None = None,
    *,
    batch_size: int = 64,
    log: Log = lambda line: None,
) -> Iterator[SyncResult]:
    """Synchronize an index when its documents change, and each hour, until the caller stops.

    Args:
        index: as for :func:`sync_index`.
        source: as for :func:`sync_index`.
        batch_size: as for :func:`sync_index`.
        log: called with a line when a synchronization fails, which is then tried again.

    Yields:
        The outcome of each synchronization; the first one runs at once.

    Raises:
        MissingExtraError: the package watchfiles is not installed.
    """
    follower = _Follower(index, source, batch_size)
    import_extra("watchfiles", "documents", "--watch")
    with closing(Index.open(follower.folder)) as opened:
        follower.documents(Origin.read(opened.facts.origin))
    due, wait = math.inf, 1.0  # when to try again, and seconds from then to the next try
    for changed in follower.looks(log):
        if not changed and time.monotonic() < due:
            continue
        try:
            yield follower.sync()
            due, wait = math.inf, 1.0
        except (UserError, OSError) as error:  # documents may come back, and another writer may end
            log(str(error))
            due, wait = time.monotonic() + wait, min(2 * wait, LONGEST_WAIT)


def _counts(path: Path, documents: Path, index: Path) -> bool:
    """Whether a change there may change what an index of the documents holds."""
    if not path.is_relative_to(documents) or path.is_relative_to(index):
        return False
    parts = path.relative_to(documents).parts
    return not any(part.startswith(".") and part != ".gitignore" for part in parts)


def _inode(path: Path) -> tuple[int, int] | None:
    """What a path leads to now; None if nothing is there."""
    with suppress(OSError):
        facts = path.stat()
        return facts.st_dev, facts.st_ino
    return None


def own_folder(index: str | Path) -> Path:
    """The folder of an index that has its vectors in it, not in Milvus."""
    folder = resolve_index(index)
    if in_milvus(folder):
        raise OutputError(f"{folder}: is in Milvus; rebuild it with 'contrasent index'")
    return folder


class _Follower:
    """An index and its documents; the model is opened when it is first needed."""

    def __init__(
        self,
        index: str | Path,
        source: str | Path | None,
        batch_size: int,
        encode: TaskEncoder | None = None,
    ) -> None:
        self.folder, self.source, self.batch_size = own_folder(index), source, batch_size
        self.encode = encode
        self._model = ""  # of the index that it was opened for; identities take long
        self.place = Path()  # of the documents, as of the last look at the index

    def model(self, index: Index) -> TaskEncoder:
        """The model of the index, which another process may have changed."""
        if self.encode is None or self._model not in ("", index.model):
            self.encode = open_index_model(index, batch_size=self.batch_size)
        self._model = index.model
        return self.encode

    def documents(self, origin: Origin | None) -> DocumentSource:
        """The documents that the index was made of."""
        if origin is None:
            problem = "was not built from a folder of documents; rebuild it from one"
            raise InputError(self.folder, problem)
        if self.source is None and not os.path.exists(origin.path):  # noqa: PTH110
            problem = f"is gone; if it moved: contrasent index {self.folder} NEW-PLACE --sync"
            raise InputError(origin.path, problem)
        found = origin.open(self.source)
        self.place = found.source
        return found

    def looks(self, log: Log) -> Iterator[bool]:
        """Whether documents may have changed, at least each second while they can be watched."""
        from watchfiles import watch
        from watchfiles._rust_notify import WatchfilesRustInternalError

        pause = 1.0  # seconds until the next watcher, after one that failed
        while True:
            place, before, first = self.place, _inode(self.place), True
            documents, index = real_path(place), real_path(self.folder)
            ends = time.monotonic() + UNSEEN
            try:
                # No filter: it would end no wait while hidden files change.
                for changes in watch(
                    documents, watch_filter=None, rust_timeout=1000, yield_on_timeout=True
                ):
                    moved = self.place != place or _inode(place) not in (before, None)
                    if not first and (moved or time.monotonic() >= ends):
                        break
                    # The first look is with the watcher at work: no change is missed.
                    yield first or any(_counts(Path(one), documents, index) for _, one in changes)
                    first, pause = False, 1.0
            except (WatchfilesRustInternalError, OSError) as error:  # such as non-UTF-8 names
                log(f"{documents}: watching begins again ({brief(error)})")
                yield True
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_WAIT)

    def sync(self, *, checksum: bool = False) -> SyncResult:
        """Encode what is left; then apply what was added, changed or deleted."""
        with closing(Index.open(self.folder)) as index:
            rows, unfinished = len(index), index.unfinished
            origin = Origin.read(index.facts.origin)
            encode = self.model(index) if unfinished else None
        if encode is not None:
            finish(self.folder, encode)
            if origin is None and self.source is None:
                return SyncResult(0, 0, 0, 0, rows, ReadReport())
        outcome = self._unchanged(checksum) or self._changed(checksum)
        with suppress(OSError):  # its time is that of the last sync
            os.utime(self.folder / CHECKSUM)
        return outcome

    def _unchanged(self, checksum: bool) -> SyncResult | None:
        """The result if nothing changed; otherwise None. It waits for no writer."""
        with closing(Index.open(self.folder)) as index:
            origin = Origin.read(index.facts.origin)
            source = self.documents(origin)
            changes = compare(index.store, source, checksum)
            if not changes.none or source.origin != origin:
                return None
            totals = changes.unchanged, len(index), source.report
            return SyncResult(0, 0, 0, *totals, removed=changes.removed)

    def _changed(self, checksum: bool) -> SyncResult:
        with closing(Index.open(self.folder)) as index:
            encode = self.model(index)
        with Writer(self.folder) as writer:
            source = self.documents(Origin.read(writer.facts.origin))
            changes = compare(writer.store, source, checksum)
            check_encoder(writer.facts, self.folder, encode)
            return apply_changes(writer, source, changes, encode)


def apply_changes(
    writer: Writer, source: DocumentSource, changes: Changes, encode: TaskEncoder
) -> SyncResult:
    """Read and encode what was added or changed, and remove what was deleted."""
    known, model = writer.store.files(), encode.encoder
    read = source.read([*changes.added, *changes.changed])
    rows = document_rows(read, source.files, model.count_tokens, model.max_seq_length)
    fresh: dict[str, FileFacts | None] = {**changes.refreshed, **source.files}
    fresh |= dict.fromkeys(changes.deleted)
    old = {
        row.id: row
        for name in fresh
        if name in known and name not in changes.refreshed
        for row in writer.store.rows_of(name)
        if file_of(document_of(row.id, row.metadata), known) == name
    }
    _replace(writer, old, rows, encode)
    same = fresh.items() <= known.items() and source.origin == Origin.read(writer.facts.origin)
    if not same or writer.facts != writer.before:  # else, as after a file that timed out, nothing
        writer.put_files(fresh)
        writer.set(origin=source.origin.to_json() if source.origin else {})
    before, now = (
        {name for name, facts in files.items() if facts["rows"]} for files in (known, source.files)
    )
    return SyncResult(
        added=len(now - before),
        changed=len(now & before),
        deleted=len(before & {*changes.deleted, *source.files} - now),
        unchanged=changes.unchanged,
        rows=len(writer.store),
        report=source.report,
        notes=tuple(source.report.skipped_lines()),
        removed=changes.removed,
    )


def _replace(writer: Writer, old: dict[str, Row], rows: list[IndexRow], encode: EncodeFn) -> None:
    """Replace rows by others; texts that were there keep their vectors."""
    same = {
        name
        for text, name, about in rows
        if (row := old.get(str(name))) and (row.text, row.metadata) == (text, about)
    }
    new = [row for row in rows if row[1] not in same]
    gone = np.array([row.row for row in old.values() if row.id not in same], np.int64)
    if not new:
        writer.delete_rows(gone)
        return
    with (
        progress.task("Encoding", len(new), "texts") as advance,
        KeptVectors(writer.store.path.parent, encode, writer.facts, advance) as memo,
    ):
        kept = old.values()
        memo.put((row.text for row in kept), (writer.store.vectors[row.row] for row in kept))
        writer.delete_rows(gone)
        for block in blocks(new, ROWS_AT_ONCE):
            writer.write_rows(block._replace(vectors=memo), replace=False)


def document_rows(
    documents: Iterable[Document],
    files: dict[str, FileFacts],
    count: CountTokens,
    max_seq_length: int,
) -> list[IndexRow]:
    """A row for each passage; their count goes into the facts of the files."""
    rows: list[IndexRow] = list(cut(documents, count, max_seq_length))
    count_rows(files, rows)
    return rows


def count_rows(files: dict[str, FileFacts], rows: Iterable[IndexRow]) -> None:
    """Record the number of rows of each file in its facts."""
    for facts in files.values():
        facts["rows"] = 0
    for _, _, about in rows:
        name = file_of(about["document"], files)
        if name in files:
            files[name]["rows"] += 1
