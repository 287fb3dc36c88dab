"""What score means "the same": a threshold from rated pairs, or from pairs taken at random.

With rated pairs the threshold keeps a wanted precision with a guarantee that needs no law of the
scores: of the c pairs above the (c + 1)-th highest score the labels are independent draws of that
score's own precision, so each c, fixed beforehand, gives an exact binomial test, and Bonferroni's
correction joins a few of them (Learn then Test: Angelopoulos et al., 2021, with this family of
tests). Without any, it is a conformal bound: a pair taken at random exceeds it with a chance of at
most alpha.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError, OptionError
from contrasent.stats.bootstrap import FEWEST, Bounds, draw_counts, interval

LOOKS = 16
"""Sizes of the set above the threshold that are tested."""
CONFIDENCE = 0.95
RESAMPLES = 1000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A score from which texts count as the same, or as related.

    Attributes:
        low: lower end of the estimated threshold's 95 % interval, None where there is none; a
            guaranteed one may lie above it.
        basis: "pairs", rated by people, or "random", pairs of rows taken at random.
        wanted: the precision, or the share alpha of random pairs.
        guaranteed: whether ``wanted`` holds with the confidence (pairs) or chance (random) that the
            module says; else the value is an estimate.
        found: share of the pairs that are the same that reach it; of random pairs the share of rows
            whose nearest other row does.
    """

    value: float
    low: float | None
    high: float | None
    basis: Literal["pairs", "random"]
    wanted: float
    guaranteed: bool
    pairs: int
    found: float


def from_pairs(
    scores: ArrayLike, same: ArrayLike, *, precision: float = 0.95, seed: int = 0
) -> Threshold:
    """The lowest score from which a share ``precision`` of pairs are the same.

    It holds for pairs drawn as these were: among other pairs, of which fewer are the same, the
    precision is lower. The value is :func:`certified` where the pairs suffice for that, else the
    estimate, whose bootstrap interval is given in both cases.

    ``scores``: (n,) of pairs. ``same``: (n,) whether each pair is the same.
    """
    if not 0 < precision < 1:
        raise OptionError("--precision", precision, "must lie between 0 and 1")
    s, y = np.asarray(scores, dtype=np.float64), np.asarray(same, dtype=bool)
    if len(s) < FEWEST:
        raise DataError(f"{len(s)} pairs are too few for a threshold; {FEWEST} are needed")
    if y.all() or not y.any():
        kind = "the same" if y.all() else "different"
        raise DataError(f"all {len(s):,} pairs are {kind}; a threshold parts two kinds of pairs")
    estimate = lowest_with_precision(s, y, precision)
    if estimate is None:
        raise DataError(
            f"at no score are {precision:g} of the pairs the same; the pairs nearest to each "
            "other are often different: a lower --precision, or another model"
        )
    low, high = _interval(s, y, precision, seed)
    sure = certified(s, y, precision)
    value = estimate if sure is None else sure
    found = float((s[y] >= value).mean())
    return Threshold(value, low, high, "pairs", precision, sure is not None, len(s), found)


def certified(
    scores: Floats, same: NDArray[np.bool_], precision: float, confidence: float = CONFIDENCE
) -> float | None:
    """The lowest score whose precision is proven, or None.

    ``scores``: (n,) of independent pairs. ``same``: (n,) whether each is the same.
    """
    from scipy.stats import binom

    order = np.argsort(-scores, kind="stable")
    s, wrong = scores[order], np.cumsum(~same[order])
    level = (1 - confidence) / LOOKS
    least = int(np.ceil(np.log(level) / np.log(precision)))  # with no pair wrong among them
    best = None
    for count in np.unique(np.linspace(least, max(least, len(s) - 1), LOOKS).astype(int)):
        if count >= len(s):
            break
        above = int((s > s[count]).sum())  # fewer than count where scores are equal
        if above and binom.cdf(wrong[above - 1], above, 1 - precision) <= level:
            best = float(np.nextafter(s[count], np.inf))
    return best


def lowest_with_precision(
    scores: Floats, same: NDArray[np.bool_], precision: float, weight: ArrayLike | None = None
) -> float | None:
    """The lowest score at and above which so large a share of the pairs is the same.

    ``scores``: (n,) of pairs. ``same``: (n,) whether each is the same. ``weight``: (n,) how often
    each pair counts.
    """
    order = np.argsort(-scores, kind="stable")
    s = scores[order]
    w = np.ones(len(s)) if weight is None else np.asarray(weight, dtype=np.float64)[order]
    right, all_ = np.cumsum(w * same[order]), np.cumsum(w)
    last = np.append(s[1:] != s[:-1], True)  # of equal scores all count, or none
    reached = np.flatnonzero(last & (right >= precision * all_) & (all_ > 0))
    return float(s[reached[-1]]) if len(reached) else None


