"""Candidates measured on the selection part: each is tried once, and kept when it is complete."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.candidates import (
    Candidate,
    Encoded,
    Trial,
    drift_cost,
    encode_evidence,
    kind_means,
    measure_candidate,
    selection_error,
    selection_score,
)
from contrasent.adapt.evidence import Evidence, Floats, Part, mean_over_kinds
from contrasent.adapt.measuring import Remembered, WordScores
from contrasent.adapt.training import average, toward_identity
from contrasent.adapt.work import Work
from contrasent.metrics import neighbour_overlap, normalize
from contrasent.model.encoder import Encoder
from contrasent.postprocess import whitening
from contrasent.search.ranking import Ranker
from contrasent.search.words import Bm25
from contrasent.types import Vectors

NEIGHBOURS_OF = 800
"""Passages whose neighbours are compared with the base's."""
LINEAR = ("base", "whitened", "mapped")
"""Models that are a linear layer over the base, or nothing: its vectors are enough for them."""
UNTRAINED = ("base", "whitened")
"""Of these, models that learnt nothing from queries."""


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What all candidates stand on."""

    base_folder: Path
    base: Encoder
    texts: Sequence[str]
    documents: Sequence[int]
    trainable: NDArray[np.bool_]  # (passages,) of documents to train on
    raw: Vectors  # the base's vectors of the passages
    lexical: Bm25
    select: Evidence
    wide: Part  # for candidates that need nothing encoded anew
    narrow: Part
    seed: int
    fusion: Ranker | None = None  # of an updated model that has one
    updating: bool = False  # whether the base is an earlier adaptation


class Trials:
    """The candidates of one adaptation that were measured; the base is the first."""

    def __init__(self, ground: Ground, work: Work) -> None:
        self.ground, self.work = ground, work
        self.tried: list[Trial] = []
        self._values: dict[str, Floats] = {}
        self._vectors: dict[tuple[str, float], Encoded] = {}
        self._overlaps: dict[tuple[str, float], float] = {}
        self._lexical: dict[int, WordScores] = {}
        self._bases: dict[str, Floats] = {}

    def vectors(self, model: str, share: float, part: Part) -> Encoded:
        """Unit vectors of a part's queries and rows by a model."""
        if (layer := self.layer(model, share)) is not None:
            base = self._base
            return Encoded(base.queries[part.queries], base.rows[part.rows]).by(layer)
        key = (model, share)
        if key not in self._vectors:
            encode = cache(lambda: encode_evidence(self._network(*key).encode, part.evidence, None))
            self._vectors[key] = self._saved(f"{model}-{share}", encode).by(normalize)
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

    def words(self, part: Part) -> WordScores:
        """BM25 over a part's rows, counted when it is first needed."""
        if id(part) not in self._lexical:
            language = self.ground.lexical.analyzer.language
            self._lexical[id(part)] = Remembered(Bm25.of(part.evidence.texts, language))
        return self._lexical[id(part)]

    def before(self, part: Part) -> Floats:
        """(q,) the base's nDCG@10 of a part's queries."""
        name = "wide" if part is self.ground.wide else "narrow"

        def measure() -> list[float]:
            base, fusion = self.vectors("base", 1.0, part), self.ground.fusion
            words = () if fusion is None else (self.words(part), fusion)
            values: list[float] = measure_candidate(part.evidence, base, *words)[0].tolist()
            return values

        if name not in self._bases:
            self._bases[name] = np.array(self.work.stage(f"base-{name}", measure))
        return self._bases[name]

    def layer(self, model: str, share: float) -> Callable[[Vectors], Vectors] | None:
        """What makes a candidate's unit vectors of the base's; None if the network was trained."""
        if model not in LINEAR:
            return None
        fitted = self._linear(model, share)
        if fitted is None:
            return normalize
        matrix, bias = fitted
        return lambda raw: normalize(np.asarray(raw) @ matrix.astype(np.float32) + np.float32(bias))

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
        name = f"passages-{candidate.model}-{candidate.share}"
        encoder = cache(lambda: self.encoder(candidate))  # not read where all vectors are kept
        return self.work.encode(name, lambda texts: encoder().encode(texts), self.ground.texts)

    def try_one(
        self,
        candidate: Candidate,
        cost: float = 0.0,
        *,
        values_of: Callable[[], Floats] | None = None,
    ) -> Trial:
        """Measure a candidate on the selection part; ``cost`` is the seconds it took before."""
        began = self.work.seconds()
        model, share = candidate.model, candidate.share
        part = self.part(model)

        def measure() -> Floats:
            encoded = self.vectors(model, share, part) if model else None
            words = None if model else self.words(part)
            alone: Floats = measure_candidate(part.evidence, encoded, words)[0]
            return alone

        def measured() -> dict[str, object]:
            values = (values_of or measure)()
            overlap = self._overlap(model, share)
            now = self.work.seconds()
            spent = cost + now - began
            return {"values": values.tolist(), "overlap": overlap, "cost": spent, "seconds": now}

        found = self.work.stage(slug(f"trial {candidate.name}"), measured)
        values, before = np.array(found["values"]), self.before(part)
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
        self.tried.append(trial)
        self._values[candidate.name] = values
        return trial

    def part(self, model: str) -> Part:
        """What a model is measured on; "" is words alone."""
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

    def best(self, *, dense: bool = False) -> Trial:
        """The trial of the highest score, the first of equals."""
        able = [t for t in self.tried if t.candidate.model]
        if dense:
            able = [t for t in able if t.candidate.fusion is None]
        return max(able, key=lambda trial: trial.score)

    def chosen(self) -> Trial:
        """What the sealed part is to judge: the base if nothing scores more than it."""
        return self.nearest_to_best() if self.best().score > 0 else self.tried[0]

    def nearest_to_best(self) -> Trial:
        """Of all trials not worse than the best, by one standard error, the nearest to the base."""
        # As Breiman et al. (1984, Section 3.4.3) prune trees: made queries favour what moves far.
        # How far is the share of BM25 and the share of neighbours that the vectors lost.
        best = self.best()
        near = [t for t in self.tried if t.candidate.model and self._as_good(t, best)]
        own = _share_of_words(self.ground.fusion)

        def distance(trial: Trial) -> float:
            return abs(_share_of_words(trial.candidate.fusion) - own) + 1.0 - trial.overlap

        return min(near, key=distance)

    def _as_good(self, trial: Trial, best: Trial) -> bool:
        part, other = self.part(trial.candidate.model), self.part(best.candidate.model)
        if part is other:
            values = (self._values[one.candidate.name] for one in (best, trial))
            error = selection_error(part.evidence, *values)
        else:  # other queries
            error = float(np.hypot(trial.error, best.error))
        return trial is best or trial.score >= best.score - error


def _share_of_words(fusion: Ranker | None) -> float:
    return 0.0 if fusion is None else fusion.word_weight


def slug(name: str) -> str:
    """A candidate's name as that of a file."""
    return "".join(c if c.isalnum() or c in "-." else "-" for c in name)
