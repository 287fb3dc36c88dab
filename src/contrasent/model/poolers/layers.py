"""Poolers that sentence-transformers has too: of the last layer, or of the mean of two.

"First-last" means two things in the literature, so there are two names: SimCSE's paper table was
computed with the embedding output (here ``embeddings_last``), its later code and BERT-whitening
average layer 1 and the last layer (here ``first_last``).
"""

from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from contrasent.files import write_object
from contrasent.model.poolers.base import Pooler, masked_mean
from contrasent.model.poolers.names import AVERAGED, MODES, layer_weights
from contrasent.model.storage import save_tensors

MODULES = "sentence_transformers.models"


class _Portable(Pooler):
    """A pooler in the layout of sentence-transformers."""

    portable = True
    mode: ClassVar[str] = "mean"

    def save(self, folder: Path) -> list[tuple[str, str]]:
        """Write weights of the layers, if it averages two, and the mode of pooling."""
        modules = []
        if weights := layer_weights(self.layers, self.depth):
            path = folder / "1_WeightedLayerPooling"
            path.mkdir()
            modules.append((f"{MODULES}.WeightedLayerPooling", path.name))
            sizes = {"word_embedding_dimension": self.size, "layer_start": 0}
            write_object(path / "config.json", sizes | {"num_hidden_layers": self.depth})
            tensors = {"layer_weights": torch.tensor(weights)}
            save_tensors(path / "model.safetensors", tensors)
        path = folder / f"{len(modules) + 1}_Pooling"
        path.mkdir()
        modules.append((f"{MODULES}.Pooling", path.name))
        every = [*MODES.values(), "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
        flags = {f"pooling_mode_{m}": m == MODES[self.mode] for m in every}
        config = {"word_embedding_dimension": self.size, **flags, "include_prompt": True}
        write_object(path / "config.json", config)
        return modules


class First(_Portable):
    """The first token's vector in the last layer (SimCSE, section 6.1)."""

    name = mode = "cls"
    first_token = True

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """(n, d) vectors."""
        return states[-1][:, 0]


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

    name, layers = "first_last", AVERAGED["first_last"]


class EmbeddingsLast(Mean):
    """The embedding output and the last layer (SimCSE, Table 5)."""

    name, layers = "embeddings_last", AVERAGED["embeddings_last"]


class LastTwo(Mean):
    """The last two layers ("avg_top2" in SimCSE's code)."""

    name, layers = "last_two", AVERAGED["last_two"]
