"""Validation of a training run, which chooses its model, on text left out of training.

The best of many evaluations on the same items looks better than it is: every second item ("dev")
chooses the step, the others ("test") say whether it beats the base (row "gain_...").
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import metrics
from contrasent.datasets.sts import sts_pairs
from contrasent.errors import DataError, OptionError, TrainingError
from contrasent.evaluate.retrieval import check_relevant, rank_vectors
from contrasent.evaluate.sts import check_pairs, several_pairs, sts
from contrasent.evaluate.vectors import ReportBuilder, encode_distinct, encode_search
from contrasent.report import Report, Row
from contrasent.stats import bootstrap
from contrasent.text import heldout
from contrasent.text.corpus import Corpus, ScoredPairs, read_labeled_pairs
from contrasent.text.heldout import Keys, letters
from contrasent.types import EncodeFn

NEIGHBORS = 10
FLOOR = 0.8
"""Share of the base's neighbors below which the base is given instead (research/evaluation.md)."""

CUT = 10
DRAWS = 10_000

Floats = NDArray[np.float64]
Evaluate = Callable[[EncodeFn], Report]

BLIND = {
    "documents": "it measures whether sentences find their own documents, not whether people's "
    "questions do",
    "neighbors": "it measures how much of the base is unchanged, not whether the change is better",
}
"""The limits of evaluations without labels."""
BETTER = "train on pairs (two columns) or add --evaluate FILE with labeled pairs"


@dataclass(frozen=True, slots=True)
class RetrievalValidation:
    """Held-out items: one text of each searches for its counterpart among those of all items."""

    task: str
    # by name, n queries and their n counterparts; an item's score is the mean over the pools of
    # its reciprocal rank (0 beyond 10)
    pools: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    # for each query the positions of its counterparts; None if the n-th belongs to the n-th
    relevant: Sequence[Sequence[int]] | None = None

    def __call__(self, encode: EncodeFn) -> Report:
        """Rows "mrr@10" and "recall@1" of the dev items; ``notes["items"]`` has all."""
        queried, read = encode_search(encode, *zip(*self.pools.values(), strict=True))
        ranks, first = {}, []
        for name, (queries, documents) in self.pools.items():
            places = range(len(queries)) if self.relevant is None else self.relevant
            relevant = check_relevant(places, len(queries), len(documents))
            ranking = rank_vectors(queried(queries), read(documents), relevant)
            ranks[f"{self.task}/{name}"] = ranking.by_query(metrics.reciprocal_rank_at_k, CUT)
            first.append(ranking.by_query(metrics.recall_at_k, 1))
        items = np.mean(list(ranks.values()), axis=0)
        builder = ReportBuilder()
        builder.mean(self.task, "dev", f"mrr@{CUT}", choosing(items))
        builder.mean(self.task, "dev", "recall@1", choosing(np.mean(first, axis=0)))
        for task, values in ranks.items() if len(ranks) > 1 else ():
            builder.mean(task, "dev", f"mrr@{CUT}", choosing(values))
        return builder.report({"items": items.tolist()})

    def against(self, encode: EncodeFn, base: Report) -> Report:
        """The same, and the rows "mrr@10" and "gain_mrr@10" of the test items."""
        report = self(encode)
        before, after = (confirming(np.array(r.notes["items"])) for r in (base, report))
        if not len(after):
            return report
        test, gain = ReportBuilder(), ReportBuilder(DRAWS)
        test.mean(self.task, "test", f"mrr@{CUT}", after)
        gain.mean(self.task, "test", f"gain_mrr@{CUT}", after - before)
        return Report((*report.rows, *test.rows, *gain.rows), report.notes)


