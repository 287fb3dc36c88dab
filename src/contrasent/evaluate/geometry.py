"""The shape of a space of vectors, and biases of similarity: equal length, repeated words.

Wang and Isola (2020) as in SimCSE (Section 3): positives are STS-B's pairs above 4. Split and
repeated sentences are options, since the papers leave them open. Biases are those of ESimCSE.
Length (Tables 1 and 7): pairs by the difference of lengths, cosine against gold / 5. Repetition
(Table 8): 13 to 17 % of a query's words shared, then the shared words repeated.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import metrics
from contrasent.datasets.official import STS_TASKS
from contrasent.datasets.sts import SPLITS, sts_pairs
from contrasent.errors import DataError, check_choice
from contrasent.evaluate.vectors import ReportBuilder, encode_distinct
from contrasent.report import Items, Report
from contrasent.stats.bootstrap import RESAMPLES, item_keys, mean_draws
from contrasent.text.corpus import ScoredPairs
from contrasent.types import EncodeFn, Vectors

POSITIVE = 4.0  # pairs with a gold score above it are positives

DURING_TRAINING = 300
"""Pairs to look at while a model is trained: about 1 % of the time of a hundred steps of 64."""

BINS = 40
RATINGS = 5

Floats = NDArray[np.float64]
NEAR = 3  # lengths that differ by at most this many words are alike
QUERIES = 100
OVERLAP = (0.13, 0.17)
Length = Callable[[str], int]


def geometry(
    encode: EncodeFn,
    *,
    pairs: ScoredPairs | None = None,
    split: str = "all",
    form: str = "senteval",
    sample: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Report:
    """Measure the geometry of a model's vectors on STS-B, or on any scored ``pairs``.

    Rows "alignment", "uniformity", "anisotropy" (mean cosine of two different vectors; Ethayarajh,
    2019), "isoscore" (Rudman et al., 2022) and "effective_rank" (Roy and Vetterli, 2007); the
    notes hold the singular values and the histograms of cosine by rating, for pictures.
    ``sample``: use at most this many pairs, drawn with the seed.
    """
    check_choice("split", split, ("all", *SPLITS))
    if pairs is None:
        names = SPLITS if split == "all" else (split,)
        parts = [sts_pairs("STSB", split=s, form=form, folder=folder)[0] for s in names]
        pairs = ScoredPairs.join("STSB", parts)
    if sample is not None and sample < len(pairs):
        random = np.random.default_rng(seed)
        pairs = pairs.select(np.sort(random.choice(len(pairs), sample, replace=False)))
    encoded = encode_distinct(encode, [pairs.first, pairs.second])
    first, second = encoded(pairs.first), encoded(pairs.second)
    items = item_keys(pairs.first, pairs.second)
    space, keys = np.concatenate([first, second]), np.tile(items, 2)
    positives = pairs.scores > POSITIVE
    if not positives.any():
        raise DataError(f"{pairs.name}: needs pairs with a score above {POSITIVE:g}")
    left, right = (metrics.normalize(np.asarray(v[positives], np.float64)) for v in (first, second))
    gaps = metrics.norms(left - right) ** 2
    builder, named = ReportBuilder(resamples, seed), (pairs.name, split)
    builder.mean(*named, "alignment", gaps, keys=items[positives])
    # Vectors of equal keys, those of one pair, are resampled together.
    near = metrics.nearness(space)
    even, moved = metrics.item_uniformity(near[None])
    draws = even + mean_draws(moved, resamples, seed, keys)
    whole = Items("uniformity", keys, near[None])
    builder.add(*named, "uniformity", even, len(space), draws=draws, items=whole)
    shape = {"anisotropy": metrics.anisotropy, "isoscore": isoscore}
    for name, measure in {**shape, "effective_rank": metrics.effective_rank}.items():
        builder.add(*named, name, measure(space), len(space))
    notes: dict[str, Any] = {
        "geometry_form": form,
        "positives": f"score above {POSITIVE:g}",
        "duplicates": "counted",
        "geometry_pairs": len(pairs),
        "singular_values": [round(float(v), 5) for v in metrics.singular_values(space)],
        "cosine_by_rating": cosine_by_rating(metrics.cosine(first, second), pairs.scores),
        **encoded.notes,
    }
    return builder.report(notes)


def isoscore(vectors: Vectors) -> float:
    """How evenly the variance fills the dimensions, from 0 (one of them) to 1 (all alike).

    Rudman et al. (2022), Algorithm 1: the distance of the principal variances, scaled to length
    sqrt(d), from a vector of ones, mapped linearly to the share of dimensions in use.
    """
    variances = np.linalg.eigvalsh(np.cov(np.asarray(vectors, dtype=np.float64).T))
    d = len(variances)
    size = np.linalg.norm(variances)
    if size == 0 or d == 1:
        return 0.0
    scaled = np.sqrt(d) * variances / size
    defect = np.linalg.norm(scaled - 1) / np.sqrt(2 * (d - np.sqrt(d)))
    used = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d**2
    return float((d * used - 1) / (d - 1))


def spectral_bound(vectors: Vectors, *, temperature: float = 0.05) -> dict[str, float]:
    """Both sides of SimCSE's equation 7 for vectors (m, d), and the spectrum of Section 5.

    "log_mean_exp" is the second term of equation 6, "mean_over_temperature" its lower bound by
    Jensen's inequality; "sum" is that of all elements of W W^T, "top" its largest eigenvalue, which
    the sum bounds where all elements are positive, "positive" the share of those that are.
    """
    unit = metrics.normalize(np.asarray(vectors, np.float64))
    products = unit @ unit.T
    rows = np.log(np.mean(np.exp((products - 1) / temperature), axis=1)) + 1 / temperature
    return {
        "log_mean_exp": float(rows.mean()),
        "mean_over_temperature": float(products.mean() / temperature),
        "sum": float(products.sum()),
        "top": float(np.linalg.eigvalsh(unit.T @ unit)[-1]),
        "positive": float(np.mean(products > 0)),
    }


def batch_ranks(vectors: Vectors, *, batch_size: int = 64) -> list[tuple[int, int]]:
    """Ranks of the correlation matrix of dimensions in each whole batch (SimCSE++, Section 4.2).

    The first is that of Z^T Z with columns of length one, as in the paper, at most the rows of a
    batch; the second that after columns are centered, as Barlow Twins has it, which loses one more.
    """
    ranks = []
    for start in range(0, len(vectors) - batch_size + 1, batch_size):
        rows = np.asarray(vectors[start : start + batch_size], np.float64)
        columns = (rows, rows - rows.mean(axis=0))
        plain, centered = (
            np.linalg.matrix_rank(metrics.normalize(z.T), rtol=1e-6) for z in columns
        )
        ranks.append((int(plain), int(centered)))
    return ranks


def cosine_by_rating(similarity: Floats, scores: Floats) -> dict[str, list[int]]:
    """Histograms of cosine over [-1, 1] for ratings 0-1, 1-2, ... 4-5 (SimCSE, Figure G.1).

    A rating on a border belongs to the upper bin, 5 to the last.
    """
    bins, edges = _ratings(scores), np.linspace(-1, 1, BINS + 1)
    counts = [np.histogram(similarity[bins == b], edges)[0].tolist() for b in range(RATINGS)]
    return {f"{b}-{b + 1}": count for b, count in enumerate(counts)}


def by_rating(encode: EncodeFn, parts: Sequence[ScoredPairs], split: str) -> Report:
    """Mean cosine of the pairs that people rated alike (DiffCSE, Figure 2)."""
    pairs = ScoredPairs.join(parts[0].name, parts)
    sides = pairs.first, pairs.second
    encoded, builder = encode_distinct(encode, sides), ReportBuilder()
    cosines = metrics.cosine(*map(encoded, sides))
    bins, keys = _ratings(pairs.scores), item_keys(*sides)
    named = (pairs.name, split, "mean_cosine")
    for low in np.unique(bins):
        rated, name = bins == low, f"{low}-{low + 1}"
        builder.mean(*named, cosines[rated], keys=keys[rated], aggregate=name)
    return builder.report({})


def _ratings(scores: Floats) -> NDArray[np.int64]:
    """(n,) the bins of scores: a border belongs to the upper one, 5 to the last."""
    return np.minimum(np.floor(scores).astype(np.int64), RATINGS - 1)


def words(sentence: str) -> int:
    """The number of words between spaces."""
    return len(sentence.split())


def length_bias(
    encode: EncodeFn,
    *,
    tasks: Sequence[str] = STS_TASKS,
    form: str = "senteval",
    length: Length = words,
    unit: str = "words",
    resamples: int = RESAMPLES,
    folder: str | Path | None = None,
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
    builder = ReportBuilder(resamples)
    for task, parts in data.items():
        first, second = [s for p in parts for s in p.first], [s for p in parts for s in p.second]
        gold = np.concatenate([p.scores for p in parts]) / 5
        error = 100 * (metrics.cosine(encoded(first), encoded(second)) - gold)
        gap = np.array([abs(length(a) - length(b)) for a, b in zip(first, second, strict=True)])
        for name, values in (("error", error), ("absolute", np.abs(error))):
            groups = {"near": values[gap <= NEAR], "far": values[gap > NEAR]}
            for group, members in groups.items():
                if not len(members):
                    raise DataError(f"{task}: no pairs with {group} lengths")
                builder.mean(task, "test", f"{name}_{group}", members, aggregate=unit)
            apart = float(groups["near"].mean() - groups["far"].mean())
            builder.add(task, "test", f"{name}_gap", apart, len(values), aggregate=unit)
    if set(STS_TASKS) <= set(data):
        for name in dict.fromkeys(row.metric for row in builder.rows):
            rows = [r for r in builder.rows if r.metric == name and r.task in STS_TASKS]
            value, count = sum(r.value for r in rows) / len(rows), sum(r.count for r in rows)
            builder.add("STS7", "test", name, value, count, aggregate=unit)
    notes = {"length": f"difference up to {NEAR} {unit}, or above", "bias_form": form}
    return builder.report({**notes, **encoded.notes})


def repetition_bias(
    encode: EncodeFn,
    sentences: Sequence[str],
    *,
    queries: int = QUERIES,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Report:
    """How much nearer sentences seem when their shared words are repeated (ESimCSE, Table 8).

    Rows "once", "twice" and "repetition_gain" (their paired difference): mean cosine times 100 of
    ``queries`` and candidates drawn from sentences, which share 13 to 17 % of their words.
    """
    triples = repeated_overlaps(sentences, queries=queries, seed=seed)
    query, once, twice = (list(column) for column in zip(*triples, strict=True))
    encoded = encode_distinct(encode, [query, once, twice])
    before = 100 * metrics.cosine(encoded(query), encoded(once))
    after = 100 * metrics.cosine(encoded(query), encoded(twice))
    values = {"once": before, "twice": after, "repetition_gain": after - before}
    builder = ReportBuilder(resamples, seed)
    for name, v in values.items():
        builder.mean("repetition", "test", name, v)
    return builder.report(
        {"overlap": f"{100 * OVERLAP[0]:.0f} % to {100 * OVERLAP[1]:.0f} % of the words"}
    )


def repeated_overlaps(
    sentences: Sequence[str], *, queries: int, seed: int
) -> list[tuple[str, str, str]]:
    """(query, candidate, candidate with the shared words doubled), drawn with the seed."""
    random = np.random.default_rng(seed)
    split = [s.split() for s in sentences]
    order = random.permutation(len(sentences))
    triples: list[tuple[str, str, str]] = []
    for q in order:
        shared_with = {w.lower() for w in split[q]}
        for c in random.permutation(len(sentences))[:1000]:
            shared = [w.lower() in shared_with for w in split[c]]
            share = sum(shared) / max(len(shared), 1)
            if c != q and OVERLAP[0] <= share <= OVERLAP[1]:
                doubled = np.repeat(split[c], np.where(shared, 2, 1))
                triples.append((sentences[q], sentences[c], " ".join(doubled)))
                break
        if len(triples) == queries:
            return triples
    raise DataError(
        f"only {len(triples)} of {queries} queries share {100 * OVERLAP[0]:.0f} % to "
        f"{100 * OVERLAP[1]:.0f} % of their words with a sentence, among "
        f"{len(sentences):,}; give more text"
    )
