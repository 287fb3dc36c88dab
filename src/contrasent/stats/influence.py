"""How far each item moves a report's numbers: influences (infinitesimal jackknife; Efron, 1982).

An influence is the derivative by the item's weight over n: influences sum to zero, their squares to
the variance over items; of runs and tasks they subtract, average and add up by item.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.report import Items, Report, Row, RowKey, key_text
from contrasent.stats.bootstrap import draw_counts

Floats = NDArray[np.float64]


def measure(items: Items) -> tuple[float, Floats]:
    """The statistic of the items, and how far each of them moves it."""
    if items.statistic not in metrics.STATISTICS:
        raise DataError(f"items of an unknown statistic, {items.statistic!r}")
    compute = metrics.STATISTICS[items.statistic]
    columns = np.asarray(items.columns, dtype=np.float64)
    sizes = np.array(items.sizes or [columns.shape[1]])
    cuts = np.cumsum(sizes)[:-1]
    if items.aggregate == "all":
        total, moved = compute(columns)
        # Subsets are strata: their means are not random.
        centered = [part - part.mean() for part in np.split(moved / columns.shape[1], cuts)]
        return total, np.concatenate(centered)
    weights = sizes / sizes.sum() if items.aggregate == "wmean" else np.full(len(sizes), 1.0)
    weights = weights / weights.sum()
    results = [compute(part) for part in np.split(columns, cuts, axis=1)]
    total = float(sum(w * v for w, (v, _) in zip(weights, results, strict=True)))
    scaled = [w * m / len(m) for w, (_, m) in zip(weights, results, strict=True)]
    return total, np.concatenate(scaled)


def _resolved(report: Report, key: RowKey, weight: float = 1.0) -> list[tuple[float, Items]] | None:
    """The items that a row rests on, and the weight of each group of them; None if unknown."""
    items = report.items.get(key)
    if items is None or isinstance(items, Items):
        return None if items is None else [(weight, items)]
    parts = [_resolved(report, k, weight / len(items)) for k in items]
    return None if None in parts else [pair for part in parts if part is not None for pair in part]


def shared_draws(report: Report, number: int) -> dict[RowKey, Floats]:
    """How far each row moves in resamples of its items, to first order.

    Equal items count equally often in every report, so that the differences of two
    reports' draws vary as the reports' difference does over items, without the items themselves.
    """
    draws_of = {key: row_draws(report, key, number) for key in report.items}
    return {key: draws for key, draws in draws_of.items() if len(draws)}


def row_draws(report: Report, key: RowKey, number: int) -> Floats:
    """How far one row moves in the resamples of :func:`shared_draws`."""
    known = _resolved(report, key) or []
    if not known:
        return np.empty(0)
    moves = np.concatenate([weight * measure(items)[1] for weight, items in known])
    keys = np.concatenate([items.keys for _, items in known])
    distinct, place = np.unique(keys, return_inverse=True)
    moved = np.bincount(place, moves, len(distinct))
    drawn = draw_counts([len(distinct)], number, 0, distinct)
    return np.concatenate([counts @ moved for counts in drawn])


def item_moves(
    rows: Sequence[Row], reports: Sequence[Report], names: Sequence[str]
) -> Floats | None:
    """(runs, distinct items) how far each moves a run's score; None if a run has no items."""
    known = [resolved for r in reports if (resolved := _resolved(r, rows[0].key)) is not None]
    if len(known) < len(reports):
        return None
    label = key_text(rows[0].key)
    for name, own in zip(names, known, strict=True):
        if len(own) != len(known[0]):
            sets = f"{len(known[0])} and on {len(own)} sets; measure both on the same"
            raise DataError(f"{label}: in {names[0]} and {name} it rests on {sets}")
    keys, influences = [], []
    for group in zip(*known, strict=True):
        orders = [np.argsort(items.keys, kind="stable") for _, items in group]
        keys.append(_check(label, [items for _, items in group], orders, names))
        measured = [measure(items) for _, items in group]
        for row, name, (value, _) in zip(rows, names, measured, strict=True):
            if len(known[0]) == 1 and abs(value - row.value) > 1e-6:
                raise DataError(
                    f"{name}: the items of {label} belong to another report; write it again"
                )
        moves = [w * m[o] for (w, _), (_, m), o in zip(group, measured, orders, strict=True)]
        influences.append(np.stack(moves))
    distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
    joined = np.concatenate(influences, axis=1)
    return np.stack([np.bincount(place, run, len(distinct)) for run in joined])


def _check(
    label: str, items: Sequence[Items], orders: Sequence[NDArray[np.int64]], names: Sequence[str]
) -> NDArray[np.uint64]:
    """The items' keys in order: they and the gold columns must be the same in every report."""
    ordered = [(i.keys[o], i.columns[1:, o], i.context) for i, o in zip(items, orders, strict=True)]
    keys, gold, context = ordered[0]
    for (other, its_gold, its_context), name in zip(ordered[1:], names[1:], strict=True):
        if not np.array_equal(keys, other):
            same = len(np.intersect1d(keys, other))
            counts = f"{len(keys):,} and {len(other):,} items, {same:,} distinct ones in both"
            raise DataError(f"{label}: {names[0]} and {name} have different items ({counts})")
        if not np.array_equal(gold, its_gold) or context != its_context:
            what = "labels" if context == its_context else "documents, judgments or settings"
            problem = f"{names[0]} and {name} have the same items but different {what}"
            again = "; evaluate both again if an older version wrote one" * (what != "labels")
            raise DataError(f"{label}: {problem}{again}")
    return keys


def item_error(moved: Floats | None, first: int) -> tuple[float, float, list[float]]:
    """The difference's error over items, from an influence matrix."""
    if moved is None:
        return 0.0, math.inf, [0.0, 0.0]
    count = moved.shape[1]
    scale = count / (count - 1)
    arms = (moved[:first], moved[first:])
    gaps = arms[1].mean(axis=0) - arms[0].mean(axis=0)
    squares = [float(((arm - arm.mean(axis=0)) ** 2).sum()) for arm in arms]
    parts = [sums / max(len(arm) - 1, 1) * scale for sums, arm in zip(squares, arms, strict=True)]
    return math.sqrt(float((gaps**2).sum()) * scale), count - 1, parts
