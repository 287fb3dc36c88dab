"""Indexes that are searchable before all rows are encoded: when, and how the encoding goes on.

Blocks of rows are encoded in the same order and grouping as in an index made whole, so that both
are the same in the end; where others write meanwhile, vectors may differ by 1e-6. Rows that queries
are likely to find are encoded first, by themselves, and again with their block.
"""

import random
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np

from contrasent import progress
from contrasent.model.base import TaskEncoder
from contrasent.model.runtime import in_bfloat16
from contrasent.model.static import StaticModel
from contrasent.search.folder import check_vectors
from contrasent.search.index import BaseIndex, Index
from contrasent.search.opening import AT_ONCE, FirstTier
from contrasent.search.records import IndexRow
from contrasent.search.store import Facts, Row
from contrasent.search.tiers import BASE, EARLY, FIRST
from contrasent.search.writer import Writer
from contrasent.types import EncodeFn, Numbers, Vectors, batched, for_task

LONG = 45.0  # seconds of encoding from which a first tier is worth it
TAUGHT, SHARE, TIMED = 1000, 5, 32
"""Rows that teach the first tier at most, one of so many; and those that time is estimated by."""
FEW_CHARACTERS = 100_000  # too few to take any machine a minute
KEEP_EVERY = 30.0  # seconds between saves of what was encoded
CANDIDATES = 50  # rows of a query that are encoded first
QUICK_FROM = 300_000  # characters from which a faster runtime is worth some seconds of start-up


