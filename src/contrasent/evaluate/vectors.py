"""Shared by evaluations: vectors of distinct sentences, and rows with intervals."""

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError, OptionError
from contrasent.metrics import norms
from contrasent.report import Items, ItemsByRow, Report, Row
from contrasent.stats.bootstrap import MIN_ITEMS, RESAMPLES, Keys, Statistics, interval, resampled
from contrasent.types import EncodeFn, Task, Vectors, for_task

SPREAD = 1e-7  # smaller differences of cosines of float32 vectors are rounding
Floats = NDArray[np.float64]
NONE = np.empty(0)  # the draws if nothing was resampled


class Cached:
    """An ``EncodeFn`` that computes each text once, however many evaluations need it."""

    def __init__(self, encode: EncodeFn) -> None:
        self._encode = encode
        self._tasks: dict[Task, Cached] = {}
        self.vectors: Vectors = np.empty((0, 0), dtype=np.float32)  # (n, d), a row a distinct text
        self.row: dict[str, int] = {}
        self._seconds = 0.0

    def __len__(self) -> int:
        return len(self.row) + sum(map(len, self._tasks.values()))

    @property
    def seconds(self) -> float:
        """Time spent in the model."""
        return self._seconds + sum(task.seconds for task in self._tasks.values())

    def for_task(self, task: Task) -> EncodeFn:
        """Itself, or a cache of queries or documents if those have prompts."""
        encode = for_task(self._encode, task)
        if encode is self._encode:
            return self
        return self._tasks.setdefault(task, Cached(encode))

    def __call__(self, sentences: Sequence[str]) -> Vectors:
        """Vectors of all texts; only new ones are encoded."""
        rows = self.rows(sentences)
        return self.vectors[rows]

    def rows(self, sentences: Sequence[str]) -> NDArray[np.int64]:
        """(n,) rows of texts; those that are new are encoded in one call."""
        new = [s for s in dict.fromkeys(sentences) if s not in self.row]
        if new:
            began = perf_counter()
            vectors = check_vectors(self._encode(new), new)
            self._seconds += perf_counter() - began
            self.vectors = np.concatenate([self.vectors, vectors]) if self.row else vectors
            self.row |= {text: len(self.row) + i for i, text in enumerate(new)}
        return np.fromiter((self.row[s] for s in sentences), np.int64, len(sentences))

    @property
    def notes(self) -> dict[str, int]:
        """Notes of a report about the encoding."""
        counts = {"distinct_sentences": len(self.row)}
        zeros = int((norms(self.vectors) == 0).sum())
        return {**counts, "zero_vectors": zeros} if zeros else counts


def encode_distinct(encode: EncodeFn, texts: Iterable[Sequence[str]]) -> Cached:
    """Encode every distinct sentence of several lists, in one call."""
    encoded = Cached(encode)
    encoded.rows([sentence for sentences in texts for sentence in sentences])
    return encoded


def encode_search(
    encode: EncodeFn, queries: Iterable[Sequence[str]], documents: Iterable[Sequence[str]]
) -> tuple[Cached, Cached]:
    """Encode queries and documents, each with their prompt; in one call without prompts."""
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
            "expected one row per sentence"
        )
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise DataError(
            f"the model returned NaN or infinite numbers for {len(bad):,} of {len(sentences):,} "
            f"sentences, the first is {sentences[bad[0]][:60]!r}"
        )
    return array


def check_spread(similarity: NDArray[np.float64], task: str) -> None:
    """Reject cosines (n,) that are all equal: every sentence has the same direction."""
    if similarity.max() - similarity.min() < SPREAD:
        raise DataError(
            f"{task}: all {len(similarity):,} cosines are {similarity[0]:.4f}; all sentences "
            "have the same direction"
        )


class ReportBuilder:
    """The rows of a report, in order, with intervals from bootstrap resamples."""

    def __init__(self, resamples: int = RESAMPLES, seed: int = 0) -> None:
        if seed < 0:
            raise OptionError("seed", seed, "must be 0 or more")
        self.resamples, self.seed = resamples, seed
        self.rows: list[Row] = []
        self.items: ItemsByRow = {}
        self._draws: list[Floats] = []

    def add(
        self,
        task: str,
        split: str,
        metric: str,
        value: float,
        count: int,
        *,
        aggregate: str = "",
        draws: Floats = NONE,
        items: Items | None = None,
    ) -> None:
        """Add a row; without an interval for fewer than 20 items."""
        draws = draws if count >= MIN_ITEMS else NONE
        bounds = interval(draws) if len(draws) else (None, None)
        self.rows.append(Row(task, split, metric, aggregate, float(value), count, *bounds))
        self._draws.append(draws)
        if items is not None:
            self.items[self.rows[-1].key] = items

    def mean(
        self,
        task: str,
        split: str,
        metric: str,
        values: ArrayLike,
        *,
        aggregate: str = "",
        keys: Keys | None = None,
        keyed: bool = True,
        context: str = "",
    ) -> None:
        """Add the mean of values (n,), one per item; reports compare items with keys (n,)."""
        v = np.asarray(values, dtype=np.float64)
        items = Items("mean", keys, v[None], context=context) if keys is not None else None
        means = {"": lambda counts: counts @ v / len(v)}
        draws = self.draws(means, [len(v)], keys if keyed else None)[""]
        value = float(v.mean())
        self.add(task, split, metric, value, len(v), aggregate=aggregate, draws=draws, items=items)

    def draws(
        self, statistics: Statistics, sizes: Sequence[int], keys: Keys | None = None
    ) -> dict[str, Floats]:
        """Statistics over resamples of items; none of fewer than 20 items."""
        number = self.resamples if sum(sizes) >= MIN_ITEMS else 0
        return resampled(statistics, sizes, number, self.seed, keys)

    def average(
        self, task: str, over: Sequence[str], split: str, metric: str, aggregate: str, name: str
    ) -> None:
        """Add the plain mean of rows of several tasks, resampled together."""
        places = {row.key: i for i, row in enumerate(self.rows)}
        chosen = [places[member, split, metric, aggregate] for member in over]
        rows, draws = [self.rows[i] for i in chosen], [self._draws[i] for i in chosen]
        whole = np.mean(draws, axis=0) if all(map(len, draws)) else NONE
        value, count = sum(row.value for row in rows) / len(rows), sum(row.count for row in rows)
        self.add(task, split, metric, value, count, aggregate=name, draws=whole)
        if all(row.key in self.items for row in rows):
            self.items[self.rows[-1].key] = tuple(row.key for row in rows)

    def report(self, notes: dict[str, Any]) -> Report:
        """The report of all rows, with these notes."""
        return Report(tuple(self.rows), notes, self.items)
