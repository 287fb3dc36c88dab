"""Terms between the dimensions of anchors and positives."""

from typing import Any

import torch

from contrasent import parallel
from contrasent.engine.encodings import BatchEncodings, Term, Terms
from contrasent.losses import BarlowNorm, barlow_twins, dimension_wise_contrast
from contrasent.text.batches import random_for

ARTIFICIAL = 200


class DimensionWise(Term):
    """The term "dimensions": dimension-wise contrast of the projected views (SimCSE++, 4.3).

    The rows of all processes are taken together, so that the statistics are those of the batch.
    """

    vectors_only = True

    def __init__(self, **settings: Any) -> None:
        """Of the settings of :func:`contrasent.losses.dimension_wise_contrast`."""
        super().__init__()
        self.settings = settings

    def forward(self, encodings: BatchEncodings) -> Terms:
        """The term of a batch."""
        views = (parallel.gather(view) for view in encodings.noisy[:2])
        loss = dimension_wise_contrast(*views, **self.settings)
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
        options: dict[str, Any] = {"off_diagonal": self.off_diagonal, "norm": self.norm}
        return {"barlow": barlow_twins(first, second, artificial=noise.to(first), **options)}
