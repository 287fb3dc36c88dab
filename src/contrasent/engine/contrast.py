"""The contrastive term: which encodings make the positive pairs, and which the negative ones."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from contrasent import parallel
from contrasent.engine.encodings import BatchEncodings, Source, Terms
from contrasent.errors import OptionError
from contrasent.losses import FactorForm, Similarity, info_nce, mean_cosines, two_source_info_nce


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Settings of the contrastive term; the defaults are plain SimCSE.

    Attributes:
        temperature: tau.
        similarity: "cosine" or "dot".
        symmetric: average with the direction from positives to anchors.
        alpha: weight of a row's own hard negatives (SimCSE, equation 8).
        positives: encodings that make the positive pairs.
        negatives: encodings that make the negative pairs, see ``BatchEncodings.vectors``.
        factor: m of SimCSE++ (equation 3).
        factor_form: where m stands, see ``two_source_info_nce``.
        passes: K of "mean" (SimCSE++, section 3.1).
        noise_variance: of "gaussian".
    """

    temperature: float = 0.05
    similarity: Similarity = "cosine"
    symmetric: bool = False
    alpha: float = 1.0
    positives: Source = "noisy"
    negatives: Source = "noisy"
    factor: float = 1.0
    factor_form: FactorForm = "positive_logit"
    passes: int = 10
    noise_variance: float = 0.1

    def __post_init__(self) -> None:
        if self.symmetric and not self.plain:
            raise OptionError(
                "symmetric", True, "is defined only where both pairs come from the same encodings"
            )

    @property
    def plain(self) -> bool:
        """Whether positive and negative pairs come from the same encodings, unweighted."""
        return self.positives == "noisy" == self.negatives and self.factor == 1.0

    def __call__(self, encodings: BatchEncodings) -> Terms:
        """The term "contrast", and the mean cosines that are logged with it.

        Args:
            encodings: of the rows of this process.
        """
        count = 1 + encodings.roles.count("positive")
        anchors, *positives = self._vectors(encodings, self.positives)[:count]
        loss = self._one_source if self.plain else self._two_sources
        losses = [loss(encodings, anchors, rows) for rows in positives]
        same, others = mean_cosines(anchors.detach(), positives[0].detach())
        return {
            "contrast": torch.stack(losses).mean(),
            "cosine_positive": same,
            "cosine_negative": others,
        }

    def _one_source(self, encodings: BatchEncodings, anchors: Tensor, positives: Tensor) -> Tensor:
        return info_nce(
            anchors,
            parallel.gather(positives),
            symmetric=self.symmetric,
            anchors_all=parallel.gather(anchors) if self.symmetric else None,
            **self._common(encodings, len(anchors), clean=False),
        )

    def _two_sources(self, encodings: BatchEncodings, anchors: Tensor, positives: Tensor) -> Tensor:
        left, *right = self._vectors(encodings, self.negatives)
        return two_source_info_nce(
            anchors,
            positives,
            negative_anchors=left,
            negatives=parallel.gather(right[0] if right else left),
            factor=self.factor,
            factor_form=self.factor_form,
            **self._common(encodings, len(anchors), clean=self.negatives == "off_dropout"),
        )

    def _common(self, encodings: BatchEncodings, rows: int, *, clean: bool) -> dict[str, Any]:
        """What both forms of the loss take: further negatives, and how they are compared."""
        hard = encodings.hard_negatives(clean=clean)
        return {
            "hard_negatives": None if hard is None else parallel.gather(hard),
            "extra_negatives": encodings.queued(),
            "temperature": self.temperature,
            "similarity": self.similarity,
            "first": parallel.first_row(rows),
            "alpha": self.alpha,
        }

    def _vectors(self, encodings: BatchEncodings, source: Source) -> list[Tensor]:
        return encodings.vectors(source, passes=self.passes, noise_variance=self.noise_variance)


def merge(settings: list[Contrast]) -> Contrast:
    """One contrast out of several: each setting from the one that departs from plain SimCSE.

    A method's own kind of contrast (a subclass) is kept.

    Raises:
        OptionError: two of them depart in different ways, or are of different kinds.
    """
    kinds = sorted({type(s) for s in settings} - {Contrast}, key=lambda kind: kind.__name__)
    if len(kinds) > 1:
        two = " and ".join(kind.__name__ for kind in kinds)
        raise OptionError("--objective", two, "two contrasts of different kinds cannot be one")
    kind = kinds[0] if kinds else Contrast
    merged: dict[str, Any] = {}
    for field in fields(kind):
        values = [getattr(s, field.name) for s in settings if hasattr(s, field.name)]
        departing = sorted({v for v in values if v != field.default}, key=str)
        if len(departing) > 1:
            raise OptionError(
                field.name,
                departing[0],
                f"the combined objectives want {' and '.join(map(repr, departing))}; set it",
            )
        merged[field.name] = departing[0] if departing else field.default
    return kind(**merged)
