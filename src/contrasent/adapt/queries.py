"""The queries of an adaptation: people's where there are some, else those made of the text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.evidence import (
    OLD,
    Evidence,
    made_evidence,
)
from contrasent.adapt.pairs import (
    Maker,
    Pair,
    Source,
    first_sentence,
    inverse_cloze,
    question_to_answer,
    summary_to_explanation,
    title_to_passage,
)
from contrasent.adapt.pairs import clicks as click_maker
from contrasent.adapt.reading import (
    Reading,
    Say,
    UserQueries,
    read_judged,
    read_queries,
    sentences_of,
)
from contrasent.adapt.splitting import SEALED, SELECT, TRAIN
from contrasent.adapt.teaching import too_few
from contrasent.adapt.verdict import FEWEST, PROOF
from contrasent.documents.passages import Passage
from contrasent.errors import InputError

QUERY_MAKERS: tuple[Maker, ...] = (
    title_to_passage, first_sentence, inverse_cloze, question_to_answer, summary_to_explanation,
)  # fmt: skip
"""Makers of the queries that candidates are measured by, and that the map learns from."""


def read_user_queries(
    queries: str | Path | None, collection: str | Path | None, reading: Reading, say: Say
) -> UserQueries | None:
    """Queries of people with their answers, of a file or of a collection in BEIR's layout."""
    if queries is not None:
        found = read_queries(Path(queries), reading.documents, say=say)
    elif collection is not None:
        found = read_judged(Path(collection), reading.documents, say=say)
    else:
        return None
    if problem := too_few(found):
        say(f"{queries or collection}: {problem}, and queries made of the text decide")
        return None
    return found


def read_clicks(
    path: str | Path | None, reading: Reading, user_queries: UserQueries | None, say: Say
) -> UserQueries:
    """A click log without the queries that decide; empty if there is none."""
    if path is None:
        return []
    known = {query.casefold() for query, _ in user_queries or ()}
    found = read_queries(Path(path), reading.documents, weight="count", say=say)
    return [(query, counts) for query, counts in found if query.casefold() not in known]


class Queries:
    """Queries that choose and prove, and pairs to learn from; ``parts`` is by document."""

    # Clicks are learnt from; they choose and prove alone if enough and no others are there.

    def __init__(
        self,
        reading: Reading,
        parts: NDArray[np.int8],
        log: UserQueries,
        seed: int,
        *,
        old: int = 0,
    ) -> None:
        self.reading, self.parts, self.seed = reading, parts, seed
        self.old = old
        self.documents = [passage.document for passage in reading.passages]
        self.people: int | None = None
        self.lines: list[str] = []
        self._query_makers, self._pair_makers = QUERY_MAKERS, QUERY_MAKERS
        if log:
            clicks = click_maker(log, reading.holding)
            self._pair_makers = (clicks, *QUERY_MAKERS)
            fewest = min(
                len({self.documents[pair.passage] for pair in self._pairs((clicks,), part)})
                for part in (SELECT, SEALED)
            )
            if fewest >= FEWEST:
                self._query_makers, self.people = (clicks,), len(log)
            else:
                self.lines.append(
                    f"the clicks are about {fewest} documents to choose or prove by, and {FEWEST} "
                    "are needed: a map is learnt from them, and queries made of the text decide"
                )
        self.provable = int((parts[old:] == SEALED).sum()) >= FEWEST
        if not self.provable:
            self.lines.append(
                f"no gain can be proven on so little ({PROOF}): the base is going to be shipped"
            )

    def pairs(self) -> list[Pair]:
        """Pairs to learn from, made of the training documents."""
        return list(self._pairs(self._pair_makers, TRAIN))

    def evidence(
        self,
        part: int,
        *others: int,
        rows: int,
        terms: Callable[[str], list[str]],
        kinds: Sequence[str] = (),
    ) -> Evidence:
        """The queries of a part with what they should find."""
        texts = self.reading.texts
        pairs = list(dict.fromkeys(self._pairs(self._query_makers, part, *others)))
        if all(pair.old for pair in pairs):
            raise InputError(
                self.reading.documents[self.old],
                "and the other documents have no titles and too few sentences to make queries of; "
                "give real ones (--queries FILE)",
            )
        if kinds:
            pairs = [pair for pair in pairs if pair.maker + OLD * pair.old in kinds] or pairs
        limit = rows // len({(pair.maker, pair.old) for pair in pairs})
        return made_evidence(texts, self.documents, pairs, limit=limit, terms=terms, seed=self.seed)

    def _pairs(self, makers: Sequence[Maker], *parts: int) -> Iterator[Pair]:
        numbers = [i for i, document in enumerate(self.documents) if self.parts[document] in parts]
        return made_pairs(makers, self.reading.passages, numbers, self.seed, old=self.old)


def made_pairs(
    makers: Sequence[Maker],
    passages: Sequence[Passage],
    numbers: Sequence[int],
    seed: int,
    *,
    old: int = 0,
) -> Iterator[Pair]:
    """The pairs that makers make of some passages."""
    for make in makers:
        for pair in make(Source(passages, numbers, sentences_of, seed)):
            is_old = passages[pair.passage].document < old
            yield replace(pair, old=True) if is_old else pair
