"""The rows of an index that is searchable before all of them are encoded.

First every row has a static vector (:mod:`contrasent.model.static`); then, some at a time, rows get
the vector of the base. These lie in a file of their own, in the order in which they were made, so
that a reader's snapshot stays as it is.

Cosines of the two kinds have different scales. Some rows keep both vectors: for each query, the
mean and deviation of their cosines of either kind bring those of the first tier to the scale of the
base. Z-scores over all rows are then z-scores for each kind of row, whichever rows were encoded
first.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.search.folder import checksum
from contrasent.search.learned import Ask
from contrasent.search.ranking import Floats, Spread
from contrasent.types import Mask, Numbers, Vectors

TABLE = """CREATE TABLE IF NOT EXISTS tiers
    (name TEXT PRIMARY KEY, data BLOB NOT NULL, sum INTEGER NOT NULL)"""
FIRST, EARLY, BASE = 0, 1, 2
"""Kinds of rows: of the first tier; encoded out of turn, for a query; and as they will stay."""
_TYPES = {"kinds": "<u1", "placed": "<i8", "static": "<f4", "base": "<f4"}


@dataclass(frozen=True, slots=False, eq=False)
class Tiers:
    """Kinds of the first rows of an index; later ones are the base's."""

    kinds: NDArray[np.uint8]  # (n,)
    placed: Numbers  # (m,) rows of the vectors in the file of those made since
    static: Vectors  # (s, d) of some rows, as the first tier had them
    base: Vectors  # (s, d) of the same rows

    def of_kind(self, kind: int, alive: Mask) -> Numbers:
        """Live rows of this kind or a lower one."""
        return np.flatnonzero((self.kinds <= kind) & alive[: len(self.kinds)])

    @cached_property
    def _first(self) -> Numbers:
        return np.flatnonzero(self.kinds == FIRST)

    def aligned(self, cosines: Floats, query: Vectors) -> Floats:
        """(rows,) cosines of a query (d,), those of the first tier on the scale of the base."""
        before, after = Spread.of(self.static @ query), Spread.of(self.base @ query)
        if after.deviation > 0.0:
            scaled = before.scaled(cosines[self._first])
            cosines = cosines.copy()
            cosines[self._first] = np.float32(after.mean) + np.float32(after.deviation) * scaled
        return cosines

    def misfit(self, rows: int, dimension: int) -> str:
        """A part whose shape or numbers do not fit an index of this size, or ""."""
        placed, shape = self.placed, (len(self.static), dimension)
        fits = {
            "kinds": len(self.kinds) <= rows and self.kinds.max(initial=0) <= BASE,
            "rows": -1 < placed.min(initial=0) <= placed.max(initial=0) < max(1, rows),
            "sample": self.static.shape == self.base.shape == shape
            and bool(np.isfinite(self.static).all() and np.isfinite(self.base).all()),
        }
        return next((name for name, fit in fits.items() if not fit), "")


def read_tiers(ask: Ask, dimension: int) -> Tiers | None:
    """The kinds of rows that a database keeps; None if they are damaged."""
    arrays = dict[str, NDArray[Any]]()
    try:
        for name, data, sum_ in ask("SELECT name, data, sum FROM tiers"):
            if checksum(name, data) != sum_:
                return None
            arrays[name] = np.frombuffer(data, _TYPES[name])
        for name in ("static", "base"):
            arrays[name] = arrays[name].reshape(-1, dimension)
        return Tiers(**arrays)
    except (LookupError, ValueError, TypeError):
        return None


def write_tiers(ask: Ask, tiers: Tiers, before: Tiers | None) -> None:
    """Keep what has changed of the kinds of rows, in the transaction of a database."""
    ask(TABLE)
    for name in (field.name for field in fields(Tiers)):
        array = getattr(tiers, name)
        if before is None or getattr(before, name) is not array:
            data = np.ascontiguousarray(array, _TYPES[name]).tobytes()
            ask("REPLACE INTO tiers VALUES (?, ?, ?)", (name, data, checksum(name, data)))
