"""How the encoders of an objective compute in a run."""

from contrasent.errors import OptionError
from contrasent.model.encoder import Encoder
from contrasent.model.packed import fits
from contrasent.objectives._base import Objective
from contrasent.objectives._dimensions import Barlow, DimensionWise
from contrasent.train.settings import Settings

VECTORS_ALONE = (Barlow, DimensionWise)
"""Terms that see nothing of an encoder but its vectors."""


def configure(objective: Objective, settings: Settings) -> None:
    """Set padding, chunks and compilation of every encoder in an objective.

    Raises:
        OptionError: chunks with an objective that keeps more in memory than vectors.
    """
    others = [name for name, t in objective.terms.items() if not isinstance(t, VECTORS_ALONE)]
    own = type(objective).forward is not Objective.forward
    if settings.chunk and (others or own):
        what = f"its term {others[0]!r}" if others else "it"
        problem = f"not for {objective.name}: {what} works on tokens, which chunks do not bound"
        raise OptionError("chunk", settings.chunk, f"{problem}; use 0")
    for encoder in objective.modules():
        if isinstance(encoder, Encoder):
            encoder.packed = fits(encoder.backbone) and settings.padding == "none"
            encoder.chunk = settings.chunk
            if settings.compile:
                encoder.compile_backbone()
