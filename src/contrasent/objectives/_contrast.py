"""The contrastive term: which encodings are positives, which negatives, and what else is one."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from contrasent import parallel
from contrasent.errors import OptionError
from contrasent.losses import FactorForm, Similarity, info_nce, mean_cosines, two_source_info_nce

if TYPE_CHECKING:
    from contrasent.objectives._step import Step

Source = Literal["noisy", "gaussian", "mean", "off_dropout"]
Terms = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Settings of the contrastive term; the defaults are plain SimCSE.

    Attributes:
        temperature: tau.
        similarity: "cosine" or "dot".
        symmetric: average with the direction from positives to anchors.
        alpha: weight of a row's own hard negatives (SimCSE, equation 8).
        positives: encodings that make the positive pairs.
        negatives: encodings that make the negative pairs, see ``Step.pair``.
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

    def __call__(self, step: "Step") -> Terms:
        """The term "contrast", and the mean cosines that are logged with it."""
        anchors, *positives = step.positives(self)
        queue = step.queued()
        losses = [
            self._plain(step, anchors, p, queue)
            if self.plain
            else self._two_sources(step, anchors, p, queue)
            for p in positives
        ]
        return {"contrast": torch.stack(losses).mean(), **watch(anchors, positives[0])}

    def _plain(
        self, step: "Step", anchors: Tensor, positives: Tensor, queue: Tensor | None
    ) -> Tensor:
        return info_nce(
            anchors,
            parallel.gather(positives),
            hard_negatives=_gathered(step.hard_negatives(clean=False)),
            extra_negatives=queue,
            temperature=self.temperature,
            similarity=self.similarity,
            first=parallel.first_row(len(anchors)),
            alpha=self.alpha,
            symmetric=self.symmetric,
            anchors_all=parallel.gather(anchors) if self.symmetric else None,
        )

    def _two_sources(
        self, step: "Step", anchors: Tensor, positives: Tensor, queue: Tensor | None
    ) -> Tensor:
        left, right = step.negatives(self)
        clean = self.negatives == "off_dropout"
        return two_source_info_nce(
            anchors,
            positives,
            negative_anchors=left,
            negatives=parallel.gather(right),
            hard_negatives=_gathered(step.hard_negatives(clean=clean)),
            extra_negatives=queue,
            temperature=self.temperature,
            similarity=self.similarity,
            first=parallel.first_row(len(anchors)),
            alpha=self.alpha,
            factor=self.factor,
            factor_form=self.factor_form,
        )


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


@torch.no_grad()
def watch(anchors: Tensor, positives: Tensor) -> Terms:
    """Mean cosine of the positive pairs and of the other pairs of a batch; not part of the loss."""
    same, others = mean_cosines(anchors, positives)
    return {"cosine_positive": same, "cosine_negative": others}


def _gathered(hard: Tensor | None) -> Tensor | None:
    return None if hard is None else parallel.gather(hard)
