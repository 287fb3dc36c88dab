"""An index in Milvus: a local file through milvus-lite, or a server or cluster by its URI.

Rows are ranked as in a folder, but the spread of cosines comes from a fixed sample of 2,000 rows,
and that of BM25 scores from the 2,000 best. What an index learned is not kept there.
"""

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from contrasent import progress
from contrasent.errors import (
    InputError,
    OptionError,
    OutputError,
    UserError,
    import_extra,
    texts_of,
)
from contrasent.files import encoded, write_json, writing
from contrasent.search.filters import Where, check_fields, check_where, ids_in, milvus_expression
from contrasent.search.folder import MILVUS, check_target, in_milvus, row_ids
from contrasent.search.index import PROPOSED, BaseIndex
from contrasent.search.ranking import Candidates, RankedRows, Ranker, Spread
from contrasent.search.records import EncodedRecords, IndexRow, blocks
from contrasent.search.store import Facts, NewRows, Row, check_rows
from contrasent.search.words import K1, B, language_of, name_of
from contrasent.types import EncodeFn, Vectors, batched

LOCAL, COLLECTION = "milvus.db", "contrasent"
TOKEN = "CONTRASENT_MILVUS_TOKEN"  # environment variable with the token of a server
LONGEST, MOST = 65_535, 16_384  # bytes of a text, and rows of an answer, that Milvus takes
EFFORT = 128
COUNT_EVERY = 60.0  # seconds
FIELDS = ("id", "text", "metadata", "vector", "draw", "terms", "words")


