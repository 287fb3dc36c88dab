"""User queries teach a linear map over the base, and the share of words in a score.

Every query is judged by a map that it did not teach (cross-fitting), in two ways: with folds of
queries drawn at random, as if the same documents were asked for again, and with folds of whole
documents, as if they were new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from contrasent.adapt.candidates import Candidate, Encoded
from contrasent.adapt.evidence import Evidence, Floats, main_answers
from contrasent.adapt.judging import Sealed, found_by, largest_changes
from contrasent.adapt.mapping import descend, toward_identity
from contrasent.adapt.measuring import measure, rankings
from contrasent.adapt.reading import UserQueries
from contrasent.adapt.selection import Selection
from contrasent.adapt.verdict import (
    FEWEST,
    General,
    KindChange,
    Verdict,
    check_general,
    clustered_difference,
    shown,
)
from contrasent.losses.contrastive import info_nce
from contrasent.metrics import normalize
from contrasent.search.ranking import Ranker
from contrasent.types import Vectors

MIN_QUERIES = 40
FOLDS = 5
AGAIN, NEW = "asked again", "new documents"  # kinds of folds: of queries, and of whole documents
WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
"""Shares of words that are tried; the two defaults of an index are among them."""
SHARES = (0.5, 1.0)  # of the map; the rest is the identity
WAYS = [(share, weight) for share in (0.0, *SHARES) for weight in WEIGHTS]

EPOCHS, SHORTEST, LONGEST = 12, 20, 200  # passes over the queries; fewest and most steps
BATCH, LR, TEMPERATURE = 64, 1e-3, 0.05
HARD = 30  # the best rows of the default search that do not answer a query, its hard negatives
RANDOM = 1000  # rows drawn for a step as further negatives


def too_few(queries: UserQueries) -> str:
    """Why these queries can neither teach nor judge; empty if they can."""
    documents = len(set(main_answers(queries)))
    if len(queries) >= MIN_QUERIES and documents >= FEWEST:
        return ""
    return (
        f"{len(queries)} queries about {documents} of these documents; {MIN_QUERIES} about {FEWEST}"
        " are needed to teach and to judge: they are left out"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Lessons:
    """Queries, the rows that answer them, and rows that only look as if they did."""

    evidence: Evidence
    encoded: Encoded  # by the base
    answers: Sequence[Mapping[int, int]]  # of each query, the best row of each unit that answers
    hard: Sequence[NDArray[np.int64]]

    @classmethod
    def of(cls, selection: Selection, prior: Ranker) -> "Lessons":
        """Mine hard negatives by the default search."""
        evidence, words = selection.context.part.evidence, selection.words
        encoded = selection.vectors.by(normalize)
        rows_of: dict[int, list[int]] = {}
        for row, unit in enumerate(evidence.units.tolist()):
            rows_of.setdefault(unit, []).append(row)
        answers, hard = [], []
        for query, vector in zip(evidence.queries, encoded.queries, strict=True):
            (best,) = rankings(evidence, query, vector, encoded.rows, words, [prior])
            relevant = np.isin(evidence.units[best], list(query.relevant))
            hard.append(best[~relevant][:HARD])
            nearest = {}
            for unit in query.relevant:
                rows = rows_of[unit]
                nearest[unit] = rows[int((encoded.rows[rows] @ vector).argmax())]
            answers.append(nearest)
        return cls(evidence, encoded, answers, hard)

    def fit(self, judged: NDArray[np.bool_], *, new: bool, seed: int) -> Vectors:
        """(d, d) M for queries and rows, taught by all but the judged queries.

        With ``new`` documents that answer judged queries are neither positives nor negatives.
        """
        queries = self.evidence.queries
        held = {unit for at in np.flatnonzero(judged) for unit in queries[at].relevant}
        absent = held if new else set[int]()
        positives = {
            at: [row for unit, row in self.answers[at].items() if unit not in absent]
            for at in np.flatnonzero(~judged).tolist()
        }
        able = np.array([at for at, rows in positives.items() if rows], dtype=np.int64)
        both = (self.encoded.queries, self.encoded.rows)
        vectors, rows = (torch.from_numpy(np.array(part)) for part in both)
        random = np.random.default_rng(seed)
        batch = min(BATCH, len(able))
        steps = min(LONGEST, max(SHORTEST, EPOCHS * len(able) // max(1, batch)))
        order: NDArray[np.int64] = able[:0]

        def loss_of(matrix: torch.Tensor) -> torch.Tensor:
            nonlocal order
            if len(order) < batch:
                order = random.permutation(able)
            chosen, order = order[:batch], order[batch:]
            right = np.array([random.choice(positives[at]) for at in chosen])
            others = [random.integers(len(rows), size=RANDOM), *(self.hard[at] for at in chosen)]
            wrong = np.setdiff1d(np.concatenate(others), right)
            units = self.evidence.units[np.concatenate([right, wrong])]
            counts = np.stack([~np.isin(units, [*queries[at].relevant, *absent]) for at in chosen])
            return info_nce(
                vectors[chosen] @ matrix,
                rows[right] @ matrix,
                extra_negatives=rows[wrong] @ matrix,
                temperature=TEMPERATURE,
                weights=torch.from_numpy(counts),
            )

        return descend(rows.shape[1], loss_of, lr=LR, steps=steps if len(able) else 0)


def folds_of(evidence: Evidence, kind: str, seed: int) -> NDArray[np.int64]:
    """(q,) the fold of each query; queries with one main answer share it where documents do."""
    of = np.arange(len(evidence.queries))
    if kind == NEW:
        of = np.unique([query.document for query in evidence.queries], return_inverse=True)[1]
    numbers = np.arange(of.max() + 1) % FOLDS
    found: NDArray[np.int64] = np.random.default_rng(seed).permutation(numbers)[of]
    return found


def best_way(values: Mapping[str, Floats], among: NDArray[np.bool_], default: int) -> int:
    """The number of the way that is best for some queries, both kinds of folds together."""
    scores = np.sum([v[:, among].mean(axis=1) for v in values.values()], axis=0)
    best = int(scores.argmax())
    return best if scores[best] > scores[default] + 1e-9 else default


def cross_fitted(
    values: Mapping[str, Floats], folds: Mapping[str, NDArray[np.int64]], default: int
) -> dict[str, Floats]:
    """(q,) nDCG@10 by kind: of each fold by the way that is best for the other folds."""
    found = {kind: np.empty(v.shape[1]) for kind, v in values.items()}
    for kind, numbers in folds.items():
        for fold in range(FOLDS):
            judged = numbers == fold
            found[kind][judged] = values[kind][best_way(values, ~judged, default), judged]
    return found


def teach(selection: Selection, prior: Ranker) -> tuple[Candidate, Sealed]:
    """The candidate that the queries taught, and whether it is better than the default search."""
    work, seed = selection.work, selection.context.seed
    evidence = selection.context.part.evidence
    selection.try_one(Candidate("base", fusion=prior))
    selection.try_one(Candidate("vectors alone"))
    selection.try_one(Candidate("BM25", model=""))
    lessons = Lessons.of(selection, prior)
    encoded, rankers = lessons.encoded, [Ranker(weight) for weight in WEIGHTS]

    def layer(matrix: Vectors, share: float) -> Encoded:
        mixed = toward_identity(np.asarray(matrix, dtype=np.float64), share).astype(np.float32)
        return encoded.by(lambda vectors: normalize(vectors @ mixed))

    def measured(by: Encoded, numbers: NDArray[np.int64]) -> list[list[float]]:
        part = evidence.part(numbers)
        found: list[list[float]] = measure(
            part,
            queries=by.queries[numbers],
            rows=by.rows,
            lexical=selection.words,
            fusions=rankers,
        ).tolist()
        return found

    def taught(kind: str, fold: int) -> Vectors:
        judged = folds[kind] == fold
        return work.vectors(
            f"taught-{kind.split()[0]}-{fold}",
            lambda: lessons.fit(judged, new=kind == NEW, seed=seed),
        )

    def learnt(kind: str, fold: int, numbers: NDArray[np.int64]) -> list[list[float]]:
        matrix = taught(kind, fold)
        return [row for share in SHARES for row in measured(layer(matrix, share), numbers)]

    everything = np.arange(len(evidence.queries))
    folds = {kind: folds_of(evidence, kind, seed) for kind in (AGAIN, NEW)}
    plain = np.array(work.stage("taught-plain", lambda: measured(encoded, everything)))
    values: dict[str, Floats] = {}
    for kind, numbers in folds.items():
        values[kind] = np.concatenate([plain, *(np.zeros_like(plain) for _ in SHARES)])
        for fold in range(FOLDS):
            selection.say(f"learning from queries, {kind}, fold {fold + 1} of {FOLDS}")
            at = np.flatnonzero(numbers == fold)
            found = work.stage(
                f"taught-{kind.split()[0]}-{fold}",
                partial(learnt, kind, fold, at),
            )
            values[kind][len(WEIGHTS) :, at] = found
    default = WAYS.index((0.0, prior.word_weight))
    before = plain[default]
    after = cross_fitted(values, folds, default)
    share, weight = WAYS[best_way(values, np.full(len(before), True), default)]
    chosen = selection.tried[0].candidate
    general = None
    if share:
        work.vectors("map", lambda: lessons.fit(np.full(len(before), False), new=False, seed=seed))
        name = f"map taught by {len(before):,} queries, {share:g}, + BM25 {weight:g}"
        chosen = Candidate(name, "mapped", share, Ranker(weight))
        general = check_general(selection.context.base.encode, selection.encoder(chosen).encode)
    elif weight != prior.word_weight:
        chosen = Candidate(f"base + BM25 {weight:g}", fusion=Ranker(weight))
    if chosen.name != "base":
        selection.try_one(chosen, values_of=lambda: after[AGAIN])
    verdict = judge(evidence, before, after, chosen.name, general, seed)

    def by_fold(number: int) -> Encoded:
        matrix = taught(AGAIN, int(folds[AGAIN][number])) if share else None
        return encoded if matrix is None else layer(matrix, share)

    changes = largest_changes(
        evidence,
        before,
        after[AGAIN],
        lambda at: found_by(evidence, at, encoded, selection.words, prior),
        lambda at: found_by(evidence, at, by_fold(at), selection.words, Ranker(weight)),
    )
    return chosen, Sealed(verdict, len(before), changes)


def judge(
    evidence: Evidence,
    before: Floats,
    after: Mapping[str, Floats],
    name: str,
    general: General | None,
    seed: int,
) -> Verdict:
    """The verdict: better for documents that queries taught about, and no worse for new ones."""
    kinds, changes = {}, {}
    for kind, values in after.items():
        changes[kind] = clustered_difference(evidence, values - before, seed=seed)
        means = float(before.mean()), float(values.mean())
        kinds[kind] = KindChange(*means, len(before), changes[kind])
    again, new = changes[AGAIN], changes[NEW]
    improved = False
    reason = (
        f"{name} changes nDCG@10 by {shown(again)} where documents are asked for again and by "
        f"{shown(new)} on new documents, compared with the default search"
    )
    if name == "base":
        reason = "nothing that the queries taught is better than the default search"
    elif not again.low > 0:
        reason += "; the first may be nothing"
    elif new.high < 0:
        reason += "; it forgets how to find what nobody has asked for yet"
    elif general is not None and general.fell:
        reason += f"; but {general.task} falls from {general.before:.3f} to {general.after:.3f}"
    else:
        improved = True
    first = kinds[AGAIN]
    return Verdict(improved, again, first.before, first.after, kinds, general, reason)
