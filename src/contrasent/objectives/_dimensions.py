"""Terms between the dimensions of anchors and positives."""

import torch
from torch import Tensor, nn

from contrasent import parallel
from contrasent.losses import (
    BarlowNorm,
    Norm,
    Reduction,
    Variance,
    barlow_twins,
    dimension_wise_contrast,
)
from contrasent.objectives._step import Step
from contrasent.text.batches import random_for

ARTIFICIAL = 200


class DimensionWise(nn.Module):
    """The term "dimensions": dimension-wise contrast of the projected views (SimCSE++, 4.3).

    The rows of all processes are taken together, so that the statistics are those of the batch.
    """

    def __init__(
        self,
        *,
        temperature: float,
        norm: Norm,
        variance: Variance,
        reduction: Reduction,
        divide_by_rows: bool,
        epsilon: float,
    ) -> None:
        super().__init__()
        self.temperature, self.norm, self.variance = temperature, norm, variance
        self.reduction, self.divide_by_rows = reduction, divide_by_rows
        self.epsilon = epsilon

    def forward(self, step: Step) -> dict[str, Tensor]:
        """The term of a step."""
        loss = dimension_wise_contrast(
            parallel.gather(step.noisy[0]),
            parallel.gather(step.noisy[1]),
            temperature=self.temperature,
            norm=self.norm,
            variance=self.variance,
            reduction=self.reduction,
            divide_by_rows=self.divide_by_rows,
            epsilon=self.epsilon,
        )
        return {"dimensions": loss}


class Barlow(nn.Module):
    """The term "barlow": Barlow Twins with artificial rows (SimCSE++, 4.1 and 4.2).

    The artificial rows are drawn anew in every step, the same for both views.
    """

    def __init__(self, *, off_diagonal: float, artificial: int, norm: BarlowNorm) -> None:
        super().__init__()
        self.off_diagonal, self.artificial, self.norm = off_diagonal, artificial, norm

    def forward(self, step: Step) -> dict[str, Tensor]:
        """The term of a step."""
        first, second = (parallel.gather(view) for view in step.noisy[:2])
        seed = int(random_for(step.batch.seed, ARTIFICIAL, step.batch.step).integers(2**62))
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(self.artificial, first.shape[1], generator=generator)
        loss = barlow_twins(
            first,
            second,
            off_diagonal=self.off_diagonal,
            artificial=noise.to(first),
            norm=self.norm,
        )
        return {"barlow": loss}
