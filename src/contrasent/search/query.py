"""What every index takes as a query, and what it gives back, whatever holds its rows."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import ModelError, OptionError, UserError
from contrasent.search.checks import check_vectors
from contrasent.search.filters import Where, check_where
from contrasent.search.manifest import Manifest
from contrasent.types import EncodeFn, Vectors, for_task


@dataclass(frozen=True, slots=True)
class Hit:
    """One row found.

    Attributes:
        score: cosine (or inner product, metric "dot") of its vector and the query's.
    """

    id: str
    text: str
    score: float
    metadata: Any = None


def check_k(k: int) -> None:
    """Reject a k that is not a positive whole number."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k <= 0:
        raise OptionError("k", k, "must be a whole number of at least 1")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a search wants of each query's rows; see :meth:`IndexBase.search`."""

    k: int
    threshold: float | None
    where: Where | None
    exact: bool


class IndexBase(ABC):
    """What an index is and what it takes as a query, whatever holds its rows."""

    def __init__(self, manifest: Manifest, folder: Path | None = None) -> None:
        self.manifest, self.folder = manifest, folder

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.manifest.dimension

    @property
    def model(self) -> str:
        """Identity of the model that made the vectors."""
        return self.manifest.model

    @property
    def metric(self) -> str:
        """What a score is: "cosine" or "dot"."""
        return self.manifest.metric

    def check_model(self, model: str, option: str = "model") -> None:
        """Reject another model than the one the vectors came from."""
        if model != self.model:
            where = self.folder if self.folder is not None else "the index"
            raise ModelError(
                f"{where} holds vectors of model {self.model!r} and {option} is {model!r}: their "
                "vectors cannot be compared; use the first, or build the index again"
            )

    def query_vectors(
        self, queries: str | Sequence[str] | Vectors, encode: EncodeFn | None = None
    ) -> Vectors:
        """Queries as (q, d) vectors, checked and scaled as those of the index.

        ``queries``: (q, d) or (d,) vectors, or texts together with ``encode``.
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
        exact: bool = False,
    ) -> list[list[Hit]]:
        """The best k rows for each query, best first; equal scores in the order of rows.

        ``queries``: q texts, one text, or (q, d) or (d,) vectors. ``vectors``: (q, d) of the texts,
        instead of ``encode``.
        """
        check_k(k)
        if threshold is not None and math.isnan(threshold):
            raise OptionError("threshold", threshold, "is not a number")
        if where is not None:
            check_where(where)
        if model is not None:
            self.check_model(model)
        texts = [queries] if isinstance(queries, str) else queries
        given = self.query_vectors(texts if vectors is None else vectors, encode)
        return self._hits(texts, given, Wanted(int(k), threshold, where, exact))

    @abstractmethod
    def _hits(
        self, texts: Sequence[str] | Vectors, vectors: Vectors, wanted: "Wanted"
    ) -> list[list[Hit]]:
        """Answer :meth:`search`: texts as they were given, vectors checked and scaled."""
