"""Results on disk: one small JSON file per measurement, written atomically, and locks of processes.

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

A lock is the operating system's: it is gone with the process that held it, however that ended.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from contrasent.errors import InputError
from contrasent.files import write_json, writing

Json = dict[str, Any]  # an object in a report or a stored file
HASHED = ("*.safetensors", "*.json", "vocab.txt", "merges.txt", "*.model")

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
    """A digest of plain data in any order of keys, 24 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class ResultStore:
    """The folder of results: JSON files by kind ("items", "units", "skipped") and key."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def path(self, kind: str, key: str) -> Path:
        """The file of a record."""
        return self.home / kind / f"{key}.json"

    def read(self, kind: str, key: str) -> Json | None:
        """A record, if there is one."""
        path = self.path(kind, key)
        try:
            record: Json = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise InputError(path, f"damaged ({error}); delete it to compute it again") from error
        return record

    def write(self, kind: str, key: str, record: Json) -> None:
        """Store a record, unless it is stored already."""
        if self.read(kind, key) != record:
            write_json(self.path(kind, key), record)

    def has(self, key: str) -> bool:
        """Whether a measurement is stored."""
        return self.path("units", key).is_file()

    def model(self, key: str) -> Path:
        """The folder of a model."""
        return self.home / "models" / key

    def manifest(self, item: str, scale: str) -> Json | None:
        """What the rows of an item consist of: keys of models and measurements by seed."""
        return self.read("items", manifest_key(item, scale))

    def scales(self, item: str) -> list[str]:
        """The scales at which an item was run."""
        found = (self.home / "items").glob(f"{manifest_key(item, '*')}.json")
        return sorted(path.name.split(".")[-2] for path in found)

    @contextmanager
    def locked(self, key: str) -> Iterator[bool]:
        """Try to lock a model for this process; yield whether it succeeded."""
        path = self.home / "locks" / key
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()


def manifest_key(item: str, scale: str) -> str:
    """The key of an item's manifest."""
    return f"{item.replace(':', '-')}.{scale}"
