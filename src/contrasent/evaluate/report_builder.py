"""A report in the making: rows with their intervals, the items behind them, and means of rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.report import Items, ItemsByRow, Report, Row
from contrasent.stats.bootstrap import FEWEST, Keys, interval, mean_draws

Floats = NDArray[np.float64]
NONE = np.empty(0)  # the draws of what was not resampled


class ReportBuilder:
    """The rows of a report, in order."""

    def __init__(self) -> None:
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
        """Add a row; of fewer than 20 items without an interval."""
        draws = draws if count >= FEWEST else NONE
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
        resamples: int,
        seed: int | Sequence[int] = 0,
        keys: Keys | None = None,
        keyed: bool = True,
        context: str = "",
        aggregate: str = "",
    ) -> None:
        """Add the mean of a value an item."""
        # `values`: (n,) of the items. `keys`: (n,) of the items; with them reports can be compared
        # item by item.
        v = np.asarray(values, dtype=np.float64)
        items = Items("mean", keys, v[None], context=context) if keys is not None else None
        number = resamples if len(v) >= FEWEST else 0
        draws = mean_draws(v, number, seed, keys if keyed else None)
        value = float(v.mean())
        self.add(task, split, metric, value, len(v), aggregate=aggregate, draws=draws, items=items)

    def average(
        self, task: str, over: Sequence[str], split: str, metric: str, aggregate: str, name: str
    ) -> None:
        """Add the plain mean of rows of several tasks, resampled together."""
        places = {row.key: i for i, row in enumerate(self.rows)}
        found = [places[own, split, metric, aggregate] for own in over]
        rows, draws = [self.rows[i] for i in found], [self._draws[i] for i in found]
        whole = np.mean(draws, axis=0) if all(map(len, draws)) else NONE
        value, count = sum(row.value for row in rows) / len(rows), sum(row.count for row in rows)
        self.add(task, split, metric, value, count, aggregate=name, draws=whole)
        if all(row.key in self.items for row in rows):
            self.items[self.rows[-1].key] = tuple(row.key for row in rows)

    def report(self, notes: dict[str, Any]) -> Report:
        """The report of all rows, with these notes."""
        return Report(tuple(self.rows), notes, self.items)
