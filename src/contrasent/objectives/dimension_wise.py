"""Dimension-wise contrast as the only loss: an alternative to whitening."""

from contrasent import engine
from contrasent.losses import Norm, Reduction, Variance


class DimensionWiseContrast(engine.Objective):
    """Dimension-wise contrast alone (SimCSE++: Xu et al., 2023, section 5.3, Table 4, "+DCL").

    A script for this use was not released. At the paper's temperature of 0.05 only the form of the
    loss that divides by the rows has a usable scale.

    Args:
        projector: "tanh", "batchnorm" or "none"; removed after training.
        dimension_temperature: tau_DCL.
        dimension_norm: "batch" or "none".
        dimension_variance: "biased" or "unbiased".
        dimension_reduction: "mean" or "sum" over dimensions.
        divide_by_rows: divide the inner product by the rows.
        dimension_epsilon: added to a dimension's variance; 1e-5 as in batch normalization (code).
    """

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        projector: engine.Projector = "none",
        dimension_temperature: engine.Positive = 0.05,
        dimension_norm: Norm = "batch",
        dimension_variance: Variance = "biased",
        dimension_reduction: Reduction = "mean",
        divide_by_rows: bool = True,
        dimension_epsilon: engine.Positive = 1e-5,
    ) -> None:
        super().__init__(encoder)
        self.use_projector(projector)
        self.weights = {"dimensions": 1.0}
        self.terms["dimensions"] = engine.DimensionWise(
            temperature=dimension_temperature,
            norm=dimension_norm,
            variance=dimension_variance,
            reduction=dimension_reduction,
            divide_by_rows=divide_by_rows,
            epsilon=dimension_epsilon,
        )
