"""What is installed, what is missing for what, and what computes: ``contrasent doctor`` alone."""

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from contrasent.processes import threads

EXTRAS = {
    "documents": "adapt reads PDF, Word, PowerPoint and parquet",
    "offline": "the base model all-MiniLM-L6-v2 without a download",
    "serve": "the HTTP server",
    "onnx": "export and run models without torch",
    "openvino": "the same, by OpenVINO",
    "faiss": "approximate search by faiss",
    "milvus": "indexes in Milvus",
    "ray": "encoding on a Ray cluster",
    "cloud": "reading and writing s3:// and gs://",
    "report": "figures of reproduce",
    "synonyms": "the synonym view, by WordNet",
}
"""Extras that change what commands can do, and what for."""

INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd")
"""Of processors, those that decide what is fast."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a machine has.

    Attributes:
        instructions: of the processor that matter for speed; empty where they cannot be read.
        missing: packages that each extra lacks; empty for one that is complete.
        data: folder of the data sets and whether it is there, or None where none is named.
        base: folder of the default base model, or None.
    """

    versions: dict[str, str]
    threads: int
    instructions: tuple[str, ...]
    gpu: str | None
    missing: dict[str, tuple[str, ...]]
    data: tuple[str, bool] | None
    base: str | None
    cache: str


def look() -> Environment:
    """Look at this machine."""
    from contrasent.errors import ModelError
    from contrasent.model.pretrained import MINILM, resolve

    import torch  # isort: skip

    names = ("contrasent", "torch", "transformers", "tokenizers", "numpy")
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    data = os.environ.get("CONTRASENT_DATA")
    try:
        base: str | None = str(resolve(MINILM))
    except ModelError:
        base = None
    home = os.environ.get("HF_HOME", str(Path.home() / ".cache" / "huggingface"))
    return Environment(
        versions,
        threads(),
        _instructions(),
        torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        {extra: _missing(extra) for extra in EXTRAS},
        None if data is None else (data, Path(data).is_dir()),
        base,
        os.environ.get("HF_HUB_CACHE", str(Path(home) / "hub")),
    )


def _instructions() -> tuple[str, ...]:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return ()
    flags = set(re.findall(r"\w+", "".join(re.findall(r"^(?:flags|Features)\s*:.*$", text, re.M))))
    return tuple(name for name in INSTRUCTIONS if name in flags)


def _missing(extra: str) -> tuple[str, ...]:
    """Packages of an extra that are not installed."""
    lacking = []
    for line in requires("contrasent") or ():
        name, marked = line.partition(";")[::2]
        if not re.search(rf"extra\s*==\s*['\"]{extra}['\"]", marked):
            continue
        if inner := re.match(r"contrasent\[([\w,-]+)\]", name.strip()):
            lacking += [package for one in inner[1].split(",") for package in _missing(one)]
            continue
        package = re.split(r"[\s<>=!~\[(]", name.strip())[0]
        try:
            version(package)
        except PackageNotFoundError:
            if find_spec(package.replace("-", "_")) is None:
                lacking.append(package)
    return tuple(lacking)


def lines(found: Environment) -> list[str]:
    """What people read."""
    said = [", ".join(f"{name} {number}" for name, number in found.versions.items())]
    known = ", ".join(found.instructions) or "its instructions cannot be read here"
    said.append(f"computes with {found.threads} threads ({known}), GPU: {found.gpu or 'none'}")
    said.append(f"base model all-MiniLM-L6-v2: {found.base or 'not here'}")
    said.append(f"models from the hub: {found.cache}")
    if found.data is None:
        said.append("data sets: CONTRASENT_DATA is not set; only suites of papers need it")
    else:
        folder, there = found.data
        said.append(f"data sets: {folder}{'' if there else ', which is not there'}")
    said += ["", "extras"]
    for extra, packages in found.missing.items():
        mark = "ok   " if not packages else "     "
        tail = f": pip install 'contrasent[{extra}]'" if packages else ""
        said.append(f"{mark}{extra:<10} {EXTRAS[extra]}{tail}")
    return said
