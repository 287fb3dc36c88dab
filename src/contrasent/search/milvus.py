"""An index in Milvus: a local file through milvus-lite, or a server or cluster by its URI.

The folder holds ``milvus.json``: where the collection is, and what an index's manifest says. The
same code runs on a file and on a cluster; Milvus looks after writers, readers and disks.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from contrasent import progress
from contrasent.errors import InputError, MissingExtraError, OptionError, UserError
from contrasent.files import write_json, writing
from contrasent.search.checks import (
    check_k,
    check_metric,
    check_threshold,
    checked,
    refuse_repeats,
)
from contrasent.search.exact import Best
from contrasent.search.filters import Where, check_where, operators
from contrasent.search.index import Hit, Index
from contrasent.search.manifest import Manifest
from contrasent.search.segment import encoded, json_text
from contrasent.search.stream import Row
from contrasent.types import EncodeFn, Vectors

NAME = "milvus.json"
LONGEST = 65_535
MOST = 16_384
BATCH = 1024
PROBES = 100
EFFORT = 128
LOCAL = "milvus.db"


class MilvusIndex:
    """A collection of Milvus with the texts, ids and metadata of an index.

    Args:
        folder: holds ``milvus.json``.
        uri: of the server, or the path of a local file.
        collection: its name there.
        manifest: model, metric, dimension and settings.
        token: for a server that wants one ("user:password" or a key); never stored.
    """

    def __init__(
        self, folder: Path, uri: str, collection: str, manifest: Manifest, *, token: str = ""
    ) -> None:
        try:
            from pymilvus import MilvusClient
        except ImportError as error:
            raise MissingExtraError("pymilvus", "milvus", f"the index {folder}") from error
        self.folder, self.uri, self.collection, self.manifest = folder, uri, collection, manifest
        with _talking(uri):
            self.client = MilvusClient(uri, token=token)
        self.recall: float | None = None
        self.made = False

    # ------------------------------------------------------------------ making and opening

    @classmethod
    def create(
        cls,
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
    ) -> "MilvusIndex":
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
        made: MilvusIndex | None = None
        try:
            stream = _blocks(encode, rows, metric)
            first = next(stream, None)
            if first is None:
                raise UserError("there are no texts to index")
            manifest = Manifest(model, source, metric, first[1].shape[1], settings=settings or {})
            made = cls(place, uri or str(place / LOCAL), collection, manifest, token=token)
            made._make_collection()
            made._fill(chain([first], stream), first[1][:PROBES])
            data = {"uri": uri, "collection": collection, "recall": made.recall}
            write_json(place / NAME, {**data, "manifest": asdict(manifest)})
        except BaseException:
            if made is not None:
                made._abandon()
            shutil.rmtree(place, ignore_errors=True)
            raise
        return made

    def _fill(
        self, blocks: Iterable[tuple[list[dict[str, Any]], Vectors]], probes: Vectors
    ) -> None:
        """Insert all blocks; recall is measured with some of the first vectors as queries."""
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
                with _talking(self.uri):
                    self.client.insert(self.collection, block)
                best.offer(probes @ vectors.T, np.arange(count, count + len(block)))
                count += len(block)
                advance(len(block))
        self.recall = self._recall(probes, best)

    def _abandon(self) -> None:
        """Take back what a creation that failed has left in Milvus."""
        with suppress(InputError), _talking(self.uri):
            if self.made:
                self.client.drop_collection(self.collection)
            self.close()

    @classmethod
    def open(cls, folder: str | Path, *, token: str = "") -> "MilvusIndex":
        """Connect to the collection that a folder names.

        Raises:
            InputError: the folder is no such index, Milvus does not answer, or its collection is
                not the one that was made.
        """
        place = Path(folder)
        path = place / NAME
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            manifest = Manifest(**{**data["manifest"], "segments": ()})
            uri, collection = str(data["uri"]), str(data["collection"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(path, f"is not readable ({error}); build the index again") from error
        opened = cls(place, uri or str(place / LOCAL), collection, manifest, token=token)
        with _talking(opened.uri):
            if not opened.client.has_collection(collection):
                raise InputError(opened.uri, f"has no collection {collection!r}")
            opened.client.load_collection(collection)
            told = opened.client.describe_collection(collection).get("description", "")
        if told and told != manifest.model:  # a local file keeps no description
            raise InputError(opened.uri, f"collection {collection!r} is of another model")
        opened.recall = data.get("recall")
        return opened

    def close(self) -> None:
        """End the connection; a local file is written out."""
        self.client.close()

    def _make_collection(self) -> None:
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(
            auto_id=False, enable_dynamic_field=False, description=self.manifest.model
        )
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=LONGEST)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.manifest.dimension)
        schema.add_field("text", DataType.VARCHAR, max_length=LONGEST)
        schema.add_field("metadata", DataType.JSON, nullable=True)
        with _talking(self.uri):
            if self.client.has_collection(self.collection):
                raise InputError(
                    self.uri, f"has a collection {self.collection!r} already; name another"
                )
            index = self.client.prepare_index_params()
            index.add_index(
                "vector",
                index_type="HNSW",
                metric_type="IP",
                params={"M": 32, "efConstruction": 128},
            )
            self.client.create_collection(self.collection, schema=schema, index_params=index)
            self.made = True

    # ------------------------------------------------------------------ what it is

    def __len__(self) -> int:
        with _talking(self.uri):
            rows = self.client.query(
                self.collection,
                filter="",
                output_fields=["count(*)"],
                consistency_level="Strong",
            )
        return int(rows[0]["count(*)"])

    @property
    def model(self) -> str:
        """Identity of the model that made the vectors."""
        return self.manifest.model

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.manifest.dimension

    @property
    def metric(self) -> str:
        """What a score is: "cosine" or "dot"."""
        return self.manifest.metric

    def check_model(self, model: str, option: str = "model") -> None:
        """Refuse another model than the one the vectors came from."""
        Index(self.manifest, (), folder=self.folder).check_model(model, option)

    # ------------------------------------------------------------------ changes

    def update(
        self,
        texts: Sequence[str],
        vectors: Vectors | EncodeFn,
        *,
        ids: Sequence[str],
        metadata: Sequence[Any] | None = None,
    ) -> None:
        """Replace the rows of these ids, and add those that are not there yet."""
        given = vectors(texts) if callable(vectors) else vectors
        array = checked(given, len(texts), self.dimension, self.metric)
        refuse_repeats(ids)
        values = metadata if metadata is not None else [None] * len(texts)
        rows = zip(texts, ids, values, array, strict=True)
        block = [_row(text, name, value, vector) for text, name, value, vector in rows]
        with _talking(self.uri):
            self.client.upsert(self.collection, block)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete the rows of these ids, if they are there."""
        with _talking(self.uri):
            self.client.delete(self.collection, ids=list(ids))

    # ------------------------------------------------------------------ searching

    def search(
        self,
        queries: str | Sequence[str] | Vectors,
        *,
        encode: EncodeFn | None = None,
        k: int = 10,
        threshold: float | None = None,
        where: Where | None = None,
        model: str | None = None,
        exact: bool = False,
    ) -> list[list[Hit]]:
        """The best k rows for each query, as :meth:`contrasent.search.index.Index.search`."""
        if exact:
            raise OptionError("exact", exact, "Milvus searches its own index, approximately")
        check_k(k)
        check_threshold(threshold)
        if k > MOST:
            raise OptionError("k", k, f"Milvus gives at most {MOST:,}")
        if model is not None:
            self.check_model(model)
        vectors = Index(self.manifest, ()).query_vectors(queries, encode)
        condition = "" if where is None else expression(check_where(where))
        found: list[list[Hit]] = []
        for start in range(0, len(vectors), 64):
            with _talking(self.uri):
                part = self.client.search(
                    self.collection,
                    [row.tolist() for row in vectors[start : start + 64]],
                    limit=k,
                    filter=condition,
                    output_fields=["text", "metadata"],
                    search_params={"params": {"ef": max(EFFORT, 2 * k)}},
                    consistency_level="Strong",
                )
            found += [_hits(hits, threshold) for hits in part]
        return found

    def _recall(self, probes: Vectors, best: Best) -> float:
        """Recall@10 against exact search, each probe without itself; ties count as found."""
        k = int(min(11, (best.rows[0] >= 0).sum()))
        found = self.search(probes, k=k)
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
                _row(text, str(first + at) if name is None else name, value, vector)
                for at, ((text, name, value), vector) in numbered
            ],
            vectors,
        )
        first += len(block)


