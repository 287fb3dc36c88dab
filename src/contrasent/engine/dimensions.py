"""Terms between the dimensions of anchors and positives."""

import torch

from contrasent import parallel
from contrasent.engine.encodings import BatchEncodings, Term, Terms
from contrasent.losses import (
    BarlowNorm,
    Norm,
    Reduction,
    Variance,
    barlow_twins,
    dimension_wise_contrast,
)
from contrasent.text.batches import random_for

ARTIFICIAL = 200


class DimensionWise(Term):
    """The term "dimensions": dimension-wise contrast of the projected views (SimCSE++, 4.3).

    The rows of all processes are taken together, so that the statistics are those of the batch.
    """

    vectors_only = True

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

    def forward(self, encodings: BatchEncodings) -> Terms:
        """The term of a batch."""
        loss = dimension_wise_contrast(
            parallel.gather(encodings.noisy[0]),
            parallel.gather(encodings.noisy[1]),
            temperature=self.temperature,
            norm=self.norm,
            variance=self.variance,
            reduction=self.reduction,
            divide_by_rows=self.divide_by_rows,
            epsilon=self.epsilon,
        )
        return {"dimensions": loss}


class Barlow(Term):
    """The term "barlow": Barlow Twins with artificial rows (SimCSE++, 4.1 and 4.2).

    The artificial rows are drawn anew in every step, the same for both views.
    """

    vectors_only = True

    def __init__(self, *, off_diagonal: float, artificial: int, norm: BarlowNorm) -> None:
        super().__init__()
        self.off_diagonal, self.artificial, self.norm = off_diagonal, artificial, norm

    def forward(self, encodings: BatchEncodings) -> Terms:
        """The term of a batch."""
        first, second = (parallel.gather(view) for view in encodings.noisy[:2])
        seed = int(
            random_for(encodings.batch.seed, ARTIFICIAL, encodings.batch.step).integers(2**62)
        )
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