@dataclass(frozen=True, slots=True)
class Survey:
    """Rows looked at before any is encoded."""

    rows: int
    characters: int  # of all texts
    numbers: Numbers  # (n,) of a random sample, rising
    texts: list[str]  # of the sample

    @classmethod
    def of(cls, rows: Iterable[IndexRow]) -> "Survey":
        """Go through rows once, with memory for the sample."""
        draw, sample, count, characters = random.Random(0), dict[int, tuple[int, str]](), 0, 0
        for text, *_ in rows:
            place = count if count < TAUGHT else draw.randrange(count + 1)
            if place < TAUGHT:
                sample[place] = (count, text)
            count += 1
            characters += len(text)
        most = min(len(sample), max(TIMED, count // SHARE))
        chosen = sorted(draw.sample([*sample.values()], most))
        numbers = np.array([number for number, _ in chosen], np.int64)
        return cls(count, characters, numbers, [text for _, text in chosen])

    def seconds(self, encode: TaskEncoder) -> float:
        """The time that encoding all rows takes, by that of some of them."""
        if self.characters < FEW_CHARACTERS:
            return 0.0
        return pace(encode, self.texts[:: -(-len(self.texts) // TIMED)]) * self.rows

    def first_tier(self, encode: TaskEncoder, source: str) -> FirstTier:
        """A first tier that the sample teaches."""
        return FirstTier(self.numbers, self.texts, partial(StaticModel, encode.encoder), source)


class SecondTier:
    """Encodes what a first tier left, a while at a time, while others use the index."""

    def __init__(self, folder: Path, encode: EncodeFn, *, keep_every: float = KEEP_EVERY) -> None:
        self.folder, self.keep_every = folder, keep_every
        self._encode, self._generation = for_task(encode, "document"), 0
        self._firsts: Numbers = np.empty(0, np.int64)
        self._made: list[tuple[list[Row], Vectors, int]] = []

    def turn(
        self, queries: Sequence[str] = (), vectors: Vectors | None = None, *,
        advance: progress.Advance = lambda n=1, **fields: None,
    ) -> int:  # fmt: skip
        """Encode for a while, first what queries (vectors: (q, d)) may find; the rows left."""
        with closing(Index.open(self.folder)) as index:
            if index.tiers is None:
                return 0
            end, facts = time.monotonic() + self.keep_every, index.facts
            try:
                if vectors is not None:
                    self._candidates(index, queries, vectors)
                self._blocks(index, end, advance)
            finally:  # after Ctrl-C too
                left = self._keep(facts)
        return left

    def _candidates(self, index: Index, queries: Sequence[str], vectors: Vectors) -> None:
        """Encode the rows of the first tier that queries are likely to find."""
        assert index.tiers is not None
        first = np.flatnonzero(index.tiers.kinds == FIRST)
        query_vectors = index.query_vectors(vectors)
        ranked = index.find(list(queries), query_vectors, CANDIDATES, index.ranker)
        rows = np.concatenate([best.rows for best in ranked] or [first[:0]])
        for numbers in batched(np.intersect1d(rows, first).tolist(), AT_ONCE):
            records = index.rows(numbers)
            self._made.append((records, self._encoded([row.text for row in records]), EARLY))

    def _blocks(self, index: Index, end: float, advance: progress.Advance) -> None:
        """Encode the next blocks of rows, until a time."""
        assert index.tiers is not None
        left = index.tiers.of_kind(EARLY, index.alive)
        if index.facts.generation != self._generation:
            self._firsts = first_rows(index)
        now = dict[int, Vectors]()  # vectors of this turn, by row
        cuts = np.flatnonzero(np.diff(left // AT_ONCE)) + 1
        for numbers in np.split(left, cuts) if len(left) else ():
            rows, firsts = index.rows(numbers), self._firsts[numbers]
            start = numbers[0] // AT_ONCE * AT_ONCE
            # A text in an earlier block gives its vector, as in an index made whole.
            known = [
                n < start and (n in now or index.tiers.kinds[n] == BASE) for n in firsts.tolist()
            ]
            texts = [row.text for row, is_known in zip(rows, known, strict=True) if not is_known]
            fresh = iter(self._encoded(texts) if texts else ())
            vectors = [
                (now[n] if n in now else index.vectors[n]) if is_known else next(fresh)
                for n, is_known in zip(firsts.tolist(), known, strict=True)
            ]
            now |= zip(numbers.tolist(), vectors, strict=True)
            self._made.append((rows, np.stack(vectors), BASE))
            advance(len(rows))
            if time.monotonic() >= end:
                return

    def _encoded(self, texts: list[str]) -> Vectors:
        return check_vectors(self._encode(texts), len(texts), None, "cosine")

    def _keep(self, facts: Facts) -> int:
        """Write what was encoded to the index as it is now; returns the rows left."""
        encoded, self._made = self._made, []
        with Writer(self.folder) as writer:
            if writer.tiers is None or writer.facts.identity != facts.identity:
                return 0
            writer.check_model(facts.model)
            for rows, vectors, kind in encoded:
                numbers = np.array([self._place(writer, row) for row in rows], np.int64)
                known = numbers >= 0
                if known.any():
                    writer.put_vectors(numbers[known], vectors[known], kind)
            if writer.tiers is not None:
                writer.finish_tiers()
            left = writer.unfinished
            same = writer.facts.generation == facts.generation
            writer.commit()
            self._generation = writer.facts.generation if same else 0
        return left

    @staticmethod
    def _place(writer: Writer, row: Row) -> int:
        """The current number of a row; -1 if its text is gone, or has its vector already."""
        for number, text in writer.ask("SELECT row, text FROM rows WHERE id = ?", (row.id,)):
            kinds = () if writer.tiers is None else writer.tiers.kinds
            if text == row.text and number < len(kinds) and kinds[number] != BASE:
                return int(number)
        return -1


def announcement(
    folder: Path, index: BaseIndex, seconds: float, needed: float, *, goes_on: bool
) -> str:
    """The line about an index that has its first tier; ``needed``: seconds for the rest."""
    minutes = f"about {needed / 60:.0f} minutes" if needed >= 90 else f"about {needed:.0f} s"
    remaining = f"'contrasent index {folder} --sync' encodes the rest in {minutes}"
    if goes_on:
        remaining = f"encoding goes on for {minutes}, Ctrl-C keeps what is done"
    done = f"{folder}: {len(index):,} rows can be searched after {seconds:.0f} s, by words and a "
    return f"{done}first tier of vectors, which find a little less; {remaining}"


def pace(encode: TaskEncoder, texts: Sequence[str]) -> float:
    """Seconds per text, measured by encoding some."""
    trial = for_task(encode.again(), "document")
    with progress.hidden():
        trial(texts[:1])
        began = time.monotonic()
        trial(texts)
    return (time.monotonic() - began) / len(texts)


def quick(encode: TaskEncoder, characters: int) -> TaskEncoder:
    """The fastest encoder of the same model for so much text."""
    encoder = in_bfloat16(encode.encoder) if characters >= QUICK_FROM else encode.encoder
    return encode if encoder is encode.encoder else TaskEncoder(encoder, batch=encode.batch)


def rest_encoder(index: Index, encode: TaskEncoder) -> TaskEncoder:
    """The encoder that an index is finished with: the one that would have made it whole."""
    ((characters,),) = index.ask("SELECT coalesce(sum(length(text)), 0) FROM rows")
    return quick(encode, characters)


def finish(folder: Path, encode: TaskEncoder, queries: Sequence[str] = ()) -> None:
    """Encode all that is left of an index, the candidates of some queries first."""
    with closing(Index.open(folder)) as index:
        if not (left := index.unfinished) and index.tiers is None:
            return
        vectors = index.query_vectors(queries, encode) if queries else None
        encode = rest_encoder(index, encode)
    second = SecondTier(folder, encode)
    with progress.task("Encoding", left, "texts") as advance:
        while second.turn(queries, vectors, advance=advance):
            vectors = None


def first_rows(index: Index) -> Numbers:
    """(rows,) for each row the first one with the same text."""
    numbers, firsts = index.numbers(), np.arange(index.facts.rows)
    keys = (blake2b(row.text.encode(), digest_size=8).digest() for row in index.every())
    hashes = np.fromiter((int.from_bytes(key, "little") for key in keys), np.uint64, len(numbers))
    _, starts, places = np.unique(hashes, return_index=True, return_inverse=True)
    firsts[numbers] = numbers[starts[places]]
    return firsts
