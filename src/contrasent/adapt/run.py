"""Documents in, a better search out, or a plain no: one adaptation from beginning to end."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt import shipping
from contrasent.adapt.candidates import Candidate, encode_all
from contrasent.adapt.documents import Documents, open_documents
from contrasent.adapt.evidence import (
    Evidence,
    Part,
    first_of_each_kind,
    narrowed,
)
from contrasent.adapt.judging import judge_sealed
from contrasent.adapt.measuring import haystack
from contrasent.adapt.queries import Queries, read_clicks, read_user_queries
from contrasent.adapt.reading import Reading, UserQueries, load_reading, read_source, write_reading
from contrasent.adapt.selection import Say, Selection
from contrasent.adapt.shipping import Adaptation
from contrasent.adapt.splitting import SEALED, SELECT, TRAIN, parts_of
from contrasent.adapt.training import PLANS, TrainingPlan
from contrasent.adapt.trials import LINEAR, UNTRAINED, Ground, Trials
from contrasent.adapt.update import (
    Previous,
    old_vectors,
    open_previous,
    updated_parts,
    with_previous,
)
from contrasent.adapt.work import Work
from contrasent.errors import InputError, OptionError, OutputError, UserError
from contrasent.model.encoder import Encoder
from contrasent.model.pretrained import resolve
from contrasent.search.exact import unit
from contrasent.search.lexical import Lexical
from contrasent.text.sources import missing
from contrasent.types import Vectors

BASE = "all-MiniLM-L6-v2"
CLICKED = TrainingPlan("clicks", ("click",), 5e-5)
"""What is tried besides where there is a click log."""

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
FEWEST_PASSAGES = 20
FEWEST_DOCUMENTS = 10
SHORTEST_BUDGET = 10.0


def adapt(
    source: str | Path | Documents,
    output: str | Path,
    *,
    base: str = BASE,
    update: str | Path | None = None,
    budget: float = 1800.0,
    queries: str | Path | None = None,
    collection: str | Path | None = None,
    clicks: str | Path | None = None,
    columns: Sequence[str] | None = None,
    plans: Sequence[TrainingPlan] = PLANS,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    keep_candidates: bool = False,
    say: Say = lambda text: None,
) -> Adaptation:
    """Make search in documents better than the base makes it, prove it, and leave what is better.

    Documents are divided into those to train on, those to choose by, and sealed ones. Candidates
    (BM25 beside the base, the base whitened, trained, averaged with what was trained) are chosen
    by queries about the second part. The best takes the base's place only if it is better on the
    sealed part, by the 95 % interval of the paired difference, and general quality has not fallen.

    Args:
        source: a folder, an archive or a file of documents, or documents from elsewhere.
        output: folder for the model, its index and its report.
        base: model to begin from, by folder or name.
        update: instead, the folder that an earlier adaptation left: its model is trained on these
            documents and on some that it was made of, judged on both, and may lose little of the
            old ones. The index holds old and new documents.
        budget: seconds of computing, about.
        queries: a file of queries with documents that answer them; they decide instead of queries
            that are made of the text.
        collection: the same as a folder in BEIR's layout.
        clicks: a file of queries with the documents that people opened: pairs to train on, and
            queries to choose and to prove by if there are enough and no others.
        columns: of tables, those to read.
        plans: what is trained, see :mod:`contrasent.adapt.training`.
        steps: of training that a plan gets at most; None for what the budget allows.
        seed: of everything random.
        resume: go on with an adaptation that was killed.
        overwrite: begin anew where the output exists.
        keep_candidates: leave all trained models, and what was read, in ``work`` in the output.
        say: is given a line for people at each step.

    Returns:
        What came of it.

    Raises:
        UserError: nothing to read, too little of it, an output that exists or cannot be written.
        KeyboardInterrupt: Ctrl-C; ``resume`` goes on.
    """
    if budget < SHORTEST_BUDGET:
        raise OptionError("budget", budget, f"must be at least {SHORTEST_BUDGET:g} seconds")
    _check_people(queries, collection, clicks, update)
    target, place = Path(output), resolve(base if update is None else str(update))
    previous = None
    if update is not None:
        if base != BASE:
            raise OptionError("base", base, "an update begins from the model that is updated")
        base, previous = str(update), open_previous(place, target)
    if isinstance(source, str | Path):
        source = open_documents(Path(source).absolute(), columns=columns)
        if source.source.resolve().is_relative_to(target.resolve()):
            raise OutputError(f"{target}: holds the documents themselves; choose another folder")
    if resume and (done := shipping.finished(target)) is not None:
        return shipping.tidied(done, keep_candidates)
    shipping.check_target(target, resume=resume, overwrite=overwrite)
    work = Work(
        target / shipping.WORK,
        {
            "source": str(source),
            "base": base,
            "update": previous and previous.stamp,
            "budget": budget,
            "queries": None if queries is None else str(queries),
            "collection": None if collection is None else str(collection),
            "clicks": None if clicks is None else str(clicks),
            "columns": None if columns is None else list(columns),
            "plans": [asdict(plan) for plan in plans],
            "steps": steps,
            "seed": seed,
        },
        resume=resume,
    )
    encoder = Encoder.load(place, normalise=False)
    kept = work.folder / "passages.jsonl"
    try:
        if previous is not None:
            previous.check_model(encoder)
        if not kept.is_file():
            write_reading(kept, _read(source, encoder, previous))
        reading = load_reading(kept)
        user_queries = read_user_queries(queries, collection, reading)
        log = read_clicks(clicks, reading, user_queries)
    except OutputError:
        raise
    except UserError:
        work.discard()  # a corrected run is another run
        with suppress(OSError):  # it may have held something before
            target.rmdir()
        raise
    for line in reading.lines:
        say(line)
    run = _Run(work, reading, encoder, place, base, previous, user_queries, log, budget, seed, say)
    done = run.finish(target, (CLICKED, *plans) if log else plans, steps)
    return shipping.tidied(done, keep_candidates)


def _check_people(
    queries: str | Path | None,
    collection: str | Path | None,
    clicks: str | Path | None,
    update: str | Path | None,
) -> None:
    """Refuse queries of people that cannot be taken.

    Raises:
        UserError: so.
    """
    if queries is not None and collection is not None:
        raise OptionError("queries", str(queries), "give queries or a collection, not both")
    for given in (queries, collection, clicks):
        if given is not None and not Path(given).exists():
            raise InputError(given, missing(Path(given)))
        if given is not None and update is not None:
            problem = "an update is judged by queries made of old and new text alone; leave it out"
            raise OptionError("update", str(given), problem)


def _read(source: Documents, encoder: Encoder, previous: Previous | None) -> Reading:
    def count(texts: Sequence[str]) -> list[int]:
        found = encoder.tokenizer.backend.encode_batch_fast(list(texts))
        return [len(one.ids) for one in found]

    reading = read_source(source, count_tokens=count, max_tokens=encoder.max_tokens)
    if previous is not None:
        return with_previous(previous, reading)
    if len(reading.documents) < FEWEST_DOCUMENTS:
        raise InputError(
            str(source),
            f"holds {len(reading.documents)} documents; at least {FEWEST_DOCUMENTS} are needed, to "
            "learn from some and prove it on others; give more, or search these with "
            "'contrasent index'",
        )
    if len(reading.passages) < FEWEST_PASSAGES:
        raise InputError(
            str(source),
            f"holds {len(reading.passages)} passages of text, and at least {FEWEST_PASSAGES} are "
            "needed to adapt anything; give more documents, or search these with "
            "'contrasent index'",
        )
    return reading


class _Run:
    """One adaptation in progress."""

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
        self.lexical = Lexical.build(self.texts)
        old = reading.facts.get("old_documents", 0)
        self.queries = Queries(reading, self.parts, user_queries, log, seed, old=old)
        for line in self.queries.lines:
            say(line)

    def _base_vectors(self) -> tuple[Vectors, float]:
        fresh = self.texts[self.reading.facts.get("old_passages", 0) :]
        self.say(f"encoding {len(fresh):,} passages by {self.base_name}")
        began = self.work.seconds()

        def encoded() -> Vectors:
            made = encode_all(self.base.encode, fresh)
            if self.previous is None:
                return made
            return np.concatenate([old_vectors(self.previous, self.reading), unit(made)])

        raw = self.work.vectors("base", encoded)
        spent = self.work.stage("encoded", lambda: self.work.seconds() - began)
        return raw, float(spent) / len(fresh)

    def finish(self, target: Path, plans: Sequence[TrainingPlan], steps: int | None) -> Adaptation:
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

    # ------------------------------------------------------------------ choosing

    def _select(self, plans: Sequence[TrainingPlan], steps: int | None) -> Trials:
        whole = self._evidence(SELECT)
        rows = unit(np.asarray(self.raw))
        vectors = unit(self.base.encode([query.text for query in whole.queries]))

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
        """Sealed queries of the kinds that chose, as many as the time left allows.

        Nothing was learnt from documents to train on, nor chosen by them, if what was chosen is
        untrained: its proof may be about them too. A network must encode all anew, so its proof
        is about no more queries than it was chosen by.
        """
        if chosen.name == "base" or chosen.model not in LINEAR:
            return self._evidence(SEALED, kinds=kinds)

        def affordable() -> int:
            left = self.budget * (1 - RESERVE) - self.work.seconds()
            return min(MOST_SEALED, int(left / max(self.encoding, 1e-6)))

        untrained = chosen.model in UNTRAINED and self.previous is None
        others = (TRAIN,) if untrained else ()
        rows: int = self.work.stage("sealed-rows", affordable)
        return self._evidence(SEALED, *others, rows=rows, kinds=kinds)
