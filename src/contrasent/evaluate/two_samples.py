"""Do two samples of vectors come from one distribution? A test, and how far they lie apart.

A test on many texts calls any difference significant, so two answers are given: the p-value of the
maximum mean discrepancy (Gretton et al., 2012, A Kernel Two-Sample Test, eq. 3), whose null
distribution is that of permuted labels, and the accuracy with which a classifier tells a text of
the one sample from a text of the other (Lopez-Paz and Oquab, 2017), 0.5 being chance.

Texts of one document are alike and no independent evidence: documents are what is permuted, put
into folds and resampled, and each counts as one, however many texts it has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import UserError
from contrasent.metrics import unit
from contrasent.stats.bootstrap import interval, mean_draws
from contrasent.types import Vectors

PERMUTATIONS = 999
RESAMPLES = 1000
FOLDS = 5
FEWEST = 10
"""Documents of a sample, below which nothing is tested."""
AT_ONCE = 100
"""Permutations computed at once."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TwoSamples:
    """How two samples differ.

    Attributes:
        p: probability of an ``mmd`` as large if both came from one distribution; at least 1 / (1 +
            permutations).
        mmd: squared maximum mean discrepancy, without bias: about 0 if they did.
        accuracy: share of texts whose sample a classifier trained on other documents names, both
            samples counting alike: 0.5 if it cannot tell them, 1 if they have nothing in common.
        low: lower end of its 95 % interval over documents.
    """

    p: float
    mmd: float
    accuracy: float
    low: float
    high: float
    old: int
    new: int


