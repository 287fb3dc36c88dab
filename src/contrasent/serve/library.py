"""The index behind a server: searched in threads, opened anew when a writer has changed it."""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import InputError, UserError
from contrasent.search.hybrid import Hybrid, searcher
from contrasent.search.index import Index
from contrasent.search.opening import AnyIndex
from contrasent.search.plane import plane, spread
from contrasent.search.query import Hit
from contrasent.types import EncodeFn, Vectors, for_task

log = logging.getLogger("contrasent.serve")

OpenModel = Callable[[AnyIndex], EncodeFn]
"""Loads the model that an index names."""

LOOK_EVERY = 1.0
PATIENCE = 2.0
"""Seconds that an answer waits for a newer snapshot."""
PLACED = 5000
"""Rows that a map is made of."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """An index as it was at a moment; ``encode`` is None where the model served is its own."""

    index: AnyIndex
    searcher: AnyIndex | Hybrid
    texts: int
    encode: EncodeFn | None


class Library:
    """The newest snapshot of an index."""

    def __init__(
        self,
        index: AnyIndex,
        identity: str,
        *,
        open_model: OpenModel | None = None,
        hybrid: bool | None = None,
        lexical_weight: float | None = None,
    ) -> None:
        self.identity, self._open_model = identity, open_model
        self._searcher = partial(searcher, hybrid=hybrid, lexical_weight=lexical_weight)
        self._snapshot = self._take(index)
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._opening = threading.Thread()
        self._encoding = threading.Lock()
        self._drawing = threading.Lock()
        self._map: tuple[int, dict[str, Any]] | None = None

    def _take(self, index: AnyIndex) -> Snapshot:
        encode = None
        if index.model != self.identity:
            if self._open_model is None:
                index.check_model(self.identity, "the model served")
            else:
                encode = for_task(self._open_model(index), "query")
        return Snapshot(index, self._searcher(index), len(index), encode)

    def newest(self) -> Snapshot:
        """The snapshot to use; looks for a newer one once a second at most."""
        # A newer one is opened in a thread, since its words may have to be counted and its model
        # loaded; after a moment's wait, answers come from the one before until it is there.
        opening = None
        with self._lock:
            if time.monotonic() - self._looked > LOOK_EVERY and not self._opening.is_alive():
                self._looked = time.monotonic()
                opening = self._opening = threading.Thread(target=self._refresh, daemon=True)
                opening.start()
        if opening is not None:
            opening.join(PATIENCE)
        with self._lock:
            return self._snapshot

    def _refresh(self) -> None:
        with suppress(InputError):  # where the folder has gone, what is mapped stays good
            newest = self._snapshot.index.refreshed()
            if newest is self._snapshot.index:
                return
            try:
                taken = self._take(newest)
            except UserError as error:
                problem = f"the index as it was still answers: {error}"
                log.error("%s", json.dumps({"event": "index", "problem": problem}))
                return
            with self._lock:
                self._snapshot = taken

    @property
    def name(self) -> str:
        """The name of the model that made the index."""
        manifest = self._snapshot.index.manifest
        return Path(manifest.source or manifest.model).name

    def search(
        self,
        snapshot: Snapshot,
        queries: Sequence[str],
        vectors: Vectors | None,
        k: int,
        threshold: float | None = None,
        where: dict[str, Any] | None = None,
    ) -> list[list[Hit]]:
        """The hits of each query; ``vectors`` (q, d) unless the snapshot's own model encodes."""
        if vectors is None:
            if snapshot.encode is None:
                raise UserError("the queries have no vectors")
            with self._encoding:
                vectors = snapshot.encode(queries)
        return snapshot.searcher.search(
            queries, vectors=vectors, k=k, threshold=threshold, where=where
        )

    def map(self, limit: int) -> dict[str, Any]:
        """Some points of the index on a plane; placed once for each snapshot, one at a time."""
        with self._drawing:
            snapshot = self.newest()
            index = snapshot.index
            if self._map is None or self._map[0] != index.generation:
                rows = index if isinstance(index, Index) else index.sample(PLACED)
                flat = plane(rows, limit=PLACED)
                points = []
                for row, (x, y) in zip(flat.rows, flat.points, strict=True):
                    named = rows.named(int(row))
                    points.append({**named, "text": named["text"][:300], "x": x, "y": y})
                self._map = index.generation, {"points": points, "explained": flat.explained}
            placed = self._map[1]
        shown = spread(np.arange(len(placed["points"])), limit)
        return {**placed, "points": [placed["points"][at] for at in shown], "texts": snapshot.texts}
