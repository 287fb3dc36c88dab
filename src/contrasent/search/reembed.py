"""Vectors of another model in the place of an index's own: encoded anew, or mapped.

Texts, ids, metadata and settings stay. Readers keep the old vectors until the transaction that
names the new ones. Encoding anew is resumed where it was killed: the vectors made so far are
shards in the index's folder (:mod:`contrasent.encoding.shards`). Other writers wait outside.
"""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.encoding.shards import encode_shards, read_manifest, read_shards
from contrasent.errors import OptionError
from contrasent.files import check_writable
from contrasent.metrics import cosine
from contrasent.search.index import Index
from contrasent.search.writer import ROWS_AT_ONCE, Writer
from contrasent.types import EncodeFn, Vectors, for_task

PLACE = "reembedding"
"""Folder inside the index for vectors that are made but not in use yet."""
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
    rows: int = ROWS_AT_ONCE,
) -> Index:
    """Encode the texts of an index by another model, and put the vectors in place of its own."""
    with Writer(folder) as writer:
        index, place = Index(writer.change), writer.folder / PLACE
        facts = {"model": model, "index": _fingerprint(index)}
        begun = read_manifest(place)
        if begun is not None and any(begun.facts.get(name) != facts[name] for name in facts):
            shutil.rmtree(place)  # of another model, or of rows that have changed since
        read = for_task(encode, "document")
        dimension = int(read(["a text"]).shape[1])
        check_writable(writer.folder, 8 * dimension * len(index))
        texts = (row.text for row in index.every())
        made = encode_shards(place, read, texts, facts=facts, dimension=dimension, rows=rows)
        shards, numbers = [vectors for vectors, _ in read_shards(place, made)], index.numbers()

        def vectors_of(wanted: NDArray[np.int64]) -> Vectors:
            at = np.searchsorted(numbers, wanted)
            parts = [
                shards[shard][at[at // rows == shard] - shard * rows]
                for shard in np.unique(at // rows)
            ]
            return np.concatenate(parts)

        _replace(writer, vectors_of, model, source, settings or {})
        writer.commit()
        shutil.rmtree(place)  # while no other writer can have begun there
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
        _replace(writer, lambda rows: old[rows] @ matrix, model, source, given)
    return Index.open(folder)


def _replace(
    writer: Writer,
    vectors_of: Callable[[NDArray[np.int64]], Vectors],
    model: str,
    source: str,
    settings: dict[str, Any],
) -> None:
    stays = {k: v for k, v in writer.facts.settings.items() if k not in OF_MODEL}
    settings = {**stays, **settings}
    writer.replace_vectors(vectors_of, model=model, source=source, settings=settings)


def _fingerprint(index: Index) -> str:
    """Of the rows and their texts, whatever made their vectors."""
    digest = hashlib.sha256(index.facts.identity.encode())
    for row in index.every():
        digest.update(f"{row.row} {row.id!r} {row.text!r}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class LinearMap:
    """From one model's vectors to another's.

    Attributes:
        matrix: (d, e) float32; the vectors (n, d) times it are in the other space.
        loss: mean of 1 - cosine with the true vectors, of rows it was chosen by.
    """

    matrix: Vectors
    kind: str
    loss: float


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