def compare_samples(
    old: Vectors,
    new: Vectors,
    *,
    old_documents: Sequence[str] | None = None,
    new_documents: Sequence[str] | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> TwoSamples:
    """Compare two samples; the order of their rows changes nothing.

    ``old``: (n, d) vectors; their length does not count. ``new``: (m, d) vectors by the same model.
    ``old_documents``: (n,) the document of each row; each its own if None. ``new_documents``: (m,)
    likewise; the two samples must share none.
    """
    rows, documents, label = _pooled(old, new, old_documents, new_documents)
    if min(label.sum(), (~label).sum()) < FEWEST:
        raise UserError(
            f"{(~label).sum()} old and {label.sum()} new documents are too few to compare; at "
            f"least {FEWEST} of each are needed"
        )
    mmd, p = _test(_between_documents(_kernel(rows), documents), label, permutations, seed)
    right = _classified(rows, documents, label, seed)
    drawn = [
        mean_draws(right[side], RESAMPLES, (seed, n)) for n, side in enumerate((~label, label))
    ]
    accuracy = (right[~label].mean() + right[label].mean()) / 2
    low, high = interval((drawn[0] + drawn[1]) / 2)
    counts = int((~label).sum()), int(label.sum())
    return TwoSamples(p, mmd, float(accuracy), low, high, *counts)


def mmd_test(
    old: Vectors,
    new: Vectors,
    *,
    old_documents: Sequence[str] | None = None,
    new_documents: Sequence[str] | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> tuple[float, float]:
    """The squared maximum mean discrepancy and its p-value alone; see :func:`compare_samples`.

    ``old``: (n, d) vectors. ``new``: (m, d) vectors. ``old_documents``: (n,) the document of each
    row. ``new_documents``: (m,) likewise.
    """
    rows, documents, label = _pooled(old, new, old_documents, new_documents)
    return _test(_between_documents(_kernel(rows), documents), label, permutations, seed)


def _pooled(
    old: Vectors,
    new: Vectors,
    old_documents: Sequence[str] | None,
    new_documents: Sequence[str] | None,
) -> tuple[Vectors, Integers, NDArray[np.bool_]]:
    """Unit rows, the document of each, and which documents are new, in an order of their own.

    Rows are sorted by their bytes, and documents numbered as they are met: so neither the order in
    which rows are given nor which sample they are of decides what the seed does to them.
    """
    names = [
        (side, str(number if given is None else given[number]))
        for side, (rows, given) in enumerate(((old, old_documents), (new, new_documents)))
        for number in range(len(rows))
    ]
    rows = unit(np.concatenate([old, new])).astype(np.float32)
    order = sorted(range(len(rows)), key=lambda at: rows[at].tobytes())
    numbers: dict[tuple[int, str], int] = {}
    documents = np.array([numbers.setdefault(names[at], len(numbers)) for at in order])
    return rows[order], documents, np.array([bool(side) for side, _ in numbers], dtype=bool)


def _kernel(rows: Vectors) -> NDArray[np.float32]:
    """Gaussian kernel of all pairs; its width is the median distance of the pooled sample."""
    squared = np.maximum(2.0 - 2.0 * (rows @ rows.T), 0.0)
    middle = float(np.median(squared))
    kernel: NDArray[np.float32] = np.exp(-squared / np.float32(middle or 1.0))
    return kernel


def _between_documents(kernel: NDArray[np.float32], documents: Integers) -> NDArray[np.float32]:
    """(u, u) mean of the kernel over the texts of each pair of documents."""
    count = int(documents.max()) + 1
    if count == len(documents):
        return kernel
    order = np.argsort(documents, kind="stable")
    starts = np.searchsorted(documents[order], np.arange(count))
    sizes = np.bincount(documents, minlength=count).astype(np.float32)
    summed = np.add.reduceat(np.add.reduceat(kernel[order][:, order], starts, 0), starts, 1)
    return np.asarray(summed / sizes / sizes[:, None], dtype=np.float32)


def _test(
    kernel: NDArray[np.float32], label: NDArray[np.bool_], permutations: int, seed: int
) -> tuple[float, float]:
    """The squared discrepancy, and the share of labellings with one as large, itself included."""
    apart = kernel.copy()
    np.fill_diagonal(apart, 0.0)
    sums, total = apart.sum(axis=1, dtype=np.float64), float(apart.sum(dtype=np.float64))
    new = int(label.sum())
    old = len(label) - new

    def discrepancies(labels: NDArray[np.float32]) -> Floats:
        """(b,) of labellings (b, u): both means inside the samples less twice that between."""
        inside = np.einsum("bu,bu->b", labels @ apart, labels, dtype=np.float64)
        between = labels @ sums - inside
        outside = total - inside - 2 * between
        value: Floats = (
            inside / (new * (new - 1)) + outside / (old * (old - 1)) - 2 * between / (new * old)
        )
        return value

    observed = float(discrepancies(label[None].astype(np.float32))[0])
    random = np.random.default_rng(seed)
    larger = 0
    for start in range(0, permutations, AT_ONCE):
        block = np.zeros((min(AT_ONCE, permutations - start), len(label)), dtype=np.float32)
        for row in block:
            row[random.permutation(len(label))[:new]] = 1.0
        # A labelling that is the observed one up to copies must count as one as large.
        larger += int((discrepancies(block) >= observed - 1e-9).sum())
    return observed, (1 + larger) / (1 + permutations)


def _classified(rows: Vectors, documents: Integers, label: NDArray[np.bool_], seed: int) -> Floats:
    """(u,) share of each document's texts whose sample a linear discriminant of others names.

    With folds drawn within each sample, a discriminant that has seen none of a fold's documents is
    right in half of them on average if there is nothing to tell.
    """
    random = np.random.default_rng((seed, 1))
    fold = np.empty(len(label), dtype=np.int64)
    for side in (False, True):
        there = np.flatnonzero(label == side)
        fold[random.permutation(there)] = np.arange(len(there)) % FOLDS
    sizes = np.bincount(documents)
    right = np.zeros(len(label))
    for number in range(FOLDS):
        held_out = (fold == number)[documents]
        weights = 1.0 / sizes[documents[~held_out]]
        decide = _discriminant(rows[~held_out], label[documents[~held_out]], weights)
        named = decide(rows[held_out]) > 0
        hits = named == label[documents[held_out]]
        np.add.at(right, documents[held_out], hits / sizes[documents[held_out]])
    return right


def _discriminant(
    rows: Vectors, label: NDArray[np.bool_], weights: Floats
) -> Callable[[Vectors], Floats]:
    """Fisher's linear discriminant, its covariance shrunk as Ledoit and Wolf (2004) have it."""
    x = np.asarray(rows, dtype=np.float64)
    means = [
        np.average(x[label == side], axis=0, weights=weights[label == side])
        for side in (False, True)
    ]
    centred = x - np.where(label[:, None], means[1], means[0])
    covariance = centred.T @ centred / len(x)
    mean_variance = float(np.trace(covariance)) / len(covariance)
    spread = float((covariance**2).sum()) - len(covariance) * mean_variance**2
    noise = float(((centred**2).sum(axis=1) ** 2).mean() - (covariance**2).sum()) / len(x)
    share = min(1.0, max(noise, 0.0) / spread) if spread > 0 else 1.0
    shrunk = (1 - share) * covariance + share * mean_variance * np.eye(len(covariance))
    direction = np.linalg.solve(shrunk + 1e-12 * np.eye(len(shrunk)), means[1] - means[0])
    middle = direction @ (means[0] + means[1]) / 2
    return lambda points: np.asarray(points, dtype=np.float64) @ direction - middle
