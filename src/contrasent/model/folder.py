"""Model folders: the sentence-transformers layout, written in its older schema, both read.

The older schema (``sentence_transformers.models.*``, ``pooling_mode_*`` keys) is what today's and
last year's sentence-transformers and the common inference servers all read. Weights are
safetensors; nothing is unpickled.
"""

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import nn

from contrasent.errors import ModelError
from contrasent.model.heads import ACTIVATIONS, Dense
from contrasent.model.poolers import POOLERS
from contrasent.model.poolers.base import OWN, Pooler
from contrasent.model.poolers.layers import MODES, averaging
from contrasent.model.prompts import NAME, Prompts
from contrasent.model.storage import (
    read_json,
    read_object,
    read_tensors,
    save_tensors,
    write_object,
)

OLD = "sentence_transformers.models"
WRITTEN_FOR = "5.3.0"


@dataclass(frozen=True, slots=True)
class Description:
    """What a model folder says of the model beyond its backbone.

    Attributes:
        pooler: name of the pooler, or None for a bare transformers folder, which does not say.
        pooling: folder of a pooler that may have kept something there.
        normalise: whether vectors are scaled to unit length.
        max_tokens: the length that texts are cut at, if stated.
        lower_case: whether texts are lower-cased before the tokenizer sees them.
    """

    transformer: Path
    pooler: str | None
    head: tuple[Path, ...]
    normalise: bool
    max_tokens: int | None
    lower_case: bool
    prompts: Prompts = field(default_factory=Prompts)
    pooling: Path | None = None


def describe(folder: Path) -> Description:
    """Read what a model folder says of itself."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such model folder")
    if not (folder / "modules.json").is_file():
        if not (folder / "config.json").is_file():
            raise ModelError(
                f"{folder}: not a model folder (neither modules.json nor config.json in it)"
            )
        named = read_object(folder / "config.json").get("architectures")
        if isinstance(named, list) and any(str(name).endswith("ForCL") for name in named):
            raise ModelError(
                f"{folder}: a checkpoint as the code of SimCSE and its kin writes it, with a head "
                f"that nothing else finds: contrasent import {folder} -o MODEL"
            )
        return Description(folder, None, (), False, _length(folder, {}), False)
    prompts = Prompts.read(folder)
    transformer, pooler, pooling, normalise, head = folder, None, None, False, []
    weights: list[float] | None = None
    for name, path in _modules(folder):
        kind = name.rsplit(".", 1)[-1]
        if kind == "Transformer":
            transformer = path
        elif kind == "WeightedLayerPooling":
            weights = _layer_weights(path / "model.safetensors")
        elif kind == "Pooling":
            pooler = _pooler(path, weights, prompts)
        elif name.startswith(f"{OWN}."):
            pooler, pooling = _own_pooler(path), path
        elif kind == "Dense":
            head.append(path)
        elif kind == "Normalize":
            normalise = True
        else:
            raise ModelError(
                f"{folder / 'modules.json'}: module {name!r} is not supported "
                "(Transformer, Pooling, WeightedLayerPooling, Dense and Normalize are)"
            )
    stated = read_object(transformer / "sentence_bert_config.json")
    return Description(
        transformer,
        pooler,
        tuple(head),
        normalise,
        _length(transformer, stated),
        bool(stated.get("do_lower_case", False)),
        prompts,
        pooling,
    )


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Type and folder of each module, in order; none leads out of the model's folder."""
    path = folder / "modules.json"
    listed = read_json(path)
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        raise ModelError(f"{path}: not a list of modules with their types and paths")
    found = []
    for module in listed:
        kind, place = module.get("type"), module.get("path")
        if not isinstance(kind, str) or not isinstance(place, str):
            raise ModelError(f"{path}: not a list of modules with their types and paths")
        inside = PurePath(place)
        if inside.is_absolute() or ".." in inside.parts or "\0" in place:
            raise ModelError(f"{path}: path {place!r} leads out of the model's folder")
        found.append((kind, folder / place))
    return found


def _length(transformer: Path, stated: dict[str, Any]) -> int | None:
    """The length texts are cut at: the newer schema keeps it with the tokenizer alone."""
    length = stated.get("max_seq_length")
    if length is None:
        length = read_object(transformer / "tokenizer_config.json").get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int | float)):
        raise ModelError(f"{transformer}: longest input {length!r} is not a number")
    # Tokenizers without a limit say 10^30.
    return int(length) if length is not None and length < 10**9 else None


def _layer_weights(path: Path) -> list[float]:
    weights = read_tensors(path).get("layer_weights")
    if weights is None or weights.dim() != 1:
        raise ModelError(f"{path}: holds no weights of layers")
    return [float(weight) for weight in weights]


