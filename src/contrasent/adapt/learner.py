"""Learned from queries: a map of them, their answers, and with ``--train-encoder`` an encoder.

Rows that answer a query attract its mapped vector, and rows that do not push it away (InfoNCE). The
queries are stored too, so that documents that answered a similar query get a bonus.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.adapt.bench import Bench
from contrasent.errors import import_extra
from contrasent.search.learned import KnownQueries, Learned, Neighbors
from contrasent.search.ranking import Ranker
from contrasent.text.corpus import open_corpus
from contrasent.text.heldout import hold_out
from contrasent.types import Mask, Numbers, Vectors

WARM = 0.1  # share of the steps in which the rate rises; it falls linearly in the others
DECAYS, SMALL = (0.9, 0.999), 1e-8  # of Adam


def contrast(
    matrix: Vectors, queries: Vectors, rows: Vectors, right: Mask, wrong: Mask, temperature: float
) -> tuple[float, Vectors]:
    """InfoNCE of mapped queries (b, d) and unit rows (c, d), and its gradient in the (d, d) map.

    ``right``, ``wrong``: (b, c), the rows that answer a query and those that do not. Each right one
    is compared with all wrong ones; a query counts by the mean over its right ones.
    """
    # Cosines of mapped queries and rows, by the temperature.
    raw = queries @ matrix
    lengths = np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-12)
    unit = raw / lengths
    scores = unit @ rows.T / np.float32(temperature)
    # The probability of each right row among it and all wrong ones, and the loss.
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    others = np.maximum((powers * wrong).sum(axis=1, keepdims=True), 1e-30)
    shares = powers / (powers + others)
    weights = right / np.maximum(right.sum(axis=1, keepdims=True), 1).astype(np.float32)
    loss = -float((weights * np.log(np.maximum(shares, 1e-38))).sum(axis=1).mean())
    # Its gradient in the scores: a right row pulls by the probability that it lacks, and wrong
    # ones push by the same in all, each by its part of them.
    missing = weights * (1 - shares)
    slopes = wrong * powers / others * missing.sum(axis=1, keepdims=True) - missing
    # In the unit vectors, and in the raw ones, whose length changes nothing.
    moved = slopes @ rows / np.float32(temperature * len(queries))
    moved -= (moved * unit).sum(axis=1, keepdims=True) * unit
    return loss, queries.T @ (moved / lengths)


def descend(
    matrix: Vectors, slope_of: Callable[[Vectors], Vectors], *, rate: float, steps: int
) -> Vectors:
    """The matrix after some steps of Adam along a gradient."""
    fitted = np.array(matrix, dtype=np.float32)
    first, second = np.zeros_like(fitted), np.zeros_like(fitted)
    for step in range(1, steps + 1):
        slope = slope_of(fitted)
        first += np.float32(1 - DECAYS[0]) * (slope - first)
        second += np.float32(1 - DECAYS[1]) * (slope * slope - second)
        now = rate * min(1.0, step / max(1.0, WARM * steps)) * (1 - (step - 1) / steps)
        length = np.sqrt(second / np.float32(1 - DECAYS[1] ** step)) + np.float32(SMALL)
        fitted -= np.float32(now / (1 - DECAYS[0] ** step)) * first / length
    return fitted


SHARES = (None, 0.5, 1.0)  # of the map learned from queries; None keeps the prior's
WEIGHTS, FEW_WEIGHTS = (0.0, 0.025, 0.05, 0.1, 0.2, 0.4), (0.05, 0.2)  # of BM25
SMOOTHINGS = (0.0, 0.6)
# The weight of answers to similar queries, and the cosine from which they count.
BONUSES, FEW_BONUSES = ((0.0, 0.8), (1.0, 0.8), (1.0, 0.6), (3.0, 0.6)), ((0.0, 0.8), (3.0, 0.6))
NEIGHBORS, MOST_ROWS = 5, 20_000  # of a row; rows up to which they are computed

EPOCHS, SHORTEST, LONGEST = 12, 20, 200  # passes over the queries; fewest and most steps
RATE, BATCH, TEMPERATURE = 1e-3, 64, 0.03
HARD = 30  # the best rows of the prior that do not answer a query
RANDOM_ROWS = 1000  # drawn for a step as further negatives


@dataclass(frozen=True, slots=True)
class Strategy:
    """A ranker, and whether its map is learned from queries."""

    ranker: Ranker
    maps: bool

    def needs(self, learned: Learned) -> Learned:
        """The learned parts that it uses."""
        ranker = self.ranker
        return replace(
            learned,
            matrix=learned.matrix if ranker.map_share else None,
            neighbors=learned.neighbors if ranker.smoothing else None,
            known=learned.known if ranker.known else None,
        )


def candidate_strategies(
    default: Ranker, prior: Ranker, *, few: bool, smooth: bool
) -> list[Strategy]:
    """All strategies to try: the default search, vectors alone, the prior and values around it.

    ``smooth``: whether rows' neighbors are known.
    """
    weights = {prior.bm25_weight, *(FEW_WEIGHTS if few else WEIGHTS)}
    smoothings = {prior.smoothing, *(SMOOTHINGS if smooth else ())}
    bonuses = FEW_BONUSES if few else BONUSES
    vectors = replace(default, bm25_weight=0.0)
    strategies = [Strategy(one, False) for one in (default, vectors, prior)]
    every = product(SHARES, sorted(weights), sorted(smoothings), bonuses)
    for share, weight, smoothing, (known, start) in every:
        ranker = replace(prior, bm25_weight=weight, smoothing=smoothing)
        ranker = replace(ranker, known=known, known_from=start)
        if share is not None:
            ranker = replace(ranker, map_share=share)
        strategies.append(Strategy(ranker, share is not None))
    return list(dict.fromkeys(strategies))


class Learner:
    """The queries of a bench, the rows that answer them, and hard negatives."""

    def __init__(self, bench: Bench, prior: Ranker, seed: int) -> None:
        self.bench, self.prior, self.seed = bench, prior, seed
        self.neighbors = bench.learned.neighbors
        alive = np.flatnonzero(bench.units >= 0)
        if self.neighbors is None and NEIGHBORS < len(alive) <= MOST_ROWS:
            self.neighbors = Neighbors.among(bench.index.vectors, alive, NEIGHBORS)
        # By query: the best row of each document that answers it, its hard negatives, and rows
        # that are not negatives.
        self.answers: list[Numbers] = []
        self._hard: list[Numbers] = []
        self._own: list[Numbers] = []
        for number, query in enumerate(bench.queries):
            best = bench.best_rows(number, prior)
            self._hard.append(best[~np.isin(bench.units[best], list(query.relevant))][:HARD])
            answers, relevant = list[int](), list[int]()
            for unit, gain in query.relevant.items():
                rows = bench.of_rows.rows_of(bench.documents[unit])
                relevant.extend(rows)
                if len(rows) and gain > 0:
                    cosines = np.asarray(bench.index.vectors[rows]) @ bench.vectors[number]
                    answers.append(rows[cosines.argmax()])
            self.answers.append(np.array(answers, dtype=np.int64))
            self._own.append(np.array(relevant, dtype=np.int64))

    def documents_of(self, numbers: Numbers) -> set[int]:
        """All documents that answer some queries."""
        return {unit for number in numbers.tolist() for unit in self.bench.queries[number].relevant}

    def fit(self, training: Numbers, absent: Set[int]) -> Vectors:
        """(d, d) map learned from queries; ``absent`` documents are neither right nor wrong."""
        bench, random = self.bench, np.random.default_rng(self.seed)
        matrix = np.eye(bench.vectors.shape[1], dtype=np.float32)
        if self.prior.map_share and bench.learned.matrix is not None:
            matrix += np.float32(self.prior.map_share) * (bench.learned.matrix - matrix)
        present = (bench.units >= 0) & ~np.isin(bench.units, list(absent))
        alive = np.flatnonzero(present)
        answers = {i: rows[present[rows]] for i, rows in enumerate(self.answers)}
        able = np.array([i for i in training.tolist() if len(answers[i])], dtype=np.int64)
        if not len(able):
            return matrix
        batch = min(BATCH, len(able))
        order: Numbers = able[:0]

        def slope_of(matrix: Vectors) -> Vectors:
            nonlocal order
            if len(order) < batch:
                order = random.permutation(able)
            chosen, order = order[:batch], order[batch:]
            drawn = [alive[random.integers(len(alive), size=RANDOM_ROWS)]]
            drawn += [source[i] for i in chosen for source in (self._hard, answers)]
            rows = np.unique(np.concatenate(drawn))
            rows = rows[present[rows]]
            place = np.full(len(present), -1)
            place[rows] = np.arange(len(rows))
            right = np.zeros((batch, len(rows)), dtype=bool)
            wrong = np.ones_like(right)
            for i, number in enumerate(chosen):
                right[i, place[answers[number]]] = True
                columns = place[self._own[number]]
                wrong[i, columns[columns >= 0]] = False
            vectors = bench.vectors[chosen], np.asarray(bench.index.vectors[rows])
            return contrast(matrix, *vectors, right, wrong, TEMPERATURE)[1]

        steps = min(LONGEST, max(SHORTEST, EPOCHS * len(able) // batch))
        return descend(matrix, slope_of, rate=RATE, steps=steps)

    def learned(self, training: Numbers, absent: Set[int], *, maps: bool) -> Learned:
        """The result of some queries: a map learned from them or the prior's, and their answers."""
        bench = self.bench
        answers = list[tuple[str, ...]]()
        for number in training.tolist():
            gains = bench.queries[number].relevant.items()
            units = [unit for unit, gain in gains if gain > 0 and unit not in absent]
            answers.append(tuple(bench.documents[unit] for unit in units))
        return replace(
            bench.learned,
            matrix=self.fit(training, absent) if maps else bench.learned.matrix,
            neighbors=self.neighbors,
            known=KnownQueries(bench.vectors[training], tuple(answers)),
        )


