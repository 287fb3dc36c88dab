"""Opening the index in a folder, wherever its vectors are, to read or to change it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Union

from contrasent.search.index import Index
from contrasent.search.manifest import MILVUS
from contrasent.search.writer import Writer

if TYPE_CHECKING:
    from contrasent.search.milvus import MilvusIndex
    from contrasent.search.milvus_writer import MilvusWriter

AnyIndex = Union[Index, "MilvusIndex"]


def in_milvus(folder: str | Path) -> bool:
    """Whether an index folder's vectors are in Milvus."""
    return (Path(folder) / MILVUS).is_file()


def open_index(folder: str | Path) -> AnyIndex:
    """Open an index folder, of vectors or of a Milvus collection."""
    if in_milvus(folder):
        from contrasent.search.milvus import MilvusIndex

        return MilvusIndex.open(folder)
    return Index.open(folder)


def open_writer(folder: str | Path) -> Union[Writer, "MilvusWriter"]:
    """What changes an index folder, to use as a context manager."""
    if in_milvus(folder):
        from contrasent.search.milvus_writer import MilvusWriter

        return MilvusWriter(folder)
    return Writer(folder)


@contextmanager
def local_index(folder: str | Path) -> Iterator[Index]:
    """An index whose rows can be compared with each other: those of Milvus are copied to disk."""
    opened = open_index(folder)
    if isinstance(opened, Index):
        yield opened
        return
    with tempfile.TemporaryDirectory(prefix="contrasent-") as place:
        yield opened.copied(Path(place))
