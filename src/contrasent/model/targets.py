"""What can be exported, and where to: checks without torch."""

from importlib.util import find_spec
from pathlib import Path

from contrasent.errors import MissingExtraError, OptionError, OutputError
from contrasent.model.runtime import GRAPHS, NAME


def check_engine(engine: str) -> None:
    """Refuse what cannot be exported to, before torch is used."""
    if engine not in GRAPHS:
        raise OptionError("--to", engine, "no such runtime", choices=GRAPHS)
    needed = {"onnx": "onnx", "onnxscript": "onnx", "onnxruntime": "onnx"}
    if engine == "openvino":
        needed["openvino"] = "openvino"
    for package, extra in needed.items():
        if find_spec(package) is None:
            raise MissingExtraError(package, extra, f"exporting to {engine}")


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a folder that exists, unless it is an export that may be replaced."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / NAME).is_file():
        raise OutputError(f"{target}: exists and is no export; choose another folder with -o")
    if not overwrite:
        raise OutputError(f"{target}: exists; choose another folder with -o, or use --overwrite")
