"""The losses: pure functions of tensors, the paper's equation in the docstring."""

# All arithmetic is in float32 or float64 whatever the autocast: late in training the contrastive
# loss is near 5e-4, which half precision loses.

from contrasent.losses.contrastive import FactorForm, Weights, info_nce, two_source_info_nce
from contrasent.losses.dimensions import (
    BarlowNorm,
    Norm,
    Reduction,
    Variance,
    barlow_twins,
    dimension_wise_contrast,
)
from contrasent.losses.graded import (
    complex_cosines,
    cosent,
    cosine_regression,
    distil_ranking,
    gist,
)
from contrasent.losses.similarity import Similarity, mean_cosines, pair_cosines, similarities
from contrasent.losses.tokens import Normalisation, corrective_lm, masked_lm, token_detection

__all__ = [
    "BarlowNorm",
    "FactorForm",
    "Norm",
    "Normalisation",
    "Reduction",
    "Similarity",
    "Variance",
    "Weights",
    "barlow_twins",
    "complex_cosines",
    "corrective_lm",
    "cosent",
    "cosine_regression",
    "dimension_wise_contrast",
    "distil_ranking",
    "gist",
    "info_nce",
    "masked_lm",
    "mean_cosines",
    "pair_cosines",
    "similarities",
    "token_detection",
    "two_source_info_nce",
]
