"""Pooling at the mask token of a template."""

from typing import Any

from torch import Tensor

from contrasent.encoder.poolers.base import Pooler
from contrasent.errors import ModelError
from contrasent.text.tokens import Tokenizer


class MaskPooling(Pooler):
    """The last layer's vector at the last mask token (PromptBERT, Jiang et al. 2022, 3.2)."""

    name = "mask"
    exportable = False
    card = (
        "A vector is the last hidden state at the mask token of the template `TEMPLATE`, [X] being "
        "the text.\nsentence-transformers and exports have no such pooling and reject the model.\n"
    )

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        """For the mask token of that tokenizer."""
        super().__init__(config, tokenizer)
        mask = tokenizer.specials.mask
        self.mask = -1 if mask is None else mask

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) vectors."""
        masked = ids == self.mask
        if not bool(masked.any(1).all()):
            raise ModelError(
                "pooling at the mask token: a text has none; the model needs a template with "
                "[MASK] as its prompt, as objective promptbert saves it"
            )
        return states[-1][masked & (masked.flip(1).cumsum(1).flip(1) == 1)]
