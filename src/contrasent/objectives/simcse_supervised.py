"""SimCSE with labels: pairs that belong together, and hard negatives."""

from typing import Annotated, Any, ClassVar, Literal

from contrasent import engine
from contrasent.losses import Form, Similarity


class SupervisedSimCSE(engine.Objective):
    """Supervised SimCSE (Gao et al., 2021, section 4, equations 5 and 8; Tables 4, 6, 7 and D.1).

    The corpus has two columns or more: anchor, positive, and any number of hard negatives. The
    other rows' positives and all hard negatives of the batch are negatives.

    Paper and code: alpha of equation 8 weighs a row's own hard negative; the released code takes
    its logarithm. A row may have more than one hard negative here (Table 7, "contradiction +
    neutral"), which the released code cannot read. Heads: what is kept at inference belongs to the
    encoder (setting ``head``, "tanh" in the paper); a ``projector`` is dropped (Table 6, "w/ MLP
    (train)").

    Args:
        temperature: tau.
        similarity: "cosine", or "dot" (Table D.1).
        projector: "none", "tanh" or "batchnorm"; dropped after training.
        alpha: weight of a row's own hard negatives (Table 7).
        symmetric: average with the loss from positives to anchors.
        hardness: beta: negatives count in proportion to exp(beta s / tau) (Robinson et al. 2021).
        debias: tau^+: the share of negatives that are taken for positives (Chuang et al. 2020).
        loss: "softmax"; "decoupled" leaves the positive out of the sum (Yeh et al. 2022); "sigmoid"
            takes the pairs one by one (SigLIP: Zhai et al. 2023).
        bias: of "sigmoid", on similarities that are divided by tau.
        duplicates: "contrast", or "mask" negatives that share a text with the pair.
        encoders: 1, or 2: one for anchors and one for the rest (section 4.1, "dual encoder").
    """

    labelled = True
    published: ClassVar[dict[str, Any]] = {
        "batch": 512,
        "lr": 5e-5,
        "epochs": 3.0,
        "max_tokens": 32,
        "head": "tanh",
        "grad_cache_rows": 256,
    }
    """Table A.1 and the released script, which has 4 GPUs for a batch of 512. Chunks give the same
    gradient within the memory of one machine."""

    def __init__(
        self,
        encoder: engine.Encoder,
        *,
        temperature: engine.Positive = 0.05,
        similarity: Similarity = "cosine",
        projector: engine.Projector = "none",
        alpha: engine.Weight = 1.0,
        symmetric: bool = False,
        hardness: engine.Weight = 0.0,
        debias: Annotated[float, engine.Range(least=0, below=1)] = 0.0,
        loss: Form = "softmax",
        bias: Annotated[float, engine.Range()] = -10.0,
        duplicates: engine.Duplicates = "contrast",
        encoders: Literal[1, 2] = 1,
    ) -> None:
        super().__init__(encoder)
        self.contrast = engine.Contrast(
            temperature=temperature,
            similarity=similarity,
            alpha=alpha,
            symmetric=symmetric,
            hardness=hardness,
            debias=debias,
            loss=loss,
            bias=bias,
            duplicates=duplicates,
        )
        self.use_projector(projector, encoders=encoders)
