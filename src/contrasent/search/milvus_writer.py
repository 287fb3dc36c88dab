"""Building an index in Milvus, and changing it.

Milvus looks after several writers, so there is no lock, and nothing is taken back: what a method
did is there when it returns, also if a later one fails.
"""

import json
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import InputError, OptionError, OutputError, UserError
from contrasent.files import write_json, writing
from contrasent.search.changes import WriterBase
from contrasent.search.checks import check_metric
from contrasent.search.exact import Best
from contrasent.search.filters import Where, check_where, ids_in, milvus_expression
from contrasent.search.manifest import LOADED, MILVUS, SETTING, Manifest, read_object
from contrasent.search.milvus import (
    BATCH,
    LOCAL,
    LONGEST,
    WORDS,
    MilvusIndex,
    rows_of,
    translate_milvus_errors,
)
from contrasent.search.segment import Segment
from contrasent.search.segment_writer import IndexRows, encoded_blocks
from contrasent.types import EncodeFn, Vectors

PROBES = 100


def build_milvus(
    folder: str | Path,
    encode: EncodeFn,
    rows: IndexRows,
    *,
    uri: str = "",
    collection: str = "contrasent",
    token: str = "",
    model: str = "",
    source: str = "",
    metric: str = "cosine",
    settings: dict[str, Any] | None = None,
) -> MilvusIndex:
    """Load a stream of rows into a new collection, and measure its recall.

    A load that was killed goes on when it is begun again with the same rows: every row is there
    once. Then the recall is not measured.
    """
    check_metric(metric)
    place, stated = Path(folder), {"uri": uri, "collection": collection, "recall": None}
    resumed = (place / LOADED).is_file()
    with writing(place):
        place.mkdir(parents=True, exist_ok=resumed)
        (place / LOADED).touch()
        before = np.fromfile(place / LOADED, dtype="<u8")
        os.truncate(place / LOADED, before.nbytes)
    skip = max(0, len(before) - BATCH)
    index: MilvusIndex | None = None
    try:
        stream = encoded_blocks(encode, rows, metric, BATCH, skip)
        first = next(stream, None)
        if first is None:
            raise UserError("there are no texts to index")
        manifest = Manifest(model, source, metric, first.vectors.shape[1], settings=settings or {})
        stated["manifest"] = json.loads(json.dumps(asdict(manifest)))
        index = MilvusIndex(place, uri or str(place / LOCAL), collection, manifest, token=token)
        _make_collection(index, stated)
        blocks = _loading(index, chain([first], stream), before, skip, resumed=resumed)
        if resumed:
            deque(blocks, maxlen=0)
        else:
            index.recall = _recall(index, blocks, first.vectors[:PROBES])
        _check_loaded(index, place / LOADED)
        write_json(place / MILVUS, stated | {"recall": index.recall})
        (place / LOADED).unlink()
    except Exception:
        # What took long goes on when the reason is mended.
        path = place / LOADED
        if not resumed and path.is_file() and path.stat().st_size <= 8 * BATCH:
            _abandon(index, place)
        raise
    return index


def _loading(
    index: MilvusIndex,
    blocks: Iterable[Segment],
    before: NDArray[np.uint64],
    done: int,
    *,
    resumed: bool,
) -> Iterator[Segment]:
    """Blocks, as they are in the collection; what may be there from before is replaced."""
    path = Path(str(index.folder)) / LOADED
    client = index.client
    with progress.task("index", unit="texts", start=done) as advance:
        for block in blocks:
            there = before[done : done + len(block)]
            if (there != block.hashes[: len(there)]).any():
                problem = "was begun with other rows; give those, or remove it and its collection"
                raise OutputError(f"{index.folder}: {problem}")
            # The block in hand when it was killed begins where the ids end.
            put = client.upsert if resumed and done < len(before) + BATCH else client.insert
            with translate_milvus_errors(index.uri):
                put(index.collection, rows_of(block))
            with writing(path), path.open("ab") as stream:
                stream.write(block.hashes[len(there) :].astype("<u8").tobytes())
            done += len(block)
            yield block
            advance(len(block))


