"""A user's own labelled pairs: Spearman's and Pearson's correlation of cosine and label."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from contrasent.errors import DataError
from contrasent.evaluate.sheet import Sheet
from contrasent.evaluate.sts import METRICS, add_correlations
from contrasent.evaluate.vectors import encode_distinct
from contrasent.report import Report
from contrasent.stats.bootstrap import FEWEST, RESAMPLES
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
    sides = [side for p in files.values() for side in (p.first, p.second)]
    encoded, sheet = encode_distinct(encode, sides), Sheet()
    for task, found in files.items():
        add_correlations(sheet, task, split, [found], encoded, resamples=resamples, seed=seed)
    for metric in METRICS if len(files) > 1 else ():
        sheet.average(AVERAGE, tuple(files), split, metric, "", "mean")
    notes: dict[str, int | str] = {"resamples": resamples, "seed": seed, **encoded.notes}
    few = [f"{len(found)} pairs" for found in files.values() if len(found) < FEWEST]
    if few:
        notes["interval"] = f"none: {', '.join(few)} are too few, {FEWEST} are needed"
    return sheet.report(notes)


def check_pairs(
    first: Sequence[str], second: Sequence[str], scores: ArrayLike, task: str
) -> ScoredPairs:
    """Labelled pairs that can be measured.

    Args:
        first: n sentences.
        second: n sentences.
        scores: (n,) labels.
        task: their name.

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
