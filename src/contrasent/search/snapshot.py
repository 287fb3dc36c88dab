"""A snapshot of an index: its rows, its words, and what it is."""

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import ModelError
from contrasent.search.binary import BinaryCodes
from contrasent.search.filters import Where, canonical, check_where, sql_condition
from contrasent.search.ranking import Ranker
from contrasent.search.store import Facts, Row, Store
from contrasent.search.words import Analyzer, Bm25
from contrasent.types import Vectors


class Snapshot:
    """The rows of an index as they were at a moment; reading it is safe from many threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lock = threading.Lock()
        self._masks: dict[str, NDArray[np.bool_]] = {}

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Map the index in a folder.

        Raises:
            InputError: the folder is no index, or a file of it is missing or damaged.
        """
        return cls(Store.open(Path(folder)))

    def refreshed(self) -> Self:
        """The newest snapshot of the folder: this one if nothing was written since."""
        if self.folder is None:
            return self
        now = Store.state(self.folder)
        if (now.identity, now.generation) == (self.facts.identity, self.generation):
            return self
        return self.open(self.folder)

    def close(self) -> None:
        """Let go of the folder."""
        self.store.close()

    def __len__(self) -> int:
        return self.facts.rows - self.facts.dead

    @property
    def facts(self) -> Facts:
        """Model, metric, ranker and the like."""
        return self.store.facts

    @property
    def folder(self) -> Path | None:
        """Where it lies; None in memory."""
        return self.store.folder

    @property
    def model(self) -> str:
        """Identity of the model that made the vectors."""
        return self.facts.model

    @property
    def metric(self) -> str:
        """The kind of similarity: "cosine", or "dot" for the inner product."""
        return self.facts.metric

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.facts.dimension

    @property
    def generation(self) -> int:
        """Rises with each change of the folder."""
        return self.facts.generation

    @cached_property
    def ranker(self) -> Ranker:
        """How a query finds rows, unless a search says otherwise."""
        return Ranker.from_json(self.facts.ranker)

    @property
    def vectors(self) -> Vectors:
        """(rows, d), deleted rows included."""
        return self.store.vectors

    @cached_property
    def alive(self) -> NDArray[np.bool_]:
        """(rows,) which rows are not deleted."""
        with self.lock:
            return self.store.alive()

    @cached_property
    def bm25(self) -> Bm25:
        """BM25 over the texts."""
        alive = self.alive if self.facts.dead else None
        with self.lock:
            lengths = self.store.lengths()
        return Bm25(Analyzer(self.facts.language or "none"), self._posting, lengths, alive)

    def _posting(self, term: str) -> Any:
        with self.lock:
            return self.store.posting(term)

    @cached_property
    def codes(self) -> BinaryCodes | None:
        """Binary codes of the first rows, where they were worth making."""
        return BinaryCodes.open(self.folder, self.facts) if self.facts.codes else None

    def rows(self, numbers: Sequence[int] | NDArray[np.int64]) -> list[Row]:
        """Rows by their numbers, verified."""
        with self.lock:
            return self.store.read([int(number) for number in numbers])

    def every(self) -> Iterator[Row]:
        """All rows in order; their vectors are not verified."""
        last = -1
        while True:
            with self.lock:
                found = self.store.after(last)
            if not found:
                return
            yield from found
            last = found[-1].row

    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the rows that are not deleted."""
        return np.flatnonzero(self.alive)

    def row(self, number: int) -> Row:
        """One row, verified."""
        return self.rows([number])[0]

    def matching(self, where: Where) -> NDArray[np.bool_]:
        """(rows,) which rows are there and have metadata that a filter matches."""
        key = canonical(check_where(where))
        if key not in self._masks:
            with self.lock:
                mask = self.store.matching(*sql_condition(where))
            self._masks = {**dict(list(self._masks.items())[-15:]), key: mask}
        return self._masks[key]

    def check_model(self, model: str, option: str = "model") -> None:
        """Reject another model than the one the vectors came from."""
        if model != self.model:
            where = self.folder if self.folder is not None else "the index"
            raise ModelError(
                f"{where} holds vectors of model {self.model!r} and {option} is {model!r}: their "
                "vectors cannot be compared; use the first, or build the index again"
            )
