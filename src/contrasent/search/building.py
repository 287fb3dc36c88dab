"""Making an index folder of rows, or its vectors by another model; a run that stops goes on."""

import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from contrasent import files, progress
from contrasent.errors import OutputError, UserError
from contrasent.search.checks import check_target, check_vectors
from contrasent.search.encoded import EncodedRecords
from contrasent.search.folder import LOCK, is_any_index
from contrasent.search.index import Index
from contrasent.search.records import IndexRow
from contrasent.search.store import ROWS_AT_ONCE, Facts
from contrasent.search.writer import Writer
from contrasent.types import EncodeFn, Vectors, batched, for_task

IndexRows = Iterable[IndexRow] | EncodedRecords  # rows to encode, or rows with their vectors
Added = tuple[Vectors | EncodeFn, list[str], list[str], list[Any]]
"""Vectors of some rows, or what makes them; their texts, ids and metadata."""
AT_ONCE = 256  # texts that are encoded, and kept, together
OF_MODEL = ("pooler", "max_tokens")  # settings of an index that are another's with another model


class KeptVectors:
    """Encodes, and keeps the vectors by their texts next to an index until its change is done.

    A run that was stopped at any moment finds what it has encoded when it is started again.
    """

    def __init__(
        self,
        index: Path,
        encode: EncodeFn,
        stated: str,
        known: Mapping[str, Vectors] | None = None,
        advance: progress.Advance = lambda n=1, **fields: None,
    ) -> None:
        """``stated``: all that decides the vectors. ``known``: some, by text."""
        self.index, self.folder = index, index.with_name(f".{index.name}.encoded")
        self._read, self._stated = for_task(encode, "document"), stated
        self._known, self._advance = known or {}, advance
        self._found: dict[bytes, Vectors] = {}
        self._lock = FileLock(self.folder.with_name(f"{self.folder.name}.lock"), timeout=0)

    def __enter__(self) -> Self:
        with files.writing(self.folder):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except Timeout as error:
                problem = "another process is making it; try again when that has ended"
                raise OutputError(f"{self.index}: {problem}") from error
            self.folder.mkdir(exist_ok=True)
        # Nobody else makes this index now, so what lies around is of a run that was killed.
        files.recover_folder(self.index)
        files.remove_temporaries(self.index.parent, self.index.name)
        about, path = self.folder / "about.json", self.folder / "vectors"
        try:
            dimension = json.loads(about.read_text("utf-8"))[self._stated]
            kind = _record(dimension)
            held = np.memmap(path, kind, "r", shape=path.stat().st_size // kind.itemsize)
        except (OSError, ValueError, KeyError, TypeError):  # none, or of another model
            path.unlink(missing_ok=True)
            about.unlink(missing_ok=True)
        else:
            whole = [row["sum"] == zlib.crc32(row["vector"].tobytes()) for row in held]
            good = [*whole, False].index(False)
            keys = (key.tobytes() for key in held["key"][:good])
            self._found = dict(zip(keys, held["vector"][:good], strict=True))
            with path.open("r+b") as stream:
                stream.truncate(good * kind.itemsize)
        self._stream, self._kept = path.open("ab"), len(self._found)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stream.close()
        if kind is None or self._kept < AT_ONCE:  # little is soon encoded again
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """(n, d) vectors of texts."""
        parts = []
        for some in batched(texts, AT_ONCE):
            parts.append(self._some(some))
            self._advance(len(some))
        return np.concatenate(parts)

    def _some(self, texts: list[str]) -> Vectors:
        keys = [blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
        found = [self._known.get(t, self._found.get(k)) for t, k in zip(texts, keys, strict=True)]
        missing = [at for at, vector in enumerate(found) if vector is None]
        if missing:
            made = self._read([texts[at] for at in missing])
            made = check_vectors(made, len(missing), None, "dot")
            self._keep([keys[at] for at in missing], made)
            for at, vector in zip(missing, made, strict=True):
                found[at] = vector
        return np.stack([vector for vector in found if vector is not None])

    def _keep(self, keys: list[bytes], vectors: Vectors) -> None:
        records = np.empty(len(keys), _record(vectors.shape[1]))
        records["key"] = np.frombuffer(b"".join(keys), "V16")
        records["vector"] = vectors
        records["sum"] = [zlib.crc32(row.tobytes()) for row in records["vector"]]
        with files.writing(self.folder):
            if not self._stream.tell():
                about = json.dumps({self._stated: vectors.shape[1]})
                (self.folder / "about.json").write_text(about, "utf-8")
            self._stream.write(records.tobytes())
            self._stream.flush()
        self._kept += len(keys)


def _record(dimension: int) -> np.dtype[Any]:
    return np.dtype([("key", "V16"), ("sum", "<u4"), ("vector", "<f4", (dimension,))])


def create(
    folder: str | Path,
    encode: EncodeFn,
    rows: IndexRows,
    facts: Facts,
    *,
    overwrite: bool = False,
    batch: int = ROWS_AT_ONCE,
    total: int | None = None,
    stated: str | None = None,
    documents: Mapping[str, dict[str, Any]] | None = None,
) -> Index:
    """Make an index of rows, with memory for one batch of them; it appears when all is done.

    ``total``: rows, if that is known. ``stated``: all that decides the vectors, to keep those of a
    run that is stopped. ``documents``: facts of the files that the rows come from.
    """
    target = Path(folder)
    check_target(target, overwrite, is_index=is_any_index(target))
    with ExitStack() as stack:
        advance = stack.enter_context(progress.task("Encoding", total, "texts"))
        if stated is not None:
            kept = KeptVectors(target, encode, stated, advance=advance)
            encode = stack.enter_context(kept)
        temporary = stack.enter_context(files.atomic_folder(target))
        with Writer(temporary, new=facts) as writer:
            for vectors, texts, ids, metadata in _blocks(rows, encode, batch):
                writer.add(texts, vectors, ids=ids, metadata=metadata)
                if stated is None:
                    advance(len(texts))
            if not len(writer):
                raise UserError("there are no texts to index")
            writer.set(next_id=len(writer))
            writer.put_files(dict(documents or {}))
        (temporary / LOCK).unlink(missing_ok=True)
    return Index.open(target)


def _blocks(rows: IndexRows, encode: EncodeFn, batch: int) -> Iterator[Added]:
    """Rows a batch at a time; those without an id have their number."""
    if isinstance(rows, EncodedRecords):
        yield from rows.blocks(batch)
        return
    first = 0
    for part in batched(rows, batch):
        texts, ids, metadata = map(list, zip(*part, strict=True))
        names = [str(first + at) if name is None else name for at, name in enumerate(ids)]
        yield encode, texts, names, metadata
        first += len(part)


def reembed(
    folder: str | Path,
    encode: EncodeFn,
    *,
    model: str,
    source: str = "",
    settings: dict[str, Any] | None = None,
) -> Index:
    """Put the vectors of another model in the place of an index's own, all else as it is.

    Readers keep the old vectors until the transaction that names the new ones; other writers wait.
    """
    with Writer(folder) as writer:
        size = for_task(encode, "document")(["a text"]).nbytes
        files.check_writable(Path(folder), 2 * size * len(writer))
        with KeptVectors(Path(folder), encode, f"{model} {writer.facts.identity}") as kept:
            writer.rewrite(kept)
            stays = {k: v for k, v in writer.facts.settings.items() if k not in OF_MODEL}
            writer.set(model=model, source=source, settings=stays | (settings or {}))
            writer.commit()
    return Index.open(folder)
