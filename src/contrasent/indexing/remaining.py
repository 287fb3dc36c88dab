"""Indexes that BM25 searches before all rows are encoded: when, and how encoding resumes.

Blocks of rows are encoded in the same order and grouping as in an index made whole, so that both
are the same in the end but for rounding.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import numpy as np

from contrasent import progress
from contrasent.indexing.models import sampled
from contrasent.model.base import TaskEncoder
from contrasent.model.runtime import in_bfloat16
from contrasent.search.folder import check_vectors
from contrasent.search.index import Index
from contrasent.search.opening import BATCH_SIZE
from contrasent.search.records import IndexRow
from contrasent.search.store import check_encoder
from contrasent.search.writer import Writer
from contrasent.types import EncodeFn, Numbers, Vectors, for_task

LONG = 45.0  # seconds of encoding from which an index appears before it is encoded
TIMED = 32  # rows that time is estimated by
FEW_CHARACTERS = 100_000  # too few to take any machine a minute
KEEP_EVERY = 30.0  # seconds between saves of what was encoded
QUICK_FROM = 300_000  # characters from which a faster runtime is worth some seconds of start-up


def estimate(rows: Iterable[IndexRow], encode: TaskEncoder) -> tuple[TaskEncoder, float]:
    """The fastest encoder for some rows, which are gone through once, and the seconds it needs."""
    count = characters = 0

    def texts() -> Iterator[str]:
        nonlocal count, characters
        for text, *_ in rows:
            count, characters = count + 1, characters + len(text)
            yield text

    sample = sampled(texts(), TIMED)
    encode = quick(encode, characters)
    return encode, 0.0 if characters < FEW_CHARACTERS else pace(encode, sample) * count


def pace(encode: TaskEncoder, texts: Sequence[str]) -> float:
    """Seconds per text, measured by encoding some."""
    trial = for_task(encode.again(), "document")
    with progress.shown(False):
        trial(texts[:1])
        began = time.monotonic()
        trial(texts)
    return (time.monotonic() - began) / len(texts)


def quick(encode: TaskEncoder, characters: int) -> TaskEncoder:
    """The fastest encoder of the same model for so much text."""
    encoder = in_bfloat16(encode.encoder) if characters >= QUICK_FROM else encode.encoder
    return (
        encode if encoder is encode.encoder else TaskEncoder(encoder, batch_size=encode.batch_size)
    )


def rest_encoder(index: Index, encode: TaskEncoder) -> TaskEncoder:
    """The encoder that an index is finished with: the one that would have made it whole."""
    ((characters,),) = index.store.query("SELECT coalesce(sum(length(text)), 0) FROM rows")
    return quick(encode, characters)


class RemainingRows:
    """Encodes the rows of an index that have no vectors, a while at a time; others may read it."""

    def __init__(self, folder: Path, encode: EncodeFn) -> None:
        self.folder = folder
        self._given, self._encode = encode, for_task(encode, "document")
        self._firsts: Numbers = np.empty(0, np.int64)
        self._state: tuple[str, int] | None = None  # of the index that these are of

    def turn(self, advance: progress.Advance = lambda n=1, **fields: None) -> int:
        """Encode for a while and keep it; returns the rows left."""
        end, blocks = time.monotonic() + KEEP_EVERY, list[Vectors]()
        with closing(Index.open(self.folder)) as index:
            check_encoder(index.facts, self.folder, self._given)  # it may be another index now
            try:
                for vectors in self._blocks(index) if index.unfinished else ():
                    blocks.append(vectors)
                    advance(len(vectors))
                    if time.monotonic() >= end:
                        break
            finally:  # after Ctrl-C too
                index.close()  # a reader would keep the log of the change
                with Writer(self.folder) as writer:
                    was, now = index.facts, writer.facts
                    same = (was.identity, was.model) == (now.identity, now.model)
                    # What was encoded is kept, unless the index is another one now.
                    if blocks and same and index.store.encoded == writer.store.encoded:
                        writer.put_vectors(np.concatenate(blocks))
                    left = writer.store.unfinished
        return left

    def _blocks(self, index: Index) -> Iterator[Vectors]:
        """The vectors of the next rows, a block of rows at a time; 0 for deleted rows."""
        state = index.facts.identity, index.facts.dead
        if state != self._state:
            self._state, self._firsts = state, first_rows(index)
        alive, begun = index.alive, index.store.encoded
        made = dict[int, Vectors]()  # by row
        for start in range(begun, index.facts.rows, BATCH_SIZE):
            stop = min(start + BATCH_SIZE, index.facts.rows)
            rows = index.rows(start + np.flatnonzero(alive[start:stop]))
            # A text in an earlier block gives its vector, as in an index made whole.
            fresh = [row for row in rows if self._firsts[row.row] >= start]
            if fresh:
                vectors = self._encode([row.text for row in fresh])
                vectors = check_vectors(vectors, len(fresh), index.dimension, index.metric)
                made |= {row.row: v for row, v in zip(fresh, vectors, strict=True)}
            for row in rows:
                first = int(self._firsts[row.row])
                if first < start:
                    made[row.row] = index.vectors[first] if first < begun else made[first]
            block = np.zeros((stop - start, index.dimension), np.float32)
            for row in rows:
                block[row.row - start] = made[row.row]
            yield block


def finish(folder: Path, encode: TaskEncoder) -> None:
    """Encode all that is left of an index."""
    with closing(Index.open(folder)) as index:
        if not (left := index.unfinished):
            return
        encode = rest_encoder(index, encode)
    remaining = RemainingRows(folder, encode)
    with progress.task("Encoding", left, "texts") as advance:
        while remaining.turn(advance):
            pass


def first_rows(index: Index) -> Numbers:
    """(rows,) for each row the first one with the same text."""
    numbers, firsts = index.numbers(), np.arange(index.facts.rows)
    keys = (blake2b(row.text.encode(), digest_size=8).digest() for row in index.every())
    hashes = np.fromiter((int.from_bytes(key, "little") for key in keys), np.uint64, len(numbers))
    _, starts, places = np.unique(hashes, return_index=True, return_inverse=True)
    firsts[numbers] = numbers[starts[places]]
    return firsts
