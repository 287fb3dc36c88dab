"""The conditional discriminator of DiffCSE: an encoder with a sentence vector in front."""

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from contrasent.errors import ModelError
from contrasent.model.encoder import Encoder
from contrasent.objectives._queue import follower
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
        self.reader = follower(encoder)
        self.reader.head = None
        backbone = cast(Any, self.reader.backbone)
        # ELECTRA projects its embeddings to the hidden size in a layer of its own.
        place = getattr(backbone, "embeddings_project", None) or getattr(
            backbone, "embeddings", None
        )
        if not isinstance(place, nn.Module):
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
        self._condition: Tensor | None = None
        place.register_forward_hook(self._put)

    def _put(self, module: nn.Module, args: Any, output: Any) -> Any:
        if self._condition is None:
            return output
        first = self._condition.to(output.dtype)[:, None]
        return torch.cat([first, output[:, 1:]], dim=1)

    def forward(
        self, tokens: Tokens, condition: Tensor, *, width: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Token vectors (n, t, d) of one padded block, and its mask (n, t).

        Args:
            tokens: the edited rows.
            condition: (n, d) sentence vectors.
            width: t at least, where another process has a longer row.
        """
        rows = len(tokens)
        if width is not None and width > int(tokens.lengths.max()):
            # A row of that length makes the padding; its result is thrown away.
            longer = Tokens.from_rows([np.full(width, tokens.ids[0], dtype=np.int32)])
            tokens = Tokens.concatenate([tokens, longer])
            condition = torch.cat([condition, condition[:1].detach()])
        self._condition = condition
        try:
            hidden, mask = self.reader.hidden(tokens)
        finally:
            self._condition = None
        return hidden[-1][:rows], mask[:rows]
