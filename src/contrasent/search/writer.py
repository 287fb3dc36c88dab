"""The one writer of an index folder: add, update, delete, compact.

New rows are written as segments that no manifest names yet; :meth:`Writer.commit` names them in
one rename. A reader keeps the snapshot it opened; a writer that is killed leaves files that no
manifest names, which the next writer removes.
"""

import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from contrasent.errors import OutputError
from contrasent.files import recover_folder, writing
from contrasent.search.changes import WriterBase
from contrasent.search.index import Index
from contrasent.search.manifest import Manifest, Part, write_manifest
from contrasent.search.segment import Segment, encoded, id_hash
from contrasent.search.segment_writer import describe, write_segment

LOCK = ".lock"
_OURS = re.compile(r"(segment|deleted|backend)-\d{6}.*|\.index\.json\..+")


class IdTable:
    """The ids of an index's rows, deleted ones aside, found by their 64-bit hashes.

    It takes 16 bytes a row; ids are read where hashes are equal.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        rows = np.flatnonzero(index.alive())
        parts = [segment.hashes for segment in index.segments]
        hashes = np.concatenate(parts)[rows] if parts else np.empty(0, dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        self.hashes, self.rows = hashes[order], rows[order]

    def find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """(n,) row of each id, -1 where there is none."""
        wanted = np.array([id_hash(name) for name in ids], dtype=np.uint64)
        firsts = np.searchsorted(self.hashes, wanted, side="left")
        stops = np.searchsorted(self.hashes, wanted, side="right")
        found = np.full(len(ids), -1, dtype=np.int64)
        for at, name in enumerate(ids):
            for place in range(int(firsts[at]), int(stops[at])):
                row = int(self.rows[place])
                segment, inside = self.index.place(row)
                if segment.ids.raw(inside) == encoded(name):
                    found[at] = row
                    break
        return found


class Writer(WriterBase):
    """Change an index folder; use as a context manager.

    Leaving the block commits what was done in it; an exception drops it. Each method sees what
    those before it did.

    ``wait``: seconds to wait for another writer to finish.
    """

    def __init__(self, folder: str | Path, *, wait: float = 0.0) -> None:
        self.folder = Path(folder)
        recover_folder(self.folder)
        Index.open(self.folder)  # refuse what is no index before a lock is made in it
        self.lock = FileLock(self.folder / LOCK, timeout=wait)

    index: Index

    def __enter__(self) -> "Writer":
        with writing(self.folder):
            try:
                self.lock.acquire()
            except Timeout as error:  # an OSError as well
                raise OutputError(
                    f"{self.folder}: another process is writing to this index; "
                    "try again when it has ended, or wait for it (wait=SECONDS)"
                ) from error
        self.index = Index.open(self.folder)
        self.manifest: Manifest = self.index.manifest
        self.next_id = self.manifest.next_id
        self._ids: IdTable | None = None
        self._sweep()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.commit()
            else:
                self.manifest = Index.open(self.folder).manifest
                self._sweep()
        finally:
            self.lock.release()

    # ------------------------------------------------------------------ changes

    def delete_where(self, where: dict[str, Any]) -> int:
        """Delete the rows whose metadata matches; see :mod:`contrasent.search.filters`."""
        rows = np.flatnonzero(self.index.matching(where))
        self._delete_rows(rows)
        return len(rows)

    def compact(self) -> None:
        """Write all rows that are left as one segment; an approximate index is dropped."""
        self.manifest = replace(self.manifest, backend=None)
        self._merge(0)

    def replace_rows(self, blocks: Iterable[Segment], **changes: Any) -> None:
        """Put other rows in the place of all; an approximate index is dropped."""
        self.manifest = replace(self.manifest, backend=None, deleted=None, **changes)
        part = self._write(blocks)
        self._change(segments=(part,) if part.rows else ())

    # ------------------------------------------------------------------ commit

    def commit(self) -> Index:
        """Make the changes so far visible to readers, in one rename; returns the new snapshot."""
        before = Index.open(self.folder).manifest
        self._tidy()
        self.manifest = replace(self.manifest, next_id=self.next_id)
        if self.manifest != before:
            self.manifest = replace(self.manifest, generation=before.generation + 1)
            with writing(self.folder):
                write_manifest(self.folder, self.manifest)
        self._sweep()
        self.index = Index.open(self.folder)
        self._ids = None
        return self.index

    def set_backend(self, part: Part | None) -> None:
        """Name an approximate index over the first rows, or none."""
        self.manifest = replace(self.manifest, backend=part)

    def new_name(self, kind: str) -> str:
        """A name of a file or folder that is not taken, such as "segment-000007"."""
        used = [path.name for path in self.folder.glob(f"{kind}-*")]
        numbers = [int(name.removeprefix(f"{kind}-")[:6]) for name in used if _OURS.match(name)]
        return f"{kind}-{max(numbers, default=0) + 1:06d}"

    # ------------------------------------------------------------------ inside

    def _find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        if self._ids is None or self._ids.index is not self.index:
            self._ids = IdTable(self.index)
        return self._ids.find(ids)

    def _put(self, block: Segment, old: NDArray[np.int64]) -> None:
        self._delete_rows(old)
        self._change(segments=(*self.manifest.segments, self._write([block])))

    def _drop(self, ids: list[str], rows: NDArray[np.int64]) -> None:
        self._delete_rows(rows)

    def _write(self, blocks: Iterable[Segment]) -> Part:
        with writing(self.folder):
            place = self.folder / self.new_name("segment")
            return write_segment(place, self.manifest.dimension, blocks)

    def _delete_rows(self, rows: NDArray[np.int64]) -> None:
        if len(rows):
            self._change(deleted=self._write_deleted(np.union1d(self.index.deleted, rows)))

    def _write_deleted(self, rows: NDArray[np.int64]) -> Part | None:
        if not len(rows):
            return None
        path = self.folder / f"{self.new_name('deleted')}.npy"
        with writing(self.folder):
            np.save(path, rows.astype("<i8"), allow_pickle=False)
            return Part(path.name, len(rows), {path.name: describe(path)})

    def _change(self, **changes: Any) -> None:
        """Let the methods that follow see a change, which is on disk but in no manifest yet."""
        self.manifest = replace(self.manifest, **changes)
        self.index = Index.from_manifest(self.folder, self.manifest)

    def _tidy(self) -> None:
        """Keep segments few: merge the last ones while they are small against what precedes."""
        sizes = [part.rows for part in self.manifest.segments]
        covered = self.manifest.backend.rows if self.manifest.backend else 0
        if not covered and len(self.index.deleted) * 2 > sum(sizes):
            self._merge(0)
            return
        first, total = len(sizes), 0
        while first and (first == len(sizes) or sizes[first - 1] <= 2 * total):
            if sum(sizes[: first - 1]) < covered:
                break
            first -= 1
            total += sizes[first]
        if len(sizes) - first > 1:
            self._merge(first)

    def _merge(self, first: int) -> None:
        """Write the segments from ``first`` on as one, without their deleted rows."""
        start = int(self.index.firsts[first])
        live = (rows for rows in self.index.row_blocks() if rows[0] >= start)
        part = self._write(self.index.take(rows) for rows in live)
        deleted = self.index.deleted[self.index.deleted < start]
        merged = (part,) if part.rows else ()
        self._change(
            segments=(*self.manifest.segments[:first], *merged),
            deleted=self._write_deleted(deleted),
        )

    def _sweep(self) -> None:
        """Remove files of ours that the manifest does not name."""
        for path in self.folder.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in self.manifest.names:
                # A reader on a system that forbids it may hold a file: the next writer removes it.
                with suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
