"""SimCSE without labels: a sentence is its own positive, dropout makes the difference."""

from typing import Any, ClassVar

from contrasent.losses import Similarity
from contrasent.model.encoder import Encoder
from contrasent.objectives._base import Objective
from contrasent.objectives._checks import check_fixed
from contrasent.objectives._contrast import Contrast
from contrasent.objectives._views import choose


class SimCSE(Objective):
    """Unsupervised SimCSE (Gao et al., 2021, section 3, equation 4; Tables 1, 2, 3, 6 and D.1).

    Each sentence is encoded twice with independent dropout masks; the two vectors must find each
    other among those of the other sentences of the batch.

    Paper and code agree on the defaults: one direction only, N - 1 negatives, and a tanh projector
    that is used in training and dropped afterwards (Table 6, "w/ MLP (train)"). The ablations of
    Tables 1 to 3 were never released; where the paper is silent, the parameters below say so.

    Args:
        encoder: what is trained.
        temperature: tau.
        similarity: "cosine", or "dot" (Table D.1).
        projector: "tanh", "batchnorm" or "none"; dropped after training.
        symmetric: average with the loss from the second view to the first.
        encoders: 1, or 2 independent ones (Table 2); the paper does not say which of the two is
            tested, here it is the one of the anchors.
        masks: "independent", or "fixed": both views with the same dropout masks (Table 3, "fixed
            0.1": the author encodes once and takes the vector twice).
        view: what makes the positive, see :mod:`contrasent.text.views`: "dropout", "crop",
            "delete_words", "delete_one_word", "synonym", "masked_lm" (Table 1), "next_sentence"
            (Table 2).
        views: "second" changes one of the two (the author's answer), "both" each.
        fresh: draw views anew in each "epoch", or once ("static"); not said in the paper.
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

    def __init__(
        self,
        encoder: Encoder,
        *,
        temperature: float = 0.05,
        similarity: Similarity = "cosine",
        projector: str = "tanh",
        symmetric: bool = False,
        encoders: int = 1,
        masks: str = "independent",
        view: str = "dropout",
        views: str = "second",
        fresh: str = "epoch",
        percent: float | None = None,
        rate: float | None = None,
        rule: str | None = None,
        count: int | None = None,
        reach: int | None = None,
        draw: str | None = None,
        wordnet: str | None = None,
        filler: str | None = None,
    ) -> None:
        super().__init__(encoder)
        options = {"percent": percent, "rate": rate, "rule": rule, "count": count, "reach": reach}
        options |= {"draw": draw, "wordnet": wordnet, "filler": filler}
        self.views = choose(encoder, view, options, views=views)
        self.fresh = fresh == "epoch"
        self.contrast = Contrast(
            temperature=temperature, similarity=similarity, symmetric=symmetric
        )
        self.masks = masks
        if masks == "fixed":
            check_fixed({"view": view, "encoders": encoders})
        self.use_projector(projector, encoders=encoders)
