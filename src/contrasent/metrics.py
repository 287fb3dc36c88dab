"""Metrics of vectors, rankings and items: pure functions on numpy arrays, float64 inside.

Where a definition has no value (fewer than two rows, a constant column, no gain, a NaN) the result
is NaN; a cosine with a zero vector is 0. :data:`METRICS` says how reports treat each metric.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.nearest import nearest

Floats = NDArray[np.float64]

BLOCK = 2_000_000  # elements of a distance matrix in memory at once


def cosine(first: ArrayLike, second: ArrayLike) -> Floats:
    """Cosine (n,) of each pair of rows of two (n, d); 0 for a zero vector, NaN for a NaN."""
    # Exactly 1 for equal vectors: with a root of each square some would be one ulp off, and a rank
    # correlation would see differences where there are ties.
    a, b = np.asarray(first), np.asarray(second)
    products, left, right = (
        np.einsum("ij,ij->i", x, y, dtype=np.float64) for x, y in ((a, b), (a, a), (b, b))
    )
    scale = np.sqrt(left * right)
    similarity = np.divide(products, scale, out=np.zeros_like(products), where=scale != 0)
    clipped: Floats = np.clip(similarity, -1.0, 1.0)
    return clipped


def norms(vectors: ArrayLike) -> Floats:
    """Euclidean length (n,) of each row of (n, d), computed in float64."""
    v = np.asarray(vectors)
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", v, v, dtype=np.float64))
    return lengths


def normalize(vectors: ArrayLike) -> NDArray[Any]:
    """Rows (n, d) scaled to length one; zero rows stay zero. Float32 stays, else float64."""
    v = np.asarray(vectors)
    lengths = norms(v)[:, None]
    lengths[lengths == 0] = 1
    return (v / lengths).astype(np.float32 if v.dtype == np.float32 else np.float64, copy=False)


def rank(values: ArrayLike) -> Floats:
    """Ranks (n,) from 1, smallest first; equal values share the mean of their ranks."""
    x = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Floats = last - (counts - 1) / 2
    return middle[inverse]


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's correlation of two (n,), from -1 to 1."""
    a = np.asarray(x, dtype=np.float64)
    b = np.asarray(y, dtype=np.float64)
    if len(a) < 2 or a.min() == a.max() or b.min() == b.max():
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    # Scaling first keeps the squares of very small or large values in range.
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation of two (n,), from -1 to 1; ties share their mean rank."""
    a = np.asarray(x, dtype=np.float64)
    b = np.asarray(y, dtype=np.float64)
    if np.isnan(a).any() or np.isnan(b).any():
        return float("nan")
    return pearson(rank(a), rank(b))


def reciprocal_rank_at_k(gains: ArrayLike, ranks: ArrayLike, k: int) -> float:
    """Reciprocal rank of a query's first relevant document, 0 beyond k; ``ranks`` (m,) rise."""
    first = np.asarray(ranks)[0]
    return float(1 / first) if first <= k else 0.0


def recall_at_k(gains: ArrayLike, ranks: ArrayLike, k: int) -> float:
    """Share of a query's relevant documents among the first k, by their ranks (m,)."""
    return float((np.asarray(ranks) <= k).mean())


def dcg_at_k(gains: ArrayLike, ranks: ArrayLike, k: int) -> float:
    """Discounted cumulative gain of (m,) documents, ranks from 1: sum of gain / log2(rank + 1).

    Järvelin and Kekäläinen, 2002, with linear gain (as in trec_eval and BEIR).
    """
    r = np.asarray(ranks, dtype=np.float64)
    g = np.asarray(gains, dtype=np.float64)
    return float((g / np.log2(r + 1) * (r <= k)).sum())


def ndcg_at_k(gains: ArrayLike, ranks: ArrayLike, k: int) -> float:
    """Normalized DCG of a query, 0 to 1: gains (m,) of its relevant documents, and their ranks."""
    g = np.sort(np.asarray(gains, dtype=np.float64))[::-1]
    ideal = dcg_at_k(g, np.arange(1, len(g) + 1), k)
    return dcg_at_k(gains, ranks, k) / ideal if ideal > 0 else float("nan")


