"""An encoder trained on user queries, measured against ways that need no new vectors.

Each fold holds out the queries about some documents, with everything that answers them, and trains
a copy of the base on the others. It encodes only the rows that matter for judging.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from contrasent.adapt.bench import CUT, Bench, Floats, Values, difference
from contrasent.adapt.learner import (
    AGAIN,
    MOST_ROWS,
    NEIGHBOURS,
    NEW,
    NEW_COUNTS,
    Learner,
    Way,
    taught_by,
    ways_of,
)
from contrasent.adapt.work import Work
from contrasent.errors import import_extra
from contrasent.files import remove
from contrasent.indexing.models import find_index_model, model_settings
from contrasent.indexing.tiers import pace, quick
from contrasent.metrics import normalize
from contrasent.model.base import TaskEncoder
from contrasent.model.opening import open_encoder
from contrasent.search.index import Index
from contrasent.search.learned import Learned, Neighbours
from contrasent.types import Log, Mask, Numbers, Vectors, for_task

EPOCHS, RATE, LONGEST = 3.0, 5e-5, 128  # for training; tokens read of a passage
FOLDS = 2  # of documents, each with its own training run
MOST_PAIRS, CHECKPOINT = 2000, 20  # training pairs at most; steps between checkpoints
POOL, DRAWN = 1500, 250  # rows searched by the queries of a fold, and how many of them are drawn
TIMED = 24  # rows that encoding is timed on
BACKWARD, LETTERS = 2.5, 4  # cost of training on a pair, in passages; characters of a token


@dataclass(frozen=True, slots=True)
class Trial:
    """Evaluated encoders: the ways to search by one, and nDCG@10 of each query by each."""

    ways: list[Way]
    values: dict[str, Floats]  # by kind of folds, (ways, queries)
    judged: Mask  # (queries,), not all if the first fold was conclusive
    seconds: float
    teach_all: Callable[[], object]  # trains the final encoder on all queries


def encoder_ways(learner: Learner) -> list[Way]:
    """The ways to search by an encoder's vectors: without a map, smoothed where rows are few."""
    smooth = NEIGHBOURS < len(learner.bench.index) <= MOST_ROWS
    prior = replace(learner.prior, map_share=0.0)
    prior = prior if smooth else replace(prior, smoothing=0.0)
    few = ways_of(prior, "few", smooth=smooth, tuning=learner.tuning)
    return [replace(way, encoder=True) for way in few if not way.maps]


