"""AnglE: orders rated pairs by cosines and by angles in complex space."""

from functools import partial

from contrasent import engine
from contrasent.losses import complex_cosines, cosent
from contrasent.objectives.cosent import CoSENT


class AnglE(engine.Objective):
    """AnglE (Li & Li, 2024, sections 3.2 and 3.4; Table 2).

    The corpus has two columns of text and a score. The cosine term is CoSENT's; the angle term does
    the same with :func:`contrasent.losses.complex_cosines`, which, unlike the cosine, does not
    saturate. The encoder's dimension must be even.

    Paper and code: the paper's equation of the angle term uses a difference, the released code,
    followed here, a similarity. Their in-batch term
    (section 3.3) needs pairs known to be positives, and is the contrastive loss of other methods.

    Args:
        temperature: tau of the cosine term.
        cosine_weight: weight of the cosine term; 1 in the paper.
        angle_weight: weight of the angle term; 1 in the paper.
        angle_temperature: tau of the angle term; 1 in the paper and its first code.
    """

    labeled = True
    graded = True
    published = CoSENT.published
    """Those of CoSENT, which it extends; the paper's differ from one data set to the next."""

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        temperature: engine.Positive = 0.05,
        cosine_weight: engine.Weight = 1.0,
        angle_weight: engine.Weight = 1.0,
        angle_temperature: engine.Positive = 1.0,
    ) -> None:
        super().__init__(encoder)
        self.terms["cosine"] = engine.GradedPairs(
            "cosine", partial(cosent, temperature=temperature)
        )
        self.terms["angle"] = engine.GradedPairs(
            "angle", partial(cosent, temperature=angle_temperature), similarity=complex_cosines
        )
        self.weights = {"cosine": cosine_weight, "angle": angle_weight}
