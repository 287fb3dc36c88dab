"""One batch: every encoding that the terms of a loss need, made once."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from contrasent import parallel
from contrasent.engine import edits
from contrasent.model.encoder import Encoder
from contrasent.types import Batch, Tokens

Terms = dict[str, Tensor]
"""Named scalars of one batch; those with a weight make the loss, all are logged."""

Baseline = Callable[[Encoder, Sequence[Tokens], int], Tensor]
"""Vectors (rows of all, d) to subtract from those of columns, the first of which has the number."""

Source = Literal["noisy", "gaussian", "mean", "off_dropout"]
"""How the vectors of a pair are made: with dropout, with Gaussian noise besides, as the mean of
several encodings with dropout, or without dropout."""


class Queue(Protocol):
    """Negatives from earlier batches, see :class:`contrasent.engine.queue.MomentumQueue`."""

    def negatives(self) -> Tensor | None:
        """(q, d) rows, or None while there are none."""


class Networks(Protocol):
    """The networks that encode a batch, see :class:`contrasent.engine.objective.Objective`."""

    encoder: Encoder
    projector: nn.Module | None
    second: Encoder | None
    second_projector: nn.Module | None
    roles: tuple[str, ...]
    masks: str
    labelled: bool
    baseline: Baseline | None

    @property
    def queue(self) -> Queue | None:
        """Negatives from earlier batches, or None."""


class Term(nn.Module):
    """A further term of the loss; subclass it for one of your own.

    Attributes:
        vectors_only: whether it sees nothing of the encoder but the vectors of a batch; cached
            gradients bound the memory of such terms alone.
    """

    vectors_only: bool = False

    def forward(self, encodings: "BatchEncodings") -> Terms:
        """The term of a batch by name, and what else is to be logged: scalars, means of the rows.

        Args:
            encodings: of the rows of this process.
        """
        raise NotImplementedError

    def after_step(self, encoder: Encoder) -> None:
        """Called after every optimizer step, for a term that keeps state in buffers.

        Args:
            encoder: that has just been updated.
        """


class BatchEncodings:
    """A batch and what the networks of an objective make of it.

    Encodings are computed when a term first uses them, and shared by all terms.

    Attributes:
        networks: the encoder, the projector and the roles of the columns.
        roles: of the batch's columns: "anchor", "positive", "negative" or "edited".
    """

    def __init__(self, networks: Networks, batch: Batch) -> None:
        self.networks = networks
        self.batch = batch
        # Columns of a labelled corpus beyond the declared ones are hard negatives.
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
        return edits.generators(self.batch, column, self._editing.index(term))

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
        roles = ("anchor", "positive", "negative") if self.networks.labelled else ("anchor",)
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
            clean: without dropout, where the corpus is labelled.
        """
        count = self.roles.count("negative")
        if not count:
            return None
        if clean and self.networks.labelled:
            return torch.stack(self.clean[-count:], dim=1)
        return torch.stack(self.noisy[-count:], dim=1)

    def queued(self) -> Tensor | None:
        """Negatives from earlier batches, (q, d), or None."""
        queue = self.networks.queue
        return queue.negatives() if queue is not None else None

    def _encode(self, columns: Sequence[Tokens]) -> list[Tensor]:
        """Pooled vectors of columns: one pass of the encoder, or of each where there are two."""
        found: list[Tensor] = []
        for encoder, part in _shared(self.networks.encoder, self.networks.second, columns):
            vectors: Tensor = encoder(Tokens.concatenate(part))
            if self.networks.baseline is not None:
                vectors = vectors - self.networks.baseline(encoder, part, len(found))
            found += torch.split(vectors, [len(column) for column in part])
        return found

    def project(self, columns: Sequence[Tensor]) -> list[Tensor]:
        """Vectors of several columns through the projector, as one block.

        A projector with batch statistics sees the rows of all processes.

        Args:
            columns: (n, d) each, anchors first.
        """
        found: list[Tensor] = []
        one, two = self.networks.projector, self.networks.second_projector
        for projector, part in _shared(one, two, columns):
            if projector is None:
                found += part
                continue
            rows = torch.cat(list(part))
            normalised = any(isinstance(m, nn.BatchNorm1d) for m in projector.modules())
            if parallel.world() > 1 and projector.training and normalised:
                start = parallel.first_row(len(rows))
                rows = projector(parallel.gather(rows))[start : start + len(rows)]
            else:
                rows = projector(rows)
            found += torch.split(rows, [len(column) for column in part])
        return found


def _shared(one: Any, two: Any, columns: Sequence[Any]) -> list[tuple[Any, Sequence[Any]]]:
    """Which network takes which columns: a second one, if there is any, all but the first."""
    parts = [(one, columns)] if two is None else [(one, columns[:1]), (two, columns[1:])]
    return [(network, part) for network, part in parts if part]
