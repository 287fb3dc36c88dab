"""Two methods side by side: the difference, its interval over pairs and seeds, and what it means.

Two sources of chance are kept apart and added up. The pairs of a test set are resampled, both arms
on the same resamples. Runs with other seeds are a second source: with the three to five runs that
one has, a plain bootstrap of runs is far too sure of itself (three runs have ten resamples), so
deviations over seeds are drawn from Student's t with Welch's degrees of freedom instead. With one
run an arm only the pairs vary, and the result is about these two models, not about their methods.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import DataError
from contrasent.evaluate import power
from contrasent.evaluate.bootstrap import RankedPairs, draw_counts, interval
from contrasent.evaluate.significance import bootstrap_p
from contrasent.evaluate.sts import AVERAGE
from contrasent.evaluate.vectors import check_spread, encode_distinct
from contrasent.metrics import cosine, spearman
from contrasent.report import Report, shown
from contrasent.text.datasets import sts_pairs
from contrasent.text.official import STS_TASKS
from contrasent.types import EncodeFn

RESAMPLES = 2000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Method B against method A on one task.

    Attributes:
        task: what was measured on.
        metric: how.
        before: mean score of A's runs.
        after: mean score of B's runs.
        difference: after less before.
        low: lower end of its 95 % interval.
        high: upper end of it.
        p: two-sided p of no difference, from the same draws as the interval.
        runs: how many runs A and B have.
        seed_p: permutation p over the runs; None with one run an arm.
        deviation: pooled standard deviation over seeds; None with one run an arm.
        detectable: the smallest true difference that so many runs find four times in five.
        needed: runs an arm that would find the observed difference four times in five.
        count: pairs or queries that the scores rest on.
    """

    task: str
    metric: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    p: float
    runs: tuple[int, int]
    seed_p: float | None
    deviation: float | None
    detectable: float | None
    needed: int | None
    count: int

    def to_json(self) -> dict[str, Any]:
        """A dictionary that ``json.dump`` writes."""
        return asdict(self)

    def line(self) -> str:
        """One line for a terminal, correlations and rates times 100."""
        values = (self.before, self.after, self.difference, self.low, self.high)
        a, b, d, low, high = (shown(self.metric, v) for v in values)
        text = f"{self.task:<10} {a:>7} {b:>7} {d:>7}  [{low}, {high}]  p {self.p:.4f}"
        if self.deviation is None:
            return text
        more = "" if self.needed is None else f", {self.needed} runs an arm to be sure"
        return (
            f"{text}  over seeds: p {self.seed_p:.3f}, sd {shown(self.metric, self.deviation)}, "
            f"detectable {shown(self.metric, self.detectable or 0.0)}{more}"
        )


def compare_sts(
    before: Sequence[EncodeFn],
    after: Sequence[EncodeFn],
    *,
    tasks: Sequence[str] = STS_TASKS,
    form: str = "senteval",
    split: str = "test",
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: Path | None = None,
) -> list[Comparison]:
    """Compare two methods on STS by Spearman's correlation, ``all`` aggregation.

    Args:
        before: method A, a model for each seed.
        after: method B, a model for each seed.
        tasks: names that :func:`contrasent.text.datasets.sts_pairs` knows.
        form: "senteval" or "raw".
        split: "test", "dev" or "train".
        resamples: bootstrap resamples over pairs.
        seed: of the bootstrap.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.

    Returns:
        One comparison a task; with all seven sets, one of their mean, "STS7", at the end.

    Raises:
        DataError: no model in an arm, data that are not official, or vectors that are not finite.
    """
    if not before or not after:
        raise DataError("name at least one model for each arm")
    data = {task: sts_pairs(task, split=split, form=form, folder=folder) for task in tasks}
    texts = [s for parts in data.values() for p in parts for s in (p.first, p.second)]
    arms = []
    for models in (before, after):
        found: list[list[Floats]] = []
        for encode in models:
            # One model's vectors at a time: only the cosines stay.
            encoded = encode_distinct(encode, texts)
            cosines = []
            for task, parts in data.items():
                pairs = [cosine(encoded(p.first), encoded(p.second)) for p in parts]
                cosines.append(np.concatenate(pairs))
                check_spread(cosines[-1], task)
            found.append(cosines)
        arms.append(found)
    results, scores, drawn = [], [], []
    for i, (task, parts) in enumerate(data.items()):
        gold = np.concatenate([p.scores for p in parts])
        sizes = [len(p) for p in parts]
        a, b = ([run[i] for run in arm] for arm in arms)
        values = ([spearman(s, gold) for s in a], [spearman(s, gold) for s in b])
        moved = _moved(a, b, gold, sizes, resamples, (seed, crc32(task.encode())))
        results.append(_compare(task, "spearman", values[0], values[1], moved, len(gold), seed))
        scores.append(values)
        drawn.append(moved)
    if set(STS_TASKS) <= set(data):
        chosen = [list(data).index(t) for t in STS_TASKS]
        mean_a = np.mean([scores[i][0] for i in chosen], axis=0)
        mean_b = np.mean([scores[i][1] for i in chosen], axis=0)
        moved = np.mean([drawn[i] for i in chosen], axis=0)
        count = sum(results[i].count for i in chosen)
        results.append(_compare(AVERAGE, "spearman", mean_a, mean_b, moved, count, seed))
    return results


