"""Choosing among candidates inside a budget: cheap ones first, the better half of the dear ones.

Training plans each get a part of the time; the better half goes on from where it was, and then the
best alone (successive halving; Jamieson and Talwalkar, 2016). Weights are averaged with the base's
along a path, since the best model is seldom at its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.candidates import (
    WEIGHTS,
    Candidate,
    Encoded,
    Trial,
    drift_cost,
    encode_all,
    encode_evidence,
    kind_means,
    measure_candidate,
    selection_error,
    selection_score,
)
from contrasent.adapt.evidence import (
    Evidence,
    Floats,
    Part,
    Remembered,
    WordScores,
    mean_over_kinds,
)
from contrasent.adapt.pairs import Pair
from contrasent.adapt.training import (
    BATCH,
    PLANS,
    TrainingPlan,
    average,
    fit_map,
    mixture,
    toward_identity,
    train,
    with_negatives,
)
from contrasent.adapt.work import Work
from contrasent.metrics import neighbour_overlap
from contrasent.model.encoder import Encoder
from contrasent.postprocess import whitening
from contrasent.search.exact import unit
from contrasent.search.hybrid import Fusion
from contrasent.search.lexical import Lexical
from contrasent.types import Vectors

ROUNDS = (0.3, 1.0)
"""Of the time that is left, for each round of training: first all plans, then the better half."""
PATH = (0.5, 0.75, 0.25)
"""Shares of the best trained model in its averages with the base, in the order in which they are
tried."""
NEIGHBOURS_OF = 800
"""Passages whose neighbours are compared with the base's."""
MAPPING = 0.15
"""Of the time that is left, for encoding the pairs that a linear map learns from."""
MAPPING_ALONE = 0.4
"""The same where a map needs no more than that and a network could not be afforded."""
A_PAIR = 1.3
"""Times as long as encoding a passage is encoding a pair: its text and its short query."""
MOST_MAPPED = 8000
LINEAR = ("base", "whitened", "mapped")
"""Models that are a linear layer over the base, or nothing: its vectors are enough for them."""
FEWEST_PAIRS = 4 * BATCH
FEWEST_STEPS = 4
"""Steps below which a round of training is not worth its measuring."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What all candidates stand on.

    Attributes:
        base_folder: of the model that everything begins from.
        base: the model, its vectors not scaled.
        texts: of the passages, as they are indexed.
        documents: number of each passage's document.
        trainable: (passages,) whether a passage's document is one to train on.
        raw: (passages, d) the base's vectors of them.
        lexical: BM25 over the passages.
        select: queries to choose by, over all passages.
        wide: what candidates are measured on that need nothing encoded anew.
        narrow: what trained networks are measured on.
        seed: of everything random.
        fusion: how words count beside the base's vectors, where a model is updated that has one.
        updating: whether the base is an earlier adaptation; only its network is trained further.
    """

    base_folder: Path
    base: Encoder
    texts: Sequence[str]
    documents: Sequence[int]
    trainable: NDArray[np.bool_]
    raw: Vectors
    lexical: Lexical
    select: Evidence
    wide: Part
    narrow: Part
    seed: int
    fusion: Fusion | None = None
    updating: bool = False


