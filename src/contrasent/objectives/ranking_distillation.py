"""Ranking distillation: ranks each batch as a guide model does."""

from typing import Any, ClassVar

from contrasent import engine, parallel
from contrasent.losses import Similarity, distill_ranking


class _Ranking(engine.Term):
    """The term "ranking", see :func:`contrasent.losses.distill_ranking`."""

    vectors_only = True

    def __init__(
        self, guide: engine.Guide, *, temperature: float, guide_temperature: float
    ) -> None:
        super().__init__()
        self.guide, self.temperature = guide, temperature
        self.guide_temperature = guide_temperature

    def forward(self, encodings: engine.BatchEncodings) -> engine.Terms:
        """The term of a batch."""
        anchors, positives = encodings.noisy[:2]
        guided = self.guide(encodings.columns("anchor", "positive")[:2])
        loss = distill_ranking(
            anchors,
            parallel.gather(positives),
            guided[0],
            parallel.gather(guided[1]),
            first=parallel.first_row(len(anchors)),
            temperature=self.temperature,
            guide_temperature=self.guide_temperature,
        )
        return {"ranking": loss}


class RankingDistillation(engine.Objective):
    """SimCSE plus ranking distillation (RankCSE: Liu et al., 2023, section 4).

    Each anchor's similarities to the other rows of the batch are trained to have the distribution
    of a guide's, a frozen sentence encoder (ListNet). RankCSE averages two guides and adds a third
    term,
    the consistency of both views' rankings; neither is implemented.

    Args:
        guide: folder or name@commit of a sentence encoder.
        temperature: tau of the contrastive loss.
        similarity: similarity in the contrastive loss, "cosine" or "dot".
        projector: "tanh", "batchnorm" or "none"; removed after training.
        contrast_weight: weight of the contrastive loss; 0 only distills.
        ranking_weight: weight of the term (gamma); the paper does not state one.
        ranking_temperature: tau of the term; 0.05 in the released code.
        guide_temperature: tau of the guide's ranking; half of ``ranking_temperature`` in the
            released code.
    """

    published: ClassVar[dict[str, Any]] = {
        "batch_size": 128,
        "learning_rate": 3e-5,
        "num_train_epochs": 1.0,
        "max_seq_length": 32,
    }
    """A released script for BERT base, by others than the authors."""

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        guide: engine.GuideFolder = None,
        temperature: engine.Positive = 0.05,
        similarity: Similarity = "cosine",
        projector: engine.Projector = "tanh",
        contrast_weight: engine.Weight = 1.0,
        ranking_weight: engine.Weight = 1.0,
        ranking_temperature: engine.Positive = 0.05,
        guide_temperature: engine.Positive = 0.025,
    ) -> None:
        super().__init__(encoder)
        self.use_projector(projector)
        self.use_contrast(contrast_weight, temperature=temperature, similarity=similarity)
        self.terms["ranking"] = _Ranking(
            engine.Guide.load(guide, encoder),
            temperature=ranking_temperature,
            guide_temperature=guide_temperature,
        )
        self.weights["ranking"] = ranking_weight
