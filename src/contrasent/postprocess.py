"""Baselines that need no model, and post-processing of a model's vectors.

Averaged word vectors are the oldest baseline of every table (SimCSE, Table 5): Reimers and Gurevych
(2019, 61.32) drop stop words and strip punctuation; SentEval keeps every token that has a vector.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.errors import DataError, InputError, OptionError
from contrasent.types import Vectors

Floats = NDArray[np.float64]

STOP_WORDS = frozenset(
    """a about above after again against ain all am an and any are aren aren't as at be because been
    before being below between both but by can could couldn couldn't d did didn didn't do does doesn
    doesn't doing don don't down during each few for from further had hadn hadn't has hasn hasn't
    have haven haven't having he he'd he'll he's her here here's hers herself him himself his how
    how's i i'd i'll i'm i've if in into is isn isn't it it'd it'll it's its itself just ll let's m
    ma me mightn mightn't more most mustn mustn't my myself needn needn't no nor not now o of off on
    once only or other ought our ours ourselves out over own re s same shan shan't she she'd she'll
    she's should should've shouldn shouldn't so some such t than that that'll that's the their
    theirs them themselves then there there's these they they'd they'll they're they've this those
    through to too under until up ve very was wasn wasn't we we'd we'll we're we've were weren
    weren't what what's when when's where where's which while who who's whom why why's will with won
    won't would wouldn wouldn't y you you'd you'll you're you've your yours yourself
    yourselves""".split()  # noqa: SIM905 - a list of 180 strings would hide the words
)
"""English function words; the published scores used a list much like it."""


class Glove:
    """An ``EncodeFn``: the mean of the vectors of a sentence's words."""

    def __init__(
        self, words: Sequence[str], vectors: NDArray[np.float32], *, stop_words: bool = False
    ) -> None:
        self.row = {word: i for i, word in enumerate(words)}
        self.vectors = vectors
        self.stop_words = stop_words

    @classmethod
    def load(cls, path: Path, *, stop_words: bool = False) -> "Glove":
        """Read the published text format: a word and its numbers a line, with spaces between.

        A first line with two numbers (word2vec's text format) is skipped.
        """
        if not path.is_file():
            raise InputError(path, "no such file; GloVe vectors are a text file")
        words: list[str] = []
        rows: list[NDArray[np.float32]] = []
        width = 0
        with path.open(encoding="utf-8") as stream, progress.task("GloVe", unit="words") as advance:
            try:
                for number, line in enumerate(stream, start=1):
                    columns = line.rstrip().split(" ")
                    if number == 1 and len(columns) == 2:
                        continue
                    width = width or len(columns) - 1
                    # A few published words hold spaces: the numbers are the last columns.
                    word = " ".join(columns[:-width])
                    row = np.array(columns[-width:], dtype=np.float32)
                    if not word or len(row) != width or not np.isfinite(row).all():
                        raise ValueError
                    words.append(word)
                    rows.append(row)
                    advance(1)
            except UnicodeDecodeError as error:
                raise InputError(path, "not UTF-8", line=len(words) + 1) from error
            except ValueError as error:
                raise InputError(
                    path, f"expected a word and {width} numbers", line=number
                ) from error
        if not rows:
            raise InputError(path, "contains no words")
        return cls(words, np.stack(rows), stop_words=stop_words)

    def __call__(self, sentences: Sequence[str]) -> Vectors:
        """(n, d) mean vectors."""
        out = np.zeros((len(sentences), self.vectors.shape[1]), dtype=np.float32)
        for i, sentence in enumerate(sentences):
            rows = [row for word in sentence.split() if (row := self._find(word)) is not None]
            if rows:
                out[i] = self.vectors[rows].mean(axis=0)
        return out

    def _find(self, word: str) -> int | None:
        if self.stop_words:
            return self.row.get(word)
        for form in (word, word.lower(), word.strip(string.punctuation).lower()):
            if form.lower() in STOP_WORDS:
                return None
            if form in self.row:
                return self.row[form]
        return None


NO_VARIANCE = 1e-10
"""Variances below this share of the largest are noise; their directions cannot be stretched."""


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """x -> (x - mean) @ matrix."""

    mean: Floats  # (d,) the mean of the fitted vectors
    # (d, k) principal axes over the square root of their variance, largest variance first
    matrix: Floats

    def __call__(self, vectors: Vectors) -> Vectors:
        """(n, d) to (n, k) float32."""
        moved = np.asarray(vectors, dtype=np.float64) - self.mean
        return (moved @ self.matrix).astype(np.float32)

    @property
    def bias(self) -> Floats:
        """(k,) the bias of the same map as a linear layer: -mean @ matrix."""
        return -self.mean @ self.matrix


def whiten(vectors: Vectors, *, dimensions: int | None = None) -> Whitening:
    """Stretch a space of vectors (n, d) until its covariance is the identity (Su et al., 2021)."""
    x = np.asarray(vectors, dtype=np.float64)
    n, d = x.shape
    keep = d if dimensions is None else dimensions
    if not 1 <= keep <= d:
        raise OptionError("dimensions", keep, f"the vectors have {d}; choose 1 to {d}")
    if not np.isfinite(x).all():
        raise DataError("some vectors contain NaN or infinite numbers")
    if n <= keep or not x.std():
        raise DataError(
            f"{n:,} vectors are too few for the covariance of {keep} dimensions; add text"
        )
    mean = x.mean(axis=0)
    x = x - mean
    values, axes = np.linalg.eigh(x.T @ x / (n - 1))
    values, axes = values[::-1], axes[:, ::-1]
    real = int((values > NO_VARIANCE * values[0]).sum())
    if dimensions is not None and real < dimensions:
        raise DataError(
            f"the vectors vary in only {real} directions; keep at most {real} dimensions"
        )
    keep = min(keep, real)
    return Whitening(mean, axes[:, :keep] / np.sqrt(values[:keep]))
