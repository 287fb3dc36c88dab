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

from contrasent import parallel
from contrasent.encoder.encoder import TorchEncoder
from contrasent.errors import ModelError
from contrasent.text.batches import random_for
from contrasent.text.tokens import Tokenizer
from contrasent.types import Batch, Tokens

Terms = dict[str, Tensor]
"""Named scalars of one batch; those with a weight make the loss, all are logged."""

Baseline = Callable[[TorchEncoder, Sequence[Tokens], int], Tensor]
"""Vectors (rows of all, d) to subtract from those of columns, the first of which has the number."""

Source = Literal["noisy", "gaussian", "mean", "off_dropout"]
"""How the vectors of a pair are made: with dropout, with Gaussian noise besides, as the mean of
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
        vectors_only: whether it sees nothing of the encoder but the vectors of a batch; cached
            gradients bound the memory of such terms alone.
        learning_rate: peak rate of its own parameters; the run's if None.
        warmup_steps: first steps of a run, in which its own parameters alone learn.
    """

    vectors_only: bool = False
    learning_rate: float | None = None
    warmup_steps: int = 0

    @abstractmethod
    def forward(self, encodings: "BatchEncodings") -> Terms:
        """The term of a batch by name, and what else is to be logged: scalars, means of the rows.

        Args:
            encodings: of the rows of this process.
        """

    def diagnostics(self, encodings: "BatchEncodings") -> Terms:
        """Measure for the log, at a few steps of a run, the thing that the term is about.

        Args:
            encodings: those of ``forward``, which has been called.

        Returns:
            Scalars by name, the same in all processes or means of their rows.
        """
        return {}

    def after_step(self, encoder: TorchEncoder) -> None:
        """Called after every optimizer step, for a term that keeps state in buffers.

        Args:
            encoder: that has just been updated.
        """


class BatchEncodings:
    """A batch and what the networks of an objective make of it.

    Encodings are computed when a term first uses them, and shared by all terms.

    Attributes:
        networks: the objective, whose encoder, projector and roles of columns they are made by.
        roles: of the batch's columns: "anchor", "positive", "negative" or "edited".
        frozen: whether vectors carry no gradient to the encoder.
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
        """Random generators for a term that edits the rows of a column, one a row.

        Each term has a stream of its own, in the order in which they first ask: what one edits says
        nothing about what another does.

        Args:
            term: that edits.
            column: which of its edits; two of one number are made alike.

        Returns:
            One generator a row of the batch.
        """
        if term not in self._editing:
            self._editing.append(term)
        return generators(self.batch, column, self._editing.index(term))

    def columns(self, *roles: str) -> list[Tokens]:
        """Columns of the named roles, in order."""
        pairs = zip(self.batch.columns, self.roles, strict=True)
        return [column for column, role in pairs if role in roles]

    @cached_property
    def pooled(self) -> list[Tensor]:
        """Vectors of anchors, positives and negatives before the projector, dropout on."""
        columns = self.columns("anchor", "positive", "negative")
        if self.networks.masks == "fixed":
            return self._encode(columns[:1]) * len(columns)
        return self._encode(columns)

    @cached_property
    def noisy(self) -> list[Tensor]:
        """The same after the projector."""
        if self.networks.masks == "fixed":
            return self.project(self.pooled[:1]) * len(self.pooled)
        return self.project(self.pooled)

    @cached_property
    def clean(self) -> list[Tensor]:
        """Projected vectors without dropout, with gradient: what is encoded depends on the corpus.

        Of single sentences the anchors alone: both sides of a negative pair are then the
        sentences themselves, whatever the view of the positive. Of pairs, all columns.
        """
        roles = ("anchor", "positive", "negative") if self.networks.labeled else ("anchor",)
        with ExitStack() as stack:
            for encoder in filter(None, (self.networks.encoder, self.networks.second)):
                stack.enter_context(encoder.dropout_off())
            vectors = self._encode(self.columns(*roles))
        return self.project(vectors)

    def vectors(
        self, source: Source, passes: int = 10, noise_variance: float = 0.1
    ) -> list[Tensor]:
        """Projected vectors of the columns, anchors first, each (n, d), made in a named way.

        Args:
            source: "noisy"; "gaussian"; "mean", of anchors and positives alone; or "off_dropout",
                see ``clean``.
            passes: encodings that "mean" averages.
            noise_variance: of "gaussian".

        Returns:
            One tensor (n, d) a column.
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
        """Hard negatives of this process's rows, (n, h, d), or None where there are none.

        Args:
            clean: without dropout, where the corpus is labeled.
        """
        count = self.roles.count("negative")
        if not count:
            return None
        if clean and self.networks.labeled:
            return torch.stack(self.clean[-count:], dim=1)
        return torch.stack(self.noisy[-count:], dim=1)

    def queued(self) -> Tensor | None:
        """Negatives from earlier batches, (q, d), or None."""
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
        """Vectors of several columns through the projector, as one block.

        A projector with batch statistics sees the rows of all processes.

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
            normalized = any(isinstance(m, nn.BatchNorm1d) for m in projector.modules())
            with self._gradient():
                if parallel.world() > 1 and projector.training and normalized:
                    start = parallel.first_row(len(rows))
                    rows = projector(parallel.gather(rows))[start : start + len(rows)]
                else:
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
    """The nearest whole number, halves up."""
    return int(np.floor(value + 0.5))


def _inner(ids: NDArray[np.int32], tokenizer: Tokenizer) -> tuple[int, int]:
    """The slice of the sentence between the template's special tokens."""
    before, after = tokenizer.frame
    return len(before), max(len(ids) - len(after), len(before))


def _mask_id(tokenizer: Tokenizer) -> int:
    if tokenizer.specials.mask is None:
        raise ModelError("masking needs a tokenizer with a [MASK] token")
    return tokenizer.specials.mask
