"""A folder that holds a model and a flow on top of it."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.errors import ModelError
from contrasent.files import atomic_folder, write_json

if TYPE_CHECKING:
    from contrasent.postprocess.flow import Flow

CONFIG = "contrasent_flow.json"
WEIGHTS = "flow.safetensors"
ENCODER = "encoder"


def write_flow(target: Path, flow: "Flow", save_encoder: Callable[[Path], Any]) -> None:
    """Write flow and model, atomically.

    Args:
        target: the folder; an older one is replaced.
        flow: the flow.
        save_encoder: writes the model into a folder.

    Raises:
        OutputError: the folder cannot be written.
    """
    from safetensors.torch import save_file

    with atomic_folder(target) as folder:
        save_encoder(folder / ENCODER)
        save_file({k: v.contiguous() for k, v in flow.state_dict().items()}, folder / WEIGHTS)
        write_json(folder / CONFIG, {"format": 1, "model": ENCODER, **flow.describe()})


def is_flow(folder: Path) -> bool:
    """Whether a folder holds a model with a flow."""
    return (folder / CONFIG).is_file()


def read_flow(folder: Path) -> "tuple[Path, Flow]":
    """The model's folder, and the flow.

    Raises:
        ModelError: files are missing, or the weights do not fit.
    """
    import json

    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from contrasent.postprocess.flow import Flow, Settings

    try:
        said = json.loads((folder / CONFIG).read_text("utf-8"))
        known = {f.name for f in fields(Settings)}
        flow = Flow(int(said["dimension"]), Settings(**{k: said[k] for k in known}))
        flow.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = str(error).split("\n")[0]
        raise ModelError(f"{folder}: the flow cannot be read ({reason})") from error
    return folder / ENCODER, flow.eval()
