"""An index in Milvus: a local file through milvus-lite, or a server or cluster by its URI.

The folder holds ``milvus.json``: where the collection is, and what an index's manifest says. The
same code runs on a file and on a cluster; Milvus looks after writers, readers and disks. Built by
:func:`contrasent.search.milvus_writer.build_milvus`, changed by its ``MilvusWriter``.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contrasent import progress
from contrasent.errors import InputError, OptionError, UserError, import_extra
from contrasent.files import writing
from contrasent.search.filters import ids_in, milvus_expression
from contrasent.search.index import Index
from contrasent.search.manifest import (
    LOADED,
    MILVUS,
    Manifest,
    parse_manifest,
    read_object,
    write_manifest,
)
from contrasent.search.query import Hit, IndexBase, Wanted
from contrasent.search.segment import Segment, encoded
from contrasent.search.segment_writer import write_segment
from contrasent.types import Vectors

LONGEST = 65_535
MOST = 16_384
BATCH = 1024
EFFORT = 128
WORDS = "words"
"""Field with the sparse vectors that Milvus makes of the texts."""
LOCAL = "milvus.db"
TOKEN = "CONTRASENT_MILVUS_TOKEN"
"""Environment variable with the token of a Milvus server."""


class MilvusIndex(IndexBase):
    """A collection of Milvus with the texts, ids and metadata of an index."""

    def __init__(
        self, folder: Path, uri: str, collection: str, manifest: Manifest, *, token: str = ""
    ) -> None:
        pymilvus = import_extra("pymilvus", "milvus", f"the index {folder}")
        super().__init__(manifest, folder)
        self.uri, self.collection = uri, collection
        with translate_milvus_errors(uri):
            self.client = pymilvus.MilvusClient(uri, token=token or os.environ.get(TOKEN, ""))
        self.recall: float | None = None

    @classmethod
    def open(cls, folder: str | Path, *, token: str = "") -> "MilvusIndex":
        """Connect to the collection that a folder names."""
        place = Path(folder)
        uri, collection, manifest, recall = read_place(place)
        if (place / LOADED).is_file():
            problem = "was not loaded whole; the same command as before goes on with it"
            raise InputError(place, problem)
        opened = cls(place, uri or str(place / LOCAL), collection, manifest, token=token)
        with translate_milvus_errors(opened.uri):
            if not opened.client.has_collection(collection):
                raise InputError(opened.uri, f"has no collection {collection!r}")
            opened.client.load_collection(collection)
            description = opened.client.describe_collection(collection).get("description", "")
        if description and description != manifest.model:  # a local file keeps no description
            raise InputError(opened.uri, f"collection {collection!r} is of another model")
        opened.recall = recall
        return opened

    def close(self) -> None:
        """End the connection; a local file is written out."""
        self.client.close()

    def __len__(self) -> int:
        with translate_milvus_errors(self.uri):
            rows = self.client.query(
                self.collection,
                filter="",
                output_fields=["count(*)"],
                consistency_level="Strong",
            )
        return int(rows[0]["count(*)"])

    @property
    def generation(self) -> int:
        """The number of rows: what a reader can see of a change."""
        return len(self)

    def refreshed(self) -> "MilvusIndex":
        """This one: Milvus always answers from the newest rows."""
        return self

    def blocks(self, limit: int | None = None) -> Iterator[Segment]:
        """The rows, in Milvus's own order, with memory for one block of them."""
        with translate_milvus_errors(self.uri):
            walk = self.client.query_iterator(
                self.collection,
                batch_size=BATCH,
                limit=-1 if limit is None else limit,
                output_fields=["id", "text", "metadata", "vector"],
            )
            try:
                while found := walk.next():
                    yield Segment.pack(
                        np.array([row["vector"] for row in found], dtype=np.float32),
                        [row["text"] for row in found],
                        [row["id"] for row in found],
                        [row["metadata"] for row in found],
                    )
            finally:
                walk.close()

    def sample(self, limit: int) -> Index:
        """Some rows as an index in memory."""
        parts = list(self.blocks(limit))
        return Index(replace(self.manifest, generation=len(self)), parts)

    def copied(self, folder: Path) -> Index:
        """All rows as an index in an existing empty folder, for scans of all pairs."""
        with writing(folder), progress.task("copy", len(self), "texts") as advance:
            place = folder / "segment-000001"
            part = write_segment(place, self.dimension, self.blocks(), advance)
        write_manifest(folder, replace(self.manifest, segments=(part,) if part.rows else ()))
        return Index.open(folder)

    def _hits(
        self, texts: Sequence[str] | Vectors, vectors: Vectors, wanted: Wanted
    ) -> list[list[Hit]]:
        condition = self.condition(wanted)
        found = [
            hits
            for start in range(0, len(vectors), 64)
            for hits in self.nearest(list(vectors[start : start + 64]), wanted.k, condition)
        ]
        least = -np.inf if wanted.threshold is None else wanted.threshold
        return [[hit for hit in hits if hit.score >= least] for hits in found]

    def condition(self, wanted: Wanted) -> str:
        """The filter of a search, in Milvus's language; "" for none."""
        if wanted.exact:
            raise OptionError("exact", True, "Milvus searches its own index, approximately")
        if wanted.k > MOST:
            raise OptionError("k", wanted.k, f"Milvus gives at most {MOST:,}")
        return "" if wanted.where is None else milvus_expression(wanted.where)

    def nearest(
        self, queries: Sequence[Any], k: int, condition: str = "", *, words: bool = False
    ) -> list[list[Hit]]:
        """The best rows of each query, best first; equal scores in the order of ids."""
        with translate_milvus_errors(self.uri):
            found = self.client.search(
                self.collection,
                list(queries) if words else [row.tolist() for row in queries],
                anns_field=WORDS if words else "vector",
                limit=min(k, MOST),
                filter=condition,
                output_fields=["text", "metadata"],
                search_params={} if words else {"params": {"ef": max(EFFORT, 2 * k)}},
                consistency_level="Strong",
            )
        return [
            sorted(
                (
                    Hit(row["id"], entity["text"], float(row["distance"]), entity["metadata"])
                    for row in hits
                    for entity in [row["entity"]]
                ),
                key=lambda hit: (-abs(hit.score) if words else -hit.score, hit.id),
            )
            for hits in found
        ]

    def scored(self, vector: Vectors, ids: Sequence[str]) -> list[Hit]:
        """Rows by their ids, with their scores for a query's vector."""
        found = []
        for start in range(0, len(ids), BATCH):
            with translate_milvus_errors(self.uri):
                found += self.client.query(
                    self.collection,
                    filter=ids_in(ids[start : start + BATCH]),
                    output_fields=["id", "text", "metadata", "vector"],
                    consistency_level="Strong",
                )
        scores = [float(np.float32(row["vector"]) @ vector) for row in found]
        return [
            Hit(row["id"], row["text"], score, row["metadata"])
            for row, score in zip(found, scores, strict=True)
        ]


