"""Paraphrases, triples and clusters by cosine alone; nothing is trained.

F1 is at its best threshold, chosen on the same pairs (as in MTEB) and so a little optimistic;
clusters are k-means, scored by V-measure (Rosenberg and Hirschberg, 2007).
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent import metrics
from contrasent.datasets import labeled
from contrasent.errors import DataError
from contrasent.evaluate.vectors import ReportBuilder, check_spread, encode_distinct
from contrasent.report import Items, Report
from contrasent.stats.bootstrap import RESAMPLES, digest, item_keys
from contrasent.types import EncodeFn, Vectors

TRIPLES = 5000
CLUSTERED = ("TREC", "SUBJ")
STARTS = 5
ROUNDS = 30

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Thresholds:
    """Scores and labels, sorted once, so that a resample needs no sorting.

    ``scores``: (n,) the larger, the likelier class 1. Equal scores fall on one side of any
    threshold together. ``labels``: (n,) 0 or 1.
    """

    def __init__(self, scores: ArrayLike, labels: ArrayLike) -> None:
        x = np.asarray(scores, dtype=np.float64)
        self.order = np.argsort(-x, kind="stable")
        ordered = x[self.order]
        self.ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        self.positive = np.asarray(labels, dtype=np.float64)[self.order]
        self.thresholds = ordered[self.ends]

    def average_precision(self, counts: ArrayLike) -> Floats:
        """(b,) of each resample: the sum of precision times the gain of recall over thresholds."""
        hits, taken = self._counted(counts)
        gained = np.diff(hits, axis=1, prepend=0)
        precision = hits / np.maximum(taken, 1e-9)
        precisions: Floats = (gained * precision).sum(axis=1) / np.maximum(hits[:, -1], 1e-9)
        return precisions

    def best_f1(self, counts: ArrayLike) -> Floats:
        """(b,) of each resample: F1 of class 1 at the threshold where it is largest."""
        best: Floats = self._f1(counts).max(axis=1)
        return best

    def best_threshold(self) -> float:
        """The largest threshold with the best F1 of all items: class 1 is at or above it."""
        return float(self.thresholds[self._f1(np.ones((1, len(self.order))))[0].argmax()])

    def _f1(self, counts: ArrayLike) -> Floats:
        hits, taken = self._counted(counts)
        return 2 * hits / np.maximum(taken + hits[:, -1:], 1e-9)

    def _counted(self, counts: ArrayLike) -> tuple[Floats, Floats]:
        """True positives, and all items, at or above each threshold."""
        weight = np.asarray(counts, dtype=np.float64)[:, self.order]
        hits = np.cumsum(weight * self.positive, axis=1)[:, self.ends]
        return hits, np.cumsum(weight, axis=1)[:, self.ends]


def pair_classification(
    encode: EncodeFn,
    sets: Mapping[str, labeled.Labeled] | None = None,
    *,
    resamples: int = RESAMPLES,
    folder: str | Path | None = None,
) -> Report:
    """Distinguish paraphrases from other pairs by their cosine.

    Each set of pairs with classes 0 and 1, by default the test set of MRPC, and QQP, has rows "ap"
    (average precision) and "f1_best".
    """
    if sets is None:
        mrpc = labeled.transfer_set("MRPC", folder=folder)["test"]
        sets = {"MRPC": mrpc, "QQP": labeled.question_pairs(folder=folder)}
    sides = [side for pairs in sets.values() for side in (pairs.first, pairs.second or ())]
    encoded, builder = encode_distinct(encode, sides), ReportBuilder(resamples)
    thresholds = {}
    for task, pairs in sets.items():
        first, second, labels = pairs.first, pairs.second or (), pairs.labels
        n, keys = len(labels), item_keys(first, second)
        if labels.min() == labels.max():
            raise DataError(f"{task}: all {n:,} pairs have the same class")
        cosines = metrics.cosine(encoded(first), encoded(second))
        check_spread(cosines, task)
        curve = Thresholds(cosines, labels)
        measures = {"ap": curve.average_precision, "f1_best": curve.best_f1}
        draws = builder.draws(measures, [n], keys)
        for name, measure in measures.items():
            value = float(measure(np.ones((1, n)))[0])
            items = Items(name, keys, np.stack([cosines, labels]))
            builder.add(task, "test", name, value, n, draws=draws[name], items=items)
        thresholds[task] = round(curve.best_threshold(), 4)
    return builder.report({"threshold of the best F1": thresholds, "resamples": resamples})


def triplet_accuracy(
    encode: EncodeFn,
    triples: labeled.Triples | None = None,
    *,
    resamples: int = RESAMPLES,
    folder: str | Path | None = None,
) -> Report:
    """How often what follows from a sentence lies nearer to it than what contradicts it.

    A row "accuracy_triplet" of the task "NLI"; equal cosines count as wrong. By default of 5,000
    triples at equal distances over the file of the data folder.
    """
    if triples is None:
        triples = labeled.inference_triples(folder=folder).spread(TRIPLES)
    columns = (triples.premises, triples.entailed, triples.contradicted)
    premise, entailed, contradicted = map(encode_distinct(encode, columns), columns)
    right = metrics.cosine(premise, entailed) > metrics.cosine(premise, contradicted)
    builder, keys = ReportBuilder(resamples), item_keys(triples.premises)
    context = digest([*triples.entailed, *triples.contradicted])
    builder.mean("NLI", "test", "accuracy_triplet", right, keys=keys, context=context)
    premises = len(set(triples.premises))
    return builder.report({"triples": triples.source, "premises": premises, "resamples": resamples})


def clustering(
    encode: EncodeFn,
    sets: Mapping[str, labeled.Labeled] | None = None,
    *,
    starts: int = STARTS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Report:
    """Score the groups that k-means finds by the classes of the texts: a row "v_measure" a set.

    By default all of TREC (six kinds of questions) and SUBJ; the score is the mean of the starts.
    """
    data = clustering_sets(folder) if sets is None else sets
    encoded = encode_distinct(encode, [texts.first for texts in data.values()])
    builder = ReportBuilder(resamples, seed)
    for task, texts in data.items():
        n, labels, keys = len(texts), texts.labels, item_keys(texts.first)
        vectors, classes = encoded(texts.first), len(np.unique(labels))
        groups = [kmeans(vectors, classes, (seed, i)) for i in range(starts)]
        measures = {str(i): partial(v_measures, labels, group) for i, group in enumerate(groups)}
        pairs = [np.array([group, labels], dtype=float) for group in groups]
        value = float(np.mean([metrics.item_v_measure(pair)[0] for pair in pairs]))
        drawn = np.mean([*builder.draws(measures, [n], keys).values()], axis=0)
        # Each start is a subset that holds all items: their mean, in which a text counts once.
        columns = np.concatenate(pairs, axis=1)
        items = Items("v_measure", np.tile(keys, starts), columns, (n,) * starts, "mean")
        builder.add(task, "test", "v_measure", value, n, draws=drawn, items=items)
    return builder.report({"k-means starts": starts, "seed": seed, "resamples": resamples})


def clustering_sets(folder: str | Path | None = None) -> dict[str, labeled.Labeled]:
    """All texts of TREC and SUBJ with their classes."""
    sets = {}
    for task in CLUSTERED:
        parts = list(labeled.transfer_set(task, folder=folder).values())
        texts = tuple(text for part in parts for text in part.first)
        sets[task] = labeled.Labeled(texts, None, np.concatenate([part.labels for part in parts]))
    return sets


def kmeans(vectors: Vectors, count: int, seed: int | tuple[int, ...]) -> Integers:
    """(n,) groups of rows (n, d) scaled to length one, some perhaps empty.

    Starts by k-means++ (Arthur and Vassilvitskii, 2007).
    """
    unit = metrics.normalize(np.asarray(vectors, np.float64))
    random = np.random.default_rng(seed)
    picked = [int(random.integers(len(unit)))]
    distance = np.full(len(unit), np.inf)
    while len(picked) < count:
        distance = np.minimum(distance, np.maximum(2 - 2 * (unit @ unit[picked[-1]]), 0))
        total = distance.sum()
        share = distance / total if total > 0 else None
        picked.append(int(random.choice(len(unit), p=share)))
    centers = unit[picked]
    for _ in range(ROUNDS):
        labels = np.argmin((centers * centers).sum(axis=1) - 2 * (unit @ centers.T), axis=1)
        for group in np.unique(labels):
            centers[group] = unit[labels == group].mean(axis=0)
    return np.asarray(labels, dtype=np.int64)


def v_measures(labels: ArrayLike, groups: ArrayLike, counts: ArrayLike) -> Floats:
    """(b,) V-measure of each resample, by counts (b, n) of the items; both are from 0."""
    classes, clusters = np.asarray(labels), np.asarray(groups)
    shape = (int(classes.max()) + 1, int(clusters.max()) + 1)
    cell = np.zeros((len(classes), shape[0] * shape[1]), dtype=np.float32)
    cell[np.arange(len(classes)), classes * shape[1] + clusters] = 1
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
