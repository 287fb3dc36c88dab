"""Building an index in Milvus, and changing it.

Milvus looks after several writers, so there is no lock, and nothing is taken back: what a method
did is there when it returns, also if a later one fails.
"""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import InputError, OptionError, UserError
from contrasent.files import write_json, writing
from contrasent.search.changes import WriterBase
from contrasent.search.checks import check_metric
from contrasent.search.exact import Best
from contrasent.search.filters import Where, check_where
from contrasent.search.manifest import MILVUS, Manifest
from contrasent.search.milvus import (
    BATCH,
    LOCAL,
    LONGEST,
    MilvusIndex,
    expression,
    ids_in,
    rows_of,
    translate_milvus_errors,
)
from contrasent.search.segment import Segment
from contrasent.search.segment_writer import IndexRow, encoded_blocks
from contrasent.types import EncodeFn, Vectors

PROBES = 100


def build_milvus(
    folder: str | Path,
    encode: EncodeFn,
    rows: Iterable[IndexRow],
    *,
    uri: str = "",
    collection: str = "contrasent",
    token: str = "",
    model: str = "",
    source: str = "",
    metric: str = "cosine",
    settings: dict[str, Any] | None = None,
) -> MilvusIndex:
    """Encode a stream of rows into a new collection, and measure its recall.

    Args:
        folder: where ``milvus.json`` is put; it must not exist.
        encode: sentences in, vectors out.
        rows: (text, id or None for the row's number, metadata or None).
        uri: of a Milvus server ("http://host:19530"); a file in the folder by default.
        collection: a name that the server does not have yet.
        token: for the server.
        model: identity of the model.
        source: name or path of the model.
        metric: "cosine" or "dot".
        settings: JSON to keep with the index.

    Raises:
        UserError: no rows, a text longer than 65,535 bytes, ids that repeat.
        InputError: Milvus does not answer, or has such a collection.
    """
    check_metric(metric)
    place = Path(folder)
    with writing(place):
        place.mkdir(parents=True, exist_ok=False)
    index: MilvusIndex | None = None
    made = False
    try:
        stream = encoded_blocks(encode, rows, metric, BATCH)
        first = next(stream, None)
        if first is None:
            raise UserError("there are no texts to index")
        manifest = Manifest(model, source, metric, first.vectors.shape[1], settings=settings or {})
        index = MilvusIndex(place, uri or str(place / LOCAL), collection, manifest, token=token)
        _make_collection(index)
        made = True
        index.recall = _fill(index, chain([first], stream), first.vectors[:PROBES])
        data = {"uri": uri, "collection": collection, "recall": index.recall}
        write_json(place / MILVUS, {**data, "manifest": asdict(manifest)})
    except BaseException:
        if index is not None:
            _abandon(index, made)
        shutil.rmtree(place, ignore_errors=True)
        raise
    return index


def _fill(index: MilvusIndex, blocks: Iterable[Segment], probes: Vectors) -> float:
    """Insert all blocks; the recall, with some of the first vectors as queries."""
    best = Best(len(probes), 11)
    seen: set[str] = set()
    with progress.task("index", unit="texts") as advance:
        for block in blocks:
            first = len(seen)
            for name in block.ids:
                if name in seen:
                    raise OptionError("ids", name, f"is there twice, again for text {len(seen)}")
                seen.add(name)
            with translate_milvus_errors(index.uri):
                index.client.insert(index.collection, rows_of(block))
            best.offer(probes @ block.vectors.T, np.arange(first, len(seen)))
            advance(len(block))
    return _recall(index, probes, best)


def _abandon(index: MilvusIndex, made: bool) -> None:
    """Take back what a creation that failed has left in Milvus."""
    with suppress(InputError), translate_milvus_errors(index.uri):
        if made:
            index.client.drop_collection(index.collection)
        index.close()


def _make_collection(index: MilvusIndex) -> None:
    from pymilvus import DataType, MilvusClient

    client = index.client
    schema = MilvusClient.create_schema(
        auto_id=False, enable_dynamic_field=False, description=index.model
    )
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=LONGEST)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=index.dimension)
    schema.add_field("text", DataType.VARCHAR, max_length=LONGEST)
    schema.add_field("metadata", DataType.JSON, nullable=True)
    with translate_milvus_errors(index.uri):
        if client.has_collection(index.collection):
            raise InputError(
                index.uri, f"has a collection {index.collection!r} already; name another"
            )
        graph = client.prepare_index_params()
        graph.add_index(
            "vector",
            index_type="HNSW",
            metric_type="IP",
            params={"M": 32, "efConstruction": 128},
        )
        client.create_collection(index.collection, schema=schema, index_params=graph)


def _recall(index: MilvusIndex, probes: Vectors, best: Best) -> float:
    """Recall@10 against exact search, each probe without itself; ties count as found."""
    k = int(min(11, (best.rows[0] >= 0).sum()))
    found = index.search(probes, k=k)
    shares = []
    for at, hits in enumerate(found):
        least = best.scores[at][k - 1] - 1e-5
        shares.append((sum(hit.score >= least for hit in hits) - 1) / max(1, k - 1))
    return float(np.mean(shares))


class MilvusWriter(WriterBase):
    """Change a collection of Milvus; use as a context manager.

    Args:
        folder: holds ``milvus.json``.
        token: for a server that wants one.

    Raises:
        InputError: the folder is no such index, or Milvus does not answer.
    """

    index: MilvusIndex

    def __init__(self, folder: str | Path, *, token: str = "") -> None:
        self.index = MilvusIndex.open(folder, token=token)
        self.next_id = len(self.index)

    def __enter__(self) -> "MilvusWriter":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def delete_where(self, where: Where) -> int:
        """Delete the rows whose metadata matches; returns how many they were."""
        condition = expression(check_where(where))
        before = len(self.index)
        with translate_milvus_errors(self.index.uri):
            self.index.client.delete(self.index.collection, filter=condition)
        return before - len(self.index)

    def compact(self) -> None:
        """Have Milvus give the room of deleted rows back, which it also does by itself."""
        with translate_milvus_errors(self.index.uri):
            self.index.client.flush(self.index.collection)
            self.index.client.compact(self.index.collection)

    def _find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """(n,) 0 for each id that a row has, -1 for the others."""
        there: set[str] = set()
        with translate_milvus_errors(self.index.uri):
            for start in range(0, len(ids), BATCH):
                rows = self.index.client.query(
                    self.index.collection,
                    filter=ids_in(ids[start : start + BATCH]),
                    output_fields=["id"],
                    consistency_level="Strong",
                )
                there.update(row["id"] for row in rows)
        return np.array([int(name in there) - 1 for name in ids], dtype=np.int64)

    def _put(self, block: Segment, old: NDArray[np.int64]) -> None:
        rows = rows_of(block)
        with translate_milvus_errors(self.index.uri):
            for start in range(0, len(rows), BATCH):
                self.index.client.upsert(self.index.collection, rows[start : start + BATCH])

    def _drop(self, ids: list[str], rows: NDArray[np.int64]) -> None:
        with translate_milvus_errors(self.index.uri):
            for start in range(0, len(ids), BATCH):
                self.index.client.delete(self.index.collection, ids=ids[start : start + BATCH])
