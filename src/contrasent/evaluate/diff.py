"""Compares the hits of two models over the same queries and documents.

Intervals are over queries, and over samples of documents by a jackknife. A sample does not show the
density of the whole: the 10 nearest of a tenth are about the 100 nearest of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent import metrics, progress
from contrasent.errors import DataError, OptionError
from contrasent.evaluate.vectors import check_vectors
from contrasent.files import render, short
from contrasent.nearest import nearest
from contrasent.stats.bootstrap import (
    MIN_ITEMS,
    Counts,
    draw_counts,
    interval,
    item_keys,
    resampled,
)
from contrasent.types import EncodeFn, Task, Vectors, for_task

DEPTH = 100
ENCODED_AT_ONCE = 1024
SHOWN = 10
FOUND = 5
SIDES = ("old", "new")
AT = (1, 10, 100)
PERSISTENCE = 0.9  # of rank-biased overlap: the first ten ranks have about 86 % of the weight
PARTS, PARTINGS = 5, 4
"""Groups of documents that are left out in turn, and how often they are drawn anew. Of few groups
the error is right: the jackknife of a rank-based mean is too large where little is left out."""
RESAMPLES = 1000
BIASED = "rank-biased overlap"

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """The hits of one model: (q, k) rows of documents, best first, and their scores."""

    rows: Rows
    scores: NDArray[np.float32]

    def cut(self, depth: int) -> "Ranked":
        """The first ``depth`` of each list."""
        return Ranked(self.rows[:, :depth], self.scores[:, :depth])


def agreement(old: Rows, new: Rows) -> dict[str, Floats]:
    """(q,) values of each query by measure: overlap@1, @10, @100 up to k, and RBO."""
    shared = metrics.shared_by_depth(old, new)
    values = {f"overlap@{k}": shared[:, k - 1] / k for k in AT if k <= shared.shape[1]}
    return {**values, BIASED: metrics.rank_biased_overlap(old, new, PERSISTENCE)}


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean over queries with the ends of its 95 % interval."""

    name: str
    value: float
    low: float
    high: float


def spare(depth: int, sampled: bool) -> int:
    """Ranks beyond ``depth`` that may be needed when a group of documents is left out."""
    return depth // (PARTS - 1) + 20 if sampled else 0


def measured(
    old: Ranked,
    new: Ranked,
    depth: int,
    queries: Sequence[str],
    documents: int,
    whole: int,
    seed: int,
) -> tuple[MeanInterval, ...]:
    """The means of :func:`agreement` over queries, with 95 % intervals."""
    values = agreement(old.cut(depth).rows, new.cut(depth).rows)
    names, table = list(values), np.stack(list(values.values()), axis=1)
    keys = item_keys(queries)
    means = {"": lambda counts: counts @ table / len(table)}
    drawn = resampled(means, [len(table)], RESAMPLES, seed, keys)[""]
    if whole > documents:
        random = np.random.default_rng(seed)
        error = document_error(old, new, depth, documents, random) * (1 - documents / whole) ** 0.5
        drawn = drawn + error * random.normal(size=drawn.shape)
    # Rounded, as counts are float32.
    ends = [np.clip(interval(draws), 0.0, 1.0).round(6).tolist() for draws in drawn.T]
    of_names = zip(names, table.T, ends, strict=True)
    return tuple(MeanInterval(name, float(own.mean()), *end) for name, own, end in of_names)


