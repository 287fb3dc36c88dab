"""SimCSE with more or less dropout noise in positive or in negative pairs."""

from typing import Annotated, Any, Literal

from contrasent import engine
from contrasent.objectives.simcse import SimCSE


class NoisySimCSE(engine.ContrastObjective):
    """The noise probes of SimCSE++ (Xu et al., 2023, section 3.1, Table 1).

    "+Noise" is "gaussian": a normal deviate on each vector. "-Noise" is "mean": each vector is the
    mean over K encodings with dropout of their own, drawn for this side alone.

    Paper and code: the text gives the noise a variance of 0.1 on both vectors; the commented line
    of the code a deviation of 0.1 on one. The text averages K vectors for each side; the code takes
    one mean for both sides of the negatives, the positive's own two encodings included.

    Args:
        positives: encodings of the positive pairs: "noisy" (plain), "gaussian" or "mean".
        negatives: encodings of the negative pairs: the same, or "off_dropout".
        passes: K, 10 in the paper; "mean" encodes 2 K rows for each sentence.
        noise_variance: variance of "gaussian".
    """

    published = SimCSE.published
    """Those of SimCSE, which Table 1 departs from in the loss alone."""

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        positives: Annotated[
            Literal["noisy", "gaussian", "mean"], engine.Neutral("noisy")
        ] = "noisy",
        negatives: Annotated[engine.Source, engine.Neutral("noisy")] = "mean",
        passes: engine.Count = 10,
        noise_variance: engine.Weight = 0.1,
        **given: Any,
    ) -> None:
        super().__init__(encoder, **given)
        sides = {"positives": positives, "negatives": negatives}
        self.refine(**sides, passes=passes, noise_variance=noise_variance)
