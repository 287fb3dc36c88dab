"""The index behind a server: searched in threads, opened anew when a writer has changed it."""

import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from contrasent.errors import UserError
from contrasent.search.index import Index
from contrasent.search.plane import plane
from contrasent.types import Vectors

LOOK_EVERY = 1.0


class Library:
    """The newest snapshot of an index.

    Args:
        index: opened from a folder, or built in memory.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._map: tuple[int, dict[str, Any]] | None = None

    @property
    def index(self) -> Index:
        """The snapshot to use; looks for a newer one once a second at most."""
        with self._lock:
            if time.monotonic() - self._looked > LOOK_EVERY:
                self._looked = time.monotonic()
                with suppress(UserError):  # where the folder has gone, what is mapped stays good
                    self._index = self._index.refreshed()
            return self._index

    def search(
        self, vectors: Vectors, k: int, threshold: float | None, where: dict[str, Any] | None
    ) -> tuple[list[list[dict[str, Any]]], int]:
        """What each query finds, and the number of texts in the index."""
        index = self.index
        found = index.search(vectors, k=k, threshold=threshold, where=where)
        return [[asdict(hit) for hit in hits] for hits in found], len(index)

    def map(self, limit: int) -> dict[str, Any]:
        """Points of the index on a plane; computed once for each snapshot and limit."""
        index = self.index
        key = hash((index.generation, limit))
        if self._map is None or self._map[0] != key:
            flat = plane(index, limit=limit)
            points = []
            for row, (x, y) in zip(flat.rows, flat.points, strict=True):
                segment, at = index.place(int(row))
                text = segment.texts[at]
                points.append({"id": segment.ids[at], "text": text[:300], "x": x, "y": y})
            data = {
                "points": points,
                "texts": len(index),
                "method": "pca",
                "explained": flat.explained,
            }
            self._map = (key, data)
        return self._map[1]
