"""A corpus, tokenised once and kept on disk, so that it may be larger than memory.

The folder holds, for each column, flat ids with offsets and flat UTF-8 text with offsets, all
memory-mapped, and ``meta.json``, written last, with a key of corpus and tokenizer.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.files import atomic_folder
from contrasent.text.corpus import Corpus
from contrasent.text.tokens import Tokenizer, lowered
from contrasent.types import Tokens, batched

CHUNK = 8192
FORMAT = 1
NUMBERS: dict[str, type] = {"following": np.int64, "scores": np.float64}
"""Files with a number a row, where the corpus has them."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column on disk."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    text: NDArray[np.uint8]
    text_offsets: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenCache:
    """A tokenised corpus.

    Attributes:
        columns: as many as the corpus is wide.
        truncated: sentences that were cut at the tokenizer's length, over all columns.
        digest: hash of the corpus.
        following: (n,) how many sentences of the same document follow each row, or None where the
            corpus is not in document order.
        scores: (n,) the score of each row, or None where the corpus has none.
    """

    columns: tuple[Column, ...]
    truncated: int
    digest: str
    following: NDArray[np.int64] | None = None
    scores: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.columns[0].offsets) - 1

    def tokens(self, column: int, rows: NDArray[np.int64]) -> Tokens:
        """Token ids of the named rows of a column.

        Args:
            column: from 0.
            rows: (n,) numbers.
        """
        part = self.columns[column]
        return Tokens(part.ids, part.offsets).select(rows)

    def text(self, column: int, row: int) -> str:
        """A sentence as it was read.

        Args:
            column: from 0.
            row: its number.
        """
        part = self.columns[column]
        raw = part.text[part.text_offsets[row] : part.text_offsets[row + 1]]
        return raw.tobytes().decode("utf-8")


def tokenised(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    lower: bool,
    prompts: Sequence[str] = (),
) -> TokenCache:
    """Tokenise a corpus into a folder, or reopen the folder if it holds just that.

    Args:
        corpus: what to read; read through once.
        tokenizer: with its cutting length.
        folder: where the files go.
        lower: lower-case texts before the tokenizer.
        prompts: what is put before (or around) the texts of each column; nothing if empty.

    Raises:
        InputError: the corpus cannot be read; nothing is left behind.
        OutputError: the folder cannot be written.
    """
    digest = corpus.digest()
    content = (
        f"{FORMAT} {digest} {corpus.documents} {lower} {tokenizer.max_tokens} {tokenizer.to_str()}"
    )
    content += f" {[*prompts]}" if any(prompts) else ""
    key = hashlib.sha256(content.encode()).hexdigest()
    meta = folder / "meta.json"
    if not meta.is_file() or json.loads(meta.read_text())["key"] != key:
        _build(corpus, tokenizer, folder, key, lower, prompts or [""] * corpus.width)
    stated = json.loads(meta.read_text())
    columns = tuple(_open(folder, c) for c in range(stated["width"]))
    numbers: list[Any] = [
        np.fromfile(folder / name, kind) if (folder / name).is_file() else None
        for name, kind in NUMBERS.items()
    ]
    return TokenCache(columns, stated["truncated"], digest, *numbers)


def discard(folder: Path) -> None:
    """Remove a cache; it holds the user's text and is not part of a model."""
    shutil.rmtree(folder, ignore_errors=True)


class _Writer:
    """Appends rows of one column to its four files."""

    def __init__(self, folder: Path, column: int) -> None:
        names = ("ids", "offsets", "text", "text_offsets")
        self.files: list[BinaryIO] = [(folder / f"{column}.{n}").open("wb") for n in names]
        self.ends = [0, 0]
        for stream in (self.files[1], self.files[3]):
            stream.write(np.zeros(1, np.int64).tobytes())

    def add(self, tokens: Tokens, texts: list[bytes]) -> None:
        self.files[0].write(tokens.ids.tobytes())
        self.files[2].write(b"".join(texts))
        sizes = (tokens.lengths, np.asarray([len(t) for t in texts], np.int64))
        for i, (stream, lengths) in enumerate(zip(self.files[1::2], sizes, strict=True)):
            ends = self.ends[i] + np.cumsum(lengths)
            stream.write(ends.astype(np.int64).tobytes())
            self.ends[i] = int(ends[-1])

    def close(self) -> None:
        for stream in self.files:
            stream.close()


def _build(
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: Path,
    key: str,
    lower: bool,
    prompts: Sequence[str],
) -> None:
    discard(folder)
    with atomic_folder(folder) as target, progress.task("tokenise", unit="rows") as advance:
        writers = [_Writer(target, c) for c in range(corpus.width)]
        truncated = count = 0
        try:
            for chunk in batched(corpus, CHUNK):
                columns = zip(*chunk, strict=True)
                for writer, texts, first in zip(writers, columns, prompts, strict=True):
                    tokens, cut = tokenizer(*lowered(texts, first) if lower else (texts, first))
                    writer.add(tokens, [t.encode("utf-8") for t in texts])
                    truncated += int(cut.sum())
                count += len(chunk)
                advance(len(chunk))
        finally:
            for writer in writers:
                writer.close()
        if corpus.documents:
            ends = np.asarray([*corpus.starts[1:], count], np.int64)
            sizes = np.diff(ends, prepend=0)
            (target / "following").write_bytes(
                (np.repeat(ends, sizes) - 1 - np.arange(count)).tobytes()
            )
        if corpus.scored:
            (target / "scores").write_bytes(corpus.scores.tobytes())
        meta = {"key": key, "width": corpus.width, "truncated": truncated}
        (target / "meta.json").write_text(json.dumps(meta) + "\n")


def _open(folder: Path, column: int) -> Column:
    def read(name: str, kind: type) -> NDArray[np.generic]:
        path = folder / f"{column}.{name}"
        if path.stat().st_size == 0:
            return np.empty(0, kind)
        return np.memmap(path, dtype=kind, mode="r")

    return Column(
        read("ids", np.int32),  # type: ignore[arg-type]
        np.asarray(read("offsets", np.int64)),
        read("text", np.uint8),  # type: ignore[arg-type]
        np.asarray(read("text_offsets", np.int64)),
    )