# ---------------------------------------------------------------------- an encoder

METHOD = "simcse_supervised"
SETTINGS = {"num_train_epochs": 3.0, "learning_rate": 5e-5, "max_seq_length": 128}
HELD_OUT = 1000  # pairs at most


def train_encoder(bench: Bench, base: Path, folder: Path, seed: int) -> dict[str, Any]:
    """Train a base on queries; a killed run resumes. The verdict, and the queries that it has seen.

    The held-out verdict of ``train`` decides. What is learned on top of a trained encoder is
    evaluated by the queries that were held out, since the encoder has seen the others.
    """
    fit = import_extra("contrasent.train.fit", "train", "--train-encoder").fit
    # Each query with the nearest passage of every document that answers it.
    pairs = []
    for number, query in enumerate(bench.queries):
        for document in (unit for unit, gain in query.relevant.items() if gain > 0):
            rows = bench.of_rows.rows_of(bench.documents[document])
            nearest = rows[np.argmax(bench.index.vectors[rows] @ bench.vectors[number])]
            (passage,) = bench.index.rows(np.array([nearest]))
            pairs.append((query.text, passage.text))
    settings = SETTINGS | {"eval_size": HELD_OUT, "seed": seed}
    how: dict[str, Any] = {"evaluate": "heldout", "resume": True}
    run = fit(METHOD, pairs, settings, output_dir=folder, base=base, **how)
    trained = hold_out(open_corpus(pairs), HELD_OUT).train
    seen = {pairs[row][0] for row in trained.tolist()}
    reason = f"held-out {run.metric} {run.base_score:.3f} to {run.score:.3f}"
    if run.gain is not None and run.gain.low is not None:
        interval = f"95 % CI [{run.gain.low:+.3f}, {run.gain.high:+.3f}]"
        reason += f" ({run.gain.value:+.3f}, {interval} on {run.gain.count} others)"
    return {"improved": run.improved is True, "reason": reason, "seen": sorted(seen)}