def _row(text: str, name: str, value: Any, vector: Any) -> dict[str, Any]:
    for what, said in (("text", text), ("id", name)):
        if len(encoded(said)) > LONGEST:
            raise UserError(
                f"the {what} {said[:40]!r}... has more than {LONGEST:,} bytes, which Milvus does "
                "not take; split it"
            )
    json_text(value)
    return {"id": name, "text": text, "vector": vector.tolist(), "metadata": value}


def _hits(rows: Any, threshold: float | None) -> list[Hit]:
    hits = [
        Hit(row["id"], row["entity"]["text"], float(row["distance"]), row["entity"]["metadata"])
        for row in rows
    ]
    return sorted(
        (hit for hit in hits if threshold is None or hit.score >= threshold),
        key=lambda hit: (-hit.score, hit.id),
    )


def expression(where: Where) -> str:
    """A filter in Milvus's language."""
    parts = [_condition(key, value) for key, value in where.items()]
    return " and ".join(f"({part})" for part in parts)


def _condition(key: str, value: Any) -> str:
    if key == "$not":
        return f"not ({expression(value)})"
    if key in ("$and", "$or"):
        return f" {key[1:]} ".join(f"({expression(part)})" for part in value)
    field = "metadata" + "".join(f"[{_literal(part)}]" for part in key.split("."))
    return " and ".join(f"({_test(field, op, want)})" for op, want in operators(value).items())


def _test(field: str, op: str, want: Any) -> str:
    signs = {"$eq": "==", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
    if op in signs:
        return f"{field} {signs[op]} {_literal(want)}"
    if op == "$ne":
        return f"(not (exists {field})) or ({field} != {_literal(want)})"
    if op == "$in":
        return " or ".join(f"({field} == {_literal(one)})" for one in want) or "id == ''"
    if op == "$nin":
        return " and ".join(f"({_test(field, '$ne', one)})" for one in want) or "id != ''"
    if op == "$exists":
        return f"exists {field}" if want else f"not (exists {field})"
    return f"json_contains({field}, {_literal(want)})"


def _literal(value: Any) -> str:
    if not isinstance(value, str | int | float | bool):
        raise OptionError("where", value, "Milvus compares with texts, numbers and truth only")
    if isinstance(value, str) and any(ord(letter) < 32 for letter in value):
        raise OptionError("where", value, "holds a control character")
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def _talking(uri: str) -> Iterator[None]:
    """Turn Milvus's complaints into one line."""
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except MilvusException as error:
        words = " ".join(str(getattr(error, "message", error)).split())
        raise InputError(uri, f"Milvus refuses: {words[:300]}") from error
