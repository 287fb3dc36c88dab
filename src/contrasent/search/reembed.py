"""Vectors of another model in the place of an index's own: encoded anew, or mapped.

Texts, ids, metadata and settings stay. Readers keep the old vectors until the transaction that
names the new ones. Encoding anew is resumed where it was killed, by the vectors that are kept next
to the index (:mod:`contrasent.search.building`). Other writers wait outside.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import OptionError
from contrasent.files import check_writable
from contrasent.metrics import cosine
from contrasent.search.building import KeptVectors
from contrasent.search.index import Index
from contrasent.search.transaction import VectorsOf
from contrasent.search.writer import Writer
from contrasent.types import EncodeFn, Vectors, for_task

OF_MODEL = ("pooler", "max_tokens", "mapped")
"""Settings of an index that are another's with another model."""
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
FEWEST = 200

Floats = NDArray[np.float64]


def reembed(
    folder: str | Path,
    encode: EncodeFn,
    *,
    model: str,
    source: str = "",
    settings: dict[str, Any] | None = None,
) -> Index:
    """Encode the texts of an index by another model, and put the vectors in place of its own."""
    with Writer(folder) as writer:
        size = for_task(encode, "document")(["a text"]).nbytes
        check_writable(writer.folder, 2 * size * len(writer))
        with KeptVectors(writer.folder, encode, f"{model} {writer.facts.identity}") as kept:
            _replace(writer, lambda _, texts: kept(texts), model, source, settings or {})
            writer.commit()
    return Index.open(folder)


def map_index(
    folder: str | Path,
    matrix: Vectors,
    *,
    model: str,
    source: str = "",
    settings: dict[str, Any] | None = None,
    about: dict[str, Any] | None = None,
) -> Index:
    """Put the products of an index's vectors with a matrix in their place."""
    with Writer(folder) as writer:
        old = writer.change.vectors
        mapped = {"mapped": {"from": writer.facts.model, **(about or {})}}
        check_writable(writer.folder, 4 * matrix.shape[1] * len(writer))
        given = {**(settings or {}), **mapped}
        _replace(writer, lambda rows, _: old[rows] @ matrix, model, source, given)
    return Index.open(folder)


def _replace(
    writer: Writer, vectors_of: VectorsOf, model: str, source: str, settings: dict[str, Any]
) -> None:
    stays = {k: v for k, v in writer.facts.settings.items() if k not in OF_MODEL}
    settings = {**stays, **settings}
    writer.replace_vectors(vectors_of, model=model, source=source, settings=settings)


@dataclass(frozen=True, slots=True, eq=False)
class LinearMap:
    """From one model's vectors to another's."""

    matrix: Vectors  # (d, e) float32; the vectors (n, d) times it are in the other space
    kind: str
    loss: float  # mean of 1 - cosine with the true vectors, of rows it was chosen by


def fit_map(old: Vectors, new: Vectors, *, held_out: float = 0.2) -> LinearMap:
    """The linear map from old vectors to new ones of the same texts that holds best for others.

    Orthogonal where the dimensions agree (Procrustes; Schönemann, 1966: U V^T of the singular value
    decomposition of old^T new), and by least squares with a few ridges; without a bias, since
    scores are inner products. The one with the least loss on the last rows is taken.
    """
    if len(old) < FEWEST:
        raise OptionError("--map", len(old), f"needs at least {FEWEST} rows to be fitted on")
    cut = int(len(old) * (1 - held_out))
    x, y = old[:cut].astype(np.float64), new[:cut].astype(np.float64)
    candidates = {f"ridge {ridge:g}": ridge_map(x, y, ridge) for ridge in RIDGES}
    if x.shape[1] == y.shape[1]:
        candidates["orthogonal"] = orthogonal_map(x, y)
    losses = {
        name: float(1 - cosine(old[cut:] @ matrix, new[cut:]).mean())
        for name, matrix in candidates.items()
    }
    best = min(losses, key=lambda name: losses[name])
    return LinearMap(candidates[best].astype(np.float32), best.split()[0], losses[best])


def orthogonal_map(old: Floats, new: Floats) -> Floats:
    """The (d, d) rotation or reflection with the least squared distance of old @ it from new."""
    left, _, right = np.linalg.svd(old.T @ new)
    product: Floats = left @ right
    return product


def ridge_map(old: Floats, new: Floats, ridge: float) -> Floats:
    """(d, e) least squares with a penalty of ``ridge`` times the mean square of a column."""
    gram = old.T @ old
    penalty = ridge * np.trace(gram) / len(gram) * np.eye(len(gram))
    solved: Floats = np.linalg.solve(gram + penalty, old.T @ new)
    return solved
