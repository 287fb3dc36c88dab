"""A model that encodes without torch: a BERT-like encoder in numpy, its pooler and its head."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from contrasent.errors import ModelError
from contrasent.metrics import normalize
from contrasent.model.base import Encoder, cores_for
from contrasent.model.description import describe, read_config, read_dense, read_kept
from contrasent.model.golden import EncoderConfig, check_weights, model_identity, read_arrays
from contrasent.model.numpy_layers import BackboneConfig, NumpyEncoder, gelu, not_computed
from contrasent.model.pooling import POOLERS, averaged
from contrasent.text.tokens import Tokenizer
from contrasent.types import Tokens, Vectors


class PackedRows:
    """Rows of tokens, one after the other; see :class:`contrasent.model.pooling.Rows`."""

    library: Any = np

    def __init__(self, tokens: Tokens) -> None:
        """For all of these rows."""
        self.ids = tokens.ids[tokens.offsets[0] : tokens.offsets[-1]]
        self.sizes = tokens.lengths
        self.starts: NDArray[np.int64] = tokens.offsets[:-1] - tokens.offsets[0]

    def real(self, values: NDArray[np.int64]) -> Vectors:
        """In float32."""
        return np.asarray(values, np.float32)

    def any(self, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(n,)."""
        return np.logical_or.reduceat(among, self.starts)

    def first(self, values: Vectors) -> Vectors:
        """(n, d)."""
        return values[self.starts]

    def last(self, values: Vectors, among: NDArray[np.bool_] | None = None) -> Vectors:
        """(n, d)."""
        last: NDArray[np.int64] = self.starts + self.sizes - 1
        if among is not None:
            last = np.maximum.reduceat(np.where(among, np.arange(len(among)), 0), self.starts)
        return values[last]

    def max(self, values: Vectors) -> Vectors:
        """(n, d)."""
        return np.asarray(np.maximum.reduceat(values, self.starts, axis=0))

    def mean(self, values: Vectors, weights: Vectors | None = None) -> Vectors:
        """(n, d)."""
        sizes = self.sizes.astype(np.float32)
        if weights is not None:
            sizes, values = np.add.reduceat(weights, self.starts), values * weights[:, None]
        sums = np.add.reduceat(values, self.starts, axis=0)
        return np.asarray(sums / sizes[:, None], np.float32)


_ACTIVATIONS: dict[str, Callable[[Vectors], Vectors]] = {
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "GELU": gelu,
    "Identity": lambda x: x,
}


def supports(folder: Path, pooling: str | None = None) -> bool:
    """Whether a model folder can be computed here."""
    try:
        stored = describe(folder)
        config = read_config(stored.transformer)
    except ModelError:
        return False
    return (
        not not_computed(config)
        and (pooling or stored.pooling) in POOLERS
        and (stored.transformer / "model.safetensors").is_file()
    )


def by_numpy(folder: Path, pooling: str | None = None, *, light: bool = True) -> bool:
    """Whether numpy is to compute a model: without torch, or if ``light`` and there is no GPU."""
    if find_spec("torch") is None:
        return True
    accelerated = sys.platform == "darwin" or Path("/dev/nvidiactl").exists()
    return light and not accelerated and supports(folder, pooling)


def _present_name(name: str) -> str:
    """The name of a weight; files made from TensorFlow's, as bert-base-uncased's, have older."""
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


class NumpyModel(Encoder):
    """An encoder computed by numpy; its vectors equal those of torch's to 1e-5."""

    runtime = "numpy"

    def __init__(
        self,
        folder: Path,
        *,
        pooling: str | None = None,
        max_seq_length: int | None = None,
        check: bool = True,
    ) -> None:
        """Read a model folder."""
        stored = describe(folder)
        if check:
            check_weights(folder)
        self.pooling = stored.pooling_or(pooling, folder, POOLERS)
        config = self._config = BackboneConfig(stored.transformer)
        read = read_arrays(stored.transformer / "model.safetensors")
        self._weights = {_present_name(name): values for name, values in read.items()}
        self.backbone = NumpyEncoder(config, self._weights)
        places = self.backbone.positions[self.backbone.first_position :]
        self.longest = len(places)
        cut = stored.length(max_seq_length, self.longest)
        self.tokenizer = Tokenizer.load(stored.transformer, max_seq_length=cut)
        self.prompts, self.normalize = stored.prompts, stored.normalize
        self.lower_case = stored.lower_case
        self.head = [read_dense(path, read_arrays) for path in stored.head]
        self._pooler = POOLERS[self.pooling](self.tokenizer)
        sizes = (self.backbone.size, len(self.backbone.words))
        self._kept = self._pooler.initial(*sizes)
        if self.pooling == stored.pooling and stored.pooling_folder is not None:
            self._kept = read_kept(stored.pooling_folder, self._pooler, *sizes)
        self.matryoshka_dims = config.matryoshka_dims

    @property
    def identity(self) -> str:
        """The hash of torch's encoder, of its tensors by their names there."""
        arrays: dict[str, NDArray[Any]] = {}
        for key in self.backbone.used:
            value = self._weights[key]
            kind = np.float32 if value.dtype.kind == "f" else value.dtype
            name = f"backbone.{key.removeprefix(self.backbone.prefix)}"
            arrays[name] = value.astype(kind, copy=False)
        several = len(self.head) > 1
        for number, (_, weight, bias) in enumerate(self.head):
            place = f"head.{number}.linear" if several else "head.linear"
            arrays[f"{place}.weight"] = weight.astype(np.float32)
            if bias is not None:
                arrays[f"{place}.bias"] = bias.astype(np.float32)
        arrays |= {f"pooler.{key}": value for key, value in self._kept.items()}
        head = [activation for activation, _, _ in self.head]
        return model_identity(self, arrays, head, self._config.settings, self._config.usual)

    @property
    def config(self) -> EncoderConfig:
        """The settings that determine the vectors, with :attr:`identity`."""
        settings = (self.pooling, bool(self.head), self.normalize, self.lower_case)
        return EncoderConfig(self.identity, *settings, self.max_seq_length, self.dimension)

    @property
    def dimension(self) -> int:
        """Size of the vectors."""
        return int(self.head[-1][1].shape[0]) if self.head else self.backbone.size

    def embed(self, tokens: Tokens) -> Vectors:
        """Vectors of tokenized sentences in one call; equal lengths side by side are fastest."""
        self._pooler.check(self._kept)
        hidden = averaged(self.backbone(tokens, self._pooler.layers))
        vectors: Vectors = self._pooler.pool(PackedRows(tokens), hidden, self._kept)
        for activation, weight, bias in self.head:
            vectors = vectors @ weight.T
            if bias is not None:
                vectors += bias
            vectors = _ACTIVATIONS[activation](vectors)
        return np.asarray(normalize(vectors) if self.normalize else vectors, dtype=np.float32)

    def encode_tokens(self, tokens: Tokens, batch_size: int) -> Vectors:
        """Vectors of distinct rows in calls of at most ``batch_size`` of them."""
        cores = cores_for(tokens)
        # One call a core: the matrix library should not split each of them as well.
        with threadpool_limits(1, "blas") if cores > 1 else nullcontext():
            return self._by_cores(self.embed, tokens, batch_size, tokens.lengths, cores)
