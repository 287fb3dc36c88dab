"""SimCSE++: negatives without dropout noise, and a contrastive loss between dimensions."""

from typing import Annotated, Any

from contrasent import engine
from contrasent.losses import FactorForm, Norm, Reduction, Variance
from contrasent.objectives.simcse import SimCSE


class SimCSEPlusPlus(engine.ContrastObjective):
    """SimCSE++ (Xu et al., 2023, sections 3.2 and 4.3, equations 3, 5 and 6; Tables 3 and 5).

    Positive pairs keep their dropout noise, negative pairs are encoded without it ("off-dropout");
    a second contrast makes each dimension of one view most similar to the same dimension of the
    other. Each can be used alone, by ``negatives="noisy"`` or ``dimension_weight=0``.

    Paper and code: the defaults follow the code; whether it made the paper's tables is not known.
    m (``factor``) multiplies the positive logit there and the sum of the negatives in equation 3;
    the standardization divides by n there and by n - 1 in the paper; the inner product is divided
    by the rows and the loss averaged over dimensions there, neither in equation 5, whose gradient
    is about 10,000 times as large. The paper's m of 0.9 is the default; the released script has 1.

    Args:
        negatives: "off_dropout", or "noisy" for plain ones.
        factor: m, which shrinks positive logits or weights negatives; see ``factor_form``.
        factor_form: "positive_logit" (code) or "negative_sum" (equation 3).
        dimension_weight: lambda of equation 6; 0 leaves the dimension-wise contrast out.
        dimension_temperature: tau_DCL.
        dimension_norm: "batch" or "none".
        dimension_variance: "biased" (code) or "unbiased" (paper).
        dimension_reduction: "mean" (code) or "sum" (paper) over dimensions.
        divide_by_rows: divide the inner product by the rows (code); the paper does not.
        dimension_epsilon: added to a dimension's variance; 1e-5 as in batch normalization (code).
    """

    published = SimCSE.published
    """The released script."""

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        negatives: Annotated[engine.Source, engine.Neutral("noisy")] = "off_dropout",
        factor: engine.Positive = 0.9,
        factor_form: FactorForm = "positive_logit",
        dimension_weight: engine.Weight = 0.1,
        dimension_temperature: engine.Positive = 5.0,
        dimension_norm: Norm = "batch",
        dimension_variance: Variance = "biased",
        dimension_reduction: Reduction = "mean",
        divide_by_rows: bool = True,
        dimension_epsilon: engine.Positive = 1e-5,
        **given: Any,
    ) -> None:
        super().__init__(encoder, **given)
        self.refine(negatives=negatives, factor=factor, factor_form=factor_form)
        if dimension_weight:
            self.weights["dimensions"] = dimension_weight
            self.terms["dimensions"] = engine.DimensionWise(
                temperature=dimension_temperature,
                norm=dimension_norm,
                variance=dimension_variance,
                reduction=dimension_reduction,
                divide_by_rows=divide_by_rows,
                epsilon=dimension_epsilon,
            )
