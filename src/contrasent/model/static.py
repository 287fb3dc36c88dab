"""Vectors of texts in a model's space without its forward pass: averaged token vectors.

A token's vector is the model's vector of the token alone, mapped linearly to vectors of texts.
Both the map and a correction of each token are ridge regressions on some texts of the collection,
whose vectors the model makes: closed forms, taken in seconds. Frequent tokens count less (Arora,
Liang and Ma, 2017, A Simple but Tough-to-Beat Baseline for Sentence Embeddings, eq. 1).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.metrics import normalize
from contrasent.model.base import Encoder
from contrasent.processes import threads
from contrasent.types import Tokens, Vectors

RARITY = 1e-3  # share of all tokens at which a token's weight is half
MAP_RIDGE, TOKEN_RIDGE = 10.0, 1.0
ROWS_AT_ONCE = 64  # texts whose tokens' vectors are gathered at once, some 24 MB


class StaticModel:
    """Texts to unit vectors (n, d) in the space of an encoder."""

    def __init__(self, encoder: Encoder, texts: Sequence[str], vectors: Vectors) -> None:
        """Learn the table from texts and their vectors (n, d) by the model."""
        self._encoder = encoder
        size = encoder.tokenizer.size
        self._place = np.full(size, -1)  # of each token in the table; -1 where it was not seen yet
        self._weights = np.ones(size, np.float32)
        self._weights[list(encoder.tokenizer.specials.all)] = 0
        tokens, _ = self._encoder.tokenise(texts)
        ids, columns = np.unique(tokens.ids, return_inverse=True)
        counts = np.zeros((len(tokens), len(ids)), np.float32)
        rows = np.repeat(np.arange(len(tokens)), tokens.lengths)
        np.add.at(counts, (rows, columns), 1)
        shares = counts.sum(axis=0) / max(1.0, float(counts.sum()))
        self._weights[ids] *= np.float32(RARITY) / (np.float32(RARITY) + shares)
        weighted = normalize(counts * self._weights[ids])
        alone, wanted = self._alone(ids), normalize(vectors)
        self._centre = alone.mean(axis=0)
        alone -= self._centre
        averages = normalize(weighted @ alone)
        penalty = np.float32(MAP_RIDGE) * np.eye(averages.shape[1], dtype=np.float32)
        self._map = np.linalg.solve(averages.T @ averages + penalty, averages.T @ wanted)
        table = alone @ self._map
        mapped = weighted @ table
        missing = wanted * np.linalg.norm(mapped, axis=1, keepdims=True) - mapped
        kernel = weighted @ weighted.T + np.float32(TOKEN_RIDGE) * np.eye(len(mapped), dtype="f4")
        self._table: Vectors = table + weighted.T @ np.linalg.solve(kernel, missing)
        self._place[ids] = np.arange(len(ids))

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Vectors (n, d) of texts."""
        tokens, _ = self._encoder.tokenise(texts)
        ids = np.unique(tokens.ids)
        if len(new := ids[self._place[ids] < 0]):
            self._place[new] = len(self._table) + np.arange(len(new))
            table = (self._alone(new) - self._centre) @ self._map
            self._table = np.concatenate([self._table, table])
        out = np.empty((len(tokens), self._table.shape[1]), np.float32)

        def average(start: int) -> None:
            here = slice(start, start + ROWS_AT_ONCE)
            offsets = tokens.offsets[start : start + ROWS_AT_ONCE + 1]
            batch_ids = tokens.ids[offsets[0] : offsets[-1]]
            vectors = self._table[self._place[batch_ids]]
            vectors *= self._weights[batch_ids][:, None]
            out[here] = np.add.reduceat(vectors, offsets[:-1] - offsets[0], axis=0)

        with ThreadPoolExecutor(threads()) as pool:
            list(pool.map(average, range(0, len(tokens), ROWS_AT_ONCE)))
        return normalize(out)

    def _alone(self, ids: NDArray[np.int32]) -> Vectors:
        """(n, d) unit vectors of tokens, each encoded alone."""
        before, after = self._encoder.tokenizer.frame
        rows = Tokens.from_rows([[*before, token, *after] for token in ids.tolist()])
        with progress.hidden():
            return normalize(self._encoder.encode_tokens(rows, 512))