class Selection:
    """The trials of one adaptation.

    Args:
        ground: what all candidates stand on.
        work: keeps what is done.
        deadline: seconds of the run after which no network is trained.
        say: is given a line for people at each step.

    Attributes:
        trials: all that was tried, in order.
    """

    def __init__(self, ground: Ground, work: Work, deadline: float, say: Say) -> None:
        self.ground, self.work, self.deadline, self.say = ground, work, deadline, say
        self.trials: list[Trial] = []
        self._values: dict[str, Floats] = {}
        self._vectors: dict[tuple[str, float], Encoded] = {}
        self._overlaps: dict[tuple[str, float], float] = {}
        self._lexical: dict[int, WordScores] = {}
        self._bases: dict[str, Floats] = {}

    # ------------------------------------------------------------------ one candidate

    def vectors(self, model: str, share: float, part: Part) -> Encoded:
        """Unit vectors of a part's queries and rows by a model.

        Args:
            model: "base", another linear layer over it, or a trained network.
            share: of what was trained, see :class:`Candidate`.
            part: the ground's narrow one if it is a network.
        """
        if (layer := self.layer(model, share)) is not None:
            base = self._base
            return Encoded(base.queries[part.queries], base.rows[part.rows]).by(layer)
        key = (model, share)
        if key not in self._vectors:
            encode = cache(lambda: encode_evidence(self._network(*key).encode, part.evidence, None))
            self._vectors[key] = self._saved(f"{model}-{share}", encode).by(unit)
        return self._vectors[key]

    @cached_property
    def _base(self) -> Encoded:
        """The base's vectors of all rows and queries to choose by."""
        ground = self.ground
        return self._saved(
            "base", cache(lambda: encode_evidence(ground.base.encode, ground.select, ground.raw))
        )

    def _saved(self, name: str, encode: Callable[[], Encoded]) -> Encoded:
        queries = self.work.vectors(f"select-{name}-queries", lambda: encode().queries)
        beyond = self.ground.select.passages if name == "base" else 0
        rows = self.work.vectors(f"select-{name}-rows", lambda: encode().rows[beyond:])
        return Encoded(queries, np.concatenate([self.ground.raw, rows]) if beyond else rows)

    def _words(self, part: Part) -> WordScores:
        """BM25 over a part's rows, counted when it is first needed."""
        if id(part) not in self._lexical:
            language = self.ground.lexical.analyzer.language
            lexical = Lexical.build(part.evidence.texts, language=language)
            self._lexical[id(part)] = Remembered(lexical)
        return self._lexical[id(part)]

    def _before(self, part: Part) -> Floats:
        """(q,) the base's nDCG@10 of a part's queries."""
        name = "wide" if part is self.ground.wide else "narrow"

        def measure() -> list[float]:
            base, fusion = self.vectors("base", 1.0, part), self.ground.fusion
            words = () if fusion is None else (self._words(part), fusion)
            values: list[float] = measure_candidate(part.evidence, base, *words)[0].tolist()
            return values

        if name not in self._bases:
            self._bases[name] = np.array(self.work.stage(f"base-{name}", measure))
        return self._bases[name]

    def layer(self, model: str, share: float) -> Callable[[Vectors], Vectors] | None:
        """What makes a candidate's unit vectors of the base's; None if the network was trained.

        Args:
            model: name of the model.
            share: of what was trained.
        """
        if model not in LINEAR:
            return None
        fitted = self._linear(model, share)
        if fitted is None:
            return unit
        matrix, bias = fitted
        return lambda raw: unit(np.asarray(raw) @ matrix.astype(np.float32) + np.float32(bias))

    def _linear(self, model: str, share: float) -> tuple[Floats, Floats] | None:
        """Matrix and bias of a linear layer over the base; None for the base itself."""
        if model == "whitened":
            fitted = whitening.fit(self.ground.raw)
            return fitted.matrix, fitted.bias
        if model == "mapped":
            learnt = np.load(self.work.folder / "map.npy", allow_pickle=False)
            return toward_identity(learnt.astype(np.float64), share), np.zeros(learnt.shape[1])
        return None

    def _network(self, model: str, share: float) -> Encoder:
        trained = Encoder.load(self.work.folder / model, normalise=False)
        return trained if share == 1.0 else average(self.ground.base, trained, share)

    def encoder(self, candidate: Candidate) -> Encoder:
        """The model of a candidate, giving unit vectors."""
        if candidate.model not in LINEAR:
            encoder = self._network(candidate.model, candidate.share)
        else:
            encoder = Encoder.load(self.ground.base_folder, normalise=False)
            if (fitted := self._linear(candidate.model, candidate.share)) is not None:
                encoder.add_layer(*fitted)
        encoder.normalise = True
        return encoder

    def passages(self, candidate: Candidate) -> Vectors:
        """(passages, d) unit vectors of all passages by a candidate's model."""
        layer = self.layer(candidate.model, candidate.share)
        if layer is not None:
            return layer(np.asarray(self.ground.raw))
        return self.work.vectors(
            f"passages-{candidate.model}-{candidate.share}",
            lambda: encode_all(self.encoder(candidate).encode, self.ground.texts),
        )

    def try_one(
        self,
        candidate: Candidate,
        cost: float = 0.0,
        *,
        values_of: Callable[[], Floats] | None = None,
    ) -> Trial:
        """Measure a candidate on the selection part.

        Args:
            candidate: what to try.
            cost: seconds that it took before.
            values_of: gives its (q,) values, where they are measured with those of others.
        """
        began = self.work.seconds()
        model, share = candidate.model, candidate.share
        part = self._part(model)

        def measure() -> Floats:
            encoded = self.vectors(model, share, part) if model else None
            words = None if model else self._words(part)
            alone: Floats = measure_candidate(part.evidence, encoded, words)[0]
            return alone

        def measured() -> dict[str, object]:
            values = (values_of or measure)()
            overlap = self._overlap(model, share)
            now = self.work.seconds()
            spent = cost + now - began
            return {"values": values.tolist(), "overlap": overlap, "cost": spent, "seconds": now}

        found = self.work.stage(_slug(f"trial {candidate.name}"), measured)
        values, before = np.array(found["values"]), self._before(part)
        trial = Trial(
            candidate,
            selection_score(part.evidence, before, values)
            - drift_cost(found["overlap"], trained=part is self.ground.narrow),
            kind_means(part.evidence, values),
            round(found["seconds"], 1),
            round(found["cost"], 1),
            round(found["overlap"], 4),
            mean_over_kinds(part.evidence, before),
            selection_error(part.evidence, before, values),
        )
        self.trials.append(trial)
        self._values[candidate.name] = values
        return trial

    def _part(self, model: str) -> Part:
        return self.ground.wide if model in ("", *LINEAR) else self.ground.narrow

    def _overlap(self, model: str, share: float) -> float:
        """Share of the base's nearest neighbours, among some passages, that a model keeps."""
        part = self.ground.narrow
        count = min(NEIGHBOURS_OF, part.evidence.passages)
        if model in ("", "base") or count <= 10:
            return 1.0
        if (model, share) not in self._overlaps:
            base = self.vectors("base", 1.0, part).rows[:count]
            moved = self.vectors(model, share, part).rows[:count]
            self._overlaps[model, share] = float(neighbour_overlap(base, moved).mean())
        return self._overlaps[model, share]

    # ------------------------------------------------------------------ all of them

    def cheap(self) -> None:
        """The base, words alone, both together, and the base whitened."""
        base = Candidate("base", fusion=self.ground.fusion)
        self.try_one(base, values_of=lambda: self._before(self.ground.wide))
        self.try_one(Candidate("BM25", model=""))
        self._fused(Candidate("base"))
        dimension = self.ground.raw.shape[1]
        if len(self.ground.raw) > 4 * dimension and not self.ground.updating:
            self.try_one(Candidate("whitened", model="whitened"))
            self._fused(Candidate("whitened", model="whitened"))

    def mapped(
        self,
        pairs: Sequence[Pair],
        seconds_a_text: float,
        until: float,
        *,
        most: int = MOST_MAPPED,
    ) -> None:
        """A linear map over the base, trained on pairs that a part of the time suffices to encode.

        Args:
            pairs: made of the training documents.
            seconds_a_text: that encoding a passage takes.
            until: seconds of the run after which the rest must begin if no network is trained.
            most: pairs to learn from.
        """
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
                encode_all(encode, [pair.query for pair in chosen]),
                encode_all(encode, [pair.text for pair in chosen]),
                [self.ground.documents[pair.passage] for pair in chosen],
                seed=self.ground.seed,
            )

        self.work.vectors("map", learnt)
        cost = self.work.seconds() - began
        tried = [
            self.try_one(Candidate(f"mapped, {share:g}", "mapped", share), cost / 4)
            for share in (*PATH, 1.0)
        ]
        best = max(tried, key=lambda trial: trial.score)
        if best.score > 0:
            self._fused(best.candidate)

    def _fused(self, dense: Candidate) -> None:
        """A dense candidate with BM25 beside it, in all weights and by ranks."""
        part = self._part(dense.model)
        ways = {f"BM25 {weight}": Fusion(weight) for weight in WEIGHTS}
        ways["BM25 by ranks"] = Fusion(method="ranks")
        words = self._words(part)

        @cache
        def measured() -> Floats:
            encoded = self.vectors(dense.model, dense.share, part)
            return measure_candidate(part.evidence, encoded, words, *ways.values())

        def of(way: int) -> Callable[[], Floats]:
            return lambda: measured()[way]

        for number, (name, fusion) in enumerate(ways.items()):
            candidate = replace(dense, name=f"{dense.name} + {name}", fusion=fusion)
            self.try_one(candidate, values_of=of(number))

    def train(
        self,
        pairs: Sequence[Pair],
        look: float,
        pair: float,
        *,
        plans: Sequence[TrainingPlan] = PLANS,
        steps: int | None = None,
    ) -> None:
        """Train by successive halving as long as there is time, then add words to the best.

        Args:
            pairs: made of the training documents.
            look: seconds that measuring a model on the selection part takes.
            pair: seconds that training on one pair takes, about; what was measured replaces it.
            plans: what is tried.
            steps: that a plan gets at most.
        """
        if len(pairs) < FEWEST_PAIRS:
            self.say(f"{len(pairs):,} pairs are too few to train on")
            return
        makers = {made.maker for made in pairs}
        usable = [plan for plan in plans if not plan.makers or makers & set(plan.makers)]
        beginnings: dict[TrainingPlan, str] = dict.fromkeys(usable, "")
        done, trained = 0, self.trials[0]
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
                ends[plan] = self.try_one(candidate, self.work.seconds() - began)
            ranked = sorted(ends, key=lambda plan: -ends[plan].score)
            better = ranked[: max(1, len(ranked) // 2)]
            beginnings = {plan: ends[plan].candidate.model for plan in better}
            trained = ends[ranked[0]]
        if not done:
            return
        for share in PATH:
            if not self._late(f"path-{share}"):
                name, model = trained.candidate.name, trained.candidate.model
                self.try_one(Candidate(f"{name}, {share:g}", model, share))
        best = self.best(dense=True).candidate
        if best.model not in LINEAR:
            self._fused(best)

    def _late(self, what: str) -> bool:
        """Whether the time is up for something; what was found once holds after a resume."""
        found: bool = self.work.stage(
            _slug(f"late-{what}"), lambda: self.work.seconds() > self.deadline
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

        return int(self.work.stage(f"steps-{number + 1}", planned))

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
        ground = self.ground

        def run() -> dict[str, float]:
            began = self.work.seconds()
            folder = self.work.folder / model
            whole = not folder.exists()
            chosen = mixture(pairs, plan.makers, steps * BATCH, ground.seed + number)
            rows = self._rows(plan, chosen)
            beginning = self.work.folder / start if start else ground.base_folder
            self.say(f"training {plan.name}: {steps} steps of {BATCH}")
            train(beginning, rows, lr=plan.lr, seed=ground.seed + number, folder=folder)
            seconds = self.work.seconds() - began
            return {"pairs": steps * BATCH, "seconds": seconds, "whole": whole}

        self.work.stage(f"trained-{model}", run)

    def _rows(self, plan: TrainingPlan, chosen: Sequence[Pair]) -> list[tuple[str, ...]]:
        """What a plan trains on: query and text, and a hard negative if it wants them."""
        ground = self.ground
        if not plan.hard_negatives:
            return [(pair.query, pair.text) for pair in chosen]
        texts = list(dict.fromkeys(pair.query for pair in chosen))
        place = {text: at for at, text in enumerate(texts)}
        queries = unit(ground.base.encode(texts))
        return with_negatives(
            chosen,
            ground.texts,
            ground.documents,
            ground.trainable,
            queries=queries[[place[pair.query] for pair in chosen]],
            rows=unit(np.asarray(ground.raw)),
            lexical=ground.lexical,
            seed=ground.seed,
        )

    def best(self, *, dense: bool = False) -> Trial:
        """The trial of the highest score, the first of equals.

        Args:
            dense: among those of vectors alone.
        """
        able = [t for t in self.trials if t.candidate.model]
        if dense:
            able = [t for t in able if t.candidate.fusion is None]
        return max(able, key=lambda trial: trial.score)

    def nearest_to_best(self) -> Trial:
        """Of all trials that are not worse than the best the one that is nearest to the base.

        Not worse: by less than one standard error of their difference, over the same queries (as
        Breiman et al., 1984, Section 3.4.3, prune trees). Made queries are cut out of the text, so
        they share more with it than people's do, and favour what moves far. How far is the share
        of BM25 and the share of neighbours that the vectors lost.
        """
        best = self.best()
        near = [t for t in self.trials if t.candidate.model and self._as_good(t, best)]
        own = _share_of_words(self.ground.fusion)

        def distance(trial: Trial) -> float:
            return abs(_share_of_words(trial.candidate.fusion) - own) + 1.0 - trial.overlap

        return min(near, key=distance)

    def _as_good(self, trial: Trial, best: Trial) -> bool:
        part, other = self._part(trial.candidate.model), self._part(best.candidate.model)
        if part is other:
            values = (self._values[one.candidate.name] for one in (best, trial))
            error = selection_error(part.evidence, *values)
        else:  # other queries
            error = float(np.hypot(trial.error, best.error))
        return trial is best or trial.score >= best.score - error


def _share_of_words(fusion: Fusion | None) -> float:
    if fusion is None:
        return 0.0
    return fusion.lexical_weight if fusion.method == "weighted" else 0.5


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "-" for c in name)
