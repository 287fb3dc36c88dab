"""Sentence embeddings by contrastive learning: train, evaluate and search with them.

The names below load what they need on first use, so that importing the package costs nothing.
"""

from contrasent import progress as progress
from contrasent.errors import exports
from contrasent.processes import sleep_at_barriers

__version__ = "0.1.0"

sleep_at_barriers()

_names, __getattr__, _ = exports(__name__)
__all__ = sorted([*_names, "__version__"])


def __dir__() -> list[str]:
    return __all__
