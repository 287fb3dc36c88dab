"""A model in the forms that other libraries expect; each needs that library only."""

from pathlib import Path
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from contrasent.encoder.encoder import Encoder

Model = Union[str, Path, "Encoder"]


def encoder_of(model: Model) -> "Encoder":
    """The encoder itself, or the one of this folder or name."""
    from contrasent.encoder.encoder import Encoder

    return model if isinstance(model, Encoder) else Encoder.load(model)
