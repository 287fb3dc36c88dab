"""Checks of what an index is given, before any work, and checksums of what it keeps."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contrasent.errors import ModelError, OptionError, OutputError
from contrasent.files import check_writable
from contrasent.metrics import normalize
from contrasent.types import Vectors

METRICS = ("cosine", "dot")


def check_target(target: Path, overwrite: bool, *, is_index: bool) -> None:
    """Reject a folder to write that exists, unless an index may be overwritten."""
    if overwrite and (target / "milvus.json").is_file():
        raise OutputError(
            f"{target}: is an index in Milvus, which --overwrite does not replace; drop its "
            "collection and remove the folder, or choose another target"
        )
    if target.exists() and not (overwrite and is_index):
        empty = target.is_dir() and not any(target.iterdir())
        if overwrite and not empty:
            raise OutputError(f"{target}: exists and is no index; choose another target")
        if not overwrite and not empty:
            raise OutputError(f"{target}: exists; choose another target or use --overwrite")
    check_writable(target.parent)


def row_ids(ids: Sequence[str] | None, count: int, first: int) -> list[str]:
    """The ids given, or row numbers from ``first`` on; one distinct string a row."""
    if ids is None:
        return [str(first + row) for row in range(count)]
    if len(ids) != count:
        raise OptionError("ids", len(ids), f"is not one id for each of {count} texts")
    seen: set[str] = set()
    for row, name in enumerate(ids):
        if not isinstance(name, str):
            raise OptionError("ids", name, "is not a string")
        if name in seen:
            raise OptionError("ids", name, f"is there twice, the second time for text {row}")
        seen.add(name)
    return list(ids)


def check_metadata(metadata: Sequence[Any] | None, count: int) -> None:
    """Reject metadata that are not one value a text."""
    if metadata is not None and len(metadata) != count:
        raise OptionError("metadata", len(metadata), f"is not one value for {count} texts")


def check_vectors(vectors: Vectors, count: int, dimension: int | None, metric: str) -> Vectors:
    """Vectors of the right shape, finite, float32, of length one where the metric is cosine."""
    array = np.asarray(vectors)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or len(array) != count:
        raise ModelError(f"vectors must be numbers of shape ({count}, d), not {array.shape}")
    if dimension is not None and array.shape[1] != dimension:
        raise ModelError(
            f"vectors have {array.shape[1]} dimensions and the index has {dimension}: "
            "they come from different models"
        )
    array = array.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise ModelError(f"{len(bad)} of {count} vectors hold NaN or infinity, first row {bad[0]}")
    return normalize(array) if metric == "cosine" else array


def checksum(*parts: Any) -> int:
    """CRC-32 of some values; a blob differs from any text, which a damaged database may give."""
    return zlib.crc32(
        b"\0".join(
            b"\1" + part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
            for part in parts
        )
    )


def vector_sum(vectors: Vectors, before: int = 0) -> int:
    """CRC-32 of vectors, or of one, behind those of ``before``."""
    return zlib.crc32(np.ascontiguousarray(vectors, dtype="<f4").data, before)
