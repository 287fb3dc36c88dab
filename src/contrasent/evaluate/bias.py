"""Biases of similarity: equal length, repeated words (ESimCSE)."""

# Length (Tables 1 and 7): pairs by the difference of lengths, cosine against gold / 5. Repetition
# (Table 8): 13 to 17 % of a query's words shared, then the shared words repeated.

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contrasent import metrics
from contrasent.errors import DataError
from contrasent.evaluate.vectors import ReportBuilder, encode_distinct
from contrasent.report import Report
from contrasent.stats.bootstrap import RESAMPLES
from contrasent.text.datasets import sts_pairs
from contrasent.text.official import STS_TASKS
from contrasent.types import EncodeFn

NEAR = 3  # lengths that differ by at most this many words are alike

QUERIES = 100
OVERLAP = (0.13, 0.17)

Length = Callable[[str], int]


def words(sentence: str) -> int:
    """How many words there are between spaces."""
    return len(sentence.split())


def length_bias(
    encode: EncodeFn,
    *,
    tasks: Sequence[str] = STS_TASKS,
    form: str = "senteval",
    length: Length = words,
    unit: str = "words",
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: Path | None = None,
) -> Report:
    """Similarity error of pairs of like and of unlike length (ESimCSE, Tables 1 and 7).

    For each task, in hundredths as in the paper: "error_near" and "error_far" (mean of cosine
    - score / 5, for length differences up to 3 and above), "absolute_near" and "absolute_far"
    (of its absolute value), "error_gap" and "absolute_gap" (near less far). With all seven
    sets, task "STS7" holds the means. The rows' aggregate is ``unit``, which ``length`` counts.
    """
    data = {task: sts_pairs(task, form=form, folder=folder) for task in tasks}
    texts = [s for parts in data.values() for p in parts for s in (p.first, p.second)]
    encoded = encode_distinct(encode, texts)
    builder = ReportBuilder()
    for task, parts in data.items():
        first, second = [s for p in parts for s in p.first], [s for p in parts for s in p.second]
        gold = np.concatenate([p.scores for p in parts]) / 5
        error = 100 * (metrics.cosine(encoded(first), encoded(second)) - gold)
        gap = np.array([abs(length(a) - length(b)) for a, b in zip(first, second, strict=True)])
        options: Any = {"resamples": resamples, "seed": seed, "aggregate": unit}
        for name, values in (("error", error), ("absolute", np.abs(error))):
            groups = {"near": values[gap <= NEAR], "far": values[gap > NEAR]}
            for group, members in groups.items():
                if not len(members):
                    raise DataError(f"{task}: no pairs of {group} lengths")
                builder.mean(task, "test", f"{name}_{group}", members, **options)
            apart = float(groups["near"].mean() - groups["far"].mean())
            builder.add(task, "test", f"{name}_gap", apart, len(values), aggregate=unit)
    if set(STS_TASKS) <= set(data):
        for name in dict.fromkeys(row.metric for row in builder.rows):
            own = [r for r in builder.rows if r.metric == name and r.task in STS_TASKS]
            value, count = sum(r.value for r in own) / len(own), sum(r.count for r in own)
            builder.add("STS7", "test", name, value, count, aggregate=unit)
    notes = {"length": f"difference up to {NEAR} {unit} or above", "bias_form": form}
    return builder.report({**notes, **encoded.notes})


def repetition_bias(
    encode: EncodeFn,
    sentences: Sequence[str],
    *,
    queries: int = QUERIES,
    overlap: tuple[float, float] = OVERLAP,
    seed: int = 0,
    resamples: int = RESAMPLES,
    task: str = "repetition",
) -> Report:
    """Does a sentence seem nearer when the words it shares are repeated (ESimCSE, Table 8)?

    Rows "once", "twice" and "repetition_gain" (their paired difference): mean cosine times 100 of
    ``queries`` and candidates drawn from sentences, within the bounds of ``overlap``.
    """
    triples = repeated_overlaps(sentences, queries=queries, overlap=overlap, seed=seed)
    query, once, twice = (list(column) for column in zip(*triples, strict=True))
    encoded = encode_distinct(encode, [query, once, twice])
    before = 100 * metrics.cosine(encoded(query), encoded(once))
    after = 100 * metrics.cosine(encoded(query), encoded(twice))
    values = {"once": before, "twice": after, "repetition_gain": after - before}
    builder = ReportBuilder()
    for name, v in values.items():
        builder.mean(task, "test", name, v, resamples=resamples, seed=seed)
    return builder.report({"overlap": f"{overlap[0]:.0%} to {overlap[1]:.0%} of the words"})


def repeated_overlaps(
    sentences: Sequence[str], *, queries: int, overlap: tuple[float, float], seed: int
) -> list[tuple[str, str, str]]:
    """(query, candidate, candidate with the shared words doubled), drawn with the seed."""
    random = np.random.default_rng(seed)
    split = [s.split() for s in sentences]
    order = random.permutation(len(sentences))
    found: list[tuple[str, str, str]] = []
    for q in order:
        shared_with = {w.lower() for w in split[q]}
        for c in random.permutation(len(sentences))[:1000]:
            shared = [w.lower() in shared_with for w in split[c]]
            share = sum(shared) / max(len(shared), 1)
            if c != q and overlap[0] <= share <= overlap[1]:
                doubled = [
                    w
                    for word, both in zip(split[c], shared, strict=True)
                    for w in ([word, word] if both else [word])
                ]
                found.append((sentences[q], sentences[c], " ".join(doubled)))
                break
        if len(found) == queries:
            return found
    raise DataError(
        f"only {len(found)} of {queries} queries have a sentence with {overlap[0]:.0%} to "
        f"{overlap[1]:.0%} of its words in common, among {len(sentences):,}; give more text"
    )
