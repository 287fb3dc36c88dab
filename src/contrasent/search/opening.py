"""Opening the index in a folder, wherever its vectors are, to read or to change it."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from contrasent.files import recover_folder
from contrasent.search.filters import Where
from contrasent.search.folder import in_milvus, is_any_index
from contrasent.search.index import BaseIndex, Index
from contrasent.search.milvus import MilvusIndex
from contrasent.search.store import REPLACING, Facts
from contrasent.search.writer import Writer
from contrasent.types import EncodeFn, Vectors

INSIDE = "index"  # the index in a folder that ``adapt`` left


def index_folder(folder: str | Path) -> Path:
    """The folder of an index: that one, or the one inside it that ``adapt`` left."""
    place = Path(folder)
    recover_folder(place, REPLACING)
    inside = place / INSIDE
    return inside if not is_any_index(place) and is_any_index(inside) else place


class RowWriter(Protocol):
    """Changes of rows by their ids; texts come with (n, d) vectors or with what encodes them."""

    def add(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> int:
        """Add rows, and count them; an id that is there already is rejected."""

    def update(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        *,
        ids: Sequence[str],
        metadata: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> tuple[int, int]:
        """Replace rows and add those that are not there; counts of both."""

    def delete(self, ids: Sequence[str]) -> int:
        """Delete the rows of these ids, and count them."""

    def delete_where(self, where: Where) -> int:
        """Delete the rows whose metadata matches a filter, and count them."""

    def __len__(self) -> int: ...


def open_index(folder: str | Path, *, private: bool = False) -> BaseIndex:
    """Open an index folder, of vectors or of a Milvus collection.

    ``private``: a copy of the folder, which no change of its files reaches; Milvus has its own.
    """
    place = index_folder(folder)
    if in_milvus(place):
        return MilvusIndex.open(place)
    return Index.open(place, private=private)


@contextmanager
def open_writer(folder: str | Path) -> Iterator[RowWriter]:
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
