"""Clustering: do groups of similar vectors match the labelled classes?

K-means on vectors of length one, with as many groups as there are classes, scored by the V-measure
(Rosenberg and Hirschberg, 2007). Several starts, since k-means ends where it began.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent import metrics
from contrasent.evaluate.sheet import Sheet
from contrasent.evaluate.vectors import encode_distinct
from contrasent.report import Items, Report
from contrasent.stats.bootstrap import RESAMPLES, item_keys, resampled
from contrasent.text.transfer import Labelled, transfer_set
from contrasent.types import EncodeFn, Vectors

TASKS = ("TREC", "SUBJ")
STARTS = 5
ROUNDS = 30

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def clustering(
    encode: EncodeFn,
    sets: Mapping[str, Labelled] | None = None,
    *,
    starts: int = STARTS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: Path | None = None,
) -> Report:
    """Score the groups that k-means finds by the classes of the texts.

    Args:
        encode: the model.
        sets: texts with classes; by default all of TREC (six kinds of questions) and of SUBJ.
        starts: of k-means; the score is their mean.
        resamples: bootstrap resamples over distinct texts, the groups as they are; 0 for none.
        seed: of the starts and the bootstrap.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.

    Returns:
        Of each set a row "v_measure".

    Raises:
        DataError: data that are missing, or vectors that are not finite.
    """
    data = clustering_sets(folder) if sets is None else sets
    encoded = encode_distinct(encode, [found.first for found in data.values()])
    sheet = Sheet()
    for task, found in data.items():
        n, labels, own = len(found), found.labels, item_keys(found.first)
        vectors, classes = encoded(found.first), len(np.unique(labels))
        groups = [kmeans(vectors, classes, (seed, i)) for i in range(starts)]

        def mean_v(counts: ArrayLike, labels: Integers = labels, groups: Any = groups) -> Floats:
            mean: Floats = np.mean([v_measures(labels, g, counts) for g in groups], axis=0)
            return mean

        value = float(np.mean([v_measure(labels, g) for g in groups]))
        drawn = resampled({"": mean_v}, [n], resamples, seed, own)[""]
        # Each start is a subset that holds all items: their mean, in which a text counts once.
        columns = np.array([groups, [labels] * starts], dtype=float).reshape(2, -1)
        items = Items("v_measure", np.tile(own, starts), columns, (n,) * starts, "mean")
        sheet.add(task, "test", "v_measure", value, n, draws=drawn, items=items)
    return sheet.report({"k-means starts": starts, "seed": seed, "resamples": resamples})


def clustering_sets(folder: Path | None = None) -> dict[str, Labelled]:
    """All texts of TREC and SUBJ with their classes."""
    found = {}
    for task in TASKS:
        parts = list(transfer_set(task, folder=folder).values())
        texts = tuple(text for part in parts for text in part.first)
        found[task] = Labelled(texts, None, np.concatenate([part.labels for part in parts]))
    return found


def kmeans(vectors: Vectors, count: int, seed: int | tuple[int, ...]) -> Integers:
    """(n,) groups of rows scaled to length one; starts by k-means++ (Arthur, Vassilvitskii 2007).

    Args:
        vectors: (n, d).
        count: groups; some may end up empty.
        seed: of the start.
    """
    from scipy.cluster.vq import kmeans2

    unit = metrics.unit(vectors)
    random = np.random.default_rng(seed)
    picked = [int(random.integers(len(unit)))]
    distance = np.full(len(unit), np.inf)
    while len(picked) < count:
        distance = np.minimum(distance, np.maximum(2 - 2 * (unit @ unit[picked[-1]]), 0))
        total = distance.sum()
        share = distance / total if total > 0 else None
        picked.append(int(random.choice(len(unit), p=share)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of an empty group
        _, labels = kmeans2(unit, unit[picked], iter=ROUNDS, minit="matrix")
    return np.asarray(labels, dtype=np.int64)


def v_measure(labels: ArrayLike, groups: ArrayLike) -> float:
    """Harmonic mean of homogeneity and completeness, in [0, 1] (Rosenberg and Hirschberg, 2007).

    Args:
        labels: (n,) classes from 0.
        groups: (n,) groups from 0.
    """
    return float(v_measures(labels, groups, np.ones((1, len(np.asarray(labels)))))[0])


def v_measures(labels: ArrayLike, groups: ArrayLike, counts: ArrayLike) -> Floats:
    """(b,) V-measure of each resample.

    Args:
        labels: (n,) classes from 0.
        groups: (n,) groups from 0.
        counts: (b, n) how often each item counts.
    """
    classes, found = np.asarray(labels), np.asarray(groups)
    shape = (int(classes.max()) + 1, int(found.max()) + 1)
    cell = np.zeros((len(classes), shape[0] * shape[1]), dtype=np.float32)
    cell[np.arange(len(classes)), classes * shape[1] + found] = 1
    joint = (np.asarray(counts, dtype=np.float32) @ cell).astype(np.float64)
    joint /= joint.sum(axis=1, keepdims=True)
    table = joint.reshape(-1, *shape)
    by_class, by_group = _entropy(table.sum(axis=2)), _entropy(table.sum(axis=1))
    shared = by_class + by_group - _entropy(joint)
    # A single class or a single group leaves nothing to be wrong about.
    homogeneity = np.where(by_class > 0, shared / np.where(by_class > 0, by_class, 1), 1.0)
    completeness = np.where(by_group > 0, shared / np.where(by_group > 0, by_group, 1), 1.0)
    total = homogeneity + completeness
    mean: Floats = 2 * homogeneity * completeness / np.where(total > 1e-12, total, 1)
    return np.where(total > 1e-12, mean, 0.0)


def _entropy(shares: Floats) -> Floats:
    """(b,) entropy of rows of shares."""
    logs = np.log(np.where(shares > 0, shares, 1))
    entropy: Floats = -(shares * logs).sum(axis=1)
    return entropy