def _check_loaded(index: MilvusIndex, path: Path) -> None:
    """Reject ids that are there twice, by 64 bits of their hashes, and rows that are missing."""
    hashes = np.fromfile(path, dtype="<u8")
    order = np.argsort(hashes, kind="stable")
    twins = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    if len(twins):
        one, two = int(order[twins[0]]), int(order[twins[0] + 1])
        _abandon(index, path.parent)
        raise OptionError("ids", f"of rows {one} and {two}", "is there twice")
    if len(index) != len(hashes):
        raise InputError(index.uri, f"holds {len(index):,} of {len(hashes):,} rows")


def _abandon(index: MilvusIndex | None, place: Path) -> None:
    """Take back what a creation that failed has left, in Milvus too."""
    if index is not None:
        with suppress(InputError), translate_milvus_errors(index.uri):
            if (place / MILVUS).is_file():
                index.client.drop_collection(index.collection)
            index.close()
    shutil.rmtree(place, ignore_errors=True)


def _make_collection(index: MilvusIndex, stated: dict[str, Any]) -> None:
    """Make the collection, unless a load that was killed has; then it must be of the same."""
    from pymilvus import DataType, Function, FunctionType, MilvusClient

    client, words = index.client, SETTING in index.manifest.settings
    path = Path(str(index.folder)) / MILVUS
    if path.is_file() and read_object(path) != stated:
        problem = "was begun with other settings; give those, or remove it and its collection"
        raise OutputError(f"{index.folder}: {problem}")
    with translate_milvus_errors(index.uri):
        there = client.has_collection(index.collection)
        if there and not path.is_file():
            problem = f"has a collection {index.collection!r} already; name another"
            raise InputError(index.uri, problem)
        if there:
            client.load_collection(index.collection)
    write_json(path, stated)
    if there:
        return
    schema = MilvusClient.create_schema(
        auto_id=False, enable_dynamic_field=False, description=index.model
    )
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=LONGEST)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=index.dimension)
    schema.add_field("text", DataType.VARCHAR, max_length=LONGEST, enable_analyzer=words)
    schema.add_field("metadata", DataType.JSON, nullable=True)
    graph = client.prepare_index_params()
    built = {"M": 32, "efConstruction": 128}
    graph.add_index("vector", index_type="HNSW", metric_type="IP", params=built)
    if words:
        from contrasent.search.lexical import K1, B

        schema.add_field(WORDS, DataType.SPARSE_FLOAT_VECTOR)
        schema.add_function(Function("bm25", FunctionType.BM25, ["text"], [WORDS]))
        scored = {"bm25_k1": K1, "bm25_b": B}
        graph.add_index(
            WORDS, index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=scored
        )
    with translate_milvus_errors(index.uri):
        client.create_collection(index.collection, schema=schema, index_params=graph)


def _recall(index: MilvusIndex, blocks: Iterable[Segment], probes: Vectors) -> float:
    """Recall@10 against exact search of some of the first vectors, each without itself.

    Ties count as found.
    """
    best, first = Best(len(probes), 11), 0
    for block in blocks:
        best.offer(probes @ block.vectors.T, np.arange(first, first + len(block)))
        first += len(block)
    k = int(min(11, (best.rows[0] >= 0).sum()))
    found = index.search(probes, k=k)
    shares = []
    for at, hits in enumerate(found):
        least = best.scores[at][k - 1] - 1e-5
        shares.append((sum(hit.score >= least for hit in hits) - 1) / max(1, k - 1))
    return float(np.mean(shares))


class MilvusWriter(WriterBase):
    """Change a collection of Milvus; use as a context manager."""

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
        condition = milvus_expression(check_where(where))
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
