"""Finding rows by id through 64-bit hashes: 16 bytes a row; ids are read where hashes agree."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from contrasent.search.segment import encoded, id_hash

if TYPE_CHECKING:
    from contrasent.search.index import Index


class IdTable:
    """The ids of an index's rows, deleted ones aside.

    Args:
        index: the snapshot they are looked up in.
    """

    def __init__(self, index: "Index") -> None:
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