def _pooler(path: Path, weights: list[float] | None, prompts: Prompts) -> str:
    config = read_object(path / "config.json", needed=True)
    if prompts.texts and config.get("include_prompt") is False:
        raise ModelError(
            f"{path / 'config.json'}: pooling without the prompt's tokens is not supported"
        )
    if "pooling_mode" in config:
        modes = config["pooling_mode"]
        on = modes if isinstance(modes, list) else [modes]
        names = [name for name in MODES if name in on]
    else:
        on = [k for k, v in config.items() if k.startswith("pooling_mode_") and v]
        names = [name for name, key in MODES.items() if f"pooling_mode_{key}" in on]
    if len(on) != 1 or len(names) != 1:
        raise ModelError(
            f"{path / 'config.json'}: pooling {on} is not supported (one of cls, mean, max is)"
        )
    if weights is None:
        return names[0]
    name = averaging(weights) if names[0] == "mean" else None
    if name is None:
        raise ModelError(f"{path}: a mean over layers with weights {weights} is not supported")
    return name


def _own_pooler(path: Path) -> str:
    name = read_object(path / "config.json", needed=True).get("pooling")
    if not isinstance(name, str) or name not in POOLERS:
        raise ModelError(f"{path / 'config.json'}: pooling {name!r} is not supported")
    return name


def read_dense(path: Path) -> Dense:
    """Read a dense layer of a model folder."""
    config = read_object(path / "config.json", needed=True)
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(
            f"{path / 'config.json'}: activation {name!r} is not one of {', '.join(ACTIVATIONS)}"
        )
    weights = read_tensors(path / "model.safetensors")
    bias = bool(config.get("bias", True))
    sizes = (config.get("out_features"), config.get("in_features"))
    shapes = {"linear.weight": sizes, **({"linear.bias": sizes[:1]} if bias else {})}
    # Before anything is made of that size.
    if {key: tuple(tensor.shape) for key, tensor in weights.items()} != shapes:
        raise ModelError(f"{path}: the weights do not fit its config.json")
    size_out, size_in = weights["linear.weight"].shape
    layer = Dense(size_in, size_out, ACTIVATIONS[name](), bias=bias)
    layer.load_state_dict(weights)
    return layer


def read_head(stored: Description) -> nn.Module | None:
    """The dense layers of a model folder as one module; None if it has none."""
    layers = [read_dense(path) for path in stored.head]
    return nn.Sequential(*layers) if len(layers) > 1 else layers[0] if layers else None


def write(
    folder: Path,
    *,
    backbone: nn.Module,
    pooler: Pooler,
    head: list[Dense],
    normalise: bool,
    max_tokens: int,
    lower_case: bool,
    prompts: Prompts | None = None,
) -> None:
    """Write everything but tokenizer and card."""
    config: Any = backbone.config
    stored = config.to_dict()
    for private in ("_attn_implementation", "_name_or_path"):
        stored.pop(private, None)
    stored["architectures"] = [type(backbone).__name__]
    if len(pooler.layers) > 1:
        stored["output_hidden_states"] = True
    write_object(folder / "config.json", stored)
    save_tensors(folder / "model.safetensors", dict(backbone.state_dict()))
    modules = [(f"{OLD}.Transformer", ""), *pooler.save(folder)]

    def add(kind: str, its: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None) -> None:
        # A folder must hold a file to survive version control and the hub.
        path = folder / f"{len(modules)}_{kind}"
        path.mkdir()
        modules.append((f"{OLD}.{kind}", path.name))
        write_object(path / "config.json", its)
        if tensors is not None:
            save_tensors(path / "model.safetensors", tensors)

    for layer in head:
        add("Dense", _dense(layer), dict(layer.state_dict()))
    if normalise:
        add("Normalize", {})
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (kind, path) in enumerate(modules)
    ]
    write_object(folder / "modules.json", listed)
    bert = {"max_seq_length": max_tokens, "do_lower_case": lower_case}
    write_object(folder / "sentence_bert_config.json", bert)
    versions = {"sentence_transformers": WRITTEN_FOR, "pytorch": torch.__version__}
    versions["transformers"] = str(config.transformers_version or "")
    described = {
        "__version__": versions,
        "prompts": dict(prompts.texts) if prompts else {},
        "default_prompt_name": prompts.default if prompts else None,
        "similarity_fn_name": "cosine",
    }
    write_object(folder / NAME, described)


def _dense(layer: Dense) -> dict[str, Any]:
    names = {kind: name for name, kind in ACTIVATIONS.items()}
    return {
        "in_features": layer.linear.in_features,
        "out_features": layer.linear.out_features,
        "bias": layer.linear.bias is not None,
        "activation_function": names[type(layer.activation)],
    }
