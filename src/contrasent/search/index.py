"""An index: texts with their vectors, words, ids and metadata, and how a query finds them.

The index knows no model. It takes vectors, or an ``EncodeFn`` that makes them, and keeps the
identity of the model they came from, so that vectors of another are rejected.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError, UserError
from contrasent.files import atomic_folder
from contrasent.search.checks import (
    check_metadata,
    check_metric,
    check_target,
    check_vectors,
    row_ids,
)
from contrasent.search.exact import QUERIES_AT_ONCE, Best, just_below, scan
from contrasent.search.filters import Where
from contrasent.search.ranking import Ranker, Spread, best_rows
from contrasent.search.snapshot import Snapshot
from contrasent.search.store import Facts, is_any_index
from contrasent.search.transaction import Transaction
from contrasent.search.words import language_of
from contrasent.types import EncodeFn, Vectors, for_task

FEW = 10_000
"""Rows up to which an exact search is preferred to binary codes."""
SAMPLED = 10_000
"""Rows that the spread of cosines is estimated from where not all rows are looked at."""
PROPOSED = 200
"""Rows that words and codes each propose where not all rows are looked at."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One row found.

    Attributes:
        score: what the hits are ordered by; see :mod:`contrasent.search.ranking`.
        cosine: inner product of its vector and the query's.
        words: its BM25 score; 0 where it shares no term with the query, or words do not count.
    """

    id: str
    text: str
    score: float
    metadata: Any = None
    cosine: float = 0.0
    words: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """Rows found for one query, best first, (k,) each."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    cosines: NDArray[np.float32]
    words: NDArray[np.float32]


