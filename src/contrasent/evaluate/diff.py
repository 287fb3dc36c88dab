"""Compares the hits of two models over the same queries and documents.

Intervals are over queries. A sample of documents does not show the density of the whole: the 10
nearest of a tenth are about the 100 nearest of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent import metrics
from contrasent.errors import DataError, OptionError, check_choice
from contrasent.evaluate.vectors import check_vectors
from contrasent.files import render, short
from contrasent.nearest import nearest
from contrasent.stats.bootstrap import (
    MIN_ITEMS,
    RESAMPLES,
    Counts,
    draw_counts,
    interval,
    item_keys,
    mean_draws,
)
from contrasent.types import EncodeFn, Vectors, for_task

DEPTH = 100
SHOWN = 10
FOUND = 5
SIDES = ("old", "new")
AT = (1, 10, 100)
PERSISTENCE = 0.9  # of rank-biased overlap: the first ten ranks have about 86 % of the weight
BIASED = "rank-biased overlap"

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class Ranked(NamedTuple):
    """The hits of one model: (q, k) rows of documents, best first, and their scores."""

    rows: Rows
    scores: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean over queries with the ends of its 95 % interval."""

    name: str
    value: float
    low: float
    high: float


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
        new: the model that would replace it.
        documents: texts to search. Repeated texts are left out, as their order is arbitrary.
        queries: texts to search for; if None, documents, each without itself.
        sample: most queries; from more, a random sample is drawn.
        of: number of all documents, if these are a random sample.
        old_vectors: (n, d) vectors of the documents by ``old``, if they are known.
        metric: "cosine" or "dot".
        threshold: a threshold for scores of ``old``, to convert for ``new``.
        seed: random seed.

    Raises:
        OptionError: ``sample`` is below 20, ``seed`` below 0, or ``metric`` unknown.
        DataError: fewer than 20 distinct queries or documents, or vectors that are not finite.
    """
    if sample < MIN_ITEMS:
        raise OptionError("--sample", sample, f"must be at least {MIN_ITEMS}, for an interval")
    if seed < 0:
        raise OptionError("--seed", seed, "must be 0 or more")
    check_choice("metric", metric, ("cosine", "dot"))
    first: dict[str, int] = {}
    for row, text in enumerate(documents):
        first.setdefault(text, row)
    texts, own = list(first), queries is None
    pool = texts if queries is None else list(dict.fromkeys(queries))
    if len(texts) < MIN_ITEMS:
        raise DataError(f"{len(texts)} different documents are too few; {MIN_ITEMS} are needed")
    if len(pool) < MIN_ITEMS:
        problem = f"{len(pool)} different queries are too few for an interval"
        raise DataError(f"{problem}; {MIN_ITEMS} are needed")
    random = np.random.default_rng(seed)
    chosen = np.sort(random.choice(len(pool), min(sample, len(pool)), replace=False))
    wanted = [pool[row] for row in chosen]
    if old_vectors is not None:
        old_vectors = old_vectors[list(first.values())]
    depth = min(DEPTH, len(texts) - own)
    ranked = []
    for encode, known in ((old, old_vectors), (new, None)):
        read, ask = for_task(encode, "document"), for_task(encode, "query")
        vectors = check_vectors(read(texts), texts) if known is None else known
        of_queries = vectors[chosen] if own else check_vectors(ask(wanted), wanted)
        if metric == "cosine":
            vectors, of_queries = (
                metrics.normalize(v).astype(np.float32) for v in (vectors, of_queries)
            )
        hits = nearest(of_queries, vectors, depth, own=chosen if own else None)
        ranked.append(Ranked(*hits))
    a, b = ranked
    shared = metrics.shared_by_depth(a.rows, b.rows)
    values = {f"overlap@{k}": shared[:, k - 1] / k for k in AT if k <= depth}
    values[BIASED] = metrics.rank_biased_overlap(a.rows, b.rows, PERSISTENCE)
    return Diff(
        queries=len(wanted),
        documents=len(texts),
        of=max(len(texts), of) if of is not None and of > len(documents) else len(texts),
        own=own,
        measures=_means(values, wanted, seed),
        changed=_changed(wanted, texts, a, b, values),
        threshold=None if threshold is None else shift(threshold, a.scores, b.scores, seed=seed),
    )


def _means(
    values: Mapping[str, Floats], queries: Sequence[str], seed: int
) -> tuple[MeanInterval, ...]:
    """The mean over queries of each measure (q,), with its 95 % interval."""
    table = np.stack(list(values.values()), axis=1)
    drawn = mean_draws(table, RESAMPLES, seed, item_keys(queries))
    # Rounded, as counts are float32.
    ends = [np.clip(interval(draws), 0.0, 1.0).round(6).tolist() for draws in drawn.T]
    of_names = zip(values, table.T, ends, strict=True)
    return tuple(MeanInterval(name, float(own.mean()), *end) for name, own, end in of_names)


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


def diff_page(found: Diff, about: Mapping[str, Mapping[str, Any]], on: str) -> str:
    """A diff as one self-contained page.

    ``about``: of "old" and "new" the name, runtime, dimension, parameters and bytes.
    """
    given = {side: str(about[side]["name"]) for side in SIDES}
    names = {side: Path(name).name or name for side, name in given.items()}
    title = f"{names['old']} and {names['new']}"
    facts = {"found": found, "on": on, "names": names, "about": about}
    return render("diff.html", window=f" diff: {title}", heading=title, **facts)