def read_place(folder: Path) -> tuple[str, str, Manifest, float | None]:
    """URI, collection, manifest and recall that a folder's file states."""
    path = folder / MILVUS
    data = read_object(path)
    try:
        manifest = parse_manifest({**data["manifest"], "segments": ()})
        recall = None if data.get("recall") is None else float(data["recall"])
        return str(data["uri"]), str(data["collection"]), manifest, recall
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(path, f"is damaged ({error}); build the index again") from error


def rows_of(block: Segment) -> list[dict[str, Any]]:
    """Rows as Milvus takes them."""
    rows = []
    for at, (text, name) in enumerate(zip(block.texts, block.ids, strict=True)):
        for what, value in (("text", text), ("id", name)):
            if len(encoded(value)) > LONGEST:
                raise UserError(
                    f"the {what} {value[:40]!r}... has more than {LONGEST:,} bytes, which Milvus "
                    "does not take; split it"
                )
        vector, extra = block.vectors[at].tolist(), block.metadata_of(at)
        rows.append({"id": name, "text": text, "vector": vector, "metadata": extra})
    return rows


@contextmanager
def translate_milvus_errors(uri: str) -> Iterator[None]:
    """Turn Milvus's complaints into one line."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        words = " ".join(str(getattr(error, "message", error)).split())
        raise InputError(uri, f"Milvus refuses: {words[:300]}") from error
