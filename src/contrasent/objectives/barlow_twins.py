"""SimCSE with Barlow Twins: decorrelated dimensions and artificial rows."""

from typing import Any

from contrasent import engine
from contrasent.losses import BarlowNorm
from contrasent.objectives.simcse import SimCSE


class BarlowTwins(engine.ContrastObjective):
    """SimCSE plus Barlow Twins (SimCSE++: Xu et al., 2023, sections 4.1, 4.2, equation 4, Table 2).

    The cross-correlation of N rows has rank N at most; ``artificial`` rows of Gaussian noise,
    appended to both views, raise this limit. The paper's equation has a minus sign before its first
    sum
    that the code does not have. The weight of the term relative to SimCSE's is not stated.

    Args:
        contrast_weight: weight of the contrastive loss; 0 trains with Barlow Twins alone.
        barlow_weight: weight of the Barlow Twins term.
        off_diagonal: lambda of equation 4; 0.012 in the code.
        artificial: number of rows of noise; 0, 100, 300 or 704 in Table 2.
        barlow_norm: "batch" (code), or "length" (equation 4: by length, not centered).
    """

    published = SimCSE.published
    """Those of SimCSE, which Table 2 departs from in the loss alone."""

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        contrast_weight: engine.Weight = 1.0,
        barlow_weight: engine.Weight = 1.0,
        off_diagonal: engine.Weight = 0.012,
        artificial: engine.Size = 704,
        barlow_norm: BarlowNorm = "batch",
        **given: Any,
    ) -> None:
        super().__init__(encoder, **given)
        self.use_contrast(contrast_weight, **vars(self.contrast))
        self.weights["barlow"] = barlow_weight
        self.terms["barlow"] = engine.Barlow(
            off_diagonal=off_diagonal, artificial=artificial, norm=barlow_norm
        )