def alignment(first: ArrayLike, second: ArrayLike) -> float:
    """Alignment of positive pairs: mean of ||u - v||^2 on the unit sphere, from 0 to 4.

    Wang and Isola (2020), Section 4.1; SimCSE, Eq. 2. Smaller is better.
    """
    u, v = (normalize(np.asarray(side, np.float64)) for side in (first, second))
    return float((norms(u - v) ** 2).mean())


def uniformity(vectors: ArrayLike) -> float:
    """Uniformity of vectors on the unit sphere: log of the mean of exp(-2 ||u - v||^2).

    Wang and Isola (2020), Section 4.1; SimCSE, Eq. 3. Over all pairs i < j. Smaller is better.
    """
    near = nearness(vectors)
    return float(np.log(near.mean())) if len(near) else float("nan")


def nearness(vectors: ArrayLike) -> Floats:
    """Mean (n,) of exp(-2 ||u - v||^2) over the other vectors; NaN for a single vector."""
    u = normalize(vectors).astype(np.float32)
    n = len(u)
    sums = np.zeros(n)
    rows = max(1, BLOCK // max(n, 1))
    for start in range(0, n, rows):
        block = u[start : start + rows]
        # ||u - v||^2 = 2 - 2 u.v; only the columns from the block on, each pair once.
        squared = 2.0 - 2.0 * (block @ u[start:].T)
        near = np.exp(-2.0 * np.maximum(squared, 0.0))
        np.fill_diagonal(near, 0.0)
        sums[start : start + rows] += near.sum(axis=1, dtype=np.float64)
        sums[start + rows :] += near[:, len(block) :].sum(axis=0, dtype=np.float64)
    return sums / (n - 1) if n > 1 else np.full(n, np.nan)


def anisotropy(vectors: ArrayLike) -> float:
    """Mean cosine of two different vectors (Ethayarajh, 2019); 1 for a single direction."""
    u = normalize(np.asarray(vectors, np.float64))
    total = u.sum(axis=0)
    # The sum over all ordered pairs, less each vector with itself.
    return float((total @ total - (u * u).sum()) / (len(u) * (len(u) - 1)))


def singular_values(vectors: ArrayLike) -> Floats:
    """Singular values (d,) of the matrix of vectors, over the largest (SimCSE, Figure F.1)."""
    x = np.asarray(vectors, dtype=np.float64)
    values: Floats = np.sqrt(np.maximum(np.linalg.eigvalsh(x.T @ x), 0))[::-1]
    return values / (values[0] or 1.0)


def effective_rank(vectors: ArrayLike) -> float:
    """Exponential of the entropy of the singular values' shares (Roy & Vetterli, 2007)."""
    values = singular_values(vectors)
    share = values[values > 0] / values.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def neighbors(vectors: ArrayLike, k: int = 10) -> NDArray[np.int64]:
    """Numbers (n, k) of each row's k nearest other rows by cosine, best first."""
    unit = normalize(vectors).astype(np.float32)
    return nearest(unit, unit, k, own=np.arange(len(unit)))[0]


def shared_share(first: NDArray[np.int64], second: NDArray[np.int64]) -> Floats:
    """Share (n,) of the k entries of each row of one (n, k) that the other has too."""
    shared: Floats = (first[:, :, None] == second[:, None, :]).any(axis=2).mean(axis=1)
    return shared


def shared_by_depth(first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
    """(n, k) number of shared entries among the first d of two rankings (n, k), best first.

    Column d - 1 is the size of the overlap at depth d, X_d of Webber et al. (2010).
    """
    a, b = np.asarray(first), np.asarray(second)
    row, i, j = np.nonzero(a[:, :, None] == b[:, None, :])
    added = np.zeros(a.shape, dtype=np.int64)
    np.add.at(added, (row, np.maximum(i, j)), 1)
    return np.cumsum(added, axis=1)


def rank_biased_overlap(first: ArrayLike, second: ArrayLike, p: float = 0.9) -> Floats:
    """Rank-biased overlap (n,), extrapolated: agreement of two rankings, weighted to the top.

    Webber, Moffat and Zobel (2010), A Similarity Measure for Indefinite Rankings, equation 30:
    beyond their depth, rankings are assumed to agree as much as within it. ``p`` is the chance that
    a reader continues to the next rank.
    """
    shared = shared_by_depth(first, second)
    depth = np.arange(1, shared.shape[1] + 1)
    agreement = shared / depth
    seen = (1 - p) / p * (agreement * p**depth).sum(axis=1)
    overlap: Floats = seen + agreement[:, -1] * p ** depth[-1]
    return overlap


class _Order:
    """A column's order; ``ranks`` are the shares of items below each and half of its equals."""

    def __init__(self, x: Floats) -> None:
        self.order = np.argsort(x, kind="stable")
        new = np.concatenate([[True], np.diff(x[self.order]) != 0])
        starts = np.append(np.flatnonzero(new), len(x))
        group = np.empty(len(x), dtype=np.int64)
        group[self.order] = np.cumsum(new) - 1
        self.below, self.upto = starts[group], starts[group + 1]
        self.ranks = (self.below + self.upto) / (2 * len(x))

    def above(self, values: Floats) -> Floats:
        """(n,) sum of the values of the items above each, and half of those that are equal."""
        sums = self.sums(values)
        higher: Floats = sums[-1] - (sums[self.below] + sums[self.upto]) / 2
        return higher

    def sums(self, values: Floats) -> Floats:
        """(n + 1,) sums of the values of the 0, 1, ... lowest items: up to each at ``upto``."""
        return np.concatenate([[0.0], np.cumsum(values[self.order])])


def item_mean(columns: Floats) -> tuple[float, Floats]:
    """The mean of a value an item."""
    (x,) = columns
    return float(x.mean()), x - x.mean()


def item_uniformity(columns: Floats) -> tuple[float, Floats]:
    """Log of the mean nearness. An item is one of both vectors of a pair, so it moves it twice."""
    (near,) = columns
    mean = near.mean()
    return float(np.log(mean)), 2 * (near / mean - 1)


def item_f1(columns: Floats) -> tuple[float, Floats]:
    """F1 of guesses and labels, both 0 or 1."""
    guess, label = columns
    scale = (guess + label).mean()
    if not scale:
        return 0.0, np.zeros_like(guess)
    f1 = 2 * (guess * label).mean() / scale
    return float(f1), (2 * guess * label - f1 * (guess + label)) / scale


def item_pearson(columns: Floats) -> tuple[float, Floats]:
    """Pearson's correlation of two columns."""
    a, b = (c - c.mean() for c in columns)
    a, b = (c / max(np.sqrt((c * c).mean()), 1e-300) for c in (a, b))
    correlation = float((a * b).mean())
    return correlation, a * b - correlation / 2 * (a * a + b * b)


def item_spearman(columns: Floats) -> tuple[float, Floats]:
    """Pearson's correlation of ranks, and how an item moves the other items' ranks as well."""
    n = columns.shape[1]
    x, y = (_Order(column) for column in columns)
    f, g = x.ranks - 0.5, y.ranks - 0.5
    # The derivatives of the mean products of ranks, which depend on every item.
    both = f * g + (x.above(g) + y.above(f)) / n - 3 * (f * g).mean()
    variances = [r * r + 2 * c.above(r) / n - 3 * (r * r).mean() for c, r in ((x, f), (y, g))]
    xx, yy = (max((r * r).mean(), 1e-300) for r in (f, g))
    correlation = float((f * g).mean() / np.sqrt(xx * yy))
    moved = both / np.sqrt(xx * yy) - correlation / 2 * (variances[0] / xx + variances[1] / yy)
    return correlation, moved - moved.mean()


def item_average_precision(columns: Floats) -> tuple[float, Floats]:
    """Average precision. An item moves its own share and the precision at each lower score."""
    down, label = _Order(-columns[0]), columns[1]
    positive = max(label.sum(), 1.0)
    precision = down.sums(label)[down.upto] / down.upto
    average = float((label * precision).sum() / positive)
    # Sums over the scores at or below each.
    sums = [down.sums(label * x / down.upto) for x in (1.0, precision)]
    gained, lost = (s[-1] - s[down.below] for s in sums)
    moved = label * (precision + gained - average) - lost
    return average, moved * len(label) / positive


def item_best_f1(columns: Floats) -> tuple[float, Floats]:
    """F1 at its best threshold, which no small change of the weights moves."""
    score, label = columns
    down = _Order(-score)
    f1 = 2 * down.sums(label)[down.upto] / (down.upto + label.sum())
    return item_f1(np.stack([score >= score[f1 == f1.max()].max(), label]).astype(np.float64))


def item_v_measure(columns: Floats) -> tuple[float, Floats]:
    """Twice the mutual information of group and class over the sum of their entropies."""
    group, label = columns
    parts = []
    for cell in (group, label, group * (label.max() + 1) + label):
        _, place, counts = np.unique(cell, return_inverse=True, return_counts=True)
        parts.append(-np.log(counts / len(cell))[place])
    whole = parts[0] + parts[1]
    if not (total := whole.mean()):
        return 1.0, np.zeros_like(whole)
    shared = whole - parts[2]
    measure = float(2 * shared.mean() / total)
    return measure, (2 * shared - measure * whole) / total


Statistic = Callable[[Floats], tuple[float, Floats]]
"""From the columns (c, n) of n items: the number they give, and how far each of them moves it."""

OfQuery = Callable[[Floats, NDArray[np.int64], int], float]
"""From the gains (m,) of one query's relevant documents, their rising ranks (m,) from 1 and k."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, as reports, pages and comparisons treat it.

    Attributes:
        name: as reports have it; "mrr@k" with any number for k. A part may follow: "error_near".
        table: the table of an evaluation's page that shows it; "" for none.
        hundredths: whether papers state it times 100.
        better: which direction is better.
        statistic: its value from the columns of the items behind it, with their influences.
        of_query: for a metric of rankings, which every retrieval reports: its value for one query.
        every_cut: whether it is reported for each k that is asked for; else for the largest.
    """

    name: str
    table: str = ""
    hundredths: bool = True
    better: Literal["higher", "lower"] = "higher"
    statistic: Statistic = item_mean
    of_query: OfQuery | None = None
    every_cut: bool = False


METRICS = {
    metric.name: metric
    for metric in (
        Metric("spearman", "sts", statistic=item_spearman),
        Metric("pearson", "sts", statistic=item_pearson),
        Metric("accuracy", "transfer"),
        Metric("f1", "transfer", statistic=item_f1),
        Metric("accuracy_triplet", "decisions"),
        Metric("accuracy@k", "decisions"),
        Metric("ap", "decisions", statistic=item_average_precision),
        Metric("f1_best", "decisions", statistic=item_best_f1),
        Metric("v_measure", "decisions", statistic=item_v_measure),
        Metric("alignment", "geometry", hundredths=False, better="lower"),
        Metric("uniformity", "geometry", False, "lower", item_uniformity),
        Metric("anisotropy", "geometry", hundredths=False, better="lower"),
        Metric("isoscore", "geometry", hundredths=False),
        Metric("effective_rank", "geometry", hundredths=False),
        Metric("mrr@k", "retrieval", of_query=reciprocal_rank_at_k),
        Metric("recall@k", "retrieval", of_query=recall_at_k, every_cut=True),
        Metric("ndcg@k", "retrieval", of_query=ndcg_at_k),
        Metric("error", "bias", hundredths=False),
        Metric("absolute", "bias", hundredths=False),
        Metric("once", "bias", hundredths=False),
        Metric("twice", "bias", hundredths=False),
        Metric("repetition_gain", "bias", hundredths=False),
        Metric("seconds", hundredths=False, better="lower"),
    )
}
"""By name. A new metric is an entry here and its function; one that is not of a ranking is computed
by the evaluation that reports it."""

OTHER = Metric("", hundredths=False)

STATISTICS: dict[str, Statistic] = {
    "mean": item_mean,
    **{m.name: m.statistic for m in METRICS.values() if m.statistic is not item_mean},
}
"""By the name that stored items have."""


def metric(name: str) -> Metric:
    """The entry of a report's metric, such as "ndcg@10" or "error_near"; OTHER if it has none."""
    stem, cut, _ = name.partition("@")
    known = f"{stem}@k" if cut else stem
    while known not in METRICS and "_" in known:
        known = known.rpartition("_")[0]
    return METRICS.get(known, OTHER)
