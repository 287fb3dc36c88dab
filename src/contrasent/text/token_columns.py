"""One column of a token cache: its text in one file, the ids in files of a shard of rows each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from contrasent.files import atomic_file
from contrasent.types import Tokens

CHUNK = 8192
"""Rows tokenised at once."""

Tokenise = Callable[[Sequence[str]], tuple[Tokens, NDArray[np.bool_]]]


class Column:
    """One column on disk."""

    def __init__(self, folder: Path, number: int, size: int, tokenise: Tokenise) -> None:
        self.folder, self.number, self.size, self.tokenise = folder, number, size, tokenise
        self._text = mapped(folder / f"{number}.text", np.uint8)
        self._ends = mapped(folder / f"{number}.text_offsets", np.int64)
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
            count = min(self.size, len(self) - number * self.size)
            head = mapped(path, np.int64, count + 2)
            ids = mapped(path, np.int32, begin=head.nbytes)
            self._shards[number] = Tokens(ids, head[1:]), int(head[0])
        return self._shards.get(number)

    def tokens(self, rows: NDArray[np.int64]) -> Tokens:
        """Token ids of the named rows; those of shards that are not there are made now."""
        found: dict[int, NDArray[np.int32]] = {}
        for row in rows.tolist():
            if (shard := self.shard(row // self.size)) is not None:
                found[row] = shard[0][row % self.size]
        missing = [row for row in dict.fromkeys(rows.tolist()) if row not in found]
        if missing:
            made, _ = self.tokenise([self.text(row) for row in missing])
            found |= {row: made[at] for at, row in enumerate(missing)}
        return Tokens.from_rows(found[row] for row in rows.tolist())

    def rows(self, number: int) -> range:
        """Rows of a shard."""
        first = number * self.size
        return range(first, min(first + self.size, len(self)))

    @contextmanager
    def writing(self, number: int) -> Iterator[Callable[[Tokens, NDArray[np.bool_]], None]]:
        """Write a shard from the tokens of its rows, in order, and which were cut."""
        head = np.zeros(len(self.rows(number)) + 2, np.int64)  # rows that were cut, then offsets
        at = 1
        with atomic_file(self._path(number), "wb") as stream:
            stream.write(head.tobytes())

            def write(tokens: Tokens, cut: NDArray[np.bool_]) -> None:
                nonlocal at
                stream.write(tokens.ids.tobytes())
                head[0] += cut.sum()
                head[at + 1 : at + 1 + len(cut)] = head[at] + tokens.offsets[1:]
                at += len(cut)

            yield write
            stream.seek(0)
            stream.write(head.tobytes())

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.number}.{number:02d}.tokens"


class TextWriter:
    """Appends texts of one column to its two files."""

    def __init__(self, folder: Path, column: int) -> None:
        self.text: BinaryIO = (folder / f"{column}.text").open("wb")
        self.ends: BinaryIO = (folder / f"{column}.text_offsets").open("wb")
        self.ends.write(np.zeros(1, np.int64).tobytes())
        self.end = 0

    def add(self, texts: Sequence[str]) -> None:
        """Append texts."""
        encoded = [text.encode("utf-8") for text in texts]
        ends = self.end + np.cumsum([len(text) for text in encoded], dtype=np.int64)
        self.text.write(b"".join(encoded))
        self.ends.write(ends.tobytes())
        self.end = int(ends[-1])

    def close(self) -> None:
        """Close the files."""
        self.text.close()
        self.ends.close()


def mapped(path: Path, kind: Any, count: int | None = None, begin: int = 0) -> NDArray[Any]:
    """A file's numbers, mapped; an empty file cannot be.

    ``begin``: bytes before them.
    """
    if path.stat().st_size <= begin:
        return np.empty(0, kind)
    shape = None if count is None else (count,)
    return np.memmap(path, dtype=kind, mode="r", offset=begin, shape=shape)
