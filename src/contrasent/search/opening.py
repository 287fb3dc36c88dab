"""Open index folders, make them from rows, or change their model; stopped runs resume."""

import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np

from contrasent import files, progress
from contrasent.errors import OutputError, UserError
from contrasent.search.folder import (
    KEPT,
    cannot_write,
    check_target,
    check_vectors,
    checksum,
    in_milvus,
    is_any_index,
    may_write,
    wrap_sqlite_errors,
)
from contrasent.search.index import BaseIndex, Index
from contrasent.search.learned import Learned
from contrasent.search.milvus import MilvusIndex
from contrasent.search.ranking import Ranker
from contrasent.search.records import EncodedRecords, IndexRow, blocks
from contrasent.search.store import REPLACING, ROWS_AT_ONCE, Facts
from contrasent.search.writer import Writer, new_index
from contrasent.types import EncodeFn, Vectors, batched, for_task

INSIDE = "index"  # the index in a folder that ``adapt`` left
BATCH_SIZE = 256  # texts that are encoded, and kept, together
MODEL_SETTINGS = ("pooling", "max_seq_length")  # settings of an index that change with its model

_BEGINNING = (
    "PRAGMA locking_mode = EXCLUSIVE",  # until it is closed
    "PRAGMA synchronous = OFF",  # a killed process loses nothing
    "BEGIN EXCLUSIVE",
    "CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, vector BLOB, sum INTEGER)",
    "COMMIT",
)


def resolve_index(folder: str | Path) -> Path:
    """The folder of an index: that one, or the one inside it that ``adapt`` left."""
    place = Path(folder)
    files.recover_folder(place, REPLACING)
    inside = place / INSIDE
    return inside if not is_any_index(place) and is_any_index(inside) else place


def open_index(folder: str | Path) -> BaseIndex:
    """Open an index folder, also one whose rows are in Milvus."""
    place = resolve_index(folder)
    return MilvusIndex.open(place) if in_milvus(place) else Index.open(place)


@contextmanager
def open_writer(folder: str | Path) -> Iterator[Writer | MilvusIndex]:
    """Open an index folder for changes, also one whose rows are in Milvus."""
    place = resolve_index(folder)
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
            if limit is not None and len(writer.store) >= limit:
                break
    return Index(writer.store)


class KeptVectors:
    """Encodes texts and keeps their vectors, so that a stopped run resumes with them."""

    def __init__(
        self,
        index: Path,
        encode: EncodeFn,
        facts: Facts,
        advance: progress.Advance = lambda n=1, **fields: None,
        *,
        at_once: int | None = None,
    ) -> None:
        self.at_once = at_once or BATCH_SIZE
        self.index = files.real_path(index)
        self.folder = self.index.with_name(f".{self.index.name}{KEPT}")
        if self.index.is_dir() and not may_write(self.index.parent):  # as of a volume
            self.folder = self.index / KEPT
        self._read, self._maker = for_task(encode, "document"), f"{facts.model} {facts.source}"
        self.advance = advance

    def __enter__(self) -> Self:
        with files.writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "vectors.db"
        self._database = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            for line in _BEGINNING:
                self._database.execute(line)
        except sqlite3.DatabaseError as error:
            self._database.close()
            problem = cannot_write(str(error)) or f"{path} is damaged; remove it"
            if "locked" in str(error):
                problem = "another process is building it; try again later"
            raise OutputError(f"{self.index}: {problem}") from error
        # Nobody else makes this index now, so leftovers come from a run that was killed.
        files.recover_folder(self.index)
        files.remove_temporaries(self.index.parent, self.index.name)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with closing(self._database), wrap_sqlite_errors(self.folder):
            ((count,),) = self._database.execute("SELECT count(*) FROM kept")
            if kind is None or count < BATCH_SIZE:  # a few are quickly encoded again
                shutil.rmtree(self.folder, ignore_errors=True)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """(n, d) vectors of texts."""
        parts = []
        for some in batched(texts, self.at_once):
            with wrap_sqlite_errors(self.folder):
                parts.append(self._some(some))
            self.advance(len(some))
        return np.concatenate(parts)

    def _some(self, texts: list[str]) -> Vectors:
        keys = [self._key(text) for text in texts]
        vectors = dict[bytes, Vectors]()
        for key in keys:
            stored = self._database.execute("SELECT vector, sum FROM kept WHERE key = ?", (key,))
            for vector, sum_ in stored:
                if checksum(key, vector) == sum_:
                    vectors[key] = np.frombuffer(vector, "<f4")
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
        if missing:
            encoded = check_vectors(self._read([*missing.values()]), len(missing), None, "dot")
            self.put([*missing.values()], encoded)
            vectors |= zip(missing, encoded, strict=True)
        return np.stack([vectors[key] for key in keys])

    def put(self, texts: Iterable[str], vectors: Iterable[Vectors]) -> None:
        """Keep vectors that are known."""
        with wrap_sqlite_errors(self.folder):
            self._database.execute("BEGIN")
            for text, vector in zip(texts, vectors, strict=True):
                key, data = self._key(text), vector.astype("<f4").tobytes()
                row = key, data, checksum(key, data)
                self._database.execute("REPLACE INTO kept VALUES (?, ?, ?)", row)
            self._database.execute("COMMIT")

    def _key(self, text: str) -> bytes:
        return blake2b(f"{self._maker} {text}".encode("utf-8", "replace"), digest_size=16).digest()