class Index(Snapshot):
    """A snapshot of an index; searching it is safe from many threads.

    Make one with :meth:`build` (in memory) or with
    :class:`contrasent.search.writer.Writer` (in a folder), and read one with :meth:`open`.
    """

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
        metric: str = "cosine",
        ranker: Ranker | None = None,
    ) -> "Index":
        """Encode texts and keep them in memory.

        Args:
            encode: sentences in, vectors out.
            texts: what is to be found.
            ids: one distinct string a text; row numbers by default.
            metadata: one JSON value a text.
            model: identity of the model behind ``encode``.
            source: name or path that the model can be loaded by.
            metric: "cosine" (vectors are scaled to length one) or "dot".
            ranker: how a query finds rows; words and vectors together by default.

        Raises:
            UserError: no texts, ids that repeat or are too few, or metadata that is not JSON.
            ModelError: ``encode`` gave vectors that are not finite or of the wrong shape.
        """
        check_metric(metric)
        names = row_ids(ids, len(texts), 0)
        check_metadata(metadata, len(texts))
        if not texts:
            raise UserError("there are no texts to index")
        vectors = check_vectors(for_task(encode, "document")(texts), len(texts), None, metric)
        facts = Facts(
            model=model,
            source=source,
            metric=metric,
            next_id=len(texts),
            ranker=(ranker or Ranker()).to_json(),
        )
        store = Transaction.in_memory(facts)
        store.append(vectors, texts, names, metadata, language_of(texts))
        store.commit()
        return cls(store)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write it to a folder.

        Raises:
            OutputError: the folder exists, or cannot be written.
        """
        target = Path(folder)
        check_target(target, overwrite, is_index=is_any_index(target))
        with atomic_folder(target) as temporary:
            self.store.copy(temporary)

    # ------------------------------------------------------------------ searching

    def query_vectors(
        self, queries: str | Sequence[str] | Vectors, encode: EncodeFn | None = None
    ) -> Vectors:
        """Queries as (q, d) vectors, checked and scaled as those of the index.

        Args:
            queries: (q, d) or (d,) vectors, or texts together with ``encode``.
            encode: texts in, vectors out.
        """
        if isinstance(queries, np.ndarray):
            given = np.atleast_2d(queries)
        else:
            if encode is None:
                raise UserError("searching by text needs encode=; or give vectors as queries")
            texts = [queries] if isinstance(queries, str) else list(queries)
            if not texts:
                return np.empty((0, self.dimension), dtype=np.float32)
            given = for_task(encode, "query")(texts)
        return check_vectors(given, len(given), self.dimension, self.metric)

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
        exact: bool = False,
    ) -> list[list[Hit]]:
        """The best k rows for each query, best first; equal scores in the order of rows.

        Args:
            queries: q texts, one text, or (q, d) or (d,) vectors, which find by vectors alone.
            encode: texts in, vectors out.
            vectors: (q, d) of the texts, instead of ``encode``.
            k: rows to find.
            threshold: smallest cosine that counts.
            where: a filter, see :mod:`contrasent.search.filters`.
            model: identity of the model behind the queries' vectors, to be compared.
            ranker: how to search; as the index says by default.
            exact: look at every row even where there are binary codes.

        Raises:
            UserError: an argument is wrong, or the index is damaged.
        """
        check_k(k)
        if threshold is not None and math.isnan(threshold):
            raise OptionError("threshold", threshold, "is not a number")
        if model is not None:
            self.check_model(model)
        texts = [queries] if isinstance(queries, str) else queries
        given = self.query_vectors(texts if vectors is None else vectors, encode)
        ranker = ranker or self.ranker
        if isinstance(texts, np.ndarray):
            ranker, texts = replace(ranker, word_weight=0.0), [""] * len(given)
        allowed = self._allowed(where)
        found = self.find(texts, given, int(k), ranker, allowed=allowed, exact=exact)
        return [self._hits(one, threshold) for one in found]

    def _allowed(self, where: Where | None) -> NDArray[np.bool_] | None:
        if where is not None:
            return self.matching(where)
        return self.alive if self.facts.dead else None

    def _hits(self, found: Found, threshold: float | None) -> list[Hit]:
        chosen = np.arange(len(found.rows))
        if threshold is not None:
            chosen = chosen[found.cosines > just_below(threshold)]
        rows = self.rows(found.rows[chosen])
        return [
            Hit(
                row.id,
                row.text,
                float(found.scores[at]),
                row.metadata,
                float(found.cosines[at]),
                float(found.words[at]),
            )
            for at, row in zip(chosen, rows, strict=True)
        ]

    def find(
        self,
        texts: Sequence[str],
        vectors: Vectors,
        k: int,
        ranker: Ranker,
        *,
        allowed: NDArray[np.bool_] | None = None,
        exact: bool = False,
    ) -> list[Found]:
        """The best rows for each query by their numbers; see :meth:`search`.

        ``vectors``: (q, d), checked and scaled. ``allowed``: (rows,) bool, which rows count.
        """
        count = len(self) if allowed is None else int(allowed.sum())
        k = min(k, count)
        if not k:
            nothing = np.empty(0, np.float32)
            return [Found(np.empty(0, np.int64), nothing, nothing, nothing) for _ in texts]
        by_codes = not exact and self.facts.codes and count > FEW
        if not ranker.uses_words:
            scores, rows = self.nearest(vectors, k, allowed=allowed, exact=not by_codes)
            return [
                Found(r[r >= 0], s[r >= 0], s[r >= 0], np.zeros(int((r >= 0).sum()), np.float32))
                for s, r in zip(scores, rows, strict=True)
            ]
        one = self._by_codes if by_codes else self._by_all
        return [one(t, v, k, ranker, allowed) for t, v in zip(texts, vectors, strict=True)]

    def _by_all(self, text: str, vector: Vectors, k: int, ranker: Ranker, allowed: Any) -> Found:
        """Both scores of every row."""
        cosines = self.vectors @ vector
        words = self.bm25.scores(text)
        here = (cosines[self.alive], words[self.alive]) if self.facts.dead else (cosines, words)
        scores = ranker.fuse(cosines, words, Spread.of(here[0]), Spread.of(here[1]))
        if allowed is not None:
            scores[~allowed] = -np.inf
        rows = best_rows(scores, k)
        return Found(rows, scores[rows], cosines[rows], words[rows])

    def _by_codes(self, text: str, vector: Vectors, k: int, ranker: Ranker, allowed: Any) -> Found:
        """Both scores of the rows that codes or words propose."""
        proposed = max(PROPOSED, 10 * k)
        _, near = self.nearest(vector[None], proposed, allowed=allowed)
        words = self.bm25.scores(text)
        sparse = Spread.of_sparse(words, len(self))
        if allowed is not None:
            words = np.where(allowed, words, np.float32(0))
        shared = np.flatnonzero(words)
        rows = np.union1d(near[0][near[0] >= 0], shared[best_rows(words[shared], proposed)])
        cosines = np.asarray(self.vectors[rows]) @ vector
        dense = Spread.of(self._sample @ vector)
        scores = ranker.fuse(cosines, words[rows], dense, sparse)
        order = best_rows(scores, k)
        return Found(rows[order], scores[order], cosines[order], words[rows[order]])

    @cached_property
    def _sample(self) -> Vectors:
        """Some rows, the same ones whenever the index is opened."""
        rows = np.flatnonzero(self.alive)
        if len(rows) > SAMPLED:
            rows = np.sort(np.random.default_rng(0).choice(rows, SAMPLED, replace=False))
        return np.asarray(self.vectors[rows])

    def nearest(
        self,
        queries: Vectors,
        k: int,
        *,
        threshold: float | None = None,
        allowed: NDArray[np.bool_] | None = None,
        exact: bool = False,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Inner products and row numbers, (q, k) each, of the best rows; -1 where there are fewer.

        ``queries``: (q, d), checked and scaled. ``allowed``: (rows,) bool, which rows count.
        """
        if allowed is None and self.facts.dead:
            allowed = self.alive
        candidates: list[NDArray[np.int64]] | None = None
        if not exact and self.codes is not None:
            candidates = self.codes.candidates(queries, k, allowed)
            if any(len(rows) < min(k, self.codes.rows) for rows in candidates):
                candidates = None  # a narrow filter: every row is looked at
        found = []
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            part, done = queries[start : start + QUERIES_AT_ONCE], 0
            best = Best(len(part), k, threshold)
            if candidates is not None and self.codes is not None:
                for query, rows in enumerate(candidates[start : start + QUERIES_AT_ONCE]):
                    best.offer_one(query, np.asarray(self.vectors[rows]) @ part[query], rows)
                done = self.codes.rows
            scan(part, [(done, self.vectors[done:])], best, allowed=allowed)
            found.append(best)
        if not found:
            return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
        return np.concatenate([b.scores for b in found]), np.concatenate([b.rows for b in found])


def check_k(k: int) -> None:
    """Reject a k that is not a positive whole number."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k <= 0:
        raise OptionError("k", k, "must be a whole number of at least 1")
