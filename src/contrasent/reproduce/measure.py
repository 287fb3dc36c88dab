"""The measures that recipes name: a model in, a report out."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.evaluate.bias import length_bias, repetition_bias
from contrasent.evaluate.bootstrap import mean_interval
from contrasent.evaluate.collections import caption_retrieval, side_by_side, stsb_retrieval
from contrasent.evaluate.geometry import RATINGS, geometry
from contrasent.evaluate.sts import AVERAGE, METRICS, sts
from contrasent.evaluate.transfer import transfer
from contrasent.evaluate.vectors import encode_distinct
from contrasent.metrics import cosine
from contrasent.report import Report, Row
from contrasent.reproduce import data
from contrasent.text.datasets import ScoredPairs
from contrasent.text.official import STS_TASKS
from contrasent.types import EncodeFn

Options = dict[str, Any]
Point = tuple[int, Report]
"""A report at a step of a training run."""


def measure(encode: EncodeFn, kind: str, options: Options, folder: Path | None) -> Report:
    """Measure a model.

    Args:
        encode: the model.
        kind: of ``kinds.MEASURES``, but not one that needs a training run.
        options: all of them.
        folder: the data folder.

    Raises:
        DataError: data that are missing, or vectors that cannot be measured.
    """
    return _RUN[kind](encode, options, folder)


def following(options: Options, folder: Path | None) -> Callable[[EncodeFn], Report]:
    """What a run that is traced asks at every stop: alignment and uniformity.

    The first row is always the same, so that no checkpoint counts as better than another.
    """

    def look(encode: EncodeFn) -> Report:
        found = geometry(
            encode,
            split=options["split"],
            form=options["form"],
            sample=options["sample"] or None,
            resamples=0,
            folder=folder,
        )
        same = Row("trace", options["split"], "followed", "", 0.0, 0)
        kept = [r for r in found if r.metric in ("alignment", "uniformity")]
        return Report((same, *kept), {})

    return look


def traced(points: Sequence[Point]) -> Report:
    """The path of a training run: alignment and uniformity first, last, and their change.

    Args:
        points: the reports at its stops, step 0 first.

    Returns:
        Rows "alignment_first", "..._last", "..._change" and the same of uniformity; the notes hold
        the points as [step, uniformity, alignment].
    """
    path = [
        [step, r.one(metric="uniformity").value, r.one(metric="alignment").value]
        for step, r in points
    ]
    rows = []
    count = points[0][1].one(metric="uniformity").count
    for name, place in (("alignment", 2), ("uniformity", 1)):
        first, last = path[0][place], path[-1][place]
        values = {"first": first, "last": last, "change": last - first}
        rows += [Row("trace", "", f"{name}_{k}", "", v, count) for k, v in values.items()]
    return Report(tuple(rows), {"path": path})


def clocked(record: dict[str, Any]) -> Report:
    """The speed of a training run, evaluations excluded, from its record."""
    speed = float(record["sentences_per_second"])
    steps = int(record["steps"])
    batch = int(record["batch"])
    rows = (
        Row("training", "", "sentences_per_second", "", speed, steps * batch),
        Row("training", "", "seconds_per_step", "", batch / speed if speed else 0.0, steps),
    )
    return Report(rows, {})


def seven(rows: Sequence[Row], options: Options) -> list[Row]:
    """The plain mean over the seven STS sets, where each was measured with vectors of its own.

    Its interval is put together from those of the sets, which are independent of one another: the
    distance of the mean to an end is the root of the sum of the sets' squared distances, over
    their number (method of variance estimates recovery; Zou and Donner, 2008).

    Args:
        rows: of the sets, as ``sts`` gives them for each alone.
        options: of the measure.

    Returns:
        Rows of task "STS7" as ``sts`` gives them for a single model; none if a set is not there.
    """
    if not set(STS_TASKS) <= set(options["tasks"]):
        return []
    report = Report(tuple(rows))
    found = []
    for metric in METRICS:
        for aggregate in options["aggregate"]:
            own = [report.one(task=t, metric=metric, aggregate=aggregate) for t in STS_TASKS]
            value, count = sum(r.value for r in own) / len(own), sum(r.count for r in own)
            bounds: tuple[float | None, float | None] = (None, None)
            if all(r.low is not None and r.high is not None for r in own):
                below = math.hypot(*(r.value - (r.low or 0.0) for r in own)) / len(own)
                above = math.hypot(*((r.high or 0.0) - r.value for r in own)) / len(own)
                bounds = value - below, value + above
            found.append(Row(AVERAGE, options["split"], metric, aggregate, value, count, *bounds))
    return found


def _sts(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    return sts(
        encode,
        tasks=tuple(o["tasks"]),
        form=o["form"],
        aggregate=tuple(o["aggregate"]),
        split=o["split"],
        subsets=o["subsets"],
        folder=folder,
    )


def _transfer(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    return transfer(encode, tasks=tuple(o["tasks"]), solver=o["solver"], folder=folder)


def _geometry(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    found = geometry(encode, split=o["split"], form=o["form"], folder=folder)
    rows = by_rating(encode, data.scored_pairs(o, folder), o["split"])
    return Report((*found.rows, *rows), found.notes)


def by_rating(encode: EncodeFn, parts: Sequence[ScoredPairs], split: str) -> list[Row]:
    """Mean cosine of the pairs that people rated alike (DiffCSE, Figure 2).

    Returns:
        Rows of metric "mean_cosine", their aggregate the ratings: "0-1" to "4-5". A rating on a
        border belongs to the upper one, 5 to the last.
    """
    first, second = [s for p in parts for s in p.first], [s for p in parts for s in p.second]
    encoded = encode_distinct(encode, [first, second])
    cosines = cosine(encoded(first), encoded(second))
    scores = np.concatenate([p.scores for p in parts])
    found = []
    for low in range(RATINGS):
        last = low == RATINGS - 1
        own = cosines[(scores >= low) & ((scores < low + 1) | last)]
        if len(own):
            name, mean, bounds = f"{low}-{low + 1}", float(own.mean()), mean_interval(own)
            found.append(Row(parts[0].name, split, "mean_cosine", name, mean, len(own), *bounds))
    return found


def _stsb_retrieval(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    return stsb_retrieval(
        encode, directions=o["directions"], form=o["form"], split=o["split"], folder=folder
    )


def _caption_retrieval(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    return caption_retrieval(encode, data.captions(o, folder))


def _listing(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    if o["documents"] == "flickr30k":
        documents: Sequence[str] = data.captions(o, folder).texts
    else:
        parts = data.scored_pairs({}, folder)
        documents = [*(s for p in parts for s in p.first), *(s for p in parts for s in p.second)]
    queries = o.get("queries") or documents[:: max(1, len(documents) // 3)][:3]
    found = side_by_side({"": encode}, queries, documents, k=o["k"])
    listing = [(query, found[query][""]) for query in queries]
    best = sum(hits[0][0] for _, hits in listing) / len(listing)
    row = Row(o["documents"], "", "best_cosine", "", float(best), len(listing))
    return Report((row,), {"listing": listing})


def _length_bias(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    return length_bias(encode, tasks=tuple(o["tasks"]), form=o["form"], folder=folder)


def _repetition_bias(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    texts = data.sentences(o["text"], folder)
    return repetition_bias(encode, texts, queries=o["queries"])


def _pair_similarity(encode: EncodeFn, o: Options, folder: Path | None) -> Report:
    texts = list(o["texts"])
    vectors = encode([o["query"], *texts])
    found = cosine(vectors[:1].repeat(len(texts), axis=0), vectors[1:])
    rows = [Row(str(i), "", "cosine", "", float(v), 1) for i, v in enumerate(found, start=1)]
    return Report(tuple(rows), {})


_RUN: dict[str, Callable[[EncodeFn, Options, Path | None], Report]] = {
    "sts": _sts,
    "transfer": _transfer,
    "geometry": _geometry,
    "stsb_retrieval": _stsb_retrieval,
    "caption_retrieval": _caption_retrieval,
    "listing": _listing,
    "length_bias": _length_bias,
    "repetition_bias": _repetition_bias,
    "pair_similarity": _pair_similarity,
}
