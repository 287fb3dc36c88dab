"""PromptBERT: the mask token of a template around the sentence is its vector."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from contrasent import engine
from contrasent.errors import OptionError
from contrasent.text.tokens import MASK, SLOT

BY_ORDER = {"mpnet", "convbert", "fnet", "mobilebert"}
"""Kinds that take positions, and also relate tokens by their order."""


def check_templates(values: Mapping[str, Any]) -> None:
    """Reject templates that do not hold [X] once and, after it, [MASK] once."""
    for option in ("template", "positive_template"):
        text = values[option]
        if text.count(SLOT) != 1 or text.count(MASK) != 1 or text.index(MASK) < text.index(SLOT):
            raise OptionError(option, text, f"must contain {SLOT} once, followed by {MASK} once")


class PromptBERT(engine.Objective):
    """Unsupervised PromptBERT (Jiang et al., 2022, sections 3.2 and 3.3).

    The vector of a sentence is the last hidden state at the mask token of a template around it; the
    positive is the same sentence in another template. Template denoising subtracts the vector of
    the template alone, with its tokens at the same positions as around the sentence.

    Paper and code: the released script denoises in training only, and encodes with its first
    template, which for BERT is the positive one here. Its sentences have up to 32 tokens, 42 with
    the template; the template alone has one dropout mask for each length, as here.

    Args:
        encoder: the encoder to train, which pools at the mask token of ``template`` from then on.
        template: text around a sentence, [X]; saved as the model's prompt.
        positive_template: text around the positive.
        denoise: subtract the vector of the template alone.
        temperature: tau.
        projector: "tanh", "batchnorm" or "none"; removed after training.
    """

    published: ClassVar[dict[str, Any]] = {
        "batch_size": 256,
        "learning_rate": 1e-5,
        "max_seq_length": 42,
    }
    """The released script for BERT base, of one epoch."""
    checks = (check_templates,)

    def __init__(
        self,
        encoder: engine.TorchEncoder,
        *,
        template: str = 'This sentence : "[X]" means [MASK] .',
        positive_template: str = 'This sentence of "[X]" means [MASK] .',
        denoise: bool = True,
        temperature: engine.Positive = 0.05,
        projector: engine.Projector = "tanh",
    ) -> None:
        super().__init__(encoder)
        check_templates({"template": template, "positive_template": positive_template})
        encoder.use_pooler("mask")
        encoder.prompts = engine.Prompts({"query": template, "document": template}, "query")
        self.views = (self.views[0], engine.InTemplate(positive_template))
        self.contrast = engine.Contrast(temperature=temperature)
        self.use_projector(projector)
        if denoise:
            self.baseline = partial(_templates_alone, (template, positive_template))
            _check_alone(encoder, template)


def _check_alone(encoder: engine.TorchEncoder, template: str) -> None:
    """Reject encoders in which a template alone does not stand for that around a sentence."""
    if any(isinstance(module, nn.BatchNorm1d) for module in encoder.modules()):
        problem = "needs a head without batch normalization; set another head, or denoise=false"
        raise OptionError("denoise", True, problem)
    count = sum(map(len, encoder.tokenizer.around(template)))
    rows = engine.Tokens.from_rows(np.zeros(count + size, np.int32) for size in (0, 1))
    with torch.no_grad(), encoder.dropout_off():
        one, other = _templates_alone([template], encoder, [rows], 0)
    config = cast(Any, encoder.backbone).config
    relative = config.model_type in BY_ORDER or getattr(config, "relative_attention", False)
    if relative or torch.allclose(one, other):
        problem = f"{config.model_type} takes no positions, or not for all that it computes"
        raise OptionError("denoise", True, f"{problem}; set denoise=false")


def _templates_alone(
    templates: Sequence[str],
    encoder: engine.TorchEncoder,
    columns: Sequence[engine.Tokens],
    first: int,
) -> Tensor:
    """Vectors (rows of all columns, d) of each row's template alone; one for each length."""
    vectors = []
    for number, rows in enumerate(columns, first):
        before, after = encoder.tokenizer.around(templates[int(number == 1)])
        count = len(before) + len(after)
        sizes, which = np.unique(rows.lengths - count, return_inverse=True)
        places = np.arange(count) + np.where(np.arange(count) < len(before), 0, sizes[:, None])
        alone = engine.Tokens.from_rows([np.concatenate([before, after])] * len(sizes))
        vectors.append(encoder(alone, torch.from_numpy(places))[which])
    return torch.cat(vectors)
