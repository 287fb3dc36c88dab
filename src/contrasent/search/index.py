"""An index: vectors with their texts, ids and metadata, searched exactly.

The index knows no model. It takes vectors, or an ``EncodeFn`` that makes them, and keeps the
identity of the model they came from, so that it can refuse vectors of another.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import InputError, UserError
from contrasent.files import atomic_folder
from contrasent.search.backends import Backend, open_backend
from contrasent.search.checks import (
    check_metadata,
    check_metric,
    check_target,
    check_vectors,
    row_ids,
)
from contrasent.search.exact import QUERIES_AT_ONCE, Best, scan
from contrasent.search.manifest import Manifest, read_manifest, write_manifest
from contrasent.search.query import Hit, Wanted
from contrasent.search.rows import Rows
from contrasent.search.segment import Segment, check_size, open_array, open_segment
from contrasent.search.segment_writer import (
    ROWS_AT_ONCE,
    IndexRows,
    encoded_blocks,
    refuse_duplicate_ids,
    write_segment,
)
from contrasent.types import EncodeFn, Vectors, for_task

FEW = 10_000
"""Rows up to which an exact search is preferred to an approximate one."""


class Index(Rows):
    """A snapshot of an index; searching it is safe from many threads.

    Make one with :meth:`build` (in memory) or :meth:`create` (straight to a folder, for a corpus
    larger than memory), and read one with :meth:`open`.
    """

    _backend: Backend | None = None

    # ------------------------------------------------------------------ making and reading

    @classmethod
    def build(
        cls,
        encode: EncodeFn,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Any] | None = None,
        model: str = "",
        source: str = "",
        metric: str = "cosine",
    ) -> "Index":
        """Encode texts and keep them in memory.

        Args:
            encode: sentences in, vectors out.
            texts: what is to be found.
            ids: one distinct string a text; row numbers by default.
            metadata: one JSON value a text.
            model: identity of the model behind ``encode``.
            source: name or path that the model can be loaded by.
            metric: "cosine" (vectors are scaled to length one) or "dot".

        Raises:
            UserError: no texts, ids that repeat or are too few, or metadata that is not JSON.
            ModelError: ``encode`` gave vectors that are not finite or of the wrong shape.
        """
        check_metric(metric)
        names = row_ids(ids, len(texts), 0)
        check_metadata(metadata, len(texts))
        if not texts:
            raise UserError("there are no texts to index")
        vectors = check_vectors(for_task(encode, "document")(texts), len(texts), None, metric)
        segment = Segment.pack(vectors, texts, names, metadata)
        manifest = Manifest(model, source, metric, vectors.shape[1], next_id=len(texts))
        return cls(manifest, [segment])

    @classmethod
    def create(
        cls,
        folder: str | Path,
        encode: EncodeFn,
        rows: IndexRows,
        *,
        model: str = "",
        source: str = "",
        metric: str = "cosine",
        settings: dict[str, Any] | None = None,
        overwrite: bool = False,
        batch: int = ROWS_AT_ONCE,
    ) -> "Index":
        """Encode a stream of rows straight into a folder, with memory for one batch of them.

        Args:
            folder: the index to make; it appears when all is done.
            encode: sentences in, vectors out.
            rows: (text, id or None for the row's number, metadata or None), or an
                :class:`EncodedRecords`, of which nothing is encoded.
            model: identity of the model behind ``encode``.
            source: name or path that the model can be loaded by.
            metric: "cosine" or "dot".
            settings: JSON to keep with the index, such as how its model was loaded.
            overwrite: replace an index that is there.
            batch: rows encoded at a time.

        Raises:
            OutputError: the folder exists, or cannot be written.
            UserError: no rows, or ids that repeat.
        """
        target = Path(folder)
        check_metric(metric)
        check_target(target, overwrite)
        with atomic_folder(target) as temporary:
            place = temporary / "segment-000001"
            blocks = encoded_blocks(encode, rows, metric, batch)
            first = next(blocks, None)
            if first is None:
                raise UserError("there are no texts to index")
            with progress.task("index", unit="texts") as advance:
                written = chain([first], blocks)
                part = write_segment(place, first.vectors.shape[1], written, advance)
            refuse_duplicate_ids(place, part.rows)
            manifest = Manifest(
                model,
                source,
                metric,
                first.vectors.shape[1],
                next_id=part.rows,
                segments=(part,),
                settings=settings or {},
            )
            write_manifest(temporary, manifest)
        return cls.open(target)

    @classmethod
    def open(cls, folder: str | Path) -> "Index":
        """Map the index in a folder; nothing is read until it is searched.

        Raises:
            InputError: the folder is no index, or a file of it is missing, truncated or damaged.
        """
        path = Path(folder)
        manifest = read_manifest(path)
        while True:
            try:
                return cls.from_manifest(path, manifest)
            except InputError:  # a writer may have replaced the files since the manifest was read
                newer = read_manifest(path)
                if newer.generation == manifest.generation:
                    raise
                manifest = newer

    @classmethod
    def from_manifest(cls, folder: Path, manifest: Manifest) -> "Index":
        """Map what a manifest names.

        Args:
            folder: of the index.
            manifest: what makes it up.
        """
        segments = [
            open_segment(folder / part.name, part.rows, manifest.dimension, part.files)
            for part in manifest.segments
        ]
        return cls(manifest, segments, _open_deleted(folder, manifest), folder)

    def refreshed(self) -> "Index":
        """The newest snapshot of the folder: this one if nothing was written since."""
        if self.folder is None or read_manifest(self.folder).generation == self.generation:
            return self
        return Index.open(self.folder)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the index to a folder, as one segment without the deleted rows.

        Args:
            folder: the target.
            overwrite: replace an index that is there.

        Raises:
            OutputError: the folder exists and ``overwrite`` is not set, or cannot be written.
        """
        target = Path(folder)
        check_target(target, overwrite)
        with atomic_folder(target) as temporary:
            place = temporary / "segment-000001"
            blocks = (self.take(rows) for rows in self.row_blocks())
            part = write_segment(place, self.dimension, blocks)
            manifest = Manifest(
                self.model,
                self.manifest.source,
                self.metric,
                self.dimension,
                next_id=self.manifest.next_id,
                segments=(part,) if part.rows else (),
                settings=self.manifest.settings,
            )
            write_manifest(temporary, manifest)

    # ------------------------------------------------------------------ searching

    def _hits(
        self, texts: Sequence[str] | Vectors, vectors: Vectors, wanted: Wanted
    ) -> list[list[Hit]]:
        allowed = None if wanted.where is None else self.matching(wanted.where)
        k = min(wanted.k, len(self) if allowed is None else int(allowed.sum()))
        if k == 0:
            return [[] for _ in vectors]
        found: list[list[Hit]] = []
        for start in range(0, len(vectors), QUERIES_AT_ONCE):
            part = vectors[start : start + QUERIES_AT_ONCE]
            scores, rows = self.nearest(
                part, k, threshold=wanted.threshold, allowed=allowed, exact=wanted.exact
            )
            for query in range(len(part)):
                found_rows = rows[query] >= 0
                pairs = zip(rows[query][found_rows], scores[query][found_rows], strict=True)
                found.append([self.hit(int(row), float(score)) for row, score in pairs])
        return found

    def nearest(
        self,
        queries: Vectors,
        k: int,
        *,
        threshold: float | None = None,
        allowed: NDArray[np.bool_] | None = None,
        exact: bool = False,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and row numbers, (q, k) each, of the best rows; -1 where there are fewer.

        Args:
            queries: (q, d), checked and scaled by :meth:`IndexBase.query_vectors`.
            k: rows to find.
            threshold: smallest score that counts.
            allowed: (rows,) bool, which rows count; by default those not deleted.
            exact: look at every row even where there is an approximate index.
        """
        if allowed is None and len(self.deleted):
            allowed = self.alive()
        best = Best(len(queries), k, threshold)
        done = 0
        # Where a filter leaves few rows, looking at each of them is faster, and exact.
        many = allowed is None or int(allowed.sum()) > FEW
        if self.manifest.backend is not None and self.folder is not None and many and not exact:
            if self._backend is None:
                self._backend = open_backend(self.folder, self.manifest.backend, self.dimension)
            backend = self._backend
            candidates = backend.candidates(queries, k, allowed)
            # A graph walked under a narrow filter may run dry: then every row is looked at.
            if all(len(rows) >= min(k, backend.rows) for rows in candidates):
                for query, rows in enumerate(candidates):
                    best.offer_one(query, self.vectors_of(rows) @ queries[query], rows)
                done = backend.rows
        blocks = (
            (int(first), segment.vectors)
            for first, segment in zip(self.firsts, self.segments, strict=False)
            if first >= done
        )
        scan(queries, blocks, best, allowed=allowed)
        return best.scores, best.rows


def _open_deleted(folder: Path, manifest: Manifest) -> NDArray[np.int64] | None:
    part = manifest.deleted
    if part is None:
        return None
    path = folder / part.name
    check_size(path, int(part.files[part.name]["bytes"]))
    rows = np.array(open_array(path, "<i8", (part.rows,)))
    total = sum(segment.rows for segment in manifest.segments)
    if len(rows) and (rows[0] < 0 or rows[-1] >= total or (np.diff(rows) <= 0).any()):
        raise InputError(path, "does not fit the index; build the index again")
    return rows
