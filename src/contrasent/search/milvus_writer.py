"""Changes to an index in Milvus: the methods of :class:`contrasent.search.writer.Writer`.

Milvus looks after several writers, so there is no lock, and nothing is taken back: what a method
did is there when it returns, also if a later one fails.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from contrasent.search.checks import distinct_ids, free_ids, refuse_missing, refuse_taken
from contrasent.search.filters import Where, check_where
from contrasent.search.milvus import BATCH, MilvusIndex, row_of, talking
from contrasent.search.milvus_filters import expression, ids_in
from contrasent.types import EncodeFn, Vectors


class MilvusWriter:
    """Change a collection of Milvus; use as a context manager.

    Args:
        folder: holds ``milvus.json``.
        token: for a server that wants one.

    Raises:
        InputError: the folder is no such index, or Milvus does not answer.
    """

    def __init__(self, folder: str | Path, *, token: str = "") -> None:
        self.index = MilvusIndex.open(folder, token=token)
        self.next_id = len(self.index)

    def __enter__(self) -> "MilvusWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def add(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> int:
        """Add rows; an id that is there already is refused. Returns how many were added."""
        if ids is None:
            names, self.next_id = free_ids(
                len(texts), self.next_id, lambda some: bool(self._there(some))
            )
        else:
            names = distinct_ids(ids, len(texts))
            refuse_taken(sorted(self._there(names)))
        self._put(texts, vectors, names, metadata, model)
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
        """Replace the rows of these ids, add the others; returns how many of each."""
        names = distinct_ids(ids, len(texts))
        old = len(self._there(names))
        self._put(texts, vectors, names, metadata, model)
        return old, len(texts) - old

    def delete(self, ids: Sequence[str], *, missing: str = "refuse") -> int:
        """Delete the rows of these ids; returns how many there were.

        Args:
            ids: whose rows go.
            missing: "refuse" or "ignore" ids that are not in the index.
        """
        there = self._there(ids)
        refuse_missing(ids, [name in there for name in ids], missing)
        with talking(self.index.uri):
            for start in range(0, len(ids), BATCH):
                self.index.client.delete(
                    self.index.collection, ids=list(ids[start : start + BATCH])
                )
        return len(there)

    def delete_where(self, where: Where) -> int:
        """Delete the rows whose metadata matches; returns how many they were."""
        condition = expression(check_where(where))
        before = len(self.index)
        with talking(self.index.uri):
            self.index.client.delete(self.index.collection, filter=condition)
        return before - len(self.index)

    def compact(self) -> None:
        """Ask Milvus to give the room of deleted rows back, which it also does by itself."""
        with talking(self.index.uri):
            self.index.client.flush(self.index.collection)
            self.index.client.compact(self.index.collection)

    def _put(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        names: Sequence[str],
        metadata: Sequence[Any] | None,
        model: str | None,
    ) -> None:
        index = self.index
        if not texts:
            return
        array = index.row_vectors(texts, vectors, metadata=metadata, model=model)
        values = metadata if metadata is not None else [None] * len(texts)
        rows = zip(texts, names, values, array, strict=True)
        block = [row_of(text, name, value, vector) for text, name, value, vector in rows]
        with talking(index.uri):
            for start in range(0, len(block), BATCH):
                index.client.upsert(index.collection, block[start : start + BATCH])

    def _there(self, ids: Sequence[str]) -> set[str]:
        """Those of some ids that rows have."""
        found: set[str] = set()
        with talking(self.index.uri):
            for start in range(0, len(ids), BATCH):
                rows = self.index.client.query(
                    self.index.collection,
                    filter=ids_in(ids[start : start + BATCH]),
                    output_fields=["id"],
                    consistency_level="Strong",
                )
                found.update(row["id"] for row in rows)
        return found
