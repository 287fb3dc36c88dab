"""One batch: the encodings that loss terms need, each computed once, and edits of its rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError
from contrasent.text.batches import random_for
from contrasent.text.tokens import Tokenizer
from contrasent.types import Batch, Tokens

Terms = dict[str, Tensor]
"""Scalars of a batch by name. Those with a weight add up to the loss; all are logged."""

Baseline = Callable[[TorchEncoder, Sequence[Tokens], int], Tensor]
"""Vectors (rows of all, d) to subtract from those of columns, the first of which has the number."""

Source = Literal["noisy", "gaussian", "mean", "off_dropout"]
"""How vectors of a pair are made: with dropout ("noisy"), with Gaussian noise added, as the mean of
several encodings with dropout, or without dropout."""


class Networks(Protocol):
    """The networks that encode a batch: :class:`contrasent.engine.objective.Objective`."""

    encoder: TorchEncoder
    projector: nn.Module | None
    second: TorchEncoder | None
    second_projector: nn.Module | None
    roles: tuple[str, ...]
    masks: str
    labeled: bool
    baseline: Baseline | None
    queue: Any  # :class:`contrasent.engine.momentum_queue.MomentumQueue`, or None


class Term(nn.Module, ABC):
    """A further term of the loss; subclass it for one of your own.

    Attributes:
        vectors_only: whether it uses nothing of the encoder but the vectors of a batch;
            ``mini_batch_size`` limits the memory of such terms only.
        pulls: whether it pulls anchor and positive together, as rated pairs need not be.
        learning_rate: peak learning rate of its own parameters; the run's if None.
        warmup_steps: number of first steps in which only its own parameters train.
    """

    vectors_only: bool = False
    pulls: bool = False
    learning_rate: float | None = None
    warmup_steps: int = 0

    @abstractmethod
    def forward(self, encodings: "BatchEncodings") -> Terms:
        """Compute the term and further scalars for the log, by name: means over the rows.

        Args:
            encodings: the rows of this process.
        """

    def after_step(self, encoder: TorchEncoder) -> None:
        """Update the term's buffers; called after every optimizer step.

        Args:
            encoder: the updated encoder.
        """


class BatchEncodings:
    """A batch with the vectors that an objective's networks compute from it.

    Vectors are computed when a term first uses them, and shared by all terms.

    Attributes:
        networks: the objective, with its encoder and projector.
        roles: role of each column: "anchor", "positive", "negative" or "edited".
        frozen: whether vectors are without gradient.
    """

    def __init__(self, networks: Networks, batch: Batch, *, frozen: bool = False) -> None:
        self.networks = networks
        self.batch = batch
        self.frozen = frozen
        # Columns of a labeled corpus beyond the declared ones are hard negatives.
        beyond = len(batch.columns) - len(networks.roles)
        self.roles = networks.roles + ("negative",) * beyond
        self._editing: list[nn.Module] = []

    def generators(self, term: nn.Module, column: int) -> list[np.random.Generator]:
        """Random generators for a term that edits a column, one for each row.

        Each term has its own stream, so that the edits of terms are independent.

        Args:
            term: the term that edits.
            column: number of the edit; equal numbers give equal edits.

        Returns:
            One generator for each row of the batch.
        """
        if term not in self._editing:
            self._editing.append(term)
        return generators(self.batch, column, self._editing.index(term))

    def columns(self, *roles: str, unedited: bool = False) -> list[Tokens]:
        """Columns of the named roles, in order; of those with views as before if ``unedited``."""
        columns = (unedited and self.batch.unedited) or self.batch.columns
        pairs = zip(columns, self.roles, strict=not unedited)
        return [column for column, role in pairs if role in roles]

    @cached_property
    def pooled(self) -> list[Tensor]:
        """Vectors of anchors, positives and negatives before the projector, with dropout."""
        columns = self.columns("anchor", "positive", "negative")
        if self.networks.masks == "fixed":
            return self._encode(columns[:1]) * len(columns)
        return self._encode(columns)

    @cached_property
    def noisy(self) -> list[Tensor]:
        """Vectors of anchors, positives and negatives after the projector, with dropout."""
        if self.networks.masks == "fixed":
            return self.project(self.pooled[:1]) * len(self.pooled)
        return self.project(self.pooled)

    @cached_property
    def clean(self) -> list[Tensor]:
        """Projected vectors without dropout, with gradient.

        For single sentences only the anchors, as both sides of a negative pair are the sentences
        themselves. For pairs, all columns.
        """
        roles = ("anchor", "positive", "negative") if self.networks.labeled else ("anchor",)
        with ExitStack() as stack:
            for encoder in filter(None, (self.networks.encoder, self.networks.second)):
                training = encoder.training
                stack.enter_context(encoder.dropout_off())
                if encoder.head is not None:
                    encoder.head.train(training)  # a batch normalization is no dropout
            vectors = self._encode(self.columns(*roles))
        return self.project(vectors)

    def vectors(
        self, source: Source, passes: int = 10, noise_variance: float = 0.1
    ) -> list[Tensor]:
        """Projected vectors of the columns, anchors first, (n, d) each.

        Args:
            source: "noisy", "gaussian", "mean" (only anchors and positives), or "off_dropout", see
                ``clean``.
            passes: number of encodings to average for "mean".
            noise_variance: variance of the noise of "gaussian".

        Returns:
            One tensor (n, d) for each column.
        """
        if source == "off_dropout":
            return self.clean
        if source == "noisy":
            return self.noisy
        if source == "gaussian":
            scale = noise_variance**0.5
            return [z + scale * torch.randn_like(z) for z in self.noisy]
        columns = self.columns("anchor", "positive")
        rounds = [self.project(self._encode(columns)) for _ in range(passes)]
        return [torch.stack(same).mean(dim=0) for same in zip(*rounds, strict=True)]

    def hard_negatives(self, *, clean: bool) -> Tensor | None:
        """Hard negatives of this process's rows, (n, h, d), or None.

        Args:
            clean: encode a corpus of pairs without dropout.
        """
        count = self.roles.count("negative")
        if not count:
            return None
        vectors = self.clean if clean and self.networks.labeled else self.noisy
        return torch.stack(vectors[-count:], dim=1)

    def queued(self) -> Tensor | None:
        """Negatives of the queue, (q, d), or None."""
        negatives: Tensor | None = self.networks.queue.negatives() if self.networks.queue else None
        return negatives

    def _encode(self, columns: Sequence[Tokens]) -> list[Tensor]:
        """Pooled vectors of columns: one pass of the encoder, or of each where there are two."""
        pooled: list[Tensor] = []
        for encoder, part in _shared(self.networks.encoder, self.networks.second, columns):
            with self._gradient():
                vectors: Tensor = encoder(Tokens.concatenate(part))
                if self.networks.baseline is not None:
                    vectors = vectors - self.networks.baseline(encoder, part, len(pooled))
            pooled += torch.split(vectors, [len(column) for column in part])
        return pooled

    def project(self, columns: Sequence[Tensor]) -> list[Tensor]:
        """Project the vectors of several columns as one block.

        A projector with batch statistics uses the rows of all processes.

        Args:
            columns: (n, d) each, anchors first.
        """
        projected: list[Tensor] = []
        first, second = self.networks.projector, self.networks.second_projector
        for projector, part in _shared(first, second, columns):
            if projector is None:
                projected += part
                continue
            rows = torch.cat(list(part))
            with self._gradient():
                rows = projector(rows)
            projected += torch.split(rows, [len(column) for column in part])
        return projected

    def _gradient(self) -> torch.set_grad_enabled:
        return torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen)


def _shared(one: Any, two: Any, columns: Sequence[Any]) -> list[tuple[Any, Sequence[Any]]]:
    """The networks with their columns: the second one, if any, takes all but the first."""
    parts = [(one, columns)] if two is None else [(one, columns[:1]), (two, columns[1:])]
    return [(network, part) for network, part in parts if part]


# Every row has its own generator, seeded by (step, corpus row, column): several processes make the
# same edits as one, and a resumed run the same as before.

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
    """A generator for each row of a batch's column; different ones in each stream."""
    purpose = EDIT + APART * stream + column
    return [random_for(batch.seed, purpose, int(row), batch.step) for row in batch.rows]