def _interval(s: Floats, y: NDArray[np.bool_], precision: float, seed: int) -> Bounds:
    blocks = draw_counts([len(s)], RESAMPLES, seed)
    drawn = [lowest_with_precision(s, y, precision, c) for block in blocks for c in block]
    # Where no score has the precision, the threshold is beyond all of them.
    return interval([float(s.max()) if value is None else value for value in drawn])


def conformal_bound(scores: ArrayLike, alpha: float) -> float:
    """A bound that the next score exceeds with a chance of at most alpha, whatever their law.

    Split conformal prediction (Vovk, Gammerman and Shafer, 2005, Proposition 2.4): of n + 1
    exchangeable scores the last is among the k smallest with a chance of at least k / (n + 1).

    ``scores``: (n,) exchangeable with the next. ``alpha``: in (0, 1).
    """
    s = np.sort(np.asarray(scores, dtype=np.float64))
    k = int(np.ceil((len(s) + 1) * (1 - alpha) - 1e-9))
    return float(s[k - 1]) if k <= len(s) else float("inf")


def from_random(
    scores: ArrayLike, neighbours: ArrayLike, *, alpha: float = 0.001, at: str = "--alpha"
) -> Threshold:
    """The score that a pair taken at random reaches with a chance of at most alpha.

    ``scores``: (n,) of pairs taken at random. ``neighbours``: (m,) of rows with the nearest other
    row.
    """
    from scipy.stats import binom

    if not 0 < alpha < 1:
        raise OptionError(at, alpha, "must lie between 0 and 1")
    s = np.sort(np.asarray(scores, dtype=np.float64))
    bound = conformal_bound(s, alpha)
    if np.isinf(bound):
        least = int(np.ceil(1 / alpha)) - 1
        problem = f"needs at least {least:,} random pairs; there are {len(s):,}"
        raise OptionError(at, alpha, problem)
    # Order statistics: how many scores are below the true quantile is binomial, whatever their law.
    below = np.asarray(binom.ppf([0.025, 0.975], len(s), 1 - alpha), dtype=int)
    low, high = s[np.clip(below + np.array([-1, 0]), 0, len(s) - 1)]
    value = float(np.nextafter(bound, np.inf))
    found = float((np.asarray(neighbours) >= value).mean())
    return Threshold(value, float(low), float(high), "random", alpha, True, len(s), found)


@dataclass(frozen=True, slots=True)
class Shift:
    """Where a threshold must move.

    Attributes:
        new: of the other model, with as large a share of hits above it; or with rated pairs, with
            the same precision. None where there is none.
        low: lower end of its 95 % interval.
        kept: "share" of hits, or "precision" of pairs.
    """

    old: float
    new: float | None
    low: float | None
    high: float | None
    kept: str
    at: float


def shift_by_share(
    threshold: float, old: ArrayLike, new: ArrayLike, *, resamples: int = 300, seed: int = 0
) -> Shift:
    """The threshold above which as many hits are as above the old one; queries are resampled.

    ``old``: (q, k) scores of what the old model finds. ``new``: (q, k) those of the new model.
    """
    a, b = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
    above = (a >= threshold).sum(axis=1)
    share = float(above.mean() / a.shape[1])
    if share == 0:
        return Shift(threshold, None, None, None, "share", 0.0)
    flat = b.ravel()
    order = np.argsort(-flat, kind="stable")
    query, falling = order // b.shape[1], flat[order]

    def place(counts: NDArray[Any]) -> float:
        at = int(np.searchsorted(np.cumsum(counts[query]), counts @ above))
        return float(falling[min(at, len(falling) - 1)])

    value = place(np.ones(len(a)))
    blocks = draw_counts([len(a)], resamples, seed)
    low, high = interval([place(c.astype(np.float64)) for block in blocks for c in block])
    return Shift(threshold, value, low, high, "share", share)


def shift_by_precision(
    threshold: float,
    old: ArrayLike,
    new: ArrayLike,
    same: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Shift:
    """The lowest threshold at which pairs are as often the same as above the old one.

    ``old``: (n,) scores of pairs by the old model. ``new``: (n,) by the new model. ``same``: (n,)
    whether each pair is the same.
    """
    a, b = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
    y = np.asarray(same, dtype=bool)
    reached = a >= threshold
    if not reached.any():
        raise DataError(f"no pair reaches the threshold {threshold:g}: it has no precision")

    def place(weight: NDArray[Any]) -> float | None:
        total = (weight * reached).sum()
        wanted = (weight * (reached & y)).sum() / total if total else 1.0
        return lowest_with_precision(b, y, wanted, weight)

    value = place(np.ones(len(a)))
    drawn = [place(c) for block in draw_counts([len(a)], resamples, seed) for c in block]
    low, high = interval([b.max() if found is None else found for found in drawn])
    return Shift(threshold, value, low, high, "precision", float(y[reached].mean()))
