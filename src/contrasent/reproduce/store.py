"""Results on disk: one small JSON file a measurement, written atomically; locks between processes.

```
RESULTS/items/simcse-table1.lab.json   what the rows of an item consist of
RESULTS/units/KEY.json                 one measurement: a report
RESULTS/units/train-KEY.json           the record of one training run
RESULTS/skipped/KEY.json               why a model could not be made
RESULTS/models/KEY/                    a model, until all of its measurements are done
RESULTS/corpora/                       the sampled corpora
RESULTS/tokens/                        and tokenized, for all runs
RESULTS/locks/KEY                      held while a process works on a model
```

A lock is the operating system's: it is gone with the process that held it, however that ended, so
a lock cannot be stale. The file stays, and says who had it last.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from contrasent.files import write_json, writing

Json = dict[str, Any]  # an object in a report or a stored file
HASHED = ("*.safetensors", "*.json", "vocab.txt", "merges.txt", "*.model")

CODE = ("losses", "engine", "objectives", "encoder", "model", "train", "text")
"""Folders of the package that the numbers of a training run depend on."""

MARKS = ("export.json", "index.db", "milvus.json")
"""Files of which each export and each index has one."""


def folder_digest(folder: Path) -> str:
    """Sha256 of the files that make up a model folder, not of the exports and indexes in it."""
    total = hashlib.sha256()
    added = {path.parent for name in MARKS for path in folder.rglob(name)} - {folder}
    for path in sorted({p for pattern in HASHED for p in folder.rglob(pattern)}):
        if "run" in path.relative_to(folder).parts or not added.isdisjoint(path.parents):
            continue
        with path.open("rb") as stream:
            total.update(f"{path.relative_to(folder)}\n".encode())
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def digest_of(value: Any) -> str:
    """A digest of plain data, whatever the order of keys, 24 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class ResultStore:
    """The folder of results."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def model(self, key: str) -> Path:
        """The folder of a model."""
        return self.home / "models" / key

    def drop_model(self, key: str) -> None:
        """Delete a model's folder."""
        with writing(self.model(key)):
            shutil.rmtree(self.model(key), ignore_errors=True)

    def has(self, key: str) -> bool:
        """Whether a measurement is stored."""
        return self._path("units", key).is_file()

    def unit(self, key: str) -> Json | None:
        """A stored measurement; for "train-KEY" the record of a training run, or its failure."""
        return self._read("units", key)

    def write_unit(self, key: str, found: Json) -> None:
        """Store a measurement, or the record of a training run."""
        write_json(self._path("units", key), found)

    def skipped(self, key: str) -> str | None:
        """Why a model could not be made."""
        return (self._read("skipped", key) or {}).get("reason")

    def skip(self, key: str, reason: str | None) -> None:
        """Record why a model could not be made; None clears it, so that it is tried again."""
        if reason is not None:
            write_json(self._path("skipped", key), {"reason": reason})
        else:
            self._path("skipped", key).unlink(missing_ok=True)

    def manifest(self, item: str, scale: str) -> Json | None:
        """The manifest of an item: keys of models and measurements by seed."""
        return self._read("items", f"{_plain(item)}.{scale}")

    def write_manifest(self, manifest: Json) -> None:
        """Store the contents of an item's rows, if not stored already."""
        item, scale = manifest["item"], manifest["scale"]
        if self.manifest(item, scale) != manifest:
            write_json(self._path("items", f"{_plain(item)}.{scale}"), manifest)

    def scales(self, item: str) -> list[str]:
        """The scales at which an item was run."""
        home = self.home / "items"
        return sorted(p.name.split(".")[-2] for p in home.glob(f"{_plain(item)}.*.json"))

    @contextmanager
    def locked(self, key: str) -> Iterator[bool]:
        """Try to lock a model for this process; yield whether it succeeded."""
        path = self.home / "locks" / key
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            with writing(path):
                path.with_suffix(".owner").write_text(f"{socket.gethostname()} {os.getpid()}\n")
            yield True
        finally:
            lock.release()

    def _path(self, folder: str, name: str) -> Path:
        return self.home / folder / f"{name}.json"

    def _read(self, folder: str, name: str) -> Json | None:
        try:
            content = json.loads(self._path(folder, name).read_text("utf-8"))
        except FileNotFoundError:
            return None
        return content if isinstance(content, dict) else None


def _plain(item: str) -> str:
    return item.replace(":", "-")


def times(records: Mapping[str, Json]) -> Json:
    """Seconds, machines and versions of stored measurements and training runs."""

    def distinct(key: str) -> list[Any]:
        return [r[key] for r in records.values() if key in r]

    # Each run and each measurement once, however many tables share it.
    total = sum(distinct("measured_in")) + sum(distinct("seconds"))
    versions = [", ".join(f"{k} {v}" for k, v in entry.items()) for entry in distinct("versions")]
    return {
        "seconds": round(float(total), 1),
        "trained": len(distinct("steps")),
        "machines": sorted(set(distinct("machine"))),
        "precisions": sorted(set(distinct("precision"))),
        "codes": sorted(set(distinct("code"))),
        "versions": sorted(set(versions)),
    }


def environment() -> Json:
    """Machine and versions, for the record."""
    import torch

    from contrasent import __version__

    name = platform.machine()
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
    elif (cpuinfo := Path("/proc/cpuinfo")).is_file():
        model_name = re.search(r"^model name[^:\n]*:(.*)$", cpuinfo.read_text("utf-8"), re.M)
        name = model_name.group(1).strip() if model_name else name
    # The source text that a training run's numbers depend on.
    code = hashlib.sha256()
    for folder in CODE:
        for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
            code.update(path.read_bytes())
    threads = torch.get_num_threads()
    return {
        "machine": f"{name}, {os.cpu_count()} cores, {threads} thread{'s' if threads > 1 else ''}",
        "versions": {
            "contrasent": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "code": code.hexdigest()[:12],
    }
