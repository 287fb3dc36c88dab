"""Texts in calls of a model: equal ones once, in few calls of bounded size, or in the same bits."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from logging import Logger
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.text.tokens import SLOT
from contrasent.types import Tokens, Vectors

BUDGET = 2048
"""Padded tokens of a call: enough to keep a core busy, little enough to share calls among cores."""


def distinct(sentences: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Every sentence once, and for each of those given (n,) which of them it is."""
    if isinstance(sentences, str):
        raise TypeError("encode takes a sequence of sentences, not one string")
    place: dict[str, int] = {}
    where = np.fromiter(
        (place.setdefault(s, len(place)) for s in sentences), np.int64, len(sentences)
    )
    return list(place), where


def distinct_tokens(
    model: Any, sentences: Sequence[str], prompt: str | None, log: Logger
) -> tuple[Tokens, NDArray[np.int64]]:
    """Tokens of every distinct sentence, and for each of those given (n,) which of them it is."""
    texts, where = distinct(sentences)
    tokens, cut = model.tokenise(texts, model.prompts.text() if prompt is None else prompt)
    model.truncated = int(cut[where].sum())
    if model.truncated:
        counts = (model.truncated, len(sentences), model.max_tokens)
        log.warning("%d of %d sentences were cut at %d tokens", *counts)
    return tokens, where


def in_calls(
    embed: Callable[[Tokens], Vectors],
    tokens: Tokens,
    dimension: int,
    calls: Iterable[NDArray[np.int64]],
    pool: Executor | None = None,
) -> Vectors:
    """Vectors (n, d) of rows of tokens, computed a few at a time."""
    out = np.empty((len(tokens), dimension), dtype=np.float32)

    def call(rows: NDArray[np.int64]) -> int:
        out[rows] = embed(tokens.select(rows))
        return len(rows)

    with progress.task("encode", len(tokens), "sentences") as advance:
        for count in map(call, calls) if pool is None else pool.map(call, calls):
            advance(count)
    return out


def by_budget(
    lengths: NDArray[np.int64], most: int, *, budget: int | None = None
) -> list[NDArray[np.int64]]:
    """Partition rows into calls, longest rows first, with little padding and bounded memory."""
    # `lengths`: (n,) tokens of each row.
    order = np.argsort(-lengths, kind="stable")
    calls, start = [], 0
    while start < len(order):
        room = most if budget is None else budget // max(1, int(lengths[order[start]]))
        calls.append(order[start : start + max(1, min(most, room))])
        start += len(calls[-1])
    return calls


def encode_batch_invariant(
    embed: Callable[[Tokens], Vectors], tokens: Tokens, dimension: int, *, budget: int = 256
) -> Vectors:
    """Vectors that do not depend, to the bit, on which other rows there are or in which order."""
    # The order of additions depends on a matrix's shape: rows of one length go together without
    # padding, always as many as fit, spare places filled by repetition.
    out = np.empty((len(tokens), dimension), dtype=np.float32)
    lengths = tokens.lengths
    with progress.task("encode", len(tokens), "sentences") as advance:
        for length in np.unique(lengths):
            count = max(1, budget // max(1, int(length)))
            rows = np.flatnonzero(lengths == length)
            for start in range(0, len(rows), count):
                part = rows[start : start + count]
                filled = np.resize(part, count)
                out[part] = embed(tokens.select(filled))[: len(part)]
                advance(len(part))
    return out


def dropout_view(encoder: Any, sentences: Sequence[str], *, seed: int, batch: int = 64) -> Vectors:
    """(n, d) float32 vectors, not normalised, with dropout on: a view that SimCSE compares."""
    # A function of the sentences, the seed and the batch size: the caller's random state is neither
    # read nor moved.
    import torch

    prompt = encoder.prompts.text()
    tokens, _ = encoder.tokenise(list(sentences), prompt if SLOT in prompt else "")
    out = np.empty((len(sentences), encoder.dimension), dtype=np.float32)
    order = np.argsort(-tokens.lengths, kind="stable")
    was = encoder.training
    encoder.train()
    try:
        with (
            torch.inference_mode(),
            torch.random.fork_rng(),
            progress.task("encode with dropout", len(sentences), "sentences") as advance,
        ):
            torch.manual_seed(seed)
            for start in range(0, len(order), batch):
                rows = order[start : start + batch]
                out[rows] = encoder(tokens.select(rows)).cpu().numpy()
                advance(len(rows))
    finally:
        encoder.train(was)
    return out
