"""Semantic textual similarity: the correlation of cosines with people's scores of pairs.

SimCSE, Appendix B: Spearman of cosines on the test split; ``all`` is one correlation over a year's
subsets, ``mean`` and ``wmean`` average theirs (SentEval prints these two).
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrasent.datasets.official import STS_TASKS, STS_YEARS
from contrasent.datasets.sts import sts_pairs
from contrasent.errors import DataError, OptionError, check_choice
from contrasent.evaluate.vectors import Cached, ReportBuilder, check_spread, encode_distinct
from contrasent.metrics import cosine, pearson, spearman
from contrasent.report import Items, Report
from contrasent.stats import bootstrap
from contrasent.text.corpus import ScoredPairs
from contrasent.types import EncodeFn

AGGREGATES = ("all", "mean", "wmean")
CORRELATIONS = {"spearman": spearman, "pearson": pearson}
AVERAGE = "STS7"
OWN_AVERAGE = "pairs"
MIN_PAIRS = 3

Floats = NDArray[np.float64]


def sts(
    encode: EncodeFn,
    *,
    tasks: Sequence[str] = STS_TASKS,
    form: str = "senteval",
    aggregate: str | Sequence[str] = "all",
    split: str = "test",
    subsets: bool = False,
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Report:
    """Evaluate a model on semantic textual similarity (STS).

    Each distinct sentence is encoded once, all in one call. With all seven sets of the papers the
    report also has their mean, as task "STS7". A set without subsets (STSB, SICKR) has the same
    value under every aggregate.

    Args:
        encode: the model, a function from texts to vectors.
        tasks: names of data sets, such as "STS12", "STSB" or "SICKR".
        form: "senteval" (tokenized and lower-cased, as in the papers) or "raw" (as in MTEB).
        aggregate: how to combine subsets: "all" (one correlation over all pairs), "mean", "wmean"
            (by size), or several of these.
        split: "test", "dev" or "train".
        subsets: add a row for each subset, such as "STS12/MSRpar".
        resamples: bootstrap resamples over pairs, within each subset, for the 95 % intervals; 0 for
            none.
        seed: seed of the bootstrap.
        folder: the data folder; that of ``CONTRASENT_DATA`` by default.

    Returns:
        Rows of metric "spearman" and "pearson", from -1 to 1. The notes have the form, the
        protocol, the number of distinct sentences, and of zero vectors, whose cosines count as 0.

    Raises:
        OptionError: a name is unknown.
        DataError: data is missing or not official, vectors are not finite, or all cosines are
            equal.

    Examples:
        >>> from contrasent import Encoder, sts
        >>> encode = Encoder.load("all-MiniLM-L6-v2").encode
        >>> report = sts(encode, tasks=["STSB"])
        >>> row = report.one(metric="spearman")
        >>> round(row.value, 2), row.count, row.low < row.value < row.high
        (0.82, 1379, True)
    """
    wanted = (aggregate,) if isinstance(aggregate, str) else tuple(aggregate)
    for name in wanted:
        check_choice("aggregate", name, AGGREGATES)
    if not tasks:
        raise OptionError("tasks", "", "give at least one task")
    data = {task: sts_pairs(task, split=split, form=form, folder=folder) for task in tasks}
    check_subsets(data, wanted, subsets)
    parts = [part for parts_of in data.values() for part in parts_of]
    encoded = encode_distinct(encode, [side for p in parts for side in (p.first, p.second)])
    builder = ReportBuilder(resamples, seed)
    for task, parts_of in data.items():
        add_correlations(builder, task, split, parts_of, encoded, wanted, subsets)
    if set(STS_TASKS) <= set(data):
        for m, a in itertools.product(CORRELATIONS, wanted):
            builder.average(AVERAGE, STS_TASKS, split, m, a, a)
    protocol = "cosine, no regressor, bootstrap over distinct pairs within subsets"
    notes = {"form": form, "protocol": protocol, "resamples": resamples, "seed": seed}
    return builder.report({**notes, **encoded.notes})


def check_subsets(
    data: Mapping[str, Sequence[ScoredPairs]], aggregates: Sequence[str], subsets: bool
) -> None:
    """Reject means over subsets, and subsets, of years whose subsets are unknown."""
    joined = [task for task, parts in data.items() if task in STS_YEARS and len(parts) == 1]
    if joined and (subsets or set(aggregates) - {"all"}):
        problem = "the hub's copy does not say which subset a pair is of; use aggregate 'all', "
        raise DataError(f"{joined[0]}: {problem}or put its files where 'evaluate --list' shows")


def add_correlations(
    builder: ReportBuilder,
    task: str,
    split: str,
    parts: Sequence[ScoredPairs],
    encoded: Cached,
    aggregates: Sequence[str] = ("",),
    subsets: bool = False,
) -> None:
    """Add both correlations of cosine and gold score of a task, and of its subsets if wanted."""
    sizes = [len(part) for part in parts]
    cosines = np.concatenate([cosine(encoded(p.first), encoded(p.second)) for p in parts])
    gold = np.concatenate([part.scores for part in parts])
    keys = np.concatenate([bootstrap.item_keys(part.first, part.second) for part in parts])
    check_spread(cosines, task)
    # The whole, and each of several subsets.
    spans = [slice(None)]
    if len(parts) > 1:
        spans += [slice(*ends) for ends in itertools.pairwise([0, *np.cumsum(sizes)])]
    columns = [(cosines[span], gold[span]) for span in spans]
    values, draws = correlations(builder, columns, spans, sizes, keys)
    for m, a in itertools.product(CORRELATIONS, aggregates):
        value, drawn = (_aggregated(by_metric[m], a, sizes) for by_metric in (values, draws))
        _check_defined(task, m, value)
        items = Items(m, keys, np.stack(columns[0]), tuple(sizes), a or "all")
        builder.add(task, split, m, value, len(gold), aggregate=a, draws=drawn, items=items)
    for i, part in enumerate(parts if subsets and len(parts) > 1 else (), start=1):
        for m in CORRELATIONS:
            name = f"{task}/{part.name}"
            _check_defined(name, m, values[m][i])
            items = Items(m, keys[spans[i]], np.stack(columns[i]))
            builder.add(name, split, m, values[m][i], len(part), draws=draws[m][:, i], items=items)


def correlations(
    builder: ReportBuilder,
    columns: Sequence[tuple[Floats, Floats]],
    spans: Sequence[slice],
    sizes: Sequence[int],
    keys: bootstrap.Keys | None,
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Spearman's and Pearson's correlations of pairs of columns, also over resamples of items."""
    ranked = [bootstrap.RankedPairs(*pair) for pair in columns]

    def spearman_of(counts: bootstrap.Counts) -> Floats:
        return np.stack([r.spearman(counts[:, s]) for r, s in zip(ranked, spans, strict=True)], 1)

    def pearson_of(counts: bootstrap.Counts) -> Floats:
        pairs = zip(columns, spans, strict=True)
        return np.stack([bootstrap.weighted_pearson(*pair, counts[:, s]) for pair, s in pairs], 1)

    values = {m: np.array([f(*pair) for pair in columns]) for m, f in CORRELATIONS.items()}
    draws = builder.draws({"spearman": spearman_of, "pearson": pearson_of}, sizes, keys)
    return values, {m: d.reshape(len(d), len(columns)) for m, d in draws.items()}


