"""Writing a stream of rows as one segment, encoded batch by batch."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import OptionError, UserError
from contrasent.search.checks import checked
from contrasent.search.manifest import Part
from contrasent.search.segment import Segment, open_array, open_strings
from contrasent.search.segment_writer import write_segment
from contrasent.types import EncodeFn

ROWS_AT_ONCE = 4096

Row = tuple[str, str | None, Any]
"""A text, its id (None: the number of the row), its metadata (None: none)."""


def write_stream(
    place: Path, encode: EncodeFn, rows: Iterable[Row], *, metric: str, batch: int
) -> tuple[Part, int]:
    """Encode rows and write them into a new folder.

    Returns:
        The segment's description and the dimension of its vectors.

    Raises:
        UserError: there are no rows.
        OptionError: an id is there twice.
    """
    blocks = encoded_blocks(encode, rows, metric, batch)
    first = next(blocks, None)
    if first is None:
        raise UserError("there are no texts to index")
    dimension = int(first.vectors.shape[1])
    with progress.task("index", unit="texts") as advance:
        part = write_segment(place, dimension, chain([first], blocks), advance)
    refuse_equal_hashes(open_array(place / "hashes.npy", "<u8", (part.rows,)), place)
    return part, dimension


def encoded_blocks(
    encode: EncodeFn, rows: Iterable[Row], metric: str, batch: int
) -> Iterator[Segment]:
    """Rows with their vectors, a batch at a time; those without an id have their number."""
    stream, first, dimension = iter(rows), 0, None
    while block := list(islice(stream, batch)):
        texts = [text for text, _, _ in block]
        vectors = checked(encode(texts), len(texts), dimension, metric)
        dimension = int(vectors.shape[1])
        names = [str(first + at) if name is None else name for at, (_, name, _) in enumerate(block)]
        yield Segment.pack(vectors, texts, names, [value for _, _, value in block])
        first += len(block)


def refuse_equal_hashes(hashes: NDArray[np.uint64], place: Path) -> None:
    """Refuse a segment in which an id is there twice; ids are read only where hashes agree."""
    order = np.argsort(hashes, kind="stable")
    twins = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    if not len(twins):
        return
    ids = open_strings(place, "ids", len(hashes))
    for twin in twins:
        one, two = int(order[twin]), int(order[twin + 1])
        if ids.raw(one) == ids.raw(two):
            raise OptionError("ids", ids[one], f"is there twice, in rows {one} and {two}")
