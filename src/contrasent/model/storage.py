"""The weights of a model folder, in safetensors. Nothing is unpickled."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from safetensors import SafetensorError

from contrasent.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor


def save_tensors(path: Path, tensors: "dict[str, Tensor]") -> None:
    """Write tensors as safetensors, each with storage of its own."""
    from safetensors.torch import save_file

    ready = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    try:
        save_file(ready, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(str(error)) from error


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a safetensors file without torch."""
    return _read(path, "numpy")


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Read a safetensors file."""
    return _read(path, "torch")


def _read(path: Path, framework: str) -> dict[str, Any]:
    try:
        return dict(import_module(f"safetensors.{framework}").load_file(path))
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"{path}: missing or not readable as safetensors ({error})") from error