def compare_reports(before: Sequence[Report], after: Sequence[Report]) -> list[Comparison]:
    """Compare two methods by saved reports, one of each run: only seeds vary.

    Raises:
        DataError: an arm has fewer than two reports, or they share no row.
    """
    if len(before) < 2 or len(after) < 2:
        raise DataError(
            "reports hold no single pairs, so seeds must show the spread: give at least two an "
            "arm, or compare the models themselves"
        )
    tables = [[_values(report) for report in arm] for arm in (before, after)]
    shared = [k for k in tables[0][0] if all(k in t for arm in tables for t in arm)]
    if not shared:
        raise DataError("the reports have no row in common")
    results = []
    for task, split, metric, aggregate in shared:
        a, b = ([t[task, split, metric, aggregate][0] for t in arm] for arm in tables)
        count = tables[0][0][task, split, metric, aggregate][1]
        results.append(_compare(task, metric, a, b, np.zeros(RESAMPLES), count, 0))
    return results


def _values(report: Report) -> dict[tuple[str, str, str, str], tuple[float, int]]:
    return {(r.task, r.split, r.metric, r.aggregate): (r.value, r.count) for r in report}


def _moved(
    before: Sequence[Floats],
    after: Sequence[Floats],
    gold: Floats,
    sizes: Sequence[int],
    resamples: int,
    seed: tuple[int, int],
) -> Floats:
    """How far resampling the pairs moves the difference of the arms' mean correlations."""
    a, b = ([RankedPairs(s, gold) for s in arm] for arm in (before, after))
    draws = np.concatenate(
        [
            np.mean([r.spearman(c) for r in b], axis=0)
            - np.mean([r.spearman(c) for r in a], axis=0)
            for c in draw_counts(sizes, resamples, seed)
        ]
    )
    observed = np.mean([spearman(s, gold) for s in after])
    observed -= np.mean([spearman(s, gold) for s in before])
    moved: Floats = draws - observed
    return moved


def _compare(
    task: str,
    metric: str,
    before: Sequence[float] | Floats,
    after: Sequence[float] | Floats,
    moved: Floats,
    count: int,
    seed: int,
) -> Comparison:
    a, b = np.asarray(before), np.asarray(after)
    difference = float(b.mean() - a.mean())
    error, freedom = power.seed_error(a, b)
    random = np.random.default_rng((seed, 2))
    shaken = error * random.standard_t(freedom, len(moved)) if error else 0.0
    draws = difference + moved + shaken
    low, high = interval(draws)
    deviation = power.pooled_deviation(list(a), list(b))
    few = min(len(a), len(b))
    return Comparison(
        task,
        metric,
        float(a.mean()),
        float(b.mean()),
        difference,
        low,
        high,
        bootstrap_p(draws),
        (len(a), len(b)),
        power.permutation_p(a, b) if deviation is not None else None,
        deviation,
        power.minimum_detectable_effect(deviation, few) if deviation and few > 1 else None,
        _needed(difference, deviation),
        count,
    )


def _needed(difference: float, deviation: float | None) -> int | None:
    if deviation is None:
        return None
    try:
        return power.seeds_needed(difference, deviation)
    except DataError:
        return None
