"""Mining hard negatives of pairs with the base, among the other answers."""

import logging
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent import progress
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import OptionError
from contrasent.metrics import normalize
from contrasent.nearest import QUERIES_AT_ONCE, best_rows
from contrasent.text.cache import TokenCache
from contrasent.types import Vectors, batched

log = logging.getLogger(__name__)

MARGIN = 0.95
"""Of a hard negative, the most cosine as a share of the positive's: nearer ones may be right."""


def mine(
    encoder: TorchEncoder, cache: TokenCache, rows: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """For each row of the corpus, (n, count) rows whose answers are its hard negatives.

    Where too few answers are less alike than the margin, the least alike of the others join them.
    """
    questions, answers = (_numbers(cache, column, rows) for column in (0, 1))
    first = np.unique(answers, return_index=True)[1]  # a row for each different answer
    if len(first) <= count:
        problem = f"the training pairs have only {len(first)} different answers"
        raise OptionError("hard_negatives", count, problem)
    answers_of: dict[int, list[int]] = defaultdict(list)
    for question, answer in zip(questions.tolist(), answers.tolist(), strict=True):
        answers_of[question].append(answer)
    negatives = np.zeros((len(cache), count), np.int64)
    short = 0
    with progress.task("mine", len(rows) + len(first) + len(rows), "texts") as advance:
        query_vectors = _embed(encoder, cache, 0, rows, advance)
        answer_vectors = _embed(encoder, cache, 1, rows[first], advance)
        for part in batched(range(len(rows)), QUERIES_AT_ONCE):
            block = np.asarray(part)
            cosines = query_vectors[block] @ answer_vectors.T
            own_answers = answer_vectors[answers[block]]
            most = MARGIN * (query_vectors[block] * own_answers).sum(axis=1, keepdims=True)
            # Answers that are too near come last, the least similar first.
            ranks = np.where(cosines > most, -3 - cosines, cosines)
            for row, rank in zip(block, ranks, strict=True):
                rank[answers_of[int(questions[row])]] = -np.inf
                picked = best_rows(rank, count)
                picked = picked[np.isfinite(rank[picked])]
                short += int((rank[picked] >= -1).sum() < count)
                if not len(picked):
                    problem = f"{cache.text(0, int(rows[row]))[:60]!r} is paired with every answer"
                    raise OptionError("hard_negatives", count, problem)
                negatives[rows[row]] = rows[first[np.resize(picked, count)]]
            advance(len(block))
    if short:
        log.warning(
            "%d of %d pairs have fewer than %d answers below %d %% of their own cosine; these "
            "use the least similar others", short, len(rows), count, MARGIN * 100,
        )  # fmt: skip
    return negatives


def _numbers(cache: TokenCache, column: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of the texts of rows, from 0; equal texts have equal ones."""
    known: dict[str, int] = {}
    numbers = [known.setdefault(cache.text(column, int(row)), len(known)) for row in rows]
    return np.asarray(numbers, np.int64)


def _embed(
    encoder: TorchEncoder, cache: TokenCache, column: int, rows: NDArray[np.int64], advance: Any
) -> Vectors:
    """Unit vectors of a column's rows, with tokens as in training."""
    parts = []
    for part in batched(rows.tolist(), 1024):
        parts.append(encoder.encode_tokens(cache.tokens(column, np.asarray(part)), 64))
        advance(len(part))
    return normalize(np.concatenate(parts))