EditRow = Callable[[NDArray[np.int32], np.random.Generator], tuple[Any, Any]]
"""A row's ids and its generator to the new ids and a label for each of them."""


def _edited(tokens: Tokens, randoms: list[np.random.Generator], edit: EditRow) -> Edited:
    rows = [edit(tokens[i], random) for i, random in enumerate(randoms)]
    labels = [labels.astype(np.int64) for _, labels in rows]
    flat = np.concatenate(labels) if labels else np.empty(0, dtype=np.int64)
    return Edited(Tokens.from_rows(ids for ids, _ in rows), flat)


def mask_tokens(
    tokens: Tokens, ratio: float, tokenizer: Tokenizer, randoms: list[np.random.Generator]
) -> Edited:
    """Choose tokens at random; 80 % become [MASK], 10 % a random token, 10 % stay (BERT).

    Special tokens are never chosen.
    """
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
    tokens: Tokens,
    ratio: float,
    tokenizer: Tokenizer,
    randoms: list[np.random.Generator],
    longest: int | None = None,
) -> Edited:
    """Insert ``ratio`` times the length [MASK] tokens at random places between the special ones.

    Fewer, if a row would have more than ``longest`` tokens.
    """

    def edit(ids: NDArray[np.int32], random: np.random.Generator) -> tuple[Any, Any]:
        first, last = _inner(ids, tokenizer)
        count = round_half_up((last - first) * ratio)
        count = count if longest is None else max(0, min(count, longest - len(ids)))
        places = np.sort(random.integers(first, last + 1, size=count))
        longer = np.insert(ids, places, _mask_id(tokenizer))
        return longer, np.insert(np.zeros(len(ids), dtype=np.int64), places, 1)

    return _edited(tokens, randoms, edit)


def delete_tokens(
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
    """The nearest whole number, rounding half up."""
    return int(np.floor(value + 0.5))


def _inner(ids: NDArray[np.int32], tokenizer: Tokenizer) -> tuple[int, int]:
    """The slice of the sentence between the template's special tokens."""
    before, after = tokenizer.frame
    return len(before), max(len(ids) - len(after), len(before))


def _mask_id(tokenizer: Tokenizer) -> int:
    if tokenizer.specials.mask is None:
        raise ModelError("masking needs a tokenizer with a [MASK] token")
    return tokenizer.specials.mask