class EncoderLearner:
    """Trains encoders on a learner's queries, and measures them."""

    def __init__(self, learner: Learner, encode: TaskEncoder, work: Work, log: Log) -> None:
        self.learner, self.work, self.log = learner, work, log
        self.bench, self.seed, self.encode = learner.bench, learner.seed, encode
        self.index = self.bench.index
        purpose = "an encoder that learns from queries"
        self._fit = import_extra("contrasent.train.fit", "train", purpose).fit
        self.base = find_index_model(self.index)
        self.ways = encoder_ways(learner)

    # ------------------------------------------------------------------ what it takes

    def seconds(self) -> float:
        """An estimate of the time of all trainings and encodings, that of the index included."""
        rows = self.index.numbers()
        texts = [row.text for row in self.index.rows(rows[:: max(1, len(rows) // TIMED)][:TIMED])]
        per_text = pace(self.encode, texts)
        pairs = min(MOST_PAIRS, len(self.pairs(np.arange(len(self.bench.queries)), set())))
        read = sum(min(len(text), LETTERS * LONGEST) for text in texts) / sum(map(len, texts))
        training = BACKWARD * EPOCHS * pairs * per_text * read
        pool = min(len(rows), max(POOL, CUT * len(self.bench.queries) // FOLDS))
        return FOLDS * (training + per_text * pool) + per_text * len(rows)

    def pairs(self, teaching: Numbers, absent: set[int]) -> list[tuple[str, str]]:
        """Queries with the passages that answer them best, one for each document."""
        bench, pairs = self.bench, list[tuple[str, str]]()
        for number in teaching.tolist():
            rows = self.learner.answers[number]
            rows = rows[~np.isin(bench.units[rows], list(absent))]
            pairs += ((bench.queries[number].text, row.text) for row in self.index.rows(rows))
        random = np.random.default_rng(self.seed)
        return [pairs[number] for number in np.sort(random.permutation(len(pairs))[:MOST_PAIRS])]

    def train(self, name: str, teaching: Numbers, absent: set[int]) -> Path:
        """The folder of an encoder trained on some queries."""
        folder = self.work.folder / f"taught-encoder-{name}"
        settings = {"epochs": EPOCHS, "lr": RATE, "max_tokens": LONGEST, "seed": self.seed}
        advice = [logging.getLogger(f"contrasent.train.{room}") for room in ("monitor", "prepare")]
        for logger in advice:  # on settings that were not chosen here
            logger.setLevel(logging.ERROR)
        try:
            self._fit(
                "simcse_supervised",
                self.pairs(teaching, absent),
                settings | {"checkpoint_every": CHECKPOINT},
                folder=folder,
                base=self.base,
                evaluate="none",
                resume=True,  # go on from the checkpoint of a killed run
            )
        finally:
            for logger in advice:
                logger.setLevel(logging.NOTSET)
        return folder

    def open(self, folder: Path) -> TaskEncoder:
        """A trained encoder, with the settings of the base."""
        most = model_settings(self.index)["max_tokens"]
        encoder = open_encoder(folder, light=True, max_tokens=most)
        return TaskEncoder(encoder, batch=self.encode.batch)

    # ------------------------------------------------------------------ judging

    def judge(self, folds: dict[str, Numbers], before: Values, others: Values) -> Trial:
        """nDCG@10 of queries by encoders trained without them.

        All are (queries,) by kind of folds: ``folds``, nDCG@10 by the prior (``before``) and by the
        best way without new vectors (``others``). If that is clearly better for one half of the
        documents, the other half is left out.
        """
        began, everything = time.monotonic(), np.arange(len(self.bench.queries))
        values = {kind: np.empty((len(self.ways), len(everything))) for kind in folds}
        judged = np.zeros(len(everything), bool)
        for number in range(FOLDS):
            fold = folds[NEW] % FOLDS == number
            self.log(f"teaching an encoder, fold {number + 1} of {FOLDS}")
            stage = f"taught-encoder-values-{number}"
            by_kind = self.work.stage(stage, partial(self._fold, number, fold, folds))
            for kind, gains in by_kind.items():
                values[kind][:, fold] = np.array(gains) + before[kind][fold]
            judged |= fold
            behind = {kind: values[kind][:, judged] - others[kind][judged] for kind in folds}
            gaps = behind[AGAIN] + NEW_COUNTS * behind[NEW]
            queries = [self.bench.queries[n] for n in np.flatnonzero(judged)]
            if difference(queries, gaps[gaps.mean(axis=1).argmax()], seed=self.seed).high < 0:
                break
        all_ = partial(self.train, "all", everything, set())
        return Trial(self.ways, values, judged, time.monotonic() - began, all_)

    def _fold(
        self, number: int, part: Mask, folds: dict[str, Numbers]
    ) -> dict[str, list[list[float]]]:
        """(ways, judged) gains over the prior, by kind, of an encoder trained on the others."""
        judged, teaching = np.flatnonzero(part), np.flatnonzero(~part)
        pool = self.index.rows(rows := self.pool(judged))
        texts, ids = [row.text for row in pool], [row.id for row in pool]

        def bench(vectors: Vectors, queries: Vectors, learned: Learned) -> Bench:
            small = Index.build(lambda _: vectors, texts, ids=ids, ranker=self.index.ranker)
            if NEIGHBOURS < len(rows) <= MOST_ROWS:
                near = Neighbours.of(small.vectors, NEIGHBOURS)
                learned = replace(learned, neighbours=near)
            whole = self.bench
            return Bench(small, whole.queries, queries, whole.documents, whole.units[rows], learned)

        folder = self.train(f"{number}", teaching, self.learner.documents_of(judged))
        encode = self.open(folder)
        query_vectors = self.index.query_vectors(
            [query.text for query in self.bench.queries], encode
        )
        faster = quick(encode, sum(map(len, texts)))
        taught = bench(normalize(for_task(faster, "document")(texts)), query_vectors, Learned())
        remove(folder)
        known = bench(self.index.vectors[rows], self.bench.vectors, self.bench.learned)
        before = known.values([self.learner.prior], judged)
        values = {kind: self._values(taught, judged, fold, kind) for kind, fold in folds.items()}
        return {kind: (after - before).tolist() for kind, after in values.items()}

    def _values(self, bench: Bench, judged: Numbers, folds: Numbers, kind: str) -> Floats:
        """(ways, judged) nDCG@10; known queries are those of the other folds."""
        scores = np.empty((len(self.ways), len(judged)))
        for fold in np.unique(folds[judged]):
            in_fold = folds[judged] == fold
            absent = self.learner.documents_of(judged[in_fold]) if kind == NEW else set[int]()
            taught = taught_by(bench, np.flatnonzero(folds != fold), absent)
            learned = replace(bench.learned, taught=taught)
            rankers = [way.ranker for way in self.ways]
            scores[:, in_fold] = bench.values(rankers, judged[in_fold], learned)
        return scores

    def pool(
        self, judged: Numbers, *, size: int = POOL, drawn: int = DRAWN, cut: int = CUT
    ) -> Numbers:
        """The rows that queries search in a fold: their answers, near rows, and others."""
        rows, bench = self.index.numbers(), self.bench
        if len(rows) <= size:
            return rows
        chosen = set(np.concatenate(self.learner.answers).tolist())
        for unit in self.learner.documents_of(judged):
            chosen.update(bench.rows_of(unit).tolist())
        best = [self.learner.best[number].tolist() for number in judged]
        for rank in range(max(map(len, best))):
            if rank >= cut and len(chosen) >= size - drawn:
                break
            chosen.update(ranked[rank] for ranked in best if rank < len(ranked))
        others = np.random.default_rng(self.seed).permutation(np.setdiff1d(rows, list(chosen)))
        return np.sort([*chosen, *others[: max(drawn, size - len(chosen))]])
