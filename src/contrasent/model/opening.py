"""Opening a model to encode with, by name, runtime and settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contrasent.elsewhere import setting_hint
from contrasent.errors import ModelError, OptionError, check_choice, import_extra
from contrasent.model.base import Encoder as Encoder
from contrasent.model.numpy_model import NumpyModel, by_numpy
from contrasent.model.pretrained import resolve
from contrasent.model.runtime import NAME, RUNTIMES, Exported, read_export

FLOW = "contrasent_flow.json"  # of a folder with a flow in it
DESCRIPTIONS = ("modules.json", "config.json", NAME, FLOW)
"""Files of model folders; each has one of them at least."""
TORCH_SETTINGS = ("attention_dropout", "bidirectional", "device", "dropout", "head", "normalize")


def find_model(name: str | Path, *, revision: str | None = None) -> Path:
    """The folder of a model, without importing anything heavy."""
    folder = resolve(name, revision=revision)
    if not any((folder / file).is_file() for file in DESCRIPTIONS):
        raise ModelError(
            f"{folder}: not a model folder (neither modules.json nor config.json in it)"
        )
    return folder


def absolute_name(name: str) -> str:
    """A model's name that is valid from any working directory."""
    path = Path(name)
    found = path.is_dir() or (path.suffix == ".gguf" and path.is_file())
    return str(path.resolve()) if found else name


def open_encoder(
    folder: Path,
    *,
    runtime: str | None = None,
    pooling: str | None = None,
    max_seq_length: int | None = None,
    light: bool = False,
    check: bool = True,
    torch_settings: Mapping[str, Any] | None = None,
) -> Encoder:
    """The encoder of a model folder; ``light``: numpy, if it can, where there is no GPU."""
    settings: dict[str, Any] = {"pooling": pooling, "max_seq_length": max_seq_length}
    if runtime is not None:
        check_choice("--runtime", runtime, RUNTIMES)
    is_flow = (folder / FLOW).is_file()
    if is_flow and runtime not in (None, "torch"):
        problem = f"{folder} contains a flow, which needs torch"
        raise OptionError("--runtime", runtime, problem)
    more = {key: value for key, value in (torch_settings or {}).items() if value is not None}
    for name, value in more.items():
        if name not in TORCH_SETTINGS:
            raise OptionError(name, value, setting_hint(name) or "is not a setting of an encoder")
    if (folder / NAME).is_file() or runtime not in (None, "torch", "numpy"):
        encoder: Encoder = _open_export(folder, runtime, pooling, max_seq_length)
    elif runtime == "numpy" or (
        not (is_flow or runtime or more) and by_numpy(folder, pooling, light=light)
    ):
        encoder = NumpyModel(folder, **settings, check=check)
    else:
        room, kind = ("flow", "FlowEncoder") if is_flow else ("encoder", "TorchEncoder")
        purpose = f"computing {folder} with torch"
        module = import_extra(f"contrasent.encoder.{room}", "train", purpose)
        encoder = getattr(module, kind).load(folder, **settings, check=check, **more)
    if more and encoder.runtime != "torch":
        name, value = next(iter(more.items()))
        raise OptionError(name, value, f"cannot be set with the runtime {encoder.runtime}")
    return encoder


def _open_named(name: str | Path, revision: str | None, **settings: Any) -> Encoder:
    encoder = open_encoder(find_model(name, revision=revision), **settings)
    stated = {key: settings[key] for key in ("pooling", "max_seq_length")}
    source = absolute_name(str(name))
    pinned = revision is not None and not Path(source).is_dir()
    encoder.loaded_by = f"{source}@{revision}" if pinned else source, stated
    return encoder


Encoder.opener = _open_named


def _open_export(
    folder: Path, runtime: str | None, pooling: str | None, max_seq_length: int | None
) -> Exported:
    """The export in the folder itself, or the one of this runtime in a model's folder."""
    if (folder / NAME).is_file():
        name = read_export(folder).name
        if runtime not in (None, name):
            raise OptionError("--runtime", runtime, f"{folder} is exported to {name}")
        exported = Exported.open(folder)
    else:
        place = folder / str(runtime)
        if not (place / NAME).is_file():
            to, _, int8 = str(runtime).partition("-")
            how = f"contrasent export {folder} --to {to}{' --int8' if int8 else ''}"
            raise ModelError(f"{folder}: is not exported to {runtime}; export it with '{how}'")
        exported = Exported.open(place, model=folder)
    exported.check(pooling=pooling, max_seq_length=max_seq_length)
    return exported
