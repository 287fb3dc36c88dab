"""Edits of token rows for masked language modelling and for DiffCSE, in numpy."""

# Every row has a generator of its own, from (step, corpus row, column): several processes make the
# same edits as one, and a resumed run the same as before.

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import ModelError
from contrasent.text.batches import random_for
from contrasent.text.tokens import Tokenizer
from contrasent.types import Batch, Tokens

EDIT, APART = 100, 1000
KEEP, MASK = 0.1, 0.8


@dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """Rows after an edit."""

    tokens: Tokens
    # (total,) int64, one a token: for masking the original ids where one was chosen and -1
    # elsewhere; for insertion and deletion 1 where something happened, else 0
    labels: NDArray[np.int64]


def generators(batch: Batch, column: int, stream: int = 0) -> list[np.random.Generator]:
    """One generator for each row of a column of a batch; other ones in every stream."""
    purpose = EDIT + APART * stream + column
    return [random_for(batch.seed, purpose, int(row), batch.step) for row in batch.rows]


Edit = Callable[[NDArray[np.int32], np.random.Generator], tuple[Any, Any]]
"""A row's ids and its generator to the new ids and a label for each of them."""


def _edited(tokens: Tokens, randoms: list[np.random.Generator], edit: Edit) -> Edited:
    rows = [edit(tokens[i], random) for i, random in enumerate(randoms)]
    labels = [labels.astype(np.int64) for _, labels in rows]
    flat = np.concatenate(labels) if labels else np.empty(0, dtype=np.int64)
    return Edited(Tokens.from_rows(ids for ids, _ in rows), flat)


def mask(
    tokens: Tokens, ratio: float, tokenizer: Tokenizer, randoms: list[np.random.Generator]
) -> Edited:
    """Choose tokens at random; 80 % become [MASK], 10 % a random token, 10 % stay (BERT)."""
    # Special tokens are never chosen.
    hidden, special = _mask_id(tokenizer), sorted(tokenizer.specials.all)

    def edit(ids: NDArray[np.int32], random: np.random.Generator) -> tuple[Any, Any]:
        new = ids.copy()
        chosen = (random.random(len(ids)) < ratio) & ~np.isin(ids, special)
        fate = random.random(len(ids))
        other = random.integers(tokenizer.size, size=len(ids))
        new[chosen & (fate < MASK)] = hidden
        swapped = chosen & (fate >= MASK) & (fate < 1 - KEEP)
        new[swapped] = other[swapped]
        return new, np.where(chosen, ids, -1)

    return _edited(tokens, randoms, edit)


def insert_masks(
    tokens: Tokens, ratio: float, tokenizer: Tokenizer, randoms: list[np.random.Generator]
) -> Edited:
    """Insert ``ratio`` times the length [MASK] tokens at random places between the special ones."""

    def edit(ids: NDArray[np.int32], random: np.random.Generator) -> tuple[Any, Any]:
        first, last = _inner(ids, tokenizer)
        count = round_half_up((last - first) * ratio)
        places = np.sort(random.integers(first, last + 1, size=count))
        longer = np.insert(ids, places, _mask_id(tokenizer))
        return longer, np.insert(np.zeros(len(ids), dtype=np.int64), places, 1)

    return _edited(tokens, randoms, edit)


def delete(
    tokens: Tokens, ratio: float, tokenizer: Tokenizer, randoms: list[np.random.Generator]
) -> Edited:
    """Delete ``ratio`` times the length tokens; 1 marks a token whose predecessor was deleted."""

    def edit(ids: NDArray[np.int32], random: np.random.Generator) -> tuple[Any, Any]:
        first, last = _inner(ids, tokenizer)
        count = min(round_half_up((last - first) * ratio), max(last - first - 1, 0))
        gone = np.zeros(len(ids) + 1, dtype=np.bool_)
        gone[first + random.choice(max(last - first, 1), size=count, replace=False)] = True
        follows, stay = np.concatenate([[False], gone[: len(ids) - 1]]), ~gone[: len(ids)]
        return ids[stay], follows[stay]

    return _edited(tokens, randoms, edit)


def round_half_up(value: float) -> int:
    """The nearest whole number, halves up."""
    return int(np.floor(value + 0.5))


def _inner(ids: NDArray[np.int32], tokenizer: Tokenizer) -> tuple[int, int]:
    """Where the sentence stands between the special tokens of the template."""
    before, after = tokenizer.frame
    return len(before), max(len(ids) - len(after), len(before))


def _mask_id(tokenizer: Tokenizer) -> int:
    if tokenizer.specials.mask is None:
        raise ModelError("masking needs a tokenizer with a [MASK] token")
    return tokenizer.specials.mask
