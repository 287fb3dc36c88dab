"""The STS protocols of published tables, by name (SimCSE, Table B.1), and SentEval's regressor.

The regressor (Tai et al., 2015): |u - v| and u * v, softmax over scores 1 to 5, squared error,
Adam; Pearson on dev every 50 epochs, the fourth time without a new best ends it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import metrics, progress
from contrasent.datasets.official import STS_TASKS
from contrasent.datasets.sts import SPLITS, sts_pairs
from contrasent.errors import OptionError, check_choice
from contrasent.evaluate.classifier import (
    linear_start,
    pair_features,
    sorted_pairs,
    train_early_stopped,
    with_ones,
)
from contrasent.evaluate.sts import correlations, sts
from contrasent.evaluate.vectors import ReportBuilder, encode_distinct
from contrasent.report import Items, Report, Row
from contrasent.stats.bootstrap import RESAMPLES, item_keys
from contrasent.text.corpus import ScoredPairs
from contrasent.types import EncodeFn

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]

TASKS = ("STSB", "SICKR")
CLASSES = np.arange(1, 6)
TRAINING = {"epochs": 50, "longest": 1000, "tenacity": 3}
OTHER_LANGUAGES = ("STSB-de", "STSB-es")


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a paper scored STS."""

    paper: str
    regressor: bool  # whether STS-B and SICK-R are scored by a trained regressor
    metrics: tuple[str, ...]
    aggregate: str


PROTOCOLS: dict[str, Protocol] = {
    "hill2016": Protocol("Hill et al. (2016)", False, ("spearman", "pearson"), "all"),
    "infersent": Protocol("Conneau et al. (2017)", True, ("pearson",), "mean"),
    "senteval": Protocol("Conneau and Kiela (2018)", True, ("pearson",), "mean"),
    "sbert": Protocol("Reimers and Gurevych (2019)", False, ("spearman",), "all"),
    "is-bert": Protocol("Zhang et al. (2020)", False, ("spearman",), "all"),
    "bert-flow": Protocol("Li et al. (2020)", False, ("spearman",), "wmean"),
    "bert-whitening": Protocol("Su et al. (2021)", False, ("spearman",), "wmean"),
    "wieting2020": Protocol("Wieting et al. (2020)", False, ("pearson",), "mean"),
    "declutr": Protocol("Giorgi et al. (2021)", False, ("spearman",), "mean"),
    "simcse": Protocol("Gao et al. (2021)", False, ("spearman",), "all"),
}


def needed_aggregates(names: Sequence[str]) -> tuple[str, ...]:
    """How protocols combine the subsets of a year, without repetition."""
    return tuple(dict.fromkeys(("all", *(PROTOCOLS[name].aggregate for name in names))))


def every_protocol(
    encode: EncodeFn,
    names: Sequence[str] = tuple(PROTOCOLS),
    *,
    form: str = "senteval",
    resamples: int = RESAMPLES,
    folder: str | Path | None = None,
) -> Report:
    """A model's score under each protocol, and on the sets that only some papers use.

    A row "protocol NAME" for each of a protocol's metrics, the rows that it is a mean of but those
    of :func:`sts` by default, and those of the dev splits, of all of SICK-R, and of German and
    Spanish.
    """
    for name in names:
        check_choice("--protocol", name, PROTOCOLS)
    score = partial(sts, encode, resamples=resamples, folder=folder)
    whole = score(aggregate=needed_aggregates(names), form=form)
    trained = relatedness(encode, form=form, resamples=resamples, folder=folder)
    others = [
        score(tasks=("STSB", "SICKR"), split="dev", form=form),
        score(tasks=("SICKR-all",), form=form),
        score(tasks=OTHER_LANGUAGES, form="raw"),
    ]
    rows = [row for row in whole if row.aggregate != "all"]
    rows += [*trained, *(row for report in others for row in report)]
    items = Report.join((whole, trained, *others)).items
    described = {}
    for name in names:
        protocol = PROTOCOLS[name]
        how = "regressor for STS-B and SICK-R, " if protocol.regressor else ""
        both = " and ".join(protocol.metrics)
        described[name] = f"{protocol.paper}: {how}{both}, {protocol.aggregate}"
        for metric in protocol.metrics:
            parts = [
                trained.one(task=task, split="test", metric=metric)
                if protocol.regressor and task in TASKS
                else whole.one(task=task, metric=metric, aggregate=protocol.aggregate)
                for task in STS_TASKS
            ]
            value, count = sum(r.value for r in parts) / len(parts), sum(r.count for r in parts)
            rows.append(Row(f"protocol {name}", "test", metric, protocol.aggregate, value, count))
            items[rows[-1].key] = tuple(part.key for part in parts)
    notes = {
        "protocols": described,
        "form": f"{form}; STSB-de and STSB-es raw",
        "regressor": trained.notes["relatedness"],
    }
    return Report(tuple(rows), notes, items)


