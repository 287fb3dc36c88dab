"""SimCSE with labels: matching pairs, and hard negatives."""

from dataclasses import replace
from typing import Any, ClassVar

from contrasent import engine


class SupervisedSimCSE(engine.PairObjective):
    """Supervised SimCSE (Gao et al., 2021, section 4, equations 5 and 8; Tables 4, 6, 7 and D.1).

    The corpus has two columns or more: anchor, positive, and any number of hard negatives. The
    other rows' positives and all hard negatives of the batch are negatives.

    Paper and code: alpha of equation 8 weighs a row's own hard negative; the released code takes
    its logarithm. A row may have more than one hard negative here (Table 7, "contradiction +
    neutral"), which the released code cannot read. Two encoders are the "dual encoder" of section
    4.1. A head that stays at inference is the setting ``head``, "tanh" in the paper; a
    ``projector`` is removed (Table 6, "w/ MLP (train)").

    Args:
        projector: "none", "tanh" or "batchnorm"; removed after training.
        alpha: weight of a row's own hard negatives (Table 7).
    """

    labeled = True
    published: ClassVar[dict[str, Any]] = {
        "batch_size": 512,
        "learning_rate": 5e-5,
        "num_train_epochs": 3.0,
        "max_seq_length": 32,
        "head": "tanh",
        "mini_batch_size": 256,
    }
    """Table A.1 and the released script, which has 4 GPUs for a batch of 512. Chunks give the same
    gradient within the memory of one machine."""

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        projector: engine.Projector = "none",
        alpha: engine.Weight = 1.0,
        **given: Any,
    ) -> None:
        super().__init__(encoder, projector=projector, **given)
        self.contrast = replace(self.contrast, alpha=alpha)
