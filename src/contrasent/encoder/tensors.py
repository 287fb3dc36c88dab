"""Tensors in safetensors files: those of models, and of a run's checkpoint."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from contrasent.model.golden import readable


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors, each with storage of its own."""
    ready = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    try:
        save_file(ready, path, metadata=dict(metadata or {"format": "pt"}))
    except SafetensorError as error:
        raise OSError(str(error)) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file; it is a ModelError if it is missing or damaged."""
    with readable(path):
        return load_file(path)
