"""Semantic textual similarity: do cosines order pairs as people do?

The protocol of SimCSE and its successors (SimCSE, Appendix B): cosine of the two vectors, no
regressor, the test split, Spearman's correlation, and ``all``: one correlation over the
concatenated subsets of a year. ``mean`` and ``wmean`` average the subsets' correlations, plainly
and by their number of pairs (SentEval prints these two).
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError, OptionError, check_choice
from contrasent.evaluate.bootstrap import (
    FEWEST,
    RESAMPLES,
    Counts,
    RankedPairs,
    bounds,
    item_keys,
    resampled,
    weighted_pearson,
)
from contrasent.evaluate.vectors import check_spread, encode_distinct
from contrasent.metrics import cosine, pearson, spearman
from contrasent.report import Items, ItemsByRow, Report, Row
from contrasent.text.datasets import ScoredPairs, sts_pairs
from contrasent.text.official import STS_TASKS
from contrasent.types import EncodeFn

AGGREGATES = ("all", "mean", "wmean")
METRICS = ("spearman", "pearson")
AVERAGE = "STS7"

Floats = NDArray[np.float64]


def sts(
    encode: EncodeFn,
    *,
    tasks: Sequence[str] = STS_TASKS,
    form: str = "senteval",
    aggregate: str | Sequence[str] = "all",
    split: str = "test",
    subsets: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: Path | None = None,
) -> Report:
    """Score a model on semantic textual similarity.

    Each distinct sentence of all tasks is encoded once, in one call. A set without subsets (STSB,
    SICKR) has the same value under every aggregate. When the seven sets of the papers are all
    there, rows of task "STS7" hold the plain mean of their unrounded values.

    Args:
        encode: the model.
        tasks: names that :func:`contrasent.text.datasets.sts_pairs` knows.
        form: "senteval" (tokenised and lower-cased, the papers' form) or "raw" (MTEB's form).
        aggregate: "all", "mean", "wmean", or several of them.
        split: "test", "dev" or "train".
        subsets: also give a row for each subset, as "STS12/MSRpar".
        resamples: bootstrap resamples over pairs (inside each subset, a pair of several sets in all
            of them together) for the 95 % intervals; 0 for none.
        seed: of the bootstrap.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.

    Returns:
        Rows of metric "spearman" and "pearson". The notes name the form, the protocol, the number
        of distinct sentences, and of zero vectors if there were any (their cosines count as 0).

    Raises:
        OptionError: an unknown name.
        DataError: data that are missing or not official, vectors that are not finite, or cosines
            that are all equal.
    """
    wanted = (aggregate,) if isinstance(aggregate, str) else tuple(aggregate)
    for name in wanted:
        check_choice("aggregate", name, AGGREGATES)
    if not tasks:
        raise OptionError("tasks", "", "name at least one task")
    data = {task: sts_pairs(task, split=split, form=form, folder=folder) for task in tasks}
    parts = [part for found in data.values() for part in found]
    encoded = encode_distinct(encode, [side for p in parts for side in (p.first, p.second)])
    rows: list[Row] = []
    draws: dict[tuple[str, str, str], Floats] = {}
    items: ItemsByRow = {}
    for task, found in data.items():
        similarities = [cosine(encoded(part.first), encoded(part.second)) for part in found]
        scored = ScoredTask(task, split, found, similarities, resamples, seed)
        rows += scored.rows(wanted, subsets)
        draws |= {(task, m, a): scored.draw(m, a) for m in METRICS for a in wanted}
        items |= scored.items(wanted, subsets)
    if set(STS_TASKS) <= set(data):
        rows += _averages(rows, draws, wanted, split)
        for m, a in itertools.product(METRICS, wanted):
            items[AVERAGE, split, m, a] = tuple((task, split, m, a) for task in STS_TASKS)
    notes = {
        "form": form,
        "protocol": "cosine, no regressor, bootstrap over distinct pairs within subsets",
        "resamples": resamples,
        "seed": seed,
        **encoded.notes,
    }
    return Report(tuple(rows), notes, items)


class ScoredTask:
    """One task's cosines and gold scores, and its statistics over the pairs and over resamples.

    Args:
        task: name of the task.
        split: name of the split.
        parts: its subsets.
        similarities: (n,) cosines of each subset's pairs.
        number: bootstrap resamples; 0 for none.
        seed: of the bootstrap.

    Attributes:
        joined: (n,) cosines of all subsets' pairs.
        gold: (n,) gold scores.
        keys: (n,) of the pairs, see :func:`contrasent.evaluate.bootstrap.item_keys`.
        sizes: of the subsets, in which pairs are resampled.
    """

    def __init__(
        self,
        task: str,
        split: str,
        parts: Sequence[ScoredPairs],
        similarities: Sequence[Floats],
        number: int,
        seed: int,
    ) -> None:
        self.task, self.split, self.parts = task, split, parts
        self.similarities = similarities
        self.sizes = [len(part) for part in parts]
        self.joined = np.concatenate(similarities)
        self.gold = np.concatenate([part.scores for part in parts])
        self.keys = np.concatenate([item_keys(part.first, part.second) for part in parts])
        check_spread(self.joined, task)
        self.values, self.part_values = self._measure()
        self.draws, self.part_draws = self._resample(number, seed)

    def _measure(self) -> tuple[dict[str, float], dict[str, Floats]]:
        measures = {"spearman": spearman, "pearson": pearson}
        whole = {m: f(self.joined, self.gold) for m, f in measures.items()}
        if len(self.parts) == 1:
            return whole, {m: np.array([v]) for m, v in whole.items()}
        pairs = list(zip(self.similarities, self.parts, strict=True))
        return whole, {m: np.array([f(s, p.scores) for s, p in pairs]) for m, f in measures.items()}

    def _resample(self, number: int, seed: int) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Statistics over resamples: (r,) for the whole, (r, parts) for the parts."""
        columns = [(self.joined, self.gold)]
        ends = np.cumsum(self.sizes)
        spans = [slice(None), *(slice(e - n, e) for e, n in zip(ends, self.sizes, strict=True))]
        if len(self.parts) > 1:
            columns += [(s, p.scores) for s, p in zip(self.similarities, self.parts, strict=True)]
        ranked = [RankedPairs(*pair) for pair in columns]

        def spearman_of(counts: Counts) -> Floats:
            found = [r.spearman(counts[:, s]) for r, s in zip(ranked, spans, strict=False)]
            return np.stack(found, axis=1)

        def pearson_of(counts: Counts) -> Floats:
            found = [
                weighted_pearson(*pair, counts[:, s])
                for pair, s in zip(columns, spans, strict=False)
            ]
            return np.stack(found, axis=1)

        statistics = {"spearman": spearman_of, "pearson": pearson_of}
        draws = resampled(statistics, self.sizes, number, seed, self.keys)
        draws = {m: drawn.reshape(len(drawn), len(columns)) for m, drawn in draws.items()}
        whole = {m: drawn[:, 0] for m, drawn in draws.items()}
        return whole, {m: d[:, 1:] if len(columns) > 1 else d for m, d in draws.items()}

    def value(self, metric: str, aggregate: str) -> float:
        """A correlation of the task."""
        if aggregate in ("all", ""):
            return self.values[metric]
        weights = self.sizes if aggregate == "wmean" else None
        return float(np.average(self.part_values[metric], weights=weights))

    def draw(self, metric: str, aggregate: str) -> Floats:
        """(r,) the same of each resample."""
        if aggregate in ("all", "") or not len(self.draws[metric]):
            return self.draws[metric]
        weights = self.sizes if aggregate == "wmean" else None
        drawn: Floats = np.average(self.part_draws[metric], axis=1, weights=weights)
        return drawn

    def rows(self, aggregates: Sequence[str], subsets: bool = False) -> list[Row]:
        """Rows of the task and, if wanted, of its subsets; aggregate "" is "all" without a name."""
        found = [
            self._row(self.task, m, a, self.value(m, a), len(self.joined), self.draw(m, a))
            for m in METRICS
            for a in aggregates
        ]
        if subsets and len(self.parts) > 1:
            found += [
                self._row(
                    f"{self.task}/{part.name}",
                    m,
                    "",
                    float(self.part_values[m][i]),
                    len(part),
                    self.part_draws[m][:, i],
                )
                for i, part in enumerate(self.parts)
                for m in METRICS
            ]
        return found

    def items(self, aggregates: Sequence[str], subsets: bool = False) -> ItemsByRow:
        """The pairs behind each of :meth:`rows`."""
        columns, sizes = np.stack([self.joined, self.gold]), tuple(self.sizes)
        found: ItemsByRow = {
            (self.task, self.split, m, a): Items(m, self.keys, columns, sizes, a or "all")
            for m in METRICS
            for a in aggregates
        }
        if subsets and len(sizes) > 1:
            ends = np.cumsum(sizes)
            for part, left, right in zip(self.parts, ends - sizes, ends, strict=True):
                keys, own = self.keys[left:right], columns[:, left:right]
                for m in METRICS:
                    name = f"{self.task}/{part.name}"
                    found[name, self.split, m, ""] = Items(m, keys, own)
        return found

    def _row(
        self, task: str, metric: str, aggregate: str, value: float, count: int, draws: Floats
    ) -> Row:
        if np.isnan(value):
            raise DataError(f"{task}: {metric} is undefined; all cosines of a subset are equal")
        limits = bounds(draws) if count >= FEWEST else (None, None)
        return Row(task, self.split, metric, aggregate, value, count, *limits)


def _averages(
    rows: Sequence[Row],
    draws: dict[tuple[str, str, str], Floats],
    aggregates: Sequence[str],
    split: str,
) -> list[Row]:
    report = Report(tuple(rows))
    found = []
    for metric in METRICS:
        for name in aggregates:
            value = report.average(STS_TASKS, metric=metric, aggregate=name)
            mean = np.mean([draws[task, metric, name] for task in STS_TASKS], axis=0)
            count = sum(report.one(task=t, metric=metric, aggregate=name).count for t in STS_TASKS)
            found.append(Row(AVERAGE, split, metric, name, value, count, *bounds(mean)))
    return found
