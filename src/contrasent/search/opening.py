"""Opening the index in a folder, wherever its vectors are, to read or to change it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

from contrasent.search.folder import in_milvus, is_any_index
from contrasent.search.index import Index
from contrasent.search.store import Facts
from contrasent.search.writer import Writer

INSIDE = "index"  # the index in a folder that ``adapt`` left


def index_folder(folder: str | Path) -> Path:
    """The folder of an index: that one, or the one inside it that ``adapt`` left."""
    place = Path(folder)
    inside = place / INSIDE
    return inside if not is_any_index(place) and is_any_index(inside) else place


def open_index(folder: str | Path, *, private: bool = False) -> Index:
    """Open an index folder, of vectors or of a Milvus collection.

    ``private``: a copy of the folder, which no change of its files reaches; Milvus has its own.
    """
    place = index_folder(folder)
    if not in_milvus(place):
        return Index.open(place, private=private)
    from contrasent.search.milvus import MilvusIndex

    return MilvusIndex.open(place)


@contextmanager
def open_writer(folder: str | Path) -> Iterator[Writer]:
    """The writer of an index folder, of vectors or of a Milvus collection."""
    place = index_folder(folder)
    milvus = in_milvus(place)
    with closing(cast(Any, open_index(place))) if milvus else Writer(place) as writer:
        yield writer


def numbered_rows(index: Index, limit: int | None = None) -> Index:
    """Where rows have numbers: the index, or rows of Milvus in memory, few more than the limit."""
    if index.folder is None or not in_milvus(index.folder):
        return index
    with Writer(None, new=Facts(model=index.model, metric=index.metric)) as writer:
        for ids, texts, metadata, vectors in cast(Any, index).blocks():
            writer.add(texts, vectors, ids=ids, metadata=metadata)
            if limit is not None and len(writer) >= limit:
                break
    return Index.of(writer)
