"""A user's own labelled pairs: Spearman's and Pearson's correlation of cosine and label."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from contrasent.errors import DataError
from contrasent.evaluate.bootstrap import (
    FEWEST,
    RESAMPLES,
    RankedPairs,
    draw_counts,
    interval,
    weighted_pearson,
)
from contrasent.evaluate.vectors import check_spread, encode_distinct
from contrasent.metrics import cosine, pearson, spearman
from contrasent.report import Report, Row
from contrasent.types import EncodeFn

FEWEST_PAIRS = 3


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
        resamples: bootstrap resamples over pairs; 0 for no intervals.
        seed: of the bootstrap.

    Returns:
        Two rows, "spearman" and "pearson". With fewer than 20 pairs they have no interval, and a
        note says so.

    Raises:
        DataError: lengths that differ, fewer than 3 pairs, labels that are not finite numbers or
            all equal, vectors that are not finite, or cosines that are all equal.
    """
    gold = np.asarray(scores, dtype=np.float64)
    _check(first, second, gold, task)
    encoded = encode_distinct(encode, [first, second])
    similarity = cosine(encoded(first), encoded(second))
    check_spread(similarity, task)
    notes: dict[str, int | str] = {"resamples": resamples, "seed": seed, **encoded.notes}
    values = {"spearman": spearman(similarity, gold), "pearson": pearson(similarity, gold)}
    bounds: dict[str, tuple[float, float] | tuple[None, None]] = dict.fromkeys(values, (None, None))
    if len(gold) < FEWEST:
        notes["interval"] = f"none: {len(gold)} pairs are too few, {FEWEST} are needed"
    elif resamples:
        ranked = RankedPairs(similarity, gold)
        ranks, moments = [], []
        for counts in draw_counts([len(gold)], resamples, seed):
            ranks.append(ranked.spearman(counts))
            moments.append(weighted_pearson(similarity, gold, counts))
        bounds = {
            "spearman": interval(np.concatenate(ranks)),
            "pearson": interval(np.concatenate(moments)),
        }
    rows = [Row(task, split, m, "", v, len(gold), *bounds[m]) for m, v in values.items()]
    return Report(tuple(rows), notes)


def _check(first: Sequence[str], second: Sequence[str], gold: np.ndarray, task: str) -> None:
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
