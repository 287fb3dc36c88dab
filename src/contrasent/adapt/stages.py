"""The stages of one adaptation: the base's vectors, choosing, the sealed part, what is left."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from contrasent.adapt import shipping
from contrasent.adapt.candidates import Candidate
from contrasent.adapt.evidence import Evidence, judged_evidence, narrowed
from contrasent.adapt.judging import Sealed, judge_sealed
from contrasent.adapt.measuring import haystack
from contrasent.adapt.queries import Queries
from contrasent.adapt.reading import Reading, Say, UserQueries
from contrasent.adapt.selection import UNTRAINED, Selection, SelectionContext
from contrasent.adapt.shipping import Adaptation
from contrasent.adapt.splitting import SEALED, SELECT, TRAIN, parts_of
from contrasent.adapt.teaching import teach
from contrasent.adapt.update import Previous, old_vectors, updated_parts
from contrasent.adapt.work import Work
from contrasent.metrics import normalize
from contrasent.model.base import TaskEncoder
from contrasent.model.encoder import Encoder
from contrasent.search.languages import fit
from contrasent.search.ranking import Ranker
from contrasent.search.words import Bm25
from contrasent.types import Vectors

WIDE = 20_000  # passages that candidates are measured on; the sealed part is searched among all
QUERIES = 0.07
"""Share of the budget for encoding the answers of a part's queries: each stands in the collection
without what the query was taken from. Queries decide how small a gain can be proven."""
FEWEST_ROWS = 400
MOST_ROWS = 2000  # queries of a part at most
MOST_SEALED = 3000  # sealed queries at most, where time is left
RESERVE = 0.1  # share of the budget for ranking by the sealed queries, the index and the report


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
        self.user_queries = user_queries
        self.queries = Queries(reading, self.parts, log, seed, old=old)
        for line in self.queries.lines if user_queries is None else ():
            say(line)

    def _base_vectors(self) -> tuple[Vectors, float]:
        fresh = self.texts[self.reading.facts.get("old_passages", 0) :]
        self.say(f"encoding {len(fresh):,} passages by {self.base_name}")
        previous, name = self.previous, "base" if self.previous is None else "new"
        raw = made = self.work.encode(name, TaskEncoder(self.base).for_task("document"), fresh)
        if previous is not None:

            def joined() -> Vectors:
                return np.concatenate([old_vectors(previous, self.reading), normalize(made)])

            raw = self.work.vectors("base", joined)
        spent = self.work.stage("encoded", lambda: self.work.encoding_seconds(name))
        return raw, float(spent) / len(fresh)

    def finish(self, target: Path) -> Adaptation:
        """Choose and judge, and leave what is better."""
        if self.user_queries is not None:
            selection, chosen, sealed = self._teach(self.user_queries)
        else:
            selection = self._select()
            chosen = selection.chosen().candidate
            self.say(f"chosen: {chosen.name}; opening the sealed part")
            evidence = self._sealed(chosen, selection.context.select.kinds)
            sealed = judge_sealed(selection, chosen, evidence)
        return shipping.ship(
            target,
            selection=selection,
            chosen=chosen,
            sealed=sealed,
            reading=self.reading,
            parts=self.parts,
            base_name=self.base_name,
            user_queries=(
                self.queries.people if self.user_queries is None else len(self.user_queries)
            ),
            say=self.say,
        )

    def _teach(self, user_queries: UserQueries) -> tuple[Selection, Candidate, Sealed]:
        """Learn from queries of people, and judge by them; the default search is to be beaten."""
        prior = Ranker(fit(self.texts, self.base.tokenizer).word_weight)
        evidence = judged_evidence(
            self.texts, self.queries.documents, self.reading.holding, user_queries
        )
        selection = Selection(self._context(evidence, prior), self.work, self.say)
        return selection, *teach(selection, prior)

    def _context(self, whole: Evidence, fusion: Ranker | None) -> SelectionContext:
        passages = np.arange(whole.passages)
        if len(passages) > WIDE:
            asked = TaskEncoder(self.base).for_task("query")
            passages = haystack(
                whole,
                queries=normalize(asked([query.text for query in whole.queries])),
                rows=normalize(np.asarray(self.raw)),
                lexical=self.lexical,
                size=WIDE,
                seed=self.seed,
            )
        return SelectionContext(
            base_folder=self.base_folder,
            base=self.base,
            documents=self.queries.documents,
            raw=self.raw,
            lexical=self.lexical,
            select=whole,
            part=narrowed(whole, passages),
            seed=self.seed,
            fusion=fusion,
        )

    def _select(self) -> Selection:
        whole = self._evidence(SELECT)
        selection = Selection(self._context(whole, self.fusion), self.work, self.say)
        self.say(f"{len(whole.queries):,} queries to choose by: {', '.join(whole.kinds)}")
        selection.untrained(updating=self.previous is not None)
        if self.queries.provable and self.previous is None:
            # The sealed queries' answers by the base, and ranking by them.
            answers = 2 * len(whole.queries) * self.encoding + 0.05 * self.budget
            selection.mapped(self.queries.pairs(), self.encoding, self.budget - answers)
        return selection

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
        # An untrained choice learnt nothing from the first part: it is proven on that, too.
        if chosen.name == "base":
            return self._evidence(SEALED, kinds=kinds)

        def affordable() -> int:
            left = self.budget * (1 - RESERVE) - self.work.seconds()
            return min(MOST_SEALED, int(left / max(self.encoding, 1e-6)))

        untrained = chosen.model in UNTRAINED and self.previous is None
        others = (TRAIN,) if untrained else ()
        rows: int = self.work.stage("sealed-rows", affordable)
        return self._evidence(SEALED, *others, rows=rows, kinds=kinds)
