"""Building an index in Milvus: a new collection, filled with a stream of rows."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from contrasent import progress
from contrasent.errors import InputError, OptionError, UserError
from contrasent.files import write_json, writing
from contrasent.search.checks import check_metric, checked, refuse_repeats
from contrasent.search.exact import Best
from contrasent.search.manifest import MILVUS, Manifest
from contrasent.search.milvus import BATCH, LOCAL, LONGEST, MilvusIndex, row_of, talking
from contrasent.search.stream import Row
from contrasent.types import EncodeFn, Vectors

PROBES = 100


def build_milvus(
    folder: str | Path,
    encode: EncodeFn,
    rows: Iterable[Row],
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
        stream = _blocks(encode, rows, metric)
        first = next(stream, None)
        if first is None:
            raise UserError("there are no texts to index")
        manifest = Manifest(model, source, metric, first[1].shape[1], settings=settings or {})
        index = MilvusIndex(place, uri or str(place / LOCAL), collection, manifest, token=token)
        _make_collection(index)
        made = True
        index.recall = _fill(index, chain([first], stream), first[1][:PROBES])
        data = {"uri": uri, "collection": collection, "recall": index.recall}
        write_json(place / MILVUS, {**data, "manifest": asdict(manifest)})
    except BaseException:
        if index is not None:
            _abandon(index, made)
        shutil.rmtree(place, ignore_errors=True)
        raise
    return index


def _fill(
    index: MilvusIndex,
    blocks: Iterable[tuple[list[dict[str, Any]], Vectors]],
    probes: Vectors,
) -> float:
    """Insert all blocks; the recall, with some of the first vectors as queries."""
    best = Best(len(probes), 11)
    seen: set[str] = set()
    count = 0
    with progress.task("index", unit="texts") as advance:
        for block, vectors in blocks:
            names = [row["id"] for row in block]
            refuse_repeats(names)
            again = next((name for name in names if name in seen), None)
            if again is not None:
                raise OptionError("ids", again, "is there twice")
            seen.update(names)
            with talking(index.uri):
                index.client.insert(index.collection, block)
            best.offer(probes @ vectors.T, np.arange(count, count + len(block)))
            count += len(block)
            advance(len(block))
    return _recall(index, probes, best)


def _abandon(index: MilvusIndex, made: bool) -> None:
    """Take back what a creation that failed has left in Milvus."""
    with suppress(InputError), talking(index.uri):
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
    with talking(index.uri):
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


def _blocks(
    encode: EncodeFn, rows: Iterable[Row], metric: str
) -> Iterator[tuple[list[dict[str, Any]], Vectors]]:
    stream, first, width = iter(rows), 0, None
    while block := list(islice(stream, BATCH)):
        vectors = checked(encode([text for text, _, _ in block]), len(block), width, metric)
        width = int(vectors.shape[1])
        numbered = enumerate(zip(block, vectors, strict=True))
        yield (
            [
                row_of(text, str(first + at) if name is None else name, value, vector)
                for at, ((text, name, value), vector) in numbered
            ],
            vectors,
        )
        first += len(block)
