"""A checkpoint: one safetensors file, replaced atomically, from which a run goes on exactly."""

# It holds the objective with all buffers, AdamW's moments, and as JSON the step, scores and
# settings.

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from contrasent.errors import ModelError
from contrasent.files import atomic_file


def save(path: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Write a checkpoint."""
    tensors = {f"model.{k}": v for k, v in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = value
    ready = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    with atomic_file(path, "wb") as stream:
        try:
            # Written in place of the temporary file's content: safetensors wants a name.
            save_file(ready, stream.name, metadata={"contrasent": json.dumps(state)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def read(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Tensors and state of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as stream:
            state = json.loads((stream.metadata() or {})["contrasent"])
            return {k: stream.get_tensor(k) for k in stream.keys()}, state  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: not a readable checkpoint ({error})") from error


def restore(
    tensors: dict[str, Tensor], module: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Put a checkpoint's tensors back into a module and its optimizer."""
    module.load_state_dict(
        {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    )
    for name, parameter in module.named_parameters():
        state = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = tensors.get(f"optimizer.{key}.{name}")
            if value is not None:
                state[key] = value.to(parameter.device)
        if state:
            optimizer.state[parameter] = state
