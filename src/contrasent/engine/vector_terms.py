"""Terms computed from vectors alone: of dimensions, and of rated pairs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contrasent import losses, parallel
from contrasent.engine.encodings import BatchEncodings, Term, Terms
from contrasent.errors import TrainingError
from contrasent.text.batches import random_for

ARTIFICIAL = 200


class _OfDimensions(Term):
    """A term of two views' dimensions, by the rows of all processes."""

    vectors_only = True

    def diagnostics(self, encodings: BatchEncodings) -> Terms:
        """The mean absolute correlation of two different dimensions."""
        return {"dimension_correlation": mean_correlation(encodings.noisy[0])}


class DimensionWise(_OfDimensions):
    """The term "dimensions": dimension-wise contrast of the projected views (SimCSE++, 4.3).

    Its statistics are over the rows of all processes.
    """

    def __init__(self, **settings: Any) -> None:
        """Take the settings of :func:`contrasent.losses.dimension_wise_contrast`."""
        super().__init__()
        self.settings = settings

    def forward(self, encodings: BatchEncodings) -> Terms:
        """Compute the term of a batch."""
        views = (parallel.gather(view) for view in encodings.noisy[:2])
        return {"dimensions": losses.dimension_wise_contrast(*views, **self.settings)}


class Barlow(_OfDimensions):
    """The term "barlow": Barlow Twins with artificial rows (SimCSE++, 4.1 and 4.2).

    The artificial rows are drawn in every step, the same for both views.

    Args:
        off_diagonal: weight of the correlations between dimensions.
        artificial: number of rows of Gaussian noise to append to both views.
    """

    def __init__(self, *, off_diagonal: float, artificial: int, norm: losses.BarlowNorm) -> None:
        super().__init__()
        self.off_diagonal, self.artificial, self.norm = off_diagonal, artificial, norm

    def forward(self, encodings: BatchEncodings) -> Terms:
        """Compute the term of a batch."""
        first, second = (parallel.gather(view) for view in encodings.noisy[:2])
        random = random_for(encodings.batch.seed, ARTIFICIAL, encodings.batch.step)
        generator = torch.Generator().manual_seed(int(random.integers(2**62)))
        noise = torch.randn(self.artificial, first.shape[1], generator=generator)
        options: dict[str, Any] = {"off_diagonal": self.off_diagonal, "norm": self.norm}
        return {"barlow": losses.barlow_twins(first, second, artificial=noise.to(first), **options)}


@torch.no_grad()
def mean_correlation(view: Tensor) -> Tensor:
    """The mean absolute correlation of two different columns, over the rows of all processes."""
    rows = parallel.gather(view).float() if view.dtype.itemsize < 4 else parallel.gather(view)
    columns = nn.functional.normalize(rows - rows.mean(dim=0), dim=0)
    correlations = (columns.T @ columns).abs()
    count = len(correlations)
    return (correlations.sum() - correlations.diagonal().sum()) / max(count * (count - 1), 1)


class GradedPairs(Term):
    """A loss of the pairs' similarities and scores, over the rows of all processes.

    Attributes:
        loss: function of similarities (n,) and scores (n,); a scalar.
        similarity: function of two columns (n, d); similarities (n,).
        unit: divide scores by it, after which they must be from -1 to 1; None does not.
    """

    vectors_only = True

    def __init__(
        self,
        name: str,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        similarity: Callable[[Tensor, Tensor], Tensor] = losses.pair_cosines,
        unit: float | None = None,
    ) -> None:
        super().__init__()
        self.name, self.loss, self.similarity, self.unit = name, loss, similarity, unit

    def check_scores(self, scores: NDArray[np.float64]) -> None:
        """Reject scores (n,) above the unit."""
        worst = scores[abs(scores).argmax()]
        if self.unit is not None and abs(worst) > self.unit:
            raise TrainingError(
                f"score {worst:g} is above {self.unit:g}, the score of identical meaning; set "
                "highest_score"
            )

    def forward(self, encodings: BatchEncodings) -> Terms:
        """Compute the term of a batch."""
        scores = encodings.batch.scores
        if scores is None:
            raise TrainingError(f"the term {self.name!r} needs a corpus with scores")
        if self.unit is not None:
            self.check_scores(scores)
            scores = scores / self.unit
        similarities = self.similarity(*encodings.noisy[:2])
        targets = torch.from_numpy(scores).to(similarities)
        return {self.name: self.loss(parallel.gather(similarities), parallel.gather(targets))}