class MilvusIndex(BaseIndex):
    """A collection of Milvus as an index; ``facts.generation`` is 0 until it is loaded whole."""

    batch = 1024  # rows that are loaded or requested at once
    sampled, scored, proposed = 2000, 2000, PROPOSED  # rows, see the module

    def __init__(self, folder: Path, facts: Facts) -> None:
        self.sdk = import_extra("pymilvus", "milvus", f"the index {folder}")
        self.folder: Path = folder
        self.facts = facts
        self.uri = facts.settings["uri"] or str(folder / LOCAL)
        self._drawn: Vectors | None = None
        self._counted: tuple[int, float] | None = None  # rows, and when these are counted again
        key = os.environ.get(TOKEN, "")
        self.client = self._translate_errors(self.sdk.MilvusClient, self.uri, token=key)

    @classmethod
    def open(cls, folder: str | Path) -> "MilvusIndex":
        """Connect to the collection that a folder names."""
        facts = _read(Path(folder))
        if not facts.generation:
            raise InputError(str(folder), "was not loaded completely; the same command resumes it")
        opened = cls(Path(folder), facts)
        stated = opened._call("describe_collection").get("description", "")
        if stated and stated != facts.identity:  # a local file keeps no description
            problem = f"{facts.settings['collection']!r} belongs to another index"
            raise InputError(opened.uri, problem)
        opened._call("load_collection")
        return opened

    @classmethod
    def build(
        cls,
        folder: str | Path,
        encode: EncodeFn,
        rows: Iterable[IndexRow] | EncodedRecords,
        facts: Facts,
    ) -> "MilvusIndex":
        """Load rows into a collection, or resume a load of the same rows that was stopped."""
        place, done, index = Path(folder), 0, None
        settings = {"uri": "", "collection": COLLECTION} | facts.settings
        facts = replace(facts, settings=settings, generation=0)
        if not in_milvus(place) or _read(place).generation:
            check_target(place, False)
        with progress.task("index", unit="texts") as advance:
            for block in blocks(rows, cls.batch):
                texts, vectors = block.texts, block.vectors
                names = row_ids(block.ids, len(texts), 0)
                if index is None:
                    given = vectors[:1] if isinstance(vectors, np.ndarray) else encode
                    (vector,) = check_rows(facts, place, NewRows(texts[:1], given))
                    with writing(place):
                        place.mkdir(parents=True, exist_ok=True)
                    language = facts.language or language_of(texts)
                    facts = replace(facts, dimension=len(vector), language=language)
                    index = cls(place, facts)
                    index._begin()
                there = index._stored(names, "text")
                new = [n for n, t in enumerate(texts) if there.get(names[n], {}).get("text") != t]
                given = vectors[new] if isinstance(vectors, np.ndarray) else encode
                columns = (texts, names, block.metadata or [None] * len(texts))
                some, ids, extra = ([column[n] for n in new] for column in columns)
                index._put(NewRows(some, given, ids, extra))
                done += len(names)
                advance(len(names))
        if index is None:
            raise UserError("no texts to index")
        if len(index) != done:
            problem = f"holds {len(index):,} of {done:,} rows: ids are repeated or rows changed"
            raise InputError(index.uri, problem)
        index.facts = replace(index.facts, generation=1)
        write_json(place / MILVUS, asdict(index.facts))
        return index

    def _begin(self) -> None:
        """Make the collection, or resume a killed load, which needs the same settings."""
        resumed, there = in_milvus(self.folder), self._call("has_collection")
        if resumed:
            before = _read(self.folder)
            self.facts = replace(self.facts, identity=before.identity)
            if self.facts != before:
                raise OutputError(f"{self.folder}: was started with other settings; use those")
        elif there:
            raise InputError(self.uri, "already has a collection of that name; choose another")
        if there:
            self._call("load_collection")
            return
        write_json(self.folder / MILVUS, asdict(self.facts))
        sdk, kinds = self.sdk, self.sdk.DataType
        schema = self.client.create_schema(auto_id=False, description=self.facts.identity)
        schema.add_field("id", kinds.VARCHAR, is_primary=True, max_length=LONGEST)
        schema.add_field("text", kinds.VARCHAR, max_length=LONGEST)
        schema.add_field("metadata", kinds.JSON, nullable=True)
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=self.dimension)
        schema.add_field("draw", kinds.INT64)
        schema.add_field("terms", kinds.VARCHAR, max_length=LONGEST, enable_analyzer=True)
        schema.add_field("words", kinds.SPARSE_FLOAT_VECTOR)
        schema.add_function(sdk.Function("bm25", sdk.FunctionType.BM25, ["terms"], ["words"]))
        specs = self.client.prepare_index_params()
        # Milvus-lite opens a graph by faiss alone, and ignores flattened parameters.
        graph = {"params": {"M": 32, "efConstruction": 128}}
        near = "HNSW" if "://" in self.uri else "FLAT"
        specs.add_index("vector", index_type=near, metric_type="IP", params=graph)
        scored, kind = {"params": {"bm25_k1": K1, "bm25_b": B}}, "SPARSE_INVERTED_INDEX"
        specs.add_index("words", index_type=kind, metric_type="BM25", params=scored)
        how = {"schema": schema, "index_params": specs, "consistency_level": "Strong"}
        self._call("create_collection", **how)

    def close(self) -> None:
        """End the connection; a local file is written out."""
        self.client.close()

    def __len__(self) -> int:
        return int(self._call("query", filter="", output_fields=["count(*)"])[0]["count(*)"])

    @property
    def count(self) -> int:
        """Number of rows as of the last minute, or since the last change that was made here."""
        if self._counted is None or time.monotonic() >= self._counted[1]:
            self._counted = len(self), time.monotonic() + COUNT_EVERY
        return self._counted[0]

    def blocks(self) -> Iterator[tuple[list[str], list[str], list[Any], Vectors]]:
        """All rows in Milvus's own order, some at a time: ids, texts, metadata and vectors."""
        walk = self._call("query_iterator", batch_size=self.batch, output_fields=[*FIELDS[:4]])
        while rows := self._translate_errors(walk.next):
            names, texts, extra, vectors = ([row[field] for row in rows] for field in FIELDS[:4])
            yield names, texts, extra, np.array(vectors, dtype=np.float32)

    def every(self) -> Iterator[Row]:
        """All rows, in Milvus's own order."""
        return (Row(-1, *row) for part in self.blocks() for row in zip(*part[:3], strict=True))

    def rows(self, numbers: Sequence[str]) -> list[Row]:
        """Rows by their ids, as :meth:`find` gives them."""
        stored = self._stored(list(numbers), "text", "metadata")
        if len(stored) < len(numbers):
            raise InputError(self.uri, "a row was deleted meanwhile; search again")
        return [Row(-1, n, stored[n]["text"], stored[n]["metadata"]) for n in numbers]

    def matching(self, where: Where) -> str:
        """A filter in Milvus's language."""
        expression = milvus_expression(check_where(where))
        if self.count:
            about = {"limit": 1, "output_fields": ["id"]}
            sampled = (facts for _, _, some, _ in islice(self.blocks(), 1) for facts in some)
            check_fields(
                where,
                lambda one: bool(self._call("query", filter=milvus_expression(one), **about)),
                sampled,
            )
        return expression

    def find(
        self,
        texts: Sequence[str],
        vectors: Vectors,
        k: int,
        ranker: Ranker,
        *,
        allowed: str | None = None,
        all_rows: bool = False,
    ) -> list[RankedRows]:
        """As ``Index.find``, by ids instead of numbers; equal scores in the order of ids."""
        if k > MOST or all_rows:
            raise OptionError("k", k, f"Milvus returns at most {MOST:,} rows, approximately")
        queries = zip(texts, vectors, strict=True)
        return [self._find(text, vector, k, ranker, allowed or "") for text, vector in queries]

    def _find(
        self, text: str, vector: Vectors, k: int, ranker: Ranker, condition: str
    ) -> RankedRows:
        proposed = k if ranker.plain else min(MOST, max(self.proposed, 10 * k))
        cosines, words = self._scores(vector.tolist(), proposed, condition), dict[str, float]()
        dense = sparse = Spread(0.0, 0.0)
        if not ranker.plain:
            # BM25 of the best rows of all, and of the best that match the filter.
            terms, scored = self._terms(text) or "xnoterm", max(self.scored, proposed)
            best = self._scores(terms, scored)
            shared = self._scores(terms, proposed, condition) if condition else best
            words = shared | best  # milvus-lite may score filtered rows differently
            # BM25 of rows that the vector proposed, and cosines of those that words did.
            if len(best) == scored and (unknown := [n for n in cosines if n not in words]):
                words |= self._scores(terms, len(unknown), ids_in(unknown))
            others = [name for name in [*shared][:proposed] if name not in cosines]
            for name, row in self._stored(others, "vector").items():
                cosines[name] = float(np.float32(row["vector"]) @ vector)
            # Mean and spread of both over all rows; a filter does not change the weight of BM25.
            dense = Spread.of(self.sample() @ vector)
            dense = dense._replace(best=max([dense.best, *cosines.values()]))
            sparse = Spread.of_sparse(np.array([*best.values()], np.float32), self.count)
        names = np.array(sorted(cosines), dtype=object)
        near, bm25 = (np.array([d.get(n, 0) for n in names], np.float32) for d in (cosines, words))
        none = np.zeros_like(near)  # its server knows no exact matches
        ranked = ranker.rank(Candidates(names, near, bm25, dense, sparse, none), k)
        return replace(ranked, evidence=self.evidence(ranked.cosines, vector))

    def sample(self) -> Vectors:
        """Vectors of some rows, by a hash of their ids."""
        if self._drawn is None:
            below = (self.sampled << 31) // max(self.sampled, self.count)
            rows = self._call("query", filter=f"draw < {below}", output_fields=["vector"])
            vectors = np.array([row["vector"] for row in rows], np.float32)
            self._drawn = vectors.reshape(-1, self.dimension)
        return self._drawn

    def _scores(self, query: Any, limit: int, condition: str = "") -> dict[str, float]:
        """Scores of the best rows for a vector or for terms, by their ids; best first."""
        words = isinstance(query, str)
        params = {} if words else {"params": {"ef": max(EFFORT, 2 * limit)}}
        about = {"limit": limit, "filter": condition, "search_params": params}
        (hits,) = self._call("search", data=[query], anns_field=FIELDS[-1 if words else 3], **about)
        # Milvus's BM25 has a factor that Lucene's lacks; milvus-lite's is negative.
        scores = {hit["id"]: hit["distance"] for hit in hits}
        return {n: abs(s) / (K1 + 1) for n, s in scores.items()} if words else scores

    def _translate_errors(self, call: Callable[..., Any], *args: Any, **given: Any) -> Any:
        try:
            return call(*args, **given)
        except self.sdk.MilvusException as error:
            raise InputError(self.uri, f"Milvus says: {' '.join(error.message.split())}") from error

    def _call(self, name: str, **given: Any) -> Any:
        where = self.facts.settings["collection"]
        return self._translate_errors(getattr(self.client, name), where, **given)

    def _stored(self, names: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        about = {"output_fields": ["id", *fields]}
        parts = (self._call("query", filter=ids_in(n), **about) for n in batched(names, self.batch))
        return {row["id"]: row for part in parts for row in part}

    def write_rows(self, rows: NewRows, *, replace: bool) -> tuple[int, int]:
        """As ``Writer.write_rows``."""
        rows = rows._replace(texts=texts_of("texts", rows.texts))
        count = len(rows.texts)
        first = 0 if replace else len(self)
        while (there := self._stored(row_ids(rows.ids, count, first))) and rows.ids is None:
            first += count
        if there and not replace:
            raise OptionError("ids", next(iter(there)), "is in the index already; update it")
        self._put(rows._replace(ids=row_ids(rows.ids, count, first)))
        return len(there), count - len(there)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete the rows with these ids; a missing one is an error."""
        there = self._stored(ids := texts_of("ids", ids))
        if unknown := [name for name in ids if name not in there]:
            raise OptionError("ids", unknown[0], "is not in the index")
        return self.delete_where(ids_in(list(there)))

    def delete_where(self, where: Where | str) -> int:
        """Delete the rows whose metadata matches a filter, or a condition of Milvus."""
        before = len(self)
        self._call("delete", filter=where if isinstance(where, str) else self.matching(where))
        self._drawn = self._counted = None
        return before - len(self)

    def _put(self, rows: NewRows) -> None:
        texts, ids, metadata = rows.texts, rows.ids or (), rows.metadata
        if not texts:
            return
        vectors = check_rows(self.facts, self.folder, rows).tolist()
        extra = metadata or [None] * len(texts)
        named = zip(texts, map(name_of, extra), strict=True)
        terms = [self._terms(f"{text}\n{name}".strip()) for text, name in named]
        draws = [zlib.crc32(encoded(name)) >> 1 for name in ids]
        self._drawn = self._counted = None
        columns = zip(ids, texts, extra, vectors, draws, terms, strict=True)
        for part in batched((dict(zip(FIELDS, row, strict=False)) for row in columns), self.batch):
            self._call("upsert", data=part)

    def _terms(self, text: str) -> str:
        """Terms as words that Milvus's simplest analyzer leaves unchanged, cut if too long."""
        if len(encoded(text)) > LONGEST:
            raise UserError(f"{text[:40]!r}... has more than {LONGEST:,} bytes; split it")
        own = self.analyzer(text)
        plain = " ".join(t if t.isascii() and t.isalnum() else f"x{t.encode().hex()}" for t in own)
        return plain if len(plain) <= LONGEST else plain[:LONGEST].rpartition(" ")[0]


def _read(folder: Path) -> Facts:
    try:
        data = json.loads((folder / MILVUS).read_text("utf-8"))
        types = [[type(value) for value in some.values()] for some in (data, asdict(Facts()))]
        if types[0] != types[1] or not {"uri", "collection"} <= {*data["settings"]}:
            raise TypeError("not the description of an index")
        return Facts(**data)
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(folder / MILVUS, f"is missing or damaged ({error})") from error
