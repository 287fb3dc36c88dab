"""Opening the index in a folder, wherever its vectors are, to read or to change it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from contrasent.files import recover_folder
from contrasent.search.folder import in_milvus, is_any_index
from contrasent.search.index import BaseIndex, Index
from contrasent.search.milvus import MilvusIndex
from contrasent.search.store import REPLACING, Facts
from contrasent.search.writer import Writer

INSIDE = "index"  # the index in a folder that ``adapt`` left


def index_folder(folder: str | Path) -> Path:
    """The folder of an index: that one, or the one inside it that ``adapt`` left."""
    place = Path(folder)
    recover_folder(place, REPLACING)
    inside = place / INSIDE
    return inside if not is_any_index(place) and is_any_index(inside) else place


def open_index(folder: str | Path, *, private: bool = False) -> BaseIndex:
    """Open an index folder, of vectors or of a Milvus collection.

    ``private``: a copy of the folder, which no change of its files reaches; Milvus has its own.
    """
    place = index_folder(folder)
    if in_milvus(place):
        return MilvusIndex.open(place)
    return Index.open(place, private=private)


@contextmanager
def open_writer(folder: str | Path) -> Iterator[Writer | MilvusIndex]:
    """The writer of an index folder, of vectors or of a Milvus collection."""
    place = index_folder(folder)
    if in_milvus(place):
        with closing(MilvusIndex.open(place)) as collection:
            yield collection
    else:
        with Writer(place) as writer:
            yield writer


def numbered_rows(index: BaseIndex, limit: int | None = None) -> Index:
    """Where rows have numbers: the index, or rows of Milvus in memory, few more than the limit."""
    if isinstance(index, Index):
        return index
    assert isinstance(index, MilvusIndex)
    with Writer(None, new=Facts(model=index.model, metric=index.metric)) as writer:
        for ids, texts, metadata, vectors in index.blocks():
            writer.add(texts, vectors, ids=ids, metadata=metadata)
            if limit is not None and len(writer) >= limit:
                break
    return Index.of(writer)
