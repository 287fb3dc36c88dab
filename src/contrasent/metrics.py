"""What vectors and rankings are worth: pure functions on numpy arrays, float64 inside.

Every function says what it returns where its definition gives nothing (a zero vector, a constant
column): a caller decides whether that is an error. Nothing here knows a model or a data set.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

BLOCK = 2_000_000
"""Elements of a distance matrix held at once."""


def cosine(first: ArrayLike, second: ArrayLike) -> Floats:
    """Cosine similarity of paired rows.

    Args:
        first: (n, d) vectors.
        second: (n, d) vectors; row i is compared with row i of ``first``.

    Returns:
        (n,) in [-1, 1]; 0 where one of the two vectors is zero, NaN where one holds a NaN.
    """
    a, b = np.asarray(first), np.asarray(second)
    products = np.einsum("ij,ij->i", a, b, dtype=np.float64)
    scale = norms(a) * norms(b)
    similarity = np.divide(products, scale, out=np.zeros_like(products), where=scale != 0)
    clipped: Floats = np.clip(similarity, -1.0, 1.0)
    return clipped


def norms(vectors: ArrayLike) -> Floats:
    """Euclidean length of each row of (n, d), accumulated in float64."""
    v = np.asarray(vectors)
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", v, v, dtype=np.float64))
    return lengths


def unit(vectors: ArrayLike) -> Floats:
    """Rows scaled to length 1; zero rows stay zero."""
    v = np.asarray(vectors, dtype=np.float64)
    lengths = norms(v)[:, None]
    return np.divide(v, lengths, out=np.zeros_like(v), where=lengths != 0)


def rank(values: ArrayLike) -> Floats:
    """Ranks from 1, smallest first; equal values share the mean of their ranks."""
    x = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Floats = last - (counts - 1) / 2
    return middle[inverse]


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's product-moment correlation.

    Returns:
        A number in [-1, 1]; NaN for fewer than two pairs, a constant column or a NaN in either.
    """
    a = np.asarray(x, dtype=np.float64)
    b = np.asarray(y, dtype=np.float64)
    if len(a) < 2 or a.min() == a.max() or b.min() == b.max():
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    # Scaling first keeps the squares of very small or large values in range.
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation: Pearson's on ranks, ties sharing their mean rank.

    Returns:
        A number in [-1, 1]; NaN for fewer than two pairs, a constant column or a NaN in either.
    """
    a = np.asarray(x, dtype=np.float64)
    b = np.asarray(y, dtype=np.float64)
    if np.isnan(a).any() or np.isnan(b).any():
        return float("nan")
    return pearson(rank(a), rank(b))


def reciprocal_ranks(ranks: ArrayLike, k: int) -> Floats:
    """(q,) one over the rank of each query's first relevant document, 0 beyond k; ranks from 1."""
    r = np.asarray(ranks, dtype=np.float64)
    return np.where(r <= k, 1.0 / r, 0.0)


def mrr_at_k(ranks: ArrayLike, k: int) -> float:
    """Mean reciprocal rank, cut at k (Craswell, 2009).

    Args:
        ranks: (q,) rank from 1 of each query's first relevant document.
        k: ranks beyond it count as 0.
    """
    return float(reciprocal_ranks(ranks, k).mean())


def recall_at_k(ranks: ArrayLike, k: int) -> float:
    """Share of queries whose one relevant document is among the first k; ``ranks`` (q,) from 1."""
    return float((np.asarray(ranks) <= k).mean())


def dcg_at_k(gains: ArrayLike, ranks: ArrayLike, k: int) -> float:
    """Discounted cumulative gain of documents at given ranks: sum of gain / log2(rank + 1).

    Järvelin and Kekäläinen, 2002, with linear gain (as in trec_eval and BEIR).
    """
    r = np.asarray(ranks, dtype=np.float64)
    g = np.asarray(gains, dtype=np.float64)
    return float((g / np.log2(r + 1) * (r <= k)).sum())


def ndcg_at_k(gains: ArrayLike, ranks: ArrayLike, k: int) -> float:
    """Normalised discounted cumulative gain of one query.

    Args:
        gains: (m,) gain of each judged document, 0 for an irrelevant one.
        ranks: (m,) the rank from 1 at which each was found.
        k: ranks beyond it count for nothing.

    Returns:
        A number in [0, 1]: the DCG over that of the best possible order; NaN if no gain is above 0.
    """
    g = np.sort(np.asarray(gains, dtype=np.float64))[::-1]
    ideal = dcg_at_k(g, np.arange(1, len(g) + 1), k)
    return dcg_at_k(gains, ranks, k) / ideal if ideal > 0 else float("nan")


def alignment(first: ArrayLike, second: ArrayLike, *, alpha: float = 2.0) -> float:
    """How near the two sides of a positive pair lie: mean of ||u - v||^alpha on the unit sphere.

    Wang and Isola (2020), Section 4.1; SimCSE, Eq. 2. Smaller is better.

    Args:
        first: (n, d) vectors.
        second: (n, d) vectors of their positives.
        alpha: the exponent; 2 in every paper.
    """
    gaps = norms(unit(first) - unit(second))
    return float((gaps**alpha).mean())


def uniformity(vectors: ArrayLike, *, t: float = 2.0) -> float:
    """How evenly vectors fill the unit sphere: log of the mean of exp(-t ||u - v||^2).

    Wang and Isola (2020), Section 4.1; SimCSE, Eq. 3. Over all pairs i < j, in blocks. Smaller is
    better.

    Args:
        vectors: (n, d) vectors, n of at least 2.
        t: the scale; 2 in every paper.

    Returns:
        A number at most 0; NaN for fewer than two vectors.
    """
    u = unit(vectors).astype(np.float32)
    n = len(u)
    if n < 2:
        return float("nan")
    total = 0.0
    rows = max(1, BLOCK // n)
    for start in range(0, n, rows):
        block = u[start : start + rows]
        # ||u - v||^2 = 2 - 2 u.v; only the columns from the block on, each pair once.
        squared = 2.0 - 2.0 * (block @ u[start:].T)
        near = np.exp(-t * np.maximum(squared, 0.0))
        inside = near[:, : len(block)]
        total += float(near[:, len(block) :].sum(dtype=np.float64))
        total += float(np.triu(inside, 1).sum(dtype=np.float64))
    return float(np.log(total / (n * (n - 1) / 2)))
