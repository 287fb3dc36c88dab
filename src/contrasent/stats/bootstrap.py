"""Bootstrap intervals, cheap enough to print with every number.

A resample is a row of counts, so ranks are cumulative sums and nothing is sorted again. Sets share
items (1,007 of STS-B's 1,379 test pairs are in STS12-16): a count is a function of the item's key,
the seed and the resample, Poisson with mean 1 (Chamandy et al., 2012).
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, factorial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError
from contrasent.metrics import spearman
from contrasent.stats.seeds import LEVEL, EffectEstimate, Floats

Counts = NDArray[np.float32]
Statistics = Mapping[str, Callable[[Counts], Floats]]
"""By name, from counts (b, n) of n items in each resample to (b,) or (b, m)."""

RESAMPLES = 1000
"""By default. The ends of an interval then move by about 0.1 of its half-width between seeds."""

MIN_ITEMS = 20  # items needed for an interval: with fewer a percentile bootstrap is too narrow

BLOCK = 400_000  # counts in memory at once, to stay in the processor's cache

Keys = NDArray[np.uint64]

POISSON = np.searchsorted(
    np.cumsum([exp(-1) / factorial(k) for k in range(12)]), (np.arange(1 << 16) + 0.5) / (1 << 16)
).astype(np.float32)
"""The count that 16 random bits mean."""

PAIRED_RESAMPLES = 10_000
CLUSTER_RESAMPLES = 2_000
AT_ONCE = 200_000  # counts of clusters in a block of resamples


def item_keys(*columns: Sequence[str]) -> Keys:
    """A key for each item: equal for equal texts (of a pair: in either order), in any set.

    White space does not count: "it 's" and "it's" are one sentence of SST2 and of MR.
    """
    bare = [["".join(text.split()) for text in column] for column in columns]
    rows = ("\0".join(sorted(texts)) for texts in zip(*bare, strict=True))
    joined = b"".join(
        hashlib.blake2b(row.encode(errors="surrogatepass"), digest_size=8).digest() for row in rows
    )
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def digest(texts: Sequence[str]) -> str:
    """A digest of texts in their order, which items were measured against."""
    total = hashlib.blake2b(digest_size=16)
    for text in texts:
        total.update(text.encode(errors="surrogatepass") + b"\0")
    return total.hexdigest()


def draw_counts(
    sizes: Sequence[int], number: int, seed: int | Sequence[int], keys: Keys | None = None
) -> Iterator[Counts]:
    """Bootstrap resamples as counts (b, n); items of equal ``keys`` have the same in every set."""
    rows = max(4, BLOCK // max(sum(sizes), 1) // 4 * 4)
    if keys is not None:
        # Counts of each item by its key alone, scaled so that those of a part sum to its size.
        stream = np.random.SeedSequence(seed).generate_state(1, np.uint64)
        base = mixed(keys ^ stream)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        for start in range(0, number, rows):
            block = min(rows, number - start)
            # Poisson counts of resamples from `start` on, a multiple of 4: four from 64 bits.
            numbers = np.arange(start // 4, (start + block + 3) // 4, dtype=np.uint64)
            bits = mixed(base + numbers[:, None] * np.uint64(0x9E3779B97F4A7C15))
            lanes = bits.view(np.uint16).reshape(len(numbers), len(base), 4).transpose(0, 2, 1)
            counts = POISSON[lanes.reshape(-1, len(base))[:block]]
            sums = np.add.reduceat(counts, starts, axis=1)
            scale = np.asarray(sizes, dtype=np.float32) / np.maximum(sums, 1)
            yield counts * np.repeat(scale, sizes, axis=1)
        return
    # As many items as a part has, drawn from it; those of row r are counted from r * size on.
    random = np.random.Generator(np.random.SFC64(seed))
    for start in range(0, number, rows):
        block, drawn = min(rows, number - start), []
        for size in sizes:
            items = random.integers(0, size, size=(block, size), dtype=np.int32)
            items += np.arange(block, dtype=np.int32)[:, None] * np.int32(size)
            drawn.append(np.bincount(items.ravel(), minlength=block * size).reshape(block, size))
        yield np.concatenate(drawn, axis=1, dtype=np.float32)


def mixed(x: Keys) -> Keys:
    """The finalizer of splitmix64 (Steele et al. 2014): every bit depends on every other."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class RankedPairs:
    """Two columns, prepared so that Spearman's correlation of a resample needs no sorting."""

    def __init__(self, x: ArrayLike, y: ArrayLike) -> None:
        a, b = np.asarray(x), np.asarray(y)
        self.order = np.argsort(a, kind="stable")
        group = _groups(a[self.order])
        self.distinct = int(group[-1]) + 1 == len(a)
        self.x_group = group
        self.x_ends = _ends(group)
        order = np.argsort(b[self.order], kind="stable")
        self.y_order = order
        group = _groups(b[self.order][order])
        self.y_ends = _ends(group)
        self.y_group = np.empty(len(b), dtype=np.int64)
        self.y_group[order] = group

    def spearman(self, counts: Counts) -> Floats:
        """(b,) Spearman correlation of each resample; NaN where a column is constant in it."""
        # Ranks of the first column, in its order: an item that counts w times takes w places, and
        # has the middle one. All are less the mean rank.
        weight = counts[:, self.order]
        running = np.cumsum(weight, axis=1, dtype=np.float32)
        middle = (running[:, -1:] + np.float32(1)) / np.float32(2)
        if self.distinct:
            x = running - (weight - np.float32(1)) / np.float32(2) - middle
        else:
            x = _middle_ranks(running[:, self.x_ends])[:, self.x_group] - middle
        # The same of the second column, once for each group of equal values.
        ends = np.cumsum(weight[:, self.y_order], axis=1, dtype=np.float32)[:, self.y_ends]
        y_ranks = _middle_ranks(ends) - middle
        y_weight = np.diff(ends, axis=1, prepend=np.float32(0))
        # Pearson's correlation of the ranks.
        weighted = weight * x
        xy = np.einsum("ij,ij->i", weighted, y_ranks[:, self.y_group], dtype=np.float32)
        xx = np.einsum("ij,ij->i", weighted, x, dtype=np.float32)
        yy = np.einsum("ij,ij->i", y_weight * y_ranks, y_ranks, dtype=np.float32)
        return _ratio(xy, xx, yy)


