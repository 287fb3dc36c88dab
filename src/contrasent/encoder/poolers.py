"""Poolers in torch: one module for all of :mod:`contrasent.model.pooling`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contrasent.errors import ModelError, OptionError
from contrasent.model import pooling
from contrasent.model.description import read_kept
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens


class PaddedRows:
    """Rows of a padded block; see :class:`contrasent.model.pooling.Rows`."""

    library: Any = torch

    def __init__(self, ids: Tensor, mask: Tensor) -> None:
        """For ids (n, t), of which the mask (n, t) is true on real tokens."""
        self.ids, self.mask = ids, mask

    def real(self, values: Tensor) -> Tensor:
        """In float32."""
        return values.float()

    def any(self, among: Tensor) -> Tensor:
        """(n,)."""
        return (among & self.mask).any(1)

    def first(self, values: Tensor) -> Tensor:
        """(n, d)."""
        return values[:, 0]

    def last(self, values: Tensor, among: Tensor | None = None) -> Tensor:
        """(n, d)."""
        chosen = self.mask if among is None else among & self.mask
        places = torch.arange(chosen.shape[1], device=chosen.device)
        last = (places * chosen).amax(1)
        return values.gather(1, last[:, None, None].expand(-1, 1, values.shape[-1]))[:, 0]

    def max(self, values: Tensor) -> Tensor:
        """(n, d)."""
        least = torch.finfo(values.dtype).min
        return values.masked_fill(~self.mask[..., None], least).amax(1)

    def mean(self, values: Tensor, weights: Tensor | None = None) -> Tensor:
        """(n, d)."""
        chosen = self.mask if weights is None else weights * self.mask
        shares = chosen[..., None].to(values.dtype)
        return (values * shares).sum(1) / shares.sum(1)


def width(config: Any) -> int:
    """Size of an encoder's last hidden states, which OPT-350m projects."""
    return int(getattr(config, "word_embed_proj_dim", config.hidden_size))


class Pooling(nn.Module):
    """A pooler (``rule``), and what it keeps: weights as parameters, counts as buffers."""

    def __init__(self, name: str, config: Any, tokenizer: Tokenizer) -> None:
        """The pooler of that name for a backbone of that configuration."""
        super().__init__()
        pooling.check_pooler(name)
        self.rule = pooling.POOLERS[name](tokenizer)
        self.size, self.depth = width(config), int(config.num_hidden_layers)
        if self.size != config.hidden_size and self.layers != (-1,):
            problem = "needs hidden states of one size, and this encoder projects the last"
            raise OptionError("pooling", name, problem)
        self.vocabulary = int(config.vocab_size)
        for key, array in self.rule.initial(self.size, self.vocabulary).items():
            tensor = torch.from_numpy(array)
            try:
                if tensor.is_floating_point():
                    self.register_parameter(key, nn.Parameter(tensor))
                else:
                    self.register_buffer(key, tensor)
            except KeyError as error:  # it is an attribute of modules, or has a dot
                problem = f"pooling {name!r} cannot keep {key!r} ({error.args[0]})"
                raise ModelError(f"{problem}; rename it in initial()") from error

    @property
    def name(self) -> str:
        """The name of the pooler."""
        return self.rule.name

    @property
    def layers(self) -> tuple[int, ...]:
        """The hidden states that it reads; (-1,) for the last alone."""
        return self.rule.layers

    @property
    def portable(self) -> bool:
        """Whether sentence-transformers pools a saved model in the same way."""
        return self.rule.mode is not None and not self.state_dict()

    def forward(self, states: tuple[Tensor, ...], ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors (n, d) of a block of rows.

        ``states``: hidden states (n, t, d), all of them if ``layers`` names others than the last,
        which comes last in any case. ``ids``: (n, t). ``mask``: (n, t), true on real tokens.
        """
        kept = dict(self.named_parameters()) | dict(self.named_buffers())
        if not torch.compiler.is_exporting():
            self.rule.check(kept)
        hidden = pooling.averaged([states[layer] for layer in self.layers])
        vectors: Tensor = self.rule.pool(PaddedRows(ids, mask), hidden, kept)
        return vectors

    def fit(self, corpus: Iterable[Tokens]) -> None:
        """Take statistics of the training corpus, block by block; called when training starts."""
        for key, counts in self.rule.count(corpus, self.vocabulary).items():
            self.get_buffer(key).copy_(torch.from_numpy(counts))

    def parts(self) -> list[pooling.Part]:
        """The modules of a model folder for this pooling."""
        pooler = self.rule
        if not self.portable:
            config = {"pooling": pooler.name}
            return [(f"{pooling.OWN}.{type(pooler).__name__}", config, self.state_dict())]
        flags = {f"pooling_mode_{flag}": m == pooler.mode for m, flag in pooling.FLAGS.items()}
        flags["include_prompt"] = True
        size = {"word_embedding_dimension": self.size}
        pooled: pooling.Part = (f"{pooling.MODULES}.Pooling", {**size, **flags}, {})
        weights = pooling.layer_weights(self.layers, self.depth)
        if weights is None:
            return [pooled]
        layers = {**size, "layer_start": 0, "num_hidden_layers": self.depth}
        tensors = {"layer_weights": torch.tensor(weights)}
        return [(f"{pooling.MODULES}.WeightedLayerPooling", layers, tensors), pooled]

    def load(self, path: Path) -> None:
        """Read what it keeps from the folder of its module."""
        stored = read_kept(path, self.rule, self.size, self.vocabulary)
        self.load_state_dict({key: torch.from_numpy(array) for key, array in stored.items()})
