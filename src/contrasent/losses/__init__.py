"""The losses: pure functions of tensors, the paper's equation in the docstring.

All arithmetic is in float32 or float64, also under autocast: late in training the contrastive
loss is near 5e-4, which half precision loses.
"""

from contrasent.errors import exports

__all__, __getattr__, __dir__ = exports(__name__)
