"""Rankings of two models: how far they agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent import metrics
from contrasent.stats.bootstrap import interval, item_keys, resampled
from contrasent.types import Vectors

AT = (1, 10, 100)
PERSISTENCE = 0.9  # of rank-biased overlap: the first ten ranks have about 86 % of the weight
PARTS, PARTINGS = 5, 4
"""Groups of documents that are left out in turn, and how often they are drawn anew. Of few groups
the error is right: the jackknife of a rank-based mean is too large where little is left out."""
RESAMPLES = 1000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
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
    """By measure (q,) values of each query: overlap@1, @10, @100 as far as k goes, and RBO."""
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
    """Ranks beyond ``depth`` that leaving out a group of documents may need."""
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
    intervals = []
    for at, name in enumerate(names):
        low, high = (
            np.clip(interval(drawn[:, at]), 0.0, 1.0).round(6).tolist()
        )  # counts are float32
        intervals.append(MeanInterval(name, float(table[:, at].mean()), low, high))
    return tuple(intervals)


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


def score_quantiles(
    ranked: Mapping[str, Ranked],
    queries: Mapping[str, Vectors],
    documents: Mapping[str, Vectors],
    own: NDArray[np.int64] | None,
    random: np.random.Generator,
) -> dict[str, dict[str, list[float]]]:
    """Quantiles of scores at ranks 1 and 10, and of queries with documents taken at random."""
    count, total = len(queries["old"]), len(documents["old"])
    left = np.tile(np.arange(count), 10)
    right = random.integers(0, total, len(left))
    if own is not None:
        right = np.where(right == own[left], (right + 1) % total, right)
    columns = {"first hit": 0, "tenth hit": 9}
    quantiles_of: dict[str, dict[str, list[float]]] = {}
    for kind in (*columns, "random pair"):
        for name, one in ranked.items():
            if kind == "random pair":
                values = np.einsum("ij,ij->i", queries[name][left], documents[name][right])
            elif one.scores.shape[1] > columns[kind]:
                values = one.scores[:, columns[kind]]
            else:
                continue
            quantiles = np.quantile(values.astype(np.float64), QUANTILES)
            quantiles_of.setdefault(kind, {})[name] = [round(q, 6) for q in quantiles.tolist()]
    return quantiles_of
