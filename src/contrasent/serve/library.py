"""The index behind a server: searched in threads, opened anew when a writer has changed it."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from contrasent.errors import UserError
from contrasent.search.hybrid import Hybrid, searcher
from contrasent.search.index import Index
from contrasent.search.opening import AnyIndex
from contrasent.search.plane import plane, spread
from contrasent.types import Vectors

LOOK_EVERY = 1.0
PATIENCE = 2.0
"""Seconds that an answer waits for a newer snapshot."""
PLACED = {"pca": 5000, "umap": 2000}
"""Rows that a map is made of, by method."""


class Library:
    """The newest snapshot of an index.

    Args:
        index: opened from a folder, built in memory, or in Milvus.
        hybrid: whether words count beside vectors; as the index was made if None.
        lexical_weight: share of BM25, or None for the index's own.

    Raises:
        OptionError: hybrid search of an index in Milvus.
    """

    def __init__(
        self,
        index: AnyIndex,
        *,
        hybrid: bool | None = None,
        lexical_weight: float | None = None,
    ) -> None:
        self._index = index
        self._open = partial(searcher, hybrid=hybrid, lexical_weight=lexical_weight)
        self._searcher = self._open(index)
        self._texts = len(index)
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._opening = threading.Thread()
        self._drawing = threading.Lock()
        self._maps: dict[tuple[int, str], dict[str, Any]] = {}

    def _newest(self) -> tuple[AnyIndex, int]:
        """The snapshot to use and its size; looks for a newer one once a second at most.

        A newer one is opened in a thread, since its words may have to be counted first, and is
        waited for a moment alone: until it is there, answers come from the one before.
        """
        opening = None
        with self._lock:
            if time.monotonic() - self._looked > LOOK_EVERY and not self._opening.is_alive():
                self._looked = time.monotonic()
                opening = self._opening = threading.Thread(target=self._refresh, daemon=True)
                opening.start()
        if opening is not None:
            opening.join(PATIENCE)
        with self._lock:
            return self._index, self._texts

    def _refresh(self) -> None:
        with suppress(UserError):  # where the folder has gone, what is mapped stays good
            newest, using = self._index.refreshed(), self._searcher
            if newest is not self._index:
                using = self._open(newest)
            with self._lock:
                self._index, self._searcher, self._texts = newest, using, len(newest)

    def texts(self) -> int:
        """How many texts there are, or were when the index was last within reach."""
        return self._newest()[1]

    def search(
        self,
        queries: Sequence[str],
        vectors: Vectors,
        k: int,
        threshold: float | None,
        where: dict[str, Any] | None,
    ) -> tuple[list[list[dict[str, Any]]], int]:
        """What each query finds, and the number of texts in the index.

        Args:
            queries: q texts.
            vectors: (q, d), of the queries.
            k: rows to find for each.
            threshold: smallest score that counts, or None.
            where: filter on metadata, or None.
        """
        _, texts = self._newest()
        using = self._searcher
        if isinstance(using, Hybrid):
            found = using.search(queries, vectors=vectors, k=k, threshold=threshold, where=where)
        else:
            found = using.search(vectors, k=k, threshold=threshold, where=where)
        return [[asdict(hit) for hit in hits] for hits in found], texts

    def map(self, limit: int, method: str) -> dict[str, Any]:
        """Some points of the index on a plane; placed once for each snapshot, one at a time."""
        with self._drawing:
            index, texts = self._newest()
            key = (index.generation, method)
            if key not in self._maps:
                rows = index if isinstance(index, Index) else index.sample(PLACED["pca"])
                flat = plane(rows, limit=PLACED[method], method=method)
                points = []
                for row, (x, y) in zip(flat.rows, flat.points, strict=True):
                    named = rows.named(int(row))
                    points.append({**named, "text": named["text"][:300], "x": x, "y": y})
                self._maps = {old: kept for old, kept in self._maps.items() if old[0] == key[0]}
                self._maps[key] = {"points": points, "method": method, "explained": flat.explained}
            placed = self._maps[key]
        shown = spread(np.arange(len(placed["points"])), limit)
        return {**placed, "points": [placed["points"][at] for at in shown], "texts": texts}
