"""The index behind a server: searched in threads, opened anew when a writer has changed it."""

import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from contrasent.errors import UserError
from contrasent.search.index import Index
from contrasent.search.opening import AnyIndex
from contrasent.search.plane import plane
from contrasent.types import Vectors

LOOK_EVERY = 1.0
MAPPED = 5000
"""Rows of an index in Milvus that a map is made of."""
KEPT = 4
"""Maps that are kept."""


class Library:
    """The newest snapshot of an index.

    Args:
        index: opened from a folder, built in memory, or in Milvus.
    """

    def __init__(self, index: AnyIndex) -> None:
        self._index = index
        self._texts = len(index)
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._drawing = threading.Lock()
        self._maps: dict[tuple[int, int, str], dict[str, Any]] = {}

    def _newest(self) -> tuple[AnyIndex, int]:
        """The snapshot to use and its size; looks for a newer one once a second at most."""
        with self._lock:
            if time.monotonic() - self._looked > LOOK_EVERY:
                self._looked = time.monotonic()
                with suppress(UserError):  # where the folder has gone, what is mapped stays good
                    self._index = self._index.refreshed()
                    self._texts = len(self._index)
            return self._index, self._texts

    def texts(self) -> int:
        """How many texts there are, or were when the index was last within reach."""
        return self._newest()[1]

    def search(
        self, vectors: Vectors, k: int, threshold: float | None, where: dict[str, Any] | None
    ) -> tuple[list[list[dict[str, Any]]], int]:
        """What each query finds, and the number of texts in the index."""
        index, texts = self._newest()
        found = index.search(vectors, k=k, threshold=threshold, where=where)
        return [[asdict(hit) for hit in hits] for hits in found], texts

    def map(self, limit: int, method: str) -> dict[str, Any]:
        """Points of the index on a plane; one at a time, and the last few are kept."""
        with self._drawing:
            index, texts = self._newest()
            key = (index.generation, limit, method)
            if key not in self._maps:
                rows = index if isinstance(index, Index) else index.sample(MAPPED)
                flat = plane(rows, limit=limit, method=method)
                points = []
                for row, (x, y) in zip(flat.rows, flat.points, strict=True):
                    named = rows.named(int(row))
                    points.append({**named, "text": named["text"][:300], "x": x, "y": y})
                while len(self._maps) >= KEPT:
                    del self._maps[next(iter(self._maps))]
                self._maps[key] = {
                    "points": points,
                    "texts": texts,
                    "method": method,
                    "explained": flat.explained,
                }
            return self._maps[key]