def create(
    folder: str | Path,
    encode: EncodeFn,
    rows: Iterable[IndexRow] | EncodedRecords,
    facts: Facts,
    *,
    overwrite: bool = False,
    documents: Mapping[str, dict[str, Any]] | None = None,
    asked: Mapping[str, Any] | None = None,
) -> BaseIndex:
    """Make an index of rows, a batch at a time; with what was ``asked`` for, encoded later."""
    target = Path(folder)
    if isinstance(rows, EncodedRecords):
        rows.check(facts.model, facts.source)
    if "uri" in facts.settings:
        return MilvusIndex.build(target, encode, rows, facts)
    check_target(target, overwrite)
    total = len(rows) if isinstance(rows, list) else None
    title = "Encoding"
    if asked is not None:
        title, facts = "Words", replace(facts, encoding={"rows": 0, **asked})
    with (
        KeptVectors(target, encode, facts) as memo,
        progress.task(title, total, "texts") as memo.advance,
        new_index(target, facts) as writer,
    ):
        for block in blocks(rows, ROWS_AT_ONCE):
            given = memo if block.vectors is None else block.vectors
            writer.write_rows(block._replace(vectors=given), replace=False)
            if asked is not None or block.vectors is not None:
                memo.advance(len(block.texts))
        if not len(writer.store):
            raise UserError("no texts to index")
        writer.set(next_id=len(writer.store))
        writer.put_files(dict(documents or {}))
    return Index.open(target)


def reembed(
    folder: str | Path,
    encode: EncodeFn,
    *,
    model: str,
    source: str = "",
    settings: dict[str, Any] | None = None,
) -> Index:
    """Replace the vectors of an index by those of another model; readers keep the old ones."""
    with Writer(folder) as writer:
        stays = {k: v for k, v in writer.facts.settings.items() if k not in MODEL_SETTINGS}
        about: dict[str, Any] = {"model": model, "source": source}
        about["settings"] = stays | (settings or {})
        with KeptVectors(Path(folder), encode, replace(writer.facts, **about)) as memo:
            writer.rewrite(memo)
            # What was learned belongs to the previous model's vectors.
            weight = Ranker.from_json(writer.facts.ranker).bm25_weight
            writer.set(**about, learned=Learned(), ranker=Ranker(weight))
            writer.commit()
    return Index.open(folder)
