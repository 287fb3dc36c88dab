"""What every writer of an index takes and refuses, wherever the rows are."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.search.checks import check_metadata, check_vectors, row_ids
from contrasent.search.query import IndexBase
from contrasent.search.segment import Segment
from contrasent.types import EncodeFn, Vectors, for_task


class WriterBase(ABC):
    """Rows added, replaced and deleted by id.

    Attributes:
        index: as it is after the changes so far.
        next_id: the first running number that may be free as an id.
    """

    index: IndexBase
    next_id: int

    def add(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> int:
        """Add rows; an id that is there already is refused.

        ``vectors``: (n, d) vectors, or an ``EncodeFn`` that makes them of the texts.
        """
        if not texts:
            return 0
        names = row_ids(ids, len(texts), self.next_id)
        rows = self._find(names)
        while ids is None and (rows >= 0).any():
            self.next_id += len(texts)
            names = row_ids(None, len(texts), self.next_id)
            rows = self._find(names)
        taken = np.flatnonzero(rows >= 0)
        if len(taken):
            raise OptionError(
                "ids",
                names[taken[0]],
                "is in the index already; update it, or delete it first",
            )
        if ids is None:
            self.next_id += len(texts)
        self._put(self._block(texts, vectors, names, metadata, model), rows[taken])
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
        """Replace the rows of these ids, and add those that are not there yet."""
        if not texts:
            return 0, 0
        names = row_ids(ids, len(texts), 0)
        rows = self._find(names)
        old = rows[rows >= 0]
        self._put(self._block(texts, vectors, names, metadata, model), old)
        return len(old), len(texts) - len(old)

    def delete(self, ids: Sequence[str], *, missing: str = "refuse") -> int:
        """Delete the rows of these ids."""
        if missing not in ("refuse", "ignore"):
            raise OptionError("missing", missing, "is unknown", choices=("refuse", "ignore"))
        rows = self._find(ids)
        if missing == "refuse" and (rows < 0).any():
            raise OptionError("ids", ids[int(np.argmax(rows < 0))], "is not in the index")
        there = {name: row for name, row in zip(ids, rows.tolist(), strict=True) if row >= 0}
        self._drop(list(there), np.array(sorted(there.values()), dtype=np.int64))
        return len(there)

    def _block(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        names: list[str],
        metadata: Sequence[Any] | None,
        model: str | None,
    ) -> Segment:
        """The rows, checked, with vectors scaled as those of the index."""
        if model is not None:
            self.index.check_model(model)
        check_metadata(metadata, len(texts))
        given = for_task(vectors, "document")(texts) if callable(vectors) else vectors
        array = check_vectors(given, len(texts), self.index.dimension, self.index.metric)
        return Segment.pack(array, texts, names, metadata)

    @abstractmethod
    def _find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """(n,) row of each id, -1 where there is none."""

    @abstractmethod
    def _put(self, block: Segment, old: NDArray[np.int64]) -> None:
        """Write rows in place of old ones, which have some of their ids."""

    @abstractmethod
    def _drop(self, ids: list[str], rows: NDArray[np.int64]) -> None:
        """Delete rows, named by their ids and their numbers."""
