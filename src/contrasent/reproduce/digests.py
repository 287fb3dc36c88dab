"""Digests: what stands for a folder, or for everything that decides a number."""

import hashlib
import json
from pathlib import Path
from typing import Any

HASHED = ("*.safetensors", "*.json", "vocab.txt", "merges.txt", "*.model")


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


def departing(given: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    """The values that are not the default: a key does not change when code learns a new option."""
    return {k: v for k, v in given.items() if k not in default or v != default[k]}


def digest_of(told: Any) -> str:
    """24 hexadecimal digits that stand for plain data, whatever the order of its keys."""
    text = json.dumps(told, sort_keys=True, ensure_ascii=False, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
