"""Groups of an index's rows: k-means on the sphere, and leaders within a distance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import OptionError
from contrasent.search.exact import nearest_of, unit
from contrasent.search.pairs import COLUMNS, check_cosine
from contrasent.search.rows import Rows
from contrasent.types import Vectors

BLOCK = 8192
SAMPLE = 50_000
CALM = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """A grouping of rows.

    Attributes:
        rows: (n,) which rows of the index.
        labels: (n,) the cluster of each, numbered from the largest cluster down.
        scores: (n,) cosine with the middle of its cluster.
        centres: (c, d) middles, of length one.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    scores: NDArray[np.float32]
    centres: Vectors

    def members(self, label: int) -> NDArray[np.int64]:
        """Positions of a cluster's rows, nearest to its middle first."""
        inside = np.flatnonzero(self.labels == label)
        return inside[np.argsort(-self.scores[inside], kind="stable")]


def kmeans(index: Rows, count: int, *, seed: int = 0, rounds: int = 50) -> Clusters:
    """Spherical k-means: each row belongs to the middle it has the largest cosine with.

    Middles start by k-means++ (Arthur and Vassilvitskii 2007) on at most 50,000 rows, and are the
    scaled sums of their members (Dhillon and Modha 2001). Memory holds one block of rows.
    """
    rows = np.flatnonzero(index.alive())
    if not 1 <= count <= len(rows):
        raise OptionError("clusters", count, f"must lie in 1 to {len(rows)}, the number of texts")
    random = np.random.default_rng(seed)
    chosen = np.sort(random.choice(rows, min(len(rows), SAMPLE), replace=False))
    centres = _start(unit(index.vectors_of(chosen)), count, random)
    labels = np.zeros(len(rows), dtype=np.int64)
    scores = np.zeros(len(rows), dtype=np.float32)
    before = -np.inf
    with progress.task("cluster", rounds, "passes") as advance:
        for _ in range(rounds):
            sums = np.zeros(centres.shape)
            for start in range(0, len(rows), BLOCK):
                vectors = unit(index.vectors_of(rows[start : start + BLOCK]))
                cosines = vectors @ centres.T
                here = cosines.argmax(axis=1)
                labels[start : start + BLOCK] = here
                scores[start : start + BLOCK] = cosines[np.arange(len(here)), here]
                np.add.at(sums, here, vectors)
            mean = float(scores.mean())
            advance(1, cosine=mean)
            if mean - before < CALM:
                break
            before = mean
            lengths = np.linalg.norm(sums, axis=1, keepdims=True)
            centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centres)
            centres = centres.astype(np.float32)
    return _numbered(rows, labels, scores, centres)


def _start(vectors: Vectors, count: int, random: np.random.Generator) -> Vectors:
    """k-means++: the next middle is drawn by its squared distance to those already there."""
    picked = [int(random.integers(len(vectors)))]
    distance = np.maximum(2 - 2 * (vectors @ vectors[picked[0]]), 0).astype(np.float64)
    while len(picked) < count:
        distance[picked[-1]] = 0
        total = distance.sum()
        if total <= 0:  # all that is left are copies of middles
            rest = np.setdiff1d(np.arange(len(vectors)), picked)[: count - len(picked)]
            picked += [int(row) for row in rest]
            break
        picked.append(int(random.choice(len(vectors), p=distance / total)))
        distance = np.minimum(distance, np.maximum(2 - 2 * (vectors @ vectors[picked[-1]]), 0))
    return vectors[picked]


def leaders(index: Rows, threshold: float) -> Clusters:
    """Group without a number: a row joins the nearest leader at ``threshold`` or more, or leads.

    One pass over the rows in order (Hartigan's leader algorithm); each cluster's middle is its
    leader.
    """
    check_cosine(index, threshold)
    rows = np.flatnonzero(index.alive())
    labels = np.zeros(len(rows), dtype=np.int64)
    scores = np.zeros(len(rows), dtype=np.float32)
    centres = np.empty((0, index.dimension), dtype=np.float32)
    with progress.task("cluster", len(rows), "texts") as advance:
        for start in range(0, len(rows), 1024):
            vectors = unit(index.vectors_of(rows[start : start + 1024]))
            blocks = (
                (np.arange(at, min(at + COLUMNS, len(centres))), centres[at : at + COLUMNS])
                for at in range(0, len(centres), COLUMNS)
            )
            best, label = nearest_of(vectors, blocks)
            new: list[int] = []
            for at in range(len(vectors)):
                if new:
                    cosines = vectors[new] @ vectors[at]
                    top = int(cosines.argmax())
                    if cosines[top] > best[at]:
                        best[at], label[at] = cosines[top], len(centres) + top
                if best[at] < threshold:
                    best[at], label[at] = 1.0, len(centres) + len(new)
                    new.append(at)
            centres = np.concatenate([centres, vectors[new]])
            labels[start : start + 1024], scores[start : start + 1024] = label, best
            advance(len(vectors), clusters=len(centres))
    return _numbered(rows, labels, scores, centres)


def _numbered(
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    scores: NDArray[np.float32],
    centres: Vectors,
) -> Clusters:
    """Number clusters from the largest down; empty ones are dropped."""
    sizes = np.bincount(labels, minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]
    rank = np.zeros(len(centres), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return Clusters(rows, rank[labels], scores, centres[order])
