"""Tensors in safetensors files: those of models, and of a run's checkpoint."""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from contrasent.errors import ModelError, see
from contrasent.files import atomic_file
from contrasent.model.golden import readable

CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone() for k, v in '
    "torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors', "
    "{'format': 'pt'})\""
)


def without_weights(folder: Path) -> ModelError:
    """The error of a folder without safetensors."""
    remedy = "look for a converted copy among the model's pull requests on the hub and give that "
    remedy += f"commit{see('no-model')}"
    if (folder / "pytorch_model.bin").is_file():
        remedy = "pytorch_model.bin is pickled and is not read; if you trust it, convert it with: "
        remedy += CONVERT
    return ModelError(f"{folder}: no weights in safetensors; {remedy}")


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors, each with its own storage."""
    ready = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    try:
        save_file(ready, path, metadata=dict(metadata or {"format": "pt"}))
    except SafetensorError as error:
        raise OSError(str(error)) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file; raise a ModelError if it is missing or damaged."""
    with readable(path):
        return load_file(path)


def write_checkpoint(
    path: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: Any
) -> None:
    """Write a checkpoint: a module with all buffers, its moments, and a state as JSON."""
    tensors = {f"model.{k}": v for k, v in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = value
    with atomic_file(path, "wb") as stream:
        # Written in place of the temporary file's content: safetensors wants a name.
        save_tensors(Path(stream.name), tensors, {"contrasent": json.dumps(state)})


def restore_checkpoint(
    tensors: Mapping[str, Tensor], module: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Give a module and its optimizer the state that a checkpoint's tensors hold."""
    weights: dict[str, Tensor] = {}
    moments: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, value in tensors.items():
        kind, name = key.split(".", 1)
        if kind == "model":
            weights[name] = value
        else:
            moment, name = name.split(".", 1)
            moments[name][moment] = value
    module.load_state_dict(weights)
    for name, parameter in module.named_parameters():
        if name in moments:
            state = {k: value.to(parameter.device) for k, value in moments[name].items()}
            optimizer.state[parameter] = state


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Tensors and state of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as stream:
            state = json.loads((stream.metadata() or {})["contrasent"])
            return {k: stream.get_tensor(k) for k in stream.keys()}, state  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: not a readable checkpoint ({error})") from error