@dataclass(frozen=True, slots=True, eq=False)
class LabeledValidation:
    """Pairs of texts with a label each: Spearman's correlation of cosine and label."""

    first: Sequence[str]
    second: Sequence[str]
    scores: Floats  # (n,) labels
    digest: str = ""  # of the file that they are from, "sha256 ..."

    def __call__(self, encode: EncodeFn) -> Report:
        """Rows "spearman" and "pearson" of the dev pairs; ``notes["items"]``: cosines."""
        encoded = encode_distinct(encode, [self.first, self.second])
        items = metrics.cosine(encoded(self.first), encoded(self.second))
        places = self.halves()[0]
        left, right = ([side[i] for i in places] for side in (self.first, self.second))
        pairs = check_pairs(left, right, self.scores[places], "pairs")
        report = several_pairs(encoded, {"pairs": pairs}, split="dev")
        return Report(report.rows, {**report.notes, "items": items.tolist()})

    def against(self, encode: EncodeFn, base: Report) -> Report:
        """The same, and the row "gain_spearman" of the test pairs."""
        report = self(encode)
        others = self.halves()[1]
        before, after = (np.array(r.notes["items"])[others] for r in (base, report))
        gold = self.scores[others]
        if not len(gold) or min(map(np.ptp, (before, after, gold))) == 0:
            return report
        gain = bootstrap.paired_spearman_difference(
            before, after, gold, resamples=bootstrap.RESAMPLES
        )
        row = Row("pairs", "test", "gain_spearman", "", gain.mean, len(gold), gain.low, gain.high)
        return Report((*report.rows, row), report.notes)

    def halves(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The dev pairs and the test pairs; all are dev pairs if half would have only one label."""
        order = np.argsort(-self.scores, kind="stable")
        half = choosing(order)
        if np.ptp(self.scores[half]) == 0:
            return order, order[:0]
        return half, confirming(order)


@dataclass(frozen=True, slots=True)
class NeighborValidation:
    """The share of the base's neighborhoods that stay, which is preservation and not gain."""

    texts: Sequence[str]
    # least share at which a run gives the trained model rather than its base; 0 if the base is not
    # a sentence encoder, so that its neighborhoods are not a standard
    floor: float = FLOOR

    def __call__(self, encode: EncodeFn) -> Report:
        """The base's report: overlap 1, and its neighborhoods as ``notes["neighbors"]``."""
        return self.against(encode, None)

    def against(self, encode: EncodeFn, base: Report | None) -> Report:
        """The report of a later model; None is for the base itself."""
        if len(self.texts) <= NEIGHBORS:
            raise DataError(f"{len(self.texts)} held-out sentences have no {NEIGHBORS} neighbors")
        vectors = encode_distinct(encode, [self.texts])(self.texts)
        now = metrics.neighbors(vectors, NEIGHBORS)
        old = now if base is None else np.array(base.notes["neighbors"])
        there = np.repeat(np.arange(len(old)), NEIGHBORS)
        builder, named = ReportBuilder(), ("neighbors", "heldout")
        builder.mean(*named, f"overlap@{NEIGHBORS}", metrics.shared_share(old, now))
        gap = metrics.alignment(vectors[there], vectors[old.ravel()])
        builder.add(*named, "alignment", gap, len(vectors))
        builder.add(*named, "uniformity", metrics.uniformity(vectors), len(vectors))
        return builder.report({"neighbors": now.tolist()} if base is None else {})


def choosing(items: NDArray[Any]) -> NDArray[Any]:
    """The dev items, which choose a step: every second one, or all if there are fewer than 40."""
    return items[::2] if len(items) >= 2 * bootstrap.MIN_ITEMS else items


def confirming(items: NDArray[Any]) -> NDArray[Any]:
    """The test items, which take no part in choosing; none if there are fewer than 40."""
    return items[1::2] if len(items) >= 2 * bootstrap.MIN_ITEMS else items[:0]


def choose_validation(
    wanted: str | None, source: Corpus, count: int, keys: Keys = letters
) -> tuple[str, Evaluate | None, NDArray[np.int64] | None, str]:
    """The evaluation that decides which model is kept: its name, itself, training rows, a note."""
    if wanted is not None or source.width > 1:
        name = wanted or "heldout"
        return name, *_named(name, source, count, keys)
    why = problem = ""
    for name in ("documents", "neighbors")[not source.documents :]:
        try:
            evaluator, rows, note = _named(name, source, count, keys)
            return name, evaluator, rows, why + note
        except TrainingError as error:
            problem = str(error)
            why = f"the default, --evaluate documents, is impossible: {problem}\n"
    return "none", None, None, f"evaluation skipped: {problem}"


def _named(
    name: str, source: Corpus, count: int, keys: Keys
) -> tuple[Evaluate | None, NDArray[np.int64] | None, str]:
    """An evaluation, the rows to train on, and a note on what was held out or what it misses."""
    if name == "none":
        return None, None, ""
    if name == "stsb":
        sts_pairs("STSB", split="dev")  # missing data are an error before any training
        return lambda encode: sts(encode, tasks=("STSB",), split="dev"), None, ""
    needs = {
        "heldout": (source.width > 1, "a corpus of pairs; this one has single sentences"),
        "documents": (source.width == 1 and source.documents, "sentences and --documents"),
        "neighbors": (source.width == 1, "a corpus of sentences; this one has pairs"),
    }
    fits, what = needs.get(name, (True, ""))
    if not fits:
        raise OptionError("--evaluate", name, f"needs {what}")
    if name == "heldout":
        split = heldout.hold_out(source, count, keys=keys)
        if source.scored:
            _check_held_out_scores(source, split.scores)
            evaluator = LabeledValidation(split.queries, split.documents, split.scores)
            return evaluator, split.train, split.note
        pools = {"pairs": (split.queries, split.pool)}
        return RetrievalValidation(name, pools, split.relevant), split.train, split.note
    if name in BLIND:
        blind = f"--evaluate {name}: {BLIND[name]}; {BETTER}"
        if name == "neighbors":
            rows, texts = heldout.hold_out_sentences(source, count, keys=keys)
            return NeighborValidation(texts), rows, blind
        rows, documents = heldout.hold_out_documents(source, count, keys=keys)
        return RetrievalValidation(name, heldout.passages(documents)), rows, blind
    if not Path(name).is_file():
        problem = "neither a file with labeled pairs nor a known name"
        raise OptionError("--evaluate", name, problem, choices=(*needs, "none", "stsb"))
    labels = read_labeled_pairs(name)
    digest = f"sha256 {hashlib.sha256(Path(name).read_bytes()).hexdigest()}"
    evaluator = LabeledValidation(labels.first, labels.second, labels.scores, digest)
    return evaluator, None, _trained_on(name, labels, source)


def _check_held_out_scores(source: Corpus, held_out: Floats) -> None:
    """Reject scores of which all, or all held-out ones, are the same."""
    first = held_out[0]
    if np.ptp(source.scores) == 0:
        problem = f"all {len(source.scores):,} scores are {first:g}"
        raise TrainingError(f"{source.source}: {problem}; training needs different scores")
    if np.ptp(held_out) == 0:
        most = np.mean(source.scores == first)
        raise TrainingError(
            f"{source.source}: all {len(held_out):,} held-out pairs have the score {first:g}, as "
            f"{100 * most:.0f} % of all do; add pairs with different scores, --evaluate FILE with "
            "labeled pairs, or --evaluate none"
        )


def _trained_on(name: str, labels: ScoredPairs, source: Corpus) -> str:
    """A warning if labeled pairs are rows of the training text."""
    pairs = set(zip(labels.first, labels.second, strict=True))
    seen = sum(len({row[:2], row[1::-1]} & pairs) > 0 for row in source) if source.width > 1 else 0
    if any(Path(name).samefile(file) for file in source.files):
        seen = seen or len(pairs)
    if not seen:
        return ""
    known = f"{min(seen, len(labels)):,} of the {len(labels):,} pairs of {name}"
    return f"warning: {known} are in the training data; the score is too optimistic"
