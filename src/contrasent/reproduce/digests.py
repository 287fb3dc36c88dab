"""What stands for a folder, for all that decides a number, for the machine and the code."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasent.engine import registry

if TYPE_CHECKING:
    from contrasent.reproduce.store import Record

HASHED = ("*.safetensors", "*.json", "vocab.txt", "merges.txt", "*.model")
CODE = ("losses", "engine", "objectives", "model", "train", "text")
"""Folders of the package that the numbers of a training run depend on."""

FIRST = Path(__file__).parent / "first_defaults.json"


def folder_digest(folder: Path) -> str:
    """Sha256 of what a model folder consists of; other files of it do not matter."""
    total = hashlib.sha256()
    for path in sorted({p for pattern in HASHED for p in folder.rglob(pattern)}):
        if "run" in path.relative_to(folder).parts:
            continue
        with path.open("rb") as stream:
            total.update(f"{path.relative_to(folder)}\n".encode())
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def departing(values: Mapping[str, Any], kind: str, name: str = "") -> dict[str, Any]:
    """The values that are not those of ``first_defaults.json``, which never change.

    A key of them stands for all of the resolved values: when the code's own default of an option
    changes, so does the key, and when the code learns an option that is written down there too, no
    key does.
    """
    first = _first_defaults()
    if kind == "settings":
        known = first[kind]
    else:
        known = {}
        for part in registry.parts(name):
            for key, value in first[kind].get(part, {}).items():
                # As ``objectives`` joins methods: a plain value gives way to another's.
                if key not in known or known[key] == first["plain"].get(key, ...):
                    known[key] = value
    former = first["renamed"]
    plain = {former.get(k, k): list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    return {k: v for k, v in plain.items() if k not in known or v != known[k]}


@cache
def _first_defaults() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIRST.read_text("utf-8"))
    return found


def digest_of(value: Any) -> str:
    """24 hexadecimal digits that stand for plain data, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def environment() -> "Record":
    """Machine and versions, for the record."""
    import torch

    from contrasent import __version__

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    return {
        "machine": f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "versions": {
            "contrasent": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "code": _code_digest(),
    }


def _code_digest() -> str:
    """12 digits that stand for the source text that a training run's numbers depend on."""
    total = hashlib.sha256()
    for folder in CODE:
        for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()[:12]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
