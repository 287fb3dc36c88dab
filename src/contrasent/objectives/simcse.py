"""SimCSE without labels: each sentence is its own positive, by dropout."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from contrasent import engine
from contrasent.errors import OptionError
from contrasent.text.views import Draw, Rule


def check_fixed_masks(values: Mapping[str, Any]) -> None:
    """Reject the same dropout masks for views that differ otherwise."""
    for option, plain in (("view", "dropout"), ("encoders", 1)):
        if values["masks"] == "fixed" and values[option] != plain:
            raise OptionError(
                "masks", "fixed", f"makes both views identical; set {option} to {plain!r}"
            )


class SimCSE(engine.PairObjective):
    """Unsupervised SimCSE (Gao et al., 2021, section 3, equation 4; Tables 1, 2, 3, 6 and D.1).

    Each sentence is encoded twice with independent dropout masks. The two vectors are a positive
    pair, and the other sentences of the batch are negatives.

    Paper and code agree on the defaults: one direction only, N - 1 negatives, and a tanh projector
    that is used in training and removed afterwards (Table 6, "w/ MLP (train)"). The ablations of
    Tables 1 to 3 were never released; the parameters below say where the paper is silent. It does
    not say which of two encoders (Table 2) is tested; here it is that of the anchors.

    Args:
        masks: "independent", or "fixed": both views with the same dropout masks (Table 3, "fixed
            0.1": the author encodes once and takes the vector twice).
        view: what makes the positive: "dropout", "crop",
            "delete_words", "delete_one_word", "synonym", "masked_lm" (Table 1), "next_sentence"
            (Table 2).
        views: "second" changes one of the two (according to the author), "both" changes each.
        resample_views: draw views again in each "epoch", or once ("static"); the paper does not
            say.
        percent: share of words to crop, delete or mask.
        rate: greatest share of words to repeat or insert, for the views of ESimCSE.
        rule: how ``rate`` counts, "code", "paper" or "exact".
        count: number of words to replace by synonyms.
        reach: 1 for the next sentence, 3 for one of the next three.
        draw: how the masked language model chooses: "argmax" or "sample".
        wordnet: folder of WordNet's files.
        filler: folder of the masked language model.
    """

    published: ClassVar[dict[str, Any]] = {
        "batch_size": 64,
        "learning_rate": 3e-5,
        "num_train_epochs": 1.0,
        "max_seq_length": 32,
    }
    """Table A.1, and the released script."""
    checks = (*engine.PairObjective.checks, engine.check_view, check_fixed_masks)

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
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
        **given: Any,
    ) -> None:
        super().__init__(encoder, **given)
        options: dict[str, Any] = {"view": view}
        options |= {"percent": percent, "rate": rate, "rule": rule, "count": count, "reach": reach}
        options |= {"draw": draw, "wordnet": wordnet, "filler": filler}
        self.views = engine.make_views(encoder, options, views=views)
        self.resample_views = resample_views == "epoch"
        self.masks = masks
        encoders = given.get("encoders", 1)
        check_fixed_masks({"masks": masks, "view": view, "encoders": encoders})
