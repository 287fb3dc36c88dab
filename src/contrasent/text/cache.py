"""A corpus, tokenised once and kept on disk, so that it may be larger than memory.

Memory-mapped: the text of each column with offsets, and token ids in shards, each renamed when
whole. Processes make the shards; a row whose shard is not there yet is tokenised when wanted.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from filelock import FileLock
from numpy.typing import NDArray

from contrasent import processes, progress
from contrasent.errors import UserError
from contrasent.files import atomic_file, atomic_folder, writing
from contrasent.text.corpus import Corpus
from contrasent.text.tokens import Tokenizer, lowered, row_keys
from contrasent.types import Tokens, batched

FORMAT = 3
SHARD, SHARDS = 131_072, 64
"""The fewest rows of a shard, and the most shards: each is a mapped file that stays open."""
WAITED_FOR = 4_000_000
"""Rows of a corpus that is tokenised before the training begins; a larger one is meanwhile."""
NUMBERS: dict[str, type] = {"following": np.int64, "scores": np.float64, "parts": np.int64}
"""Files with a number a row, where the corpus has them."""
CHUNK = 8192  # rows tokenised at once

Tokenise = Callable[[Sequence[str]], tuple[Tokens, NDArray[np.bool_]]]


class Column:
    """One column on disk."""

    def __init__(self, folder: Path, number: int, size: int, tokenise: Tokenise) -> None:
        self.folder, self.number, self.size, self.tokenise = folder, number, size, tokenise
        self._text = _mapped(folder / f"{number}.text", np.uint8)
        self._ends = _mapped(folder / f"{number}.text_offsets", np.int64)
        self._shards: dict[int, tuple[Tokens, int]] = {}

    def __len__(self) -> int:
        return len(self._ends) - 1

    def text(self, row: int) -> str:
        """A sentence as it was read."""
        return self._text[self._ends[row] : self._ends[row + 1]].tobytes().decode("utf-8")

    def shard(self, number: int) -> tuple[Tokens, int] | None:
        """A shard's tokens, mapped, and how many of its rows were cut; None if it is not there."""
        path = self._path(number)
        if number not in self._shards and path.is_file():
            head = _mapped(path, np.int64, len(self.rows(number)) + 2)
            ids = _mapped(path, np.int32, begin=head.nbytes)
            self._shards[number] = Tokens(ids, head[1:]), int(head[0])
        return self._shards.get(number)

    def tokens(self, rows: NDArray[np.int64]) -> Tokens:
        """Token ids of the named rows; those of missing shards are made now."""
        ids: dict[int, NDArray[np.int32]] = {}
        for row in rows.tolist():
            if (shard := self.shard(row // self.size)) is not None:
                ids[row] = shard[0][row % self.size]
        missing = [row for row in dict.fromkeys(rows.tolist()) if row not in ids]
        if missing:
            fresh, _ = self.tokenise([self.text(row) for row in missing])
            ids |= {row: fresh[at] for at, row in enumerate(missing)}
        return Tokens.from_rows(ids[row] for row in rows.tolist())

    def rows(self, number: int) -> range:
        """Rows of a shard."""
        first = number * self.size
        return range(first, min(first + self.size, len(self)))

    @contextmanager
    def writing(self, number: int) -> Iterator[Callable[[Tokens, NDArray[np.bool_]], None]]:
        """Write a shard from the tokens of its rows, in order, and which were cut."""
        head = np.zeros(len(self.rows(number)) + 2, np.int64)  # rows that were cut, then offsets
        position = 1
        with atomic_file(self._path(number), "wb") as stream:
            stream.write(head.tobytes())

            def write(tokens: Tokens, cut: NDArray[np.bool_]) -> None:
                nonlocal position
                stream.write(tokens.ids.tobytes())
                head[0] += cut.sum()
                head[position + 1 : position + 1 + len(cut)] = head[position] + tokens.offsets[1:]
                position += len(cut)

            yield write
            stream.seek(0)
            stream.write(head.tobytes())

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.number}.{number:02d}.tokens"


class TokenCache:
    """A tokenised corpus, opened by :func:`tokenised`.

    ``columns``: as many as the corpus is wide. ``following``: (n,) how many sentences of the same
    document follow each row, or None where the corpus is not in document order. ``scores``: (n,)
    the score of each row, or None where the corpus has none. ``parts``: (n,) which of several
    joined corpora each row is of, or None where it is one.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer | None = None) -> None:
        """Open the folder; shards that are missing stay so."""
        stated = json.loads((folder / "meta.json").read_text("utf-8"))
        how = stated["how"]
        if tokenizer is None:
            backend = tokenizers.Tokenizer.from_str(how["tokenizer"])
            tokenizer = Tokenizer(backend, max_tokens=how["max_tokens"], names=how["names"])

        def tokenise(prompt: str) -> Tokenise:
            if how["lower"]:
                return lambda texts: tokenizer(*lowered(texts, prompt))
            return partial(tokenizer, prompt=prompt)

        self.folder, self.digest = folder, str(stated["digest"])
        self.columns = tuple(
            Column(folder, number, stated["shard"], tokenise(prompt))
            for number, prompt in enumerate(how["prompts"])
        )
        numbers = [
            _mapped(folder / name, kind) if (folder / name).is_file() else None
            for name, kind in NUMBERS.items()
        ]
        self.following: NDArray[np.int64] | None = numbers[0]
        self.scores: NDArray[np.float64] | None = numbers[1]
        self.parts: NDArray[np.int64] | None = numbers[2]
        self._workers: list[subprocess.Popen[bytes]] = []

    def __len__(self) -> int:
        return len(self.columns[0])

    def tokens(self, column: int, rows: NDArray[np.int64]) -> Tokens:
        """Token ids of the named rows of a column."""
        return self.columns[column].tokens(rows)

    def text(self, column: int, row: int) -> str:
        """A sentence as it was read."""
        return self.columns[column].text(row)

    def lengths(self, column: int) -> NDArray[np.int64]:
        """(n,) tokens of every row of a column; waits until all shards are there."""
        self.make()
        shards = [self.columns[column].shard(k) for c, k in self._parts() if c == column]
        return np.concatenate([shard[0].lengths for shard in shards if shard is not None])

    def keys(self) -> NDArray[np.uint64]:
        """(n, columns) numbers of the texts, equal for equal tokens; waits as `lengths` does."""
        self.make()
        columns: list[list[NDArray[np.uint64]]] = [[] for _ in self.columns]
        for c, k in self._parts():
            shard = self.columns[c].shard(k)
            columns[c] += [row_keys(shard[0])] if shard is not None else []
        return np.stack([np.concatenate(parts) for parts in columns], axis=1)

    @property
    def truncated(self) -> int | None:
        """Sentences cut at the tokenizer's length, over all columns; None if nobody waited."""
        if len(self) > WAITED_FOR:
            return None
        shards = [self.columns[c].shard(k) for c, k in self._parts()]
        return sum(shard[1] for shard in shards if shard is not None)

    def start(self) -> None:
        """Start other processes that make the missing shards, if that is worth it."""
        missing = self._missing(self._parts())
        count = min(processes.usable_cores(), len(missing))
        if count < (1 if len(self) > WAITED_FOR else 2) or self._workers:
            return
        command = [sys.executable, "-c", "from contrasent.text.cache import _work; _work()"]
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "PYTHONSAFEPATH": "1"}
        for number in range(count):
            parts = json.dumps(missing[number::count])
            arguments = [str(self.folder.absolute()), parts, str(os.getpid())]
            self._workers.append(
                subprocess.Popen(
                    command + arguments,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is this process's to answer
                )
            )
        weakref.finalize(self, _stop, self._workers)

    def make(
        self, parts: Sequence[tuple[int, int]] | None = None, parent: int | None = None
    ) -> None:
        """Make the shards that are missing, or wait for them where other processes make them."""
        parts = self._parts() if parts is None else parts
        missing = self._missing(parts)
        rows = sum(len(self.columns[c].rows(k)) for c, k in parts)
        with progress.task("tokenise", rows, "rows") as advance:
            advance(rows - sum(len(self.columns[c].rows(k)) for c, k in missing))
            for c, k in missing:
                column = self.columns[c]
                while column.shard(k) is None and any(w.poll() is None for w in self._workers):
                    time.sleep(0.02)
                if column.shard(k) is not None:
                    advance(len(column.rows(k)))
                    continue
                with column.writing(k) as write:
                    for chunk in batched(column.rows(k), CHUNK):
                        if parent not in (None, os.getppid()):
                            raise SystemExit(1)
                        write(*column.tokenise([column.text(row) for row in chunk]))
                        advance(len(chunk))

    def discard(self) -> None:
        """Remove the cache; it holds the user's text and is not part of a model."""
        _stop(self._workers)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _parts(self) -> list[tuple[int, int]]:
        """Columns and shards, in the order in which they are made."""
        shards = range(-(-len(self) // self.columns[0].size))
        return [(c, k) for k in shards for c in range(len(self.columns))]

    def _missing(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(c, k) for c, k in parts if self.columns[c].shard(k) is None]


def tokenised(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    lower: bool,
    prompts: Sequence[str] = (),
    workers: bool = True,
    shared: bool = False,
) -> TokenCache:
    """Tokenise a corpus into a folder, or go on with the folder if it holds just that."""
    digest = corpus.digest()
    how = {
        "tokenizer": tokenizer.to_str(),
        "names": tokenizer.names,
        "max_tokens": tokenizer.max_tokens,
        "lower": lower,
        "prompts": [*prompts] or [""] * corpus.width,
    }
    content = json.dumps([FORMAT, digest, corpus.documents, how], sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()
    if shared:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        folder = folder / key[:32]
    meta = folder / "meta.json"
    with FileLock(folder.with_suffix(".lock")) if shared else nullcontext():
        if not meta.is_file() or json.loads(meta.read_text("utf-8"))["key"] != key:
            _write_text(corpus, folder, {"key": key, "digest": digest, "how": how})
    cache = TokenCache(folder, tokenizer)
    if workers:
        cache.start()
    if len(cache) <= WAITED_FOR:
        cache.make()
    return cache


def _write_text(corpus: Corpus, folder: Path, stated: dict[str, Any]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with atomic_folder(folder) as target, progress.task("read", unit="rows") as advance:
        count, ends = 0, [0] * corpus.width
        with ExitStack() as stack:
            texts, offsets = (
                [
                    stack.enter_context((target / f"{column}.{name}").open("wb"))
                    for column in range(corpus.width)
                ]
                for name in ("text", "text_offsets")
            )
            for stream in offsets:
                stream.write(np.zeros(1, np.int64).tobytes())
            for chunk in batched(corpus, CHUNK):
                for column, cells in enumerate(zip(*chunk, strict=True)):
                    encoded = [text.encode("utf-8") for text in cells]
                    stops = ends[column] + np.cumsum([len(text) for text in encoded])
                    texts[column].write(b"".join(encoded))
                    offsets[column].write(stops.astype(np.int64).tobytes())
                    ends[column] = int(stops[-1])
                count += len(chunk)
                advance(len(chunk))
        if corpus.documents:
            stops = np.asarray([*corpus.starts[1:], count], np.int64)
            following = np.repeat(stops, np.diff(stops, prepend=0)) - 1 - np.arange(count)
            (target / "following").write_bytes(following.tobytes())
        if corpus.scored:
            (target / "scores").write_bytes(corpus.scores.tobytes())
        if len(corpus.parts) > 1:
            sizes = np.diff([*corpus.parts, count])
            (target / "parts").write_bytes(np.repeat(np.arange(len(sizes)), sizes).tobytes())
        stated |= {"shard": max(SHARD, -(-count // SHARDS))}
        (target / "meta.json").write_text(json.dumps(stated) + "\n", "utf-8")


def _mapped(path: Path, kind: Any, count: int | None = None, begin: int = 0) -> NDArray[Any]:
    """A file's numbers from a byte on, mapped; an empty file cannot be."""
    if path.stat().st_size <= begin:
        return np.empty(0, kind)
    shape = None if count is None else (count,)
    return np.memmap(path, dtype=kind, mode="r", offset=begin, shape=shape)


def _stop(workers: list["subprocess.Popen[bytes]"]) -> None:
    for worker in workers:
        worker.kill()
        worker.wait()
    workers.clear()


def _work() -> None:
    """Make some shards: a process of :meth:`TokenCache.start`."""
    folder, parts, parent = sys.argv[1:4]
    with suppress(AttributeError, OSError):
        os.nice(10)  # the training comes first
    with suppress(UserError, FileNotFoundError):  # whoever waits for it makes it, and reports why
        progress.show("silent")
        cache = TokenCache(Path(folder))
        cache.make([(column, shard) for column, shard in json.loads(parts)], int(parent))
