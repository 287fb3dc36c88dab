"""A corpus, tokenized once and kept on disk, so that it may be larger than memory.

One mapped file, renamed into place when it is whole. For every text its token ids and then the text
itself, row after row; after all of them the places where each begins, and the numbers of the rows.
The file ends with a description of its parts, and the eight bytes of that one's length.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from contrasent import progress
from contrasent.files import atomic_file, remove_temporaries, writing
from contrasent.text.corpus import Corpus
from contrasent.text.tokens import Tokenizer, lowered, row_keys
from contrasent.types import Tokens, batched

FORMAT = 4
CHUNK = 8192  # rows tokenized at once
WORD = 4  # bytes of an id; texts are filled up to it with NUL, which none holds


class TokenCache:
    """A tokenized corpus, opened by :func:`tokenized`.

    ``width``: texts in a row. ``cut``: texts that are longer than the tokenizer allows, over all
    columns. ``following``: (n,) how many sentences of the same document follow each row, or None
    where the corpus is not in document order. ``scores``: (n,) the score of each row, or None where
    the corpus has none. ``parts``: (n,) which of several joined corpora each row is of, or None
    where it is one.
    """

    def __init__(self, path: Path) -> None:
        """Map the file."""
        with path.open("rb") as file:
            file.seek(-8, 2)
            size = int.from_bytes(file.read(8), "little")
            file.seek(-8 - size, 2)
            stated = json.loads(file.read(size))
        whole = np.memmap(path, np.uint8, "r")

        def numbers(name: str) -> NDArray[Any]:
            kind, begin, end = stated["arrays"][name]
            return whole[begin:end].view(kind)

        self.folder = path.parent
        self.width, self.cut = int(stated["width"]), int(stated["cut"])
        self.digest = str(stated["digest"])
        self._cells = numbers("cells")
        self._starts = numbers("starts")  # of each text's ids and of its letters, and the end
        there = stated["arrays"]
        self.following = numbers("following") if "following" in there else None
        self.scores = numbers("scores") if "scores" in there else None
        self.parts = numbers("parts") if "parts" in there else None

    def __len__(self) -> int:
        return len(self._starts) // (2 * self.width)

    def tokens(self, column: int, rows: NDArray[np.int64]) -> Tokens:
        """Token ids of the named rows of a column."""
        at = 2 * (rows * self.width + column)
        bounds = zip(self._starts[at].tolist(), self._starts[at + 1].tolist(), strict=True)
        return Tokens.from_rows([self._cells[begin:end] for begin, end in bounds])

    def text(self, column: int, row: int) -> str:
        """A sentence as it was read."""
        at = 2 * (row * self.width + column) + 1
        letters = self._cells[self._starts[at] : self._starts[at + 1]]
        return letters.tobytes().rstrip(b"\0").decode("utf-8")

    def lengths(self, column: int) -> NDArray[np.int64]:
        """(n,) tokens of every row of a column."""
        starts = self._starts[2 * column :: 2 * self.width][: len(self)]
        ends = self._starts[2 * column + 1 :: 2 * self.width]
        lengths: NDArray[np.int64] = ends - starts
        return lengths

    def keys(self) -> NDArray[np.uint64]:
        """(n, columns) numbers of the texts, equal for equal tokens."""
        found = np.empty((len(self), self.width), np.uint64)
        for rows in batched(range(len(self)), CHUNK):
            for column in range(self.width):
                tokens = self.tokens(column, np.asarray(rows))
                found[rows[0] : rows[-1] + 1, column] = row_keys(tokens)
        return found

    def discard(self) -> None:
        """Remove the cache; it holds the user's text and is not part of a model."""
        shutil.rmtree(self.folder, ignore_errors=True)


def tokenized(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    lower: bool,
    prompts: Sequence[str] = (),
    shared: bool = False,
) -> TokenCache:
    """Tokenize a corpus into a folder, which others use too if ``shared``, unless it is there."""
    digest, prompts = corpus.digest(), [*prompts] or [""] * corpus.width
    how = [tokenizer.to_str(), tokenizer.names, tokenizer.max_seq_length, lower, prompts]
    content = json.dumps([FORMAT, digest, corpus.documents, how], sort_keys=True)
    name = f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.tokens"
    path = folder / name
    if not path.is_file() and not shared:
        shutil.rmtree(folder, ignore_errors=True)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")) if shared else nullcontext():
        if not path.is_file():
            remove_temporaries(folder, name)
            with atomic_file(path, "wb") as file, TemporaryFile(dir=folder) as starts:
                _write(corpus, tokenizer, file, starts, lower, prompts, digest)
    return TokenCache(path)


def _write(
    corpus: Corpus,
    tokenizer: Tokenizer,
    file: IO[bytes],
    starts: IO[bytes],
    lower: bool,
    prompts: Sequence[str],
    digest: str,
) -> None:
    """Write the file of a corpus; ``starts`` holds what will follow the texts."""
    count = position = cut = 0
    starts.write(np.zeros(1, np.int64).tobytes())
    with progress.task("tokenize", unit="rows") as advance:
        for chunk in batched(corpus, CHUNK):
            columns = list[list[bytes]]()
            for texts, prompt in zip(zip(*chunk, strict=True), prompts, strict=True):
                tokens, over = tokenizer(*(lowered(texts, prompt) if lower else (texts, prompt)))
                cut += int(over.sum())
                columns += [[tokens[row].tobytes() for row in range(len(texts))]]
                letters = [text.encode("utf-8") for text in texts]
                columns += [[one + b"\0" * (-len(one) % WORD) for one in letters]]
            blocks = [block for row in zip(*columns, strict=True) for block in row]
            sizes = np.fromiter(map(len, blocks), np.int64, len(blocks))
            ends = position + np.cumsum(sizes) // WORD
            file.write(b"".join(blocks))
            starts.write(ends.tobytes())
            position = int(ends[-1])
            count += len(chunk)
            advance(len(chunk))
    arrays: dict[str, list[Any]] = {"cells": ["i4", 0, file.tell()]}
    file.write(b"\0" * (-file.tell() % 8))
    begin = file.tell()
    starts.seek(0)
    shutil.copyfileobj(starts, file, 1 << 20)
    arrays["starts"] = ["i8", begin, file.tell()]
    for name, values in _numbers(corpus, count):
        begin = file.tell()
        file.write(values.tobytes())
        arrays[name] = [values.dtype.str, begin, file.tell()]
    stated = {"width": corpus.width, "cut": cut, "digest": digest, "arrays": arrays}
    description = json.dumps(stated).encode()
    file.write(description + len(description).to_bytes(8, "little"))


def _numbers(corpus: Corpus, count: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """What the rows have besides texts, by the names of :class:`TokenCache`."""
    if corpus.documents:
        stops = np.asarray([*corpus.starts[1:], count], np.int64)
        yield "following", np.repeat(stops, np.diff(stops, prepend=0)) - 1 - np.arange(count)
    if corpus.scored:
        yield "scores", corpus.scores
    if len(corpus.parts) > 1:
        sizes = np.diff([*corpus.parts, count])
        yield "parts", np.repeat(np.arange(len(sizes)), sizes)
