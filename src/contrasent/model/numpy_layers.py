"""A forward pass of BERT-like encoders in numpy, packed: no padding, no torch.

Rows of ids are concatenated, so that every linear layer is one matrix product over all tokens;
attention is computed for the rows of one length at a time. Vectors equal torch's to 1e-5.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrasent.errors import ModelError, install
from contrasent.model.description import bad_value, read_config
from contrasent.types import Tokens, Vectors

Weights = Mapping[str, NDArray[Any]]
"""Arrays by their names in a checkpoint; may be memory mapped, and of float16."""
# Tokens whose activations, and scores of attention, that are computed at a time, so that the data
# stay in the processor's cache.
GELU_ROWS, CACHED = 64, 1 << 18
SCORES = 1 << 24  # held at once at most, 64 MB: those of 8,192 tokens and 16 heads would take 4 GB
SAFE = 60.0  # bound of attention scores whose exponentials are summed directly
BUCKETS = 4  # least number of distance ranges with a bias in MPNet
KINDS = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "electra")

_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_ERF_SCALE = 0.3275911


def gelu(x: Vectors) -> Vectors:
    """Multiply x by the normal distribution's share below it, in place.

    The error function is Abramowitz and Stegun's 7.1.26, off by at most 1.5e-7.
    """
    scale, factors = np.float32(_ERF_SCALE * np.sqrt(0.5)), [np.float32(f / 2) for f in _ERF]
    room = np.empty((3, min(len(x), GELU_ROWS), x.shape[1]), np.float32)
    for start in range(0, len(x), GELU_ROWS):
        part = x[start : start + GELU_ROWS]
        size, t, poly = room[:, : len(part)]
        np.abs(part, out=size)
        np.multiply(size, scale, out=t)
        t += 1
        np.reciprocal(t, out=t)
        np.multiply(t, factors[-1], out=poly)
        for factor in factors[-2::-1]:
            poly += factor
            poly *= t
        np.multiply(size, size, out=t)
        t *= np.float32(-0.5)
        np.exp(t, out=t)
        poly *= t  # the share beyond |x|
        poly *= size
        np.maximum(part, 0, out=part)
        part -= poly
    return x


def _gelu_tanh(x: Vectors) -> Vectors:
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    x *= np.float32(0.5) * (1 + np.tanh(inner))
    return x


def _silu(x: Vectors) -> Vectors:
    x /= 1 + np.exp(-x)
    return x


ACTIVATIONS: dict[str, Callable[[Vectors], Vectors]] = {
    "gelu": gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": lambda x: np.maximum(x, 0, out=x),
    "silu": _silu,
    "swish": _silu,
}


@dataclass(frozen=True, slots=True)
class _Linear:
    """A linear layer; ``weight`` is (in, out)."""

    weight: Vectors
    bias: Vectors

    def __call__(self, x: Vectors) -> Vectors:
        out: Vectors = x @ self.weight
        out += self.bias
        return out


@dataclass(frozen=True, slots=True)
class _Norm:
    """Layer normalization over the last axis, in place."""

    weight: Vectors
    bias: Vectors
    epsilon: float

    def __call__(self, x: Vectors) -> Vectors:
        x -= x.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1])
        x *= (1 / np.sqrt(variance + np.float32(self.epsilon)))[:, None]
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: _Linear
    output: _Linear
    attention_norm: _Norm
    up: _Linear
    down: _Linear
    norm: _Norm


class BackboneConfig:
    """The settings in config.json of an encoder that can be computed here."""

    def __init__(self, transformer: Path) -> None:
        self.path, config = transformer / "config.json", read_config(transformer)
        if problem := not_computed(config):
            raise ModelError(
                f"{problem} needs torch (without it only {', '.join(KINDS)}): {install('train')}"
            )

        def size(*names: str) -> int:
            key = next((name for name in names if name in config), names[0])
            if key not in config:
                raise bad_value(self.path, config, key, "there")
            return int(config[key])

        self.kind, self.settings = config["model_type"], config
        self.usual: dict[str, Any] = {"hidden_act": "gelu", "layer_norm_eps": 1e-12}
        if self.kind == "distilbert":
            self.usual = {"activation": "gelu"}
        self.activation = _activation(config)
        self.layers = size("num_hidden_layers", "n_layers")
        self.heads = size("num_attention_heads", "n_heads")
        self.epsilon = float(config.get("layer_norm_eps", 1e-12))
        numbered = self.kind in ("roberta", "xlm-roberta", "camembert", "mpnet")
        padding = config.get("pad_token_id")
        # The token, and its position, after which others are numbered; None if from 0.
        self.pad = (1 if padding is None else int(padding)) if numbered else None
        self.first_position = 0 if self.pad is None else self.pad + 1
        self.matryoshka_dims = tuple(config.get("matryoshka_dimensions") or ())


class NumpyEncoder:
    """The backbone of a BERT-like encoder; ``used``: names of its weights, with ``prefix``."""

    def __init__(self, config: BackboneConfig, weights: Weights) -> None:
        names = _NAMES.get(config.kind, _NAMES["bert"])
        # A checkpoint's prefix of all names, such as "bert."; none if in doubt.
        word = names["word"]
        prefix = next((name.removesuffix(word) for name in weights if name.endswith(word)), "")
        self.prefix, self.used = prefix, [prefix + word]

        def array(name: str, *sizes: int | None) -> Vectors:
            values = weights.get(prefix + name)
            if values is None:
                raise ModelError(f"{config.path.parent}: the weights lack {prefix + name!r}")
            if values.ndim != len(sizes) or any(
                wanted not in (None, size) for size, wanted in zip(values.shape, sizes, strict=True)
            ):
                expected = " by ".join("any" if size is None else str(size) for size in sizes)
                problem = f"{prefix + name!r} has the shape {values.shape}, not {expected}"
                raise ModelError(f"{config.path.parent}: the weights do not match: {problem}")
            self.used.append(prefix + name)
            return np.ascontiguousarray(values, dtype=np.float32)

        def linear(*parts: str, out: int | None, size: int) -> _Linear:
            weight = np.concatenate([array(f"{part}.weight", out, size) for part in parts])
            rows = len(weight) // len(parts)
            bias = np.concatenate([array(f"{part}.bias", rows) for part in parts])
            return _Linear(np.ascontiguousarray(weight.T), bias)

        def norm(name: str, size: int) -> _Norm:
            return _Norm(array(f"{name}.weight", size), array(f"{name}.bias", size), config.epsilon)

        if prefix + word not in weights or weights[prefix + word].ndim != 2:
            raise ModelError(f"{config.path.parent}: the weights lack a table {prefix + word!r}")
        self.words = weights[prefix + word]  # a row a token: not copied, as it is large
        embedding = self.words.shape[1]
        self.positions = array(names["position"], None, embedding)
        if names["type"]:
            types = array(names["type"], None, embedding)
            self.positions = self.positions + (types[0] if len(types) else np.float32(0))
        self.pad, self.first_position = config.pad, config.first_position
        self.norm = norm(names["norm"], embedding)
        self.heads, self.layers = config.heads, config.layers
        self.activation = config.activation
        self._activation = ACTIVATIONS[config.activation]
        self.stack = []
        projects = f"{prefix}embeddings_project.weight" in weights
        self.projection = (
            linear("embeddings_project", out=None, size=embedding) if projects else None
        )
        size = self.size = self.projection.weight.shape[1] if self.projection else embedding
        if size % self.heads:
            raise ModelError(
                f"{config.path}: num_attention_heads is {self.heads}; it must divide the hidden "
                f"size, {size}"
            )
        for number in range(self.layers):
            layer = {part: names["layer"].format(number) + name for part, name in names.items()}
            qkv = linear(layer["query"], layer["key"], layer["value"], out=size, size=size)
            output = linear(layer["attended"], out=size, size=size)
            attention_norm = norm(layer["attention_norm"], size)
            up = linear(layer["up"], out=None, size=size)
            down = linear(layer["down"], out=size, size=up.weight.shape[1])
            output_norm = norm(layer["output_norm"], size)
            self.stack.append(_Layer(qkv, output, attention_norm, up, down, output_norm))
        self.relative = None
        if config.kind == "mpnet":
            self.relative = array("encoder.relative_attention_bias.weight", None, self.heads)
            if len(self.relative) < BUCKETS:
                raise ModelError(f"{config.path.parent}: fewer than {BUCKETS} relative positions")

    def __call__(self, tokens: Tokens, wanted: tuple[int, ...] = (-1,)) -> list[Vectors]:
        """Hidden states (tokens, d) of the wanted layers, 0 for the embeddings, -1 for the last."""
        if (highest := int(tokens.ids.max())) >= len(self.words):
            problem = f"token {highest} exceeds the {len(self.words):,} rows of the embeddings"
            raise ModelError(f"{problem}; the tokenizer belongs to another model")
        lengths = tokens.lengths
        ends = np.cumsum(lengths)
        places = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths) + self.first_position
        if self.pad is not None and (pads := tokens.ids == self.pad).any():
            # A text may hold the pad token itself, which is not counted.
            passed = np.concatenate([[0], np.cumsum(pads)])
            skipped = passed[1:] - np.repeat(passed[ends - lengths], lengths)
            places = np.where(pads, self.pad, places - skipped)
        hidden: Vectors = np.asarray(self.words[tokens.ids], dtype=np.float32)
        hidden = hidden + self.positions[places]
        hidden = self.norm(hidden)
        if self.projection is not None:
            hidden = self.projection(hidden)
        chosen = {layer % (self.layers + 1) for layer in wanted}
        states = {0: hidden} if 0 in chosen else {}
        blocks = list(_blocks(lengths, CACHED // self.heads))
        for number, layer in enumerate(self.stack, start=1):
            attended = self._attend(layer.qkv(hidden), blocks)
            mixed = layer.output(attended)
            mixed += hidden
            mixed = layer.attention_norm(mixed)
            hidden = layer.down(self._activation(layer.up(mixed)))
            hidden += mixed
            hidden = layer.norm(hidden)
            if number in chosen:
                states[number] = hidden
        return [states[layer % (self.layers + 1)] for layer in wanted]

    def _attend(self, qkv: Vectors, blocks: list[tuple[int, int, int]]) -> Vectors:
        """Softmax attention inside each row."""
        total, heads = len(qkv), self.heads
        width = qkv.shape[1] // 3 // heads
        scale = np.float32(1 / np.sqrt(width))
        out = np.empty((total, heads * width), dtype=np.float32)
        for start, rows, length in blocks:
            stop = start + rows * length
            parts = qkv[start:stop].reshape(rows, length, 3, heads, width)
            query, key, value = parts.transpose(2, 0, 3, 1, 4)
            # Unless the largest score is subtracted, exponentials overflow from 88 on.
            large = self.relative is not None or _bound(query, key) * scale > SAFE
            into = out[start:stop].reshape(rows, length, heads, width).transpose(0, 2, 1, 3)
            step = max(1, SCORES // (rows * heads * length))
            for part in (slice(first, first + step) for first in range(0, length, step)):
                scores = (query[:, :, part] * scale) @ key.transpose(0, 1, 3, 2)
                if self.relative is not None:
                    scores += self._relative_bias(length)[:, part]
                if large:
                    scores -= scores.max(axis=-1, keepdims=True)
                np.exp(scores, out=scores)
                totals = np.einsum("...i->...", scores)[..., None]  # twice as fast as sum
                mixed = scores @ value
                mixed /= totals
                into[:, :, part] = mixed
        return out

    def _relative_bias(self, length: int) -> Vectors:
        """MPNet's (heads, t, t) bias by distance (T5's buckets: 32, up to a distance of 128)."""
        assert self.relative is not None
        distance = np.arange(length)[None, :] - np.arange(length)[:, None]
        half = len(self.relative) // 2
        bucket = np.where(-distance < 0, half, 0)
        size = np.abs(distance)
        exact = half // 2
        far = exact + (
            np.log(np.maximum(size, 1).astype(np.float32) / exact)
            / np.log(128 / exact)
            * (half - exact)
        ).astype(np.int64)
        bucket = bucket + np.where(size < exact, size, np.minimum(far, half - 1))
        biases: Vectors = self.relative[bucket].transpose(2, 0, 1)
        return biases


def not_computed(config: Mapping[str, Any]) -> str:
    """The first setting that only torch supports, or ""."""
    kind, position = config.get("model_type"), config.get("position_embedding_type", "absolute")
    if kind not in KINDS:
        return f"model_type {kind!r}"
    if (activation := _activation(config)) not in ACTIVATIONS:
        return f"activation {activation!r}"
    return "" if position == "absolute" else f"position_embedding_type {position!r}"


def _activation(config: Mapping[str, Any]) -> str:
    return str(config.get("hidden_act", config.get("activation", "gelu")))


def _blocks(lengths: NDArray[np.int64], room: int) -> Iterator[tuple[int, int, int]]:
    """(first token, rows, length) of neighbors of one length, with ``room`` scores or one row."""
    edges = np.flatnonzero(np.diff(lengths)) + 1
    firsts = np.concatenate([[0], np.cumsum(lengths)])
    for first, end in pairwise([0, *edges.tolist(), len(lengths)]):
        length = int(lengths[first])
        few = max(1, room // length**2)
        for row in range(first, end, few):
            yield int(firsts[row]), min(few, end - row), length


def _bound(query: Vectors, key: Vectors) -> float:
    """A bound of all products of queries and keys, by the longest of each head."""
    squares = [np.einsum("...i,...i", x, x).max(axis=-1) for x in (query, key)]
    return float(np.sqrt((squares[0] * squares[1]).max()))


_BERT = {
    "word": "embeddings.word_embeddings.weight",
    "position": "embeddings.position_embeddings.weight",
    "type": "embeddings.token_type_embeddings.weight",
    "norm": "embeddings.LayerNorm",
    "layer": "encoder.layer.{}.",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attended": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
_NAMES: dict[str, dict[str, str]] = {
    "bert": _BERT,
    "distilbert": {
        **_BERT,
        "type": "",
        "layer": "transformer.layer.{}.",
        "query": "attention.q_lin",
        "key": "attention.k_lin",
        "value": "attention.v_lin",
        "attended": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "up": "ffn.lin1",
        "down": "ffn.lin2",
        "output_norm": "output_layer_norm",
    },
    "mpnet": {
        **_BERT,
        "type": "",
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "attended": "attention.attn.o",
        "attention_norm": "attention.LayerNorm",
    },
}
"""Names of the weights, by kind; those of BERT where a kind is not listed."""