def document_error(
    old: Ranked, new: Ranked, depth: int, documents: int, random: np.random.Generator
) -> Floats:
    """Standard error of each mean over samples of documents: a delete-a-group jackknife."""
    variances = []
    for _ in range(PARTINGS):
        part, means = random.integers(0, PARTS, documents), []
        for left_out in range(PARTS):
            rows = []
            for ranked in (old, new):
                gone = part[ranked.rows] == left_out
                order = np.argsort(gone, axis=1, kind="stable")[:, :depth]
                rows.append(np.take_along_axis(ranked.rows, order, axis=1))
            means.append([float(values.mean()) for values in agreement(*rows).values()])
        variances.append(np.var(means, axis=0) * (PARTS - 1))
    errors: Floats = np.sqrt(np.mean(variances, axis=0))
    return errors


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document in a list: its text, its score, and its rank in the other list, if any."""

    text: str
    score: float
    other: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """A query whose list changed: by how much, and the first hits of each model."""

    query: str
    overlap: float
    rank_biased_overlap: float
    old: tuple[ListedDocument, ...]
    new: tuple[ListedDocument, ...]


@dataclass(frozen=True, slots=True)
class Shift:
    """The new place of a threshold."""

    old: float
    # the new model's, with an equal share of hits above it; None if no hit is above
    new: float | None
    low: float | None  # lower end of its 95 % interval
    high: float | None
    at: float  # the share


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences between the results of two models."""

    queries: int
    documents: int
    of: int  # the total number; more than `documents` if those are a sample
    own: bool  # whether documents served as queries, each without itself
    # overlap@1, @10, @100 (as deep as there are documents) and rank-biased overlap
    measures: tuple[MeanInterval, ...]
    changed: tuple[Change, ...]  # the queries that changed most, in descending order
    threshold: Shift | None

    def __getitem__(self, name: str) -> MeanInterval:
        return next(measure for measure in self.measures if measure.name == name)

    @property
    def change(self) -> dict[str, float]:
        """The share of the ten nearest documents that changed, with its 95 % interval."""
        same = self["overlap@10"]
        return {"value": 1 - same.value, "low": 1 - same.high, "high": 1 - same.low}

    def to_json(self) -> dict[str, Any]:
        """A dictionary that ``json.dump`` writes."""
        return asdict(self)

    def lines(self, about: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Lines for a terminal; ``about`` has the name, size and runtime of "old" and "new"."""
        change = self.change
        interval = f"[{100 * change['low']:.1f} %, {100 * change['high']:.1f} %]"
        lines = [f"{100 * change['value']:.1f} % of the ten nearest changed {interval}"]
        for side in SIDES:
            model = about[side]
            parts = [f"{model['dimension']} dimensions"]
            if model["parameters"] is not None:
                parts.append(f"{model['parameters'] / 1e6:.1f} million parameters")
            if model["bytes"] is not None:
                parts.append(f"{model['bytes'] / 1e6:.1f} MB")
            lines.append(f"{side.upper()}: {model['name']}, {', '.join(parts)}, {model['runtime']}")
        kind = "documents as queries (each excluding itself)" if self.own else "queries"
        lines.append(f"{self.queries:,} {kind} among {self.documents:,} documents")
        if self.of > self.documents:
            lines[-1] += (
                f", a sample of {self.of:,}. Ten nearest in the sample correspond to about "
                f"{10 * self.of // self.documents:,} among all documents"
            )
        lines.append(f"{'':<20} {'value':>7}  [95 % interval]")
        for row in self.measures:
            lines.append(f"{row.name:<20} {row.value:7.3f}  [{row.low:.3f}, {row.high:.3f}]")
        if (shift := self.threshold) is not None:
            new = " cannot be converted: hits of OLD do not reach it"
            if shift.new is not None:
                new = f" -> {shift.new:.4f} [{shift.low:.4f}, {shift.high:.4f}]: the same "
                new += f"share of hits above it ({100 * shift.at:.1f} %)"
            lines.append(f"threshold {shift.old:.4f}{new}")
        for query in self.changed[:3]:
            lines.append(f"{query.overlap:.1f} of ten in common: {short(query.query, 70)}")
            for side in SIDES:
                first: ListedDocument = getattr(query, side)[0]
                lines.append(f"    {side.upper()} {first.score:.3f} {short(first.text, 70)}")
        return lines


def diff_models(
    old: EncodeFn,
    new: EncodeFn,
    documents: Sequence[str],
    queries: Sequence[str] | None = None,
    *,
    sample: int = 1000,
    of: int | None = None,
    old_vectors: Vectors | None = None,
    metric: str = "cosine",
    threshold: float | None = None,
    seed: int = 0,
) -> Diff:
    """Compare the search results of two models.

    Args:
        old: the current model, a function from texts to vectors.
        new: the model that is to replace it.
        documents: texts to search. Repeated texts are left out, as their order is arbitrary.
        queries: texts to search for; if None, documents, each without itself.
        sample: most queries; from more, a random sample is drawn.
        of: number of all documents, if these are a random sample.
        old_vectors: (n, d) vectors of the documents by ``old``, if they are known.
        metric: "cosine" or "dot".
        threshold: a threshold for scores of ``old``, to convert for ``new``.
        seed: random seed.

    Raises:
        OptionError: ``sample`` is below 20.
        DataError: fewer than 20 distinct queries or documents, or vectors that are not finite.
    """
    if sample < MIN_ITEMS:
        raise OptionError("--sample", sample, f"must be at least {MIN_ITEMS}, for an interval")
    random = np.random.default_rng(seed)
    first: dict[str, int] = {}
    for i, text in enumerate(documents):
        first.setdefault(text, i)
    texts, distinct = list(first), np.fromiter(first.values(), np.int64)
    pool = texts if queries is None else list(dict.fromkeys(queries))
    if len(texts) < MIN_ITEMS:
        raise DataError(f"{len(texts)} different documents are too few; {MIN_ITEMS} are needed")
    if len(pool) < MIN_ITEMS:
        problem = f"{len(pool)} different queries are too few for an interval"
        raise DataError(f"{problem}; {MIN_ITEMS} are needed")
    chosen = np.sort(random.choice(len(pool), min(sample, len(pool)), replace=False))
    wanted = [pool[row] for row in chosen]
    itself = chosen if queries is None else None
    whole = max(len(texts), of) if of is not None and of > len(documents) else len(texts)
    encoders = {"old": old, "new": new}
    deep = dict[str, Ranked]()
    depth = min(DEPTH, len(texts) - (queries is None))
    most = min(depth + spare(depth, whole > len(texts)), len(texts) - (queries is None))
    for name, encode in encoders.items():
        known = old_vectors if name == "old" else None
        vectors = encoded(encode, texts, "document") if known is None else known[distinct]
        ask = vectors[chosen] if queries is None else encoded(encode, wanted, "query")
        if metric == "cosine":
            vectors, ask = (metrics.normalize(v).astype(np.float32) for v in (vectors, ask))
        deep[name] = Ranked(*nearest(ask, vectors, most, own=itself))
    a, b = (ranked.cut(depth) for ranked in deep.values())
    values = agreement(a.rows, b.rows)
    return Diff(
        queries=len(wanted),
        documents=len(texts),
        of=whole,
        own=queries is None,
        measures=measured(deep["old"], deep["new"], depth, wanted, len(texts), whole, seed),
        changed=_changed(wanted, texts, a, b, values),
        threshold=None if threshold is None else shift(threshold, a.scores, b.scores, seed=seed),
    )


def _changed(
    queries: Sequence[str],
    documents: Sequence[str],
    old: Ranked,
    new: Ranked,
    values: Mapping[str, Floats],
) -> tuple[Change, ...]:
    def found(query: int, one: Ranked, other: Ranked) -> tuple[ListedDocument, ...]:
        ranks = {int(row): i + 1 for i, row in enumerate(other.rows[query])}
        return tuple(
            ListedDocument(documents[row], round(float(score), 6), ranks.get(int(row)))
            for row, score in zip(one.rows[query, :FOUND], one.scores[query, :FOUND], strict=True)
        )

    overlap, biased = values["overlap@10"], values[BIASED]
    least = np.argsort(biased, kind="stable")[:SHOWN].tolist()
    most = [q for q in least if (old.rows[q] != new.rows[q]).any()]
    return tuple(
        Change(
            queries[q], float(overlap[q]), float(biased[q]), found(q, old, new), found(q, new, old)
        )
        for q in most
    )


def shift(
    threshold: float, old: ArrayLike, new: ArrayLike, *, resamples: int = 300, seed: int = 0
) -> Shift:
    """The threshold above which as many hits are as above the old one; queries are resampled.

    ``old``: (q, k) scores of what the old model finds. ``new``: (q, k) those of the new model.
    """
    a, b = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
    above = (a >= threshold).sum(axis=1)
    share = float(above.mean() / a.shape[1])
    if share == 0:
        return Shift(threshold, None, None, None, 0.0)
    flat = b.ravel()
    order = np.argsort(-flat, kind="stable")
    query, falling = order // b.shape[1], flat[order]

    def place(counts: Counts | Floats) -> float:
        i = int(np.searchsorted(np.cumsum(counts[query]), counts @ above))
        return float(falling[min(i, len(falling) - 1)])

    value = place(np.ones(len(a)))
    blocks = draw_counts([len(a)], resamples, seed)
    low, high = interval([place(c.astype(np.float64)) for block in blocks for c in block])
    return Shift(threshold, value, low, high, share)


def encoded(encode: EncodeFn, texts: Sequence[str], task: Task) -> Vectors:
    """(n, d) checked vectors of texts, with progress."""
    read, blocks = for_task(encode, task), []
    with progress.task(f"encode {task}s", len(texts), "texts") as advance:
        for start in range(0, len(texts), ENCODED_AT_ONCE):
            block = texts[start : start + ENCODED_AT_ONCE]
            blocks.append(check_vectors(read(block), block))
            advance(len(block))
    return np.concatenate(blocks)


def diff_page(found: Diff, about: Mapping[str, Mapping[str, Any]], on: str) -> str:
    """A diff as one self-contained page.

    ``about``: of "old" and "new" the name, runtime, dimension, parameters and bytes.
    """
    given = {side: str(about[side]["name"]) for side in SIDES}
    names = {side: Path(name).name or name for side, name in given.items()}
    title = f"{names['old']} and {names['new']}"
    facts = {"found": found, "on": on, "names": names, "about": about}
    return render("diff.html", window=f" diff: {title}", heading=title, **facts)
