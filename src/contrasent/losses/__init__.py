"""The losses: pure functions of tensors, the paper's equation in the docstring.

All arithmetic is in float32 or float64 whatever the autocast: late in training the contrastive
loss is near 5e-4, which half precision loses.
"""

from typing import TYPE_CHECKING

from contrasent.errors import exports

if TYPE_CHECKING:
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
        similarities as similarities,
    )

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "contrasent.losses.auxiliary": (
            "BarlowNorm Norm Normalization Reduction Variance barlow_twins corrective_lm "
            "dimension_wise_contrast masked_lm token_detection"
        ),
        "contrasent.losses.contrastive": "FactorForm Form Weights info_nce two_source_info_nce",
        "contrasent.losses.graded": "complex_cosines cosent cosine_regression distill_ranking gist",
        "contrasent.losses.similarity": "Similarity mean_cosines pair_cosines similarities",
    },
)
