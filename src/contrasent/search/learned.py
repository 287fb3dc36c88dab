"""Changes to how queries find rows, learned from an index's texts or from user queries.

A map of the query's vector, rows smoothed by their neighbors, and documents that queries like this
one were answered by. Rows keep the base model's vectors, so nothing is encoded again; a
:class:`~contrasent.search.ranking.Ranker` says how much each counts. Kept in the index's database.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.metrics import normalize
from contrasent.nearest import nearest
from contrasent.search.folder import checksum
from contrasent.search.ranking import Bonus, Floats, Ranker
from contrasent.types import Mask, Numbers, Vectors

TABLE = """CREATE TABLE IF NOT EXISTS learned
    (name TEXT PRIMARY KEY, shape TEXT NOT NULL, data BLOB NOT NULL, sum INTEGER NOT NULL)"""
HAS_LEARNED_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'learned'"
# Names that indexes hold keep their spelling.
_TYPES = {"matrix": "<f4", "neighbors": "<i4", "products": "<f4", "known": "<f4"}
_DOCUMENTS = "documents"  # documents of the known queries, as JSON
ROWS_AT_ONCE = 1024
Query = Callable[..., list[tuple[Any, ...]]]
"""An SQL statement and its values in, rows out."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbors:
    """The nearest rows of each row; a row that has lost one of them, or is newer, has none."""

    rows: NDArray[np.int32]  # (n, k), -1 for none
    products: Floats  # (n, 2): the row with the mean of its neighbors, and that mean with itself

    @classmethod
    def of(cls, vectors: Vectors, k: int) -> "Neighbors":
        """The k nearest rows of each, by (n, d) unit vectors; n is greater than k."""
        rows = np.sort(nearest(vectors, vectors, k, own=np.arange(len(vectors)))[0], axis=1)
        products = np.empty((len(vectors), 2), dtype=np.float32)
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            here = slice(start, start + ROWS_AT_ONCE)
            part, mean = vectors[here], np.asarray(vectors[rows[here]]).mean(axis=1)
            products[here] = np.stack([(part * mean).sum(1), np.square(mean).sum(1)], axis=1)
        return cls(rows.astype(np.int32), products)

    @classmethod
    def among(cls, vectors: Vectors, numbers: Numbers, k: int) -> "Neighbors":
        """The k nearest of some rows of an index for each of them; the other rows have none."""
        near = cls.of(np.asarray(vectors[numbers]), k)
        rows = np.full((len(vectors), k), -1, dtype=np.int32)
        products = np.zeros((len(vectors), 2), dtype=np.float32)
        rows[numbers], products[numbers] = numbers[near.rows], near.products
        return cls(rows, products)

    def moved(self, place: Numbers) -> "Neighbors":
        """With new row numbers, ``place[old number]``; -1 for rows that are gone."""
        rows = np.append(place, -1).astype(np.int32)[self.rows]
        products, lost = self.products.copy(), np.any(rows < 0, axis=1)
        rows[lost], products[lost] = -1, 0
        return Neighbors(rows, products)

    def lengths(self, smoothing: float) -> Floats:
        """(n,) lengths of row + smoothing x mean of its neighbors; 1 for a row without them."""
        once, twice = self.products.T
        norms: Floats = np.sqrt(1 + np.float32(2 * smoothing) * once + smoothing**2 * twice)
        return norms


