"""Candidates are measured on the selection part, each once, and the best of them is chosen.

All of them are the base, a linear layer over it, or words: the base's vectors, encoded once, are
enough to measure them all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from contrasent.adapt import candidates
from contrasent.adapt.evidence import Evidence, Floats, Part
from contrasent.adapt.mapping import fit_map, mixture, toward_identity
from contrasent.adapt.measuring import Remembered
from contrasent.adapt.pairs import Pair
from contrasent.adapt.reading import Say
from contrasent.adapt.work import Work
from contrasent.metrics import neighbour_overlap, normalize
from contrasent.model.base import TaskEncoder
from contrasent.model.encoder import Encoder
from contrasent.postprocess import whitening
from contrasent.search.ranking import Ranker
from contrasent.search.words import Bm25
from contrasent.types import Vectors

NEIGHBOURS_OF = 800  # passages whose neighbours are compared with the base's
UNTRAINED = ("base", "whitened")  # models that learnt nothing from queries
SHARES = (0.25, 0.5, 0.75, 1.0)  # shares of the linear map in its mixtures with the identity
MAPPING = 0.4  # of the time that is left, for encoding the pairs that the map learns from
A_PAIR = 1.3  # times as long as encoding a passage is encoding a pair: its text and its short query
MOST_MAPPED = 2000
MIN_PAIRS = 256


@dataclass(frozen=True, slots=True, eq=False)
class SelectionContext:
    """Data and models that all candidates are measured with."""

    base_folder: Path
    base: Encoder
    documents: Sequence[int]  # of each passage
    raw: Vectors  # the base's vectors of the passages
    lexical: Bm25
    select: Evidence
    part: Part  # of the same queries, over fewer passages where there are very many
    seed: int
    fusion: Ranker | None = None  # of an updated model that has one


class Selection:
    """The candidates of one adaptation that were measured; the base is the first."""

    def __init__(self, context: SelectionContext, work: Work, say: Say) -> None:
        self.context, self.work, self.say = context, work, say
        self.tried: list[candidates.Trial] = []
        self._values: dict[str, Floats] = {}
        self._overlaps: dict[tuple[str, float], float] = {}

    # ------------------------------------------------------------------ what is tried

    def untrained(self, *, updating: bool) -> None:
        """The base, words alone, both together, and the base whitened unless it is an update."""
        self.try_one(candidates.Candidate("base", fusion=self.context.fusion))
        self.try_one(candidates.Candidate("BM25", model=""))
        self._fused(candidates.Candidate("base"))
        if len(self.context.raw) > 4 * self.context.raw.shape[1] and not updating:
            self.try_one(candidates.Candidate("whitened", model="whitened"))
            self._fused(candidates.Candidate("whitened", model="whitened"))

    def mapped(self, pairs: Sequence[Pair], seconds_a_text: float, until: float) -> None:
        """A linear map over the base, learnt from the pairs that there is time to encode."""
        left = until - self.work.seconds()
        affordable = int(MAPPING * left / max(A_PAIR * seconds_a_text, 1e-6))
        count = int(self.work.stage("map-pairs", lambda: max(0, min(MOST_MAPPED, affordable))))
        chosen = mixture(pairs, count, self.context.seed)
        if len(chosen) < MIN_PAIRS:
            return

        def learnt() -> Vectors:
            self.say(f"learning a linear map from {len(chosen):,} pairs")
            encode = TaskEncoder(self.context.base)
            read, asked = encode.for_task("document"), encode.for_task("query")
            return fit_map(
                self.work.encode("map-queries", asked, [pair.query for pair in chosen]),
                self.work.encode("map-texts", read, [pair.text for pair in chosen]),
                [self.context.documents[pair.passage] for pair in chosen],
                seed=self.context.seed,
            )

        self.work.vectors("map", learnt)
        tried = [
            self.try_one(candidates.Candidate(f"mapped, {share:g}", "mapped", share))
            for share in SHARES
        ]
        best = max(tried, key=lambda trial: trial.score)
        if best.score > 0:
            self._fused(best.candidate)

    def _fused(self, dense: candidates.Candidate) -> None:
        """A dense candidate with BM25, in all weights."""
        ways = [Ranker(weight) for weight in candidates.WEIGHTS]
        measured = cache(lambda: self._measure(dense, *ways))

        def of(way: int) -> Callable[[], Floats]:
            return lambda: measured()[way]

        for number, fusion in enumerate(ways):
            name = f"{dense.name} + BM25 {fusion.word_weight}"
            candidate = replace(dense, name=name, fusion=fusion)
            self.try_one(candidate, values_of=of(number))

    def try_one(
        self, candidate: candidates.Candidate, *, values_of: Callable[[], Floats] | None = None
    ) -> candidates.Trial:
        """Measure a candidate on the selection part."""

        def measured() -> dict[str, object]:
            ways = () if candidate.fusion is None else (candidate.fusion,)
            values = values_of() if values_of else self._measure(candidate, *ways)[0]
            overlap = self._overlap(candidate.model, candidate.share)
            return {"values": values.tolist(), "overlap": overlap}

        found = self.work.stage(slug(f"trial {candidate.name}"), measured)
        values, evidence = np.array(found["values"]), self.context.part.evidence
        self._values[candidate.name] = values
        trial = candidates.Trial(
            candidate,
            candidates.selection_score(evidence, self._values["base"], values),
            candidates.kind_means(evidence, values),
            round(found["overlap"], 4),
        )
        self.tried.append(trial)
        return trial

    def _measure(self, candidate: candidates.Candidate, *ways: Ranker) -> Floats:
        """(max(1, ways), queries) nDCG@10 of a candidate's vectors or words, or both by each."""
        evidence = self.context.part.evidence
        if not candidate.model:
            return candidates.measure_candidate(evidence, None, self.words)
        encoded = self.vectors.by(self.layer(candidate.model, candidate.share))
        return candidates.measure_candidate(evidence, encoded, self.words if ways else None, *ways)

    @cached_property
    def vectors(self) -> candidates.Encoded:
        """The base's vectors of the part's queries and rows."""
        context, work = self.context, self.work
        encode = TaskEncoder(context.base)
        base = cache(lambda: candidates.encode_evidence(encode, context.select, context.raw))
        queries = work.vectors("select-queries", lambda: base().queries)
        beyond = work.vectors("select-rows", lambda: base().rows[context.select.passages :])
        return candidates.Encoded(queries, np.concatenate([context.raw, beyond])[context.part.rows])

    @cached_property
    def words(self) -> Remembered:
        """BM25 over the part's rows."""
        language = self.context.lexical.analyzer.language
        return Remembered(Bm25.of(self.context.part.evidence.texts, language))

    def _overlap(self, model: str, share: float) -> float:
        """Share of the base's nearest neighbours, among some passages, that a model keeps."""
        raw, key = self.context.raw, (model, share)
        if model in ("", "base") or len(raw) <= 10:
            return 1.0
        if key not in self._overlaps:
            some = np.linspace(0, len(raw) - 1, min(NEIGHBOURS_OF, len(raw))).astype(np.int64)
            base = np.asarray(raw[some])
            moved = self.layer(*key)(base)
            self._overlaps[key] = float(neighbour_overlap(normalize(base), moved).mean())
        return self._overlaps[key]

    # ------------------------------------------------------------------ models

    def layer(self, model: str, share: float) -> Callable[[Vectors], Vectors]:
        """A model's unit vectors as a function of the base's vectors."""
        fitted = self._linear(model, share)
        if fitted is None:
            return normalize
        matrix, bias = fitted
        return lambda raw: normalize(np.asarray(raw) @ matrix.astype(np.float32) + np.float32(bias))

    def _linear(self, model: str, share: float) -> tuple[Floats, Floats] | None:
        """Matrix and bias of a linear layer over the base; None for the base itself."""
        if model == "whitened":
            fitted = whitening.fit(self.context.raw)
            return fitted.matrix, fitted.bias
        if model == "mapped":
            learnt = np.load(self.work.folder / "map.npy", allow_pickle=False)
            return toward_identity(learnt.astype(np.float64), share), np.zeros(learnt.shape[1])
        return None

    def encoder(self, candidate: candidates.Candidate) -> Encoder:
        """The model of a candidate, giving unit vectors."""
        encoder = Encoder.load(self.context.base_folder, normalise=False)
        if (fitted := self._linear(candidate.model, candidate.share)) is not None:
            encoder.add_layer(*fitted)
        encoder.normalise = True
        return encoder

    def passages(self, candidate: candidates.Candidate) -> Vectors:
        """(passages, d) unit vectors of all passages by a candidate's model."""
        return self.layer(candidate.model, candidate.share)(np.asarray(self.context.raw))

    # ------------------------------------------------------------------ the choice

    def chosen(self) -> candidates.Trial:
        """The candidate for the sealed part to judge: the base if nothing scores more than it."""
        # Of all trials that are not worse than the best by one standard error, the nearest to the
        # base, as Breiman et al. (1984, Section 3.4.3) prune trees: synthetic queries favour what
        # moves far. How far is the share of BM25 and the share of neighbours that are lost.
        able = [trial for trial in self.tried if trial.candidate.model]
        best = max(able, key=lambda trial: trial.score)
        if best.score <= 0:
            return self.tried[0]
        own = _share_of_words(self.context.fusion)
        near = [trial for trial in able if trial is best or self._as_good(trial, best)]
        return min(
            near,
            key=lambda one: abs(_share_of_words(one.candidate.fusion) - own) + 1.0 - one.overlap,
        )

    def _as_good(self, trial: candidates.Trial, best: candidates.Trial) -> bool:
        values = (self._values[one.candidate.name] for one in (best, trial))
        return trial.score >= best.score - candidates.selection_error(
            self.context.part.evidence, *values
        )


def _share_of_words(fusion: Ranker | None) -> float:
    return 0.0 if fusion is None else fusion.word_weight


def slug(name: str) -> str:
    """A candidate's name as that of a file."""
    return "".join(c if c.isalnum() or c in "-." else "-" for c in name)
