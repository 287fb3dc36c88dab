"""From sentences to checked vectors: each distinct sentence is encoded once, in one call."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError
from contrasent.metrics import norms
from contrasent.types import EncodeFn, Task, Vectors, for_task


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """The vectors of a set of sentences."""

    vectors: Vectors  # (n, d), one row a distinct sentence
    row: dict[str, int]
    zeros: int  # how many distinct sentences have a zero vector

    def rows(self, sentences: Sequence[str]) -> NDArray[np.int64]:
        """(n,) the row of each sentence."""
        return np.fromiter((self.row[s] for s in sentences), np.int64, len(sentences))

    def __call__(self, sentences: Sequence[str]) -> Vectors:
        """The vectors of sentences that were encoded: an ``EncodeFn`` without a model."""
        return self.vectors[self.rows(sentences)]

    @property
    def notes(self) -> dict[str, int]:
        """Notes of a report about the encoding."""
        counts = {"distinct_sentences": len(self.row), "zero_vectors": self.zeros}
        return counts if self.zeros else {"distinct_sentences": len(self.row)}


class Cached:
    """An ``EncodeFn`` that computes each text once, however many evaluations ask for it."""

    # `requested`: how many texts were requested, repeats included.

    def __init__(self, encode: EncodeFn) -> None:
        self._encode = encode
        self._tasks: dict[Task, Cached] = {}
        self._row: dict[str, int] = {}
        self._blocks: list[Vectors] = []
        self.requested = 0

    def __len__(self) -> int:
        return len(self._row)

    def for_task(self, task: Task) -> EncodeFn:
        """Itself, or a cache of queries or documents where those have prompts."""
        own = for_task(self._encode, task)
        if own is self._encode:
            return self
        return self._tasks.setdefault(task, Cached(own))

    def __call__(self, sentences: Sequence[str]) -> Vectors:
        """Vectors of all, of which only new texts are encoded."""
        self.requested += len(sentences)
        new = [s for s in dict.fromkeys(sentences) if s not in self._row]
        if new:
            vectors = check_vectors(self._encode(new), new)
            self._row.update(
                zip(new, range(len(self._row), len(self._row) + len(new)), strict=True)
            )
            self._blocks.append(vectors)
        if len(self._blocks) != 1:
            width = self._blocks[0].shape[1] if self._blocks else 0
            empty = np.empty((0, width), dtype=np.float32)
            self._blocks = [np.concatenate([empty, *self._blocks])]
        rows = np.fromiter((self._row[s] for s in sentences), np.int64, len(sentences))
        return self._blocks[0][rows]


def encode_distinct(encode: EncodeFn, texts: Iterable[Sequence[str]]) -> Encoded:
    """Encode every distinct sentence of several lists, in one call."""
    row: dict[str, int] = {}
    for sentences in texts:
        for sentence in sentences:
            row.setdefault(sentence, len(row))
    vectors = check_vectors(encode(list(row)), list(row))
    return Encoded(vectors, row, int((norms(vectors) == 0).sum()))


def encode_search(
    encode: EncodeFn, queries: Iterable[Sequence[str]], documents: Iterable[Sequence[str]]
) -> tuple[Encoded, Encoded]:
    """Encode queries and documents, each with their prompt; in one call if there is none."""
    queried, read = for_task(encode, "query"), for_task(encode, "document")
    if queried is read:
        both = encode_distinct(queried, [*queries, *documents])
        return both, both
    return encode_distinct(queried, queries), encode_distinct(read, documents)


def check_vectors(vectors: Vectors, sentences: Sequence[str]) -> Vectors:
    """The vectors as (n, d) float32, validated: no wrong shape, no NaN, no infinity."""
    array = np.asarray(vectors, dtype=np.float32)
    if array.ndim != 2 or len(array) != len(sentences):
        raise DataError(
            f"the model returned an array of shape {array.shape} for {len(sentences):,} sentences; "
            "expected one row a sentence"
        )
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise DataError(
            f"the model gave NaN or infinite numbers for {len(bad):,} of {len(sentences):,} "
            f"sentences, the first of them {sentences[bad[0]][:60]!r}; nothing can be measured"
        )
    return array


SPREAD = 1e-7  # differences of cosines of float32 vectors below this are rounding


def check_spread(similarity: NDArray[np.float64], task: str) -> None:
    """Reject cosines (n,) that are all equal: every sentence has the same direction."""
    if similarity.max() - similarity.min() < SPREAD:
        raise DataError(
            f"{task}: all {len(similarity):,} cosines are {similarity[0]:.4f}; the model gives "
            "every sentence the same direction"
        )
