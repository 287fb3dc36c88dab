from contrasent.losses.auxiliary import (
    BarlowNorm as BarlowNorm,
    Norm as Norm,
    Normalization as Normalization,
    Reduction as Reduction,
    Variance as Variance,
    barlow_twins as barlow_twins,
    corrective_lm as corrective_lm,
    dimension_wise_contrast as dimension_wise_contrast,
    masked_lm as masked_lm,
    token_detection as token_detection,
)
from contrasent.losses.contrastive import (
    FactorForm as FactorForm,
    Form as Form,
    Weights as Weights,
    info_nce as info_nce,
    two_source_info_nce as two_source_info_nce,
)
from contrasent.losses.graded import (
    complex_cosines as complex_cosines,
    cosent as cosent,
    cosine_regression as cosine_regression,
    distill_ranking as distill_ranking,
    gist as gist,
)
from contrasent.losses.similarity import (
    Similarity as Similarity,
    mean_cosines as mean_cosines,
    pair_cosines as pair_cosines,
)
