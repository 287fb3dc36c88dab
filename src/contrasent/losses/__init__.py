"""The losses: pure functions of tensors, one family a file, the paper's equation in the docstring.

All arithmetic is done in float32 (or float64, if that is what comes in) whatever the autocast
around the call: late in training the contrastive loss is near 5e-4 and half precision loses it.
"""

from contrasent.losses.contrastive import (
    FactorForm,
    Similarity,
    info_nce,
    mean_cosines,
    similarities,
    two_source_info_nce,
)
from contrasent.losses.dimensions import (
    BarlowNorm,
    Norm,
    Reduction,
    Variance,
    barlow_twins,
    dimension_wise_contrast,
)
from contrasent.losses.tokens import Normalisation, corrective_lm, masked_lm, token_detection

__all__ = [
    "BarlowNorm",
    "FactorForm",
    "Norm",
    "Normalisation",
    "Reduction",
    "Similarity",
    "Variance",
    "barlow_twins",
    "corrective_lm",
    "dimension_wise_contrast",
    "info_nce",
    "masked_lm",
    "mean_cosines",
    "similarities",
    "token_detection",
    "two_source_info_nce",
]