def relatedness(
    encode: EncodeFn,
    *,
    tasks: Sequence[str] = TASKS,
    form: str = "senteval",
    seed: int = 1111,
    resamples: int = RESAMPLES,
    folder: str | Path | None = None,
) -> Report:
    """Score a model on STS-B and SICK-R with a trained regressor.

    For each task, "pearson" and "spearman" on the test split, aggregate "regressor", and "pearson"
    on the dev split, by which the weights were chosen. The caller's random state is left alone.
    """
    for task in tasks:
        if task not in TASKS:
            raise OptionError("tasks", task, "this task has no regressor", choices=TASKS)
    data: dict[str, dict[str, ScoredPairs]] = {}
    for task, split in product(tasks, SPLITS):
        (pairs,) = sts_pairs(task, split=split, form=form, folder=folder)
        order = sorted_pairs(pairs.first, pairs.second, pairs.scores)
        data.setdefault(task, {})[split] = pairs.select(order)
    texts = [t for parts in data.values() for p in parts.values() for t in (p.first, p.second)]
    encoded = encode_distinct(encode, texts)
    builder = ReportBuilder(resamples, seed)
    for task, parts in data.items():
        features = {
            s: with_ones(pair_features(encoded(p.first), encoded(p.second)))
            for s, p in parts.items()
        }
        gold = {s: p.scores for s, p in parts.items()}
        best, weights = fit(features, gold, seed=seed)
        truth, count, aggregate = gold["test"], len(gold["test"]), "regressor"
        guess = _expected(features["test"], weights)
        builder.add(task, "dev", "pearson", best, len(gold["dev"]), aggregate=aggregate)
        columns, keys = [(guess, truth)], item_keys(parts["test"].first, parts["test"].second)
        values, draws = correlations(builder, columns, [slice(None)], [count], None)
        for m in ("pearson", "spearman"):
            more: Any = {"draws": draws[m][:, 0], "items": Items(m, keys, np.stack(columns[0]))}
            builder.add(task, "test", m, values[m][0], count, aggregate=aggregate, **more)
    notes = {"relatedness": "regressor on |u - v|, u * v", "form": form, "seed": seed}
    return builder.report({**notes, **encoded.notes})


def spread_scores(scores: Floats) -> Matrix:
    """(n, 5) a score as shares of its whole neighbors (Tai et al., 2015, Equation 15)."""
    share: Matrix = np.maximum(1 - np.abs(scores[:, None] - CLASSES), 0).astype(np.float32)
    return share


def _expected(features: Matrix, weights: Matrix) -> Floats:
    """(n,) the mean score under the softmax of weights (2 d + 1, 5)."""
    return _softmax(features @ weights).astype(np.float64) @ CLASSES


def fit(features: dict[str, Matrix], gold: dict[str, Floats], *, seed: int) -> tuple[float, Matrix]:
    """The best Pearson correlation on "dev" while training on "train", and its weights."""
    x, y = features["train"], spread_scores(gold["train"])
    start = linear_start(x.shape[1] - 1, y.shape[1], seed)[..., None]

    def gradient(rows: NDArray[np.int64], weights: Matrix) -> Matrix:
        """The gradient of the mean squared error over all entries, through the softmax."""
        p = _softmax(x[rows] @ weights[..., 0])
        error = (p - y[rows]) * np.float32(2 / p.size)
        inner = p * (error - (error * p).sum(axis=1, keepdims=True))
        slope: Matrix = x[rows].T @ inner
        return slope[..., None]

    def correlation(weights: Matrix) -> Floats:
        return np.array([metrics.pearson(_expected(features["dev"], weights[..., 0]), gold["dev"])])

    with progress.task("regressor", TRAINING["longest"], "epochs") as advance:
        rows, random = np.arange(len(x)), np.random.RandomState(seed)
        best, weights = train_early_stopped(
            start, rows, gradient, correlation, random, advance=advance, **TRAINING
        )
    return float(best[0]), weights[..., 0]


def _softmax(logits: Matrix) -> Matrix:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    share: Matrix = powers / powers.sum(axis=1, keepdims=True)
    return share
