"""GISTEmbed: a guide model filters false negatives."""

from typing import Annotated, Any, ClassVar

from contrasent import engine, parallel
from contrasent.losses import gist


class _Guided(engine.Term):
    """The term "gist", see :func:`contrasent.losses.gist`."""

    vectors_only = pulls = True

    def __init__(self, guide: engine.Guide, *, temperature: float, margin: float) -> None:
        super().__init__()
        self.guide, self.temperature, self.margin = guide, temperature, margin

    def forward(self, encodings: engine.BatchEncodings) -> engine.Terms:
        """The term of a batch."""
        columns = encodings.noisy
        guided = self.guide(encodings.columns("anchor", "positive", "negative"))
        loss = gist(
            tuple(parallel.gather(column) for column in columns),
            tuple(parallel.gather(column) for column in guided),
            first=parallel.first_row(len(columns[0])),
            rows=len(columns[0]),
            temperature=self.temperature,
            margin=self.margin,
        )
        return {"gist": loss}


class GISTEmbed(engine.Objective):
    """GISTEmbed (Solatorio, 2024, section 3).

    The corpus has two columns or more: anchor, positive, and any number of hard negatives. Anchors
    are contrasted with the other positives and anchors and with all hard negatives, positives with
    one another. A pair that the guide, a frozen sentence encoder, finds more similar than anchor
    and positive is not a negative. A guide with another tokenizer reads the text that the ids stand
    for.

    Args:
        guide: folder or name@commit of a sentence encoder.
        temperature: tau; 0.01 in the paper.
        margin: how much less similar than the positive a negative must be; 0 in the paper, less
            masks fewer.
    """

    labeled = True
    published: ClassVar[dict[str, Any]] = {
        "batch_size": 16,
        "learning_rate": 5e-6,
        "warmup_ratio": 0.1,
    }
    """The paper's fine-tuning; the epochs it took suit its own data alone."""

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        guide: engine.GuideFolder = None,
        temperature: engine.Positive = 0.01,
        margin: Annotated[float, engine.Range(least=-2, most=2)] = 0.0,
    ) -> None:
        super().__init__(encoder)
        known = engine.Guide.load(guide, encoder)
        self.terms["gist"] = _Guided(known, temperature=temperature, margin=margin)
        self.weights = {"gist": 1.0}
