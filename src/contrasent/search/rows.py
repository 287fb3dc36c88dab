"""The rows of an index: where they lie, which are left, and copies of some of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.search.filters import Columns, Where, check_where
from contrasent.search.manifest import Manifest
from contrasent.search.query import Hit, IndexBase
from contrasent.search.segment import Segment
from contrasent.search.segment_writer import ROWS_AT_ONCE
from contrasent.types import Vectors


class Rows(IndexBase):
    """Numbered rows in segments, some of them deleted."""

    def __init__(
        self,
        manifest: Manifest,
        segments: Sequence[Segment],
        deleted: NDArray[np.int64] | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(manifest, folder)
        self.segments = tuple(segments)
        self.firsts = np.cumsum([0, *(len(segment) for segment in self.segments)])
        self.deleted = deleted if deleted is not None else np.empty(0, dtype=np.int64)
        self.columns = tuple(Columns(segment) for segment in self.segments)

    def __len__(self) -> int:
        return int(self.firsts[-1]) - len(self.deleted)

    @property
    def generation(self) -> int:
        """Rises with each change of the folder."""
        return self.manifest.generation

    def alive(self) -> NDArray[np.bool_]:
        """(rows,) which rows are not deleted."""
        mask = np.ones(int(self.firsts[-1]), dtype=bool)
        mask[self.deleted] = False
        return mask

    def place(self, row: int) -> tuple[Segment, int]:
        """The segment of a row and its place there."""
        at = int(np.searchsorted(self.firsts, row, side="right")) - 1
        return self.segments[at], row - int(self.firsts[at])

    def hit(self, row: int, score: float) -> Hit:
        """A row as a hit."""
        segment, at = self.place(row)
        return Hit(segment.ids[at], segment.texts[at], score, segment.metadata_of(at))

    def named(self, row: int) -> dict[str, Any]:
        """Id and text of a row."""
        segment, at = self.place(row)
        return {"id": segment.ids[at], "text": segment.texts[at]}

    def row_blocks(self, size: int = ROWS_AT_ONCE) -> Iterator[NDArray[np.int64]]:
        """Numbers of the rows that are not deleted, in blocks that lie in one segment each."""
        alive = self.alive()
        for first, segment in zip(self.firsts, self.segments, strict=False):
            for start in range(int(first), int(first) + len(segment), size):
                stop = min(start + size, int(first) + len(segment))
                rows = start + np.flatnonzero(alive[start:stop])
                if len(rows):
                    yield rows

    def take(self, rows: NDArray[np.int64]) -> Segment:
        """Copy rows that lie in one segment into memory."""
        segment, at = self.place(int(rows[0]))
        return segment.take(rows - (int(rows[0]) - at))

    def vectors_of(self, rows: NDArray[np.int64]) -> Vectors:
        """(n, d) copies of the vectors of rows, in the order named."""
        out = np.empty((len(rows), self.dimension), dtype=np.float32)
        homes = np.searchsorted(self.firsts, rows, side="right") - 1
        for home in np.unique(homes):
            chosen = homes == home
            out[chosen] = self.segments[home].vectors[rows[chosen] - self.firsts[home]]
        return out

    def matching(self, where: Where) -> NDArray[np.bool_]:
        """(rows,) which rows are there and have metadata that a filter matches."""
        check_where(where)
        masks = [columns.mask(where) for columns in self.columns]
        return self.alive() & np.concatenate(masks) if masks else self.alive()
