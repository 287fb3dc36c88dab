"""Model folders: the sentence-transformers layout, written in its older schema, both read.

The older schema (``sentence_transformers.models.*``, ``pooling_mode_*`` keys) is what today's and
last year's sentence-transformers and the common inference servers all read. Weights are
safetensors; nothing is unpickled.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from contrasent.errors import ModelError
from contrasent.model.heads import ACTIVATIONS, Dense
from contrasent.model.poolers import layer_weights
from contrasent.model.prompts import NAME, Prompts

MASK_POOLING = "contrasent.MaskPooling"
"""Pooling at the mask token, which no module of sentence-transformers does: there is no class of
this name, so that others refuse the folder instead of pooling otherwise."""
OLD = "sentence_transformers.models"
WRITTEN_FOR = "5.3.0"
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
NEW_KEYS = {"cls": "cls", "mean": "mean", "max": "max"}


@dataclass(frozen=True, slots=True)
class Description:
    """What a model folder says of the model beyond its backbone.

    Attributes:
        transformer: the folder of backbone and tokenizer.
        pooler: name of the pooler, or None for a bare transformers folder, which does not say.
        head: folders of dense layers, in order.
        normalise: whether vectors are scaled to unit length.
        max_tokens: the length that texts are cut at, if stated.
        lower_case: whether texts are lower-cased before the tokenizer sees them.
        prompts: what is put before texts.
    """

    transformer: Path
    pooler: str | None
    head: tuple[Path, ...]
    normalise: bool
    max_tokens: int | None
    lower_case: bool
    prompts: Prompts = field(default_factory=Prompts)


def read_json(path: Path) -> Any:
    """Read a JSON file of a model folder.

    Raises:
        ModelError: it is missing or not JSON.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: missing or unreadable; the folder is no whole model") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON ({error})") from error


def _object(path: Path, *, needed: bool = False) -> dict[str, Any]:
    """A JSON object of a model folder; empty if the file is not there and not needed."""
    data = read_json(path) if needed or path.is_file() else {}
    if not isinstance(data, dict):
        raise ModelError(f"{path}: not a JSON object")
    return data


