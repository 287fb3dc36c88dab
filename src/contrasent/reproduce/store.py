"""Results on disk: one small JSON file a measurement, written atomically; locks between processes.

```
RESULTS/items/simcse-table1.lab.json   what the rows of an item consist of
RESULTS/units/KEY.json                 one measurement: a report
RESULTS/units/train-KEY.json           the record of one training run
RESULTS/skipped/KEY.json               why a model could not be made
RESULTS/models/KEY/                    a model, until all of its measurements are done
RESULTS/corpora/                       the sampled corpora
RESULTS/tokens/                        and tokenised, for all runs
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
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from contrasent.engine import registry
from contrasent.files import write_json, writing

Json = dict[str, Any]  # an object in a report or a stored file
HASHED = ("*.safetensors", "*.json", "vocab.txt", "merges.txt", "*.model")

CODE = ("losses", "engine", "objectives", "encoder", "model", "train", "text")
"""Folders of the package that the numbers of a training run depend on."""

FIRST = Path(__file__).parent / "first_defaults.json"


ADDED = ("export.json", "index.db", "milvus.json", "index.json")
"""Files of which each export and each index has one; the last is of the earliest format."""


def added_folders(folder: Path) -> frozenset[Path]:
    """The exports and indexes inside a model folder, which do not change the model."""
    return frozenset(path.parent for name in ADDED for path in folder.rglob(name)) - {folder}


def folder_digest(folder: Path, without: frozenset[Path] = frozenset()) -> str:
    """Sha256 of the files that make up a model folder, except those in the folders ``without``."""
    total = hashlib.sha256()
    for path in sorted({p for pattern in HASHED for p in folder.rglob(pattern)}):
        if "run" in path.relative_to(folder).parts or not without.isdisjoint(path.parents):
            continue
        with path.open("rb") as stream:
            total.update(f"{path.relative_to(folder)}\n".encode())
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def departing(values: Mapping[str, Any], kind: str, name: str = "") -> Json:
    """The values that are not those of ``first_defaults.json``, which never change.

    A key of them stands for all of the resolved values: when the code's own default of an option
    changes, so does the key, and when the code learns an option that is written down there too, no
    key does.
    """
    first = _first_defaults()
    known = first[kind] if kind == "settings" else {}
    for part in registry.parts(name) if kind != "settings" else ():
        for key, value in first[kind].get(part, {}).items():
            # As in combined methods, a neutral value gives way to another's.
            if key not in known or known[key] == first["plain"].get(key, ...):
                known[key] = value
    former = first["renamed"]
    plain = {former.get(k, k): list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    return {k: v for k, v in plain.items() if k not in known or v != known[k]}


@cache
def _first_defaults() -> Json:
    defaults: Json = json.loads(FIRST.read_text("utf-8"))
    return defaults


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

    def mentions(self, digest: str) -> bool:
        """Whether a stored result is of a model folder with this digest."""
        units = (self.home / "units").glob("*.json")
        return any(digest in path.read_text("utf-8") for path in units)

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

    # Time of training runs and measurements, each counted once. Measurements that say "seconds"
    # instead of "measured_in" were stored with the training that came before them included.
    measured = [record for record in records.values() if "model" in record]
    total = sum(record.get("measured_in", 0.0) for record in measured)
    whole = dict.fromkeys((record["model"] for record in measured), 0.0)
    for record in measured:
        whole[record["model"]] += record.get("seconds", 0.0)
    for model, seconds in whole.items():
        total += max(seconds, records.get(model, {}).get("seconds", 0.0))
    versions = [", ".join(f"{k} {v}" for k, v in entry.items()) for entry in distinct("versions")]
    return {
        "seconds": round(float(total), 1),
        "trained": len(distinct("steps")),
        "machines": sorted({m.replace(", 1 threads", ", 1 thread") for m in distinct("machine")}),
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
    return {
        "machine": f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "versions": {
            "contrasent": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "code": code.hexdigest()[:12],
    }