def _aggregated(found: Floats, aggregate: str, sizes: Sequence[int]) -> Any:
    """The number of an aggregate, from those of the whole and its subsets (..., 1 + subsets)."""
    if aggregate in ("all", "") or found.shape[-1] == 1 or not found.size:
        return found[..., 0]
    weights = sizes if aggregate == "wmean" else None
    return np.average(found[..., 1:], axis=-1, weights=weights)


def _check_defined(task: str, metric: str, value: float) -> None:
    if np.isnan(value):
        raise DataError(f"{task}: {metric} is undefined: all cosines of a subset are equal")


def several_pairs(
    encode: EncodeFn,
    files: Mapping[str, ScoredPairs],
    *,
    split: str = "heldout",
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> Report:
    """Score a model on several sets of labeled pairs, from :func:`check_pairs`.

    Rows "spearman" and "pearson" for each; of several also "pairs", aggregate "mean": the plain
    mean. Fewer than 20 pairs give no interval; the notes name them.
    """
    sides = [side for p in files.values() for side in (p.first, p.second)]
    encoded, builder = encode_distinct(encode, sides), ReportBuilder(resamples, seed)
    for task, pairs in files.items():
        add_correlations(builder, task, split, [pairs], encoded)
    for metric in CORRELATIONS if len(files) > 1 else ():
        builder.average(OWN_AVERAGE, tuple(files), split, metric, "", "mean")
    notes: dict[str, int | str] = {"resamples": resamples, "seed": seed, **encoded.notes}
    few = [f"{len(pairs)} pairs" for pairs in files.values() if len(pairs) < bootstrap.MIN_ITEMS]
    if few:
        notes["interval"] = f"none: {', '.join(few)} are too few, {bootstrap.MIN_ITEMS} are needed"
    return builder.report(notes)


def check_pairs(
    first: Sequence[str], second: Sequence[str], scores: ArrayLike, task: str
) -> ScoredPairs:
    """Labeled pairs, validated: as many of each, three or more, finite labels that differ."""
    gold = np.asarray(scores, dtype=np.float64)
    if not len(first) == len(second) == len(gold):
        raise DataError(
            f"{task}: {len(first):,} first sentences, {len(second):,} second sentences and "
            f"{len(gold):,} labels; the numbers must be equal"
        )
    if len(gold) < MIN_PAIRS:
        raise DataError(f"{task}: {len(gold)} labeled pairs; at least {MIN_PAIRS} are needed")
    bad = np.flatnonzero(~np.isfinite(gold))
    if len(bad):
        raise DataError(f"{task}: the label of pair {bad[0] + 1} is {gold[bad[0]]}")
    if gold.min() == gold.max():
        raise DataError(f"{task}: all labels are {gold[0]:g}; a correlation needs different labels")
    return ScoredPairs(task, tuple(first), tuple(second), gold)