def describe(folder: Path) -> Description:
    """Read what a model folder says of itself.

    Raises:
        ModelError: it is no model folder, or holds a module or asks for shortened vectors, which
            contrasent does not know.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such model folder")
    if not (folder / "modules.json").is_file():
        if not (folder / "config.json").is_file():
            raise ModelError(
                f"{folder}: not a model folder (neither modules.json nor config.json in it)"
            )
        named = _object(folder / "config.json").get("architectures")
        if isinstance(named, list) and any(str(name).endswith("ForCL") for name in named):
            raise ModelError(
                f"{folder}: a checkpoint as the code of SimCSE and its kin writes it, with a head "
                f"that nothing else finds: contrasent import {folder} -o MODEL"
            )
        return Description(folder, None, (), False, _length(folder, {}), False)
    prompts = read_prompts(folder)
    transformer, pooler, normalise, head = folder, None, False, []
    weights: list[float] | None = None
    for name, path in _modules(folder):
        kind = name.rsplit(".", 1)[-1]
        if kind == "Transformer":
            transformer = path
        elif kind == "WeightedLayerPooling":
            weights = _layer_weights(path / "model.safetensors")
        elif kind == "Pooling":
            pooler = _pooler(path, weights, prompts)
        elif name == MASK_POOLING:
            pooler = "mask"
        elif kind == "Dense":
            head.append(path)
        elif kind == "Normalize":
            normalise = True
        else:
            raise ModelError(
                f"{folder / 'modules.json'}: module {name!r} is not supported "
                "(Transformer, Pooling, WeightedLayerPooling, Dense and Normalize are)"
            )
    stated = _object(transformer / "sentence_bert_config.json")
    return Description(
        transformer,
        pooler,
        tuple(head),
        normalise,
        _length(transformer, stated),
        bool(stated.get("do_lower_case", False)),
        prompts,
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
        length = _object(transformer / "tokenizer_config.json").get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int | float)):
        raise ModelError(f"{transformer}: longest input {length!r} is not a number")
    # Tokenizers without a limit say 10^30.
    return int(length) if length is not None and length < 10**9 else None


def read_prompts(folder: Path) -> Prompts:
    """The prompts of a model folder.

    Raises:
        ModelError: they are damaged; or the model shortens its vectors, which is not done here.
    """
    path = folder / NAME
    config = _object(path)
    size = config.get("truncate_dim")
    if size is not None:
        raise ModelError(
            f"{path}: truncate_dim {size!r} is not supported; set it to null, knowing that the "
            "vectors are then others"
        )
    return Prompts.read(folder)


def _layer_weights(path: Path) -> list[float]:
    weights = read_tensors(path).get("layer_weights")
    if weights is None or weights.dim() != 1:
        raise ModelError(f"{path}: holds no weights of layers")
    return [float(weight) for weight in weights]


def _pooler(path: Path, weights: list[float] | None, prompts: Prompts) -> str:
    config = _object(path / "config.json", needed=True)
    if prompts.texts and config.get("include_prompt") is False:
        raise ModelError(
            f"{path / 'config.json'}: pooling without the prompt's tokens is not supported"
        )
    if "pooling_mode" in config:
        modes = config["pooling_mode"]
        on = modes if isinstance(modes, list) else [modes]
        names = [name for name, key in NEW_KEYS.items() if key in on]
    else:
        on = [k for k, v in config.items() if k.startswith("pooling_mode_") and v]
        names = [name for name, key in MODES.items() if f"pooling_mode_{key}" in on]
    if len(on) != 1 or len(names) != 1:
        raise ModelError(
            f"{path / 'config.json'}: pooling {on} is not supported (one of cls, mean, max is)"
        )
    if weights is None:
        return names[0]
    for name in ("first_last", "embeddings_last", "last_two"):
        if names[0] == "mean" and layer_weights(name, len(weights) - 1) == weights:
            return name
    raise ModelError(f"{path}: a mean over layers with weights {weights} is not supported")


def read_dense(path: Path) -> Dense:
    """Read a dense layer of a model folder.

    Raises:
        ModelError: its activation is unknown or its weights do not fit.
    """
    config = _object(path / "config.json", needed=True)
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


def write(
    folder: Path,
    *,
    backbone: nn.Module,
    pooler: str,
    head: list[Dense],
    normalise: bool,
    max_tokens: int,
    lower_case: bool,
    prompts: Prompts | None = None,
) -> None:
    """Write everything but tokenizer and card into a folder that exists."""
    config: Any = backbone.config
    size, layers = int(config.hidden_size), int(config.num_hidden_layers)
    weights = layer_weights(pooler, layers)
    stored = config.to_dict()
    for private in ("_attn_implementation", "_name_or_path"):
        stored.pop(private, None)
    stored["architectures"] = [type(backbone).__name__]
    if weights is not None:
        stored["output_hidden_states"] = True
    _dump(folder / "config.json", stored)
    save_tensors(folder / "model.safetensors", dict(backbone.state_dict()))
    modules = [("", "Transformer")]
    if weights is not None:
        modules.append((f"{len(modules)}_WeightedLayerPooling", "WeightedLayerPooling"))
        path = _subfolder(folder, modules[-1][0])
        _dump(
            path / "config.json",
            {"word_embedding_dimension": size, "layer_start": 0, "num_hidden_layers": layers},
        )
        save_tensors(path / "model.safetensors", {"layer_weights": torch.tensor(weights)})
    if pooler == "mask":
        modules.append((f"{len(modules)}_MaskPooling", "MaskPooling"))
        _dump(_subfolder(folder, modules[-1][0]) / "config.json", {"pooling": "mask"})
    else:
        modules.append((f"{len(modules)}_Pooling", "Pooling"))
        mode = MODES["mean" if weights is not None else pooler]
        _dump(_subfolder(folder, modules[-1][0]) / "config.json", _pooling(size, mode))
    for layer in head:
        modules.append((f"{len(modules)}_Dense", "Dense"))
        _write_dense(_subfolder(folder, modules[-1][0]), layer)
    if normalise:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
        # A folder must hold a file to survive version control and the hub.
        _dump(_subfolder(folder, modules[-1][0]) / "config.json", {})
    _dump(
        folder / "modules.json",
        [
            {
                "idx": i,
                "name": str(i),
                "path": path,
                "type": MASK_POOLING if kind == "MaskPooling" else f"{OLD}.{kind}",
            }
            for i, (path, kind) in enumerate(modules)
        ],
    )
    _dump(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_tokens, "do_lower_case": lower_case},
    )
    versions = {"sentence_transformers": WRITTEN_FOR, "pytorch": torch.__version__}
    versions["transformers"] = str(config.transformers_version or "")
    _dump(
        folder / NAME,
        {
            "__version__": versions,
            "prompts": dict(prompts.texts) if prompts else {},
            "default_prompt_name": prompts.default if prompts else None,
            "similarity_fn_name": "cosine",
        },
    )


def _pooling(size: int, mode: str) -> dict[str, Any]:
    every = [*MODES.values(), "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    flags = {f"pooling_mode_{m}": m == mode for m in every}
    return {"word_embedding_dimension": size, **flags, "include_prompt": True}


def _write_dense(path: Path, layer: Dense) -> None:
    names = {kind: name for name, kind in ACTIVATIONS.items()}
    _dump(
        path / "config.json",
        {
            "in_features": layer.linear.in_features,
            "out_features": layer.linear.out_features,
            "bias": layer.linear.bias is not None,
            "activation_function": names[type(layer.activation)],
        },
    )
    save_tensors(path / "model.safetensors", dict(layer.state_dict()))


def save_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write tensors as safetensors, each with storage of its own.

    Raises:
        OSError: they cannot be written.
    """
    ready = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    try:
        save_file(ready, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(str(error)) from error


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a safetensors file.

    Raises:
        ModelError: it is missing or none.
    """
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: missing or not readable as safetensors ({error})") from error


def _subfolder(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path


def _dump(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "utf-8")
