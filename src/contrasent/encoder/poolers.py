"""Poolers as modules of torch; their names are in :mod:`contrasent.model.pooling`.

"First-last" means two things in the literature, so there are two names: SimCSE's paper table was
computed with the embedding output (here ``embeddings_last``), its later code and BERT-whitening
average layer 1 and the last layer (here ``first_last``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from contrasent.encoder.tensors import read_tensors
from contrasent.errors import ModelError, check_choice
from contrasent.model import pooling
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens


class Pooler(nn.Module, ABC):
    """A pooler without weights or statistics; subclasses keep theirs in parameters and buffers.

    Attributes:
        name: its key in ``POOLERS``.
        layers: the hidden states that it reads, 0 for the embedding output; (-1,) for the last.
        first_token: whether the last layer's first token is all that it reads.
        portable: whether sentence-transformers pools a saved model in the same way.
        exportable: whether a graph for ONNX or OpenVINO can pool so.
        card: how its vectors are made, for the cards of models that are not portable; TEMPLATE
            stands for the model's prompt.
    """

    name: ClassVar[str]
    layers: ClassVar[tuple[int, ...]] = (-1,)
    first_token: ClassVar[bool] = False
    portable: ClassVar[bool] = False
    exportable: ClassVar[bool] = True
    card: ClassVar[str] = ""

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        """For a backbone of that configuration."""
        super().__init__()
        self.size, self.depth = int(config.hidden_size), int(config.num_hidden_layers)

    @abstractmethod
    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors (n, d) of a block of rows.

        ``states``: hidden states (n, t, d), all of them if ``layers`` names others than the last,
        which comes last in any case. ``ids``: (n, t). ``mask``: (n, t), true on real tokens.
        """

    def fit(self, corpus: Iterable[Tokens]) -> None:
        """Take statistics of the training corpus, block by block; called when training starts."""

    def parts(self) -> list[pooling.Part]:
        """The modules of a model folder for this pooling."""
        return [(f"{pooling.OWN}.{type(self).__name__}", {"pooling": self.name}, self.state_dict())]

    def load(self, path: Path) -> None:
        """Read its state from the folder of its module."""
        state = self.state_dict()
        stored = read_tensors(path / "model.safetensors") if state else {}
        shapes = [{k: (v.shape, v.dtype) for k, v in part.items()} for part in (state, stored)]
        if shapes[0] != shapes[1]:
            raise ModelError(f"{path}: does not match this model's pooling {self.name!r}")
        self.load_state_dict(stored)


def masked_mean(states: Tensor, weights: Tensor) -> Tensor:
    """(n, d) weighted mean over the tokens of (n, t, d) states, weights (n, t)."""
    weights = weights[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


class _Portable(Pooler):
    """A pooler in the layout of sentence-transformers."""

    portable = True
    mode: ClassVar[str] = "mean"

    def parts(self) -> list[pooling.Part]:
        """Weights of the layers, if it averages two, and the mode of pooling."""
        every = [*pooling.MODES.values(), "mean_sqrt_len_tokens", "weightedmean_tokens"]
        flags = {f"pooling_mode_{m}": m == pooling.MODES[self.mode] for m in every}
        flags["include_prompt"] = True
        size = {"word_embedding_dimension": self.size}
        pooled: pooling.Part = (f"{pooling.MODULES}.Pooling", {**size, **flags}, {})
        weights = pooling.layer_weights(self.layers, self.depth)
        if weights is None:
            return [pooled]
        layers = {**size, "layer_start": 0, "num_hidden_layers": self.depth}
        tensors = {"layer_weights": torch.tensor(weights)}
        return [(f"{pooling.MODULES}.WeightedLayerPooling", layers, tensors), pooled]


class First(_Portable):
    """The first token's vector in the last layer (SimCSE, section 6.1)."""

    name = mode = "cls"
    first_token = True

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) vectors."""
        return states[-1][:, 0]


class LastToken(_Portable):
    """The last real token's vector in the last layer, wherever the padding is.

    Of a decoder it is the only one that has seen the whole text.
    """

    name = mode = "last_token"

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) vectors."""
        places = torch.arange(mask.shape[1], device=mask.device)
        last = (places * mask).amax(1)
        return states[-1].gather(1, last[:, None, None].expand(-1, 1, states[-1].shape[-1]))[:, 0]


class Maximum(_Portable):
    """Maximum over the real tokens of the last layer, dimension by dimension."""

    name = mode = "max"

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) vectors."""
        least = torch.finfo(states[-1].dtype).min
        return states[-1].masked_fill(~mask[..., None], least).amax(1)


class Mean(_Portable):
    """Mean over the real tokens of one hidden state, or of the mean of two."""

    name = "mean"

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) vectors."""
        read = [states[layer] for layer in self.layers]
        return masked_mean(read[0] if len(read) == 1 else (read[0] + read[1]) / 2, mask)


class FirstLast(Mean):
    """Layer 1 and the last (BERT-whitening, SimCSE's code)."""

    name, layers = "first_last", pooling.AVERAGED["first_last"]


class EmbeddingsLast(Mean):
    """The embedding output and the last layer (SimCSE, Table 5)."""

    name, layers = "embeddings_last", pooling.AVERAGED["embeddings_last"]


class LastTwo(Mean):
    """The last two layers ("avg_top2" in SimCSE's code)."""

    name, layers = "last_two", pooling.AVERAGED["last_two"]


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
                "pooling at the mask token needs a prompt with [MASK], as the objective "
                "promptbert saves it"
            )
        return states[-1][masked & (masked.flip(1).cumsum(1).flip(1) == 1)]


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
                "pooling 'idf' needs token frequencies; contrasent train --set pooling=idf "
                "counts and saves them"
            )
        rarity = ((1 + self.texts).float() / (1 + self.frequencies[ids]).float()).log() + 1
        return masked_mean(states[-1], rarity * mask)


KINDS: dict[str, type[Pooler]] = {
    kind.name: kind
    for kind in (
        First, Mean, Maximum, LastToken, FirstLast, EmbeddingsLast, LastTwo, MaskPooling, IdfPooling
    )
}  # fmt: skip


def pooler_class(name: str) -> type[Pooler]:
    """The pooler of that name."""
    check_choice("pooling", name, KINDS)
    return KINDS[name]
