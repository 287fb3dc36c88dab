"""Mean of the last layer, each token weighted by its inverse document frequency."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrasent.encoder.poolers.base import Pooler, masked_mean
from contrasent.errors import ModelError
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens


class IdfPooling(Pooler):
    """Mean weighted by ln((1 + N) / (1 + n_t)) + 1 (Spärck Jones 1972, smoothed).

    N texts of the training corpus, n_t of which hold token t. The least weight is 1, that of
    [CLS] and [SEP], so that an empty text has a vector too.
    """

    name = "idf"
    card = (
        "A vector is the mean of the last hidden states, each token weighted by its inverse "
        "document frequency in the training corpus.\nsentence-transformers has no such pooling and "
        "rejects the model.\n"
    )
    texts: Tensor
    frequencies: Tensor

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        """Without frequencies, until ``fit`` or ``load``."""
        super().__init__(config, tokenizer)
        self.register_buffer("texts", torch.zeros((), dtype=torch.int64))
        self.register_buffer("frequencies", torch.zeros(config.vocab_size, dtype=torch.int64))

    def fit(self, corpus: Iterable[Tokens]) -> None:
        """Count the texts, and those that hold each token."""
        texts, vocabulary = 0, len(self.frequencies)
        holding = np.zeros(vocabulary, dtype=np.int64)
        for tokens in corpus:
            rows = np.repeat(np.arange(len(tokens)), tokens.lengths)
            ids = tokens.ids[tokens.offsets[0] : tokens.offsets[-1]]
            once = np.unique(rows * vocabulary + ids) % vocabulary
            holding += np.bincount(once, minlength=vocabulary)
            texts += len(tokens)
        self.texts.fill_(texts)
        self.frequencies.copy_(torch.from_numpy(holding))

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) vectors."""
        if not torch.compiler.is_exporting() and not int(self.texts):
            raise ModelError(
                "pooler 'idf' has no token frequencies; they are counted when training starts "
                "(contrasent train --set pooler=idf) and saved with the model"
            )
        rarity = ((1 + self.texts).float() / (1 + self.frequencies[ids]).float()).log() + 1
        return masked_mean(states[-1], rarity * mask)
