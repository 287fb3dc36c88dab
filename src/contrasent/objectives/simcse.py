"""SimCSE without labels: a sentence is its own positive, dropout makes the difference."""

from torch import Tensor

from contrasent import parallel
from contrasent.losses import Similarity, info_nce
from contrasent.model.encoder import Encoder
from contrasent.model.heads import make_head
from contrasent.objectives._base import Objective, Terms, encode_columns, watch
from contrasent.types import Batch


class SimCSE(Objective):
    """Unsupervised SimCSE (Gao et al., 2021, section 3, equation 4).

    Each sentence is encoded twice with independent dropout masks; the two vectors must find each
    other among those of the other sentences of the batch.

    Paper and code agree: one direction only, N - 1 negatives, and a tanh projector that is used in
    training and dropped afterwards (Table 6, "w/ MLP (train)").

    Args:
        encoder: what is trained.
        temperature: tau.
        similarity: "cosine", or "dot" (Table D.1).
        projector: "tanh", "batchnorm" or "none"; dropped after training.
        symmetric: average with the loss from the second view to the first.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        temperature: float = 0.05,
        similarity: Similarity = "cosine",
        projector: str = "tanh",
        symmetric: bool = False,
    ) -> None:
        super().__init__(encoder)
        self.temperature = temperature
        self.similarity = similarity
        self.symmetric = symmetric
        self.projector = make_head(projector, encoder.dimension)

    def forward(self, batch: Batch) -> Terms:
        """The term "contrast"."""
        anchors, positives = (self._project(z) for z in encode_columns(self.encoder, batch.columns))
        loss = info_nce(
            anchors,
            parallel.gather(positives),
            temperature=self.temperature,
            similarity=self.similarity,
            first=parallel.first_row(len(anchors)),
            symmetric=self.symmetric,
            anchors_all=parallel.gather(anchors) if self.symmetric else None,
        )
        return {"contrast": loss, **watch(anchors, positives)}

    def _project(self, vectors: Tensor) -> Tensor:
        return vectors if self.projector is None else self.projector(vectors)
