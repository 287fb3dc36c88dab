"""The few types that all packages share.

``EncodeFn`` is all that evaluation, search and serving see of a model.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""(n, d) float32; row i belongs to text i."""

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

EncodeFn = Callable[[Sequence[str]], Vectors]
"""A function from texts to vectors (n, d), in the same order."""

Log = Callable[[str], None]
"""Takes a line about a step of long work, for the user."""

Task = Literal["query", "document"]  # the role of a text in a search


Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of up to ``size`` items (``itertools.batched`` from Python 3.12 on)."""
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch


def several(given: str | Sequence[str]) -> list[str]:
    """One or several strings, as a list."""
    return [given] if isinstance(given, str) else [*given]


def composed(text: str) -> str:
    """A text in Unicode's composed form, in which names are compared: disks write "ö" in two."""
    return unicodedata.normalize("NFC", text)


def forms_of(text: str) -> list[str]:
    """A text as it is, composed and decomposed, each once: the forms that a stored one may have."""
    return [*dict.fromkeys([text, composed(text), unicodedata.normalize("NFD", text)])]


def for_task(encode: EncodeFn, task: Task) -> EncodeFn:
    """The encoder of queries or documents: ``encode`` itself, unless it has prompts for them.

    The method ``encode`` of an encoder has the prompts of that encoder.
    """
    if method := getattr(encode, "for_task", None):
        return cast(EncodeFn, method(task))
    encoder = encoder_of(encode)
    prompts: Any = getattr(encoder, "prompts", None)
    if encode != getattr(encoder, "encode", None) or not hasattr(prompts, "of_task"):
        return encode
    text = prompts.of_task(task)
    return encode if text == prompts.text() else partial(cast(Any, encode), prompt=text)


def encoder_of(encode: object) -> Any:
    """The encoder that a function belongs to, or None."""
    owner = getattr(encode, "__self__", getattr(encode, "encoder", None))
    return owner if hasattr(type(owner), "identity") else None


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Rows of token ids of different lengths, in one flat array, with special tokens.

    Attributes:
        ids: (total,) int32, one row after the other.
        offsets: (n + 1,) int64; row i is ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int] | NDArray[np.int32]]) -> "Tokens":
        """Build from rows of ids."""
        arrays = [np.asarray(row, dtype=np.int32) for row in rows]
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(a) for a in arrays], out=offsets[1:])
        ids = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int32)
        return cls(ids, offsets)

    @classmethod
    def concatenate(cls, parts: Sequence["Tokens"]) -> "Tokens":
        """Concatenate the rows of several blocks."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([part.lengths for part in parts])
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        ids = np.concatenate([part.ids[part.offsets[0] : part.offsets[-1]] for part in parts])
        return cls(ids, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) int64, the number of tokens in each row."""
        return np.diff(self.offsets)

    def select(self, rows: NDArray[np.int64]) -> "Tokens":
        """These rows, in this order."""
        return Tokens.from_rows(self[int(row)] for row in rows)

    def pad(self, fill: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Padded ids (n, longest), int64, and the mask (n, longest), true on real tokens."""
        lengths = self.lengths
        width = int(lengths.max()) if len(lengths) else 0
        mask = np.arange(width) < lengths[:, None]
        ids = np.full(mask.shape, fill, dtype=np.int64)
        ids[mask] = self.ids[self.offsets[0] : self.offsets[-1]]
        return ids, mask


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One training batch of a process.

    Attributes:
        columns: one block of n rows for each view of the sentence, or for each column of a corpus
            of pairs: anchors, positives, then hard negatives.
        rows: (n,) int64, the rows of the corpus.
        step: number of the optimizer step, from 0.
        seed: seed of the run. Random numbers for a row depend on (seed, step, row).
        scores: (n,) float64, how similar the texts of each row are, in the corpus's unit; None
            without scores.
        unedited: the columns of the views before those rewrote them; ``columns`` if None.
    """

    columns: tuple[Tokens, ...]
    rows: NDArray[np.int64]
    step: int
    seed: int = 0
    scores: NDArray[np.float64] | None = None
    unedited: tuple[Tokens, ...] | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked of a model or an index."""

    check: str  # such as "pooling", "precision" or "words"
    good: bool
    message: str  # what was found, and what to do about it
