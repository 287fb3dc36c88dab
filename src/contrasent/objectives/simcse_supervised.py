"""SimCSE with labels: pairs that belong together, and hard negatives that do not."""

import torch

from contrasent import parallel
from contrasent.losses import Similarity, info_nce
from contrasent.model.encoder import Encoder
from contrasent.objectives._base import Objective, Terms, encode_columns, watch
from contrasent.types import Batch


class SupervisedSimCSE(Objective):
    """Supervised SimCSE (Gao et al., 2021, section 4, equations 5 and 8).

    The corpus has two columns or more: anchor, positive, and any number of hard negatives. The
    other rows' positives and all hard negatives of the batch are negatives.

    Paper and code: alpha of equation 8 weighs a row's own hard negative; the released code takes
    its logarithm. A row may have more than one hard negative here (Table 7, "contradiction +
    neutral"), which the released code cannot read. Heads: what is kept at inference belongs to the
    encoder (setting ``head``), so there is no projector.

    Args:
        encoder: what is trained.
        temperature: tau.
        similarity: "cosine", or "dot" (Table D.1).
        alpha: weight of a row's own hard negatives (Table 7).
        symmetric: average with the loss from positives to anchors.
    """

    labelled = True

    def __init__(
        self,
        encoder: Encoder,
        *,
        temperature: float = 0.05,
        similarity: Similarity = "cosine",
        alpha: float = 1.0,
        symmetric: bool = False,
    ) -> None:
        super().__init__(encoder)
        self.temperature = temperature
        self.similarity = similarity
        self.alpha = alpha
        self.symmetric = symmetric

    def forward(self, batch: Batch) -> Terms:
        """The term "contrast"."""
        anchors, positives, *hard = encode_columns(self.encoder, batch.columns)
        loss = info_nce(
            anchors,
            parallel.gather(positives),
            hard_negatives=parallel.gather(torch.stack(hard, dim=1)) if hard else None,
            temperature=self.temperature,
            similarity=self.similarity,
            first=parallel.first_row(len(anchors)),
            alpha=self.alpha,
            symmetric=self.symmetric,
            anchors_all=parallel.gather(anchors) if self.symmetric else None,
        )
        return {"contrast": loss, **watch(anchors, positives)}