def weighted_pearson(x: ArrayLike, y: ArrayLike, counts: Counts) -> Floats:
    """(b,) Pearson correlation of each resample; NaN where a column is constant in it."""
    a = np.asarray(x, dtype=np.float64)
    b = np.asarray(y, dtype=np.float64)
    # Standardized first, so that the differences of moments keep their digits in float32.
    a = (a - a.mean()) / max(a.std(), 1e-300)
    b = (b - b.mean()) / max(b.std(), 1e-300)
    columns = np.stack([a, b, a * a, b * b, a * b], axis=1).astype(np.float32)
    moments = (counts @ columns).astype(np.float64) / counts.sum(axis=1)[:, None]
    ma, mb, aa, bb, ab = moments.T
    return _ratio(ab - ma * mb, aa - ma * ma, bb - mb * mb)


def mean_draws(
    values: ArrayLike,
    number: int = RESAMPLES,
    seed: int | Sequence[int] = 0,
    keys: Keys | None = None,
) -> Floats:
    """(number, ...) the mean over items in each resample; those of equal ``keys`` go together."""
    v = np.asarray(values, dtype=np.float64)
    return resampled({"": lambda counts: counts @ v / len(v)}, [len(v)], number, seed, keys)[""]


def resampled(
    statistics: Statistics,
    sizes: Sequence[int],
    number: int,
    seed: int | Sequence[int],
    keys: Keys | None = None,
) -> dict[str, Floats]:
    """Several statistics over the same resamples."""
    blocks: dict[str, list[Floats]] = {name: [] for name in statistics}
    for counts in draw_counts(sizes, number, seed, keys):
        for name, statistic in statistics.items():
            blocks[name].append(statistic(counts))
    return {name: np.concatenate(b) if b else np.empty(0) for name, b in blocks.items()}


def interval(draws: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """The ends of the middle share of a statistic over resamples; undefined ones are left out."""
    # On average a share of k / (r + 1) lies below the k-th smallest of r draws.
    points = [round(50 * (1 + sign * level), 6) for sign in (-1, 1)]
    low, high = np.nanpercentile(np.asarray(draws), points, method="weibull")
    return float(low), float(high)


def _groups(ordered: NDArray[np.generic]) -> NDArray[np.int64]:
    """Number the runs of equal values in a sorted column, from 0."""
    return np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])]).astype(np.int64)


