"""Digests: what stands for a folder, or for everything that decides a number."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

HASHED = ("*.safetensors", "*.json", "vocab.txt", "merges.txt", "*.model")
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

    Args:
        values: every option that there is, also those that nobody gave.
        kind: "settings", "objectives" or "measures".
        name: of the objective or measure; methods may be joined by "+".
    """
    first = _first_defaults()
    if kind == "settings":
        known = first[kind]
    else:
        known = {}
        for part in name.split("+"):
            for key, value in first[kind].get(part.strip(), {}).items():
                # As ``objectives`` joins methods: a plain value gives way to another's.
                if key not in known or known[key] == first["plain"].get(key, ...):
                    known[key] = value
    former = first["renamed"] if kind == "settings" else {}
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