@dataclass(frozen=True, slots=True, eq=False)
class KnownQueries:
    """Queries whose answers are known."""

    vectors: Vectors  # (t, d) by the base model
    documents: tuple[tuple[str, ...], ...]  # the answers to each, as ``document_of`` names them


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """Everything that was learned; None for what was not."""

    matrix: Vectors | None = None  # (d, d) of the map of queries
    neighbors: Neighbors | None = None
    known: KnownQueries | None = None

    def renumbered(self, numbers: Numbers, rows: int) -> "Learned":
        """For an index that keeps some of its ``rows`` rows, in this order."""
        if self.neighbors is None:
            return self
        place = np.full(rows, -1)
        place[numbers] = np.arange(len(numbers))
        first = numbers[numbers < len(self.neighbors.rows)]
        neighbors = Neighbors(self.neighbors.rows[first], self.neighbors.products[first])
        return replace(self, neighbors=neighbors.moved(place))

    def among(self, alive: Mask) -> "Learned":
        """With the neighbors that are not deleted."""
        if self.neighbors is None:
            return self
        place = np.where(alive, np.arange(len(alive)), -1)
        return replace(self, neighbors=self.neighbors.moved(place))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that an index keeps, by their names there."""
        near, known = self.neighbors, self.known
        parts = {
            "matrix": self.matrix,
            "neighbors": None if near is None else near.rows,
            "products": None if near is None else near.products,
            "known": None if known is None else known.vectors,
        }
        return {name: array for name, array in parts.items() if array is not None}

    def lacks(self, ranker: Ranker) -> str:
        """A part that a ranker needs but that is missing, or ""."""
        needed = {
            "map": bool(ranker.map_share) and self.matrix is None,
            "neighbors": bool(ranker.smoothing) and self.neighbors is None,
            "known queries": bool(ranker.known) and self.known is None,
        }
        return next((name for name, missing in needed.items() if missing), "")


def read_learned(run: Query) -> Learned | None:
    """Everything learned that a database keeps; None if it is damaged."""
    if not run(HAS_LEARNED_TABLE):
        return Learned()
    arrays, documents = dict[str, NDArray[Any]](), None
    for name, shape, data, sum_ in run("SELECT name, shape, data, sum FROM learned"):
        if checksum(name, shape, data) != sum_:
            return None
        if name == _DOCUMENTS:
            documents = tuple(map(tuple, json.loads(data)))
        else:
            arrays[name] = np.frombuffer(data, _TYPES[name]).reshape(json.loads(shape))
    near, known = arrays.get("neighbors"), arrays.get("known")
    return Learned(
        arrays.get("matrix"),
        None if near is None else Neighbors(near, arrays["products"]),
        None if known is None or documents is None else KnownQueries(known, documents),
    )


def write_learned(run: Query, learned: Learned, dimension: int, metric: str) -> None:
    """Replace what a database keeps, in its transaction."""
    if learned.arrays and metric != "cosine":
        raise OptionError("metric", metric, "cannot be trained; build the index with cosine")
    stored: list[tuple[str, str, bytes]] = []
    for name, array in learned.arrays.items():
        if name in ("matrix", "known") and array.shape[1:] != (dimension,):
            raise OptionError("learned", name, f"does not have {dimension} dimensions")
        data = np.ascontiguousarray(array, _TYPES[name]).tobytes()
        stored.append((name, json.dumps(array.shape), data))
    if learned.known is not None:
        stored.append((_DOCUMENTS, "", json.dumps(learned.known.documents).encode()))
    if stored or run(HAS_LEARNED_TABLE):
        run(TABLE)
        run("DELETE FROM learned")
    for values in stored:
        run("INSERT INTO learned VALUES (?, ?, ?, ?)", (*values, checksum(*values)))


# ---------------------------------------------------------------------- searching


def mapped(ranker: Ranker, learned: Learned, queries: Vectors) -> Vectors:
    """(q, d) unit vectors of queries, moved towards their mapped ones by a share."""
    if not ranker.map_share or learned.matrix is None:
        return queries
    share = np.float32(ranker.map_share)
    return normalize((1 - share) * queries + share * normalize(queries @ learned.matrix))


def smoothed(ranker: Ranker, learned: Learned, cosines: Floats) -> Floats:
    """(rows,) cosines of a query with rows smoothed by their neighbors, from those of all rows."""
    # A row d whose neighbors have the mean m counts as the direction of d + smoothing x m.
    near = learned.neighbors
    if not ranker.smoothing or near is None:
        return cosines
    weight = np.float32(ranker.smoothing / max(1, near.rows.shape[1]))
    padded, scores = np.append(cosines, np.float32(0)), cosines.copy()
    smooth = scores[: len(near.rows)]
    for column in near.rows.T:  # several times faster than a sum over a short axis
        smooth += weight * padded[column]
    smooth /= near.lengths(ranker.smoothing)
    return scores


def smooth_vectors(ranker: Ranker, learned: Learned, vectors: Vectors, numbers: Numbers) -> Vectors:
    """(n, d) vectors of some rows, smoothed, from those of all rows."""
    selected = np.asarray(vectors[numbers])
    near = learned.neighbors
    if not ranker.smoothing or near is None:
        return selected
    having = np.flatnonzero(numbers < len(near.rows))
    having = having[(near.rows[numbers[having]] >= 0).all(axis=1)]
    rows = numbers[having]
    mean = np.asarray(vectors[near.rows[rows]]).mean(axis=1)
    selected[having] += np.float32(ranker.smoothing) * mean
    selected[having] /= near.lengths(ranker.smoothing)[rows, None]
    return selected


def bonus(
    ranker: Ranker, learned: Learned, query: Vectors, rows_of: Callable[[str], Numbers]
) -> Bonus:
    """Rows of documents that answered queries like this one (d,), and their gains."""
    # The largest gain among several such queries counts.
    gains: dict[str, float] = {}
    if ranker.known and learned.known is not None:
        cosines = learned.known.vectors @ query
        for number in np.flatnonzero(cosines > ranker.known_from):
            gain = ranker.known * (float(cosines[number]) - ranker.known_from)
            for document in learned.known.documents[number]:
                gains[document] = max(gain, gains.get(document, 0.0))
    by_row = {row: gain for name, gain in gains.items() for row in rows_of(name).tolist()}
    rows = np.array(sorted(by_row), np.int64)
    return rows, np.array([by_row[row] for row in rows.tolist()], np.float32)
