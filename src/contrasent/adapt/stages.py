"""The stages of one adaptation: the base's vectors, choosing, the sealed part, what is left."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt import shipping
from contrasent.adapt.candidates import Candidate
from contrasent.adapt.evidence import Evidence, Part, first_of_each_kind, narrowed
from contrasent.adapt.judging import judge_sealed
from contrasent.adapt.measuring import haystack
from contrasent.adapt.queries import Queries
from contrasent.adapt.reading import Reading, UserQueries
from contrasent.adapt.selection import Say, Selection
from contrasent.adapt.shipping import Adaptation
from contrasent.adapt.splitting import SEALED, SELECT, TRAIN, parts_of
from contrasent.adapt.training import TrainingPlan
from contrasent.adapt.trials import LINEAR, UNTRAINED, Ground, Trials
from contrasent.adapt.update import Previous, old_vectors, updated_parts
from contrasent.adapt.work import Work
from contrasent.metrics import normalize
from contrasent.model.encoder import Encoder
from contrasent.search.words import Bm25
from contrasent.types import Vectors

A_KIND = 200
"""Made queries of a kind that trained networks are measured by, at most."""
HAYSTACK = 2000
"""Passages that trained networks are measured on; the sealed part is searched among all."""
WIDE = 20_000
"""Passages that others are measured on, which need nothing encoded anew."""
LOOK = 0.04
"""Share of the budget that measuring one network on the selection part may take."""
QUERIES = 0.07
"""Share of the budget for encoding the answers of a part's queries: each stands in the collection
without what the query was taken from. Queries decide how small a gain can be proven."""
FEWEST_ROWS = 400
MOST_ROWS = 2000
"""Queries of a part at most."""
MOST_SEALED = 3000
"""Sealed queries at most, where time is left and no network is judged."""
RESERVE = 0.1
"""Share of the budget for ranking by the sealed queries, the index and the report."""
TRAINING = 3.0
"""Times as long as encoding a passage is training on a pair, until it has been measured."""


class Stages:
    """One adaptation in progress, for about ``budget`` seconds of computing."""

    def __init__(
        self,
        work: Work,
        reading: Reading,
        base: Encoder,
        base_folder: Path,
        base_name: str,
        previous: Previous | None,
        user_queries: UserQueries | None,
        log: UserQueries,
        budget: float,
        seed: int,
        say: Say,
    ) -> None:
        self.work, self.reading, self.base, self.say = work, reading, base, say
        self.base_folder, self.base_name = base_folder, base_name
        self.budget, self.seed = budget, seed
        self.texts = reading.texts
        self.previous = previous
        self.fusion = None if previous is None else previous.fusion
        self.parts = (
            parts_of(reading.documents, seed=seed)
            if previous is None
            else updated_parts(previous, reading, seed=seed)
        )
        self.raw, self.encoding = self._base_vectors()  # vectors, seconds a passage
        self.lexical = Bm25.of(self.texts)
        old = reading.facts.get("old_documents", 0)
        self.queries = Queries(reading, self.parts, user_queries, log, seed, old=old)
        for line in self.queries.lines:
            say(line)

    def _base_vectors(self) -> tuple[Vectors, float]:
        fresh = self.texts[self.reading.facts.get("old_passages", 0) :]
        self.say(f"encoding {len(fresh):,} passages by {self.base_name}")
        previous, name = self.previous, "base" if self.previous is None else "new"
        raw = made = self.work.encode(name, self.base.encode, fresh)
        if previous is not None:

            def joined() -> Vectors:
                return np.concatenate([old_vectors(previous, self.reading), normalize(made)])

            raw = self.work.vectors("base", joined)
        spent = self.work.stage("encoded", lambda: self.work.encoding_seconds(name))
        return raw, float(spent) / len(fresh)

    def finish(self, target: Path, plans: Sequence[TrainingPlan], steps: int | None) -> Adaptation:
        """Choose, open the sealed part, and leave what is better."""
        trials = self._select(plans, steps)
        chosen = trials.chosen().candidate
        self.say(f"chosen: {chosen.name}; opening the sealed part")
        return shipping.ship(
            target,
            trials=trials,
            chosen=chosen,
            sealed=judge_sealed(trials, chosen, self._sealed(chosen, trials.ground.select.kinds)),
            reading=self.reading,
            parts=self.parts,
            base_name=self.base_name,
            user_queries=self.queries.people,
            say=self.say,
        )

    def _select(self, plans: Sequence[TrainingPlan], steps: int | None) -> Trials:
        whole = self._evidence(SELECT)
        rows = normalize(np.asarray(self.raw))
        vectors = normalize(self.base.encode([query.text for query in whole.queries]))

        def part(size: int, queries: NDArray[np.int64]) -> Part:
            some = replace(whole, queries=tuple(whole.queries[at] for at in queries))
            kept = haystack(
                some,
                queries=vectors[queries],
                rows=rows,
                lexical=self.lexical,
                size=size,
                seed=self.seed,
            )
            return narrowed(whole, kept, queries)

        narrow = first_of_each_kind(whole, min(A_KIND, self.affordable // 12))
        ground = Ground(
            base_folder=self.base_folder,
            base=self.base,
            texts=self.texts,
            documents=self.queries.documents,
            trainable=self.parts[self.queries.documents] == TRAIN,
            raw=self.raw,
            lexical=self.lexical,
            select=whole,
            wide=part(WIDE, np.arange(len(whole.queries))),
            narrow=part(min(HAYSTACK, 2 * self.affordable // 3), narrow),
            seed=self.seed,
            fusion=self.fusion,
            updating=self.previous is not None,
        )
        # The sealed queries' answers by the base and by what is shipped; a network also encodes
        # all passages.
        answers = 2 * len(whole.queries) * self.encoding + 0.05 * self.budget
        passages = len(self.texts) * self.encoding
        trials = Trials(ground, self.work)
        selection = Selection(trials, self.budget - answers - passages, self.say)
        self.say(f"{len(whole.queries):,} queries to choose by: {', '.join(whole.kinds)}")
        selection.cheap()
        if not self.queries.provable:
            return trials
        pairs = self.queries.pairs()
        few = {} if steps is None else {"most": 16 * steps}
        if self.previous is None:
            selection.mapped(pairs, self.encoding, self.budget - answers, **few)
        texts = len(ground.narrow.evidence.texts) + len(narrow) / 4
        pair = TRAINING * self.encoding
        selection.train(pairs, self.encoding * texts, pair, plans=plans, steps=steps)
        return trials

    @property
    def affordable(self) -> int:
        """Rows of the selection part that the budget allows to encode for each trained network."""
        return max(FEWEST_ROWS, int(LOOK * self.budget / max(self.encoding, 1e-6)))

    def _evidence(
        self, part: int, *others: int, rows: int = 0, kinds: Sequence[str] = ()
    ) -> Evidence:
        """Queries of parts, as many as the budget allows to encode the answers of, or more."""
        allowed = max(FEWEST_ROWS, int(QUERIES * self.budget / max(self.encoding, 1e-6)))
        many = max(rows, min(allowed, MOST_ROWS))
        terms = self.lexical.analyzer
        return self.queries.evidence(part, *others, rows=many, terms=terms, kinds=kinds)

    def _sealed(self, chosen: Candidate, kinds: Sequence[str]) -> Evidence:
        """Sealed queries of the kinds that chose, as many as the time left allows."""
        # An untrained choice learnt nothing from documents to train on: it is proven on them too.
        # A network must encode all anew: its proof has no more queries than it was chosen by.
        if chosen.name == "base" or chosen.model not in LINEAR:
            return self._evidence(SEALED, kinds=kinds)

        def affordable() -> int:
            left = self.budget * (1 - RESERVE) - self.work.seconds()
            return min(MOST_SEALED, int(left / max(self.encoding, 1e-6)))

        untrained = chosen.model in UNTRAINED and self.previous is None
        others = (TRAIN,) if untrained else ()
        rows: int = self.work.stage("sealed-rows", affordable)
        return self._evidence(SEALED, *others, rows=rows, kinds=kinds)
