"""Matryoshka: trains the first dimensions of a vector to work on their own."""

from collections.abc import Mapping
from typing import Any

from contrasent import engine
from contrasent.errors import OptionError
from contrasent.objectives.simcse import SimCSE


def sizes(values: Mapping[str, Any]) -> tuple[int, ...]:
    """The sizes that the parameter ``dimensions`` lists, largest first."""
    if values["projector"] != "none":
        problem = "matryoshka nests the saved vectors, not a projector's; set projector=none"
        raise OptionError("projector", values["projector"], problem)
    text = str(values["dimensions"])
    try:
        dims = sorted({int(part) for part in text.split(",")}, reverse=True)
    except ValueError:
        dims = []
    if not dims or dims[-1] < 1:
        raise OptionError("dimensions", text, 'write sizes such as "256,128,64"')
    return tuple(dims)


class Matryoshka(engine.ContrastObjective):
    """Matryoshka representation learning (Kusupati et al., 2022, section 3, equation 1).

    The contrastive loss is summed over vectors cut to each size, and full ones, all with weight 1,
    so that a vector's first dimensions can be used alone. By itself this is SimCSE without a
    projector; "+" combines it with the contrastive loss of any method, as in
    "matryoshka+simcse_supervised". Named first, it leaves out the other method's projector, whose
    vectors would be cut instead.

    The sizes are saved with the model, and the server offers them.

    Args:
        dimensions: sizes, separated by commas, each below the encoder's.
        projector: always "none".
    """

    published = SimCSE.published
    """Those of SimCSE; the paper trains no sentence encoders."""
    checks = (sizes,)

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        dimensions: str = "256,128,64",
        projector: engine.Projector = "none",
        **given: Any,
    ) -> None:
        super().__init__(encoder, projector=projector, **given)
        dims = sizes({"dimensions": dimensions, "projector": projector})
        if dims[0] >= encoder.dimension:
            problem = f"must be less than {encoder.dimension}, the encoder's dimension"
            raise OptionError("dimensions", dimensions, problem)
        encoder.matryoshka_dims = (encoder.dimension, *dims)
        self.refine(dimensions=dims)
