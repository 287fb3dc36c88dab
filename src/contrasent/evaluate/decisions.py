"""What cosines decide: paraphrase or not, and which of two sentences follows from a third.

Nothing is trained. Pairs: average precision, and F1 at its best threshold, which is chosen on the
same pairs (as MTEB and sentence-transformers do) and so a little optimistic. Triples: how often the
entailed sentence lies nearer to the premise than the contradicted one.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.errors import DataError
from contrasent.evaluate.sheet import Sheet
from contrasent.evaluate.vectors import check_spread, encode_distinct
from contrasent.metrics import cosine
from contrasent.report import Items, Report
from contrasent.stats.bootstrap import FEWEST, RESAMPLES, digest, item_keys, resampled
from contrasent.text.judged import Triples, inference_triples, question_pairs
from contrasent.text.transfer import Labelled, transfer_set
from contrasent.types import EncodeFn

TRIPLES = 5000

Floats = NDArray[np.float64]


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
        found: Floats = (gained * precision).sum(axis=1) / np.maximum(hits[:, -1], 1e-9)
        return found

    def best_f1(self, counts: ArrayLike) -> Floats:
        """(b,) of each resample: F1 of class 1 at the threshold where it is largest."""
        best: Floats = self._f1(counts).max(axis=1)
        return best

    def best_threshold(self) -> float:
        """The largest threshold with the best F1 of all items: class 1 is at or above it."""
        return float(self.thresholds[self._f1(np.ones((1, len(self.order))))[0].argmax()])

    def _f1(self, counts: ArrayLike) -> Floats:
        hits, taken = self._counted(counts)
        found: Floats = 2 * hits / np.maximum(taken + hits[:, -1:], 1e-9)
        return found

    def _counted(self, counts: ArrayLike) -> tuple[Floats, Floats]:
        """True positives, and all items, at or above each threshold."""
        weight = np.asarray(counts, dtype=np.float64)[:, self.order]
        hits = np.cumsum(weight * self.positive, axis=1)[:, self.ends]
        return hits, np.cumsum(weight, axis=1)[:, self.ends]


def pair_classification(
    encode: EncodeFn,
    sets: Mapping[str, Labelled] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: Path | None = None,
) -> Report:
    """Tell paraphrases from other pairs by their cosine.

    Args:
        encode: the model.
        sets: pairs with classes 0 and 1; by default the test set of MRPC, and QQP.
        resamples: bootstrap resamples over distinct pairs; 0 for no intervals.
        seed: of the bootstrap.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.

    Returns:
        Of each set rows "ap" (average precision) and "f1_best".

    Raises:
        DataError: data that are missing, of one class only, or vectors that are not finite.
    """
    data = paraphrase_sets(folder) if sets is None else sets
    sides = {task: (found.first, found.second or ()) for task, found in data.items()}
    encoded = encode_distinct(encode, [side for both in sides.values() for side in both])
    sheet, thresholds = Sheet(), {}
    for task, (first, second) in sides.items():
        labels = data[task].labels
        n, keys = len(labels), item_keys(first, second)
        if labels.min() == labels.max():
            raise DataError(f"{task}: all {n:,} pairs are of one class")
        cosines = cosine(encoded(first), encoded(second))
        check_spread(cosines, task)
        curve = Thresholds(cosines, labels)
        measures = {"ap": curve.average_precision, "f1_best": curve.best_f1}
        draws = resampled(measures, [n], resamples if n >= FEWEST else 0, seed, keys)
        for name, measure in measures.items():
            value = float(measure(np.ones((1, n)))[0])
            items = Items(name, keys, np.stack([cosines, labels]))
            sheet.add(task, "test", name, value, n, draws=draws[name], items=items)
        thresholds[task] = round(curve.best_threshold(), 4)
    return sheet.report({"threshold of the best F1": thresholds, "resamples": resamples})


def paraphrase_sets(folder: Path | None = None) -> dict[str, Labelled]:
    """The test set of MRPC, and QQP."""
    return {
        "MRPC": transfer_set("MRPC", folder=folder)["test"],
        "QQP": question_pairs(folder=folder),
    }


def triplet_accuracy(
    encode: EncodeFn,
    triples: Triples | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: Path | None = None,
) -> Report:
    """How often what follows from a sentence lies nearer to it than what contradicts it.

    Args:
        encode: the model.
        triples: by default 5,000 at equal distances over the file of the data folder.
        resamples: bootstrap resamples over distinct premises; 0 for no intervals.
        seed: of the bootstrap.
        folder: the data folder, if not the one that ``CONTRASENT_DATA`` names.

    Returns:
        A row "accuracy_triplet" of the task "NLI"; equal cosines count as wrong.

    Raises:
        DataError: data that are missing, or vectors that are not finite.
    """
    found = inference_triples(folder=folder).spread(TRIPLES) if triples is None else triples
    columns = (found.premises, found.entailed, found.contradicted)
    encoded = encode_distinct(encode, columns)
    premise, entailed, contradicted = (encoded(column) for column in columns)
    right = (cosine(premise, entailed) > cosine(premise, contradicted)).astype(np.float64)
    sheet = Sheet()
    sheet.mean(
        "NLI",
        "test",
        "accuracy_triplet",
        right,
        resamples=resamples,
        seed=seed,
        keys=item_keys(found.premises),
        context=digest(found.entailed),
    )
    premises = len(set(found.premises))
    return sheet.report({"triples": found.source, "premises": premises, "resamples": resamples})
