"""The manifest of an index folder: which files make up the index now.

Every change writes new files first and then replaces ``index.json`` in one rename, so a reader
sees the old index or the new one and never a mixture.
"""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from contrasent.errors import InputError
from contrasent.files import write_json

NAME = "index.json"
MILVUS = "milvus.json"
"""What stands in the folder of an index in Milvus instead."""
SETTING = "hybrid"
"""Key of an index's settings under which its own fusion is kept."""
LOADED = "loaded.u8"
"""Hashes of the ids that are in Milvus, while it is being loaded."""
FORMAT = "contrasent-index"
VERSION = 1
METRICS = ("cosine", "dot")
BINARY = "binary"
FORMER_KINDS = {"signs": BINARY}
"""Former names of kinds, in stored indexes and in options."""
FAISS_KINDS = ("hnsw", "ivfpq")
APPROXIMATE = (BINARY, *FAISS_KINDS)
"""What may propose rows: see :mod:`contrasent.search.approximate`."""
_FILE = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Part:
    """A segment folder, or a single file of the index."""

    name: str
    rows: int
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``index.json``.

    Attributes:
        model: identity of the model that made the vectors.
        source: name or path that the model was loaded by, "" if unknown.
        next_id: the number that the next row without an id gets.
        deleted: rows that are gone, as a file of row numbers, or None.
        backend: an approximate index over the first rows, or None.
        settings: anything its maker wants to keep with the index.
    """

    model: str
    source: str
    metric: str
    dimension: int
    generation: int = 1
    next_id: int = 0
    segments: tuple[Part, ...] = ()
    deleted: Part | None = None
    backend: Part | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """Names of all files and folders of the index but the manifest."""
        parts = [*self.segments, self.deleted, self.backend]
        return {part.name for part in parts if part is not None}

    def next(self, **changes: Any) -> "Manifest":
        """The following generation."""
        return replace(self, generation=self.generation + 1, **changes)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put a manifest in its place, in one rename."""
    write_json(folder / NAME, {"format": FORMAT, "version": VERSION, **asdict(manifest)})


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest."""
    if not folder.is_dir():
        raise InputError(folder, "is not a folder; build one with 'contrasent index'")
    path = folder / NAME
    if not path.is_file():
        raise InputError(
            folder, f"is no index: it has no {NAME}; build one with 'contrasent index'"
        )
    data = read_object(path)
    if data.pop("format", None) != FORMAT:
        raise InputError(path, f"is not the manifest of an index (format {FORMAT!r})")
    version = data.pop("version", None)
    if version != VERSION:
        raise InputError(
            path, f"has version {version!r} and this program reads {VERSION}; update contrasent"
        )
    try:
        return parse_manifest(data)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(path, f"is damaged ({error}); build the index again") from error


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of an index folder."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(data, ensure_ascii=False).encode()  # half a surrogate could not be written back
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            path, f"is not readable as JSON ({error}); build the index again"
        ) from error
    if not isinstance(data, dict):
        raise InputError(path, "is not a JSON object; build the index again")
    return data


def parse_manifest(data: dict[str, Any]) -> Manifest:
    """Parse and check a manifest of JSON that may have been edited."""
    data["segments"] = tuple(_part(part) for part in data["segments"])
    for single in ("deleted", "backend"):
        data[single] = _part(data[single], single=True) if data.get(single) else None
    manifest = Manifest(**data)
    numbers = (manifest.dimension, manifest.generation, manifest.next_id)
    if not all(_count(number) for number in numbers):
        raise ValueError("dimension, generation and next_id must be whole numbers")
    texts = (manifest.metric, manifest.model, manifest.source)
    if not all(isinstance(text, str) for text in texts) or manifest.metric not in METRICS:
        raise ValueError(f"metric {manifest.metric!r}, model or source is unknown")
    if not isinstance(manifest.settings, dict):
        raise ValueError("settings are no object")
    return manifest


def _part(data: Any, *, single: bool = False) -> Part:
    part = Part(**data)
    if not isinstance(part.files, dict) or (single and list(part.files) != [part.name]):
        raise ValueError(f"{part.name!r} names no files")
    for name in (part.name, *part.files):
        if not isinstance(name, str) or not _FILE.fullmatch(name):  # never a path out of the folder
            raise ValueError(f"{name!r} is no file name of an index")
    for name, facts in part.files.items():
        if not isinstance(facts, dict) or not _count(facts.get("bytes")):
            raise ValueError(f"{name} has no size")
    if isinstance(part.facts, dict) and part.facts.get("kind") in FORMER_KINDS:
        part.facts["kind"] = FORMER_KINDS[part.facts["kind"]]
    if not _count(part.rows) or not isinstance(part.facts, dict):
        raise ValueError(f"{part.name} has {part.rows!r} rows")
    return part


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
