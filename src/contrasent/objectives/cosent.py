"""CoSENT: orders the cosines of rated pairs as people rated them."""

from functools import partial
from typing import Any, ClassVar

from contrasent import engine
from contrasent.losses import cosent


class CoSENT(engine.Objective):
    """CoSENT (Su, 2022; an article with code, without a paper or tables).

    The corpus has two columns of text and a score. For any two pairs of a batch, the one with the
    higher score should have the higher cosine. Only the order of scores counts, so that any rating
    can be used, also labels of entailment.

    Args:
        temperature: tau; the code has lambda = 1 / tau = 20.
    """

    labeled = True
    graded = True
    published: ClassVar[dict[str, Any]] = {
        "batch_size": 32,
        "learning_rate": 2e-5,
        "num_train_epochs": 5.0,
        "max_seq_length": 64,
    }
    """The released code."""

    def __init__(
        self, encoder: engine.TorchEncoder, *, temperature: engine.Positive = 0.05
    ) -> None:
        super().__init__(encoder)
        self.terms["cosent"] = engine.GradedPairs(
            "cosent", partial(cosent, temperature=temperature)
        )
        self.weights = {"cosent": 1.0}