def _ends(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last place of each run."""
    return np.flatnonzero(np.append(group[1:] != group[:-1], True))


def _middle_ranks(ends: Counts) -> Counts:
    """Mean rank of each run from the cumulative counts at the runs' ends."""
    before = np.concatenate([np.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
    return ((before + ends + 1) / 2).astype(np.float32, copy=False)


def _ratio(xy: NDArray[np.floating], xx: NDArray[np.floating], yy: NDArray[np.floating]) -> Floats:
    # Constant columns leave rounding errors, far below any true sum of squares.
    defined = (xx > 1e-6) & (yy > 1e-6)
    size = np.sqrt(np.where(defined, xx, 1).astype(np.float64) * np.where(defined, yy, 1))
    return np.where(defined, xy / size, np.nan)


def paired_spearman_difference(
    before: ArrayLike,
    after: ArrayLike,
    gold: ArrayLike,
    *,
    resamples: int = PAIRED_RESAMPLES,
    seed: int = 0,
) -> EffectEstimate:
    """Difference of two systems' (n,) Spearman correlations with the same gold scores (n,).

    Both systems are measured on the same resamples of pairs. The p value is twice the share of
    resamples on the other side of zero (one added to both counts), so it agrees with the interval.
    """
    columns = [np.asarray(column, dtype=np.float64) for column in (before, after, gold)]
    a, b, g = columns
    if not a.shape == b.shape == g.shape or a.ndim != 1:
        shapes = " and ".join(str(column.shape) for column in columns)
        raise DataError(f"paired values of shapes {shapes}; all must be (n,)")
    if len(a) < MIN_ITEMS:
        raise DataError(f"{len(a)} items are too few for an interval; {MIN_ITEMS} are needed")
    if not np.isfinite(columns).all():
        raise DataError("the paired values contain NaN or infinite numbers")
    first, second = RankedPairs(a, g), RankedPairs(b, g)
    gap = {"": lambda counts: second.spearman(counts) - first.spearman(counts)}
    drawn = resampled(gap, [len(g)], resamples, seed)[""]
    value = spearman(b, g) - spearman(a, g)
    if np.isnan(value):
        raise DataError("a column is constant; its correlation is undefined")
    return from_draws(value, drawn)


def clustered_mean(
    sums: Floats,
    counts: Floats,
    *,
    resamples: int = CLUSTER_RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> EffectEstimate:
    """The mean over kinds of the mean of each kind's values, with its interval over clusters.

    Each end is the outer one of Student's t with the jackknife's error and the studentised
    bootstrap: either alone finds too many false gains. With one cluster they are infinite.
    ``sums``, ``counts``: (c, k) of each kind in each cluster.
    """
    number = len(sums)
    totals = counts.sum(axis=0)
    means = sums.sum(axis=0) / totals
    value = float(means.mean())
    if number == 1:
        return EffectEstimate.from_error(value, math.inf, 1.0, level)
    with np.errstate(invalid="ignore"):  # a kind with only one cluster
        left = np.nanmean((sums.sum(axis=0) - sums) / (totals - counts), axis=1)
    error = math.sqrt((number - 1) / number * float(((left - value) ** 2).sum()))
    # Effective number of equal clusters (Kish, 1965).
    shares = (counts / totals).mean(axis=1)
    df = max(1 / float((shares**2).sum()) - 1, 1.0)
    jackknife = EffectEstimate.from_error(value, error, df, level)
    linear = math.sqrt(float(((((sums - means * counts) / totals).mean(axis=1)) ** 2).sum()))
    drawn = _studentised(sums, counts, value, resamples, seed)
    if not linear or not len(drawn):
        return jackknife
    few, many = interval(drawn, level)
    low = min(jackknife.low, value - many * linear)
    high = max(jackknife.high, value - few * linear)
    p = max(jackknife.p, bootstrap_p(drawn - value / linear))
    return replace(jackknife, low=low, high=high, p=p)


def _studentised(sums: Floats, counts: Floats, value: float, resamples: int, seed: int) -> Floats:
    """(r,) distances of resampled means from the value, in their own standard errors."""
    random = np.random.default_rng(seed)
    number = len(sums)
    even = np.full(number, 1.0 / number)
    step = max(1, AT_ONCE // number)
    blocks: list[Floats] = []
    for start in range(0, resamples, step):
        weights = random.multinomial(number, even, min(step, resamples - start)).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            totals = weights @ counts
            means = (weights @ sums) / totals
            moved = np.zeros_like(weights)
            for kind in range(sums.shape[1]):
                residuals = sums[:, kind] - means[:, kind, None] * counts[:, kind]
                # A kind without items in a resample is ignored there.
                moved += np.where(totals[:, kind, None] > 0, residuals / totals[:, kind, None], 0.0)
            kinds = (totals > 0).sum(axis=1)
            errors = np.sqrt((weights * moved**2).sum(axis=1)) / kinds
            blocks.append((np.nanmean(means, axis=1) - value) / errors)
    drawn = np.concatenate(blocks)
    return drawn[np.isfinite(drawn)]


def from_draws(value: float, draws: Floats) -> EffectEstimate:
    """A difference with the percentile interval of its bootstrap draws (r,)."""
    low, high = interval(draws)
    return EffectEstimate(value, low, high, float(np.nanstd(draws)), math.inf, bootstrap_p(draws))


def bootstrap_p(draws: ArrayLike) -> float:
    """Two-sided p value of a difference of zero, from bootstrap draws of the difference."""
    d = np.asarray(draws)
    d = d[np.isfinite(d)]
    other = min(np.count_nonzero(d <= 0), np.count_nonzero(d >= 0))
    return min(1.0, 2 * (other + 1) / (len(d) + 1))
