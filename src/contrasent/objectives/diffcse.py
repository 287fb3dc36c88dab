"""DiffCSE: SimCSE, and the vector must reveal which tokens were edited."""

from collections.abc import Mapping
from typing import Any, ClassVar

from contrasent import engine
from contrasent.engine import difference
from contrasent.engine.masked_models import check_masked_model
from contrasent.errors import OptionError
from contrasent.losses import Normalization
from contrasent.text.views import Identity, NextSentence


def check_difference(values: Mapping[str, Any]) -> None:
    """Reject parameters of DiffCSE that do not belong together."""
    if not values["difference_weight"] and not values["contrast_weight"]:
        raise OptionError("difference_weight", 0, "and contrast_weight 0 leave nothing to train")
    if not values["difference_weight"]:
        return
    if values["task"] != "detection" and values["edits"] != "replace":
        raise OptionError("edits", values["edits"], "needs task 'detection'")
    if needs_generator(values) and not values["generator"]:
        check_masked_model("generator", None, None)


def needs_generator(values: Mapping[str, Any]) -> bool:
    """Whether these parameters of DiffCSE make use of a generator."""
    weight, task, edits = (values[k] for k in ("difference_weight", "task", "edits"))
    return bool(weight) and task != "masked_lm" and edits != "delete"


class DiffCSE(engine.ContrastObjective):
    """DiffCSE (Chuang et al., 2022, sections 3 and 5; Tables 3, 4, 5, 6, 7 and 8).

    Besides SimCSE's contrast, a frozen generator edits each sentence, and a discriminator predicts
    from the sentence vector which tokens were edited. Generator, discriminator and projector are
    removed after training.

    Paper and code: the defaults follow the released code, which gave the published scores: the
    generator rewrites all positions with its best guess ("masked" and "sample" are the paper's
    reading), and lambda = 0.005 belongs to a mean over positions that counts padding. The paper has
    a sum. One bug of the code is not followed: the generator's dropout is off (code: on, see
    ``generator_dropout``).

    Args:
        projector: "batchnorm" (section 5, Table 5), "tanh" or "none"; removed after training.
        contrast_weight: weight of the contrastive loss; 0 leaves it out (Table 3).
        difference_weight: lambda of the difference prediction.
        generator: folder or name of a masked language model with the encoder's vocabulary; the
            paper uses DistilBERT for BERT. A run from contrasent-small uses it for both.
        generator_dropout: use the generator's dropout.
        generator_positions: "all" replaces every token but the first (code), "masked" the masked
            ones (paper).
        generator_draw: "argmax" (code) or "sample" from the generator.
        mask_ratio: share of tokens to mask for replacement; 0.30 in the STS script.
        normalization: see :func:`contrasent.losses.token_detection`; it determines the scale of
            lambda.
        condition: "projected" uses the vector after the projector (code), "pooled" the one before.
        condition_vector: vector that the discriminator is given: the sentence's "own", another
            sentence's ("permuted") or "zero". The last two are controls, not from a paper.
        discriminator_learning_rate: peak learning rate of the discriminator; the run's if none.
        discriminator_warmup_steps: number of first steps in which only the discriminator trains.
        edits: "replace", "insert", "delete" or "all" three, summed, with a classifier each (Table
            4; the paper does not say how it combines them).
        edit_ratio: share of tokens to insert or delete (Table 4).
        task: "detection"; "masked_lm" or "corrective" (Table 3, "conditional MLM", "corrective
            LM"; the latter after COCO-LM).
        target: sentence to edit: "same", "next", or the mean of "both" (Table 3). Next sentences
            need a corpus in document order.
        language_head: head of the language-modeling tasks: folder of its checkpoint, "new", or none
            for the encoder's own folder.
    """

    published: ClassVar[dict[str, Any]] = {
        "batch_size": 64,
        "learning_rate": 7e-6,
        "num_train_epochs": 2.0,
        "max_seq_length": 32,
    }
    """Table 12 and the released script, for similarity."""
    checks = (check_difference,)

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        projector: engine.Projector = "batchnorm",
        contrast_weight: engine.Weight = 1.0,
        difference_weight: engine.Weight = 0.005,
        generator: engine.MaskedModelFolder = None,
        generator_dropout: bool = False,
        generator_positions: difference.Positions = "all",
        generator_draw: difference.Draw = "argmax",
        mask_ratio: engine.Share = 0.30,
        normalization: Normalization = "mean_with_padding",
        condition: difference.Condition = "projected",
        condition_vector: difference.ConditionVector = "own",
        discriminator_learning_rate: engine.Positive | None = None,
        discriminator_warmup_steps: engine.Size = 0,
        edits: difference.Edits = "replace",
        edit_ratio: engine.Share = 0.15,
        task: difference.Task = "detection",
        target: difference.Target = "same",
        language_head: str | None = None,
        **given: Any,
    ) -> None:
        super().__init__(encoder, projector=projector, **given)
        self.use_contrast(contrast_weight, **vars(self.contrast))
        if target != "same":
            self.views = (Identity(), Identity(), NextSentence(reach=1))
            self.roles = ("anchor", "positive", "edited")
        chosen: dict[str, Any] = {"task": task, "edits": edits, "generator": generator}
        chosen |= {"difference_weight": difference_weight, "contrast_weight": contrast_weight}
        check_difference(chosen)
        if not difference_weight:
            return
        filler = None
        if needs_generator(chosen):
            filler = engine.MaskedModel.load(
                generator, encoder, option="generator", noisy=generator_dropout
            )
        self.weights["difference"] = difference_weight
        self.terms["difference"] = difference.DifferencePrediction(
            encoder,
            task=task,
            edits=edits,
            target=target,
            mask_ratio=mask_ratio,
            edit_ratio=edit_ratio,
            normalization=normalization,
            draw=generator_draw,
            positions=generator_positions,
            condition=condition,
            condition_vector=condition_vector,
            generator=filler,
            language_head=language_head,
            learning_rate=discriminator_learning_rate,
            warmup_steps=discriminator_warmup_steps,
        )
