"""The losses: pure functions of tensors, one family a file, the paper's equation in the docstring.

All arithmetic is done in float32 (or float64, if that is what comes in) whatever the autocast
around the call: late in training the contrastive loss is near 5e-4 and half precision loses it.
"""

from contrasent.losses.contrastive import (
    Similarity,
    info_nce,
    similarities,
    two_source_info_nce,
)

__all__ = [
    "Similarity",
    "info_nce",
    "similarities",
    "two_source_info_nce",
]
