"""Terms that learn from scores: how similar people find the two texts of each pair."""

from collections.abc import Callable

import torch
from torch import Tensor

from contrasent import parallel
from contrasent.engine.encodings import BatchEncodings, Term, Terms
from contrasent.errors import TrainingError
from contrasent.losses import pair_cosines


class GradedPairs(Term):
    """A term of the pairs' similarities and their scores, both of all processes.

    Attributes:
        name: of the term.
        loss: maps similarities (n,) and scores (n,) to a scalar.
        similarity: maps two columns (n, d) to similarities (n,).
        unit: scores are divided by it, and must then lie from -1 to 1; None leaves them alone.
    """

    vectors_only = True

    def __init__(
        self,
        name: str,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        similarity: Callable[[Tensor, Tensor], Tensor] = pair_cosines,
        unit: float | None = None,
    ) -> None:
        super().__init__()
        self.name, self.loss, self.similarity, self.unit = name, loss, similarity, unit

    def forward(self, encodings: BatchEncodings) -> Terms:
        """The term of a batch.

        Raises:
            TrainingError: the batch has no scores, or one beyond the unit.
        """
        scores = encodings.batch.scores
        if scores is None:
            raise TrainingError(f"the term {self.name!r} needs a corpus with scores")
        if self.unit is not None:
            worst = scores[abs(scores).argmax()]
            if abs(worst) > self.unit:
                raise TrainingError(
                    f"score {worst:g} is beyond the highest, {self.unit:g}, which stands for pairs "
                    "that mean the same; set highest_score"
                )
            scores = scores / self.unit
        found = self.similarity(*encodings.noisy[:2])
        given = torch.from_numpy(scores).to(found)
        return {self.name: self.loss(parallel.gather(found), parallel.gather(given))}
