"""An index: texts with their vectors, words, ids and metadata, and how a query finds them.

The index knows no model: it takes vectors, or an ``EncodeFn`` that makes them, and keeps the
identity of the model they came from, so that vectors of another are rejected. Its own model is
opened by :mod:`contrasent.indexing.models`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from contrasent.errors import OptionError, UserError, check_count, texts_of
from contrasent.nearest import QUERIES_AT_ONCE, Best, best_rows, scan
from contrasent.progress import check_deadline
from contrasent.report import html_table
from contrasent.search.filters import Where
from contrasent.search.folder import check_target, check_vectors, damaged
from contrasent.search.learned import Learned, bonus, mapped, smooth_vectors, smoothed
from contrasent.search.ranking import (
    BEST,
    CALIBRATIONS,
    Calibration,
    Candidates,
    Evidence,
    Floats,
    RankedRows,
    Ranker,
    Spread,
)
from contrasent.search.store import (
    ROWS_AT_ONCE,
    Facts,
    NewRows,
    Row,
    Store,
    check_encoder,
    check_finished,
    check_model,
)
from contrasent.search.words import Analyzer, Bm25, Speller, foreign_stop_words
from contrasent.search.writer import Writer, new_index
from contrasent.types import EncodeFn, Mask, Numbers, Vectors, batched, encoder_of, for_task

# Where not all rows are compared: rows sampled for the spread of cosines, and rows that words and
# codes each propose.
SAMPLED, PROPOSED = 10_000, 200
# In a query in another language than the texts, words keep a share of their weight. It is one if at
# most half of its stop words occur in more than some of the rows.
FOREIGN_SHARE, SPOKEN = 0.1, 0.01
DEEPEST, PASSAGES = 16_384, 5  # rows searched for documents, and rows of one document
COUNTED = 100  # rows whose documents are counted in the time that it takes to read one
PER_COPY_FACTS = ("identity", "vectors", "rows", "dead", "codes", "encoding")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hit:
    """One row found.

    Attributes:
        score: what the hits are sorted by: the weighted mean of the z-scores of cosine and BM25, or
            the cosine without BM25.
        cosine: inner product of its vector and the query's; their cosine if the index scales
            vectors.
        bm25: its BM25 score; 0 without a term of the query, or if BM25 has no weight.
        confidence: chance, in percent, that it answers the query; None for a model without
            calibration.
    """

    id: str
    text: str
    score: float
    metadata: Any = None
    cosine: float = 0.0
    bm25: float = 0.0
    confidence: float | None = None

    def _repr_html_(self) -> str:
        """The same as a table of HTML, for a notebook."""
        return html_table([("score", "text", "id"), (self.shown, self.text, self.id)])

    @property
    def shown(self) -> str:
        """Its confidence or cosine as printed, which a threshold is compared with."""
        if self.confidence is not None:
            return f"{self.confidence:.0f} %"
        return f"cosine {self.cosine:.4f}" if self.cosine else f"BM25 {self.bm25:.2f}"


def document_of(name: str, metadata: Any) -> str:
    """The document that a row is a passage of, by its metadata; otherwise the row itself."""
    document = metadata.get("document") if isinstance(metadata, dict) else None
    return document if isinstance(document, str) else name


class RowDocuments:
    """The documents that rows are passages of, and the rows of each."""

    def __init__(self, rows: int, named: Iterable[tuple[int, str]]) -> None:
        self.numbers = dict[str, int]()  # of the documents, by their names
        self.units = np.full(rows, -1, np.int64)  # (rows,) the document of each; -1 of deleted ones
        for row, name in named:
            self.units[row] = self.numbers.setdefault(name, len(self.numbers))
        self._order = np.argsort(self.units, kind="stable")
        self._sorted = self.units[self._order]

    def rows_of(self, name: str) -> Numbers:
        """The rows of a document, rising; none if it is not there."""
        number = self.numbers.get(name, len(self.numbers))
        first, last = np.searchsorted(self._sorted, [number, number + 1])
        return self._order[first:last]


def grouped(hits: Sequence[Hit]) -> list[list[int]]:
    """The positions of hits, grouped by document, best first."""
    groups: dict[str, list[int]] = {}
    for place, hit in enumerate(hits):
        groups.setdefault(document_of(hit.id, hit.metadata), []).append(place)
    return list(groups.values())


class BaseIndex(ABC):
    """Rows to search: an :class:`Index` in a folder or in memory, or a collection of Milvus."""

    facts: Facts
    folder: Path | None
    unfinished: int = 0  # rows without vectors; as long as there are some, only BM25 searches
    model_opener: ClassVar[Callable[["BaseIndex"], EncodeFn] | None] = None  # see indexing.models
    _encode: EncodeFn | None = None  # of the model that made the vectors, once it is known

    @property
    def encode(self) -> EncodeFn:
        """The model that made the vectors, opened when it is first needed."""
        if self._encode is None:
            opener = type(self).model_opener
            if opener is None:
                raise UserError("searching by text needs encode=; or pass vectors as queries")
            self._encode = opener(self)
        return self._encode

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def find(
        self,
        texts: Sequence[str],
        vectors: Vectors,
        k: int,
        ranker: Ranker,
        *,
        allowed: Any = None,
        all_rows: bool = False,
    ) -> list[RankedRows]:
        """The best rows for each query (q, d), by number or id; ``allowed`` is of `matching`."""

    @abstractmethod
    def matching(self, where: Where) -> Any:
        """The rows that a filter matches, as :meth:`find` takes them."""

    @abstractmethod
    def rows(self, numbers: Any) -> list[Row]:
        """Rows by their numbers or ids, as :meth:`find` gives them."""

    @abstractmethod
    def sample(self) -> Vectors:
        """Vectors of some rows, the same ones whenever the index is opened."""

    @abstractmethod
    def every(self) -> Iterator[Row]:
        """All rows."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def write_rows(self, rows: NewRows, *, replace: bool) -> tuple[int, int]:
        """Write rows, those of known ids only to ``replace``; how many were replaced, and added."""

    def add(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn | None = None,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> int:
        """Add texts in one transaction; many in one call are faster than one by one.

        Args:
            texts: n texts.
            vectors: (n, d) vectors of the texts, or a function that encodes them; the index's own
                model if None.
            ids: one distinct string for each text; the next numbers by default.
            metadata: one JSON value a text.
            model: identity of the model that made the vectors; it must be the index's.

        Returns:
            The number of rows added.

        Raises:
            OptionError: an id is in the index already, or the number of ids is not that of the
                texts.
            ModelError: the vectors are from another model, not finite or of the wrong shape.
            OutputError: another process is writing to the folder, or it cannot be written.
        """
        given = self.encode if vectors is None else vectors
        return self.write_rows(NewRows(texts, given, ids, metadata, model), replace=False)[1]

    def update(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn | None = None,
        *,
        ids: Sequence[str],
        metadata: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> tuple[int, int]:
        """Replace the rows with these ids, and add those whose ids are new.

        Args:
            texts: n texts, as for :meth:`add`.
            vectors: as for :meth:`add`.
            ids: one distinct string for each text.
            metadata: as for :meth:`add`; if None, the replaced rows lose theirs.
            model: as for :meth:`add`.

        Returns:
            The number of rows replaced, and the number added.

        Raises:
            OptionError: the number of ids is not that of the texts.
            ModelError: as for :meth:`add`.
            OutputError: as for :meth:`add`.
        """
        given = self.encode if vectors is None else vectors
        return self.write_rows(NewRows(texts, given, ids, metadata, model), replace=True)

    def count_documents(self, where: Where | None) -> float:
        """How many documents have rows that match, or more where that is not known."""
        return math.inf

    def refreshed(self) -> Self:
        """The newest state; the same object if nothing was written since."""
        return self

    @property
    def model(self) -> str:
        """Identity of the model that made the vectors."""
        return self.facts.model

    @property
    def metric(self) -> str:
        """The similarity of vectors: "cosine", or "dot" for the inner product."""
        return self.facts.metric

    @property
    def dimension(self) -> int:
        """Number of dimensions of a vector."""
        return self.facts.dimension

    @property
    def count(self) -> int:
        """Number of rows; in Milvus, where counting is a request, as of the last minute."""
        return len(self)

    @property
    def bm25_only(self) -> str:
        """The line about an index that only BM25 searches as yet, or ""."""
        if not self.unfinished:
            return ""
        return f"BM25 only: {100 * (len(self) - self.unfinished) // len(self)} % encoded"

    def check_finished(self, purpose: str) -> None:
        """Reject an index that is not fully encoded; ``purpose`` goes into the message."""
        check_finished(self.folder, self.unfinished, purpose)

    def check_model(self, model: str, option: str = "model") -> None:
        """Reject a model other than the one the vectors came from."""
        check_model(self.facts, self.folder, model, option)

    @cached_property
    def ranker(self) -> Ranker:
        """How a search ranks rows, unless it is given another ranker."""
        return Ranker.from_json(self.facts.ranker)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The regressions behind a hit's confidence; None for a model without calibration."""
        return CALIBRATIONS.get(self.model) if self.metric == "cosine" else None

    def nothing_matches(self, hits: Sequence[Hit]) -> bool:
        """True if no hit of a query matches well."""
        known = [hit.confidence for hit in hits if hit.confidence is not None]
        return self.calibration is not None and bool(known) and max(known) < self.calibration.well

    @cached_property
    def analyzer(self) -> Analyzer:
        """The terms of a text in the language of the index."""
        return Analyzer(self.facts.language or "none")

    def repaired(self, queries: Sequence[str], knows: Callable[[str], bool]) -> list[str]:
        """Queries without typing errors, if it is known which words the rows hold.

        ``knows``: whether a word is a token of the model.
        """
        return [*queries]

    def query_vectors(
        self,
        queries: str | Sequence[str] | Vectors,
        encode: EncodeFn | None = None,
        model: str | None = None,
    ) -> Vectors:
        """Texts with ``encode``, or (q, d) or (d,) vectors, as vectors like those of the index."""
        if isinstance(queries := _queries(queries), np.ndarray):
            vectors = np.atleast_2d(queries)
        else:
            if not queries:
                return np.empty((0, self.dimension), dtype=np.float32)
            check_encoder(self.facts, self.folder, encode, model)
            vectors = for_task(self.encode if encode is None else encode, "query")(queries)
        return check_vectors(vectors, len(vectors), self.dimension, self.metric)

    def search(
        self,
        queries: str | Sequence[str] | Vectors,
        *,
        encode: EncodeFn | None = None,
        vectors: Vectors | None = None,
        k: int = 10,
        threshold: float | None = None,
        where: Where | None = None,
        model: str | None = None,
        ranker: Ranker | None = None,
        all_rows: bool = False,
    ) -> list[list[Hit]]:
        """Find the best k rows for each query, best first; equal scores in the order of rows.

        Args:
            queries: one text or q texts; or vectors (d,) or (q, d), which search without BM25.
            encode: a function from texts to vectors; the index's own model if None.
            vectors: (q, d) vectors of the texts, instead of ``encode``.
            k: number of rows.
            threshold: least confidence in percent, or least cosine for a model without calibration.
            where: a filter on metadata, such as ``{"year": {"$gte": 2024}}``.
            model: identity of the model that made the queries' vectors; it must be the index's.
            ranker: how to rank; the index's own ranker if None.
            all_rows: compare every row of a large index, without binary codes.

        Raises:
            UserError: an argument is invalid, or the index or its model is missing or damaged.
        """
        check_count("k", k)
        self._check_threshold(threshold)
        if model is not None:
            self.check_model(model)
        texts = _queries(queries)
        given = texts if vectors is None else np.asarray(vectors)
        matrix = self.query_vectors(given, encode, model)
        ranker = ranker or self.ranker
        if not isinstance(texts, np.ndarray):
            _check_pairs(texts, matrix)
        else:
            ranker, texts = replace(ranker, bm25_weight=0.0), [""] * len(matrix)
        allowed = None if where is None else self.matching(where)
        most = max(k, BEST) if self.calibration else k
        ranked = self.find(texts, matrix, int(most), ranker, allowed=allowed, all_rows=all_rows)
        return [self._hits(best, k, threshold) for best in ranked]

    def evidence(self, cosines: Floats, vector: Vectors) -> Evidence | None:
        """The evidence for the confidence of hits from their cosines with a query (d,) alone."""
        if not self.calibration or not len(cosines):
            return None
        spread = Spread.of(self.sample() @ vector)
        z, best = spread.scaled(cosines), float(cosines.max())
        return Evidence(z, best, spread.mean, None, self.count)

    def search_documents(
        self, queries: Sequence[str], vectors: Vectors, k: int, **how: Any
    ) -> list[list[Hit]]:
        """Find rows of the best k documents, each ranked by its best row; see :meth:`search`."""
        _check_pairs(queries, vectors)
        results: list[list[Hit]] = [[] for _ in queries]
        wanted, depth, most = list(range(len(queries))), k, float(k)
        while wanted:
            texts = [queries[number] for number in wanted]
            every = self.search(texts, vectors=vectors[wanted], k=depth, **how)
            documents = [*map(grouped, every)]
            lacking = min(map(len, documents)) < k  # perhaps there are no more
            if lacking and self.count < COUNTED * depth:
                most = min(k, self.count_documents(how.get("where")))
            for number, hits, groups in zip(wanted.copy(), every, documents, strict=True):
                if len(groups) >= most or len(hits) < depth:
                    wanted.remove(number)
                places = sorted(n for group in groups[:k] for n in group[:PASSAGES])
                results[number] = [hits[n] for n in places]
            if depth >= DEEPEST:
                break
            depth = min(4 * depth, DEEPEST)
        return results

    def documents(
        self, queries: Sequence[str], encode: EncodeFn, k: int, ranker: Ranker | None = None
    ) -> list[list[str]]:
        """Find the names of the best k documents for each query."""
        vectors = self.query_vectors(queries, encode)
        results = self.search_documents(queries, vectors, k, ranker=ranker)
        return [[*dict.fromkeys(document_of(h.id, h.metadata) for h in hits)] for hits in results]

    def _check_threshold(self, threshold: Any) -> None:
        """Reject an invalid threshold, or a cosine where confidence is printed."""
        if threshold is None:
            return
        self.check_finished("a threshold")
        if not isinstance(threshold, int | float | np.number) or math.isnan(threshold):
            raise OptionError("threshold", threshold, "is not a number")
        if self.calibration and (not 0 <= threshold <= 100 or 0 < threshold < 1):
            problem = "must be a confidence from 1 to 100 percent"
            raise OptionError("threshold", threshold, problem)
        if not self.calibration and self.metric == "cosine" and threshold > 1:
            problem = "must be a cosine, at most 1; the model of this index has no confidence"
            raise OptionError("threshold", threshold, problem)

    def _hits(self, found: RankedRows, k: int, threshold: float | None) -> list[Hit]:
        columns, compared = [found.scores, found.cosines, found.words], found.cosines
        if self.calibration and found.evidence:
            compared = self.calibration.confidence(found.evidence)
            columns.append(compared)
        least = -math.inf if threshold is None else threshold
        chosen = np.flatnonzero(compared[:k].astype(np.float64) >= least)
        rows, scores = self.rows(found.rows[chosen]), [column[chosen] for column in columns]
        if not np.isfinite(scores).all():
            raise damaged(self.folder, "its vectors")
        return [
            Hit(row.id, row.text, float(score), row.metadata, *map(float, others))
            for row, score, *others in zip(rows, *scores, strict=True)
        ]


class Index(BaseIndex):
    """Texts that can be searched, in memory (:meth:`build`) or in a folder (:meth:`open`).

    An index is a snapshot, which several threads may search at once. It does not see what other
    processes write to its folder; :meth:`refreshed` does. Its own :meth:`add`, :meth:`update` and
    :meth:`remove` change the folder, or the copy in memory, and must not run during a search.

    Args:
        store: the rows with their vectors and terms, as :meth:`build` and :meth:`open` make it.
        encode: a function from texts to vectors; by default the model that made the vectors, which
            is opened when it is first needed.

    Examples:
        >>> from contrasent import Encoder, Index
        >>> encode = Encoder.load("all-MiniLM-L6-v2").encode
        >>> index = Index.build(encode, ["boats and ships", "how to file taxes"], ids=["a", "b"])
        >>> index.search("ferry", k=1)[0][0].id
        'a'
        >>> index.save("my-index")
        >>> len(Index.open("my-index"))
        2
    """

    exact_up_to = 10_000  # rows up to which an exact search is preferred to binary codes

    def __init__(self, store: Store, encode: EncodeFn | None = None) -> None:
        self.store, self._encode = store, encode
        self.facts, self.unfinished = store.facts, store.unfinished
        self._samples = dict[float, Vectors]()  # sampled rows, by their smoothing weight

    # ------------------------------------------------------------------ making and reading

    @classmethod
    def build(
        cls,
        encode: EncodeFn,
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Any] | None = None,
        model: str = "",
        source: str = "",
        metric: str | None = None,
        ranker: Ranker | None = None,
    ) -> "Index":
        """Encode texts and keep them in memory.

        Args:
            encode: a function from texts to vectors. The method of an encoder puts its prompt for
                documents before texts, and its prompt for queries before queries.
            texts: n texts to search.
            ids: one distinct string for each text; row numbers by default.
            metadata: one JSON value for each text.
            model: identity of the model behind ``encode``; the encoder's, if it is its method.
            source: name or folder to load the model from; likewise.
            metric: "cosine" (vectors are scaled to length one) or "dot"; the encoder's own if None,
                or "cosine" if ``encode`` is another function.
            ranker: how to rank rows; by vectors and BM25 by default.

        Raises:
            UserError: no texts, repeated or missing ids, or metadata that is not JSON.
            ModelError: ``encode`` returned vectors that are not finite or of the wrong shape.
        """
        encoder, settings = encoder_of(encode), dict[str, Any]()
        if metric is None:
            metric = getattr(getattr(encoder, "prompts", None), "similarity", "cosine")
        if not source and (loaded := getattr(encoder, "loaded_by", None)):
            (source, settings), model = loaded, model or getattr(encoder, "identity", "")
        facts = Facts(model=model, source=source, metric=metric, settings=settings)
        with Writer(None, new=facts) as writer:
            writer.set(ranker=ranker or Ranker())
            if not writer.add(texts, encode, ids=ids, metadata=metadata, model=model):
                raise UserError("no texts to index")
        return Index(writer.store, encode)

    @classmethod
    def open(cls, folder: str | Path) -> "Index":
        """Open an index folder.

        Args:
            folder: where :meth:`save` or ``contrasent index`` wrote it.

        Raises:
            InputError: the folder is not an index, or is damaged.
        """
        return Index(Store.open(folder))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the index to a folder.

        Raises:
            OutputError: the folder exists, or cannot be written.
        """
        target = Path(folder)
        self.check_finished("a copy")
        check_target(target, overwrite)
        # With another identity, so that readers of an index that it replaces take notice.
        new: dict[str, Any] = {key: getattr(Facts(), key) for key in PER_COPY_FACTS}
        with new_index(target, replace(self.facts, **new)) as copy:
            for rows in map(self.rows, batched(self.numbers().tolist(), ROWS_AT_ONCE)):
                texts, ids = [row.text for row in rows], [row.id for row in rows]
                vectors = self.vectors[[row.row for row in rows]]
                copy.append(vectors, texts, ids, [row.metadata for row in rows])
            copy.put_files({**self.store.files()})
            learned = self.store.stored_learned()
            copy.set(learned=learned.renumbered(self.numbers(), len(self.alive)))

    def write_rows(self, rows: NewRows, *, replace: bool) -> tuple[int, int]:
        """Write the rows of :meth:`add` and :meth:`update`."""
        return self._change(lambda to: to.write_rows(rows, replace=replace))

    def remove(self, ids: Sequence[str] = (), where: Where | None = None) -> int:
        """Remove rows by ids and by metadata, in one transaction.

        Args:
            ids: rows to remove.
            where: remove the rows whose metadata matches, such as ``{"year": {"$lt": 2024}}``.

        Returns:
            The number of rows removed.

        Raises:
            OptionError: an id is not in the index, or the filter is invalid.
            OutputError: as for :meth:`add`.
        """

        def removed(to: Writer) -> int:
            count = to.delete(ids)
            return count if where is None else count + to.delete_where(where)

        return self._change(removed)

    def _change(self, change: Callable[[Writer], T]) -> T:
        """Change the folder, or a copy in memory, and take over the new state."""
        with Writer(self.folder, of=self.store) as writer:
            done = change(writer)
        if self.folder is None:
            newest = Index(writer.store, self._encode) if writer.committed else self
        else:
            newest = self.refreshed()
        if newest is not self:
            self.close()
            self.__dict__ = newest.__dict__
        return done

    # ------------------------------------------------------------------ what the store has

    @property
    def folder(self) -> Path | None:  # type: ignore[override]
        """Its folder; None for an index in memory."""
        return self.store.folder

    @property
    def vectors(self) -> Vectors:
        """(rows, d) vectors, those of deleted rows included."""
        return self.store.vectors

    @property
    def alive(self) -> Mask:
        """(rows,) which rows are not deleted."""
        return self.store.alive

    def __len__(self) -> int:
        return len(self.store)

    def numbers(self) -> Numbers:
        """Numbers of the rows that are not deleted."""
        return np.flatnonzero(self.alive)

    def rows(self, numbers: Sequence[int] | Numbers) -> list[Row]:
        """Rows by their numbers, verified."""
        return self.store.rows(numbers)

    def every(self) -> Iterator[Row]:
        """All rows in order."""
        return self.store.every()

    def matching(self, where: Where) -> Mask:
        """(rows,) bool: the rows whose metadata a filter matches."""
        return self.store.matching(where)

    def count_rows(self, terms: Sequence[str]) -> dict[str, int]:
        """How many rows hold each of the terms that occur."""
        counts = self.store.count_rows(terms)
        if self.facts.dead:
            counts = {term: len(self.bm25.posting(term)[0]) for term in counts}
        return {term: count for term, count in counts.items() if count}

    def repaired(self, queries: Sequence[str], knows: Callable[[str], bool]) -> list[str]:
        """Queries without typing errors; ``knows``: whether a word is a token of the model."""
        return [*map(Speller(self.analyzer, self.count_rows, knows), queries)]

    def refreshed(self) -> Self:
        """The newest snapshot of the folder; the same object if nothing was written since."""
        newest = self.store.refreshed()
        if newest is self.store:
            return self
        same = newest.facts.model == self.facts.model
        return type(self)(newest, self._encode if same else None)

    def close(self) -> None:
        """Close the folder's files."""
        self.store.close()

    # ------------------------------------------------------------------ searching

    @cached_property
    def learned(self) -> Learned:
        """Everything learned from its texts or from queries."""
        stored = self.store.stored_learned()
        return stored.among(self.alive) if self.facts.dead else stored

    @cached_property
    def row_documents(self) -> RowDocuments:
        """The documents of all rows, in the order of their first ones; see `document_of`."""
        text = "json_type(metadata, '$.document') = 'text'"
        named = f"CASE WHEN {text} THEN json_extract(metadata, '$.document') ELSE id END"
        rows = self.store.query(f"SELECT row, {named} FROM rows ORDER BY row")
        return RowDocuments(self.facts.rows, rows)

    def count_documents(self, where: Where | None) -> int:
        """How many documents have rows that match."""
        units = self.row_documents.units
        return len(np.unique(units[self.alive if where is None else self.matching(where)]))

    @property
    def _alive_if_any_dead(self) -> Mask | None:
        return self.alive if self.facts.dead else None

    @cached_property
    def bm25(self) -> Bm25:
        """BM25 over the texts."""
        lengths = self.store.lengths()
        return Bm25(self.analyzer, self.store.posting, lengths, self._alive_if_any_dead)

    def find(
        self,
        texts: Sequence[str],
        vectors: Vectors,
        k: int,
        ranker: Ranker,
        *,
        allowed: Mask | None = None,
        all_rows: bool = False,
    ) -> list[RankedRows]:
        """The best rows for each query by their numbers; ``allowed``: (rows,) bool."""
        allowed = self._alive_if_any_dead if allowed is None else allowed
        count = len(self) if allowed is None else int(allowed.sum())
        k = min(k, count)
        if self.facts.encoding:
            return [self._by_words(text, k, ranker, allowed) for text in texts]
        large = bool(self.facts.codes) and not all_rows
        coded = k if large and count > self.exact_up_to else 0
        few = np.flatnonzero(allowed) if large and not coded and allowed is not None else None
        if ranker.plain or not k:
            nearest = zip(self._nearest(vectors, k, allowed, coded), vectors, strict=True)
            return [
                RankedRows(rows, near, near, np.zeros_like(near), self.evidence(near, vector))
                for (near, rows), vector in nearest
            ]
        learned = self.learned if ranker.uses_learned else Learned()
        queries = zip(texts, vectors, mapped(ranker, learned, vectors), strict=True)
        return [self._ranked(*query, k, ranker, learned, allowed, coded, few) for query in queries]

    def _ranked(
        self,
        text: str,
        vector: Vectors,
        query: Vectors,
        k: int,
        ranker: Ranker,
        learned: Learned,
        allowed: Mask | None,
        coded: int,
        few: Numbers | None,
    ) -> RankedRows:
        """The best rows for one query, its vector (d,) and the mapped one, by all that counts.

        ``few``: the rows that are allowed, if they are few of many.
        """
        check_deadline()
        # BM25 scores of all rows.
        words = exact = np.zeros(self.facts.rows, np.float32)
        rarity = 0.0
        if ranker.uses_bm25:
            words, exact, rarity = self.bm25.weigh(text)
        # What is added to rows of documents that similar queries were answered by.
        gained = bonus(ranker, learned, vector, lambda name: self.row_documents.rows_of(name))
        # Cosines of all rows, or of the few that are allowed or that codes, words and known queries
        # propose.
        rows = self._proposed(query, words, gained[0], allowed, k) if coded else few
        if rows is not None:
            cosines = smooth_vectors(ranker, learned, self.vectors, rows) @ query
            dense = Spread.of(self._sample(ranker, learned) @ query)
        else:
            every, alive = smoothed(ranker, learned, self.vectors @ query), self._alive_if_any_dead
            dense = Spread.of(every if alive is None else every[alive])
            rows = np.arange(len(every)) if allowed is None else np.flatnonzero(allowed)
            cosines = every[rows]
        candidates = Candidates.of(rows, cosines, words, exact, gained, dense, len(self))
        # Both in one ranking; cosines that are shown are those of the model's own vectors.
        adjusted = self.ranker_for(text, ranker)
        best, near = adjusted.rank(candidates, k), candidates.cosines
        if ranker.uses_learned:
            near = np.asarray(self.vectors[best.rows]) @ vector
            best = replace(best, cosines=near)
        # What gives them their confidence.
        if adjusted is not ranker or not ranker.uses_bm25:
            return replace(best, evidence=self.evidence(best.cosines, vector))
        covered = float(candidates.words.max()) / max(rarity, 1e-9)
        covered = max(covered, float(candidates.exact.max()))
        mean = candidates.dense.mean
        evidence = Evidence(best.scores, float(near.max()), mean, covered, len(self))
        return replace(best, evidence=evidence)

    def _by_words(self, text: str, k: int, ranker: Ranker, allowed: Mask | None) -> RankedRows:
        """The best rows by BM25 alone, as long as not all rows have vectors."""
        if not ranker.uses_bm25:
            self.check_finished("a search by vectors")
        check_deadline()
        words, exact, _ = self.bm25.weigh(text)
        matching = (words > 0) | (exact > 0)
        rows = np.flatnonzero(matching if allowed is None else matching & allowed)
        none, sparse = np.zeros(len(rows), np.float32), Spread.of_sparse(words, len(self))
        candidates = Candidates(rows, none, words[rows], Spread(0.0, 0.0), sparse, exact[rows])
        return Ranker(1.0).rank(candidates, k)

    def ranker_for(self, text: str, ranker: Ranker) -> Ranker:
        """The ranker for a query: BM25 weighs less where it is in another language."""
        if ranker.uses_bm25 and (stop := foreign_stop_words(text, self.facts.language)):
            # Texts in several languages hold the query's stop words, except those of their own.
            terms = {term for word in stop for term in self.analyzer(word)}
            counts = self.count_rows([*terms]).values() if terms else ()
            if 2 * sum(rows > SPOKEN * len(self) for rows in counts) <= len(terms):
                return replace(ranker, bm25_weight=FOREIGN_SHARE * ranker.bm25_weight)
        return ranker

    def sample(self) -> Vectors:
        """Vectors of some rows, the same ones whenever the index is opened."""
        return self._sample(Ranker(0.0), Learned())

    def _proposed(
        self, query: Vectors, words: Floats, known: Numbers, allowed: Mask | None, k: int
    ) -> Numbers:
        """Rows that codes, words or known queries propose for a mapped query (d,), rising."""
        proposed = max(PROPOSED, 10 * k)
        ((_, near),) = self._nearest(query[None], proposed, allowed, k)
        shared = np.flatnonzero(words if allowed is None else words * allowed)
        shared = shared[best_rows(words[shared], proposed)]
        known = known if allowed is None else known[allowed[known]]
        return np.unique(np.concatenate([near, shared, known]))

    def _sample(self, ranker: Ranker, learned: Learned) -> Vectors:
        """Some rows, smoothed, the same ones whenever the index is opened."""
        if ranker.smoothing not in self._samples:
            rows = self.numbers()
            if len(rows) > SAMPLED:
                rows = np.sort(np.random.default_rng(0).choice(rows, SAMPLED, replace=False))
            self._samples[ranker.smoothing] = smooth_vectors(ranker, learned, self.vectors, rows)
        return self._samples[ranker.smoothing]

    def _nearest(
        self, queries: Vectors, k: int, allowed: Mask | None, coded: int
    ) -> Iterator[tuple[Vectors, Numbers]]:
        """Products and numbers of the best rows; ``coded``: hits that codes propose rows for."""
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            part, done = queries[start : start + QUERIES_AT_ONCE], 0
            best = Best(len(part), max(1, k))
            if coded and (codes := self.store.codes) is not None:
                done = codes.rows
                for number, rows in enumerate(codes.candidates(part, coded, allowed)):
                    best.merge(number, np.asarray(self.vectors[rows]) @ part[number], rows)
            scan(part, self.vectors[done:], best, first=done, allowed=allowed)
            for scores, rows in zip(best.scores, best.rows, strict=True):
                yield scores[rows >= 0], rows[rows >= 0]


def _check_pairs(queries: Sequence[str], vectors: Vectors) -> None:
    """Reject vectors that are not one for each query."""
    if len(vectors) != len(queries):
        problem = f"must be one for each of {len(queries)} queries"
        raise OptionError("vectors", len(vectors), problem)


def _queries(given: Any) -> Any:
    """Vectors of queries as they are, or texts as a sequence."""
    if isinstance(given, np.ndarray) and given.dtype.kind not in "OUT":
        return given
    return texts_of("queries", [given] if isinstance(given, str) else given)
