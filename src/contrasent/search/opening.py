"""Opening the index in a folder, wherever its vectors are, to read or to change it."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

from contrasent.search.index import Index
from contrasent.search.store import MILVUS, Facts, is_any_index
from contrasent.search.writer import Writer

INSIDE = "index"
"""The index in a folder that ``adapt`` left."""


def index_folder(folder: str | Path) -> Path:
    """The folder of an index: that one, or the one inside it that ``adapt`` left."""
    place = Path(folder)
    inside = place / INSIDE
    return inside if not is_any_index(place) and is_any_index(inside) else place


def in_milvus(folder: str | Path) -> bool:
    """Whether an index folder's vectors are in Milvus."""
    return (Path(folder) / MILVUS).is_file()


def milvus_index() -> Any:
    """:class:`contrasent.search.milvus.MilvusIndex`, which is an :class:`Index`."""
    return import_module("contrasent.search.milvus").MilvusIndex


def open_index(folder: str | Path) -> Index:
    """Open an index folder, of vectors or of a Milvus collection."""
    place = index_folder(folder)
    return cast(Index, milvus_index().open(place)) if in_milvus(place) else Index.open(place)


@contextmanager
def open_writer(folder: str | Path) -> Iterator[Writer]:
    """The writer of an index folder, of vectors or of a Milvus collection."""
    place = index_folder(folder)
    if in_milvus(place):
        with closing(milvus_index().open(place)) as opened:
            yield opened
    else:
        with Writer(place) as writer:
            yield writer


@contextmanager
def local_index(folder: str | Path) -> Iterator[Index]:
    """An index whose rows can be compared with each other: those of Milvus are copied to disk."""
    opened = open_index(folder)
    if not in_milvus(index_folder(folder)):
        yield opened
        return
    with tempfile.TemporaryDirectory(prefix="contrasent-") as place:
        with Writer(place, new=Facts(model=opened.model, metric=opened.metric)) as writer:
            for names, texts, extra, vectors in cast(Any, opened).blocks():
                writer.add(texts, vectors, ids=names, metadata=extra)
        yield Index.open(place)


def sampled_rows(index: Index, limit: int) -> Index:
    """Where some rows can be read by their numbers: the index, or a sample of Milvus in memory."""
    if index.folder is None or not in_milvus(index.folder):
        return index
    held: list[list[Any]] = [[], [], [], []]
    for block in cast(Any, index).blocks():
        for own, some in zip(held, block, strict=True):
            own.extend(some)
        if len(held[0]) >= limit:
            break
    ids, texts, metadata, vectors = (own[:limit] for own in held)
    about: Any = {"ids": ids, "metadata": metadata, "model": index.model, "metric": index.metric}
    return Index.build(lambda _: np.array(vectors), texts, **about)
