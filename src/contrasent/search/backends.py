"""What lies beside the vectors of an index and proposes rows: binary codes, or a faiss index.

:mod:`contrasent.search.approximate` builds it.
"""

import hashlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import InputError, import_extra
from contrasent.search.binary import BinaryCodes
from contrasent.search.manifest import BINARY, FAISS_KINDS, Part
from contrasent.search.segment import check_size
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
    """Open what lies beside the vectors of an index.

    Raises:
        InputError: it is missing, damaged, or of a kind that is not known.
        MissingExtraError: faiss is needed and not installed.
    """
    kind = part.facts.get("kind")
    return BinaryCodes.open(folder, part, dimension) if kind == BINARY else Faiss(folder, part)


class Faiss:
    """A faiss index over the first rows of an index folder.

    Args:
        folder: the index.
        part: its entry in the manifest.

    Raises:
        InputError: its file is missing or not the one that was written.
        MissingExtraError: faiss is not installed.
    """

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
