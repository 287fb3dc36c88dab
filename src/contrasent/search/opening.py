"""Opening the index in a folder, wherever its vectors are."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Union

from contrasent.search.index import Index

if TYPE_CHECKING:
    from contrasent.search.milvus import MilvusIndex

TOKEN = "CONTRASENT_MILVUS_TOKEN"
"""Environment variable with the token of a Milvus server."""


def open_index(folder: str | Path) -> Union[Index, "MilvusIndex"]:
    """Open an index folder, of vectors or of a Milvus collection.

    Raises:
        InputError: the folder is no index, or Milvus does not answer.
    """
    if (Path(folder) / "milvus.json").is_file():
        from contrasent.search.milvus import MilvusIndex

        return MilvusIndex.open(folder, token=os.environ.get(TOKEN, ""))
    return Index.open(folder)
