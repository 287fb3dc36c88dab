"""The columns that anchors are compared with, block by block, and their weights."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from contrasent.errors import OptionError
from contrasent.losses.similarity import Similarity, check_temperature, normalised

Weights = Tensor | Callable[[slice], Tensor]
"""Weights of negatives, 0 or False for what is none: (rows, columns), or a function that makes them
for a slice of the rows, so that no more than one block of them is in memory."""


@dataclass(frozen=True, kw_only=True)
class Negatives:
    """The columns that every anchor is compared with: candidates, hard and extra negatives."""

    candidates: Tensor  # (m, d); of anchor i, column `first + i` is its own and no negative
    hard: Tensor | None
    extra: Tensor | None  # (q, d), or None
    temperature: float
    first: int  # where this process's rows begin among the candidates
    alpha: float  # weight of a row's own hard negatives
    weights: Weights | None
    hardness: float
    debias: float

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if not 0 <= self.alpha < math.inf:
            problem = "must be 0 or more; 1 weighs all negatives alike"
            raise OptionError("alpha", self.alpha, problem)
        if not 0 <= self.hardness < math.inf:
            problem = "must be 0 (all negatives alike) or more"
            raise OptionError("hardness", self.hardness, problem)
        if not 0 <= self.debias < 1:
            problem = "must be from 0 (off) up to, not including, 1"
            raise OptionError("debias", self.debias, problem)

    @classmethod
    def make(
        cls,
        candidates: Tensor,
        hard: Tensor | None,
        extra: Tensor | None,
        similarity: Similarity,
        **options: Any,
    ) -> "Negatives":
        """Normalise the vectors."""
        # `candidates`: (m, d). `hard`: (m, h, d), or None. `extra`: (q, d), or None.
        m = len(candidates)
        if hard is not None and (hard.dim() != 3 or len(hard) != m):
            raise ValueError(
                f"hard negatives of shape {tuple(hard.shape)} for {m} candidates; "
                "wanted (candidates, negatives of each, dimensions)"
            )
        found = cls(
            candidates=normalised(candidates, similarity),
            hard=None if hard is None else normalised(hard.flatten(0, 1), similarity),
            extra=normalised(extra, similarity) if extra is not None and len(extra) else None,
            **options,
        )
        if found.debias and similarity != "cosine":
            problem = "needs the cosine, since it is bounded below by the least similarity"
            raise OptionError("debias", found.debias, problem)
        return found

    def facing(self, others: Tensor) -> "Negatives":
        """The same for the direction from positives to anchors."""
        given = self.weights
        weights = None if given is None else lambda part: _of(given, part)[:, : len(others)]
        return replace(self, candidates=others, hard=None, extra=None, alpha=1.0, weights=weights)

    @property
    def columns(self) -> int:
        """How many rows an anchor is compared with."""
        return sum(len(c) for c in (self.candidates, self.hard, self.extra) if c is not None)

    @property
    def reweighted(self) -> bool:
        """Whether the sum over the negatives is corrected, by ``log_sum``."""
        return bool(self.hardness or self.debias)

    def logits(self, rows: Tensor) -> Tensor:
        """Similarities (k, columns) of k anchors with all columns, divided by tau."""
        parts = [c for c in (self.candidates, self.hard, self.extra) if c is not None]
        return torch.cat([rows @ part.T / self.temperature for part in parts], dim=1)

    def own(self, logits: Tensor, part: slice) -> Tensor:
        """Mask (k, columns) of the column that is an anchor's own."""
        mask = torch.zeros_like(logits, dtype=torch.bool)
        mask.diagonal(self.first + part.start).fill_(True)
        return mask

    def log_weights(self, logits: Tensor, part: slice) -> Tensor | None:
        """Logarithms (k, columns) of the weights, that of the own column 0; None for all ones."""
        found = None
        if self.hard is not None and self.alpha != 1.0:
            m = len(self.candidates)
            own = logits.new_zeros(len(logits), m, len(self.hard) // m)
            own.diagonal(self.first + part.start).fill_(
                math.log(self.alpha) if self.alpha else -math.inf
            )
            found = torch.zeros_like(logits)
            found[:, m : m + len(self.hard)] = own.flatten(1)
        if self.weights is not None:
            given = _of(self.weights, part)
            if given.shape != logits.shape:
                raise ValueError(
                    f"weights of shape {tuple(given.shape)} for {tuple(logits.shape)} comparisons"
                )
            logs = given.detach().to(logits).log().masked_fill(self.own(logits, part), 0.0)
            found = logs if found is None else found + logs
        return found

    def log_sum(self, positive: Tensor, logits: Tensor, part: slice) -> Tensor:
        r"""Logarithm (k,) of the corrected sum over the negatives; see ``info_nce``.

        .. math::

            S_i = N_i \frac{\sum_j w_{ij} e^{(1 + \beta) s_{ij}}}{\sum_j w_{ij} e^{\beta s_{ij}}}
            \qquad
            \max\left( \frac{S_i - N_i \tau^+ e^{s_i^+}}{1 - \tau^+}, N_i e^{-1/\tau} \right)

        ``positive``: (k,) logits of the positive pairs, s_i^+. ``logits``: (k, columns), s_ij.
        """
        weights = self.log_weights(logits, part)
        weights = torch.zeros_like(logits) if weights is None else weights
        weights = weights.masked_fill(self.own(logits, part), -math.inf)
        # A row without negatives would make 0 of infinities; it is computed as another and dropped.
        none = weights.isneginf().all(dim=1)
        weights = weights.masked_fill(none[:, None], 0.0)
        count = weights.logsumexp(dim=1)
        total = (weights + (1 + self.hardness) * logits).logsumexp(dim=1)
        if self.hardness:
            total = total + count - (weights + self.hardness * logits).logsumexp(dim=1)
        if self.debias:
            expected = count + math.log(self.debias) + positive
            rest = -torch.expm1((expected - total).clamp_max(0.0))
            rest = rest.clamp_min(torch.finfo(rest.dtype).tiny).log() - math.log1p(-self.debias)
            total = torch.maximum(total + rest, count - 1 / self.temperature)
        return total.masked_fill(none, -math.inf)


def _of(weights: Weights, part: slice) -> Tensor:
    """The weights of a block of rows."""
    return weights(part) if callable(weights) else weights[part]
