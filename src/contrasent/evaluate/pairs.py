"""A user's own labelled pairs: Spearman's and Pearson's correlation of cosine and label."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from contrasent.errors import DataError
from contrasent.evaluate.bootstrap import FEWEST, RESAMPLES, bounds
from contrasent.evaluate.sts import METRICS, ScoredTask
from contrasent.evaluate.vectors import encode_distinct
from contrasent.metrics import cosine
from contrasent.report import Report, Row
from contrasent.text.datasets import ScoredPairs
from contrasent.types import EncodeFn

FEWEST_PAIRS = 3
AVERAGE = "pairs"


def pairs(
    encode: EncodeFn,
    first: Sequence[str],
    second: Sequence[str],
    scores: ArrayLike,
    *,
    task: str = "pairs",
    split: str = "heldout",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Report:
    """Score a model on pairs of sentences with a label each, on any scale.

    Args:
        encode: the model.
        first: n sentences.
        second: n sentences.
        scores: (n,) labels: the larger, the more alike.
        task: name of the task in the report.
        split: name of the split in the report.
        resamples: bootstrap resamples over distinct pairs; 0 for no intervals.
        seed: of the bootstrap.

    Returns:
        Two rows, "spearman" and "pearson". With fewer than 20 pairs they have no interval, and a
        note says so.

    Raises:
        DataError: lengths that differ, fewer than 3 pairs, labels that are not finite numbers or
            all equal, vectors that are not finite, or cosines that are all equal.
    """
    found = check_pairs(first, second, scores, task)
    return several_pairs(encode, {task: found}, split=split, resamples=resamples, seed=seed)


def several_pairs(
    encode: EncodeFn,
    files: Mapping[str, ScoredPairs],
    *,
    split: str = "heldout",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Report:
    """Score a model on several sets of labelled pairs, and on their average.

    Args:
        encode: the model.
        files: names of tasks and their pairs, from :func:`check_pairs`.
        split: name of the split in the report.
        resamples: bootstrap resamples over distinct pairs, those of several sets in all of them
            together; 0 for no intervals.
        seed: of the bootstrap.

    Returns:
        The rows of :func:`pairs` for each set; of several also "pairs", aggregate "mean": the plain
        mean of their unrounded values.

    Raises:
        DataError: vectors that are not finite, or cosines that are all equal.
    """
    encoded = encode_distinct(
        encode, [side for p in files.values() for side in (p.first, p.second)]
    )
    tasks = []
    for task, found in files.items():
        similarity = cosine(encoded(found.first), encoded(found.second))
        number = resamples if len(found) >= FEWEST else 0
        tasks.append(ScoredTask(task, split, [found], [similarity], number, seed))
    rows = [row for scored in tasks for row in scored.rows(("",))]
    items = {key: own for scored in tasks for key, own in scored.items(("",)).items()}
    if len(tasks) > 1:
        count = sum(len(found) for found in files.values())
        whole = all(len(found) >= FEWEST for found in files.values()) and resamples
        for m in METRICS:
            value = float(np.mean([scored.value(m, "") for scored in tasks]))
            drawn = np.mean([t.draw(m, "") for t in tasks], axis=0) if whole else np.empty(0)
            rows.append(Row(AVERAGE, split, m, "mean", value, count, *bounds(drawn)))
            items[rows[-1].key] = tuple((task, split, m, "") for task in files)
    notes: dict[str, int | str] = {"resamples": resamples, "seed": seed, **encoded.notes}
    few = [f"{len(found)} pairs" for found in files.values() if len(found) < FEWEST]
    if few:
        notes["interval"] = f"none: {', '.join(few)} are too few, {FEWEST} are needed"
    return Report(tuple(rows), notes, items)


def check_pairs(
    first: Sequence[str], second: Sequence[str], scores: ArrayLike, task: str
) -> ScoredPairs:
    """Labelled pairs that can be measured.

    Raises:
        DataError: lengths that differ, fewer than 3 pairs, or labels that are not finite numbers or
            all equal.
    """
    gold = np.asarray(scores, dtype=np.float64)
    if not len(first) == len(second) == len(gold):
        raise DataError(
            f"{task}: {len(first):,} first sentences, {len(second):,} second sentences and "
            f"{len(gold):,} labels; there must be as many of each"
        )
    if len(gold) < FEWEST_PAIRS:
        raise DataError(f"{task}: {len(gold)} labelled pairs; at least {FEWEST_PAIRS} are needed")
    bad = np.flatnonzero(~np.isfinite(gold))
    if len(bad):
        raise DataError(f"{task}: the label of pair {bad[0] + 1} is {gold[bad[0]]}")
    if gold.min() == gold.max():
        raise DataError(f"{task}: all labels are {gold[0]:g}; nothing can be correlated with them")
    return ScoredPairs(task, tuple(first), tuple(second), gold, task)
