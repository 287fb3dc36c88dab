"""Model folders: the sentence-transformers layout, written in its older schema, both read.

The older schema (``sentence_transformers.models.*``, ``pooling_mode_*`` keys) is what today's and
last year's sentence-transformers and the common inference servers all read. Weights are
safetensors; nothing is unpickled.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from contrasent.errors import ModelError
from contrasent.files import read_object, write_object
from contrasent.model.description import Description
from contrasent.model.heads import ACTIVATIONS, Dense
from contrasent.model.poolers.base import Pooler
from contrasent.model.prompts import NAME, Prompts
from contrasent.model.storage import read_tensors, save_tensors

OLD = "sentence_transformers.models"
WRITTEN_FOR = "5.3.0"


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
