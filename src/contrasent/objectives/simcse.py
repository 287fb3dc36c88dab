"""SimCSE without labels: a sentence is its own positive, by dropout."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from contrasent import engine
from contrasent.errors import OptionError
from contrasent.losses import Form, Similarity
from contrasent.text.views import Draw, Rule


def check_fixed_masks(values: Mapping[str, Any]) -> None:
    """Reject the same dropout masks for views that differ otherwise."""
    for option, plain in (("view", "dropout"), ("encoders", 1)):
        if values["masks"] == "fixed" and values[option] != plain:
            raise OptionError(
                "masks", "fixed", f"both views are then one vector; {option} must be {plain!r}"
            )


class SimCSE(engine.Objective):
    """Unsupervised SimCSE (Gao et al., 2021, section 3, equation 4; Tables 1, 2, 3, 6 and D.1).

    Each sentence is encoded twice with independent dropout masks; the two vectors must find each
    other among those of the other sentences of the batch.

    Paper and code agree on the defaults: one direction only, N - 1 negatives, and a tanh projector
    that is used in training and dropped afterwards (Table 6, "w/ MLP (train)"). The ablations of
    Tables 1 to 3 were never released; where the paper is silent, the parameters below say so.

    Args:
        temperature: tau.
        similarity: "cosine", or "dot" (Table D.1).
        projector: "tanh", "batchnorm" or "none"; dropped after training.
        symmetric: average with the loss from the second view to the first.
        hardness: beta: negatives count in proportion to exp(beta s / tau) (Robinson et al. 2021).
        debias: tau^+: the share of negatives that are taken for positives (Chuang et al. 2020).
        loss: "softmax"; "decoupled" leaves the positive out of the sum (Yeh et al. 2022); "sigmoid"
            takes the pairs one by one (SigLIP: Zhai et al. 2023).
        bias: of "sigmoid", on similarities that are divided by tau.
        duplicates: "contrast", or "mask" negatives that share a text with the sentence.
        encoders: 1, or 2 independent ones (Table 2); the paper does not say which of the two is
            tested, here it is the one of the anchors.
        masks: "independent", or "fixed": both views with the same dropout masks (Table 3, "fixed
            0.1": the author encodes once and takes the vector twice).
        view: what makes the positive, see :mod:`contrasent.text.views`: "dropout", "crop",
            "delete_words", "delete_one_word", "synonym", "masked_lm" (Table 1), "next_sentence"
            (Table 2).
        views: "second" changes one of the two (the author's answer), "both" each.
        resample_views: draw views anew in each "epoch", or once ("static"); the paper is silent.
        percent: share of words to crop, delete or mask.
        rate: of repeated or inserted words, for the views of ESimCSE.
        rule: how ``rate`` counts, "code", "paper" or "exact".
        count: words to replace by synonyms.
        reach: 1 for the next sentence, 3 for one of the next three.
        draw: "argmax" or "sample" from the masked language model.
        wordnet: folder of WordNet, or lexicon of the package wn.
        filler: folder of the masked language model.
    """

    published: ClassVar[dict[str, Any]] = {"batch": 64, "lr": 3e-5, "epochs": 1.0, "max_tokens": 32}
    """Table A.1, and the released script."""
    checks = (engine.check_view, check_fixed_masks)

    def __init__(
        self,
        encoder: engine.Encoder,
        *,
        temperature: engine.Positive = 0.05,
        similarity: Similarity = "cosine",
        projector: engine.Projector = "tanh",
        symmetric: bool = False,
        hardness: engine.Weight = 0.0,
        debias: Annotated[float, engine.Range(least=0, below=1)] = 0.0,
        loss: Form = "softmax",
        bias: Annotated[float, engine.Range()] = -10.0,
        duplicates: engine.Duplicates = "contrast",
        encoders: Literal[1, 2] = 1,
        masks: Literal["independent", "fixed"] = "independent",
        view: Annotated[str, engine.Neutral("dropout")] = "dropout",
        views: engine.Which = "second",
        resample_views: engine.ResampleViews = "epoch",
        percent: Annotated[float | None, engine.Range(least=0, below=100)] = None,
        rate: Annotated[float | None, engine.Range(least=0, most=1)] = None,
        rule: Rule | None = None,
        count: engine.Count | None = None,
        reach: engine.Count | None = None,
        draw: Draw | None = None,
        wordnet: str | None = None,
        filler: engine.MaskedModelFolder = None,
    ) -> None:
        super().__init__(encoder)
        options: dict[str, Any] = {"view": view}
        options |= {"percent": percent, "rate": rate, "rule": rule, "count": count, "reach": reach}
        options |= {"draw": draw, "wordnet": wordnet, "filler": filler}
        self.views = engine.make_views(encoder, options, views=views)
        self.resample_views = resample_views == "epoch"
        self.contrast = engine.Contrast(
            temperature=temperature,
            similarity=similarity,
            symmetric=symmetric,
            hardness=hardness,
            debias=debias,
            loss=loss,
            bias=bias,
            duplicates=duplicates,
        )
        self.masks = masks
        check_fixed_masks({"masks": masks, "view": view, "encoders": encoders})
        self.use_projector(projector, encoders=encoders)
