"""A file of JSON lines that a benchmark adds to: what is there is not done again."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if it is not there."""
    text = path.read_text("utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines()]


def append(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Add lines to a file, which is made with its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in lines)
