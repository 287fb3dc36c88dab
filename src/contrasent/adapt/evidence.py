"""Evidence to measure candidates by: queries, their relevant documents, and the texts to search.

Queries of people decide where there are some. Otherwise queries are made of the text itself
(:mod:`contrasent.adapt.pairs`); a passage that a query was taken from stands in the collection
without that part, for this query alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contrasent.adapt.pairs import Pair, without_copied

Floats = NDArray[np.float64]

FEWEST = 20  # documents that a kind of queries is about, below which it does not count

WHOLE = ("title", "question", "click")
"""Kinds of queries that any passage of their document may answer: titles and headings stand before
every passage below them, and people open documents."""

UNTITLED = ("title", "question")
"""Kinds whose answers are texts without a title, since it is the query. Such a text is the only one
of its like among passages that bear theirs, and a model could find it by that: they are looked for
among each other."""

WRITTEN = ("docstring", "click")
"""Kinds of queries that people wrote, and that are therefore left as they are."""

OLD = " (old text)"
"""The ending of kinds of queries about old text, where a model is updated or a text watched."""

CUT_OUT = ("first sentence", "sentence")
"""Kinds of queries that are cut out of running text. Nobody asks in code or formulas, so only those
count that are prose."""

COPIED = 0.5
"""Share of the words that a made query shares with its answer which are taken out of it. A word of
a person's query is missing from 30 to 40 % of the texts that answer it (Zhao and Callan, 2010, Term
Necessity Prediction). Titles miss as many, sentences cut out of a passage more; to take out only
what goes beyond that trusted BM25 too far all the same, to people's cost (docs/log.md)."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query and its answers."""

    text: str
    kind: str  # the maker's name, or "real" for one that a person typed
    document: int  # queries about one document are no independent evidence
    relevant: Mapping[int, float]  # gain of each unit (see Evidence) that answers it
    hidden: tuple[int, ...] = ()  # rows that do not count
    shown: tuple[int, ...] = ()  # rows beyond the passages that count, its own first
    apart: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Queries, and rows of text to find their answers in."""

    texts: tuple[str, ...]  # passages, then passages without what a query was taken from
    passages: int
    # (rows,) rows of a unit (passage or document) count as one result, the best
    units: NDArray[np.int64]
    queries: tuple[Query, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of queries, in order."""
        return tuple(dict.fromkeys(query.kind for query in self.queries))

    def part(self, numbers: NDArray[np.int64]) -> "Evidence":
        """Some of the queries, over the same rows."""
        return replace(self, queries=tuple(self.queries[number] for number in numbers))

    def of_kind(self, kind: str) -> NDArray[np.int64]:
        """Numbers of the queries of a kind."""
        return np.array([i for i, q in enumerate(self.queries) if q.kind == kind], dtype=np.int64)


def made_evidence(
    texts: Sequence[str],
    documents: Sequence[int],
    pairs: Iterable[Pair],
    *,
    limit: int,
    terms: Callable[[str], list[str]],
    copied: float = COPIED,
    seed: int,
) -> Evidence:
    """Evidence from queries that were made of the text."""
    rows, units, queries = list(texts), list(range(len(texts))), list[Query]()
    kinds = _by_kind(pairs)
    chosen: dict[str, list[Pair]] = {}
    for old in (False, True):
        of_side = {kind: found for kind, found in kinds.items() if found[0].old == old}
        chosen |= {
            kind: found
            for kind, found in of_side.items()
            if len({documents[pair.passage] for pair in found}) >= FEWEST
        } or of_side
    of_document: dict[int, list[int]] = {}
    for row, document in enumerate(documents):
        of_document.setdefault(document, []).append(row)
    for kind, found in chosen.items():
        for pair in _spread(found, documents, limit, seed):
            share = 0.0 if pair.maker in WRITTEN else copied
            text = without_copied(pair.query, pair.text, terms, share, seed + pair.passage)
            if not text:
                continue
            unit, row = pair.passage, len(rows)
            rows.append(pair.text)
            units.append(unit)
            # The other passages of a document still bear the title that is the query.
            own = of_document[documents[unit]] if pair.maker in WHOLE else [unit]
            about = (documents[unit], {unit: 1.0}, tuple(own), (row,))
            queries.append(Query(text, kind, *about))
    for kind in UNTITLED:
        for side in (kind, kind + OLD):
            _set_apart(queries, side)
    return Evidence(tuple(rows), len(texts), np.array(units, dtype=np.int64), tuple(queries))


