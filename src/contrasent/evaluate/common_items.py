"""Items that reports have in common: paired, checked, and how far each moves each run's score."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError
from contrasent.evaluate.influence import measure
from contrasent.report import Items, Report, Row, RowKey

Floats = NDArray[np.float64]


def _resolved(report: Report, key: RowKey, weight: float = 1.0) -> list[tuple[float, Items]] | None:
    """The items that a row rests on, and the weight of each group of them; None if unknown."""
    found = report.items.get(key)
    if found is None or isinstance(found, Items):
        return None if found is None else [(weight, found)]
    parts = [_resolved(report, k, weight / len(found)) for k in found]
    return None if None in parts else [pair for part in parts if part is not None for pair in part]


def item_moves(
    rows: Sequence[Row], reports: Sequence[Report], names: Sequence[str]
) -> Floats | None:
    """(runs, distinct items) how far each moves a run's score; None if a run has no items.

    Raises:
        DataError: items, labels or documents that differ between reports, or from the row's.
    """
    known = [own for r in reports if (own := _resolved(r, rows[0].key)) is not None]
    if len(known) < len(reports):
        return None
    label = " ".join(filter(None, rows[0].key))
    keys, influences = [], []
    for group in zip(*known, strict=True):
        orders = [np.argsort(items.keys, kind="stable") for _, items in group]
        keys.append(_check(label, [items for _, items in group], orders, names))
        found = [measure(items) for _, items in group]
        for row, name, (value, _) in zip(rows, names, found, strict=True):
            if len(known[0]) == 1 and abs(value - row.value) > 1e-6:
                raise DataError(
                    f"{name}: the items of {label} are another report's; write it again"
                )
        moves = [w * m[o] for (w, _), (_, m), o in zip(group, found, orders, strict=True)]
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
        same = len(np.intersect1d(keys, other))
        if not np.array_equal(keys, other):
            counts = f"{len(keys):,} and {len(other):,} items, {same:,} distinct ones in both"
            raise DataError(f"{label}: {names[0]} and {name} hold different items ({counts})")
        if not np.array_equal(gold, its_gold) or context != its_context:
            what = "labels" if context == its_context else "documents or settings"
            raise DataError(f"{label}: {names[0]} and {name} have the same items, other {what}")
    return keys


def item_error(moved: Floats | None, first: int) -> tuple[float, float, list[float]]:
    """Of an influence matrix: what is known of the difference over items.

    Returns:
        Its standard error, the error's degrees of freedom, and of each arm the part of a run's
        variance that other items would change.
    """
    if moved is None:
        return 0.0, math.inf, [0.0, 0.0]
    count = moved.shape[1]
    scale = count / (count - 1)
    arms = (moved[:first], moved[first:])
    gaps = arms[1].mean(axis=0) - arms[0].mean(axis=0)
    parts = [
        float(((arm - arm.mean(axis=0)) ** 2).sum() / (len(arm) - 1) * scale)
        if len(arm) > 1
        else 0.0
        for arm in arms
    ]
    return math.sqrt(float((gaps**2).sum()) * scale), count - 1, parts
