"""An encoder that user queries teach by contrast, measured next to what needs no new vectors.

Of each fold the queries about some documents are held out, with everything that answers them; a
copy of the base learns from the others. Only rows that matter for judging are encoded by it.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from contrasent.adapt.bench import Bench, Floats, Numbers
from contrasent.adapt.learner import MOST_ROWS, NEIGHBOURS, Learner, Way, taught_by, ways_of
from contrasent.adapt.work import Work
from contrasent.errors import import_extra
from contrasent.files import remove
from contrasent.indexing.models import find_index_model, model_settings
from contrasent.indexing.tiers import quick
from contrasent.metrics import normalize
from contrasent.model.base import TaskEncoder
from contrasent.model.opening import open_encoder
from contrasent.search.index import Index
from contrasent.search.learned import Learned, Neighbours
from contrasent.types import Log, Vectors, for_task

EPOCHS, RATE, LONGEST = 3.0, 5e-5, 128  # of the training; tokens of a passage that it reads
FOLDS = 2  # of documents, each with a training of its own
MOST_PAIRS, CHECKPOINT = 2000, 20  # pairs that teach at most; steps between checkpoints
POOL, DRAWN = 3000, 500  # rows that queries are judged among at most, and those drawn of them
TIMED = 24  # rows that the speed of encoding is taken from
BACKWARD = 4.0  # what a training step takes, in forward passes


@dataclass(frozen=True, slots=True)
class Trial:
    """Encoders that were judged: the ways to search by one, and nDCG@10 of each query by each."""

    ways: list[Way]
    values: dict[str, Floats]  # by kind of folds, (ways, queries)
    seconds: float


class EncoderLearner:
    """Trains encoders on a learner's queries, and measures them."""

    def __init__(self, learner: Learner, encode: TaskEncoder, work: Work, log: Log) -> None:
        self.learner, self.work, self.log = learner, work, log
        self.bench, self.seed, self.encode = learner.bench, learner.seed, encode
        self.index = self.bench.index
        purpose = "an encoder that learns from queries"
        self._fit = import_extra("contrasent.train.fit", "train", purpose).fit
        self.base = find_index_model(self.index)
        self.settings = model_settings(self.index)
        smooth = NEIGHBOURS < len(self.index) <= MOST_ROWS
        prior = replace(learner.prior, map_share=0.0)
        prior = prior if smooth else replace(prior, smoothing=0.0)
        few = ways_of(prior, "few", smooth=smooth)
        self.ways = [replace(way, encoder=True) for way in few if not way.maps]

    # ------------------------------------------------------------------ what it takes

    def seconds(self) -> float:
        """An estimate of the time of all trainings and encodings, that of the index included."""
        rows = self.index.numbers()
        texts = [row.text for row in self.index.rows(rows[:: max(1, len(rows) // TIMED)][:TIMED])]
        trial = for_task(self.encode.again(), "document")
        trial(texts[:1])
        began = time.monotonic()
        trial(texts)
        one = (time.monotonic() - began) / len(texts)
        pairs = min(MOST_PAIRS, len(self.pairs(np.arange(len(self.bench.queries)), set())))
        training = BACKWARD * EPOCHS * pairs * one
        return FOLDS * (training + one * min(POOL, len(rows))) + one * len(rows)

    def pairs(self, teaching: Numbers, absent: set[int]) -> list[tuple[str, str]]:
        """Queries with the passages that answer them best, of each document one."""
        bench, found = self.bench, list[tuple[str, str]]()
        for at in teaching.tolist():
            rows = self.learner.answers[at]
            rows = rows[~np.isin(bench.units[rows], list(absent))]
            found += ((bench.queries[at].text, row.text) for row in self.index.rows(rows))
        random = np.random.default_rng(self.seed)
        return [found[at] for at in np.sort(random.permutation(len(found))[:MOST_PAIRS])]

    def train(self, name: str, teaching: Numbers, absent: set[int]) -> Path:
        """The folder of an encoder that some queries taught."""
        folder = self.work.folder / f"taught-encoder-{name}"
        settings = {"epochs": EPOCHS, "lr": RATE, "max_tokens": LONGEST, "seed": self.seed}
        advice = [logging.getLogger(f"contrasent.train.{room}") for room in ("monitor", "prepare")]
        for one in advice:  # about settings that nobody stated here
            one.setLevel(logging.ERROR)
        try:
            self._fit(
                "simcse_supervised",
                self.pairs(teaching, absent),
                settings | {"checkpoint_every": CHECKPOINT},
                folder=folder,
                base=self.base,
                evaluate="none",
                resume=True,  # what a killed run did is kept
            )
        finally:
            for one in advice:
                one.setLevel(logging.NOTSET)
        return folder

    def open(self, folder: Path) -> TaskEncoder:
        """A trained encoder, with the settings of the base."""
        encoder = open_encoder(folder, light=True, max_tokens=self.settings["max_tokens"])
        return TaskEncoder(encoder, batch=self.encode.batch)

    # ------------------------------------------------------------------ judging

    def judge(self, by_query: Numbers, by_document: Numbers, before: Mapping[str, Floats]) -> Trial:
        """nDCG@10 of all queries by encoders that they did not teach.

        ``by_query``, ``by_document``: their folds where documents are asked for again and where
        they are new. ``before``: (queries,) by kind of folds, the nDCG@10 by the prior.
        """
        began, kinds = time.monotonic(), {"again": by_query, "new": by_document}
        rows, everything = self._pool(), np.arange(len(self.bench.queries))
        held = self.index.rows(rows)
        texts, ids = [row.text for row in held], [row.id for row in held]
        values = {kind: np.empty((len(self.ways), len(everything))) for kind in kinds}

        def bench(vectors: Vectors, queries: Vectors, learned: Learned) -> Bench:
            small = Index.build(lambda _: vectors, texts, ids=ids, ranker=self.index.ranker)
            if NEIGHBOURS < len(rows) <= MOST_ROWS:
                near = Neighbours.of(small.vectors, NEIGHBOURS)
                learned = replace(learned, neighbours=near)
            given = self.bench
            return Bench(small, given.queries, queries, given.documents, given.units[rows], learned)

        def fold(number: int) -> list[list[list[float]]]:
            judged = np.flatnonzero(by_document % FOLDS == number)
            teaching = np.setdiff1d(everything, judged)
            absent = self.learner.documents_of(judged)
            folder = self.train(f"{number}", teaching, absent)
            encode = self.open(folder)
            asked = self.index.query_vectors([q.text for q in self.bench.queries], encode)
            faster = quick(encode, sum(map(len, texts)))
            own = bench(normalize(for_task(faster, "document")(texts)), asked, Learned())
            found = [self._values(own, judged, of, kind) for kind, of in kinds.items()]
            remove(folder)
            return [of.tolist() for of in found]

        (plain,) = bench(
            np.asarray(self.index.vectors[rows]), self.bench.vectors, self.bench.learned
        ).values([self.learner.prior])
        for number in range(FOLDS):
            self.log(f"teaching an encoder, fold {number + 1} of {FOLDS}")
            found = self.work.stage(f"taught-encoder-values-{number}", partial(fold, number))
            judged = by_document % FOLDS == number
            for kind, of in zip(kinds, found, strict=True):
                values[kind][:, judged] = np.array(of) - plain[judged] + before[kind][judged]
        return Trial(self.ways, values, time.monotonic() - began)

    def _values(self, bench: Bench, judged: Numbers, folds: Numbers, kind: str) -> Floats:
        """(ways, judged) nDCG@10; known queries are those of the other folds."""
        found = np.empty((len(self.ways), len(judged)))
        for fold in np.unique(folds[judged]):
            part = folds[judged] == fold
            absent = self.learner.documents_of(judged[part]) if kind == "new" else set[int]()
            taught = taught_by(bench, np.flatnonzero(folds != fold), absent)
            learned = replace(bench.learned, taught=taught)
            rankers = [way.ranker for way in self.ways]
            found[:, part] = bench.values(rankers, judged[part], learned)
        return found

    def _pool(self) -> Numbers:
        """The rows that queries are judged among: what answers them, what is near, and others."""
        rows = self.index.numbers()
        if len(rows) <= POOL:
            return rows
        bench, chosen = self.bench, set[int]()
        for query in bench.queries:
            for unit in query.relevant:
                chosen.update(bench.rows_of(unit).tolist())
        best = [
            bench.best_rows(at, self.learner.prior).tolist() for at in range(len(bench.queries))
        ]
        for rank in range(max(map(len, best))):
            if len(chosen) >= POOL - DRAWN:
                break
            chosen.update(of[rank] for of in best if rank < len(of))
        random = np.random.default_rng(self.seed)
        others = random.permutation(np.setdiff1d(rows, list(chosen)))
        return np.sort([*chosen, *others[: max(0, POOL - len(chosen))]])
