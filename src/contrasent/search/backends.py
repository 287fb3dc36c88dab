"""What lies beside the vectors of an index and proposes rows: binary codes, or a faiss index.

:mod:`contrasent.search.approximate` builds it.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import InputError, import_extra
from contrasent.processes import threads
from contrasent.search.manifest import BINARY, FAISS_KINDS, Part
from contrasent.search.segment import check_size, open_array
from contrasent.types import Vectors

FAISS = "faiss-cpu"
"""The package that has the module faiss."""


class Backend(Protocol):
    """What proposes rows to score."""

    @property
    def rows(self) -> int:
        """How many rows of the index it knows, the first ones."""
        ...

    def candidates(
        self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None
    ) -> list[NDArray[np.int64]]:
        """For each query, rows that are likely among its best, rising."""
        ...


def open_backend(folder: Path, part: Part, dimension: int) -> Backend:
    """Open what lies beside the vectors of an index."""
    kind = part.facts.get("kind")
    return BinaryCodes.open(folder, part, dimension) if kind == BINARY else Faiss(folder, part)


class Faiss:
    """A faiss index over the first rows of an index folder."""

    def __init__(self, folder: Path, part: Part) -> None:
        self.faiss = import_extra(
            "faiss", "faiss", f"the approximate index of {folder}", package=FAISS
        )
        path = folder / part.name
        facts = part.files[part.name]
        check_size(path, int(facts["bytes"]))
        with path.open("rb") as stream:
            # faiss is not safe on untrusted files.
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != facts.get("sha256"):
            raise InputError(path, "is not the file that was written; build the index again")
        self.rows = part.rows
        self.kind, effort = str(part.facts.get("kind")), part.facts.get("effort")
        if self.kind not in FAISS_KINDS or not isinstance(effort, int):
            raise InputError(path, "is of no kind that is known; build the index again")
        self.effort = effort
        flags = self.faiss.IO_FLAG_MMAP if self.kind == "ivfpq" else 0
        self.index = self.faiss.read_index(str(path), flags)

    def candidates(
        self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None
    ) -> list[NDArray[np.int64]]:
        """For each query, rows that are likely among its best, rising."""
        wanted = min(self.rows, max(4 * k, 40))
        options: dict[str, Any] = {}
        if allowed is not None:
            bits = np.packbits(allowed[: self.rows], bitorder="little")
            options["sel"] = self.faiss.IDSelectorBitmap(bits)
        if self.kind == "hnsw":
            effort = max(self.effort, wanted)
            parameters = self.faiss.SearchParametersHNSW(efSearch=effort, **options)
        else:
            parameters = self.faiss.SearchParametersIVF(nprobe=self.effort, **options)
        _, found = self.index.search(np.ascontiguousarray(queries), wanted, params=parameters)
        return [np.unique(rows[rows >= 0]).astype(np.int64) for rows in found]


WORD = 64
BLOCK = 16_384
CANDIDATES = 2000
A_HIT = 200
"""Candidates for each row wanted, and at least 2,000 of them."""
NEVER = np.iinfo(np.uint16).max


class BinaryCodes:
    """One bit a dimension of the first rows of an index: a million are scanned in milliseconds.

    The code of a vector is the sign of each component after the mean of all vectors is subtracted:
    a thirty-second of its size. The rows with the smallest Hamming distance from the query's code
    (Charikar 2002: the share of differing bits estimates the angle) are candidates; their exact
    scores decide. Codes are stored column by column, so that counting differences is a few passes
    over long arrays, which numpy does at the speed of memory.

    ``columns``: (words, rows) uint64, 64 bits a word. ``centre``: (d,), what is taken off each
    vector.
    """

    def __init__(self, columns: NDArray[np.uint64], centre: Vectors) -> None:
        self.columns, self.centre = columns, centre

    @classmethod
    def open(cls, folder: Path, part: Part, dimension: int) -> "BinaryCodes":
        """Map the codes that lie beside an index."""
        path = folder / part.name
        check_size(path, int(part.files[part.name]["bytes"]))
        columns = open_array(path, "<u8", (-(-dimension // WORD), part.rows))
        try:
            centre = np.array(part.facts["centre"], dtype=np.float32)
        except (KeyError, TypeError, ValueError):
            centre = np.empty(0, np.float32)
        if centre.shape != (dimension,) or not np.isfinite(centre).all():
            raise InputError(path, "has no centre in the manifest; build the index again")
        return cls(columns, centre)

    @classmethod
    def of(cls, parts: Iterable[Vectors], rows: int, dimension: int) -> "BinaryCodes":
        """The codes of vectors."""
        parts = list(parts)
        codes = cls(np.zeros((-(-dimension // WORD), rows), np.uint64), _mean(parts, dimension))
        at = 0
        with progress.task("binary codes", rows, "texts") as advance:
            for part in parts:
                for start in range(0, len(part), BLOCK):
                    block = codes.words(part[start : start + BLOCK])
                    codes.columns[:, at : at + len(block)] = block.T
                    at += len(block)
                    advance(len(block))
        return codes

    @property
    def rows(self) -> int:
        """How many of an index's rows it knows."""
        return int(self.columns.shape[1])

    def facts(self) -> dict[str, Any]:
        """What the manifest keeps, besides the columns."""
        return {"kind": BINARY, "centre": [float(number) for number in self.centre]}

    def words(self, vectors: Vectors) -> NDArray[np.uint64]:
        """(n, words) of vectors (n, d)."""
        bits = np.zeros((len(vectors), len(self.columns) * WORD), dtype=bool)
        bits[:, : vectors.shape[1]] = vectors > self.centre
        return np.packbits(bits, axis=1).view(np.uint64)

    def hamming(self, query: Vectors) -> NDArray[np.uint16]:
        """(rows,) the Hamming distance of each row's code from that of a query (d,)."""
        code = self.words(query[None])[0]
        out = np.zeros(self.rows, dtype=np.uint16)

        def run(start: int) -> None:
            part = out[start : start + BLOCK]
            for column, word in zip(self.columns, code, strict=True):
                part += np.bitwise_count(column[start : start + BLOCK] ^ word)

        with ThreadPoolExecutor(threads()) as pool:
            list(pool.map(run, range(0, self.rows, BLOCK)))
        return out

    def candidates(
        self,
        queries: Vectors,
        k: int,
        allowed: NDArray[np.bool_] | None,
        *,
        count: int | None = None,
    ) -> list[NDArray[np.int64]]:
        """For each query, rows that are likely among its best, rising."""
        wanted = max(CANDIDATES, A_HIT * k) if count is None else count
        found = []
        for query in queries:
            distance = self.hamming(query)
            if allowed is not None:
                distance[~allowed[: self.rows]] = NEVER
            below = np.cumsum(np.bincount(distance))
            limit = int(np.searchsorted(below, min(wanted, self.rows)))
            found.append(np.flatnonzero(distance <= min(limit, int(NEVER) - 1)))
        return found


def _mean(parts: Iterable[Vectors], dimension: int) -> Vectors:
    total, count = np.zeros(dimension), 0
    for part in parts:
        for start in range(0, len(part), BLOCK):
            total = total + part[start : start + BLOCK].sum(axis=0, dtype=np.float64)
        count += len(part)
    return np.asarray(total / max(1, count), dtype=np.float32)
