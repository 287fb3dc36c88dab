"""Choosing among candidates inside a budget: cheap ones first, the better half of the dear ones.

Training plans each get a part of the time; the better half goes on from where it was, and then the
best alone (successive halving; Jamieson and Talwalkar, 2016). Weights are averaged with the base's
along a path, since the best model is seldom at its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from contrasent.adapt.candidates import (
    WEIGHTS,
    Candidate,
    Trial,
    measure_candidate,
)
from contrasent.adapt.evidence import Floats
from contrasent.adapt.pairs import Pair
from contrasent.adapt.training import (
    BATCH,
    PLANS,
    TrainingPlan,
    fit_map,
    mixture,
    train,
    with_negatives,
)
from contrasent.adapt.trials import LINEAR, Trials, slug
from contrasent.metrics import normalize
from contrasent.search.ranking import Ranker
from contrasent.types import Vectors

ROUNDS = (0.3, 1.0)
"""Of the time that is left, for each round of training: first all plans, then the better half."""
PATH = (0.5, 0.75, 0.25)
"""Shares of the best trained model in its averages with the base, in the order in which they are
tried."""
MAPPING = 0.15
"""Of the time that is left, for encoding the pairs that a linear map learns from."""
MAPPING_ALONE = 0.4
"""The same where a map needs no more than that and a network could not be afforded."""
A_PAIR = 1.3
"""Times as long as encoding a passage is encoding a pair: its text and its short query."""
MOST_MAPPED = 8000
FEWEST_PAIRS = 4 * BATCH
FEWEST_STEPS = 10
"""Steps below which a round of training is not worth its measuring."""

Say = Callable[[str], None]


class Selection:
    """What is tried, in which order, until ``deadline`` (seconds of the run)."""

    def __init__(self, trials: Trials, deadline: float, say: Say) -> None:
        self.trials, self.deadline, self.say = trials, deadline, say
        self.ground, self.work = trials.ground, trials.work

    def cheap(self) -> None:
        """The base, words alone, both together, and the base whitened."""
        base = Candidate("base", fusion=self.ground.fusion)
        self.trials.try_one(base, values_of=lambda: self.trials.before(self.ground.wide))
        self.trials.try_one(Candidate("BM25", model=""))
        self._fused(Candidate("base"))
        dimension = self.ground.raw.shape[1]
        if len(self.ground.raw) > 4 * dimension and not self.ground.updating:
            self.trials.try_one(Candidate("whitened", model="whitened"))
            self._fused(Candidate("whitened", model="whitened"))

    def mapped(
        self,
        pairs: Sequence[Pair],
        seconds_a_text: float,
        until: float,
        *,
        most: int = MOST_MAPPED,
    ) -> None:
        """A linear map over the base, trained on the pairs that there is time to encode."""
        now = self.work.seconds()
        left = max(MAPPING * (self.deadline - now), MAPPING_ALONE * (until - now))
        affordable = int(left / max(A_PAIR * seconds_a_text, 1e-6))
        count = int(self.work.stage("map-pairs", lambda: min(most, affordable)))
        chosen = list(dict.fromkeys(mixture(pairs, (), count, self.ground.seed)))
        if len(chosen) < FEWEST_PAIRS:
            return
        began = self.work.seconds()

        def learnt() -> Vectors:
            self.say(f"learning a linear map from {len(chosen):,} pairs")
            encode = self.ground.base.encode
            return fit_map(
                self.work.encode("map-queries", encode, [pair.query for pair in chosen]),
                self.work.encode("map-texts", encode, [pair.text for pair in chosen]),
                [self.ground.documents[pair.passage] for pair in chosen],
                seed=self.ground.seed,
            )

        self.work.vectors("map", learnt)
        cost = self.work.seconds() - began
        tried = [
            self.trials.try_one(Candidate(f"mapped, {share:g}", "mapped", share), cost / 4)
            for share in (*PATH, 1.0)
        ]
        best = max(tried, key=lambda trial: trial.score)
        if best.score > 0:
            self._fused(best.candidate)

    def _fused(self, dense: Candidate) -> None:
        """A dense candidate with BM25 beside it, in all weights."""
        part = self.trials.part(dense.model)
        ways = {f"BM25 {weight}": Ranker(weight) for weight in WEIGHTS}
        words = self.trials.words(part)

        @cache
        def measured() -> Floats:
            encoded = self.trials.vectors(dense.model, dense.share, part)
            return measure_candidate(part.evidence, encoded, words, *ways.values())

        def of(way: int) -> Callable[[], Floats]:
            return lambda: measured()[way]

        for number, (name, fusion) in enumerate(ways.items()):
            candidate = replace(dense, name=f"{dense.name} + {name}", fusion=fusion)
            self.trials.try_one(candidate, values_of=of(number))

    def train(
        self,
        pairs: Sequence[Pair],
        look: float,
        pair: float,
        *,
        plans: Sequence[TrainingPlan] = PLANS,
        steps: int | None = None,
    ) -> None:
        """Train by successive halving as long as there is time, then add words to the best."""
        if len(pairs) < FEWEST_PAIRS:
            self.say(f"{len(pairs):,} pairs are too few to train on")
            return
        makers = {made.maker for made in pairs}
        usable = [plan for plan in plans if not plan.makers or makers & set(plan.makers)]
        # A plan that leaves the others too few steps is not tried: those before it come first.
        while len(usable) > 1 and not self._steps(0, len(usable), look, pair):
            usable.pop()
        beginnings: dict[TrainingPlan, str] = dict.fromkeys(usable, "")
        done, trained = 0, self.trials.tried[0]
        for number in range(len(ROUNDS)):
            count = self._steps(number, len(beginnings), look, pair)
            count = count if steps is None else min(count, steps - done)
            if count < 1:
                break
            done += count
            ends: dict[TrainingPlan, Trial] = {}
            for plan, start in beginnings.items():
                if ends and self._late(f"{number}-{plan.name}"):
                    break
                began = self.work.seconds()
                model = f"round{number + 1}-{plans.index(plan)}"
                self._train(model, number, plan, start, count, pairs)
                candidate = Candidate(f"{plan.name}, round {number + 1}", model)
                ends[plan] = self.trials.try_one(candidate, self.work.seconds() - began)
            ranked = sorted(ends, key=lambda plan: -ends[plan].score)
            better = ranked[: max(1, len(ranked) // 2)]
            beginnings = {plan: ends[plan].candidate.model for plan in better}
            trained = ends[ranked[0]]
        if not done:
            return
        for share in PATH:
            if not self._late(f"path-{share}"):
                name, model = trained.candidate.name, trained.candidate.model
                self.trials.try_one(Candidate(f"{name}, {share:g}", model, share))
        best = self.trials.best(dense=True).candidate
        if best.model not in LINEAR:
            self._fused(best)

    def _late(self, what: str) -> bool:
        """Whether the time is up for something; what was found once holds after a resume."""
        found: bool = self.work.stage(
            slug(f"late-{what}"), lambda: self.work.seconds() > self.deadline
        )
        return found

    def _steps(self, number: int, plans: int, look: float, pair: float) -> int:
        """Steps of a round for each of so many plans; 0 where the time is too short."""

        def planned() -> int:
            # The looks of this round, and those along the path after the last.
            looks = plans + len(PATH)
            left = self.deadline - self.work.seconds() - looks * look
            part = left * (ROUNDS[number] if plans > 1 else 1.0) / plans
            rate = BATCH * (self._seconds_a_pair() or pair)
            return int(part / rate) if part / rate >= FEWEST_STEPS else 0

        return int(self.work.stage(f"steps-{number + 1}-{plans}", planned))

    def _seconds_a_pair(self) -> float:
        """As measured in trainings that were not interrupted; 0 before any was complete."""
        found: list[dict[str, float]] = [
            self.work.stage(path.name.removesuffix(".stage.json"), dict)
            for path in self.work.folder.glob("trained-*.stage.json")
        ]
        whole = [one for one in found if one["whole"]]
        pairs = sum(one["pairs"] for one in whole)
        return sum(one["seconds"] for one in whole) / pairs if pairs else 0.0

    def _train(
        self,
        model: str,
        number: int,
        plan: TrainingPlan,
        start: str,
        steps: int,
        pairs: Sequence[Pair],
    ) -> None:
        """Train a plan for a round; ``model`` is its folder's name."""

        def run() -> dict[str, float]:
            began = self.work.seconds()
            folder = self.work.folder / model
            whole = not folder.exists()
            chosen = mixture(pairs, plan.makers, steps * BATCH, self.ground.seed + number)
            rows = self._rows(plan, chosen)
            beginning = self.work.folder / start if start else self.ground.base_folder
            self.say(f"training {plan.name}: {steps} steps of {BATCH}")
            train(beginning, rows, plan, seed=self.ground.seed + number, folder=folder)
            seconds = self.work.seconds() - began
            return {"pairs": steps * BATCH, "seconds": seconds, "whole": whole}

        self.work.stage(f"trained-{model}", run)

    def _rows(self, plan: TrainingPlan, chosen: Sequence[Pair]) -> list[tuple[str, ...]]:
        """What a plan trains on: query and text, and a hard negative if it wants them."""
        if not plan.hard_negatives:
            return [(pair.query, pair.text) for pair in chosen]
        texts = list(dict.fromkeys(pair.query for pair in chosen))
        place = {text: at for at, text in enumerate(texts)}
        queries = normalize(self.ground.base.encode(texts))
        return with_negatives(
            chosen,
            self.ground.texts,
            self.ground.documents,
            self.ground.trainable,
            queries=queries[[place[pair.query] for pair in chosen]],
            rows=normalize(np.asarray(self.ground.raw)),
            lexical=self.ground.lexical,
            seed=self.ground.seed,
        )
