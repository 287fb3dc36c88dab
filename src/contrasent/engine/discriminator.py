"""The conditional discriminator of DiffCSE: an encoder with a sentence vector in front."""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from contrasent.engine.queue import copy_encoder
from contrasent.errors import ModelError
from contrasent.model.encoder import Encoder
from contrasent.types import Tokens


class Discriminator(nn.Module):
    """A full copy of the encoder that reads an edited sentence with the sentence vector in front.

    The vector takes the place of the first token's embedding after the embedding's normalisation
    and dropout, without position or type (as in DiffCSE's released code). Its gradient goes back
    into the encoder; the copy's own weights learn from this task alone and are never saved with
    the model.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.reader = copy_encoder(encoder)
        self.reader.head = None
        backbone = cast(Any, self.reader.backbone)
        # ELECTRA projects its embeddings to the hidden size in a layer of its own.
        places = ("embeddings_project", "embeddings")
        place = next((n for n in places if isinstance(getattr(backbone, n, None), nn.Module)), None)
        if place is None:
            raise ModelError(
                f"a discriminator cannot be made of a {backbone.config.model_type!r} encoder: it "
                "has no embedding layer to put the sentence vector into"
            )
        if encoder.dimension != backbone.config.hidden_size:
            raise ModelError(
                f"a discriminator takes sentence vectors of the encoder's hidden size "
                f"{backbone.config.hidden_size}, and these have {encoder.dimension}; leave out the "
                "encoder's head"
            )
        if not len(encoder.tokenizer.frame[0]):
            raise ModelError(
                "a discriminator needs a tokenizer that puts a token such as [CLS] first, whose "
                "place the sentence vector takes"
            )
        _take_condition(backbone, place)

    def forward(
        self, tokens: Tokens, condition: Tensor, *, width: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Token vectors (n, t, d) of one block, padded to its longest row, and its mask (n, t).

        ``condition``: (n, d) sentence vectors. Returns token vectors (n, t, d) and the mask (n, t),
        true on real tokens.
        """
        rows, longest = len(tokens), int(tokens.lengths.max())
        width = longest if width is None else width
        if width > longest:
            # A row of that length makes the padding; its result is thrown away.
            longer = Tokens.from_rows([np.full(width, tokens.ids[0], dtype=np.int32)])
            tokens = Tokens.concatenate([tokens, longer])
            condition = torch.cat([condition, condition[:1].detach()])
        hidden, mask = self.reader.hidden(tokens, condition=condition)
        # Where shapes are bucketed there is more padding, which counts for nothing.
        return hidden[-1][:rows, :width], mask[:rows, :width]


def _take_condition(backbone: nn.Module, name: str) -> None:
    """Make a condition one more input of a backbone, put first in the output of a part of it.

    Both modules get classes of their own. (A forward hook would be lost in compilation: compiled
    code is shared with the encoder, and hooks are not looked at when it is chosen.)

    ``backbone``: whose forward shall take a ``condition`` (n, d) by name.
    """
    place = backbone.get_submodule(name)
    embeds, reads = type(place), type(backbone)

    def embed(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        output: Tensor = embeds.forward(self, *args, **kwargs)
        return torch.cat([self.condition.to(output.dtype)[:, None], output[:, 1:]], dim=1)

    def read(self: Any, *args: Any, condition: Tensor, **kwargs: Any) -> Any:
        place = getattr(self, name)
        place.condition = condition
        try:
            return reads.forward(self, *args, **kwargs)
        finally:
            place.condition = None

    place.__class__ = type(f"Conditional{embeds.__name__}", (embeds,), {"forward": embed})
    backbone.__class__ = type(f"Conditional{reads.__name__}", (reads,), {"forward": read})
