"""One training step: every encoding that the terms ask for, made once."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from contrasent import parallel
from contrasent.objectives import _masking
from contrasent.types import Batch, Tokens

if TYPE_CHECKING:
    from contrasent.objectives._base import Objective
    from contrasent.objectives._contrast import Contrast


class Step:
    """A batch and what the objective's networks make of it.

    Terms ask it for encodings; what two terms ask for is computed once, and what none asks for is
    not computed.

    Attributes:
        objective: with the encoder, the projector and the roles of the columns.
        batch: the rows of this process.
    """

    def __init__(self, objective: "Objective", batch: Batch) -> None:
        self.objective = objective
        self.batch = batch
        self.roles = objective.roles_of(len(batch.columns))
        self._editing: list[nn.Module] = []

    def generators(self, term: nn.Module, column: int) -> list[np.random.Generator]:
        """Random generators for a term that edits the rows of a column.

        Each term has a stream of its own, in the order in which they first ask: what one edits says
        nothing about what another does.
        """
        if term not in self._editing:
            self._editing.append(term)
        return _masking.generators(self.batch, column, self._editing.index(term))

    def columns(self, *roles: str) -> list[Tokens]:
        """Columns of the named roles, in order."""
        pairs = zip(self.batch.columns, self.roles, strict=True)
        return [column for column, role in pairs if role in roles]

    @cached_property
    def pooled(self) -> list[Tensor]:
        """Vectors of anchors, positives and negatives before the projector, dropout on."""
        columns = self.columns("anchor", "positive", "negative")
        if self.objective.masks == "fixed":
            return self._encode(columns[:1]) * len(columns)
        return self._encode(columns)

    @cached_property
    def noisy(self) -> list[Tensor]:
        """The same after the projector."""
        if self.objective.masks == "fixed":
            return self._project(self.pooled[:1]) * len(self.pooled)
        return self._project(self.pooled)

    @cached_property
    def clean(self) -> list[Tensor]:
        """Projected vectors without dropout, with gradient: what is encoded depends on the corpus.

        Of single sentences the anchors alone: both sides of a negative pair are then the
        sentences themselves, whatever the view of the positive. Of pairs, all columns.
        """
        roles = ("anchor", "positive", "negative") if self.objective.labelled else ("anchor",)
        with ExitStack() as stack:
            for encoder in filter(None, (self.objective.encoder, self.objective.second)):
                stack.enter_context(encoder.dropout_off())
            vectors = self._encode(self.columns(*roles))
        return self._project(vectors)

    def positives(self, contrast: "Contrast") -> list[Tensor]:
        """Anchors and their positives (one column or more), as the positive pairs see them."""
        count = 1 + self.roles.count("positive")
        return self._as(contrast.positives, contrast)[:count]

    def negatives(self, contrast: "Contrast") -> tuple[Tensor, Tensor]:
        """Anchors and candidates, as the negative pairs see them."""
        found = self._as(contrast.negatives, contrast)
        return found[0], found[1] if len(found) > 1 else found[0]

    def hard_negatives(self, *, clean: bool) -> Tensor | None:
        """Hard negatives of this process's rows, (n, h, d), or None."""
        count = self.roles.count("negative")
        if not count:
            return None
        if clean and self.objective.labelled:
            return torch.stack(self.clean[-count:], dim=1)
        return torch.stack(self.noisy[-count:], dim=1)

    def queued(self) -> Tensor | None:
        """Negatives from earlier batches, (q, d), or None; also keeps this batch for later."""
        queue = self.objective.queue
        if queue is None:
            return None
        if self.objective.training:
            queue.keep(self)
        return queue.negatives()

    def project(self, columns: Sequence[Tensor]) -> list[Tensor]:
        """Vectors of several columns through the projector, as one block.

        A projector with batch statistics sees the rows of all processes.
        """
        return self._project(list(columns))

    def _as(self, source: str, contrast: "Contrast") -> list[Tensor]:
        if source == "off_dropout":
            return self.clean
        if source == "noisy":
            return self.noisy
        if source == "gaussian":
            scale = contrast.noise_variance**0.5
            return [z + scale * torch.randn_like(z) for z in self.noisy]
        columns = self.columns("anchor", "positive")
        rounds = [self._project(self._encode(columns)) for _ in range(contrast.passes)]
        return [torch.stack(same).mean(dim=0) for same in zip(*rounds, strict=True)]

    def _encode(self, columns: list[Tokens]) -> list[Tensor]:
        second = self.objective.second
        if second is None:
            return _split(self.objective.encoder, columns)
        return _split(self.objective.encoder, columns[:1]) + _split(second, columns[1:])

    def _project(self, columns: list[Tensor]) -> list[Tensor]:
        one, two = self.objective.projector, self.objective.second_projector
        if two is None:
            return _through(one, columns)
        return _through(one, columns[:1]) + _through(two, columns[1:])


def _split(encoder: nn.Module, columns: list[Tokens]) -> list[Tensor]:
    if not columns:
        return []
    vectors: Tensor = encoder(Tokens.concatenate(columns))
    return list(torch.split(vectors, [len(column) for column in columns]))


def _through(projector: nn.Module | None, columns: list[Tensor]) -> list[Tensor]:
    if projector is None or not columns:
        return columns
    rows = torch.cat(columns)
    sizes = [len(column) for column in columns]
    if parallel.world() > 1 and _has_batch_statistics(projector):
        start = parallel.first_row(len(rows))
        rows = projector(parallel.gather(rows))[start : start + len(rows)]
    else:
        rows = projector(rows)
    return list(torch.split(rows, sizes))


def _has_batch_statistics(projector: nn.Module) -> bool:
    return projector.training and any(isinstance(m, nn.BatchNorm1d) for m in projector.modules())
