"""Cosine regression: trains the cosine of a rated pair to equal its score."""

from typing import Any, ClassVar

from contrasent import engine
from contrasent.losses import cosine_regression


class CosineRegression(engine.Objective):
    """The regression objective of Sentence-BERT (Reimers & Gurevych, 2019, section 3; Table 2).

    The corpus has two columns of text and a score; the loss is the mean squared difference of
    cosine and score. Scores must be in the cosine's unit: ratings from 0 to 5 are divided by 5.

    Args:
        highest_score: score of pairs that mean the same, which scores are divided by; 5 for the STS
            Benchmark.
    """

    labeled = True
    graded = True
    published: ClassVar[dict[str, Any]] = {
        "batch_size": 16,
        "learning_rate": 2e-5,
        "num_train_epochs": 4.0,
        "warmup_ratio": 0.1,
    }
    """The released script for the STS Benchmark."""

    def __init__(
        self, encoder: engine.TorchEncoder, *, highest_score: engine.Positive = 1.0
    ) -> None:
        super().__init__(encoder)
        self.terms["regression"] = engine.GradedPairs(
            "regression", cosine_regression, unit=highest_score
        )
        self.weights = {"regression": 1.0}