def _set_apart(queries: list[Query], kind: str) -> None:
    """Let queries of a kind look among each other's answers, but for those of their document."""
    group = [at for at, query in enumerate(queries) if query.kind == kind]
    rows = [(queries[at].document, *queries[at].shown) for at in group]
    for at in group:
        query = queries[at]
        others = tuple(row for document, row in rows if document != query.document)
        queries[at] = replace(query, hidden=(), shown=(*query.shown, *others), apart=True)


def is_prose(text: str) -> bool:
    """Whether a text is words and not code, a formula or a row of numbers, in any language."""
    letters = sum(character.isalpha() for character in text)
    marks = sum(character in "(){}[]<>=_/\\|#@*+^~`$&" for character in text)
    return 5 * letters >= 3 * len(text) and 25 * marks <= len(text)


def _by_kind(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    kinds: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.maker in CUT_OUT and not is_prose(pair.query):
            continue
        kinds.setdefault(pair.maker + OLD * pair.old, []).append(pair)
    return kinds


def _spread(pairs: Sequence[Pair], documents: Sequence[int], limit: int, seed: int) -> list[Pair]:
    """At most so many pairs, a document's second one only when every document has had its first."""
    order = np.random.default_rng(seed).permutation(len(pairs))
    turns: dict[int, int] = {}
    ranked = []
    for at in order:
        document = documents[pairs[at].passage]
        turns[document] = turns.get(document, 0) + 1
        ranked.append((turns[document], int(at)))
    return [pairs[at] for _, at in sorted(ranked, key=lambda entry: entry[0])[:limit]]


def mean_over_kinds(evidence: Evidence, values: Floats) -> float:
    """The mean of the means of each kind of query, so that no kind outweighs another."""
    return float(np.mean([values[evidence.of_kind(kind)].mean() for kind in evidence.kinds]))


def judged_evidence(
    texts: Sequence[str],
    documents: Sequence[int],
    holding: Sequence[Sequence[int]],
    user_queries: Sequence[tuple[str, Mapping[int, float]]],
) -> Evidence:
    """Evidence from queries that people typed, with documents that answer them."""
    answers = sorted({document for _, gains in user_queries for document in gains})
    copies = [
        (passage, document)
        for document in answers
        for passage in holding[document]
        if documents[passage] != document
    ]
    shown = tuple(range(len(texts), len(texts) + len(copies)))
    queries = [
        Query(text, "real", document, dict(gains), shown=shown)
        for document, (text, gains) in zip(main_answers(user_queries), user_queries, strict=True)
    ]
    rows = (*texts, *(texts[passage] for passage, _ in copies))
    units = np.array([*documents, *(document for _, document in copies)], dtype=np.int64)
    return Evidence(rows, len(texts), units, tuple(queries))


def main_answers(user_queries: Sequence[tuple[str, Mapping[int, float]]]) -> list[int]:
    """Of each query the answer that it shares with most queries: they gain and lose together."""
    shared = Counter(document for _, gains in user_queries for document in gains)
    return [max(gains, key=lambda at: (shared[at], -at)) for _, gains in user_queries]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """An evidence's queries, over some of its passages."""

    evidence: Evidence
    rows: NDArray[np.int64]  # numbers in the whole


def narrowed(evidence: Evidence, passages: NDArray[np.int64]) -> Part:
    """The queries over some passages; those that a query needs must be among them."""
    needed = {row for q in evidence.queries for row in (q.shown[:1] if q.apart else q.shown)}
    rows = np.concatenate([passages, np.array(sorted(needed), dtype=np.int64)])
    place = {int(row): at for at, row in enumerate(rows)}
    measured = tuple(
        replace(
            query,
            hidden=tuple(place[row] for row in query.hidden if row in place),
            shown=tuple(place[row] for row in query.shown if row in place),
        )
        for query in evidence.queries
    )
    texts = tuple(evidence.texts[row] for row in rows)
    return Part(Evidence(texts, len(passages), evidence.units[rows], measured), rows)
